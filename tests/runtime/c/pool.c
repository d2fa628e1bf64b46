/* The pool behind parallel loops. */
#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "check.h"

enum { MOST = 5000 };

typedef struct {
  atomic_int runs[MOST];
  int plain[MOST]; /* written by the tasks, read by the caller afterwards */
  int tasks;
} tally;

static int count_task(int32_t task, int32_t tasks, void *data) {
  tally *t = data;
  if (!check(task >= 0 && task < tasks && tasks == t->tasks)) return 0;
  atomic_fetch_add_explicit(&t->runs[task], 1, memory_order_relaxed);
  t->plain[task] = task + 1;
  return 0;
}

static int all_ran_once(tally *t, int32_t tasks) {
  memset(t, 0, sizeof *t);
  t->tasks = tasks;
  if (sterna_parallel(count_task, t, tasks)) return 0;
  for (int32_t i = 0; i < tasks; i++)
    if (atomic_load(&t->runs[i]) != 1 || t->plain[i] != i + 1) return 0;
  return 1;
}

static void every_task_once(void) {
  static tally t;
  for (int threads = 0; threads <= 8; threads++) {
    int32_t seen = 0;
    check(sterna_set_num_threads(threads) == 0 && sterna_num_threads(&seen) == 0);
    check(threads ? seen == threads : seen >= 1);
    for (int tasks = 0; tasks <= 40; tasks++) check(all_ran_once(&t, tasks));
    for (int tasks = 100; tasks <= MOST; tasks = tasks * 7 / 2) check(all_ran_once(&t, tasks));
    for (int i = 0; i < 300; i++) check(all_ran_once(&t, threads + 1));
  }
  check(sterna_parallel(count_task, &t, -5) == 0 &&
        sterna_parallel(count_task, &t, INT32_MIN) == 0);
}

static void number_of_threads(void) {
  int32_t threads = 77;
  check_fails(sterna_set_num_threads(-1), "ValueError", "-1 threads");
  check_fails(sterna_set_num_threads(1025), "ValueError", "1025");
  check_fails(sterna_set_num_threads(INT32_MIN), "ValueError", "threads");
  static tally t;
  check(sterna_set_num_threads(64) == 0 && all_ran_once(&t, 1000));
  check(sterna_num_threads(&threads) == 0 && threads == 64);
  sterna_shutdown();
  check(sterna_num_threads(&threads) == 0 && threads != 64); /* the default again */
}

/* ---- failures ---- */

typedef struct {
  int fails_from, silent;
  atomic_int begun;
} failing;

static int fail_from(int32_t task, int32_t tasks, void *data) {
  failing *f = data;
  (void)tasks;
  check(task >= 0);
  atomic_fetch_add(&f->begun, 1);
  if (task < f->fails_from) return 0;
  return f->silent ? 17 : sterna_set_errorf("KeyError", "task %d failed", task);
}

static void failures(void) {
  static const int32_t counts[] = {1, 2, 3, 8, 100, 1000};
  for (int threads = 1; threads <= 5; threads++) {
    check(sterna_set_num_threads(threads) == 0);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
      failing f = {0, 0, 0};
      check_fails(sterna_parallel(fail_from, &f, counts[i]), "KeyError", "failed");
      check(atomic_load(&f.begun) <= threads); /* what had not begun by then was left out */
      f = (failing){counts[i] - 1, 0, 0};
      char expected[40];
      snprintf(expected, sizeof expected, "task %d failed", counts[i] - 1);
      check_fails(sterna_parallel(fail_from, &f, counts[i]), "KeyError", expected);
      f = (failing){counts[i] / 2, 1, 0}; /* without saying why */
      sterna_clear_error();
      check_fails(sterna_parallel(fail_from, &f, counts[i]), "RuntimeError", "without saying why");
    }
    static tally t; /* and it works as before */
    check(all_ran_once(&t, 100));
  }
  sterna_clear_error();
}

/* As many tasks as can be counted: leaving them out takes no time, and the count does not wrap. */
static void countless_tasks(void) {
  double start = check_seconds();
  for (int threads = 1; threads <= 4; threads++) {
    check(sterna_set_num_threads(threads) == 0);
    failing f = {0, 0, 0};
    check_fails(sterna_parallel(fail_from, &f, INT32_MAX), "KeyError", "failed");
  }
  check(check_seconds() - start < 2);
}

/* ---- regions inside and beside each other ---- */

typedef struct {
  tally inner[8];
  atomic_int refused;
} nest;

