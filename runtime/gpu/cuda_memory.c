/*
 * Memory of CUDA devices, pinned memory of the machine, and copies.
 *
 * What is released goes to a pool, since the driver takes long to allocate and waits for the device to
 * free. A block of the pool may still be in use by what was in the stream of its last user: another
 * stream that takes it waits for that. A graph that somebody else captures may use a block for as long
 * as it likes: what is allocated or released in a captured stream never comes to the pool.
 */
#include "cuda.h"

#include <stdlib.h>
#include <string.h>

typedef struct block {
  struct block *next;
  uint64_t address;
  size_t bytes;
  int32_t device;
  int is_captured;         /* by somebody else's graph */
  int is_marked;           /* in the pool: the event says when its last use ends */
  cu_object stream, event; /* in the pool: where it was used last, and behind that use */
} block;

enum { BUCKETS = 1024, SMALLEST = 256 };

static CUDA_MUTEX mutex = CUDA_MUTEX_INIT;
static block *used[BUCKETS];   /* by address */
static block *unused[BUCKETS]; /* the pool, by size */

static size_t bucket_of(uint64_t number) {
  return (size_t)((number / SMALLEST * UINT64_C(0x9E3779B97F4A7C15)) >> 54) % BUCKETS;
}

/* Eight sizes for each power of two, so that the pool serves many wishes and little is lost. */
static size_t rounded(size_t bytes) {
  size_t step = SMALLEST;
  while (step < bytes / 16) step *= 2;
  return bytes ? (bytes + step - 1) / step * step : SMALLEST;
}

/* ---- the pool ---- */

static block *take_out(block **bucket, block *wanted) {
  for (block **at = bucket; *at; at = &(*at)->next)
    if (*at == wanted) {
      *at = wanted->next;
      return wanted;
    }
  return NULL;
}

static void put_in(block **bucket, block *b) {
  b->next = *bucket;
  *bucket = b;
}

/* In the device's context: marks the end of a block's use; impossible while others capture. */
static void mark_end_of_use(block *b) {
  cu_code code = cuda_is_captured(b->stream) ? CU_ERROR_NOT_READY : 0;
  if (!code && !b->event) code = cuEventCreate(&b->event, CU_EVENT_DISABLE_TIMING);
  if (!code) code = cuEventRecord(b->event, b->stream);
  b->is_marked = code == 0;
}

/* With the lock held: a block that this stream was the last to use, else any. */
static block *find_unused(int32_t device, size_t bytes, cu_object stream) {
  block **bucket = &unused[bucket_of(bytes)], *found = NULL;
  for (block *b = *bucket; b; b = b->next) {
    if (b->device != device || b->bytes != bytes) continue;
    if (!b->is_marked) mark_end_of_use(b);
    if (b->is_marked && (!found || (found->stream != stream && b->stream == stream))) found = b;
  }
  return found ? take_out(bucket, found) : NULL;
}

/* With the lock held, in the device's context: gives all that is unused back to the driver. */
static void empty_pool(int32_t device) {
  cuCtxSynchronize();
  for (size_t i = 0; i < BUCKETS; i++)
    for (block **at = &unused[i]; *at;) {
      block *b = *at;
      if (b->device != device) {
        at = &b->next;
        continue;
      }
      *at = b->next;
      cuMemFree_v2(b->address);
      if (b->event) cuEventDestroy_v2(b->event);
      free(b);
    }
}

/* The driver allocates for a thread that captures only when it is told that this is meant. */
static cu_code allocate_new(block *b) {
  int32_t mode = CU_CAPTURE_RELAXED;
  cuThreadExchangeStreamCaptureMode(&mode);
  cu_code code = cuMemAlloc_v2(&b->address, b->bytes);
  if (code == CU_ERROR_OUT_OF_MEMORY && !cuda_is_capturing()) {
    empty_pool(b->device);
    code = cuMemAlloc_v2(&b->address, b->bytes);
  }
  cuThreadExchangeStreamCaptureMode(&mode);
  return code;
}

