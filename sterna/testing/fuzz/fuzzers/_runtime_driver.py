"""The program, in C, that gives hostile graphs and parameters to the runtime."""

# Reads cases from its input, two sizes of four bytes and then a graph and parameters, and answers
# each with a line. Its kernels read all bytes of their operands and write all of the last one. All
# memory is the runtime's: what is left of it when a case has ended has leaked.
DRIVER = r"""
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "sterna.h"

static int alive;

static void *take(void *self, size_t bytes, size_t alignment) {
  void *block = NULL;
  (void)self;
  if (alignment < sizeof block) alignment = sizeof block;
  if (bytes > (64u << 20) || posix_memalign(&block, alignment, bytes ? bytes : 1)) return NULL;
  memset(block, 0xa5, bytes);
  __atomic_fetch_add(&alive, 1, __ATOMIC_RELAXED);
  return block;
}

static void give(void *self, void *block) {
  (void)self;
  if (block) __atomic_fetch_sub(&alive, 1, __ATOMIC_RELAXED);
  free(block);
}

static int kernel(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  volatile unsigned sum = 0;
  (void)self, (void)ret;
  for (int32_t i = 0; i < n; i++) {
    DLTensor *t;
    size_t bytes;
    if (sterna_as_tensor(&args[i], &t) || sterna_tensor_bytes(t, &bytes)) return -1;
    unsigned char *data = (unsigned char *)t->data + t->byte_offset;
    for (size_t k = 0; k < bytes; k++) sum += data[k];
    if (i == n - 1 && bytes) memset(data, 1, bytes);
  }
  return 0;
}

static int any_function(sterna_module *module, void *self, const char *name,
                        sterna_function **out) {
  (void)self;
  if (name[0] == '_') return *out = NULL, 0;
  return sterna_module_function(module, kernel, NULL, out);
}

static const sterna_module_type any_type = {"any", any_function, NULL};

static const char *try_case(const char *graph, uint32_t size, const char *params, uint32_t count) {
  const DLDevice cpu = {kDLCPU, 0};
  sterna_module *functions = NULL;
  sterna_model *model = NULL, *other = NULL;
  const char *ending = "refused";
  if (sterna_module_create(&any_type, NULL, &functions)) return "no module";
  if (!sterna_model_create(graph, size, functions, &cpu, 1, &model)) {
    ending = sterna_model_load_params(model, params, count) ? "params refused" : "params taken";
    for (int32_t i = -1; i <= sterna_model_num_inputs(model); i++) {
      sterna_tensor_info info;
      if (sterna_model_input_info(model, i, &info) || info.bytes > 1 << 16) continue;
      char *data = calloc(1, info.bytes + 1);
      sterna_model_set_input(model, info.name, data, info.bytes);
      free(data);
    }
    if (sterna_model_run(model)) ending = "failed";
    if (!sterna_model_share(model, &other)) sterna_model_run(other);
    for (int32_t i = -1; i <= sterna_model_num_outputs(model); i++) {
      sterna_tensor_info info;
      if (sterna_model_output_info(model, i, &info) || info.bytes > 1 << 16) continue;
      char *data = malloc(info.bytes + 1);
      sterna_model_get_output(model, i, data, info.bytes);
      free(data);
    }
  }
  sterna_model_free(other);
  sterna_model_free(model);
  sterna_release(functions);
  sterna_clear_error();
  return ending;
}

int main(void) {
  static const sterna_allocator counted = {NULL, take, give};
  uint32_t sizes[2];
  if (sterna_set_allocator(&counted) || sterna_set_num_threads(1)) return 2;
  try_case("{}", 2, "", 0); /* what is made once is made now */
  int before = alive;
  while (fread(sizes, 4, 2, stdin) == 2) {
    char *graph = malloc(sizes[0] + 1u), *params = malloc(sizes[1] + 1u);
    if (fread(graph, 1, sizes[0], stdin) != sizes[0]) return 3;
    if (fread(params, 1, sizes[1], stdin) != sizes[1]) return 3;
    const char *ending = try_case(graph, sizes[0], params, sizes[1]);
    printf("%s\n", alive == before ? ending : "leaked");
    fflush(stdout);
    free(graph);
    free(params);
  }
  return 0;
}
"""
