/* CUDA devices: their primary contexts, the streams of threads, and what they tell of themselves. */
#include "cuda.h"

#include <stdio.h>
#include <string.h>

static CUDA_MUTEX mutex = CUDA_MUTEX_INIT;
static cuda_device devices[GPU_MOST_DEVICES];
static _Atomic int32_t device_count = -1; /* not counted yet */
static _Atomic uint32_t opened;            /* a bit for each device whose context is made */
static const char *why_none = "the driver sees no device";
static char said[CUDA_SAID + 64];
static int32_t driver_version;
static _Thread_local cu_object streams[GPU_MOST_DEVICES];

/* ---- finding and opening ---- */

/* With the lock held: how many there are. */
static int32_t look_for_devices(void) {
  char buffer[CUDA_SAID];
  int32_t count = 0;
  if (cuda_load(&why_none)) return 0;
  cu_code code = cuInit(0);
  if (!code) code = cuDeviceGetCount(&count);
  if (!code) code = cuDriverGetVersion(&driver_version);
  if (code) {
    snprintf(said, sizeof said, "the driver does not start: %s", cuda_said(code, buffer));
    why_none = said;
    return 0;
  }
  for (int32_t i = 0; i < GPU_MOST_DEVICES; i++) devices[i].id = i;
  return count < GPU_MOST_DEVICES ? count : GPU_MOST_DEVICES;
}

static int32_t count_devices(void) {
  if (device_count >= 0) return device_count;
  CUDA_LOCK(&mutex);
  if (device_count < 0) device_count = look_for_devices();
  CUDA_UNLOCK(&mutex);
  return device_count;
}

int cuda_exists(void *self, int32_t id) {
  (void)self;
  return id >= 0 && id < count_devices();
}

int32_t cuda_driver_version(void) { return driver_version; }

static int open_first(int32_t id) {
  char buffer[CUDA_SAID];
  if (!cuda_exists(NULL, id))
    return sterna_set_errorf("RuntimeError", "there is no device cuda(%d): %s", (int)id,
                             device_count > 0 ? "the machine has fewer" : why_none);
  cuda_device *d = &devices[id];
  CUDA_LOCK(&mutex);
  cu_code code = cuDeviceGet(&d->handle, id);
  if (!code && !d->context) code = cuDevicePrimaryCtxRetain(&d->context, d->handle);
  if (!code) opened |= 1u << id;
  CUDA_UNLOCK(&mutex);
  return code ? sterna_set_errorf("RuntimeError", "cuda(%d): its context: %s", (int)id,
                                  cuda_said(code, buffer))
              : 0;
}

int cuda_open(int32_t id, cuda_device **out) {
  int is_open = id >= 0 && id < GPU_MOST_DEVICES && (opened >> id & 1);
  if (!is_open && open_first(id)) return -1;
  *out = &devices[id];
  cu_code ended = devices[id].ended;
  return ended ? cuda_fail(*out, "an earlier kernel", ended) : 0;
}

int cuda_enter(cuda_device *d, cuda_scope *out) {
  cu_object now = NULL;
  out->is_pushed = 0;
  if (cuCtxGetCurrent(&now) == 0 && now == d->context) return 0;
  cu_code code = cuCtxPushCurrent_v2(d->context);
  if (code) return cuda_fail(d, "its context", code);
  out->is_pushed = 1;
  return 0;
}

void cuda_leave(const cuda_scope *scope) {
  cu_object unused;
  if (scope->is_pushed) cuCtxPopCurrent_v2(&unused);
}

/* ---- errors ---- */

const char *cuda_explain(cuda_device *d, cu_code code, char *buffer, size_t size) {
  char words[CUDA_SAID];
  if (cuda_is_sticky(code)) d->ended = code;
  if (d->ended)
    snprintf(buffer, size,
             "%s. The driver has ended the session with cuda(%d): its memory is lost, and nothing more can "
             "run there in this process; start a new one. To find the kernel at fault, run it under "
             "compute-sanitizer, or with CUDA_LAUNCH_BLOCKING=1",
             cuda_said(code, words), (int)d->id);
  else
    snprintf(buffer, size, "%s", cuda_said(code, words));
  return buffer;
}

int cuda_fail(cuda_device *d, const char *what, cu_code code) {
  char buffer[CUDA_EXPLAINED];
  const char *kind = code == CU_ERROR_OUT_OF_MEMORY ? "MemoryError" : "RuntimeError";
  return sterna_set_errorf(kind, "cuda(%d): %s: %s", (int)d->id, what,
                           cuda_explain(d, code, buffer, sizeof buffer));
}

/* ---- streams ---- */

cu_object *cuda_stream_slot(const cuda_device *d) { return &streams[d->id]; }
cu_object cuda_stream(const cuda_device *d) { return streams[d->id]; }

int cuda_is_captured(cu_object stream) {
  int32_t status = 0;
  cu_code code = cuStreamIsCapturing(stream, &status);
  return code ? -1 : status != 0;
}

