/*
 * What compiled code may ask of its host.
 *
 * Kernels ask for the same workspaces at every call. Fresh memory costs a page fault for every page,
 * which can be more than the kernel itself, so released blocks are kept for a while. A thread gets
 * the block that it had before where it can: what another one wrote lies in that one's cache.
 */
#include "internal.h"

enum { KEPT_BLOCKS = 16, HEADER = 64 };
#define KEPT_BYTES ((size_t)64 << 20)

typedef struct {
  size_t size;       /* without the header */
  const void *owner; /* of the thread that released it */
} workspace;

static _Thread_local char this_thread; /* its address names the thread */

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
  size_t best = kept_count;
  for (size_t i = 0; i < kept_count; i++) {
    if (kept[i]->size < bytes || kept[i]->size / 2 > bytes) continue;
    if (best == kept_count) best = i;
    if (kept[i]->owner != &this_thread) continue;
    best = i;
    break;
  }
  workspace *found = best < kept_count ? take_out(best) : NULL;
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
  w->owner = &this_thread;
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

/* ---- functions by name ---- */

/* A place remembers what it found for a module, whose number no other module will ever have. */
static int find_for(sterna_call_site *site, sterna_module *module, sterna_function **out) {
  _Atomic uint64_t *known_for = (_Atomic uint64_t *)&site->module_id;
  _Atomic(sterna_function *) *known = (_Atomic(sterna_function *) *)&site->function;
  uint64_t id = module_id(module);
  if (atomic_load_explicit(known_for, memory_order_acquire) == id) {
    *out = atomic_load_explicit(known, memory_order_relaxed);
    return 0;
  }
  if (module_look_up(module, site->name, out)) return -1;
  if (*out) {
    atomic_store_explicit(known, *out, memory_order_relaxed);
    atomic_store_explicit(known_for, id, memory_order_release);
  }
  return 0;
}

static int fit_result(const sterna_call_site *site, int32_t wanted, sterna_any *ret) {
  int32_t got = ret->type_index;
  int whole = got == STERNA_INT || got == STERNA_BOOL;
  if (got == wanted || (wanted == STERNA_INT && whole)) return 0;
  if (wanted == STERNA_FLOAT && whole) {
    *ret = sterna_any_float((double)ret->v_int64);
    return 0;
  }
  if (wanted == STERNA_POINTER && got == STERNA_NONE) {
    *ret = sterna_any_none();
    return 0;
  }
  sterna_any_release(ret);
  if (wanted == STERNA_NONE) return 0;
  return sterna_set_errorf("TypeError", "%s calls '%s', which returned %s instead of %s", site->caller,
                           site->name, sterna_type_name(got), sterna_type_name(wanted));
}

static int host_call(sterna_call_site *site, const sterna_any *args, int32_t n, int32_t wanted,
                     sterna_any *ret) {
  sterna_module *module = site->library_ctx ? *site->library_ctx : NULL;
  sterna_function *function, *counted = NULL; /* what no module remembers may end meanwhile */
  int failed = module ? find_for(site, module, &function) : sterna_get_global(site->name, &counted);
  if (failed) return -1;
  if (!module) function = counted;
  if (!function)
    return sterna_set_errorf("ValueError",
                             "%s calls '%s', but no function of that name is registered or among the "
                             "imports of its module",
                             site->caller, site->name);
  *ret = sterna_any_none();
  failed = function->call(function, args, n, ret);
  sterna_release(counted);
  return failed ? -1 : fit_result(site, wanted, ret);
}

static const sterna_host host_table = {sizeof(sterna_host), sterna_set_error, sterna_parallel,
                                       sterna_num_threads,  host_allocate,    host_release,
                                       host_call};

const sterna_host *sterna_get_host(void) { return &host_table; }
