/* OpenCL devices: memory with addresses, copies, programs that are built when they are first run. */
#if defined(__linux__) && !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#endif
#include "kernels.h"
#include "opencl_driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(_WIN32)
#include <windows.h>
static SRWLOCK mutex = SRWLOCK_INIT;
#define LOCK() AcquireSRWLockExclusive(&mutex)
#define UNLOCK() ReleaseSRWLockExclusive(&mutex)
static void *reserve(size_t bytes) { return VirtualAlloc(NULL, bytes, MEM_RESERVE, PAGE_NOACCESS); }
static void unreserve(void *start, size_t bytes) {
  (void)bytes;
  VirtualFree(start, 0, MEM_RELEASE);
}
#else
#include <pthread.h>
#include <sys/mman.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
#define LOCK() pthread_mutex_lock(&mutex)
#define UNLOCK() pthread_mutex_unlock(&mutex)
#if !defined(MAP_NORESERVE)
#define MAP_NORESERVE 0
#endif
static void *reserve(size_t bytes) {
  void *start = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return start == MAP_FAILED ? NULL : start;
}
static void unreserve(void *start, size_t bytes) { munmap(start, bytes); }
#endif

enum { MOST_DEVICES = GPU_MOST_DEVICES, MOST_PLATFORMS = 16 };

typedef struct {
  cl_object id, context, queue;
  int is_exact; /* divisions and roots can be rounded correctly */
} device;

/* Memory of a device, with a range of addresses that stands for it and holds nothing. */
typedef struct {
  char *start;
  size_t bytes;
  cl_object memory;
  int32_t device;
} block;

static device devices[MOST_DEVICES];
static int32_t device_count = -1; /* not counted yet */
static const char *why_none = "the system's OpenCL has no device";
static block *blocks; /* in the order of their addresses */
static size_t block_count, block_room;

static int fail(const char *what, cl_code code) {
  return sterna_set_errorf("RuntimeError", "OpenCL: %s: %s (%d)", what, opencl_error_name(code), (int)code);
}

/* ---- devices ---- */

static void list_devices(cl_bits kinds) {
  cl_object platforms[MOST_PLATFORMS], found[MOST_DEVICES];
  uint32_t platform_count = 0, count;
  if (clGetPlatformIDs(MOST_PLATFORMS, platforms, &platform_count)) return;
  if (platform_count > MOST_PLATFORMS) platform_count = MOST_PLATFORMS;
  for (uint32_t p = 0; p < platform_count; p++) {
    count = 0;
    if (clGetDeviceIDs(platforms[p], kinds, MOST_DEVICES, found, &count)) continue;
    for (uint32_t i = 0; i < count && i < MOST_DEVICES && device_count < MOST_DEVICES; i++)
      devices[device_count++].id = found[i];
  }
}

/* With the lock held: GPUs come first. */
static void count_devices(void) {
  if (device_count >= 0) return;
  device_count = 0;
  if (opencl_load(&why_none)) return;
  list_devices(CL_DEVICE_TYPE_GPU_OR_ACCELERATOR);
  list_devices(CL_DEVICE_TYPE_ALL_OTHERS);
}

static int exists(void *self, int32_t id) {
  (void)self;
  LOCK();
  count_devices();
  int there = id >= 0 && id < device_count;
  UNLOCK();
  return there;
}

/* With the lock held: a device that is ready for work. */
static int open_device(int32_t id, device **out) {
  cl_code code = 0;
  cl_bits config = 0;
  count_devices();
  if (id < 0 || id >= device_count)
    return sterna_set_errorf("RuntimeError", "there is no device opencl(%d): %s", (int)id,
                             device_count > 0 ? "the system has fewer" : why_none);
  device *d = &devices[id];
  if (!d->context) d->context = clCreateContext(NULL, 1, &d->id, NULL, NULL, &code);
  if (code) return fail("a context", code);
  if (!d->queue) d->queue = clCreateCommandQueue(d->context, d->id, CL_QUEUE_PROFILING_ENABLE, &code);
  if (code) return fail("a queue", code);
  clGetDeviceInfo(d->id, CL_DEVICE_SINGLE_FP_CONFIG, sizeof config, &config, NULL);
  d->is_exact = (config & CL_FP_CORRECTLY_ROUNDED_DIVIDE_SQRT) != 0;
  *out = d;
  return 0;
}

