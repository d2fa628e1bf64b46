/* What the files of the CUDA back end share. */
#ifndef STERNA_CUDA_H_
#define STERNA_CUDA_H_

#include "cuda_driver.h"
#include "kernels.h"

#if defined(_WIN32)
#include <windows.h>
#define CUDA_MUTEX SRWLOCK
#define CUDA_MUTEX_INIT SRWLOCK_INIT
#define CUDA_LOCK(mutex) AcquireSRWLockExclusive(mutex)
#define CUDA_UNLOCK(mutex) ReleaseSRWLockExclusive(mutex)
#else
#include <pthread.h>
#define CUDA_MUTEX pthread_mutex_t
#define CUDA_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#define CUDA_LOCK(mutex) pthread_mutex_lock(mutex)
#define CUDA_UNLOCK(mutex) pthread_mutex_unlock(mutex)
#endif

#if defined(__GNUC__)
#pragma GCC visibility push(hidden)
#endif

/* ---- cuda_device.c: devices, their streams, and what they tell of themselves ---- */

typedef struct {
  int32_t id, handle;
  cu_object context; /* the primary one, which PyTorch and CuPy use too */
  _Atomic cu_code ended; /* the error that has ended the context, or 0 */
} cuda_device;

/* A device whose context is made; an error says why there is none. */
int cuda_open(int32_t id, cuda_device **out);
int cuda_exists(void *self, int32_t id);
int32_t cuda_driver_version(void); /* 12040 for 12.4 */
int32_t cuda_capability(const cuda_device *d); /* 90 for 9.0 */

/* Makes a device's context the thread's for as long as a call takes. */
typedef struct {
  int is_pushed;
} cuda_scope;
int cuda_enter(cuda_device *d, cuda_scope *out);
void cuda_leave(const cuda_scope *scope);

/* The thread's stream of a device; null is the one that all blocking streams wait for. */
cu_object cuda_stream(const cuda_device *d);
cu_object *cuda_stream_slot(const cuda_device *d);
/* Whether somebody captures what is given to a stream: 1, 0, or -1 when the driver cannot tell now. */
int cuda_is_captured(cu_object stream);

/* An error that says what was tried and what the driver said; notes when the context has ended. */
int cuda_fail(cuda_device *d, const char *what, cu_code code);
/* The same text for errors that say more. */
const char *cuda_explain(cuda_device *d, cu_code code, char *buffer, size_t size);
enum { CUDA_EXPLAINED = 640 };

int cuda_register_devices(void);

/* ---- cuda_memory.c: memory, copies ---- */

extern const sterna_device_api cuda_api, cuda_host_api;
int cuda_allocate(cuda_device *d, size_t bytes, void **out);
void cuda_release(int32_t id, void *block);
int cuda_home_of(uint64_t address, int32_t *id); /* the device that memory is on */

/* ---- cuda_kernels.c: modules and launches ---- */

int cuda_register_kernels(void);

/* ---- cuda_maps.c: tensor maps ---- */

/* With the lock of kernels held: the maps of a launch, in the order of the kernel's parameters. */
int cuda_encode_maps(gpu_kernel *k, const gpu_launch *l, cuda_device *d, cu_tensor_map *out);

/* ---- cuda_replay.c: runs that are captured once and replayed ---- */


/* While the thread captures: says why it cannot, so that the run is made anew without. */
int cuda_refuse_capture(const char *why);
int cuda_is_capturing(void);
/* Workspace of what is being captured, which lives as long as that. */
int cuda_take_captured(cuda_device *d, size_t bytes, void **out);
int cuda_give_captured_back(void *block); /* 1 when it was such */
int cuda_register_replay(void);

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif

#endif
