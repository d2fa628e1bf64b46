/* Functions that call functions. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "sterna.h"

/* call(f, ...): f(...) */
STERNA_FUNCTION(call) {
  sterna_function *f;
  (void)self;
  if (n < 1 || sterna_as_function(&args[0], &f)) return sterna_set_error("TypeError", "call(f, ...)");
  return sterna_function_call(f, args + 1, n - 1, ret);
}

/* swallow(f): f() with its failure ignored. */
STERNA_FUNCTION(swallow) {
  sterna_function *f;
  (void)self;
  if (n != 1 || sterna_as_function(&args[0], &f)) return -1;
  if (sterna_function_call(f, NULL, 0, ret) == 0) return 0;
  int failed = sterna_string(sterna_last_error(), strlen(sterna_last_error()), ret);
  sterna_clear_error();
  return failed;
}

/* ---- functions made here ---- */

static int alive; /* functions made by compose that live */

typedef struct {
  sterna_function *outer, *inner;
} pair;

static int call_pair(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  pair *p = self;
  sterna_any between = sterna_any_none();
  if (sterna_function_call(p->inner, args, n, &between)) return -1;
  int failed = sterna_function_call(p->outer, &between, 1, ret);
  sterna_any_release(&between);
  return failed;
}

static void free_pair(void *self) {
  pair *p = self;
  sterna_release(p->outer);
  sterna_release(p->inner);
  free(p);
  alive--;
}

STERNA_FUNCTION(compose) {
  sterna_function *outer, *inner, *both;
  (void)self;
  if (n != 2 || sterna_as_function(&args[0], &outer) || sterna_as_function(&args[1], &inner)) return -1;
  pair *p = malloc(sizeof *p);
  *p = (pair){outer, inner};
  sterna_retain(outer);
  sterna_retain(inner);
  alive++;
  if (sterna_function_create(call_pair, p, free_pair, &both)) {
    free_pair(p);
    return -1;
  }
  *ret = sterna_any_object(both);
  return 0;
}

STERNA_FUNCTION(compositions_alive) {
  (void)self, (void)args, (void)n;
  *ret = sterna_any_int(alive);
  return 0;
}

/* ---- a value kept between calls ---- */

static sterna_any kept;

STERNA_FUNCTION(keep) {
  sterna_any owned;
  (void)self, (void)ret;
  if (n != 1 || sterna_any_own(&args[0], &owned)) return -1;
  sterna_any_release(&kept);
  kept = owned;
  return 0;
}

STERNA_FUNCTION(kept) {
  (void)self, (void)args, (void)n;
  return sterna_any_own(&kept, ret);
}

/* ---- threads ---- */

typedef struct {
  sterna_function *f;
  const sterna_any *args;
  int32_t n;
  int times, failed;
  sterna_any ret;
  sterna_error *error;
} work;

static void *run_work(void *data) {
  work *w = data;
  for (int i = 0; i < w->times && !w->failed; i++) {
    sterna_any_release(&w->ret);
    w->failed = sterna_function_call(w->f, w->args, w->n, &w->ret);
  }
  if (w->failed) w->error = sterna_take_error();
  return NULL;
}

/* in_threads(threads, times, f, ...): the last result, or the first failure. */
STERNA_FUNCTION(in_threads) {
  enum { MOST = 16 };
  pthread_t threads[MOST];
  work works[MOST];
  sterna_function *f;
  int64_t count, times;
  int failed = 0;
  (void)self;
  if (n < 3 || sterna_as_int(&args[0], &count) || sterna_as_int(&args[1], &times) ||
      sterna_as_function(&args[2], &f) || count < 1 || count > MOST)
    return sterna_set_error("TypeError", "in_threads(threads, times, f, ...)");
  for (int i = 0; i < count; i++) {
    works[i] = (work){f, args + 3, n - 3, (int)times, 0, sterna_any_none(), NULL};
    if (pthread_create(&threads[i], NULL, run_work, &works[i])) abort();
  }
  for (int i = 0; i < count; i++) {
    pthread_join(threads[i], NULL);
    if (works[i].failed) {
      if (!failed) sterna_raise(works[i].error);
      sterna_release(works[i].error);
      failed = -1;
    }
    if (i) sterna_any_release(&works[i].ret);
  }
  if (failed) sterna_any_release(&works[0].ret);
  else *ret = works[0].ret;
  return failed;
}

static void *call_forever_main(void *f) {
  for (;;) {
    sterna_any ret = sterna_any_none();
    if (sterna_function_call(f, NULL, 0, &ret)) sterna_clear_error();
    sterna_any_release(&ret);
  }
  return NULL;
}

/* call_forever(f): in a thread that nobody waits for. */
STERNA_FUNCTION(call_forever) {
  sterna_function *f;
  pthread_t thread;
  (void)self, (void)ret;
  if (n != 1 || sterna_as_function(&args[0], &f)) return -1;
  sterna_retain(f);
  return pthread_create(&thread, NULL, call_forever_main, f) || pthread_detach(thread) ? -1 : 0;
}

