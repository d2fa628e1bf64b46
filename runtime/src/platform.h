/* What differs between operating systems: threads, thread-local slots, shared libraries, the CPU count. */
#ifndef STERNA_PLATFORM_H_
#define STERNA_PLATFORM_H_

#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* sched_getaffinity, RTLD_DEFAULT, st_mtim */
#endif

/* In the one-file build nothing internal is seen from outside. */
#if defined(STERNA_ONE_FILE)
#define INTERNAL static
#else
#define INTERNAL
#endif

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)

#define WIN32_LEAN_AND_MEAN
#include <windows.h>

typedef SRWLOCK platform_mutex;
#define PLATFORM_MUTEX_INIT SRWLOCK_INIT
#define platform_mutex_init(m) InitializeSRWLock(m)
#define platform_mutex_destroy(m) ((void)(m))
#define platform_lock(m) AcquireSRWLockExclusive(m)
#define platform_unlock(m) ReleaseSRWLockExclusive(m)

typedef CONDITION_VARIABLE platform_cond;
#define PLATFORM_COND_INIT CONDITION_VARIABLE_INIT
#define platform_cond_init(c) InitializeConditionVariable(c)
#define platform_wait(c, m) SleepConditionVariableSRW(c, m, INFINITE, 0)
#define platform_wake_one(c) WakeConditionVariable(c)
#define platform_wake_all(c) WakeAllConditionVariable(c)

typedef HANDLE platform_thread;
#define PLATFORM_THREAD_RESULT DWORD WINAPI
typedef LPTHREAD_START_ROUTINE platform_thread_main;

typedef DWORD platform_slot;
#define PLATFORM_SLOT_CALLBACK WINAPI

#elif defined(__wasm__)

/* A WebAssembly module: one thread, no files, no environment. */
typedef char platform_mutex;
#define PLATFORM_MUTEX_INIT 0
#define platform_mutex_init(m) ((void)(m))
#define platform_mutex_destroy(m) ((void)(m))
#define platform_lock(m) ((void)(m))
#define platform_unlock(m) ((void)(m))

typedef char platform_cond;
#define PLATFORM_COND_INIT 0
#define platform_cond_init(c) ((void)(c))
#define platform_wait(c, m) ((void)(c), (void)(m))
#define platform_wake_one(c) ((void)(c))
#define platform_wake_all(c) ((void)(c))

typedef char platform_thread;
#define PLATFORM_THREAD_RESULT void *
typedef void *(*platform_thread_main)(void *);

typedef void **platform_slot;
#define PLATFORM_SLOT_CALLBACK

#else

#include <pthread.h>
#include <sched.h>

typedef pthread_mutex_t platform_mutex;
#define PLATFORM_MUTEX_INIT PTHREAD_MUTEX_INITIALIZER
#define platform_mutex_init(m) pthread_mutex_init(m, NULL)
#define platform_mutex_destroy(m) pthread_mutex_destroy(m)
#define platform_lock(m) pthread_mutex_lock(m)
#define platform_unlock(m) pthread_mutex_unlock(m)

typedef pthread_cond_t platform_cond;
#define PLATFORM_COND_INIT PTHREAD_COND_INITIALIZER
#define platform_cond_init(c) pthread_cond_init(c, NULL)
#define platform_wait(c, m) pthread_cond_wait(c, m)
#define platform_wake_one(c) pthread_cond_signal(c)
#define platform_wake_all(c) pthread_cond_broadcast(c)

typedef pthread_t platform_thread;
#define PLATFORM_THREAD_RESULT void *
typedef void *(*platform_thread_main)(void *);

typedef pthread_key_t platform_slot;
#define PLATFORM_SLOT_CALLBACK

#endif

INTERNAL int platform_thread_start(platform_thread *thread, platform_thread_main main, void *data);
INTERNAL void platform_thread_join(platform_thread thread);
INTERNAL void platform_yield(void);
INTERNAL int platform_cpu_count(void);
INTERNAL uint64_t platform_nanoseconds(void);
INTERNAL const char *platform_variable(const char *name); /* of the environment, or null */

/* A pointer per thread; destroy is called with it when its thread ends. */
INTERNAL int platform_slot_create(platform_slot *slot, void(PLATFORM_SLOT_CALLBACK *destroy)(void *));
INTERNAL void *platform_slot_get(platform_slot slot);
INTERNAL int platform_slot_set(platform_slot slot, void *value);

/* In the child of a fork only the forking thread lives on; child is called there. */
INTERNAL void platform_on_fork(void (*before)(void), void (*parent)(void), void (*child)(void));

/* Shared libraries. error gets the system's own words. */
INTERNAL void *platform_library_open(const char *path, char *error, size_t error_size);
INTERNAL void platform_library_close(void *handle);
INTERNAL void *platform_library_find(const char *path); /* opens it if it is loaded, else null */
INTERNAL void *platform_library_symbol(void *handle, const char *name);
INTERNAL void *platform_process_symbol(const char *name); /* among everything loaded for all to see */

/* How many bytes from here on can be read, as far as the system tells. */
INTERNAL uint64_t platform_readable(const void *at);

INTERNAL void *platform_allocate(size_t bytes, size_t alignment);
INTERNAL void platform_release(void *block);

/* Tells the core that this is a spin loop. */
static inline void platform_pause(void) {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ __volatile__("isb"); /* yield does nothing on most of them; this waits like a pause */
#elif defined(__arm__)
  __asm__ __volatile__("yield");
#endif
}

#endif