/* With the lock held, in the device's context. */
static cu_code allocate_locked(cuda_device *d, size_t bytes, block **out) {
  cu_object stream = cuda_stream(d);
  int is_captured = !cuda_is_capturing() && cuda_is_captured(stream) == 1;
  block *b = cuda_is_capturing() || is_captured ? NULL : find_unused(d->id, bytes, stream);
  cu_code code = 0;
  if (b && b->stream != stream) code = cuStreamWaitEvent(stream, b->event, 0);
  if (!b) {
    b = calloc(1, sizeof *b);
    if (!b) return CU_ERROR_OUT_OF_MEMORY;
    b->bytes = bytes;
    b->device = d->id;
    b->is_captured = is_captured;
    code = allocate_new(b);
  }
  if (code) {
    free(b);
    return code;
  }
  put_in(&used[bucket_of(b->address)], b);
  *out = b;
  return 0;
}

int cuda_allocate(cuda_device *d, size_t bytes, void **out) {
  cuda_scope scope;
  block *b = NULL;
  char words[CUDA_EXPLAINED];
  if (cuda_enter(d, &scope)) return -1;
  CUDA_LOCK(&mutex);
  cu_code code = allocate_locked(d, rounded(bytes), &b);
  CUDA_UNLOCK(&mutex);
  cuda_leave(&scope);
  if (code)
    return sterna_set_errorf(code == CU_ERROR_OUT_OF_MEMORY ? "MemoryError" : "RuntimeError",
                             "cuda(%d) has no %llu bytes: %s", (int)d->id, (unsigned long long)bytes,
                             cuda_explain(d, code, words, sizeof words));
  *out = (void *)(uintptr_t)b->address;
  return 0;
}

void cuda_release(int32_t id, void *address) {
  cuda_device *d;
  cuda_scope scope;
  uint64_t number = (uint64_t)(uintptr_t)address;
  block **bucket = &used[bucket_of(number)];
  CUDA_LOCK(&mutex);
  block *b = *bucket;
  while (b && b->address != number) b = b->next;
  if (b) take_out(bucket, b);
  CUDA_UNLOCK(&mutex);
  if (!b) return;
  if (cuda_open(id, &d) || cuda_enter(d, &scope)) {
    sterna_clear_error(); /* the memory went with the device's session */
    free(b);
    return;
  }
  b->stream = cuda_stream(d);
  if (b->is_captured || cuda_is_captured(b->stream) == 1) {
    if (b->event) cuEventDestroy_v2(b->event);
    free(b); /* its memory stays with the graph that somebody captured */
  } else {
    mark_end_of_use(b);
    CUDA_LOCK(&mutex);
    put_in(&unused[bucket_of(b->bytes)], b);
    CUDA_UNLOCK(&mutex);
  }
  cuda_leave(&scope);
}

/* ---- where memory is ---- */

int cuda_home_of(uint64_t address, int32_t *id) {
  int32_t found = 0;
  if (!cuda_exists(NULL, 1)) { /* there is only one place */
    *id = 0;
    return 0;
  }
  if (!address || cuPointerGetAttribute(&found, CU_POINTER_DEVICE_ORDINAL, address)) return -1;
  *id = found;
  return 0;
}

/* ---- copies ---- */

static cu_code copy_between(cuda_device *to, void *target, cuda_device *from, const void *source,
                            size_t bytes) {
  cu_address there = (cu_address)(uintptr_t)target, here = (cu_address)(uintptr_t)source;
  if (to == from) return cuMemcpyDtoDAsync_v2(there, here, bytes, cuda_stream(to));
  /* Both streams go on when it is done. */
  cu_object event = NULL;
  cu_code code = cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
  if (!code) code = cuEventRecord(event, cuda_stream(to));
  if (!code) code = cuEventSynchronize(event);
  if (event) cuEventDestroy_v2(event);
  cuda_scope scope;
  if (code) return code;
  if (cuda_enter(from, &scope)) return CU_ERROR_NOT_READY;
  code = cuMemcpyPeerAsync(there, to->context, here, from->context, bytes, cuda_stream(from));
  if (!code) code = cuStreamSynchronize(cuda_stream(from));
  cuda_leave(&scope);
  return code;
}

static int copy_on_devices(void *to, DLDevice to_device, const void *from, DLDevice from_device,
                           size_t bytes) {
  cuda_device *source, *target;
  cuda_scope scope;
  if (cuda_open(from_device.device_id, &source) || cuda_open(to_device.device_id, &target) ||
      cuda_enter(target, &scope))
    return -1;
  cu_code code = copy_between(target, to, source, from, bytes);
  cuda_leave(&scope);
  return code ? cuda_fail(target, "a copy on the device", code) : 0;
}

