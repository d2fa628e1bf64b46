/*
 * Linked into sanitized programs: a process that has freed all it allocated itself has no leak,
 * and need not be searched for one. On AArch64 a search takes seconds of every process, for the
 * sanitizer walks all of the address space.
 *
 * What was allocated before main, or before a fork, is not of the process that ends.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stddef.h>
#include <stdint.h>

#define SLOTS (1u << 16)

static uintptr_t blocks[SLOTS]; /* each alive one in its slot or behind it, negated: no reference */
static unsigned alive, uncounted;
static char taken;

#ifdef __cplusplus
extern "C" {
#endif
void __sanitizer_malloc_hook(const volatile void *block, size_t size);
void __sanitizer_free_hook(const volatile void *block);
int __lsan_is_turned_off(void);
#ifdef __cplusplus
}
#endif

static void take(void) {
  while (__atomic_test_and_set(&taken, __ATOMIC_ACQUIRE)) sched_yield();
}

static void give(void) { __atomic_clear(&taken, __ATOMIC_RELEASE); }

static unsigned slot_of(uintptr_t key) {
  return (unsigned)((uint64_t)key * UINT64_C(0x9e3779b97f4a7c15) >> 48) % SLOTS;
}

void __sanitizer_malloc_hook(const volatile void *block, size_t size) {
  uintptr_t key = ~(uintptr_t)block;
  unsigned at = slot_of(key);
  (void)size;
  take();
  if (alive >= SLOTS / 2) {
    uncounted = 1;
  } else {
    while (blocks[at]) at = (at + 1) % SLOTS;
    blocks[at] = key;
    alive++;
  }
  give();
}

void __sanitizer_free_hook(const volatile void *block) {
  uintptr_t key = ~(uintptr_t)block;
  unsigned at = slot_of(key);
  take();
  while (blocks[at] && blocks[at] != key) at = (at + 1) % SLOTS;
  if (blocks[at]) {
    alive--;
    blocks[at] = 0;
    /* What lies behind its own slot moves up, so that it is found again. */
    for (unsigned next = (at + 1) % SLOTS; blocks[next]; next = (next + 1) % SLOTS) {
      if ((next - slot_of(blocks[next])) % SLOTS < (next - at) % SLOTS) continue;
      blocks[at] = blocks[next];
      blocks[next] = 0;
      at = next;
    }
  }
  give();
}

static void forget(void) { /* the lock is taken */
  for (unsigned i = 0; i < SLOTS; i++) blocks[i] = 0;
  alive = uncounted = 0;
  give();
}

__attribute__((constructor)) static void begin(void) {
  pthread_atfork(take, give, forget);
  take();
  forget();
}

int __lsan_is_turned_off(void) {
  for (int i = 0; i < 2; i++) dlerror(); /* gives the system's last message, then frees it */
  return !alive && !uncounted;
}
