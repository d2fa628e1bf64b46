/* Finding OpenCL: the system's library of it, by name. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* setenv with -std=c11 */
#endif
#include "opencl_driver.h"

#include <stdlib.h>

#if defined(_WIN32)
#include <windows.h>
#define OPEN(name) ((void *)LoadLibraryA(name))
#define FIND(library, name) ((void *)(uintptr_t)GetProcAddress((HMODULE)(library), name))
static const char *const names[] = {"OpenCL.dll"};
#else
#include <dlfcn.h>
#define OPEN(name) dlopen(name, RTLD_NOW | RTLD_LOCAL)
#define FIND(library, name) dlsym(library, name)
#if defined(__APPLE__)
static const char *const names[] = {"/System/Library/Frameworks/OpenCL.framework/OpenCL"};
#else
static const char *const names[] = {"libOpenCL.so.1", "libOpenCL.so"};
#endif
#endif

#define OPENCL_DEFINE(result, name, parameters) result(*name) parameters;
OPENCL_FUNCTIONS(OPENCL_DEFINE)

/* PoCL 3.1's loops over work-items miscompute kernels with barriers whose last group is partly idle;
 * its replication of work-items does not. Other drivers do not read this. */
static void prefer_replicated_work_items(void) {
#if defined(_WIN32)
  if (!getenv("POCL_WORK_GROUP_METHOD")) _putenv_s("POCL_WORK_GROUP_METHOD", "workitemrepl");
#else
  setenv("POCL_WORK_GROUP_METHOD", "workitemrepl", 0);
#endif
}

int opencl_load(const char **why) {
  prefer_replicated_work_items();
  void *library = NULL;
  for (size_t i = 0; !library && i < sizeof names / sizeof *names; i++) library = OPEN(names[i]);
  if (!library) {
    *why = "the system has no libOpenCL.so.1; install the driver of the device, or PoCL";
    return -1;
  }
#define OPENCL_FIND(result, name, parameters)                 \
  *(void **)&name = FIND(library, #name);                     \
  if (!name) {                                                \
    *why = "the system's OpenCL library lacks " #name;        \
    return -1;                                                \
  }
  OPENCL_FUNCTIONS(OPENCL_FIND)
  return 0;
}

const char *opencl_error_name(cl_code code) {
  switch (code) {
    case -1: return "there is no such device";
    case -2: return "the device is not available";
    case -4: return "the device has no memory left for it";
    case -5: return "the device has not the resources for it (registers, local memory)";
    case -6: return "the machine has no memory left for it";
    case -11: return "the program does not compile";
    case -36: return "the queue is not valid: an earlier kernel has ended it";
    case -38: return "the memory is not valid";
    case -46: return "the program has no such kernel";
    case -52: return "not all arguments are set";
    case -54: return "the device takes no groups of so many threads";
    case -55: return "the device takes no groups of such a shape";
    case -61: return "the device has no buffers of that size";
    default: return "the driver refuses";
  }
}
