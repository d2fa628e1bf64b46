/* What compiled code may ask of its host. */
#include "internal.h"

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
                                       threads_of_loops,    workspace_allocate,
                                       workspace_release,   host_call};

const sterna_host *sterna_get_host(void) { return &host_table; }
