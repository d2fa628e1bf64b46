/* The operating system's side of platform.h. */
#include "platform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)

#include <malloc.h>

int platform_thread_start(platform_thread *thread, platform_thread_main main, void *data) {
  *thread = CreateThread(NULL, 0, main, data, 0, NULL);
  return *thread ? 0 : -1;
}

void platform_thread_join(platform_thread thread) {
  WaitForSingleObject(thread, INFINITE);
  CloseHandle(thread);
}

void platform_yield(void) { SwitchToThread(); }

int platform_cpu_count(void) {
  DWORD_PTR process = 0, system = 0;
  int count = 0;
  if (GetProcessAffinityMask(GetCurrentProcess(), &process, &system))
    for (; process; process &= process - 1) count++;
  return count > 0 ? count : 1;
}

uint64_t platform_nanoseconds(void) {
  LARGE_INTEGER now, frequency;
  QueryPerformanceCounter(&now);
  QueryPerformanceFrequency(&frequency);
  return (uint64_t)((double)now.QuadPart * 1e9 / (double)frequency.QuadPart);
}

const char *platform_variable(const char *name) { return getenv(name); }

int platform_slot_create(platform_slot *slot, void(PLATFORM_SLOT_CALLBACK *destroy)(void *)) {
  *slot = FlsAlloc(destroy);
  return *slot == FLS_OUT_OF_INDEXES ? -1 : 0;
}

void *platform_slot_get(platform_slot slot) { return FlsGetValue(slot); }

int platform_slot_set(platform_slot slot, void *value) { return FlsSetValue(slot, value) ? 0 : -1; }

void platform_on_fork(void (*before)(void), void (*parent)(void), void (*child)(void)) {
  (void)before;
  (void)parent;
  (void)child;
}

void *platform_library_open(const char *path, char *error, size_t error_size) {
  /* In folders that the process has added too, as Python does for extension modules. */
  void *handle = (void *)LoadLibraryExA(path, NULL, LOAD_LIBRARY_SEARCH_DEFAULT_DIRS);
  if (!handle) handle = (void *)LoadLibraryA(path);
  if (!handle)
    FormatMessageA(FORMAT_MESSAGE_FROM_SYSTEM | FORMAT_MESSAGE_IGNORE_INSERTS, NULL, GetLastError(), 0,
                   error, (DWORD)error_size, NULL);
  return handle;
}

void platform_library_close(void *handle) { FreeLibrary((HMODULE)handle); }

void *platform_library_find(const char *path) {
  HMODULE handle = NULL;
  return GetModuleHandleExA(0, path, &handle) ? (void *)handle : NULL;
}

void *platform_library_symbol(void *handle, const char *name) {
  return (void *)(uintptr_t)GetProcAddress((HMODULE)handle, name);
}

void *platform_process_symbol(const char *name) {
  HMODULE foreign = GetModuleHandleA("tvm_ffi.dll");
  return foreign ? (void *)(uintptr_t)GetProcAddress(foreign, name) : NULL;
}

uint64_t platform_readable(const void *at) {
  MEMORY_BASIC_INFORMATION info;
  if (!VirtualQuery(at, &info, sizeof info)) return 0;
  return (uint64_t)((char *)info.BaseAddress + info.RegionSize - (const char *)at);
}

void *platform_allocate(size_t bytes, size_t alignment) {
  return _aligned_malloc(bytes ? bytes : 1, alignment < 16 ? 16 : alignment);
}

void platform_release(void *block) { _aligned_free(block); }

#elif defined(__wasm__)

int platform_thread_start(platform_thread *thread, platform_thread_main main, void *data) {
  (void)thread;
  (void)main;
  (void)data;
  return -1;
}

void platform_thread_join(platform_thread thread) { (void)thread; }

void platform_yield(void) {}

int platform_cpu_count(void) { return 1; }

uint64_t platform_nanoseconds(void) { return 0; } /* a clock would be an import */

const char *platform_variable(const char *name) {
  (void)name;
  return NULL;
}

int platform_slot_create(platform_slot *slot, void (*destroy)(void *)) {
  (void)destroy; /* the thread ends with the module */
  *slot = calloc(1, sizeof **slot);
  return *slot ? 0 : -1;
}

void *platform_slot_get(platform_slot slot) { return *slot; }

int platform_slot_set(platform_slot slot, void *value) {
  *slot = value;
  return 0;
}

void platform_on_fork(void (*before)(void), void (*parent)(void), void (*child)(void)) {
  (void)before;
  (void)parent;
  (void)child;
}

void *platform_library_open(const char *path, char *error, size_t error_size) {
  (void)path;
  snprintf(error, error_size, "a WebAssembly module loads no files; link the model into it");
  return NULL;
}

void platform_library_close(void *handle) { (void)handle; }

