/*
 * The thread pool behind parallel loops (fork-join, with work stealing between lanes).
 *
 * A region's tasks are dealt out in as many lanes as there are threads. The caller works from lane 0,
 * worker w from lane w, so that the same thread tends to get the same task in every region; whoever
 * has finished his own lane helps with the others. The caller never waits for a worker to begin: what
 * no worker has begun it does itself, so a sleeping, late or missing worker costs time but no
 * progress, and any number of regions can run at once.
 *
 * Between regions workers spin for a moment, yield for longer than a core is taken away from a virtual
 * machine, and then sleep: waking them all costs more than small regions take.
 */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

enum { REGIONS = 16, MOST_THREADS = 1024, SPIN_NS = 30000, YIELD_NS = 4000000 };

typedef struct {
  _Alignas(64) atomic_llong next; /* may run past the end by one per thread */
  int end;
} lane;

/* What all threads read while the region runs, apart from what they write. */
typedef struct {
  _Alignas(64) atomic_uint open; /* 0, or the region's number among those of this place */
  atomic_int failed, caller_sleeps;
  sterna_task body;
  void *data;
  int tasks, lane_count;
  lane *lanes;
  sterna_error *error;           /* the first failure's; written by whoever set failed */
  _Alignas(64) atomic_int taken; /* by a caller */
  unsigned opened;               /* so far; its number */
} region;

typedef struct pool pool;

typedef struct {
  _Alignas(64) _Atomic(region *) inside; /* written by the worker alone, so that none waits to say it */
  pool *pool;
  int number;             /* 1 and up; 0 is the caller */
  unsigned done[REGIONS]; /* the region of each place in which nothing was left to begin */
  platform_thread thread;
} worker;

struct pool {
  _Alignas(64) atomic_uint news; /* counts regions opened */
  _Alignas(64) atomic_int sleepers;
  atomic_int ending;
  platform_mutex mutex;
  platform_cond wake, done;
  int threads, workers_started;
  worker *workers;
  region regions[REGIONS];
};

/* The one pool. Regions count themselves in; whoever changes the pool waits until none is left. */
static struct {
  platform_mutex mutex;
  platform_cond changed;
  atomic_int users;
  atomic_int changing;
  _Atomic(pool *) current;
  atomic_int wanted;  /* 0: the default */
  atomic_int counted; /* the default, since a loop has asked for it; 0: none has */
} keeper = {PLATFORM_MUTEX_INIT, PLATFORM_COND_INIT, 0, 0, NULL, 0, 0};

static _Thread_local int inside_region;

/* ---- running a region ---- */

static void run_task(region *r, int task) {
  if (r->body(task, r->tasks, r->data) == 0) return;
  sterna_error *error = sterna_take_error();
  int expected = 0;
  if (atomic_compare_exchange_strong(&r->failed, &expected, 1)) r->error = error;
  else sterna_release(error);
}

/* Until nothing is left to begin. */
static void run_lanes(region *r, int home) {
  for (int k = 0; k < r->lane_count; k++) {
    lane *l = &r->lanes[(home + k) % r->lane_count];
    while (atomic_load_explicit(&l->next, memory_order_relaxed) < l->end) {
      if (atomic_load_explicit(&r->failed, memory_order_relaxed)) return;
      long long task = atomic_fetch_add(&l->next, 1);
      if (task >= l->end) break;
      run_task(r, (int)task);
    }
  }
}

/* 1 when it came in. */
static int visit(worker *w, region *r, unsigned *done) {
  unsigned open = atomic_load_explicit(&r->open, memory_order_relaxed);
  if (!open || open == *done) return 0;
  atomic_store(&w->inside, r); /* before it looks again: the caller closes first and then looks here */
  open = atomic_load(&r->open);
  if (open) {
    run_lanes(r, w->number);
    *done = open;
  }
  atomic_store(&w->inside, NULL);
  if (atomic_load(&r->caller_sleeps)) {
    platform_lock(&w->pool->mutex);
    platform_wake_all(&w->pool->done);
    platform_unlock(&w->pool->mutex);
  }
  return 1;
}

