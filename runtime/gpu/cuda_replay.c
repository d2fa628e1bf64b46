/*
 * Runs of a model that are captured once and replayed as a CUDA graph.
 *
 * The first run at some addresses launches kernel by kernel, which also loads them; the second is
 * captured, and from then on a run is one launch. A few captures are kept, since callers let results
 * alternate between blocks of memory; addresses that never come again cost no capture. A graph of one
 * kernel costs the host less than a launch of that kernel, too.
 */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_CAPTURES = 8, MOST_SEEN = 16, REASON = 200 };

/* Workspace of a capture: kernels of it find it at the same place at each replay. */
typedef struct workspace {
  struct workspace *next;
  void *address;
  size_t bytes;
  int is_taken;
} workspace;

typedef struct {
  const void **addresses; /* that it reads and writes; null: none is kept here */
  cu_object graph;        /* ready to be launched */
  workspace *spaces;
  uint64_t last_use;
} capture;

typedef struct {
  cuda_device *device;
  cu_object stream;    /* to capture in */
  cu_object done;      /* behind the last run, unless that was in the default stream */
  cu_object last;      /* the stream that it was in */
  capture captures[MOST_CAPTURES];
  uint64_t seen[MOST_SEEN], runs; /* hashes of addresses; the oldest is overwritten */
  uint32_t next_seen;
  char refused[REASON]; /* why runs cannot be captured, or empty */
} replayer;

/* What a thread is capturing. */
typedef struct {
  capture *into;
  char *refused;
} capturing;

static _Thread_local capturing *now;

int cuda_is_capturing(void) { return now != NULL; }

int cuda_refuse_capture(const char *why) {
  snprintf(now->refused, REASON, "%s", why);
  return sterna_set_errorf("RuntimeError", "%s cannot be captured", why);
}

/* ---- workspace ---- */

int cuda_take_captured(cuda_device *d, size_t bytes, void **out) {
  workspace *w = now->into->spaces;
  while (w && (w->is_taken || w->bytes < bytes)) w = w->next;
  if (!w) {
    w = calloc(1, sizeof *w);
    if (!w) return sterna_set_error("MemoryError", "no memory for a list of workspace");
    if (cuda_allocate(d, bytes, &w->address)) {
      free(w);
      return -1;
    }
    w->bytes = bytes;
    w->next = now->into->spaces;
    now->into->spaces = w;
  }
  w->is_taken = 1;
  *out = w->address;
  return 0;
}

int cuda_give_captured_back(void *address) {
  for (workspace *w = now ? now->into->spaces : NULL; w; w = w->next)
    if (w->address == address) {
      w->is_taken = 0;
      return 1;
    }
  return 0;
}

/* ---- capturing ---- */

/* In the device's context; what is left of it in streams must be done. */
static void forget(capture *c, int32_t device) {
  if (c->graph) cuGraphExecDestroy(c->graph);
  while (c->spaces) {
    workspace *w = c->spaces;
    c->spaces = w->next;
    cuda_release(device, w->address);
    free(w);
  }
  free(c->addresses);
  memset(c, 0, sizeof *c);
}

/* Launches all steps, with an event before, between and behind them if there are any. */
static int launch_steps(const sterna_replay *run, const cuda_device *d, cu_object *events, uint32_t flags) {
  cu_code code = events ? cuEventRecordWithFlags(events[0], cuda_stream(d), flags) : 0;
  for (int32_t i = 0; i < run->step_count && !code; i++) {
    if (run->run_step(run->self, i)) return -1;
    if (events) code = cuEventRecordWithFlags(events[i + 1], cuda_stream(d), flags);
  }
  return code ? cuda_fail((cuda_device *)d, "an event", code) : 0;
}

/* What was launched while the thread captured, as a graph that is not ready yet. */
static int capture_steps(replayer *r, const sterna_replay *run, capture *into, cu_object *events,
                         cu_object *graph) {
  cuda_device *d = r->device;
  cu_object *slot = cuda_stream_slot(d), before = *slot;
  capturing state = {into, r->refused};
  cu_code code = cuStreamBeginCapture_v2(r->stream, CU_CAPTURE_THREAD_LOCAL);
  if (code) return cuda_fail(d, "a capture", code);
  now = &state;
  *slot = r->stream;
  int failed = launch_steps(run, d, events, CU_EVENT_RECORD_EXTERNAL);
  *slot = before;
  now = NULL;
  *graph = NULL;
  code = cuStreamEndCapture(r->stream, graph);
  if (failed && *graph) cuGraphDestroy(*graph);
  if (failed) return -1;
  return code ? cuda_fail(d, "the end of a capture", code) : 0;
}

