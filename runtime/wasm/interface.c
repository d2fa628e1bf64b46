/*
 * What a WebAssembly module with a model in it exports. It imports nothing: any engine runs it.
 *
 *   memory                          its memory, in which all addresses below lie
 *   _initialize()                   must be called once, before anything else
 *   input_count()                   how many inputs there are, parameters apart; -1 on failure
 *   input_name(i)                   address of the name, a text that ends in a zero byte
 *   input_type(i)                   address of its type, such as float32, likewise
 *   input_rank(i), input_shape(i)   how many dimensions, and the address of as many 64-bit numbers
 *   input_bytes(i), input_data(i)   how many bytes, and the address where they are put
 *   output_count(), output_...(i)   the same for outputs, which lie at output_data after a run
 *   run()                           0, or -1 on failure
 *   last_error()                    address of the text that says what failed
 *
 * Addresses of data stay the same for as long as the module lives, but views that JavaScript has
 * over its memory end when the memory grows, which may happen in the first call and in the first
 * run: make views when they are needed.
 */
#include <stdlib.h>
#include <string.h>

#include "sterna.h"

#define EXPORT(name) __attribute__((export_name(#name)))

typedef struct {
  sterna_tensor_info info;
  void *data;
  char type[32];
} tensor;

static sterna_model *model;
static tensor *inputs, *outputs;
static int32_t input_total, output_total;

static int take(tensor *t, const sterna_tensor_info *info) {
  t->info = *info;
  sterna_dtype_name(info->dtype, t->type);
  size_t size = (info->bytes / 64 + 1) * 64;
  t->data = aligned_alloc(64, size);
  if (!t->data) return sterna_set_error("MemoryError", "there is no memory for an input or output");
  memset(t->data, 0, size);
  return 0;
}

static int open_tensors(void) {
  sterna_tensor_info info;
  int32_t all = sterna_model_num_inputs(model);
  output_total = sterna_model_num_outputs(model);
  inputs = calloc((size_t)all + 1, sizeof *inputs);
  outputs = calloc((size_t)output_total + 1, sizeof *outputs);
  if (!inputs || !outputs) return sterna_set_error("MemoryError", "there is no memory for the model");
  for (int32_t i = 0; i < all; i++) {
    if (sterna_model_input_info(model, i, &info)) return -1;
    if (info.is_parameter) continue;
    tensor *t = &inputs[input_total++];
    if (take(t, &info) || sterna_model_bind_input(model, info.name, t->data, info.bytes)) return -1;
  }
  for (int32_t i = 0; i < output_total; i++)
    if (sterna_model_output_info(model, i, &info) || take(&outputs[i], &info) ||
        sterna_model_bind_output(model, i, outputs[i].data, info.bytes))
      return -1;
  return 0;
}

/* Opens the model when it is first asked for anything. */
static int is_open(void) {
  static int state; /* 1: open, -1: it failed, and the message stays */
  if (!state) state = sterna_model_load(NULL, &model) || open_tensors() ? -1 : 1;
  return state == 1;
}

static const tensor *find(const tensor *all, int32_t count, int32_t index, const char *what) {
  if (index >= 0 && index < count) return &all[index];
  sterna_set_errorf("IndexError", "there is no %s %d; the model has %d", what, (int)index, (int)count);
  return NULL;
}

static const tensor *input(int32_t i) { return is_open() ? find(inputs, input_total, i, "input") : NULL; }

static const tensor *output(int32_t i) { return is_open() ? find(outputs, output_total, i, "output") : NULL; }

#define TENSOR(kind)                                                                             \
  EXPORT(kind##_count) int32_t kind##_count(void) { return is_open() ? kind##_total : -1; }      \
  EXPORT(kind##_name) const char *kind##_name(int32_t i) {                                       \
    const tensor *t = kind(i);                                                                   \
    return t ? t->info.name : NULL;                                                              \
  }                                                                                              \
  EXPORT(kind##_type) const char *kind##_type(int32_t i) {                                       \
    const tensor *t = kind(i);                                                                   \
    return t ? t->type : NULL;                                                                   \
  }                                                                                              \
  EXPORT(kind##_rank) int32_t kind##_rank(int32_t i) {                                           \
    const tensor *t = kind(i);                                                                   \
    return t ? t->info.ndim : -1;                                                                \
  }                                                                                              \
  EXPORT(kind##_shape) const int64_t *kind##_shape(int32_t i) {                                  \
    const tensor *t = kind(i);                                                                   \
    return t ? t->info.shape : NULL;                                                             \
  }                                                                                              \
  EXPORT(kind##_bytes) int32_t kind##_bytes(int32_t i) {                                         \
    const tensor *t = kind(i);                                                                   \
    return t ? (int32_t)t->info.bytes : -1;                                                      \
  }                                                                                              \
  EXPORT(kind##_data) void *kind##_data(int32_t i) {                                             \
    const tensor *t = kind(i);                                                                   \
    return t ? t->data : NULL;                                                                   \
  }

TENSOR(input)
TENSOR(output)

EXPORT(run) int32_t run(void) { return is_open() ? sterna_model_run(model) : -1; }

EXPORT(last_error) const char *last_error(void) { return sterna_last_error(); }