static int call_task(int32_t task, int32_t tasks, void *data) {
  sterna_any arguments[] = {sterna_any_int(task), sterna_any_int(tasks)}, ret = sterna_any_none();
  int failed = sterna_function_call(data, arguments, 2, &ret);
  sterna_any_release(&ret);
  return failed;
}

/* in_parallel(f, tasks): f(task, tasks) on the pool. */
STERNA_FUNCTION(in_parallel) {
  sterna_function *f;
  int64_t tasks;
  (void)self, (void)ret;
  if (n != 2 || sterna_as_function(&args[0], &f) || sterna_as_int(&args[1], &tasks)) return -1;
  return sterna_parallel(call_task, f, (int32_t)tasks);
}

/* Takes anything. */
STERNA_FUNCTION(nothing) {
  (void)self, (void)args, (void)n, (void)ret;
  return 0;
}

/* Waits in C. */
STERNA_FUNCTION(sleep) {
  int64_t milliseconds;
  (void)self, (void)ret;
  if (n != 1 || sterna_as_int(&args[0], &milliseconds)) return -1;
  usleep((useconds_t)milliseconds * 1000);
  return 0;
}

/* ---- bare tensors ---- */

/* lend(f, count): f(tensor of 0.0, 1.0, ...) in memory that ends with the call; then their sum. */
STERNA_FUNCTION(lend) {
  sterna_function *f;
  int64_t count, stride = 1;
  (void)self;
  if (n != 2 || sterna_as_function(&args[0], &f) || sterna_as_int(&args[1], &count)) return -1;
  float *data = malloc((size_t)(count ? count : 1) * sizeof *data);
  for (int64_t i = 0; i < count; i++) data[i] = (float)i;
  DLTensor tensor = {data, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, &count, &stride, 0};
  sterna_any lent = sterna_any_tensor(&tensor);
  int failed = sterna_function_call(f, &lent, 1, ret);
  double total = 0;
  for (int64_t i = 0; i < count; i++) total += data[i];
  memset(data, 0xff, (size_t)count * sizeof *data);
  free(data);
  if (!failed && ret->type_index == STERNA_NONE) *ret = sterna_any_float(total);
  return failed;
}

/* lend_many(f, count): f(t0, t1, ...) where each tensor holds its own number. */
STERNA_FUNCTION(lend_many) {
  sterna_function *f;
  int64_t count;
  (void)self;
  if (n != 2 || sterna_as_function(&args[0], &f) || sterna_as_int(&args[1], &count)) return -1;
  sterna_any *lent = malloc((size_t)count * sizeof *lent);
  DLTensor *tensors = malloc((size_t)count * sizeof *tensors);
  int64_t *numbers = malloc((size_t)count * sizeof *numbers);
  for (int64_t i = 0; i < count; i++) {
    numbers[i] = i;
    tensors[i] = (DLTensor){&numbers[i], {kDLCPU, 0}, 0, {kDLInt, 64, 1}, NULL, NULL, 0};
    lent[i] = sterna_any_tensor(&tensors[i]);
  }
  int failed = sterna_function_call(f, lent, (int32_t)count, ret);
  memset(numbers, 0xff, (size_t)count * sizeof *numbers);
  free(numbers);
  free(tensors);
  free(lent);
  return failed;
}

/* lend_rows(f): a 2x3 tensor with a gap after each row, or no tensor at all. */
STERNA_FUNCTION(lend_rows) {
  sterna_function *f;
  float data[8] = {0};
  int64_t shape[] = {2, 3}, strides[] = {4, 1};
  (void)self;
  if (n != 1 || sterna_as_function(&args[0], &f)) return -1;
  DLTensor tensor = {data, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
  sterna_any lent = sterna_any_tensor(&tensor);
  return sterna_function_call(f, &lent, 1, ret);
}

STERNA_FUNCTION(lend_nothing) {
  sterna_function *f;
  sterna_any lent = sterna_any_tensor(NULL);
  (void)self;
  if (n != 1 || sterna_as_function(&args[0], &f)) return -1;
  return sterna_function_call(f, &lent, 1, ret);
}

/* ---- the end of the process ---- */

static sterna_function *last_words;

STERNA_FUNCTION(call_at_end) {
  (void)self, (void)ret;
  if (n != 1 || sterna_as_function(&args[0], &last_words)) return -1;
  sterna_retain(last_words);
  return 0;
}

__attribute__((destructor)) static void end(void) {
  sterna_any ret = sterna_any_none();
  if (!last_words) return;
  int failed = sterna_function_call(last_words, NULL, 0, &ret);
  const char *said = failed ? sterna_last_error() : "called";
  if (write(1, said, strlen(said)) < 0) abort();
  sterna_release(last_words);
}
