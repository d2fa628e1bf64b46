/* Device types: a pretended one beside the CPU, and copies between all of them. */
#include "check.h"

typedef struct {
  DLDeviceType type;
  int present, fail_allocate, fail_copy, fail_sync;
  int blocks, copies, syncs;
} pretended;

static pretended one = {kDLExtDev, 1, 0, 0, 0, 0, 0, 0}, two = {kDLTrn, 1, 0, 0, 0, 0, 0, 0};

static int fake_exists(void *self, int32_t id) {
  pretended *p = self;
  if (id == 9) return -1; /* neither yes nor no counts as no */
  return p->present && id >= 0 && id < 2;
}

static int fake_allocate(void *self, DLDevice device, size_t bytes, size_t alignment, void **out) {
  pretended *p = self;
  check(device.device_type == p->type && alignment == 64);
  if (p->fail_allocate) return sterna_set_error("MemoryError", "the pretended device is full");
  if (bytes == 0) {
    *out = NULL; /* a device may have nothing to show for no bytes */
    return 0;
  }
  p->blocks++;
  *out = malloc(bytes);
  return 0;
}

static void fake_release(void *self, DLDevice device, void *block) {
  pretended *p = self;
  check(device.device_type == p->type && block);
  p->blocks--;
  free(block);
}

/* One end is here, the other here or on the CPU: nothing else may be asked for. */
static int fake_copy(void *self, void *to, DLDevice to_device, const void *from,
                     DLDevice from_device, size_t bytes) {
  pretended *p = self;
  check(to_device.device_type == p->type || from_device.device_type == p->type);
  check(to_device.device_type == p->type || to_device.device_type == kDLCPU);
  check(from_device.device_type == p->type || from_device.device_type == kDLCPU);
  if (p->fail_copy) return sterna_set_error("RuntimeError", "the pretended copy failed");
  p->copies++;
  if (bytes) memcpy(to, from, bytes);
  return 0;
}

static int fake_sync(void *self, DLDevice device) {
  pretended *p = self;
  check(device.device_type == p->type);
  p->syncs++;
  return p->fail_sync ? sterna_set_error("RuntimeError", "the pretended device hangs") : 0;
}

static const sterna_device_api api_one = {&one,         fake_exists, fake_allocate,
                                          fake_release, fake_copy,   fake_sync};
static const sterna_device_api api_two = {&two,         fake_exists, fake_allocate,
                                          fake_release, fake_copy,   fake_sync};

static const DLDevice cpu = {kDLCPU, 0}, first = {kDLExtDev, 0}, second = {kDLTrn, 1};
static const DLDataType int32 = {kDLInt, 32, 1};

static sterna_ndarray *new_array(int64_t side, DLDevice device) {
  sterna_ndarray *array = NULL;
  check(sterna_ndarray_empty(&side, 1, int32, device, &array) == 0);
  return array;
}

static void names(void) {
  check_text(sterna_device_name(kDLCPU), "cpu");
  check_text(sterna_device_name(kDLCUDA), "cuda");
  check_text(sterna_device_name(kDLTrn), "trn");
  check(!sterna_device_name((DLDeviceType)0) && !sterna_device_name((DLDeviceType)5));
  check(!sterna_device_name((DLDeviceType)19) && !sterna_device_name((DLDeviceType)31));
  check(!sterna_device_name((DLDeviceType)32) && !sterna_device_name((DLDeviceType)-1));
  check(!sterna_device_name((DLDeviceType)INT32_MIN) &&
        !sterna_device_name((DLDeviceType)INT32_MAX));
}

static void registering(void) {
  sterna_device_api broken = api_one;
  sterna_ndarray *array = NULL;
  int64_t side = 3;
  check(sterna_device_exists(cpu) && sterna_device_exists((DLDevice){kDLCPU, 7}));
  check(!sterna_device_exists((DLDevice){kDLCPU, -1}));
  check(!sterna_device_exists((DLDevice){(DLDeviceType)77, 0}));
  check(!sterna_device_exists(first));
  check_fails(sterna_device_sync(first), "RuntimeError", "ext_dev(0)");
  check_fails(sterna_ndarray_empty(&side, 1, int32, first, &array), "RuntimeError", "ext_dev(0)");
  check_fails(sterna_device_sync((DLDevice){(DLDeviceType)77, 0}), "ValueError",
              "77 is no device type");
  check_fails(sterna_device_sync((DLDevice){(DLDeviceType)-2, 0}), "ValueError", "-2 is no device");
  check_fails(sterna_register_device(kDLCPU, &api_one), "ValueError", "cannot be registered");
  check_fails(sterna_register_device((DLDeviceType)0, &api_one), "ValueError", "cannot");
  check_fails(sterna_register_device((DLDeviceType)64, &api_one), "ValueError", "cannot");
  check_fails(sterna_register_device(kDLExtDev, NULL), "ValueError", "every function");
  broken.sync = NULL;
  check_fails(sterna_register_device(kDLExtDev, &broken), "ValueError", "every function");
  check(!sterna_device_exists(first));
  check(sterna_register_device(kDLExtDev, &api_one) == 0);
  check(sterna_register_device(kDLTrn, &api_two) == 0);
  check(sterna_device_exists(first) && !sterna_device_exists((DLDevice){kDLExtDev, 2}));
  check(sterna_device_exists((DLDevice){kDLExtDev, 9}) == 0);
  check_fails(sterna_device_sync((DLDevice){kDLExtDev, 9}), "RuntimeError", "no device ext_dev(9)");
  check(array == NULL);
}

