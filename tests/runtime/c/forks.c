/* Forks and signals: the runtime in a process whose other threads did not come along. */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

static int count(int32_t task, int32_t tasks, void *data) {
  (void)task;
  (void)tasks;
  atomic_fetch_add((atomic_int *)data, 1);
  return 0;
}

static int fail_one(int32_t task, int32_t tasks, void *data) {
  (void)tasks;
  (void)data;
  return task == 7 ? sterna_set_error("KeyError", "the seventh") : 0;
}

static int answer(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self;
  (void)args;
  (void)n;
  *ret = sterna_any_int(5);
  return 0;
}

static const sterna_table_entry entries[] = {{"answer", answer}};

static int use_everything(void *data) {
  char *path = data;
  for (int i = 0; i < 20; i++) {
    atomic_int ran = 0;
    sterna_any list;
    sterna_module *module = NULL;
    sterna_function *function = NULL;
    if (i == 10) check(sterna_set_num_threads(5) == 0);
    check(sterna_parallel(count, &ran, 100) == 0 && atomic_load(&ran) == 100);
    check_fails(sterna_parallel(fail_one, NULL, 20), "KeyError", "the seventh");
    check(sterna_register("in the child", answer, NULL, NULL) == 0);
    check(sterna_get_global("everywhere", &function) == 0 && function != NULL);
    sterna_release(function);
    check(sterna_list_globals(&list) == 0 && sterna_remove_global("in the child") == 0);
    sterna_any_release(&list);
    check(sterna_module_load(path, &module) == 0);
    check(sterna_module_get_function(module, "answer", 1, &function) == 0 && function);
    sterna_release(function);
    sterna_release(module);
  }
  return 0;
}

/* ---- while everything is busy ---- */

/* Libraries that are loaded already: the system's own loader does not survive a fork in the middle
   of loading one. */
static atomic_int stop;
static char *library_path;

static void *be_busy(void *number) {
  int kind = *(int *)number;
  while (!atomic_load(&stop)) {
    atomic_int ran = 0;
    sterna_function *function = NULL;
    sterna_module *module = NULL, *table = NULL;
    switch (kind) {
      case 0:
      case 1: check(sterna_parallel(count, &ran, 50) == 0 && atomic_load(&ran) == 50); break;
      case 2:
        check(sterna_register("busy", answer, NULL, NULL) == 0 &&
              sterna_remove_global("busy") == 0);
        break;
      case 3:
        check(sterna_module_load(library_path, &module) == 0);
        check(sterna_module_from_table(entries, 1, &table) == 0);
        check(sterna_module_import(table, module) == 0);
        check(sterna_module_get_function(table, "context", 1, &function) == 0);
        sterna_release(function);
        sterna_release(table);
        sterna_release(module);
        break;
      default: sterna_set_error("ValueError", "busy");
    }
  }
  return NULL;
}

static void while_busy(void) {
  enum { THREADS = 5 };
  pthread_t threads[THREADS];
  int numbers[THREADS];
  char *other_path = check_library("closeable1.so");
  sterna_module *loaded = NULL;
  library_path = check_library("version1.so");
  check(sterna_module_load(library_path, &loaded) == 0);
  check(sterna_set_num_threads(3) == 0);
  check(sterna_register("everywhere", answer, NULL, NULL) == 0);
  atomic_store(&stop, 0);
  for (int i = 0; i < THREADS; i++) {
    numbers[i] = i;
    pthread_create(&threads[i], NULL, be_busy, &numbers[i]);
  }
  for (int i = 0; i < 25; i++) {
    check(check_child(use_everything, other_path) == 0);
    atomic_int ran = 0; /* the parent goes on as before */
    check(sterna_parallel(count, &ran, 100) == 0 && atomic_load(&ran) == 100);
  }
  atomic_store(&stop, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  sterna_release(loaded);
  free(library_path);
  free(other_path);
}

static int fork_again(void *path) {
  check(use_everything(path) == 0);
  return check_child(use_everything, path);
}

static void generations(void) {
  char *path = check_library("closeable1.so");
  check(sterna_register("everywhere", answer, NULL, NULL) == 0);
  check(check_child(fork_again, path) == 0); /* before the pool was ever used */
  check(use_everything(path) == 0);
  check(check_child(fork_again, path) == 0);
  free(path);
}

static int shut_down(void *data) {
  sterna_shutdown();
  check(sterna_register("everywhere", answer, NULL, NULL) == 0);
  return use_everything(data);
}

static void shutdown_in_child(void) {
  char *path = check_library("version1.so");
  check(sterna_register("everywhere", answer, NULL, NULL) == 0 && use_everything(path) == 0);
  check(check_child(shut_down, path) == 0);
  free(path);
}

/* ---- from inside of a region ---- */

static int use_inside(void *data) {
  atomic_int ran = 0;
  (void)data;
  check(sterna_parallel(count, &ran, 30) == 0 && atomic_load(&ran) == 30);
  check_fails(sterna_parallel(fail_one, NULL, 20), "KeyError", "the seventh");
  return 0;
}

static int fork_in_task(int32_t task, int32_t tasks, void *data) {
  (void)tasks;
  if (task % 4 == 0 && check_child(use_inside, NULL) == 0) atomic_fetch_add((atomic_int *)data, 1);
  return 0;
}

static void from_tasks(void) {
  atomic_int good = 0;
  check(sterna_set_num_threads(3) == 0);
  check(sterna_parallel(fork_in_task, &good, 16) == 0 && atomic_load(&good) == 4);
}

/* ---- signals ---- */

static atomic_int caught;
static pthread_t caught_in;

static void catch_it(int number) {
  (void)number;
  caught_in = pthread_self();
  atomic_fetch_add(&caught, 1);
}

static void exit_at_fault(int number) { _exit(number == SIGSEGV ? 33 : 34); }

static int fault_in_worker(int32_t task, int32_t tasks, void *data) {
  (void)tasks;
  (void)task;
  if (!pthread_equal(pthread_self(), *(pthread_t *)data)) raise(SIGSEGV);
  check_sleep(1000);
  return 0;
}

static int fault(void *data) {
  pthread_t caller = pthread_self();
  (void)data;
  signal(SIGSEGV, exit_at_fault);
  check(sterna_set_num_threads(3) == 0);
  for (int i = 0; i < 1000; i++) sterna_parallel(fault_in_worker, &caller, 30);
  return 1;
}

/* Signals for the process go to the program's own threads; a fault is handled where it happens. */
static void signals(void) {
  sigset_t user, before;
  atomic_int ran = 0;
  struct sigaction action = {.sa_handler = catch_it}, old;
  check(sterna_set_num_threads(4) == 0 && sterna_parallel(count, &ran, 100) == 0);
  sigemptyset(&user);
  sigaddset(&user, SIGUSR1);
  sigaction(SIGUSR1, &action, &old);
  pthread_sigmask(SIG_BLOCK, &user, &before);
  kill(getpid(), SIGUSR1);
  check_sleep(20000);
  check(atomic_load(&caught) == 0); /* no worker took it */
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  check(atomic_load(&caught) == 1 && pthread_equal(caught_in, pthread_self()));
  sigaction(SIGUSR1, &old, NULL);
  check(check_child(fault, NULL) == 33);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"while_busy", while_busy},
      {"generations", generations},
      {"shutdown_in_child", shutdown_in_child},
      {"from_tasks", from_tasks},
      {"signals", signals},
  };
  return CASES(cases);
}
