/*
 * The workspace allocator: a cache of the memory that kernels work in, per thread.
 *
 * Kernels ask for the same workspaces at every call. Fresh memory costs a page fault for every page,
 * which can be more than the kernel itself, so released blocks are kept for a while. Each thread has
 * a shelf where it looks first: what another one wrote lies in that one's cache, and many threads that
 * each ask for two sizes must not drive out each other's.
 */
#include "internal.h"

enum { SHELVES = 32, SHELF_BLOCKS = 16, HEADER = 64 };
#define LARGEST_KEPT ((size_t)64 << 20)
#define KEPT_OF_A_THREAD ((size_t)4 << 20)

typedef struct {
  size_t size; /* without the header */
} workspace;

typedef struct {
  platform_mutex mutex;
  size_t count;
  workspace *blocks[SHELF_BLOCKS]; /* the one released last comes first */
} shelf;

#define EMPTY_SHELF {PLATFORM_MUTEX_INIT, 0, {NULL}}
#define FOUR_SHELVES EMPTY_SHELF, EMPTY_SHELF, EMPTY_SHELF, EMPTY_SHELF
#define SIXTEEN_SHELVES FOUR_SHELVES, FOUR_SHELVES, FOUR_SHELVES, FOUR_SHELVES
static shelf shelves[SHELVES] = {SIXTEEN_SHELVES, SIXTEEN_SHELVES};

static atomic_size_t shelved_bytes;
static atomic_uint threads_seen, next_to_clear;
static _Thread_local unsigned thread_number; /* from 1 on */

static shelf *own_shelf(void) {
  if (!thread_number) thread_number = atomic_fetch_add(&threads_seen, 1) + 1;
  return &shelves[thread_number % SHELVES];
}

static size_t most_bytes(void) {
  size_t threads = atomic_load_explicit(&threads_seen, memory_order_relaxed);
  return LARGEST_KEPT + (threads < SHELVES ? threads : SHELVES) * KEPT_OF_A_THREAD;
}

static workspace *take_out(shelf *from, size_t index) {
  workspace *found = from->blocks[index];
  from->count--;
  for (size_t i = index; i < from->count; i++) from->blocks[i] = from->blocks[i + 1];
  atomic_fetch_sub(&shelved_bytes, found->size);
  return found;
}

/* A block that is large enough and not wastefully so, or null. */
static workspace *take_fitting(shelf *from, size_t bytes) {
  workspace *found = NULL;
  platform_lock(&from->mutex);
  for (size_t i = 0; i < from->count && !found; i++) {
    size_t size = from->blocks[i]->size;
    if (size >= bytes && size / 2 <= bytes) found = take_out(from, i);
  }
  platform_unlock(&from->mutex);
  return found;
}

static workspace *take_oldest(shelf *from) {
  platform_lock(&from->mutex);
  workspace *found = from->count ? take_out(from, from->count - 1) : NULL;
  platform_unlock(&from->mutex);
  return found;
}

void *workspace_allocate(uint64_t bytes, uint64_t alignment) {
  if (bytes > SIZE_MAX - HEADER || alignment > HEADER) return NULL;
  shelf *own = own_shelf();
  workspace *w = take_fitting(own, (size_t)bytes);
  for (size_t i = 0; i < SHELVES && !w; i++)
    if (&shelves[i] != own) w = take_fitting(&shelves[i], (size_t)bytes);
  if (!w) {
    w = memory_try_allocate((size_t)bytes + HEADER, HEADER);
    if (!w) return NULL;
    w->size = (size_t)bytes;
  }
  return (char *)w + HEADER;
}

/* All threads' shelves lose in turn, so that those of threads that have ended empty too. */
static void keep_within_limits(void) {
  for (size_t i = 0; i < SHELVES && atomic_load(&shelved_bytes) > most_bytes(); i++) {
    workspace *dropped = take_oldest(&shelves[atomic_fetch_add(&next_to_clear, 1) % SHELVES]);
    if (dropped) memory_release(dropped);
  }
}

void workspace_release(void *block) {
  if (!block) return;
  workspace *w = (workspace *)((char *)block - HEADER), *dropped = NULL;
  if (w->size > LARGEST_KEPT) {
    memory_release(w);
    return;
  }
  shelf *own = own_shelf();
  platform_lock(&own->mutex);
  if (own->count == SHELF_BLOCKS) dropped = take_out(own, own->count - 1);
  for (size_t i = own->count; i > 0; i--) own->blocks[i] = own->blocks[i - 1];
  own->blocks[0] = w;
  own->count++;
  atomic_fetch_add(&shelved_bytes, w->size);
  platform_unlock(&own->mutex);
  if (dropped) memory_release(dropped);
  keep_within_limits();
}

void workspace_shutdown(void) {
  for (size_t i = 0; i < SHELVES; i++)
    for (workspace *w = take_oldest(&shelves[i]); w; w = take_oldest(&shelves[i])) memory_release(w);
}

void workspace_before_fork(void) {
  for (size_t i = 0; i < SHELVES; i++) platform_lock(&shelves[i].mutex);
}

void workspace_after_fork(void) {
  for (size_t i = SHELVES; i > 0; i--) platform_unlock(&shelves[i - 1].mutex);
}