/* ---- workers ---- */

/* Spins, then yields, while *value is what it was; 0 when that took too long. */
static int wait_for_change(atomic_uint *value, unsigned was) {
  uint64_t start = platform_nanoseconds(), waited = 0;
  while (waited < YIELD_NS) {
    for (int i = 0; i < 16; i++) {
      if (atomic_load_explicit(value, memory_order_acquire) != was) return 1;
      platform_pause();
    }
    waited = platform_nanoseconds() - start;
    if (waited > SPIN_NS) platform_yield();
  }
  return 0;
}

static void sleep_until_news(pool *p, unsigned seen) {
  platform_lock(&p->mutex);
  atomic_fetch_add(&p->sleepers, 1);
  while (atomic_load(&p->news) == seen && !atomic_load(&p->ending)) platform_wait(&p->wake, &p->mutex);
  atomic_fetch_sub(&p->sleepers, 1);
  platform_unlock(&p->mutex);
}

static PLATFORM_THREAD_RESULT worker_main(void *data) {
  worker *w = data;
  pool *p = w->pool;
  inside_region = 1;
  while (!atomic_load(&p->ending)) {
    unsigned seen = atomic_load(&p->news);
    int worked = 0;
    for (int i = 0; i < REGIONS; i++) worked |= visit(w, &p->regions[i], &w->done[i]);
    if (!worked && !wait_for_change(&p->news, seen)) sleep_until_news(p, seen);
  }
  return 0;
}

/* ---- the pool's life ---- */

static void end_pool(pool *p) {
  if (!p) return;
  platform_lock(&p->mutex);
  atomic_store(&p->ending, 1);
  atomic_fetch_add(&p->news, 1);
  platform_wake_all(&p->wake);
  platform_unlock(&p->mutex);
  for (int i = 0; i < p->workers_started; i++) platform_thread_join(p->workers[i].thread);
  platform_mutex_destroy(&p->mutex);
  memory_release(p->regions[0].lanes);
  memory_release(p->workers);
  memory_release(p);
}

/* Null when memory runs out; sets no error, since dropping the one before may run any code. */
static pool *new_pool(int threads) {
  pool *p = memory_try_allocate(sizeof *p, 64);
  if (!p) return NULL;
  memset(p, 0, sizeof *p);
  p->threads = threads;
  p->workers = memory_try_allocate((size_t)threads * sizeof *p->workers, 64);
  lane *lanes = memory_try_allocate((size_t)threads * REGIONS * sizeof *lanes, 64);
  if (!p->workers || !lanes) {
    memory_release(p->workers);
    memory_release(lanes);
    memory_release(p);
    return NULL;
  }
  memset(p->workers, 0, (size_t)threads * sizeof *p->workers);
  memset(lanes, 0, (size_t)threads * REGIONS * sizeof *lanes);
  for (int i = 0; i < REGIONS; i++) p->regions[i].lanes = lanes + i * threads;
  platform_mutex_init(&p->mutex);
  platform_cond_init(&p->wake);
  platform_cond_init(&p->done);
  for (int i = 0; i + 1 < threads; i++) {
    worker *w = &p->workers[i];
    w->pool = p;
    w->number = i + 1;
    if (platform_thread_start(&w->thread, worker_main, w)) break; /* fewer will do */
    p->workers_started++;
  }
  return p;
}

static int read_thread_count(const char *variable, int *out) {
  const char *text = platform_variable(variable);
  char *end;
  if (!text || !*text) return 0;
  long number = strtol(text, &end, 10);
  if (end == text || (*end && *end != ',') || number < 1 || number > MOST_THREADS)
    return sterna_set_errorf("ValueError", "%s is '%s'; expected a whole number from 1 to %d", variable,
                             text, MOST_THREADS);
  *out = (int)number;
  return 0;
}

