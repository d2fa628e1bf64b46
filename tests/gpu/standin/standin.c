/*
 * A stand-in for libcuda.so.1: memory of devices is memory of the host, streams do at once what they
 * are given unless they are captured, and kernels are functions of the host or are only written down.
 * STANDIN_DEVICES in the environment says how many devices there are.
 */
#define _GNU_SOURCE
#include "standin_streams.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { LOG = 1 << 20, BIGGEST = 1 << 28 };

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static char calls[LOG];
static size_t called;
static int32_t version = 12080, sticky;
static int64_t left;
static _Thread_local void *contexts[16];
static _Thread_local int depth;
static int primary[16];

/* ---- what tests ask ---- */

static struct {
  char name[64];
  int32_t code, after;
} failure;

static struct {
  char name[64];
  standin_kernel kernel;
} kernels[64];

EXPORT void standin_define(const char *name, standin_kernel kernel) {
  int i = 0;
  while (kernels[i].kernel && strcmp(kernels[i].name, name)) i++;
  snprintf(kernels[i].name, sizeof kernels[i].name, "%s", name);
  kernels[i].kernel = kernel;
}

EXPORT void standin_fail(const char *function, int32_t code, int32_t after) {
  snprintf(failure.name, sizeof failure.name, "%s", function);
  failure.code = code;
  failure.after = after;
}

EXPORT const char *standin_calls(void) {
  static char copy[LOG];
  pthread_mutex_lock(&mutex);
  memcpy(copy, calls, called + 1);
  called = 0;
  calls[0] = 0;
  pthread_mutex_unlock(&mutex);
  return copy;
}

EXPORT void standin_set_version(int32_t number) { version = number; }
EXPORT int64_t standin_left(void) { return left; }

int32_t note(const char *name, const char *format, ...) {
  char text[512];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  pthread_mutex_lock(&mutex);
  if (called + sizeof text + 64 < LOG) called += (size_t)sprintf(calls + called, "%s %s\n", name, text);
  int32_t code = sticky;
  if (!code && strcmp(failure.name, name) == 0 && failure.after-- == 0) {
    code = failure.code;
    failure.name[0] = 0;
    if (code >= 700 && code <= 719) sticky = code;
  }
  pthread_mutex_unlock(&mutex);
  return code;
}

void count(int64_t change) { __atomic_add_fetch(&left, change, __ATOMIC_SEQ_CST); }

/* ---- devices and contexts ---- */

static int32_t device_count(void) {
  const char *text = getenv("STANDIN_DEVICES");
  return text ? atoi(text) : 1;
}

EXPORT cu_code cuInit(uint32_t flags) { return note("cuInit", "%u", flags); }
EXPORT cu_code cuDriverGetVersion(int32_t *out) {
  *out = version;
  return 0;
}
EXPORT cu_code cuGetErrorName(cu_code code, const char **out) {
  *out = code == 700   ? "CUDA_ERROR_ILLEGAL_ADDRESS"
         : code == 2   ? "CUDA_ERROR_OUT_OF_MEMORY"
         : code == 218 ? "CUDA_ERROR_INVALID_PTX"
         : code == 500 ? "CUDA_ERROR_NOT_FOUND"
         : code == 1   ? "CUDA_ERROR_INVALID_VALUE"
                       : "CUDA_ERROR_UNKNOWN";
  return 0;
}
EXPORT cu_code cuGetErrorString(cu_code code, const char **out) {
  *out = code == 700 ? "an illegal memory access was encountered"
         : code == 2 ? "out of memory"
                     : "it went wrong";
  return 0;
}
EXPORT cu_code cuDeviceGetCount(int32_t *out) {
  *out = device_count();
  return note("cuDeviceGetCount", "");
}
EXPORT cu_code cuDeviceGet(int32_t *out, int32_t id) {
  *out = id;
  return 0;
}
EXPORT cu_code cuDeviceGetName(char *out, int32_t size, int32_t device) {
  snprintf(out, (size_t)size, "Stand-in %d", device);
  return 0;
}
EXPORT cu_code cuDeviceGetAttribute(int32_t *out, int32_t what, int32_t device) {
  static const int32_t values[128] = {
      [CU_MAX_THREADS_PER_BLOCK] = 1024, [CU_MAX_BLOCK_DIM_X] = 1024,
      [CU_MAX_BLOCK_DIM_Y] = 1024,       [CU_MAX_BLOCK_DIM_Z] = 64,
      [CU_MAX_SHARED_MEMORY_PER_BLOCK] = 49152, [CU_WARP_SIZE] = 32,
      [CU_MAX_REGISTERS_PER_BLOCK] = 65536, [CU_CLOCK_RATE] = 1980000,
      [CU_MULTIPROCESSOR_COUNT] = 132,   [CU_L2_CACHE_SIZE] = 62914560,
      [CU_CAPABILITY_MAJOR] = 9,         [CU_CAPABILITY_MINOR] = 0,
      [CU_MAX_SHARED_MEMORY_OPTIN] = 232448};
  const char *second = getenv("STANDIN_SECOND"); /* the compute capability of device 1, such as 8.6 */
  *out = values[what];
  if (device == 1 && second && what == CU_CAPABILITY_MAJOR) *out = atoi(second);
  if (device == 1 && second && what == CU_CAPABILITY_MINOR) *out = atoi(strchr(second, '.') + 1);
  return 0;
}
EXPORT cu_code cuDeviceTotalMem_v2(size_t *out, int32_t device) {
  (void)device;
  *out = (size_t)1 << 36;
  return 0;
}
EXPORT cu_code cuDevicePrimaryCtxRetain(cu_object *out, int32_t device) {
  *out = &primary[device];
  return note("cuDevicePrimaryCtxRetain", "%d", device);
}
EXPORT cu_code cuCtxGetCurrent(cu_object *out) {
  *out = depth ? contexts[depth - 1] : NULL;
  return 0;
}
EXPORT cu_code cuCtxPushCurrent_v2(cu_object context) {
  contexts[depth++] = context;
  return 0;
}
EXPORT cu_code cuCtxPopCurrent_v2(cu_object *out) {
  *out = contexts[--depth];
  return 0;
}
EXPORT cu_code cuCtxSynchronize(void) { return note("cuCtxSynchronize", ""); }
static int32_t here(void) { return (int32_t)((int *)contexts[depth - 1] - primary); }

