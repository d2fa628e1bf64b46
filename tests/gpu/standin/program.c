/* The CUDA back end from C, for sanitizers: strange bytes, launches in threads, captures, the end. */
#include "kernels.h"
#include "sterna.h"

#include <assert.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int sterna_register_cuda(void);

static const char ptx[] = ".version 8.0\n.entry twice(.param .u64 a, .param .align 64 .b8 m[128]) { ret; }";
static const char extras[] = "pdl\ntiled 7 3 2 64 100 256 32 8\n";

typedef struct {
  unsigned char data[1024];
  size_t size;
} bytes;

static void add_number(bytes *b, uint64_t value) {
  for (int i = 0; i < 8; i++) b->data[b->size++] = (unsigned char)(value >> 8 * i);
}

static void add_text(bytes *b, const char *text) {
  add_number(b, strlen(text));
  memcpy(b->data + b->size, text, strlen(text));
  b->size += strlen(text);
}

static bytes module_bytes(void) {
  bytes b = {{0}, 0};
  add_number(&b, 1);
  add_number(&b, 1);
  add_text(&b, "twice");
  add_text(&b, "pm");
  add_text(&b, extras);
  add_text(&b, ptx);
  return b;
}

static int load(const unsigned char *data, size_t size, sterna_module **out) {
  sterna_function *f = NULL;
  sterna_any ret = sterna_any_none(), value = sterna_any_none();
  assert(sterna_get_global("ffi.Module.load_from_bytes.cuda", &f) == 0 && f);
  char *exact = malloc(size ? size : 1); /* so that a step beyond it is seen */
  memcpy(exact, data, size);
  assert(sterna_bytes_value(exact, size, &value) == 0);
  free(exact);
  int failed = sterna_function_call(f, &value, 1, &ret);
  sterna_any_release(&value);
  sterna_release(f);
  if (!failed) *out = (sterna_module *)ret.v_obj;
  return failed;
}

/* Bytes that were cut off or changed anywhere are refused, or are another module. */
static void check_strange_bytes(void) {
  bytes good = module_bytes();
  sterna_module *m;
  for (size_t size = 0; size < good.size; size++) assert(load(good.data, size, &m) != 0);
  for (size_t i = 0; i < good.size; i++)
    for (int change = 0; change < 6; change++) {
      static const unsigned char values[] = {0, 1, 0x7f, 0x80, 0xff, '9'};
      bytes bad = good;
      bad.data[i] = values[change];
      if (load(bad.data, bad.size, &m) == 0) sterna_release(m);
    }
  sterna_clear_error();
}

static sterna_any address_of(const sterna_ndarray *array) {
  sterna_any v = sterna_any_none();
  v.type_index = STERNA_POINTER;
  v.v_ptr = array->tensor.data;
  return v;
}

static int launch(sterna_function *kernel, const sterna_ndarray *a) {
  sterna_any ret = sterna_any_none(), args[9] = {address_of(a), address_of(a)};
  for (int i = 2; i < 9; i++) args[i] = sterna_any_int(i < 8);
  return sterna_function_call(kernel, args, 9, &ret);
}

static sterna_ndarray *make(int64_t size) {
  sterna_ndarray *a;
  assert(sterna_ndarray_empty(&size, 1, (DLDataType){kDLFloat, 32, 1}, (DLDevice){kDLCUDA, 0}, &a) == 0);
  return a;
}

static void *work(void *kernel) {
  for (int i = 0; i < 50; i++) {
    sterna_ndarray *a = make(100 + i % 7);
    float values[110] = {0};
    assert(launch(kernel, a) == 0);
    assert(sterna_tensor_copy_to_memory(&a->tensor, values, (size_t)(100 + i % 7) * 4) == 0);
    sterna_release(a);
  }
  return NULL;
}

static void check_threads(sterna_function *kernel) {
  pthread_t threads[4];
  for (int i = 0; i < 4; i++) assert(pthread_create(&threads[i], NULL, work, kernel) == 0);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
}

typedef struct {
  sterna_function *kernel, *take, *give;
  sterna_ndarray *array;
  int runs;
} steps;

/* Takes workspace, as compiled code does. */
static int run_step(void *self, int32_t step) {
  steps *s = self;
  sterna_any args[2] = {address_of(s->array), sterna_any_int(1000)}, space = sterna_any_none();
  sterna_any nothing = sterna_any_none();
  (void)step;
  s->runs++;
  if (sterna_function_call(s->take, args, 2, &space) || launch(s->kernel, s->array)) return -1;
  return sterna_function_call(s->give, &space, 1, &nothing);
}

static void check_captures(sterna_module *module, sterna_function *kernel) {
  steps s = {kernel, NULL, NULL, make(64), 0};
  const void *addresses[2] = {s.array->tensor.data, NULL};
  uint64_t nanoseconds[3] = {0};
  sterna_function *replay;
  sterna_replay run = {sizeof run, {kDLCUDA, 0}, run_step, &s, addresses, 3, 2, NULL, NULL, NULL};
  sterna_any ret = sterna_any_none(), value = sterna_any_none();
  value.type_index = STERNA_POINTER;
  value.v_ptr = &run;
  assert(sterna_module_get_function(module, "__sterna_take_workspace", 0, &s.take) == 0 && s.take);
  assert(sterna_module_get_function(module, "__sterna_give_workspace_back", 0, &s.give) == 0 && s.give);
  assert(sterna_get_global("sterna.replay.cuda", &replay) == 0 && replay);
  for (int i = 0; i < 40; i++) {
    addresses[1] = (void *)(uintptr_t)(i % 10 + 1); /* more than are kept */
    assert(sterna_function_call(replay, &value, 1, &ret) == 0);
  }
  assert(s.runs > 20 && s.runs <= 120);
  int before = s.runs;
  assert(sterna_function_call(replay, &value, 1, &ret) == 0 && s.runs == before);
  run.nanoseconds = nanoseconds;
  assert(sterna_function_call(replay, &value, 1, &ret) == 0 && s.runs == before + 9);
  run.nanoseconds = NULL;
  run.step_count = 1;
  for (int i = 0; i < 12; i++) {
    addresses[1] = (void *)(uintptr_t)(100 + i % 2);
    before = s.runs;
    assert(sterna_function_call(replay, &value, 1, &ret) == 0 && s.runs == before + (i < 4));
  }
  run.end(run.kept);
  sterna_release(replay);
  sterna_release(s.take);
  sterna_release(s.give);
  sterna_release(s.array);
}

int main(void) {
  bytes good = module_bytes();
  sterna_module *module;
  sterna_function *kernel;
  assert(sterna_register_cuda() == 0);
  assert(sterna_device_exists((DLDevice){kDLCUDA, 1}));
  check_strange_bytes();
  assert(load(good.data, good.size, &module) == 0);
  assert(sterna_module_get_function(module, "twice", 0, &kernel) == 0 && kernel);
  check_threads(kernel);
  check_captures(module, kernel);
  sterna_release(kernel);
  sterna_release(module);
  sterna_shutdown();
  puts("all is well");
  return 0;
}