/* A failure leaves the reason in r->refused. */
static int make_capture(replayer *r, const sterna_replay *run, capture *into, cu_object *events) {
  cu_object graph = NULL;
  cu_code code = 0;
  int failed = capture_steps(r, run, into, events, &graph);
  if (!failed) {
    code = cuGraphInstantiateWithFlags(&into->graph, graph, 0);
    cuGraphDestroy(graph);
  }
  if (code) failed = cuda_fail(r->device, "a graph of captured kernels", code);
  if (!failed) return 0;
  if (!*r->refused) snprintf(r->refused, REASON, "%s", sterna_last_error());
  sterna_clear_error();
  into->graph = NULL;
  forget(into, r->device->id);
  return -1;
}

/* ---- which capture ---- */

static uint64_t hash_of(const sterna_replay *run) {
  uint64_t hash = 14695981039346656037u;
  for (int32_t i = 0; i < run->address_count; i++)
    hash = (hash ^ (uint64_t)(uintptr_t)run->addresses[i]) * 1099511628211u;
  return hash | 1;
}

static capture *find_capture(replayer *r, const sterna_replay *run) {
  size_t bytes = (size_t)run->address_count * sizeof *run->addresses;
  for (int i = 0; i < MOST_CAPTURES; i++) {
    capture *c = &r->captures[i];
    if (c->addresses && memcmp(c->addresses, run->addresses, bytes) == 0) return c;
  }
  return NULL;
}

static int was_seen(replayer *r, const sterna_replay *run) {
  uint64_t hash = hash_of(run);
  for (int i = 0; i < MOST_SEEN; i++)
    if (r->seen[i] == hash) return 1;
  r->seen[r->next_seen++ % MOST_SEEN] = hash;
  return 0;
}

/* The default stream lives for ever, so that the end of its last run can be marked when it is needed. */
static cu_code mark_end(replayer *r) { return r->runs && !r->last ? cuEventRecord(r->done, NULL) : 0; }

static void wait_for_end(replayer *r) {
  if (mark_end(r) == 0) cuEventSynchronize(r->done);
}

static capture *make_room(replayer *r, const sterna_replay *run) {
  size_t bytes = (size_t)run->address_count * sizeof *run->addresses;
  capture *oldest = &r->captures[0];
  for (int i = 1; i < MOST_CAPTURES; i++)
    if (r->captures[i].last_use < oldest->last_use) oldest = &r->captures[i];
  if (oldest->addresses) wait_for_end(r);
  forget(oldest, r->device->id);
  oldest->addresses = malloc(bytes + 1);
  if (oldest->addresses) memcpy(oldest->addresses, run->addresses, bytes);
  return oldest->addresses ? oldest : NULL;
}

/* ---- running ---- */

/* Somebody else captures what the thread does, or the driver is too old to. */
static int can_capture(cu_object stream) {
  return cuGraphInstantiateWithFlags && cuEventRecordWithFlags && cuda_is_captured(stream) == 0;
}

/* Lets a stream wait for the last run, if that was in another. */
static cu_code follow(replayer *r, cu_object stream) {
  if (!r->runs++ || r->last == stream) return 0;
  cu_code code = mark_end(r);
  return code ? code : cuStreamWaitEvent(stream, r->done, 0);
}

/* The capture to launch; null when this run launches its kernels one by one. */
static capture *choose(replayer *r, const sterna_replay *run) {
  capture *found = find_capture(r, run);
  if (found || *r->refused || !was_seen(r, run)) return found;
  found = make_room(r, run);
  return found && make_capture(r, run, found, NULL) == 0 ? found : NULL;
}

static int run_now(replayer *r, const sterna_replay *run) {
  cuda_device *d = r->device;
  cu_object stream = cuda_stream(d);
  if (!can_capture(stream)) return launch_steps(run, d, NULL, 0);
  capture *c = choose(r, run);
  cu_code code = follow(r, stream);
  if (c) c->last_use = r->runs;
  if (!code && c) code = cuGraphLaunch(c->graph, stream);
  if (code) return cuda_fail(d, "a captured run", code);
  if (!c && launch_steps(run, d, NULL, 0)) return -1;
  r->last = stream;
  if (stream) code = cuEventRecord(r->done, stream);
  return code ? cuda_fail(d, "the end of a run", code) : 0;
}

/* ---- the time of each step ---- */

static cu_code read_times(const sterna_replay *run, cu_object *events) {
  cu_code code = cuEventSynchronize(events[run->step_count]);
  for (int32_t i = 0; i < run->step_count && !code; i++) {
    float milliseconds = 0;
    code = cuEventElapsedTime(&milliseconds, events[i], events[i + 1]);
    run->nanoseconds[i] = (uint64_t)((double)milliseconds * 1e6);
  }
  return code;
}

/* What a replay without events between the steps takes, the mean of a few. */
static cu_code time_replay(const capture *c, cu_object stream, cu_object *events, double *nanoseconds) {
  enum { REPLAYS = 5 };
  float milliseconds = 0;
  cu_code code = cuGraphLaunch(c->graph, stream);
  if (!code) code = cuEventRecord(events[0], stream);
  for (int i = 0; i < REPLAYS && !code; i++) code = cuGraphLaunch(c->graph, stream);
  if (!code) code = cuEventRecord(events[1], stream);
  if (!code) code = cuEventSynchronize(events[1]);
  if (!code) code = cuEventElapsedTime(&milliseconds, events[0], events[1]);
  *nanoseconds = (double)milliseconds * 1e6 / REPLAYS;
  return code;
}