int sterna_num_threads(int32_t *out) {
  REQUIRE(out);
  int threads = atomic_load(&keeper.wanted);
  if (!threads) threads = atomic_load(&keeper.counted);
  if (!threads && (read_thread_count("STERNA_NUM_THREADS", &threads) ||
                   (!threads && read_thread_count("TVM_NUM_THREADS", &threads)) ||
                   (!threads && read_thread_count("OMP_NUM_THREADS", &threads))))
    return -1;
  if (!threads) threads = platform_cpu_count();
  *out = threads < MOST_THREADS ? threads : MOST_THREADS;
  return 0;
}

int threads_of_loops(int32_t *out) {
  if (sterna_num_threads(out)) return -1;
  if (!atomic_load(&keeper.wanted) && !atomic_load(&keeper.counted))
    atomic_store(&keeper.counted, *out);
  return 0;
}

/* Keeps the pool as it is until leave(). */
static void enter(void) {
  for (;;) {
    atomic_fetch_add(&keeper.users, 1);
    if (!atomic_load(&keeper.changing)) return;
    atomic_fetch_sub(&keeper.users, 1);
    platform_lock(&keeper.mutex);
    while (atomic_load(&keeper.changing)) platform_wait(&keeper.changed, &keeper.mutex);
    platform_unlock(&keeper.mutex);
  }
}

static void leave(void) { atomic_fetch_sub(&keeper.users, 1); }

/* Alone until end_change(). */
static void begin_change(void) {
  platform_lock(&keeper.mutex);
  while (atomic_load(&keeper.changing)) platform_wait(&keeper.changed, &keeper.mutex);
  atomic_store(&keeper.changing, 1);
  platform_unlock(&keeper.mutex);
  while (atomic_load(&keeper.users)) platform_yield();
}

static void end_change(void) {
  platform_lock(&keeper.mutex);
  atomic_store(&keeper.changing, 0);
  platform_wake_all(&keeper.changed);
  platform_unlock(&keeper.mutex);
}

static int make_pool(void) {
  for (;;) {
    int32_t threads;
    int wanted = atomic_load(&keeper.wanted);
    if (threads_of_loops(&threads)) return -1;
    begin_change();
    int outdated = atomic_load(&keeper.wanted) != wanted; /* another thread has set it meanwhile */
    pool *p = atomic_load(&keeper.current);
    if (!p && !outdated) atomic_store(&keeper.current, p = new_pool(threads));
    end_change();
    if (p) return 0;
    if (!outdated) return error_out_of_memory();
  }
}

int sterna_set_num_threads(int32_t threads) {
  if (threads < 0 || threads > MOST_THREADS)
    return sterna_set_errorf("ValueError", "%d threads; expected 1 to %d, or 0 for the default",
                             (int)threads, MOST_THREADS);
  if (inside_region)
    return sterna_set_error("RuntimeError",
                            "the number of threads cannot change inside a parallel region");
  begin_change();
  pool *old = atomic_exchange(&keeper.current, NULL);
  atomic_store(&keeper.wanted, threads);
  atomic_store(&keeper.counted, 0);
  end_pool(old);
  end_change();
  return 0;
}

void threads_shutdown(void) {
  begin_change();
  end_pool(atomic_exchange(&keeper.current, NULL));
  atomic_store(&keeper.wanted, 0);
  atomic_store(&keeper.counted, 0);
  end_change();
}

void threads_after_fork(void) {
  /* The workers did not come along, and locks may have been held: begin anew. */
  platform_mutex_init(&keeper.mutex);
  platform_cond_init(&keeper.changed);
  atomic_store(&keeper.users, 0);
  atomic_store(&keeper.changing, 0);
  atomic_store(&keeper.counted, 0);
  atomic_store(&keeper.current, NULL);
}

/* ---- the caller's side ---- */

/* Takes over the reference. */
static int raise_failure(sterna_error *error) {
  if (!error) return sterna_set_error("RuntimeError", "a parallel task failed without saying why");
  sterna_raise(error);
  sterna_release(error);
  return -1;
}