static void register_both(void) {
  check(sterna_register_device(kDLExtDev, &api_one) == 0);
  check(sterna_register_device(kDLTrn, &api_two) == 0);
}

static void memory_there(void) {
  register_both();
  sterna_ndarray *array = new_array(5, first), *view = NULL, *empty = new_array(0, first);
  check(one.blocks == 1 && array->tensor.device.device_type == kDLExtDev);
  int64_t side = 2;
  check(sterna_ndarray_view(array, &side, 1, int32, 8, &view) == 0);
  check((char *)view->tensor.data == (char *)array->tensor.data + 8);
  sterna_release(array);
  check(one.blocks == 1); /* the view needs it */
  sterna_release(view);
  check(one.blocks == 0);
  sterna_release(empty);
  check(sterna_device_sync(first) == 0 && one.syncs == 1);
}

static void failures(void) {
  register_both();
  sterna_ndarray *array = NULL, *there = new_array(4, first), *here = new_array(4, cpu);
  int64_t side = 4;
  int32_t numbers[4] = {1, 2, 3, 4};
  one.fail_allocate = 1;
  check_fails(sterna_ndarray_empty(&side, 1, int32, first, &array), "MemoryError", "is full");
  check(array == NULL);
  one.fail_allocate = 0;
  one.fail_copy = 1;
  check_fails(sterna_tensor_copy(&here->tensor, &there->tensor), "RuntimeError", "copy failed");
  check_fails(sterna_tensor_copy(&there->tensor, &here->tensor), "RuntimeError", "copy failed");
  check_fails(sterna_tensor_copy_from_memory(&there->tensor, numbers, 16), "RuntimeError",
              "copy failed");
  check_fails(sterna_tensor_copy_to_memory(&there->tensor, numbers, 16), "RuntimeError",
              "copy failed");
  one.fail_copy = 0;
  one.fail_sync = 1;
  check_fails(sterna_device_sync(first), "RuntimeError", "hangs");
  one.fail_sync = 0;

  /* A device that is lost still gets its memory back, and ending an array sets no error. */
  one.present = 0;
  sterna_clear_error();
  sterna_release(there);
  check(one.blocks == 0);
  check_text(sterna_last_error(), "");
  one.present = 1;
  sterna_release(here);
}

/* Memory goes back to whoever gave it, even when another has taken over the device type. */
static void replaced_device(void) {
  static pretended other = {kDLExtDev, 1, 0, 0, 0, 0, 0, 0};
  static const sterna_device_api api_other = {&other,       fake_exists, fake_allocate,
                                              fake_release, fake_copy,   fake_sync};
  register_both();
  sterna_ndarray *array = new_array(4, first);
  check(sterna_register_device(kDLExtDev, &api_other) == 0);
  sterna_release(array);
  check(one.blocks == 0 && other.blocks == 0);
  check(sterna_register_device(kDLExtDev, &api_one) == 0);
}

static void copies(void) {
  register_both();
  static const DLDevice all[] = {{kDLCPU, 0}, {kDLCPU, 3}, {kDLExtDev, 0}, {kDLExtDev, 1},
                                 {kDLTrn, 1}};
  enum { DEVICES = sizeof all / sizeof *all, COUNT = 50 };
  int32_t numbers[COUNT], back[COUNT];
  for (int i = 0; i < COUNT; i++) numbers[i] = i * i;
  for (int i = 0; i < DEVICES; i++)
    for (int k = 0; k < DEVICES; k++) { /* from any device to any other */
      sterna_ndarray *from = new_array(COUNT, all[i]), *to = new_array(COUNT, all[k]);
      memset(back, 0, sizeof back);
      check(sterna_tensor_copy_from_memory(&from->tensor, numbers, sizeof numbers) == 0);
      check(sterna_tensor_copy(&from->tensor, &to->tensor) == 0);
      check(sterna_tensor_copy_to_memory(&to->tensor, back, sizeof back) == 0);
      check(memcmp(numbers, back, sizeof back) == 0);
      sterna_release(from);
      sterna_release(to);
      from = new_array(0, all[i]), to = new_array(0, all[k]);
      check(sterna_tensor_copy(&from->tensor, &to->tensor) == 0);
      sterna_release(from);
      sterna_release(to);
    }
  check(one.copies > 0 && two.copies > 0 && one.blocks == 0 && two.blocks == 0);

  sterna_ndarray *a = new_array(4, first), *b = new_array(4, second);
  two.fail_copy = 1;
  check_fails(sterna_tensor_copy(&a->tensor, &b->tensor), "RuntimeError", "copy failed");
  check_fails(sterna_tensor_copy(&b->tensor, &a->tensor), "RuntimeError", "copy failed");
  two.fail_copy = 0;
  check_fail_at(1, 0); /* for the way through the CPU's memory */
  check_fails(sterna_tensor_copy(&a->tensor, &b->tensor), "MemoryError", "out of memory");
  check_fail_at(0, 0);
  sterna_release(a);
  sterna_release(b);
}

