/* Device types: their names, and how to allocate and copy there. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

enum { TYPES = 32, REMOTE = STERNA_REMOTE_DEVICES };

static const char *const device_names[TYPES] = {
    [kDLCPU] = "cpu",           [kDLCUDA] = "cuda",         [kDLCUDAHost] = "cuda_host",
    [kDLOpenCL] = "opencl",     [kDLVulkan] = "vulkan",     [kDLMetal] = "metal",
    [kDLVPI] = "vpi",           [kDLROCM] = "rocm",         [kDLROCMHost] = "rocm_host",
    [kDLExtDev] = "ext_dev",    [kDLCUDAManaged] = "cuda_managed",
    [kDLOneAPI] = "oneapi",     [kDLWebGPU] = "webgpu",     [kDLHexagon] = "hexagon",
    [kDLMAIA] = "maia",         [kDLTrn] = "trn",
};

static int cpu_exists(void *self, int32_t device_id) {
  (void)self;
  return device_id >= 0;
}

static int cpu_allocate(void *self, DLDevice device, size_t bytes, size_t alignment, void **out) {
  (void)self;
  (void)device;
  void *block = memory_allocate(bytes, alignment);
  if (!block) return -1;
  *out = block;
  return 0;
}

static void cpu_release(void *self, DLDevice device, void *block) {
  (void)self;
  (void)device;
  memory_release(block);
}

static int cpu_copy(void *self, void *to, DLDevice to_device, const void *from, DLDevice from_device,
                    size_t bytes) {
  (void)self;
  (void)to_device;
  (void)from_device;
  if (bytes) memmove(to, from, bytes);
  return 0;
}

static int cpu_sync(void *self, DLDevice device) {
  (void)self;
  (void)device;
  return 0;
}

static const sterna_device_api cpu = {NULL,        cpu_exists, cpu_allocate,
                                      cpu_release, cpu_copy,   cpu_sync};

static _Atomic(const sterna_device_api *) apis[TYPES];
static _Atomic(sterna_find_device) find_remote;

const char *sterna_device_name(DLDeviceType type) {
  return (unsigned)type < TYPES ? device_names[type] : NULL;
}

int sterna_register_device(DLDeviceType type, const sterna_device_api *api) {
  if (!sterna_device_name(type) || type == kDLCPU)
    return sterna_set_errorf("ValueError", "device type %d cannot be registered", (int)type);
  if (!api || !api->exists || !api->allocate || !api->release || !api->copy || !api->sync)
    return sterna_set_error("ValueError", "a device needs every function of its table");
  atomic_store(&apis[type], api);
  return 0;
}

void sterna_set_remote_devices(sterna_find_device find) { atomic_store(&find_remote, find); }

/* ---- GPUs and the virtual machine: libraries beside this one, loaded when they are first asked for ---- */

#if defined(_WIN32)
#define BACK_END "sterna_%s.dll"
#elif defined(__APPLE__)
#define BACK_END "libsterna_%s.dylib"
#else
#define BACK_END "libsterna_%s.so"
#endif

static platform_mutex load_mutex = PLATFORM_MUTEX_INIT;
static uint32_t loads_tried; /* a bit for each type, and the last for the virtual machine */
enum { VIRTUAL_MACHINE = 31 };

static void load_library(const char *kind, int bit) {
  char name[64], error[256];
  int (*register_it)(void) = NULL;
  platform_lock(&load_mutex);
  int is_first = !(loads_tried >> bit & 1) && (bit == VIRTUAL_MACHINE || !atomic_load(&apis[bit]));
  loads_tried |= 1u << bit;
  if (is_first) {
    snprintf(name, sizeof name, BACK_END, kind);
    void *library = platform_library_open(name, error, sizeof error);
    snprintf(name, sizeof name, "sterna_register_%s", kind);
    void *found = library ? platform_library_symbol(library, name) : NULL;
    memcpy(&register_it, &found, sizeof found);
    if (register_it && register_it()) sterna_clear_error();
  }
  platform_unlock(&load_mutex);
}

static void load_back_end(DLDeviceType type) {
  if (type == kDLCUDAHost) type = kDLCUDA; /* its own pinned memory */
  load_library(device_names[type], (int)type);
}

void device_load_named(const char *kind) {
  if (strcmp(kind, "vm") == 0) load_library(kind, VIRTUAL_MACHINE);
  for (int type = kDLCUDA; type < TYPES; type++)
    if (device_names[type] && strcmp(device_names[type], kind) == 0) load_back_end((DLDeviceType)type);
}

static const sterna_device_api *find_device(DLDeviceType type) {
  if (type == kDLCPU) return &cpu;
  if ((int)type >= REMOTE) {
    sterna_find_device find = atomic_load(&find_remote);
    return find ? find(type) : NULL;
  }
  if (!sterna_device_name(type)) return NULL;
  if (!atomic_load(&apis[type])) load_back_end(type);
  return atomic_load(&apis[type]);
}

int sterna_device_exists(DLDevice device) {
  const sterna_device_api *api = find_device(device.device_type);
  return api && api->exists(api->self, device.device_id) == 1;
}

/* There is none: a back end may say why, by a function sterna.why_no.<name>. */
static int refuse(const char *name, int32_t id, int is_remote) {
  char question[64];
  sterna_function *ask = NULL;
  sterna_any why = sterna_any_none();
  sterna_bytes text = {NULL, 0};
  snprintf(question, sizeof question, "sterna.why_no.%s", name);
  int said = !is_remote && sterna_get_global(question, &ask) == 0 && ask &&
             ask->call(ask, NULL, 0, &why) == 0 && why.type_index != STERNA_NONE &&
             sterna_as_string(&why, &text) == 0;
  sterna_set_errorf("RuntimeError", "there is no %sdevice %s(%d)%s%.*s", is_remote ? "remote " : "", name,
                    (int)id, said ? ": " : "", said ? (int)text.size : 0, said ? text.data : "");
  sterna_any_release(&why);
  sterna_release(ask);
  return -1;
}

int device_get(DLDevice device, const sterna_device_api **out) {
  const sterna_device_api *api = find_device(device.device_type);
  int is_remote = (int)device.device_type >= REMOTE;
  const char *name = sterna_device_name(is_remote ? device.device_type % REMOTE : device.device_type);
  if (!name) return sterna_set_errorf("ValueError", "%d is no device type", (int)device.device_type);
  if (!api && is_remote)
    return sterna_set_errorf("RuntimeError", "the session of the remote device %s(%d) has ended", name,
                             (int)device.device_id);
  if (!api)
    return sterna_set_errorf("RuntimeError", "no runtime support for device %s(%d) is loaded", name,
                             (int)device.device_id);
  if (api->exists(api->self, device.device_id) != 1) return refuse(name, device.device_id, is_remote);
  *out = api;
  return 0;
}

int sterna_device_sync(DLDevice device) {
  const sterna_device_api *api;
  return device_get(device, &api) || api->sync(api->self, device) ? -1 : 0;
}