static int read_device(const sterna_any *args, int32_t n, int32_t wanted, cuda_device **out) {
  int64_t id;
  if (n != wanted || sterna_as_int(&args[0], &id))
    return sterna_set_errorf("TypeError", "a question to a CUDA device takes its number and %d values more",
                             (int)wanted - 1);
  return cuda_open((int32_t)id, out);
}

static cu_object read_stream(const sterna_any *value) {
  /* DLPack's numbers for the default stream: 1 for the one of the process */
  uintptr_t number = (uintptr_t)value->v_ptr;
  return number == 1 ? NULL : (cu_object)number;
}

/* (device number): a new stream that waits for no other */
static int create_stream(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  cuda_device *d;
  cuda_scope scope;
  cu_object made = NULL;
  (void)self;
  if (read_device(args, n, 1, &d) || cuda_enter(d, &scope)) return -1;
  cu_code code = cuStreamCreate(&made, CU_STREAM_NON_BLOCKING);
  cuda_leave(&scope);
  *ret = sterna_any_int((int64_t)(uintptr_t)made);
  return code ? cuda_fail(d, "a stream", code) : 0;
}

/* (device number, stream) */
static int free_stream(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  cuda_device *d;
  cuda_scope scope;
  (void)self;
  (void)ret;
  if (read_device(args, n, 2, &d) || cuda_enter(d, &scope)) return -1;
  cu_object stream = read_stream(&args[1]);
  cu_code code = stream ? cuStreamDestroy_v2(stream) : 0;
  if (stream && streams[d->id] == stream) streams[d->id] = NULL;
  cuda_leave(&scope);
  return code ? cuda_fail(d, "ending a stream", code) : 0;
}

/* (device number, stream): what this thread does there from now on, it does in that stream */
static int set_stream(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  cuda_device *d;
  (void)self;
  if (read_device(args, n, 2, &d)) return -1;
  *ret = sterna_any_int((int64_t)(uintptr_t)streams[d->id]);
  streams[d->id] = read_stream(&args[1]);
  return 0;
}

/* (device number) */
static int get_stream(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  cuda_device *d;
  (void)self;
  if (read_device(args, n, 1, &d)) return -1;
  *ret = sterna_any_int((int64_t)(uintptr_t)streams[d->id]);
  return 0;
}

/* (device number, stream): waits until all that is in it is done */
static int sync_stream(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  cuda_device *d;
  cuda_scope scope;
  (void)self;
  (void)ret;
  if (read_device(args, n, 2, &d) || cuda_enter(d, &scope)) return -1;
  cu_code code = cuStreamSynchronize(read_stream(&args[1]));
  cuda_leave(&scope);
  return code ? cuda_fail(d, "waiting for a stream", code) : 0;
}

/* (device number, stream, other): lets a stream go on only when the other has done all it has so far.
   What is captured runs when its owner says so, and nothing outside can wait for it. */
static int wait_for_stream(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  cuda_device *d;
  cuda_scope scope;
  cu_object event = NULL;
  (void)self;
  (void)ret;
  if (read_device(args, n, 3, &d)) return -1;
  cu_object stream = read_stream(&args[1]), other = read_stream(&args[2]);
  if (stream == other) return 0;
  if (cuda_enter(d, &scope)) return -1;
  int are_apart = (stream && cuda_is_captured(stream)) != (other && cuda_is_captured(other));
  if (are_apart) {
    cuda_leave(&scope);
    return 0;
  }
  cu_code code = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (!code) code = cuEventRecord(event, other);
  if (!code) code = cuStreamWaitEvent(stream, event, 0);
  if (event) cuEventDestroy_v2(event);
  cuda_leave(&scope);
  return code ? cuda_fail(d, "letting a stream wait for another", code) : 0;
}

/* ---- what devices tell of themselves ---- */

static int number_of(const cuda_device *d, int32_t what, sterna_any *ret) {
  int32_t value = 0;
  if (cuDeviceGetAttribute(&value, what, d->handle) == 0) *ret = sterna_any_int(value);
  return 0;
}

static int text_of(const char *text, sterna_any *ret) { return sterna_string(text, strlen(text), ret); }

static int version_of(int32_t number, sterna_any *ret) {
  char text[32];
  snprintf(text, sizeof text, "%d.%d", (int)(number / 1000), (int)(number % 1000 / 10));
  return text_of(text, ret);
}

int32_t cuda_capability(const cuda_device *d) {
  int32_t major = 0, minor = 0;
  cuDeviceGetAttribute(&major, CU_CAPABILITY_MAJOR, d->handle);
  cuDeviceGetAttribute(&minor, CU_CAPABILITY_MINOR, d->handle);
  return major * 10 + minor;
}

static int capability_of(const cuda_device *d, sterna_any *ret) {
  char text[32];
  int32_t number = cuda_capability(d);
  snprintf(text, sizeof text, "%d.%d", (int)(number / 10), (int)(number % 10));
  return text_of(text, ret);
}