/* An event between two steps takes time of its own, and kernels cannot overlap across it: that is taken
   off, as much from each step, so that the steps together take what the whole run does. */
static void take_events_off(const sterna_replay *run, double whole) {
  double sum = 0, left = 0;
  for (int32_t i = 0; i < run->step_count; i++) sum += (double)run->nanoseconds[i];
  if (sum <= whole || whole <= 0) return;
  double each = (sum - whole) / run->step_count;
  for (int32_t i = 0; i < run->step_count; i++) {
    double time = (double)run->nanoseconds[i], least = time / 20;
    time = time - each > least ? time - each : least;
    run->nanoseconds[i] = (uint64_t)time;
    left += time;
  }
  for (int32_t i = 0; i < run->step_count; i++)
    run->nanoseconds[i] = (uint64_t)((double)run->nanoseconds[i] * whole / left);
}

static int run_with_events(replayer *r, const sterna_replay *run, cu_object *events) {
  cuda_device *d = r->device;
  cu_object stream = cuda_stream(d);
  capture timed = {.graph = NULL}, plain = {.graph = NULL};
  double whole = 0;
  if (!cuEventRecordWithFlags) return sterna_set_error("RuntimeError", "the driver is too old to time kernels");
  if (launch_steps(run, d, events, 0)) return -1; /* also loads kernels */
  cu_code code = read_times(run, events);
  if (code) return cuda_fail(d, "the times of events", code);
  if (*r->refused || !run->step_count || !can_capture(stream) || make_capture(r, run, &timed, events)) return 0;
  code = cuGraphLaunch(timed.graph, stream);
  if (!code) code = read_times(run, events);
  forget(&timed, d->id);
  if (code) return cuda_fail(d, "a captured run", code);
  if (make_capture(r, run, &plain, NULL)) return 0;
  code = time_replay(&plain, stream, events, &whole);
  forget(&plain, d->id);
  take_events_off(run, whole);
  return code ? cuda_fail(d, "a captured run", code) : 0;
}

static int run_timed(replayer *r, const sterna_replay *run) {
  int32_t count = run->step_count + 1;
  cu_object *events = calloc((size_t)count, sizeof *events);
  cu_code code = 0;
  if (!events) return sterna_set_error("MemoryError", "no memory for a list of events");
  for (int32_t i = 0; i < count && !code; i++) code = cuEventCreate(&events[i], CU_EVENT_DEFAULT);
  int failed = code ? cuda_fail(r->device, "an event", code) : run_with_events(r, run, events);
  for (int32_t i = 0; i < count; i++)
    if (events[i]) cuEventDestroy_v2(events[i]);
  free(events);
  return failed;
}

/* ---- from the runtime ---- */

static void end(void *kept) {
  replayer *r = kept;
  cuda_device *d;
  cuda_scope scope;
  int is_there = cuda_open(r->device->id, &d) == 0 && cuda_enter(d, &scope) == 0;
  if (!is_there) sterna_clear_error(); /* all of it went with the device's session */
  if (is_there && r->done) wait_for_end(r);
  for (int i = 0; i < MOST_CAPTURES; i++) {
    if (!is_there) r->captures[i].graph = NULL;
    forget(&r->captures[i], r->device->id);
  }
  if (is_there && r->done) cuEventDestroy_v2(r->done);
  if (is_there && r->stream) cuStreamDestroy_v2(r->stream);
  if (is_there) cuda_leave(&scope);
  free(r);
}

/* In the device's context. */
static int make_replayer(cuda_device *d, sterna_replay *run) {
  replayer *r = calloc(1, sizeof *r);
  if (!r) return sterna_set_error("MemoryError", "no memory to keep captured runs");
  r->device = d;
  run->kept = r;
  run->end = end;
  cu_code code = cuStreamCreate(&r->stream, CU_STREAM_NON_BLOCKING);
  if (!code) code = cuEventCreate(&r->done, CU_EVENT_DISABLE_TIMING);
  return code ? cuda_fail(d, "a stream to capture in", code) : 0;
}

/* (address of a sterna_replay) */
static int replay(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  cuda_device *d;
  cuda_scope scope;
  (void)self;
  (void)ret;
  if (n != 1 || args[0].type_index != STERNA_POINTER)
    return sterna_set_error("TypeError", "a run is replayed by the address of its description");
  sterna_replay *run = args[0].v_ptr;
  if (cuda_open(run->device.device_id, &d) || cuda_enter(d, &scope)) return -1;
  int failed = !run->kept && make_replayer(d, run);
  if (!failed) failed = run->nanoseconds ? run_timed(run->kept, run) : run_now(run->kept, run);
  cuda_leave(&scope);
  return failed ? -1 : 0;
}

int cuda_register_replay(void) { return sterna_register("sterna.replay.cuda", replay, NULL, NULL); }