/* ---- memory ---- */

typedef struct {
  size_t bytes;
  int32_t device;
  char padding[244];
} header;

EXPORT cu_code cuMemGetInfo_v2(size_t *unused, size_t *all) {
  *all = (size_t)1 << 36;
  *unused = *all - (size_t)left;
  return 0;
}
EXPORT cu_code cuMemAlloc_v2(cu_address *out, size_t bytes) {
  cu_code code = note("cuMemAlloc", "%zu on %d", bytes, here());
  if (!code && bytes > BIGGEST) code = CU_ERROR_OUT_OF_MEMORY;
  if (code) return code;
  header *made = aligned_alloc(256, 256 + (bytes + 255) / 256 * 256);
  *made = (header){bytes, here(), {0}};
  memset(made + 1, 0xAB, bytes);
  *out = (cu_address)(uintptr_t)(made + 1);
  count((int64_t)bytes);
  return 0;
}
EXPORT cu_code cuMemFree_v2(cu_address address) {
  header *at = (header *)(uintptr_t)address - 1;
  count(-(int64_t)at->bytes);
  free(at);
  return note("cuMemFree", "");
}
EXPORT cu_code cuMemHostAlloc(void **out, size_t bytes, uint32_t flags) {
  cu_code code = note("cuMemHostAlloc", "%zu %u", bytes, flags);
  if (!code) *out = malloc(bytes);
  return code;
}
EXPORT cu_code cuMemFreeHost(void *address) {
  free(address);
  return note("cuMemFreeHost", "");
}
EXPORT cu_code cuPointerGetAttribute(void *out, int32_t what, cu_address address) {
  if (what != CU_POINTER_DEVICE_ORDINAL || address % 256) return 1; /* of whole blocks only */
  *(int32_t *)out = ((header *)(uintptr_t)address)[-1].device;
  return 0;
}

/* ---- streams, captures and what is in them ---- */

