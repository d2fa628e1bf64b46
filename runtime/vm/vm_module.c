/* A program of the virtual machine as a module: its functions are called, its values looked into. */
#include "vm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int (*vm_call)(sterna_module *module, vm_program *p, const sterna_any *args, int32_t n, sterna_any *ret);

/* A block's function, or what tells its extents. Threads that look at once keep what the first one found:
 * a lock would be held while a module of the host waits for the host's own. */
static int find_part(sterna_module *module, const vm_block *b, const char *suffix, _Atomic(sterna_function *) *out) {
  char name[600];
  sterna_function *found, *before = NULL;
  if (atomic_load(out)) return 0;
  if (snprintf(name, sizeof name, "%s%s", b->name, suffix) >= (int)sizeof name)
    return sterna_set_error("ValueError", "the name of a block is too long");
  if (sterna_module_get_function(module, name, 1, &found)) return -1;
  if (!found)
    return sterna_set_errorf("ValueError", "the program's module imports none with a function '%.100s'", name);
  if (!atomic_compare_exchange_strong(out, &before, found)) sterna_release(found);
  return 0;
}

/* A constant of the host where the blocks read it. */
static int bring(sterna_ndarray **constant, DLDevice device) {
  const DLTensor *held = &(*constant)->tensor;
  sterna_ndarray *made;
  if (held->device.device_type == device.device_type && held->device.device_id == device.device_id) return 0;
  if (sterna_ndarray_empty(held->shape, held->ndim, held->dtype, device, &made)) return -1;
  if (sterna_tensor_copy(held, &made->tensor)) {
    sterna_release(made);
    return -1;
  }
  sterna_release(*constant);
  *constant = made;
  return 0;
}

/* One thread at a time, since each constant is replaced. */
static int bring_all(vm_program *p) {
  int failed = 0;
  while (atomic_flag_test_and_set(&p->moves_constants)) {
  }
  for (word i = 0; i < p->constant_count && !failed; i++) failed = bring(&p->constants[i], p->device);
  atomic_flag_clear(&p->moves_constants);
  return failed;
}

/* The blocks' functions are in the modules that the program's module imports. */
static int make_ready(sterna_module *module, vm_program *p) {
  if (atomic_load(&p->is_ready)) return 0;
  for (word i = 0; i < p->constant_count; i++)
    if (!p->constants[i])
      return sterna_set_errorf("ValueError", "constant p%lld of the program was not given", (long long)i);
  if (bring_all(p)) return -1;
  for (word i = 0; i < p->block_count; i++) {
    vm_block *b = &p->blocks[i];
    if (find_part(module, b, "", &b->function)) return -1;
    if (b->is_open && find_part(module, b, "_extents", &b->extents)) return -1;
  }
  atomic_store(&p->is_ready, 1);
  return 0;
}

/* (function's name, argument, ...) */
static int invoke(sterna_module *module, vm_program *p, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_bytes name;
  if (sterna_as_string(&args[0], &name) || make_ready(module, p)) return -1;
  for (word i = 0; i < p->function_count; i++) {
    const vm_function *f = &p->functions[i];
    if (strlen(f->name) != name.size || memcmp(f->name, name.data, name.size)) continue;
    if (n - 1 != f->params)
      return sterna_set_errorf("TypeError", "the function '%s' takes %lld values, not %d", f->name,
                               (long long)f->params, (int)n - 1);
    return vm_run(p, f, args + 1, ret);
  }
  return sterna_set_errorf("ValueError", "the program has no function '%.*s'", (int)name.size, name.data);
}

/* (tag, field, ...): a tuple, a list or a constructor's value */
static int make(sterna_module *module, vm_program *p, const sterna_any *args, int32_t n, sterna_any *ret) {
  int64_t tag;
  (void)module;
  (void)p;
  if (sterna_as_int(&args[0], &tag)) return -1;
  if (tag < VM_LIST || tag > INT32_MAX || tag == VM_CELL) return sterna_set_error("ValueError", "no value has this tag");
  return vm_make((int32_t)tag, args + 1, (uint32_t)(n - 1), ret);
}

/* (value): its tag, then its fields */
static int look(sterna_module *module, vm_program *p, const sterna_any *args, int32_t n, sterna_any *ret) {
  const vm_object *o = vm_need(&args[0], "a value of the virtual machine");
  (void)module;
  (void)p;
  (void)n;
  if (!o) return -1;
  sterna_any *all = malloc((o->count + 1) * sizeof *all);
  if (!all) return sterna_set_error("MemoryError", "there is no memory for a value's fields");
  all[0] = sterna_any_int(o->tag);
  if (o->count) memcpy(all + 1, o->fields, o->count * sizeof *all);
  int failed = sterna_list(all, (int64_t)o->count + 1, ret);
  free(all);
  return failed;
}