static int run_inner(int32_t task, int32_t tasks, void *data) {
  nest *n = data;
  (void)tasks;
  n->inner[task].tasks = 50;
  if (sterna_set_num_threads(2) == -1) atomic_fetch_add(&n->refused, 1);
  return sterna_parallel(count_task, &n->inner[task], 50);
}

static int fail_inside(int32_t task, int32_t tasks, void *data) {
  failing f = {5, 0, 0};
  (void)tasks;
  (void)data;
  return task == 2 ? sterna_parallel(fail_from, &f, 10) : 0;
}

static void nested(void) {
  static nest n;
  for (int threads = 1; threads <= 4; threads++) {
    check(sterna_set_num_threads(threads) == 0);
    memset(&n, 0, sizeof n);
    check(sterna_parallel(run_inner, &n, 8) == 0 && atomic_load(&n.refused) == 8);
    for (int k = 0; k < 8; k++)
      for (int i = 0; i < 50; i++) check(atomic_load(&n.inner[k].runs[i]) == 1);
    check_fails(sterna_parallel(fail_inside, NULL, 4), "KeyError", "task 5 failed");
  }
  sterna_clear_error();
}

enum { CALLERS = 24 };
static tally tallies[CALLERS];
static atomic_int go, callers_running;
static double ends_at;

static void *call_regions(void *data) {
  tally *t = data;
  int own = (int)(t - tallies);
  while (!atomic_load(&go)) check_sleep(100);
  for (int i = 0; i < 50 || check_seconds() < ends_at; i++) {
    check(all_ran_once(t, 1 + (own * 31 + i * 17) % 97));
    if (i % 10 == 0) {
      failing f = {3, 0, 0};
      check_fails(sterna_parallel(fail_from, &f, 20), "KeyError", "failed");
    }
  }
  atomic_fetch_sub(&callers_running, 1);
  return NULL;
}

static void run_callers(void (*meanwhile)(int i)) {
  pthread_t threads[CALLERS];
  atomic_store(&go, 0);
  atomic_store(&callers_running, CALLERS);
  ends_at = check_seconds() + 0.4;
  for (int i = 0; i < CALLERS; i++) pthread_create(&threads[i], NULL, call_regions, &tallies[i]);
  atomic_store(&go, 1);
  for (int i = 0; meanwhile && atomic_load(&callers_running); i++) meanwhile(i);
  for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
}

static void many_callers(void) {
  check(sterna_set_num_threads(4) == 0);
  run_callers(NULL);
}

static void change_threads(int i) {
  int32_t threads;
  check(sterna_set_num_threads(i % 6) == 0);
  check(sterna_num_threads(&threads) == 0);
  if (i % 6) check(threads == i % 6);
  check_sleep(200);
}

static void changing_threads(void) { run_callers(change_threads); }

/* More than sixteen regions that are all open at once. */
static pthread_barrier_t all_open;

static int wait_for_all(int32_t task, int32_t tasks, void *data) {
  (void)tasks;
  if (task == 0) pthread_barrier_wait(&all_open);
  atomic_fetch_add((atomic_int *)data, 1);
  return 0;
}

static void *open_region(void *data) {
  check(sterna_parallel(wait_for_all, data, 3) == 0);
  return NULL;
}

static void many_regions(void) {
  pthread_t threads[CALLERS];
  atomic_int ran = 0;
  check(sterna_set_num_threads(2) == 0);
  pthread_barrier_init(&all_open, NULL, CALLERS);
  for (int i = 0; i < CALLERS; i++) pthread_create(&threads[i], NULL, open_region, &ran);
  for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
  check(atomic_load(&ran) == 3 * CALLERS);
  pthread_barrier_destroy(&all_open);
}

/* ---- the environment ---- */

static void set_variables(const char *own, const char *tvm, const char *omp) {
  static const char *const names[] = {"STERNA_NUM_THREADS", "TVM_NUM_THREADS", "OMP_NUM_THREADS"};
  const char *values[] = {own, tvm, omp};
  for (int i = 0; i < 3; i++) {
    if (values[i]) setenv(names[i], values[i], 1);
    else unsetenv(names[i]);
  }
}

