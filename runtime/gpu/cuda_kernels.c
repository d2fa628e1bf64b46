/* Modules of CUDA kernels: PTX that the driver compiles when a kernel of it is first run. Its compiler
 * takes longer when several threads use it. */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LOG_BYTES = 4096 };

static CUDA_MUTEX mutex = CUDA_MUTEX_INIT;

/* ---- loading ---- */

/* The versions of PTX, and the driver that is the first to take each; the last column ends the table. */
static const struct {
  int32_t ptx, driver;
} first_drivers[] = {
    {42, 7000},   {43, 7050},   {50, 8000},   {60, 9000},   {61, 9010},   {62, 9020},   {63, 10000},
    {64, 10010},  {65, 10020},  {70, 11000},  {71, 11010},  {72, 11020},  {73, 11030},  {74, 11040},
    {75, 11050},  {76, 11060},  {77, 11070},  {78, 11080},  {80, 12000},  {81, 12010},  {82, 12020},
    {83, 12030},  {84, 12040},  {85, 12050},  {86, 12070},  {87, 12080},  {88, 12090},  {90, 13000},
};

static int32_t driver_for(int32_t ptx) {
  for (size_t i = 0; i < sizeof first_drivers / sizeof *first_drivers; i++)
    if (first_drivers[i].ptx >= ptx) return first_drivers[i].driver;
  return 0; /* newer than this table: the driver itself will say */
}

static int check_version(const gpu_program *p) {
  int major = 0, minor = 0;
  const char *line = strstr(p->source, ".version");
  if (!line || sscanf(line, ".version %d.%d", &major, &minor) != 2) return 0;
  int32_t needed = driver_for(major * 10 + minor), have = cuda_driver_version();
  if (needed <= have) return 0;
  return sterna_set_errorf("RuntimeError",
                           "its PTX has version %d.%d, which drivers of CUDA %d.%d and newer take, and this "
                           "machine's driver is one of CUDA %d.%d: install a newer driver",
                           major, minor, (int)(needed / 1000), (int)(needed % 1000 / 10), (int)(have / 1000),
                           (int)(have % 1000 / 10));
}

/* Whether a device runs code for a compute capability; exact: of PTX such as sm_90a, which no other one takes. */
static int runs(const cuda_device *d, int64_t number, int64_t exact) {
  int32_t have = cuda_capability(d);
  return exact ? have == number : have >= number;
}

static int check_target(const gpu_program *p, const cuda_device *d) {
  int number = 0;
  char letter = 0;
  const char *line = strstr(p->source, ".target sm_");
  if (!line || sscanf(line, ".target sm_%d%c", &number, &letter) < 1 || runs(d, number, letter == 'a')) return 0;
  int32_t have = cuda_capability(d);
  return sterna_set_errorf("RuntimeError",
                           "its PTX is for sm_%d%s, and the device is sm_%d; build for that one (-arch), or with "
                           "code for others beside it (-plain_arch=sm_80)",
                           number, letter == 'a' ? "a alone" : " and later", (int)have);
}

/* With the lock held, in the device's context. */
static int load_program(gpu_program *p, cuda_device *d) {
  static char log[LOG_BYTES];
  char words[CUDA_EXPLAINED];
  int32_t options[] = {CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BYTES};
  void *values[] = {log, (void *)(uintptr_t)(sizeof log - 1)};
  if (p->loaded[d->id]) return 0;
  if (check_version(p) || check_target(p, d)) return -1;
  memset(log, 0, sizeof log);
  cu_code code = cuModuleLoadDataEx(&p->loaded[d->id], p->source, 2, options, values);
  if (!code) return 0;
  p->loaded[d->id] = NULL;
  cuda_explain(d, code, words, sizeof words);
  return sterna_set_errorf("RuntimeError", "its PTX does not load: %s%s%.3000s", words,
                           *log ? "; the driver's log:\n" : "", log);
}

/* What went wrong, with the name of the kernel before it. */
static int error_of(const gpu_kernel *k, const cuda_device *d) {
  char text[4096];
  snprintf(text, sizeof text, "%s", sterna_last_error());
  return sterna_set_errorf("RuntimeError", "the kernel %s on cuda(%d): %s", k->name, (int)d->id, text);
}