/* (number): a function's name, and those of its parameters; none behind the last function */
static int describe(sterna_module *module, vm_program *p, const sterna_any *args, int32_t n, sterna_any *ret) {
  int64_t number;
  (void)module;
  (void)n;
  if (sterna_as_int(&args[0], &number)) return -1;
  if (number < 0 || number >= p->function_count) return 0;
  const vm_function *f = &p->functions[number];
  sterna_any both[] = {sterna_any_c_string(f->name), sterna_any_c_string(f->names)};
  return sterna_list(both, 2, ret);
}

/* (most calls of a run or 0, most calls within each other) */
static int set_limits(sterna_module *module, vm_program *p, const sterna_any *args, int32_t n, sterna_any *ret) {
  int64_t steps, depth;
  (void)module;
  (void)n;
  (void)ret;
  if (sterna_as_int(&args[0], &steps) || sterna_as_int(&args[1], &depth)) return -1;
  if (steps < 0 || depth < 1) return sterna_set_error("ValueError", "limits are numbers of calls");
  atomic_store(&p->most_steps, steps);
  atomic_store(&p->most_depth, depth);
  return 0;
}

/* (device): where all tensors are to lie */
static int set_device(sterna_module *module, vm_program *p, const sterna_any *args, int32_t n, sterna_any *ret) {
  DLDevice device;
  (void)module;
  (void)n;
  (void)ret;
  if (sterna_as_device(&args[0], &device)) return -1;
  if (device.device_type == p->device.device_type && device.device_id == p->device.device_id) return 0;
  if (atomic_load(&p->is_ready))
    return sterna_set_error("RuntimeError", "the program has run on a device already; load it anew for another");
  p->device = device;
  return 0;
}

/* (whether runs are to stop) */
static int cancel(sterna_module *module, vm_program *p, const sterna_any *args, int32_t n, sterna_any *ret) {
  int64_t is_cancelled;
  (void)module;
  (void)n;
  (void)ret;
  if (sterna_as_int(&args[0], &is_cancelled)) return -1;
  atomic_store(&p->is_cancelled, is_cancelled != 0);
  return 0;
}

/* (number, array): a constant that is not part of the program; it is kept, not copied */
static int give_constant(sterna_module *module, vm_program *p, const sterna_any *args, int32_t n, sterna_any *ret) {
  int64_t number;
  (void)module;
  (void)n;
  (void)ret;
  if (sterna_as_int(&args[0], &number)) return -1;
  if (number < 0 || number >= p->constant_count || p->constants[number])
    return sterna_set_errorf("ValueError", "the program has no constant %lld that is yet to be given", (long long)number);
  if (args[1].type_index != STERNA_NDARRAY) return sterna_set_error("TypeError", "a constant is an array");
  sterna_retain(args[1].v_obj);
  p->constants[number] = (sterna_ndarray *)args[1].v_obj;
  return 0;
}

typedef struct {
  const char *name;
  int32_t least, most; /* arguments */
  vm_call call;
} vm_entry;

static const vm_entry entries[] = {
    {"invoke", 1, INT32_MAX, invoke},  {"make", 1, INT32_MAX, make}, {"look", 1, 1, look},
    {"describe", 1, 1, describe},      {"set_limits", 2, 2, set_limits},  {"cancel", 1, 1, cancel},     {"give_constant", 2, 2, give_constant},
    {"set_device", 1, 1, set_device},
};

typedef struct {
  sterna_module *module;
  const vm_entry *entry;
} bound;

static int call_bound(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  const bound *b = self;
  if (n < b->entry->least || n > b->entry->most)
    return sterna_set_errorf("TypeError", "%s takes %d arguments, not %d", b->entry->name, (int)b->entry->least,
                             (int)n);
  return b->entry->call(b->module, sterna_module_self(b->module), args, n, ret) ? -1 : 0;
}

static void free_bound(void *self) {
  sterna_release(((bound *)self)->module);
  free(self);
}

static int find(sterna_module *module, void *self, const char *name, sterna_function **out) {
  const vm_entry *e = entries, *end = e + sizeof entries / sizeof *e;
  (void)self;
  while (e < end && strcmp(e->name, name)) e++;
  *out = NULL;
  if (e == end) return 0;
  bound *b = malloc(sizeof *b);
  if (!b) return sterna_set_error("MemoryError", "there is no memory for a function");
  *b = (bound){module, e};
  sterna_retain(module);
  if (sterna_function_create(call_bound, b, free_bound, out)) {
    free_bound(b);
    return -1;
  }
  return 0;
}

static const sterna_module_type machine_type = {"vm", find, vm_free};

/* (bytes): a module of the program, which is to import one with the blocks */
static int load(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_bytes bytes;
  sterna_module *module;
  (void)self;
  if (n != 1 || sterna_as_bytes(&args[0], &bytes)) return sterna_set_error("TypeError", "a program is loaded from bytes");
  vm_program *p = vm_load(bytes);
  if (!p) return -1;
  if (sterna_module_create(&machine_type, p, &module)) {
    vm_free(p);
    return -1;
  }
  *ret = sterna_any_object(module);
  return 0;
}

STERNA_EXPORT int sterna_register_vm(void);
int sterna_register_vm(void) { return sterna_register("ffi.Module.load_from_bytes.vm", load, NULL, NULL); }