/* Pinned memory is copied while the caller goes on; other memory is the caller's again at return. */
static int copy_with_host(cuda_device *d, void *to, const void *from, size_t bytes, int is_upload,
                          int is_pinned) {
  cuda_scope scope;
  cu_object stream = cuda_stream(d);
  if (cuda_is_capturing()) return cuda_refuse_capture("a copy between the device and the host");
  if (cuda_enter(d, &scope)) return -1;
  cu_code code = is_upload ? cuMemcpyHtoDAsync_v2((cu_address)(uintptr_t)to, from, bytes, stream)
                           : cuMemcpyDtoHAsync_v2(to, (cu_address)(uintptr_t)from, bytes, stream);
  if (!code && !is_pinned) code = cuStreamSynchronize(stream);
  cuda_leave(&scope);
  return code ? cuda_fail(d, is_upload ? "a copy to the device" : "a copy from the device", code) : 0;
}

static int copy(void *self, void *to, DLDevice to_device, const void *from, DLDevice from_device,
                size_t bytes) {
  cuda_device *d;
  int is_upload = to_device.device_type == kDLCUDA;
  (void)self;
  if (!bytes) return 0;
  if (is_upload && from_device.device_type == kDLCUDA)
    return copy_on_devices(to, to_device, from, from_device, bytes);
  DLDeviceType other = is_upload ? from_device.device_type : to_device.device_type;
  if (cuda_open(is_upload ? to_device.device_id : from_device.device_id, &d)) return -1;
  return copy_with_host(d, to, from, bytes, is_upload, other == kDLCUDAHost);
}

static int allocate(void *self, DLDevice where, size_t bytes, size_t alignment, void **out) {
  cuda_device *d;
  (void)self;
  (void)alignment; /* blocks lie at multiples of 256 bytes */
  return cuda_open(where.device_id, &d) || cuda_allocate(d, bytes, out) ? -1 : 0;
}

static void release(void *self, DLDevice where, void *address) {
  (void)self;
  cuda_release(where.device_id, address);
}

static int sync_device(void *self, DLDevice where) {
  cuda_device *d;
  cuda_scope scope;
  (void)self;
  if (cuda_is_capturing()) return cuda_refuse_capture("a wait for the device");
  if (cuda_open(where.device_id, &d) || cuda_enter(d, &scope)) return -1;
  cu_code code = cuCtxSynchronize();
  cuda_leave(&scope);
  return code ? cuda_fail(d, "waiting for the device", code) : 0;
}

const sterna_device_api cuda_api = {NULL, cuda_exists, allocate, release, copy, sync_device};

/* ---- pinned memory of the machine ---- */

static int allocate_pinned(void *self, DLDevice where, size_t bytes, size_t alignment, void **out) {
  cuda_device *d;
  cuda_scope scope;
  (void)self;
  (void)alignment; /* pages */
  if (cuda_open(where.device_id, &d) || cuda_enter(d, &scope)) return -1;
  cu_code code = cuMemHostAlloc(out, bytes ? bytes : 1, 1 /* for all contexts */);
  cuda_leave(&scope);
  return code ? cuda_fail(d, "pinned memory", code) : 0;
}

static void release_pinned(void *self, DLDevice where, void *address) {
  cuda_device *d;
  cuda_scope scope;
  (void)self;
  if (cuda_open(where.device_id, &d) || cuda_enter(d, &scope)) {
    sterna_clear_error();
    return;
  }
  cuMemFreeHost(address);
  cuda_leave(&scope);
}

/* Between pinned memory and other memory of the machine, behind all copies of the thread's stream. */
static int copy_pinned(void *self, void *to, DLDevice to_device, const void *from, DLDevice from_device,
                       size_t bytes) {
  cuda_device *d;
  cuda_scope scope;
  (void)self;
  (void)to_device;
  if (cuda_open(from_device.device_type == kDLCUDAHost ? from_device.device_id : to_device.device_id, &d) ||
      cuda_enter(d, &scope))
    return -1;
  cu_code code = cuStreamSynchronize(cuda_stream(d));
  cuda_leave(&scope);
  if (code) return cuda_fail(d, "waiting for a copy", code);
  if (bytes) memmove(to, from, bytes);
  return 0;
}

const sterna_device_api cuda_host_api = {NULL,           cuda_exists, allocate_pinned,
                                         release_pinned, copy_pinned, sync_device};