/* Memory that the CPU reaches although it belongs to a device type without support here. */
static void host_memory(void) {
  register_both();
  int64_t side = 4;
  int32_t pinned[4] = {5, 6, 7, 8};
  sterna_ndarray *here = new_array(4, cpu), *there = new_array(4, first);
  DLTensor t = {pinned, {kDLCUDAHost, 0}, 1, int32, &side, NULL, 0};
  check(sterna_tensor_copy(&t, &here->tensor) == 0);
  check(memcmp(here->tensor.data, pinned, sizeof pinned) == 0);
  check(sterna_tensor_copy(&t, &there->tensor) == 0);
  memset(pinned, 0, sizeof pinned);
  check(sterna_tensor_copy(&there->tensor, &t) == 0 && pinned[3] == 8);
  t.device.device_type = kDLCUDA;
  check_fails(sterna_tensor_copy(&t, &here->tensor), "RuntimeError", "cuda(0)");
  check_fails(sterna_tensor_copy(&t, &there->tensor), "RuntimeError", "cuda(0)");
  sterna_release(here);
  sterna_release(there);
}

/* Devices of other machines: found by whoever knows them, and together with those of their machine. */
static pretended far = {(DLDeviceType)(2 * STERNA_REMOTE_DEVICES + kDLExtDev), 1, 0, 0, 0, 0, 0, 0};
static pretended far_cpu = {(DLDeviceType)(2 * STERNA_REMOTE_DEVICES + kDLCPU), 1, 0, 0, 0, 0, 0, 0};
static int copies_there;

static int copy_there(void *self, void *to, DLDevice to_device, const void *from,
                      DLDevice from_device, size_t bytes) {
  (void)self;
  copies_there += to_device.device_type != kDLCPU && from_device.device_type != kDLCPU;
  if (bytes) memcpy(to, from, bytes);
  return 0;
}

static const sterna_device_api api_far = {&far,         fake_exists, fake_allocate,
                                          fake_release, copy_there,  fake_sync};
static const sterna_device_api api_far_cpu = {&far_cpu,     fake_exists, fake_allocate,
                                              fake_release, copy_there,  fake_sync};

static const sterna_device_api *find_far(DLDeviceType type) {
  return type == far.type ? &api_far : type == far_cpu.type ? &api_far_cpu : NULL;
}

static void other_machines(void) {
  DLDevice device = {far.type, 1}, processor = {far_cpu.type, 0};
  check(!sterna_device_exists(device));
  check_fails(sterna_device_sync(device), "RuntimeError", "remote device ext_dev(1) has ended");
  sterna_set_remote_devices(find_far);
  check(sterna_device_exists(device) && sterna_device_sync(device) == 0 && far.syncs == 1);
  check(!sterna_device_exists((DLDevice){(DLDeviceType)(far.type + STERNA_REMOTE_DEVICES), 0}));
  check_fails(sterna_device_sync((DLDevice){far.type, 5}), "RuntimeError",
              "no remote device ext_dev(5)");
  check_fails(sterna_device_sync((DLDevice){(DLDeviceType)(2 * STERNA_REMOTE_DEVICES), 0}),
              "ValueError", "256 is no device type");
  check_fails(sterna_register_device(far.type, &api_far), "ValueError", "cannot be registered");
  sterna_ndarray *a = new_array(4, device), *b = new_array(4, processor), *here = new_array(4, cpu);
  int32_t numbers[4] = {1, 2, 3, 4};
  check(sterna_tensor_copy_from_memory(&a->tensor, numbers, sizeof numbers) == 0);
  check(sterna_tensor_copy(&a->tensor, &b->tensor) == 0 && copies_there == 1);
  check(sterna_tensor_copy(&b->tensor, &here->tensor) == 0 && copies_there == 1);
  check(memcmp(here->tensor.data, numbers, sizeof numbers) == 0);
  sterna_release(a);
  sterna_release(b);
  sterna_release(here);
  check(far.blocks == 0 && far_cpu.blocks == 0);
  sterna_set_remote_devices(NULL);
  check(!sterna_device_exists(device));
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"names", names},       {"registering", registering},         {"memory_there", memory_there},
      {"failures", failures}, {"replaced_device", replaced_device}, {"copies", copies},
      {"host_memory", host_memory},       {"other_machines", other_machines},
  };
  return CASES(cases);
}
