/* The allocator hook: the one door to memory. */
#include "internal.h"

static void *default_allocate(void *self, size_t bytes, size_t alignment) {
  (void)self;
  return platform_allocate(bytes, alignment);
}

static void default_release(void *self, void *block) {
  (void)self;
  platform_release(block);
}

static sterna_allocator allocator = {NULL, default_allocate, default_release};
static atomic_int in_use;

int sterna_set_allocator(const sterna_allocator *a) {
  if (!a || !a->allocate || !a->release)
    return sterna_set_error("ValueError", "an allocator needs both allocate and release");
  if (atomic_exchange(&in_use, 1))
    return sterna_set_error("RuntimeError",
                            "the allocator must be set before the runtime is first used");
  allocator = *a;
  return 0;
}

void *memory_try_allocate(size_t bytes, size_t alignment) {
  if (!atomic_load_explicit(&in_use, memory_order_relaxed)) atomic_store(&in_use, 1);
  /* Allocators may answer null to no bytes, and some take no alignment below a pointer's. */
  return allocator.allocate(allocator.self, bytes ? bytes : 1, alignment < 16 ? 16 : alignment);
}

void *memory_allocate(size_t bytes, size_t alignment) {
  void *block = memory_try_allocate(bytes, alignment);
  if (!block) error_out_of_memory();
  return block;
}

void memory_release(void *block) {
  if (block) allocator.release(allocator.self, block);
}