void *platform_library_find(const char *path) {
  (void)path;
  return NULL;
}

void *platform_library_symbol(void *handle, const char *name) {
  (void)handle;
  (void)name;
  return NULL;
}

void *platform_process_symbol(const char *name) {
  (void)name;
  return NULL;
}

uint64_t platform_readable(const void *at) {
  return (uint64_t)__builtin_wasm_memory_size(0) * 65536 - (uintptr_t)at;
}

void *platform_allocate(size_t bytes, size_t alignment) {
  size_t unit = alignment < 16 ? 16 : alignment;
  if (bytes > SIZE_MAX - unit) return NULL;
  return aligned_alloc(unit, (bytes / unit + 1) * unit);
}

void platform_release(void *block) { free(block); }

#else

#include <dlfcn.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

int platform_thread_start(platform_thread *thread, platform_thread_main main, void *data) {
  static const int own_faults[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGABRT};
  sigset_t others, before;
  sigfillset(&others); /* other signals are for the threads that the program made itself */
  for (size_t i = 0; i < sizeof own_faults / sizeof *own_faults; i++)
    sigdelset(&others, own_faults[i]);
  pthread_sigmask(SIG_SETMASK, &others, &before);
  int failed = pthread_create(thread, NULL, main, data);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return failed ? -1 : 0;
}

void platform_thread_join(platform_thread thread) { pthread_join(thread, NULL); }

void platform_yield(void) { sched_yield(); }

int platform_cpu_count(void) {
#if defined(__linux__)
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof allowed, &allowed) == 0 && CPU_COUNT(&allowed) > 0)
    return CPU_COUNT(&allowed);
#endif
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? (int)online : 1;
}

uint64_t platform_nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

const char *platform_variable(const char *name) { return getenv(name); }

int platform_slot_create(platform_slot *slot, void (*destroy)(void *)) {
  return pthread_key_create(slot, destroy) ? -1 : 0;
}

void *platform_slot_get(platform_slot slot) { return pthread_getspecific(slot); }

int platform_slot_set(platform_slot slot, void *value) {
  return pthread_setspecific(slot, value) ? -1 : 0;
}

void platform_on_fork(void (*before)(void), void (*parent)(void), void (*child)(void)) {
  pthread_atfork(before, parent, child);
}

void *platform_library_open(const char *path, char *error, size_t error_size) {
  void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!handle) {
    const char *words = dlerror();
    snprintf(error, error_size, "%s", words ? words : "unknown reason");
  }
  return handle;
}

void platform_library_close(void *handle) { dlclose(handle); }

void *platform_library_find(const char *path) { return dlopen(path, RTLD_LAZY | RTLD_NOLOAD); }

void *platform_library_symbol(void *handle, const char *name) { return dlsym(handle, name); }

void *platform_process_symbol(const char *name) { return dlsym(RTLD_DEFAULT, name); }

#if defined(__linux__)

#include <link.h>

typedef struct {
  uintptr_t at;
  uint64_t readable;
} segment_search;

static int search_segments(struct dl_phdr_info *info, size_t size, void *data) {
  segment_search *s = data;
  (void)size;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    uintptr_t begin = (uintptr_t)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
    uintptr_t end = begin + (uintptr_t)info->dlpi_phdr[i].p_memsz;
    if (info->dlpi_phdr[i].p_type != PT_LOAD || s->at < begin || s->at >= end) continue;
    s->readable = end - s->at;
    return 1;
  }
  return 0;
}

/* Memory that no library owns: what the kernel says. */
static uint64_t mapped_after(uintptr_t at) {
  unsigned long long begin, end = 0, found = 0;
  char rights[8], line[512];
  FILE *maps = fopen("/proc/self/maps", "r");
  if (!maps) return UINT64_MAX;
  while (fgets(line, sizeof line, maps)) {
    if (sscanf(line, "%llx-%llx %7s", &begin, &end, rights) != 3) continue; /* the rest of a long one */
    if (found ? begin != found : at < begin || at >= end) continue;
    if (rights[0] == 'r') found = end;
  }
  fclose(maps);
  return found ? found - at : 0;
}

uint64_t platform_readable(const void *at) {
  segment_search search = {(uintptr_t)at, 0};
  dl_iterate_phdr(search_segments, &search);
  return search.readable ? search.readable : mapped_after((uintptr_t)at);
}

#else

uint64_t platform_readable(const void *at) {
  (void)at;
  return UINT64_MAX;
}

#endif

void *platform_allocate(size_t bytes, size_t alignment) {
  if (alignment <= sizeof(void *) * 2) return malloc(bytes ? bytes : 1);
  void *block = NULL;
  return posix_memalign(&block, alignment, bytes ? bytes : 1) ? NULL : block;
}

void platform_release(void *block) { free(block); }

#endif