static int sizes_of(const cuda_device *d, sterna_any *ret) {
  int32_t sizes[3] = {0, 0, 0};
  char text[64];
  for (int32_t i = 0; i < 3; i++) cuDeviceGetAttribute(&sizes[i], CU_MAX_BLOCK_DIM_X + i, d->handle);
  snprintf(text, sizeof text, "[%d, %d, %d]", (int)sizes[0], (int)sizes[1], (int)sizes[2]);
  return text_of(text, ret);
}

static int memory_of(cuda_device *d, int is_free, sterna_any *ret) {
  size_t unused = 0, all = 0;
  cuda_scope scope;
  if (cuda_enter(d, &scope)) return -1;
  cu_code code = cuMemGetInfo_v2(&unused, &all);
  cuda_leave(&scope);
  if (code) return cuda_fail(d, "its memory", code);
  *ret = sterna_any_int((int64_t)(is_free ? unused : all));
  return 0;
}

/* (device number, attribute): by the attributes' classic numbers; none where there is no answer */
static int attribute(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  int64_t what;
  cuda_device *d;
  char name[256] = "";
  (void)self;
  if (read_device(args, n, 2, &d) || sterna_as_int(&args[1], &what)) return -1;
  *ret = sterna_any_none();
  switch (what) {
    case 1: return number_of(d, CU_MAX_THREADS_PER_BLOCK, ret);
    case 2: return number_of(d, CU_WARP_SIZE, ret);
    case 3: return number_of(d, CU_MAX_SHARED_MEMORY_PER_BLOCK, ret);
    case 4: return capability_of(d, ret);
    case 5:
      cuDeviceGetName(name, sizeof name - 1, d->handle);
      return text_of(name, ret);
    case 6: return number_of(d, CU_CLOCK_RATE, ret);
    case 7: return number_of(d, CU_MULTIPROCESSOR_COUNT, ret);
    case 8: return sizes_of(d, ret);
    case 9: return number_of(d, CU_MAX_REGISTERS_PER_BLOCK, ret);
    case 11:
    case 12: return version_of(driver_version, ret);
    case 13: return number_of(d, CU_L2_CACHE_SIZE, ret);
    case 14:
    case 15: return memory_of(d, what == 15, ret);
    default: return 0;
  }
}

/* ---- time ---- */

/* Differences between two events are floats of milliseconds, exact enough over short times only: an
   event of not long ago stands for the time that has gone by until then. */
typedef struct {
  cu_object last;
  int64_t nanoseconds;
} device_clock;

static device_clock clocks[GPU_MOST_DEVICES];

/* With the lock held, in the device's context. */
static cu_code read_clock(device_clock *c, cu_object stream, int64_t *out) {
  cu_object event = NULL;
  float milliseconds = 0;
  cu_code code = cuEventCreate(&event, CU_EVENT_DEFAULT);
  if (!code) code = cuEventRecord(event, stream);
  if (!code) code = cuEventSynchronize(event);
  if (!code && c->last) code = cuEventElapsedTime(&milliseconds, c->last, event);
  if (code) {
    if (event) cuEventDestroy_v2(event);
    return code;
  }
  *out = c->nanoseconds + (int64_t)((double)milliseconds * 1e6);
  if (c->last && milliseconds < 50) {
    cuEventDestroy_v2(event);
    return 0;
  }
  if (c->last) cuEventDestroy_v2(c->last);
  *c = (device_clock){event, *out};
  return 0;
}

/* (device number): the nanosecond at which the device has done all that this thread gave it so far */
static int device_time(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  cuda_device *d;
  cuda_scope scope;
  int64_t now = 0;
  (void)self;
  if (read_device(args, n, 1, &d) || cuda_enter(d, &scope)) return -1;
  CUDA_LOCK(&mutex);
  cu_code code = read_clock(&clocks[d->id], cuda_stream(d), &now);
  CUDA_UNLOCK(&mutex);
  cuda_leave(&scope);
  *ret = sterna_any_int(now);
  return code ? cuda_fail(d, "the time of an event", code) : 0;
}

/* (): why there is no device, or none when there is one */
static int why(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self;
  (void)args;
  (void)n;
  *ret = sterna_any_none();
  return cuda_exists(NULL, 0) ? 0 : text_of(why_none, ret);
}

int cuda_register_devices(void) {
  return sterna_register("sterna.attribute.cuda", attribute, NULL, NULL) ||
                 sterna_register("sterna.time.cuda", device_time, NULL, NULL) ||
                 sterna_register("sterna.why_no.cuda", why, NULL, NULL) ||
                 sterna_register("sterna.create_stream.cuda", create_stream, NULL, NULL) ||
                 sterna_register("sterna.free_stream.cuda", free_stream, NULL, NULL) ||
                 sterna_register("sterna.set_stream.cuda", set_stream, NULL, NULL) ||
                 sterna_register("sterna.get_stream.cuda", get_stream, NULL, NULL) ||
                 sterna_register("sterna.sync_stream.cuda", sync_stream, NULL, NULL) ||
                 sterna_register("sterna.wait_for_stream.cuda", wait_for_stream, NULL, NULL)
             ? -1
             : 0;
}
