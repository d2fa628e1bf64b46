/* The parts of OpenCL that are used, found in the system's library when they are first needed. */
#ifndef STERNA_OPENCL_DRIVER_H_
#define STERNA_OPENCL_DRIVER_H_

#include <stddef.h>
#include <stdint.h>

typedef void *cl_object; /* platforms, devices, contexts, queues, programs, kernels, memory, events */
typedef int32_t cl_code;
typedef uint64_t cl_bits;

enum {
  CL_DEVICE_TYPE_GPU_OR_ACCELERATOR = 4 | 8,
  CL_DEVICE_TYPE_ALL_OTHERS = 1 | 2,
  CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002,
  CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
  CL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005,
  CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100C,
  CL_DEVICE_SINGLE_FP_CONFIG = 0x101B,
  CL_DEVICE_GLOBAL_MEM_CACHE_SIZE = 0x101E,
  CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
  CL_DEVICE_LOCAL_MEM_SIZE = 0x1023,
  CL_DEVICE_NAME = 0x102B,
  CL_DRIVER_VERSION = 0x102D,
  CL_DEVICE_VERSION = 0x102F,
  CL_DEVICE_EXTENSIONS = 0x1030,
  CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT = 128,
  CL_PROGRAM_BUILD_LOG = 0x1183,
  CL_QUEUE_PROFILING_ENABLE = 2,
  CL_PROFILING_COMMAND_END = 0x1283,
  CL_MEM_READ_WRITE = 1,
};

#define OPENCL_FUNCTIONS(F)                                                                          \
  F(cl_code, clGetPlatformIDs, (uint32_t, cl_object *, uint32_t *))                                  \
  F(cl_code, clGetDeviceIDs, (cl_object, cl_bits, uint32_t, cl_object *, uint32_t *))                \
  F(cl_code, clGetDeviceInfo, (cl_object, uint32_t, size_t, void *, size_t *))                       \
  F(cl_object, clCreateContext,                                                                      \
    (const intptr_t *, uint32_t, const cl_object *, void *, void *, cl_code *))                      \
  F(cl_object, clCreateCommandQueue, (cl_object, cl_object, cl_bits, cl_code *))                     \
  F(cl_object, clCreateBuffer, (cl_object, cl_bits, size_t, void *, cl_code *))                      \
  F(cl_code, clReleaseMemObject, (cl_object))                                                        \
  F(cl_object, clCreateProgramWithSource, (cl_object, uint32_t, const char **, const size_t *, cl_code *)) \
  F(cl_code, clBuildProgram, (cl_object, uint32_t, const cl_object *, const char *, void *, void *))  \
  F(cl_code, clGetProgramBuildInfo, (cl_object, cl_object, uint32_t, size_t, void *, size_t *))      \
  F(cl_code, clReleaseProgram, (cl_object))                                                          \
  F(cl_object, clCreateKernel, (cl_object, const char *, cl_code *))                                 \
  F(cl_code, clReleaseKernel, (cl_object))                                                           \
  F(cl_code, clSetKernelArg, (cl_object, uint32_t, size_t, const void *))                            \
  F(cl_code, clEnqueueNDRangeKernel,                                                                 \
    (cl_object, cl_object, uint32_t, const size_t *, const size_t *, const size_t *, uint32_t,       \
     const cl_object *, cl_object *))                                                                \
  F(cl_code, clEnqueueWriteBuffer,                                                                   \
    (cl_object, cl_object, uint32_t, size_t, size_t, const void *, uint32_t, const cl_object *, cl_object *)) \
  F(cl_code, clEnqueueReadBuffer,                                                                    \
    (cl_object, cl_object, uint32_t, size_t, size_t, void *, uint32_t, const cl_object *, cl_object *)) \
  F(cl_code, clEnqueueCopyBuffer,                                                                    \
    (cl_object, cl_object, cl_object, size_t, size_t, size_t, uint32_t, const cl_object *, cl_object *)) \
  F(cl_code, clEnqueueMarkerWithWaitList, (cl_object, uint32_t, const cl_object *, cl_object *))     \
  F(cl_code, clGetEventProfilingInfo, (cl_object, uint32_t, size_t, void *, size_t *))               \
  F(cl_code, clReleaseEvent, (cl_object))                                                            \
  F(cl_code, clFlush, (cl_object))                                                                   \
  F(cl_code, clFinish, (cl_object))

#define OPENCL_DECLARE(result, name, parameters) extern result(*name) parameters;
OPENCL_FUNCTIONS(OPENCL_DECLARE)
#undef OPENCL_DECLARE

int opencl_load(const char **why); /* 0 once all functions are there; else why says what is not */
const char *opencl_error_name(cl_code code);

#endif
