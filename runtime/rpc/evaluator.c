/* Timing functions on this machine's clock, as time_evaluator does in Python. */
#include "session.h"

#include <poll.h>
#include <stdlib.h>

enum { SETTINGS = 6, MOST_REPEATS = 1 << 20 };

/* In the order in which they come. */
typedef struct {
  int64_t number, repeat, min_repeat_ms, limit_zero_time_iterations, cooldown_interval_ms, repeats_to_cooldown;
} evaluator_settings;

typedef struct {
  sterna_function *function;
  DLDevice device;
  evaluator_settings settings;
} evaluator;

/* Repeats that are too short are lengthened by this at least, so that few are needed. */
static const double growth = 1.618;

static int time_calls(const evaluator *e, int64_t calls, const sterna_any *args, int32_t n, double *seconds) {
  uint64_t start = clock_now();
  for (int64_t i = 0; i < calls; i++) {
    sterna_any result = sterna_any_none();
    if (sterna_function_call(e->function, args, n, &result)) return -1;
    sterna_any_release(&result);
  }
  if (sterna_device_sync(e->device)) return -1;
  *seconds = (double)(clock_now() - start) * 1e-9;
  return 0;
}

/* How often to call so that a repeat is long enough, after one that took too little. */
static int64_t more_calls(int64_t calls, double seconds, double wanted) {
  double one = seconds / (double)calls > 1e-9 ? seconds / (double)calls : 1e-9;
  double needed = wanted / one, grown = (double)calls * growth;
  double most = needed > grown ? needed : grown;
  return most < 1e15 ? (int64_t)most + 1 : (int64_t)1e15;
}

static void cool_down(const evaluator_settings *settings, int64_t turn) {
  int64_t pause = settings->cooldown_interval_ms;
  if (pause > 0 && settings->repeats_to_cooldown > 0 && (turn + 1) % settings->repeats_to_cooldown == 0)
    poll(NULL, 0, pause < 60000 ? (int)pause : 60000);
}

/* Seconds per call, one for each repeat, after one call that is not counted. */
static int evaluate(const evaluator *e, const sterna_any *args, int32_t n, sterna_any *seconds) {
  const evaluator_settings *settings = &e->settings;
  int64_t calls = settings->number;
  double wanted = (double)settings->min_repeat_ms * 1e-3, took = 0;
  if (time_calls(e, 1, args, n, &took)) return -1;
  for (int64_t turn = 0; turn < settings->repeat; turn++) {
    if (time_calls(e, calls, args, n, &took)) return -1;
    for (int64_t tries = 1; took < wanted && tries < settings->limit_zero_time_iterations; tries++) {
      calls = more_calls(calls, took, wanted);
      if (time_calls(e, calls, args, n, &took)) return -1;
    }
    seconds[turn] = sterna_any_float(took / (double)calls);
    cool_down(settings, turn);
  }
  return 0;
}

static int call_evaluator(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  const evaluator *e = self;
  sterna_any *seconds = calloc((size_t)e->settings.repeat, sizeof *seconds);
  int failed = !seconds ? sterna_set_error("MemoryError", "no memory for the times")
                        : evaluate(e, args, n, seconds) || sterna_list(seconds, e->settings.repeat, ret);
  free(seconds);
  return failed ? -1 : 0;
}

static void free_evaluator(void *self) {
  sterna_release(((evaluator *)self)->function);
  free(self);
}

static int read_evaluator(const sterna_any *args, evaluator *out) {
  int64_t numbers[SETTINGS];
  if (sterna_as_function(&args[0], &out->function) || sterna_as_device(&args[1], &out->device)) return -1;
  for (int i = 0; i < SETTINGS; i++)
    if (sterna_as_int(&args[2 + i], &numbers[i])) return -1;
  out->settings = (evaluator_settings){numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
  if (numbers[0] < 1 || numbers[1] < 1 || numbers[1] > MOST_REPEATS)
    return sterna_set_errorf("ValueError", "number=%lld and repeat=%lld must be at least 1",
                             (long long)numbers[0], (long long)numbers[1]);
  return 0;
}

int builtin_time_evaluator(session *s, const sterna_any *args, sterna_any *ret) {
  sterna_function *made = NULL;
  evaluator read, *e;
  (void)s;
  if (read_evaluator(args, &read)) return -1;
  e = malloc(sizeof *e);
  if (!e) return sterna_set_error("MemoryError", "no memory for a function");
  *e = read;
  sterna_retain(e->function);
  if (sterna_function_create(call_evaluator, e, free_evaluator, &made)) {
    free_evaluator(e);
    return -1;
  }
  *ret = sterna_any_object(made);
  return 0;
}
