/*
 * What compiled code may ask of its host.
 *
 * Kernels ask for the same workspaces at every call. Fresh memory costs a page fault for every page,
 * which can be more than the kernel itself, so released blocks are kept for a while.
 */
#include "internal.h"

enum { KEPT_BLOCKS = 16, HEADER = 64 };
#define KEPT_BYTES ((size_t)64 << 20)

typedef struct {
  size_t size; /* without the header */
} workspace;

static workspace *kept[KEPT_BLOCKS]; /* the one released last comes first */
static size_t kept_count, kept_bytes;
static platform_mutex host_mutex = PLATFORM_MUTEX_INIT;

static workspace *take_out(size_t index) {
  workspace *found = kept[index];
  kept_bytes -= found->size;
  kept_count--;
  for (size_t i = index; i < kept_count; i++) kept[i] = kept[i + 1];
  return found;
}

/* A kept block that is large enough and not wastefully so. */
static workspace *find_kept(size_t bytes) {
  platform_lock(&host_mutex);
  workspace *found = NULL;
  for (size_t i = 0; i < kept_count && !found; i++)
    if (kept[i]->size >= bytes && kept[i]->size / 2 <= bytes) found = take_out(i);
  platform_unlock(&host_mutex);
  return found;
}

static void *host_allocate(uint64_t bytes, uint64_t alignment) {
  if (bytes > SIZE_MAX - HEADER || alignment > HEADER) return NULL;
  workspace *w = find_kept((size_t)bytes);
  if (!w) {
    w = memory_try_allocate((size_t)bytes + HEADER, HEADER);
    if (!w) return NULL;
    w->size = (size_t)bytes;
  }
  return (char *)w + HEADER;
}

static void host_release(void *block) {
  if (!block) return;
  workspace *w = (workspace *)((char *)block - HEADER), *dropped[KEPT_BLOCKS];
  size_t drops = 0;
  if (w->size > KEPT_BYTES) {
    memory_release(w);
    return;
  }
  platform_lock(&host_mutex);
  while (kept_count == KEPT_BLOCKS || (kept_count && kept_bytes + w->size > KEPT_BYTES))
    dropped[drops++] = take_out(kept_count - 1);
  for (size_t i = kept_count; i > 0; i--) kept[i] = kept[i - 1];
  kept[0] = w;
  kept_count++;
  kept_bytes += w->size;
  platform_unlock(&host_mutex);
  while (drops) memory_release(dropped[--drops]);
}

void host_shutdown(void) {
  platform_lock(&host_mutex);
  while (kept_count) memory_release(take_out(kept_count - 1));
  platform_unlock(&host_mutex);
}

void host_before_fork(void) { platform_lock(&host_mutex); }

void host_after_fork(void) { platform_unlock(&host_mutex); }

static const sterna_host host_table = {sizeof(sterna_host), sterna_set_error, sterna_parallel,
                                       sterna_num_threads,  host_allocate,    host_release};

const sterna_host *sterna_get_host(void) { return &host_table; }