static void do_now(node *n) {
  void *arguments[MOST_PARAMETERS];
  struct timespec t;
  if (n->kind == COPY) memmove(n->to, n->from, n->bytes);
  if (n->kind == EVENT) {
    clock_gettime(CLOCK_MONOTONIC, &t);
    ((event *)n->to)->seconds = (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
  }
  if (n->kind != KERNEL) return;
  for (int i = 0; i < MOST_PARAMETERS; i++) arguments[i] = n->values[i];
  for (int i = 0; kernels[i].kernel; i++)
    if (strcmp(kernels[i].name, n->kernel->name) == 0) kernels[i].kernel(arguments, n->grid, n->block);
}

void give(cu_object where, node *n) {
  stream *s = where;
  if (!s || !s->captured) {
    do_now(n);
    return;
  }
  s->captured->nodes[s->captured->count++] = *n;
}

static cu_code copy(const char *name, void *to, const void *from, size_t bytes, cu_object stream) {
  node n = {COPY, to, from, bytes, NULL, {0}, {0}, {{0}}};
  cu_code code = note(name, "%zu %s", bytes, stream ? "stream" : "default");
  if (!code) give(stream, &n);
  return code;
}
EXPORT cu_code cuMemcpyHtoDAsync_v2(cu_address to, const void *from, size_t bytes, cu_object stream) {
  return copy("cuMemcpyHtoDAsync", (void *)(uintptr_t)to, from, bytes, stream);
}
EXPORT cu_code cuMemcpyDtoHAsync_v2(void *to, cu_address from, size_t bytes, cu_object stream) {
  return copy("cuMemcpyDtoHAsync", to, (void *)(uintptr_t)from, bytes, stream);
}
EXPORT cu_code cuMemcpyDtoDAsync_v2(cu_address to, cu_address from, size_t bytes, cu_object stream) {
  return copy("cuMemcpyDtoDAsync", (void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes, stream);
}
EXPORT cu_code cuMemcpyPeerAsync(cu_address to, cu_object there, cu_address from, cu_object here_,
                                  size_t bytes, cu_object stream) {
  (void)there;
  (void)here_;
  return copy("cuMemcpyPeerAsync", (void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes, stream);
}
EXPORT cu_code cuStreamCreate(cu_object *out, uint32_t flags) {
  cu_code code = note("cuStreamCreate", "%u", flags);
  if (code) return code;
  *out = calloc(1, sizeof(stream));
  count(1);
  return 0;
}
EXPORT cu_code cuStreamDestroy_v2(cu_object s) {
  free(s);
  count(-1);
  return note("cuStreamDestroy", "");
}
EXPORT cu_code cuStreamSynchronize(cu_object s) {
  return note("cuStreamSynchronize", "%s", s ? "stream" : "default");
}
EXPORT cu_code cuStreamWaitEvent(cu_object s, cu_object e, uint32_t flags) {
  (void)e;
  (void)flags;
  return note("cuStreamWaitEvent", "%s", s ? "stream" : "default");
}
EXPORT cu_code cuStreamIsCapturing(cu_object s, int32_t *out) {
  *out = s && ((stream *)s)->captured;
  return 0;
}
EXPORT cu_code cuStreamBeginCapture_v2(cu_object s, int32_t mode) {
  cu_code code = note("cuStreamBeginCapture", "%d", mode);
  if (code) return code;
  graph *g = calloc(1, sizeof *g);
  g->nodes = calloc(MOST_NODES, sizeof *g->nodes);
  ((stream *)s)->captured = g;
  count(1);
  return 0;
}
EXPORT cu_code cuStreamEndCapture(cu_object s, cu_object *out) {
  *out = ((stream *)s)->captured;
  ((stream *)s)->captured = NULL;
  return note("cuStreamEndCapture", "");
}
EXPORT cu_code cuThreadExchangeStreamCaptureMode(int32_t *mode) {
  static _Thread_local int32_t now;
  int32_t before = now;
  now = *mode;
  *mode = before;
  return 0;
}

/* ---- events ---- */

EXPORT cu_code cuEventCreate(cu_object *out, uint32_t flags) {
  cu_code code = note("cuEventCreate", "%u", flags);
  if (code) return code;
  *out = calloc(1, sizeof(event));
  count(1);
  return 0;
}
EXPORT cu_code cuEventDestroy_v2(cu_object e) {
  free(e);
  count(-1);
  return 0;
}
EXPORT cu_code cuEventRecordWithFlags(cu_object e, cu_object s, uint32_t flags) {
  node n = {EVENT, e, NULL, 0, NULL, {0}, {0}, {{0}}};
  cu_code code = note("cuEventRecord", "%s %u", s ? "stream" : "default", flags);
  if (!code) give(s, &n);
  return code;
}
EXPORT cu_code cuEventRecord(cu_object e, cu_object s) { return cuEventRecordWithFlags(e, s, 0); }
EXPORT cu_code cuEventSynchronize(cu_object e) { return note("cuEventSynchronize", "%d", e != NULL); }
EXPORT cu_code cuEventElapsedTime(float *out, cu_object from, cu_object to) {
  *out = (float)((((event *)to)->seconds - ((event *)from)->seconds) * 1e3);
  return 0;
}