/* ---- memory ---- */

/* With the lock held: the place of the first block that ends behind an address. */
static size_t place_of(const char *address) {
  size_t low = 0, high = block_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (blocks[middle].start + blocks[middle].bytes <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static const block *find_block(const void *address) {
  size_t place = place_of(address);
  int inside = place < block_count && blocks[place].start <= (const char *)address;
  return inside ? &blocks[place] : NULL;
}

static int add_block(block made) {
  if (block_count == block_room) {
    size_t room = block_room ? 2 * block_room : 64;
    block *longer = realloc(blocks, room * sizeof *blocks);
    if (!longer) return sterna_set_error("MemoryError", "no memory for a list of device memory");
    blocks = longer;
    block_room = room;
  }
  size_t place = place_of(made.start);
  memmove(&blocks[place + 1], &blocks[place], (block_count - place) * sizeof *blocks);
  blocks[place] = made;
  block_count++;
  return 0;
}

static int allocate_there(int32_t id, size_t bytes, void **out) {
  device *d;
  cl_code code = 0;
  block made = {NULL, (bytes | 3) + 1, NULL, id}; /* whole words, which some kernels change at once */
  if (open_device(id, &d)) return -1;
  made.memory = clCreateBuffer(d->context, CL_MEM_READ_WRITE, made.bytes, NULL, &code);
  if (code)
    return sterna_set_errorf("MemoryError", "opencl(%d) has no %llu bytes: %s (%d)", (int)id,
                             (unsigned long long)bytes, opencl_error_name(code), (int)code);
  made.start = reserve(made.bytes);
  if (!made.start || add_block(made)) {
    clReleaseMemObject(made.memory);
    if (made.start) unreserve(made.start, made.bytes);
    return sterna_set_error("MemoryError", "no addresses for memory of a device");
  }
  *out = made.start;
  return 0;
}

static void release_there(const void *address) {
  size_t place = place_of(address);
  if (place == block_count || blocks[place].start != (const char *)address) return;
  block old = blocks[place];
  block_count--;
  memmove(&blocks[place], &blocks[place + 1], (block_count - place) * sizeof *blocks);
  clReleaseMemObject(old.memory); /* the driver keeps it until kernels that use it are done */
  unreserve(old.start, old.bytes);
}

static int allocate(void *self, DLDevice where, size_t bytes, size_t alignment, void **out) {
  (void)self;
  (void)alignment; /* drivers align for the widest vector */
  LOCK();
  int failed = allocate_there(where.device_id, bytes, out);
  UNLOCK();
  return failed;
}

static void release(void *self, DLDevice where, void *address) {
  (void)self;
  (void)where;
  LOCK();
  release_there(address);
  UNLOCK();
}

typedef struct {
  device *on;
  cl_object memory;
  size_t offset;
} place;

/* With the lock held: where an address of device memory is. */
static int locate(const void *address, size_t bytes, place *out) {
  const block *b = find_block(address);
  if (!b || bytes > b->bytes - (size_t)((const char *)address - b->start))
    return sterna_set_error("ValueError", "the address is in no memory of an OpenCL device");
  *out = (place){NULL, b->memory, (size_t)((const char *)address - b->start)};
  return open_device(b->device, &out->on);
}

static int copy_there(const place *to, const place *from, size_t bytes) {
  cl_code code;
  if (to->on == from->on) {
    code = clEnqueueCopyBuffer(to->on->queue, from->memory, to->memory, from->offset, to->offset, bytes, 0,
                               NULL, NULL);
    return code ? fail("a copy on the device", code) : 0;
  }
  void *between = malloc(bytes);
  if (!between) return sterna_set_error("MemoryError", "no memory to copy between devices");
  code = clEnqueueReadBuffer(from->on->queue, from->memory, 1, from->offset, bytes, between, 0, NULL, NULL);
  if (!code)
    code = clEnqueueWriteBuffer(to->on->queue, to->memory, 1, to->offset, bytes, between, 0, NULL, NULL);
  free(between);
  return code ? fail("a copy between devices", code) : 0;
}

static int copy(void *self, void *to, DLDevice to_device, const void *from, DLDevice from_device,
                size_t bytes) {
  place source = {NULL, NULL, 0}, target = {NULL, NULL, 0};
  cl_code code;
  (void)self;
  if (!bytes) return 0;
  LOCK();
  int failed = (from_device.device_type == kDLOpenCL && locate(from, bytes, &source)) ||
               (to_device.device_type == kDLOpenCL && locate(to, bytes, &target));
  UNLOCK();
  if (failed) return -1;
  if (source.on && target.on) return copy_there(&target, &source, bytes);
  if (source.on)
    code = clEnqueueReadBuffer(source.on->queue, source.memory, 1, source.offset, bytes, to, 0, NULL, NULL);
  else
    code = clEnqueueWriteBuffer(target.on->queue, target.memory, 1, target.offset, bytes, from, 0, NULL, NULL);
  return code ? fail(source.on ? "a copy from the device" : "a copy to the device", code) : 0;
}

static int sync_device(void *self, DLDevice where) {
  device *d;
  (void)self;
  LOCK();
  int failed = open_device(where.device_id, &d);
  UNLOCK();
  if (failed) return -1;
  cl_code code = clFinish(d->queue);
  return code ? fail("waiting for the device", code) : 0;
}

static const sterna_device_api api = {NULL, exists, allocate, release, copy, sync_device};

/* ---- programs ---- */

static int build_error(const device *d, cl_object program, cl_code code) {
  size_t size = 0;
  clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &size);
  char *log = size ? malloc(size + 1) : NULL;
  if (log) {
    log[0] = log[size] = 0;
    clGetProgramBuildInfo(program, d->id, CL_PROGRAM_BUILD_LOG, size, log, NULL);
  }
  sterna_set_errorf("RuntimeError", "OpenCL: %s (%d); the driver's log:\n%.3000s", opencl_error_name(code),
                    (int)code, log ? log : "(none)");
  free(log);
  clReleaseProgram(program);
  return -1;
}

/* With the lock held. */
static int load_program(gpu_program *p, int32_t id, const device *d) {
  static const char plain[] = "-cl-std=CL1.2", exact[] = "-cl-std=CL1.2 -cl-fp32-correctly-rounded-divide-sqrt";
  cl_code code;
  if (p->loaded[id]) return 0;
  cl_object program = clCreateProgramWithSource(d->context, 1, &p->source, &p->size, &code);
  if (code) return fail("a program", code);
  code = clBuildProgram(program, 1, &d->id, d->is_exact ? exact : plain, NULL, NULL);
  if (code) return build_error(d, program, code);
  p->loaded[id] = program;
  return 0;
}

/* What went wrong, with the name of the kernel before it. */
static int error_of(const gpu_kernel *k) {
  char said[4096];
  snprintf(said, sizeof said, "%s", sterna_last_error());
  return sterna_set_errorf("RuntimeError", "the kernel %s: %s", k->name, said);
}

static int load_kernel(gpu_kernel *k, int32_t id, const device *d) {
  cl_code code;
  if (k->loaded[id]) return 0;
  if (load_program(k->program, id, d)) return error_of(k);
  k->loaded[id] = clCreateKernel(k->program->loaded[id], k->name, &code);
  return code ? fail(k->name, code) : 0;
}

/* An address is two arguments: the memory, and how many bytes from its start. */
static cl_code set_arguments(cl_object kernel, const gpu_kernel *k, const gpu_launch *l) {
  uint32_t at = 0;
  cl_code code = 0;
  for (int32_t i = 0; i < l->count && !code; i++) {
    if (k->parameters[i] != 'p') {
      code = clSetKernelArg(kernel, at++, l->sizes[i], &l->values[i]);
      continue;
    }
    const block *b = find_block((void *)(uintptr_t)l->values[i]);
    cl_object memory = b ? b->memory : NULL;
    uint64_t offset = b ? (uint64_t)((char *)(uintptr_t)l->values[i] - b->start) : 0;
    code = clSetKernelArg(kernel, at++, sizeof memory, &memory);
    if (!code) code = clSetKernelArg(kernel, at++, sizeof offset, &offset);
  }
  return code;
}

/* With the lock held: kernels run on the device that their arrays are on. */
static int find_home(const gpu_kernel *k, const gpu_launch *l, int32_t *id) {
  *id = -1;
  for (int32_t i = 0; i < l->count; i++) {
    if (k->parameters[i] != 'p') continue;
    const block *b = find_block((void *)(uintptr_t)l->values[i]);
    if (!b) continue;
    if (*id >= 0 && *id != b->device)
      return gpu_launch_error(k, l, "its arrays are on different devices; copy them to one");
    *id = b->device;
  }
  if (*id < 0) *id = 0;
  return 0;
}

static int launch(gpu_kernel *k, const gpu_launch *l) {
  device *d;
  int32_t id;
  size_t all[3];
  char said[160];
  for (int i = 0; i < 3; i++) {
    all[i] = l->grid[i] * l->block[i];
    if (!all[i]) return 0; /* no threads at all */
  }
  if (find_home(k, l, &id) || open_device(id, &d) || load_kernel(k, id, d)) return -1;
  cl_code code = set_arguments(k->loaded[id], k, l);
  if (!code)
    code = clEnqueueNDRangeKernel(d->queue, k->loaded[id], 3, NULL, all, l->block, 0, NULL, NULL);
  if (!code) return 0;
  snprintf(said, sizeof said, "%s (%d)", opencl_error_name(code), (int)code);
  return gpu_launch_error(k, l, said);
}

static int call_kernel(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  gpu_launch l;
  (void)ret;
  if (gpu_launch_read(self, args, n, &l)) return -1;
  LOCK();
  int failed = launch(self, &l);
  UNLOCK();
  return failed;
}

/* (address, bytes): memory for as long as a call takes, on the device that the address is on */
static int take_workspace(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  void *made = NULL;
  int64_t bytes;
  (void)self;
  if (n != 2 || sterna_as_int(&args[1], &bytes))
    return sterna_set_error("TypeError", "workspace is asked for by an address and a number of bytes");
  LOCK();
  const block *b = find_block(args[0].v_ptr);
  int failed = allocate_there(b ? b->device : 0, (size_t)bytes, &made);
  UNLOCK();
  if (failed) return -1;
  *ret = sterna_any_none();
  ret->type_index = STERNA_POINTER;
  ret->v_ptr = made;
  return 0;
}

static int give_workspace_back(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self;
  (void)ret;
  if (n != 1) return sterna_set_error("TypeError", "workspace is given back by its address");
  LOCK();
  release_there(args[0].v_ptr);
  UNLOCK();
  return 0;
}

static int get_function(sterna_module *module, void *self, const char *name, sterna_function **out) {
  gpu_kernel *k = gpu_module_find(self, name);
  *out = NULL;
  if (strcmp(name, "__sterna_take_workspace") == 0)
    return sterna_module_function(module, take_workspace, NULL, out);
  if (strcmp(name, "__sterna_give_workspace_back") == 0)
    return sterna_module_function(module, give_workspace_back, NULL, out);
  return k ? sterna_module_function(module, call_kernel, k, out) : 0;
}

static void free_module(void *self) {
  gpu_module *m = self;
  for (int32_t id = 0; id < MOST_DEVICES; id++) {
    for (size_t i = 0; i < m->kernel_count; i++)
      if (m->kernels[i].loaded[id]) clReleaseKernel(m->kernels[i].loaded[id]);
    for (size_t i = 0; i < m->program_count; i++)
      if (m->programs[i].loaded[id]) clReleaseProgram(m->programs[i].loaded[id]);
  }
  gpu_module_free(m);
}

static const sterna_module_type module_type = {"opencl", get_function, free_module};

/* (bytes): see kernels.h */
static int load_module(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self;
  return gpu_module_load(args, n, "piuIUfdbwBW", &module_type, ret);
}

/* ---- what devices tell of themselves ---- */

static int text_of(const device *d, uint32_t what, sterna_any *ret) {
  char text[512] = "";
  clGetDeviceInfo(d->id, what, sizeof text - 1, text, NULL);
  return sterna_string(text, strlen(text), ret);
}

static int number_of(const device *d, uint32_t what, int64_t factor, sterna_any *ret) {
  uint64_t value = 0;
  clGetDeviceInfo(d->id, what, sizeof value, &value, NULL);
  *ret = sterna_any_int((int64_t)value * factor);
  return 0;
}

static int sizes_of(const device *d, sterna_any *ret) {
  size_t sizes[3] = {1, 1, 1};
  char text[96];
  clGetDeviceInfo(d->id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof sizes, sizes, NULL);
  int size = snprintf(text, sizeof text, "[%llu, %llu, %llu]", (unsigned long long)sizes[0],
                      (unsigned long long)sizes[1], (unsigned long long)sizes[2]);
  return sterna_string(text, (size_t)size, ret);
}

/* (device number, attribute): by the attributes' classic numbers; none where there is no answer */
static int attribute(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  int64_t id, what;
  device *d;
  (void)self;
  if (n != 2 || sterna_as_int(&args[0], &id) || sterna_as_int(&args[1], &what))
    return sterna_set_error("TypeError", "an attribute is asked for by two numbers");
  *ret = sterna_any_none();
  LOCK();
  int failed = open_device((int32_t)id, &d);
  UNLOCK();
  if (failed) return -1;
  switch (what) {
    case 1: return number_of(d, CL_DEVICE_MAX_WORK_GROUP_SIZE, 1, ret);
    case 2: *ret = sterna_any_int(1); return 0;
    case 3: return number_of(d, CL_DEVICE_LOCAL_MEM_SIZE, 1, ret);
    case 4: return text_of(d, CL_DEVICE_VERSION, ret);
    case 5: return text_of(d, CL_DEVICE_NAME, ret);
    case 6: return number_of(d, CL_DEVICE_MAX_CLOCK_FREQUENCY, 1000, ret);
    case 7: return number_of(d, CL_DEVICE_MAX_COMPUTE_UNITS, 1, ret);
    case 8: return sizes_of(d, ret);
    case 12: return text_of(d, CL_DRIVER_VERSION, ret);
    case 13: return number_of(d, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE, 1, ret);
    case 14: return number_of(d, CL_DEVICE_GLOBAL_MEM_SIZE, 1, ret);
    default: return 0;
  }
}

/* (device number): the nanosecond at which the device has done all that it was given so far */
static int device_time(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  int64_t id;
  device *d;
  cl_object event;
  uint64_t end = 0;
  (void)self;
  if (n != 1 || sterna_as_int(&args[0], &id)) return sterna_set_error("TypeError", "a device has a number");
  LOCK();
  int failed = open_device((int32_t)id, &d);
  UNLOCK();
  if (failed) return -1;
  cl_code code = clEnqueueMarkerWithWaitList(d->queue, 0, NULL, &event);
  if (code) return fail("a mark in the queue", code);
  code = clFinish(d->queue);
  if (!code) code = clGetEventProfilingInfo(event, CL_PROFILING_COMMAND_END, sizeof end, &end, NULL);
  clReleaseEvent(event);
  *ret = sterna_any_int((int64_t)end);
  return code ? fail("the time of a mark", code) : 0;
}

STERNA_EXPORT int sterna_register_opencl(void);
int sterna_register_opencl(void) {
  return sterna_register_device(kDLOpenCL, &api) ||
                 sterna_register("ffi.Module.load_from_bytes.opencl", load_module, NULL, NULL) ||
                 sterna_register("sterna.attribute.opencl", attribute, NULL, NULL) ||
                 sterna_register("sterna.time.opencl", device_time, NULL, NULL)
             ? -1
             : 0;
}