static void environment(void) {
  static const char *const bad[] = {"0", "-1", "x", "3x", "1025", "99999999999999999999", "1.5",
                                    " ", ","};
  int32_t threads;
  failing f = {1000, 0, 0};
  set_variables("3", "4", "5");
  check(sterna_num_threads(&threads) == 0 && threads == 3);
  set_variables(NULL, "4", "5");
  check(sterna_num_threads(&threads) == 0 && threads == 4);
  set_variables("", "", "5");
  check(sterna_num_threads(&threads) == 0 && threads == 5);
  set_variables(NULL, NULL, "6,2"); /* OpenMP's list, one number for each level */
  check(sterna_num_threads(&threads) == 0 && threads == 6);
  check(sterna_set_num_threads(2) == 0 && sterna_num_threads(&threads) == 0 && threads == 2);
  check(sterna_set_num_threads(0) == 0 && sterna_num_threads(&threads) == 0 && threads == 6);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    for (int k = 0; k < 3; k++) {
      set_variables(k == 0 ? bad[i] : NULL, k == 1 ? bad[i] : NULL, k == 2 ? bad[i] : NULL);
      threads = 99;
      check_fails(sterna_num_threads(&threads), "ValueError", k == 0   ? "STERNA_NUM_THREADS"
                                                              : k == 1 ? "TVM_NUM_THREADS"
                                                                       : "OMP_NUM_THREADS");
      check(threads == 99);
      check_fails(sterna_parallel(fail_from, &f, 10), "ValueError", "NUM_THREADS is '");
      check(atomic_load(&f.begun) == 0);
    }
  set_variables(NULL, NULL, NULL);
  check(sterna_parallel(fail_from, &f, 10) == 0);
}

/* ---- time ---- */

enum { ROUNDS = 64 };

typedef struct {
  atomic_int workers;
  int first_is_long;
} naps;

static int nap(int32_t task, int32_t tasks, void *data) {
  naps *n = data;
  static _Thread_local naps *seen;
  if (seen != n) seen = n, atomic_fetch_add(&n->workers, 1);
  check_sleep(n->first_is_long && task < tasks / 4 ? 8000 : 2000);
  return 0;
}

static double seconds_of(naps *n, int32_t tasks) {
  double start = check_seconds();
  check(sterna_parallel(nap, n, tasks) == 0);
  return check_seconds() - start;
}

/* Whether a round was quick and had enough workers: other processes want the cores too. */
static int is_quick(naps *n, int32_t tasks, int first_is_long, int pause, double most,
                    int workers) {
  for (int i = 0; i < ROUNDS; i++) {
    if (pause) check_sleep(pause);
    n[i].first_is_long = first_is_long;
    if (seconds_of(&n[i], tasks) < most && atomic_load(&n[i].workers) >= workers) return 1;
  }
  return 0;
}

static void balance(void) {
  naps *n = calloc(3 * ROUNDS, sizeof *n); /* by its address a thread knows that a round is new */
  check(sterna_set_num_threads(4) == 0);
  check(is_quick(n, 40, 0, 0, 40 * 0.002 * 0.5, 4));
  /* The long ones are all in the first lane: the others must help. */
  check(is_quick(n + ROUNDS, 40, 1, 0, (10 * 0.008 + 30 * 0.002) * 0.5, 1));
  /* Between rounds the workers fall asleep. */
  check(is_quick(n + 2 * ROUNDS, 8, 0, 3000, 8 * 0.002 * 0.6, 2));
  free(n);
}

static double cpu_seconds(void) {
  struct rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return (double)usage.ru_utime.tv_sec + (double)usage.ru_stime.tv_sec +
         1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

static int one_long_nap(int32_t task, int32_t tasks, void *data) {
  (void)tasks;
  (void)data;
  if (task == 0) check_sleep(300000);
  return 0;
}

/* Threads without work leave the cores to others, between regions and inside of one. */
static void idle_workers(void) {
  check(sterna_set_num_threads(4) == 0);
  check(sterna_parallel(one_long_nap, NULL, 4) == 0);
  double start = cpu_seconds();
  check(sterna_parallel(one_long_nap, NULL, 4) == 0);
  check(cpu_seconds() - start < 0.1);
  start = cpu_seconds();
  check_sleep(300000);
  check(cpu_seconds() - start < 0.1);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"every_task_once", every_task_once},
      {"number_of_threads", number_of_threads},
      {"failures", failures},
      {"countless_tasks", countless_tasks},
      {"nested", nested},
      {"many_callers", many_callers},
      {"changing_threads", changing_threads},
      {"many_regions", many_regions},
      {"environment", environment},
      {"balance", balance},
      {"idle_workers", idle_workers},
  };
  return CASES(cases);
}