/* With the lock held, in the device's context. */
static int load_kernel(gpu_kernel *k, cuda_device *d) {
  cu_object found = NULL;
  char words[CUDA_EXPLAINED];
  if (k->loaded[d->id]) return 0;
  if (cuda_is_capturing()) return cuda_refuse_capture("the loading of a kernel");
  if (load_program(k->program, d)) return error_of(k, d);
  cu_code code = cuModuleGetFunction(&found, k->program->loaded[d->id], k->name);
  if (code)
    return sterna_set_errorf("RuntimeError", "the kernel %s on cuda(%d): its PTX has none of that name: %s",
                             k->name, (int)d->id, cuda_explain(d, code, words, sizeof words));
  k->loaded[d->id] = found;
  return 0;
}

/* ---- launching ---- */

/* Kernels run on the device that their arrays are on. */
static int find_home(const gpu_kernel *k, const gpu_launch *l, int32_t *id) {
  int32_t found;
  *id = -1;
  for (int32_t i = 0; i < l->count; i++) {
    if (!strchr("pm", k->parameters[i]) || cuda_home_of(l->values[i], &found)) continue;
    if (*id >= 0 && *id != found)
      return gpu_launch_error(k, l, "its arrays are on different devices; copy them to one");
    *id = found;
  }
  if (*id < 0) *id = 0;
  return 0;
}

static int explain_launch(const gpu_kernel *k, const gpu_launch *l, cuda_device *d, cu_code code) {
  char text[CUDA_EXPLAINED + 256];
  int32_t threads = 0, shared = 0;
  cuda_explain(d, code, text, CUDA_EXPLAINED);
  cuDeviceGetAttribute(&threads, CU_MAX_THREADS_PER_BLOCK, d->handle);
  cuDeviceGetAttribute(&shared, CU_MAX_SHARED_MEMORY_OPTIN, d->handle);
  size_t used = strlen(text);
  snprintf(text + used, sizeof text - used,
           " (%llu bytes of dynamic shared memory; a block has at most %d threads and %d bytes of shared "
           "memory on cuda(%d))",
           (unsigned long long)l->shared_bytes, (int)threads, (int)shared, (int)d->id);
  return gpu_launch_error(k, l, text);
}

static int launch_now(gpu_kernel *k, const gpu_launch *l, cuda_device *d, void **values) {
  cu_launch_attribute attribute = {CU_LAUNCH_PROGRAMMATIC_SERIALIZATION, {0}, {{0}}};
  cu_launch config = {{(uint32_t)l->grid[0], (uint32_t)l->grid[1], (uint32_t)l->grid[2]},
                      {(uint32_t)l->block[0], (uint32_t)l->block[1], (uint32_t)l->block[2]},
                      (uint32_t)l->shared_bytes,
                      cuda_stream(d),
                      &attribute,
                      k->may_begin_early ? 1u : 0u};
  attribute.value.number = 1;
  cu_object kernel = k->loaded[d->id];
  cu_code code =
      cuLaunchKernelEx
          ? cuLaunchKernelEx(&config, kernel, values, NULL)
          : cuLaunchKernel(kernel, config.grid[0], config.grid[1], config.grid[2], config.block[0],
                           config.block[1], config.block[2], config.shared_bytes, config.stream, values, NULL);
  return code ? explain_launch(k, l, d, code) : 0;
}

static int launch(gpu_kernel *k, const gpu_launch *l) {
  cuda_device *d;
  cuda_scope scope;
  int32_t id;
  void *values[GPU_MOST_PARAMETERS];
  cu_tensor_map maps[GPU_MOST_MAPS];
  for (int i = 0; i < 3; i++)
    if (!l->grid[i] || !l->block[i]) return 0; /* no threads at all */
  for (int32_t i = 0, map = 0; i < l->count; i++)
    values[i] = k->parameters[i] == 'm' ? (void *)&maps[map++] : (void *)&l->values[i];
  if (find_home(k, l, &id) || cuda_open(id, &d) || cuda_enter(d, &scope)) return -1;
  CUDA_LOCK(&mutex);
  int failed = load_kernel(k, d) || cuda_encode_maps(k, l, d, maps);
  CUDA_UNLOCK(&mutex);
  cu_code code = 0;
  if (!failed && l->shared_bytes) /* beside what the kernel has by itself, however little that is */
    code = cuFuncSetAttribute(k->loaded[id], CU_FUNC_MAX_DYNAMIC_SHARED_BYTES, (int32_t)l->shared_bytes);
  if (code) failed = explain_launch(k, l, d, code);
  if (!failed) failed = launch_now(k, l, d, values);
  cuda_leave(&scope);
  return failed;
}

