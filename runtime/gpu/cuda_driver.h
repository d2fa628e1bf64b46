/* The parts of CUDA's driver that are used, found in its library when they are first needed. */
#ifndef STERNA_CUDA_DRIVER_H_
#define STERNA_CUDA_DRIVER_H_

#include <stddef.h>
#include <stdint.h>

typedef void *cu_object;     /* contexts, modules, kernels, streams, events, graphs */
typedef uint64_t cu_address; /* of memory of a device */
typedef int32_t cu_code;

enum {
  CU_ERROR_OUT_OF_MEMORY = 2,
  CU_ERROR_NO_DEVICE = 100,
  CU_ERROR_NOT_FOUND = 500,
  CU_ERROR_NOT_READY = 600,
  /* Device attributes */
  CU_MAX_THREADS_PER_BLOCK = 1,
  CU_MAX_BLOCK_DIM_X = 2,
  CU_MAX_BLOCK_DIM_Y = 3,
  CU_MAX_BLOCK_DIM_Z = 4,
  CU_MAX_SHARED_MEMORY_PER_BLOCK = 8,
  CU_WARP_SIZE = 10,
  CU_MAX_REGISTERS_PER_BLOCK = 12,
  CU_CLOCK_RATE = 13,
  CU_MULTIPROCESSOR_COUNT = 16,
  CU_L2_CACHE_SIZE = 38,
  CU_CAPABILITY_MAJOR = 75,
  CU_CAPABILITY_MINOR = 76,
  CU_MAX_SHARED_MEMORY_OPTIN = 97,
  /* Others */
  CU_POINTER_DEVICE_ORDINAL = 9,
  CU_FUNC_STATIC_SHARED_BYTES = 1,
  CU_FUNC_MAX_DYNAMIC_SHARED_BYTES = 8,
  CU_STREAM_NON_BLOCKING = 1,
  CU_EVENT_DEFAULT = 0,
  CU_EVENT_DISABLE_TIMING = 2,
  CU_EVENT_RECORD_EXTERNAL = 1,
  CU_JIT_INFO_LOG_BUFFER = 3,
  CU_JIT_INFO_LOG_BYTES = 4,
  CU_JIT_ERROR_LOG_BUFFER = 5,
  CU_JIT_ERROR_LOG_BYTES = 6,
  CU_CAPTURE_THREAD_LOCAL = 1,
  CU_CAPTURE_RELAXED = 2,
  CU_LAUNCH_PROGRAMMATIC_SERIALIZATION = 6,
};

typedef struct {
  int32_t id;
  char padding[4];
  union {
    char bytes[64];
    int32_t number;
  } value;
} cu_launch_attribute;

typedef struct {
  uint32_t grid[3], block[3], shared_bytes;
  cu_object stream;
  cu_launch_attribute *attributes;
  uint32_t attribute_count;
} cu_launch;

typedef struct {
  _Alignas(64) uint64_t words[16];
} cu_tensor_map;