static int run_alone(sterna_task body, void *data, int32_t tasks) {
  int before = inside_region, failed = 0;
  inside_region = before || tasks > 1; /* one task leaves the pool to what it starts itself */
  for (int32_t i = 0; i < tasks && !failed; i++) failed = body(i, tasks, data);
  inside_region = before;
  return failed ? raise_failure(sterna_take_error()) : 0;
}

static region *take_region(pool *p) {
  for (int i = 0; i < REGIONS; i++) {
    int expected = 0;
    if (atomic_compare_exchange_strong(&p->regions[i].taken, &expected, 1)) return &p->regions[i];
  }
  return NULL;
}

static void deal(region *r, int tasks, int lane_count) {
  r->tasks = tasks;
  r->lane_count = lane_count;
  for (int i = 0; i < lane_count; i++) {
    r->lanes[i].end = (int)((int64_t)tasks * (i + 1) / lane_count);
    atomic_store_explicit(&r->lanes[i].next, (int64_t)tasks * i / lane_count,
                          memory_order_relaxed);
  }
}

static void announce(pool *p, int helpers) {
  atomic_fetch_add(&p->news, 1);
  if (atomic_load(&p->sleepers) == 0) return;
  platform_lock(&p->mutex);
  if (helpers >= p->workers_started) platform_wake_all(&p->wake);
  else
    for (int i = 0; i < helpers; i++) platform_wake_one(&p->wake);
  platform_unlock(&p->mutex);
}

static int has_visitors(pool *p, region *r) {
  for (int i = 0; i < p->workers_started; i++)
    if (atomic_load(&p->workers[i].inside) == r) return 1;
  return 0;
}

static void wait_for_visitors(pool *p, region *r) {
  uint64_t start = platform_nanoseconds(), waited = 0;
  while (waited < YIELD_NS) {
    for (int i = 0; i < 16; i++) {
      if (!has_visitors(p, r)) return;
      platform_pause();
    }
    waited = platform_nanoseconds() - start;
    if (waited > SPIN_NS) platform_yield();
  }
  platform_lock(&p->mutex);
  atomic_store(&r->caller_sleeps, 1);
  while (has_visitors(p, r)) platform_wait(&p->done, &p->mutex);
  atomic_store(&r->caller_sleeps, 0);
  platform_unlock(&p->mutex);
}

static int run_shared(pool *p, region *r, sterna_task body, void *data, int32_t tasks) {
  int lane_count = tasks < p->threads ? tasks : p->threads;
  r->body = body;
  r->data = data;
  r->error = NULL;
  atomic_store_explicit(&r->failed, 0, memory_order_relaxed);
  deal(r, tasks, lane_count);
  if (++r->opened == 0) r->opened = 1;
  atomic_store(&r->open, r->opened);
  announce(p, lane_count - 1);
  inside_region = 1;
  run_lanes(r, 0);
  inside_region = 0;
  atomic_store(&r->open, 0);
  if (has_visitors(p, r)) wait_for_visitors(p, r);
  int failed = atomic_load(&r->failed);
  sterna_error *error = r->error;
  atomic_store(&r->taken, 0);
  return failed ? raise_failure(error) : 0;
}

int sterna_parallel(sterna_task body, void *data, int32_t tasks) {
  REQUIRE_IF(tasks > 0, body);
  if (tasks <= 0) return 0;
  if (tasks == 1 || inside_region) return run_alone(body, data, tasks);
  enter();
  pool *p = atomic_load_explicit(&keeper.current, memory_order_acquire);
  if (!p) {
    leave();
    if (make_pool()) return -1;
    enter();
    p = atomic_load_explicit(&keeper.current, memory_order_acquire);
  }
  /* No pool again: another thread has just changed it. No free region: sixteen run already. */
  region *r = p && p->workers_started ? take_region(p) : NULL;
  int failed = r ? run_shared(p, r, body, data, tasks) : run_alone(body, data, tasks);
  leave();
  return failed;
}
