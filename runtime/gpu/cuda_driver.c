/* Finding CUDA: the driver's library, by name. */
#include "cuda_driver.h"

#include <stdio.h>

#if defined(_WIN32)
#include <windows.h>
#define OPEN(name) ((void *)LoadLibraryA(name))
#define FIND(library, name) ((void *)(uintptr_t)GetProcAddress((HMODULE)(library), name))
#define LIBRARY "nvcuda.dll"
#else
#include <dlfcn.h>
#define OPEN(name) dlopen(name, RTLD_NOW | RTLD_LOCAL)
#define FIND(library, name) dlsym(library, name)
#define LIBRARY "libcuda.so.1"
#endif

#define CUDA_DEFINE(name, parameters) cu_code(*name) parameters;
CUDA_FUNCTIONS(CUDA_DEFINE)
CUDA_NEWER_FUNCTIONS(CUDA_DEFINE)

int cuda_load(const char **why) {
  void *library = OPEN(LIBRARY);
  if (!library) {
    *why = "the system has no " LIBRARY "; install NVIDIA's driver";
    return -1;
  }
#define CUDA_FIND(name, parameters)                                                     \
  *(void **)&name = FIND(library, #name);                                               \
  if (!name) {                                                                          \
    *why = "the driver's " LIBRARY " lacks " #name "; install a newer driver of NVIDIA"; \
    return -1;                                                                          \
  }
#define CUDA_FIND_NEWER(name, parameters) *(void **)&name = FIND(library, #name);
  CUDA_FUNCTIONS(CUDA_FIND)
  CUDA_NEWER_FUNCTIONS(CUDA_FIND_NEWER)
  return 0;
}

const char *cuda_said(cu_code code, char *buffer) {
  const char *name = NULL, *text = NULL;
  cuGetErrorName(code, &name);
  cuGetErrorString(code, &text);
  snprintf(buffer, CUDA_SAID, "%s (%d): %s", name ? name : "an unknown error", (int)code,
           text ? text : "the driver says nothing more");
  return buffer;
}

int cuda_is_sticky(cu_code code) {
  switch (code) {
    case 214: /* uncorrectable ECC error */
    case 220: /* contained */
    case 700: /* illegal address */
    case 702: /* launch timeout */
    case 709: /* the context is destroyed */
    case 710: /* a device-side assertion */
    case 714: /* stack error */
    case 715: /* illegal instruction */
    case 716: /* misaligned address */
    case 717: /* invalid address space */
    case 718: /* invalid program counter */
    case 719: /* the launch failed */
      return 1;
    default: return 0;
  }
}