#define CUDA_FUNCTIONS(F)                                                                              \
  F(cuInit, (uint32_t))                                                                                \
  F(cuDriverGetVersion, (int32_t *))                                                                   \
  F(cuGetErrorName, (cu_code, const char **))                                                          \
  F(cuGetErrorString, (cu_code, const char **))                                                        \
  F(cuDeviceGetCount, (int32_t *))                                                                     \
  F(cuDeviceGet, (int32_t *, int32_t))                                                                 \
  F(cuDeviceGetName, (char *, int32_t, int32_t))                                                       \
  F(cuDeviceGetAttribute, (int32_t *, int32_t, int32_t))                                               \
  F(cuDeviceTotalMem_v2, (size_t *, int32_t))                                                          \
  F(cuDevicePrimaryCtxRetain, (cu_object *, int32_t))                                                  \
  F(cuCtxGetCurrent, (cu_object *))                                                                    \
  F(cuCtxPushCurrent_v2, (cu_object))                                                                  \
  F(cuCtxPopCurrent_v2, (cu_object *))                                                                 \
  F(cuCtxSynchronize, (void))                                                                          \
  F(cuMemGetInfo_v2, (size_t *, size_t *))                                                             \
  F(cuMemAlloc_v2, (cu_address *, size_t))                                                             \
  F(cuMemFree_v2, (cu_address))                                                                        \
  F(cuMemHostAlloc, (void **, size_t, uint32_t))                                                       \
  F(cuMemFreeHost, (void *))                                                                           \
  F(cuMemcpyHtoDAsync_v2, (cu_address, const void *, size_t, cu_object))                               \
  F(cuMemcpyDtoHAsync_v2, (void *, cu_address, size_t, cu_object))                                     \
  F(cuMemcpyDtoDAsync_v2, (cu_address, cu_address, size_t, cu_object))                                 \
  F(cuMemcpyPeerAsync, (cu_address, cu_object, cu_address, cu_object, size_t, cu_object))              \
  F(cuPointerGetAttribute, (void *, int32_t, cu_address))                                              \
  F(cuModuleLoadDataEx, (cu_object *, const void *, uint32_t, const int32_t *, void **))               \
  F(cuModuleUnload, (cu_object))                                                                       \
  F(cuModuleGetFunction, (cu_object *, cu_object, const char *))                                       \
  F(cuFuncGetAttribute, (int32_t *, int32_t, cu_object))                                               \
  F(cuFuncSetAttribute, (cu_object, int32_t, int32_t))                                                 \
  F(cuLaunchKernel, (cu_object, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t, uint32_t,  \
                     cu_object, void **, void **))                                                     \
  F(cuStreamCreate, (cu_object *, uint32_t))                                                           \
  F(cuStreamDestroy_v2, (cu_object))                                                                   \
  F(cuStreamSynchronize, (cu_object))                                                                  \
  F(cuStreamWaitEvent, (cu_object, cu_object, uint32_t))                                               \
  F(cuStreamIsCapturing, (cu_object, int32_t *))                                                       \
  F(cuStreamBeginCapture_v2, (cu_object, int32_t))                                                     \
  F(cuStreamEndCapture, (cu_object, cu_object *))                                                      \
  F(cuThreadExchangeStreamCaptureMode, (int32_t *))                                                    \
  F(cuEventCreate, (cu_object *, uint32_t))                                                            \
  F(cuEventDestroy_v2, (cu_object))                                                                    \
  F(cuEventRecord, (cu_object, cu_object))                                                             \
  F(cuEventSynchronize, (cu_object))                                                                   \
  F(cuEventElapsedTime, (float *, cu_object, cu_object))                                               \
  F(cuGraphLaunch, (cu_object, cu_object))                                                             \
  F(cuGraphExecDestroy, (cu_object))                                                                   \
  F(cuGraphDestroy, (cu_object))

/* Those that drivers of Jetsons or of years ago lack: null there. */
#define CUDA_NEWER_FUNCTIONS(F)                                                                        \
  F(cuLaunchKernelEx, (const cu_launch *, cu_object, void **, void **))                                \
  F(cuGraphInstantiateWithFlags, (cu_object *, cu_object, unsigned long long))                         \
  F(cuEventRecordWithFlags, (cu_object, cu_object, uint32_t))                                          \
  F(cuTensorMapEncodeTiled,                                                                            \
    (cu_tensor_map *, int32_t, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, \
     const uint32_t *, int32_t, int32_t, int32_t, int32_t))                                            \
  F(cuTensorMapEncodeIm2col,                                                                           \
    (cu_tensor_map *, int32_t, uint32_t, void *, const uint64_t *, const uint64_t *, const int32_t *,  \
     const int32_t *, uint32_t, uint32_t, const uint32_t *, int32_t, int32_t, int32_t, int32_t))

#if !defined(CUDA_DRIVER_ITSELF) /* what stands in for the driver in tests defines them */
#define CUDA_DECLARE(name, parameters) extern cu_code(*name) parameters;
CUDA_FUNCTIONS(CUDA_DECLARE)
CUDA_NEWER_FUNCTIONS(CUDA_DECLARE)
#undef CUDA_DECLARE
#endif

int cuda_load(const char **why); /* 0 once all functions are there; else why says what is not */
/* "CUDA_ERROR_INVALID_VALUE (1): invalid argument", in a buffer of this many bytes */
enum { CUDA_SAID = 256 };
const char *cuda_said(cu_code code, char *buffer);
int cuda_is_sticky(cu_code code); /* whether the error has ended the context of its device */

#endif