static int call_kernel(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  gpu_launch l;
  (void)ret;
  return gpu_launch_read(self, args, n, &l) ? -1 : launch(self, &l);
}

/* ---- workspace ---- */

/* (address, bytes): memory for as long as a call takes, on the device that the address is on */
static int take_workspace(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  void *made = NULL;
  int64_t bytes;
  int32_t id = 0;
  cuda_device *d;
  (void)self;
  if (n != 2 || sterna_as_int(&args[1], &bytes) || bytes < 0)
    return sterna_set_error("TypeError", "workspace is asked for by an address and a number of bytes");
  if (cuda_home_of((uint64_t)(uintptr_t)args[0].v_ptr, &id)) id = 0;
  if (cuda_open(id, &d) || (cuda_is_capturing() ? cuda_take_captured(d, (size_t)bytes, &made)
                                                : cuda_allocate(d, (size_t)bytes, &made)))
    return -1;
  *ret = sterna_any_none();
  ret->type_index = STERNA_POINTER;
  ret->v_ptr = made;
  return 0;
}

static int give_workspace_back(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  int32_t id;
  (void)self;
  (void)ret;
  if (n != 1) return sterna_set_error("TypeError", "workspace is given back by its address");
  if (cuda_give_captured_back(args[0].v_ptr)) return 0;
  if (cuda_home_of((uint64_t)(uintptr_t)args[0].v_ptr, &id)) id = 0;
  cuda_release(id, args[0].v_ptr);
  return 0;
}

/* (compute capability, whether it must be that one, address ..): whether the device that the addresses are on
   runs code for it */
static int runs_code(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  int64_t number, exact;
  int32_t id = 0;
  cuda_device *d;
  (void)self;
  if (n < 2 || sterna_as_int(&args[0], &number) || sterna_as_int(&args[1], &exact))
    return sterna_set_error("TypeError", "what a device runs is asked by two numbers and addresses");
  for (int32_t i = 2; i < n && cuda_home_of((uint64_t)(uintptr_t)args[i].v_ptr, &id); i++) id = 0;
  if (cuda_open(id, &d)) return -1;
  *ret = sterna_any_int(runs(d, number, exact));
  return 0;
}

/* ---- modules ---- */

static int get_function(sterna_module *module, void *self, const char *name, sterna_function **out) {
  gpu_kernel *k = gpu_module_find(self, name);
  *out = NULL;
  if (strcmp(name, "__sterna_take_workspace") == 0)
    return sterna_module_function(module, take_workspace, NULL, out);
  if (strcmp(name, "__sterna_give_workspace_back") == 0)
    return sterna_module_function(module, give_workspace_back, NULL, out);
  if (strcmp(name, "__sterna_runs") == 0) return sterna_module_function(module, runs_code, NULL, out);
  return k ? sterna_module_function(module, call_kernel, k, out) : 0;
}

static void unload(gpu_module *m, int32_t id) {
  cuda_device *d;
  cuda_scope scope;
  int is_there = cuda_open(id, &d) == 0 && cuda_enter(d, &scope) == 0;
  for (size_t i = 0; i < m->program_count && is_there; i++)
    if (m->programs[i].loaded[id]) cuModuleUnload(m->programs[i].loaded[id]);
  if (is_there) cuda_leave(&scope);
  else sterna_clear_error(); /* they went with the device's session */
}

static void free_module(void *self) {
  gpu_module *m = self;
  for (size_t i = 0; i < m->kernel_count; i++) free(m->kernels[i].kept);
  for (int32_t id = 0; id < GPU_MOST_DEVICES; id++)
    for (size_t i = 0; i < m->program_count; i++)
      if (m->programs[i].loaded[id]) {
        unload(m, id);
        break;
      }
  gpu_module_free(m);
}

static const sterna_module_type module_type = {"cuda", get_function, free_module};

/* (bytes): see kernels.h */
static int load_module(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self;
  return gpu_module_load(args, n, "piuIUfdbwBWm", &module_type, ret);
}

int cuda_register_kernels(void) {
  return sterna_register("ffi.Module.load_from_bytes.cuda", load_module, NULL, NULL);
}
