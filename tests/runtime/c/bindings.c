/* What executors read and write: copies, the caller's own memory, shared parameters, threads. */
#include <pthread.h>
#include <stddef.h>

#include "network.h"

static const float numbers[6] = {1, 2, 3, 4, 5, 6}, weights[6] = {10, 20, 30, 40, 50, 60};

static sterna_model *network(void) {
  sterna_model *m = NULL;
  check(make_network(NETWORK_PLANNED, &m) == 0);
  return m;
}

/* Parameters in the format of save_param_dict; the size. */
static size_t write_params(char *into, const char *name, const float *values, int64_t rows, int64_t columns) {
  const uint64_t head[] = {0xF7E58D4F05049CB7u, 0, 1, strlen(name)};
  const uint64_t middle[] = {1, 0xDD5E40F096B4A13Fu, 0};
  const int32_t device_and_ndim[] = {1, 0, 2};
  const DLDataType dtype = {kDLFloat, 32, 1};
  const int64_t shape[] = {rows, columns, rows * columns * 4};
  char *at = into;
#define PUT(from, size) (memcpy(at, from, size), at += (size))
  PUT(head, sizeof head);
  PUT(name, strlen(name));
  PUT(middle, sizeof middle);
  PUT(device_and_ndim, sizeof device_and_ndim);
  PUT(&dtype, sizeof dtype);
  PUT(shape, sizeof shape);
  PUT(values, (size_t)shape[2]);
  return (size_t)(at - into);
}

static void load_weights(sterna_model *m) {
  char bytes[400];
  check(sterna_model_load_params(m, bytes, write_params(bytes, "w", weights, 2, 3)) == 0);
}

/* Whether the output is 2 (x + w). */
static int gives(sterna_model *m, int32_t output, const float *x, const float *w) {
  float y[6];
  if (!check(sterna_model_get_output(m, output, y, sizeof y) == 0)) return 0;
  for (int i = 0; i < 6; i++)
    if (y[i] != 2 * ((x ? x[i] : 0) + (w ? w[i] : 0))) return 0;
  return 1;
}

static void copies(void) {
  sterna_model *m = network();
  float y[6];
  check(sterna_model_run(m) == 0 && gives(m, 0, NULL, NULL)); /* what nobody sets is zero */
  check(sterna_model_set_input(m, "x", numbers, sizeof numbers) == 0);
  check(sterna_model_run(m) == 0 && gives(m, 0, numbers, NULL) && gives(m, 1, numbers, NULL));
  check_fails(sterna_model_set_input(m, "v", numbers, sizeof numbers), "RuntimeError",
              "Could not find 'v' in graph's inputs; they are 'x', 'w'");
  check_fails(sterna_model_set_input(m, "x", numbers, 23), "ValueError", "'x' has 24 bytes, but 23 were given");
  check_fails(sterna_model_get_output(m, 0, y, 28), "ValueError", "'y' has 24 bytes, but 28 were given");
  check_fails(sterna_model_get_output(m, 4, y, 24), "IndexError", "there is no output 4");
  sterna_model_free(m);
  sterna_model_free(NULL);
}

static void bound_inputs(void) {
  sterna_model *m = network();
  float mine[6] = {7, 7, 7, 7, 7, 7};
  check(sterna_model_set_input(m, "x", numbers, sizeof numbers) == 0);
  check(sterna_model_bind_input(m, "x", mine, sizeof mine) == 0);
  check(sterna_model_run(m) == 0 && gives(m, 0, mine, NULL));
  mine[3] = 8; /* read where it lies */
  check(sterna_model_run(m) == 0 && gives(m, 0, mine, NULL));
  check(sterna_model_set_input(m, "x", numbers, sizeof numbers) == 0); /* into the executor's own */
  check(mine[0] == 7 && sterna_model_run(m) == 0 && gives(m, 0, numbers, NULL));
  check(sterna_model_bind_input(m, "x", mine, sizeof mine) == 0);
  check(sterna_model_bind_input(m, "x", NULL, 0) == 0);
  memset(mine, 0, sizeof mine);
  check(sterna_model_run(m) == 0 && gives(m, 0, numbers, NULL));
  check_fails(sterna_model_bind_input(m, "x", mine, 8), "ValueError", "'x' has 24 bytes");
  check_fails(sterna_model_bind_input(m, "v", mine, 24), "RuntimeError", "Could not find 'v'");
  check_fails(sterna_model_bind_input(m, "v", NULL, 0), "RuntimeError", "Could not find 'v'");
  check_fails(sterna_model_bind_input(m, "x", (char *)mine + 1, 24), "ValueError",
              "input 'x' is not aligned to its type");
  sterna_model_free(m);
}

static void bound_outputs(void) {
  sterna_model *m = network();
  float first[6] = {0}, second[6] = {0}, row[6] = {0};
  check(sterna_model_set_input(m, "x", numbers, sizeof numbers) == 0);
  check(sterna_model_bind_output(m, 0, first, sizeof first) == 0);
  check(sterna_model_run(m) == 0 && first[5] == 12 && gives(m, 0, numbers, NULL));
  /* all outputs of one memory are right, wherever it lies and however many are bound */
  check(gives(m, 1, numbers, NULL) && gives(m, 3, numbers, NULL));
  check(sterna_model_bind_output(m, 3, second, sizeof second) == 0);
  check(sterna_model_bind_output(m, 2, row, sizeof row) == 0);
  memset(first, 0, sizeof first);
  long before = check_allocations();
  check(sterna_model_run(m) == 0 && check_allocations() == before);
  check(first[5] == 12 && second[5] == 12 && memcmp(row, numbers, sizeof row) == 0);
  check(gives(m, 1, numbers, NULL));
  check(sterna_model_bind_output(m, 0, NULL, 0) == 0);
  memset(first, 0, sizeof first);
  memset(second, 0, sizeof second);
  check(sterna_model_run(m) == 0 && first[5] == 0 && second[5] == 12 && gives(m, 0, numbers, NULL));
  check_fails(sterna_model_bind_output(m, 0, first, 4), "ValueError", "'y' has 24 bytes, but 4 were given");
  check_fails(sterna_model_bind_output(m, 9, first, 24), "IndexError", "no output 9");
  check_fails(sterna_model_bind_output(m, 9, NULL, 0), "IndexError", "no output 9");
  check_fails(sterna_model_bind_output(m, 0, (char *)first + 2, 20), "ValueError", "");
  sterna_model_free(m);
}

/* An output that lies where an input does: a state that each run takes on. */
static void output_over_input(void) {
  sterna_model *m = network();
  float state[7] = {1, 2, 3, 4, 5, 6, 7};
  check(sterna_model_bind_output(m, 0, state, 24) == 0);
  check(sterna_model_bind_input(m, "x", state, 24) == 0);
  check(sterna_model_run(m) == 0 && state[0] == 2 && state[5] == 12);
  check(sterna_model_run(m) == 0 && state[0] == 4 && state[5] == 24);
  /* and where they overlap in part */
  check(sterna_model_bind_output(m, 0, state + 1, 24) == 0);
  for (int i = 0; i < 7; i++) state[i] = (float)i;
  check(sterna_model_run(m) == 0 && state[0] == 0 && state[1] == 0 && state[2] == 2 && state[6] == 10);
  /* two outputs in one place: the later one is there */
  check(sterna_model_bind_input(m, "x", numbers, 24) == 0);
  check(sterna_model_bind_output(m, 2, state + 1, 24) == 0);
  check(sterna_model_run(m) == 0 && state[1] == 1 && state[6] == 6);
  sterna_model_free(m);
}

/* ---- by packed functions ---- */

static int call(sterna_module *module, const char *name, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_function *f = NULL;
  *ret = sterna_any_none();
  if (!check(sterna_module_get_function(module, name, 0, &f) == 0 && f)) return -2;
  int failed = sterna_function_call(f, args, n, ret);
  sterna_release(f);
  return failed;
}

static sterna_ndarray *array_of(const float *values, DLDataType dtype) {
  static const int64_t shape[] = {2, 3};
  sterna_ndarray *array = NULL;
  check(sterna_ndarray_empty(shape, 2, dtype, network_cpu, &array) == 0);
  check(sterna_tensor_copy_from_memory(&array->tensor, values, 24) == 0);
  return array;
}

static void own_memory(void) {
  sterna_model *m = network();
  sterna_module *module = NULL;
  sterna_any ret, args[2];
  float y[6];
  check(sterna_model_module(m, &module) == 0);
  check_text(sterna_module_kind(module), "GraphExecutor");
  check(sterna_model_set_input(m, "x", numbers, sizeof numbers) == 0 && sterna_model_run(m) == 0);
  args[0] = sterna_any_int(0);
  check(call(module, "get_output", args, 1, &ret) == 0 && ret.type_index == STERNA_NDARRAY);
  sterna_any output = ret;
  /* a run would overwrite it while it reads it */
  args[0] = sterna_any_c_string("x");
  args[1] = output;
  check_fails(call(module, "set_input_zero_copy", args, 2, &ret), "ValueError", "the executor's own memory");
  check(call(module, "set_input", args, 2, &ret) == 0); /* a copy is fine */
  check(sterna_model_run(m) == 0 && sterna_model_get_output(m, 0, y, 24) == 0 && y[5] == 24);
  /* an output may be sent there */
  args[0] = sterna_any_int(2);
  int64_t six = 6;
  sterna_ndarray *view = NULL;
  check(sterna_ndarray_view((sterna_ndarray *)output.v_obj, &six, 1, (DLDataType){kDLFloat, 32, 1}, 0, &view) == 0);
  args[1] = sterna_any_object(view);
  check(call(module, "set_output_zero_copy", args, 2, &ret) == 0 && sterna_model_run(m) == 0);
  check(((float *)view->tensor.data)[5] == 12); /* x, and no longer y */
  /* or into the memory of an input */
  args[0] = sterna_any_c_string("w");
  check(call(module, "get_input", args, 1, &ret) == 0);
  sterna_any w = ret;
  args[0] = sterna_any_int(0);
  args[1] = w;
  check(sterna_model_set_input(m, "x", numbers, 24) == 0);
  check(call(module, "set_output_zero_copy", args, 2, &ret) == 0);
  check(sterna_model_run(m) == 0 && sterna_model_run(m) == 0); /* w = 2 (x + 2 (x + 0)) */
  check(((float *)((sterna_ndarray *)w.v_obj)->tensor.data)[5] == 36);
  sterna_any_release(&w);
  sterna_release(view);
  sterna_model_free(m); /* what was handed out lives on */
  sterna_release(module);
  check(((float *)((sterna_ndarray *)output.v_obj)->tensor.data)[5] == 6);
  sterna_any_release(&output);
}

/* A run on the caller's arrays: two inputs, then four outputs, one of which shows an input. */
static void run_on(void) {
  sterna_model *m = network();
  sterna_module *module = NULL;
  sterna_any ret, args[6];
  DLTensor tensors[6];
  float x[6], w[6], results[4][6];
  check(sterna_model_module(m, &module) == 0);
  for (int i = 0; i < 6; i++) {
    sterna_tensor_info info;
    check((i < 2 ? sterna_model_input_info(m, i, &info) : sterna_model_output_info(m, i - 2, &info)) == 0);
    void *data = i == 0 ? x : i == 1 ? w : results[i - 2];
    tensors[i] = (DLTensor){data, network_cpu, info.ndim, info.dtype, (int64_t *)(uintptr_t)info.shape, NULL, 0};
    args[i] = sterna_any_tensor(&tensors[i]);
  }
  check(sterna_model_set_input(m, "x", weights, 24) == 0);
  for (int turn = 1; turn < 4; turn++) {
    for (int i = 0; i < 6; i++) x[i] = (float)(turn * i), w[i] = 1;
    check(call(module, "run_on", args, 6, &ret) == 0);
    for (int i = 0; i < 6; i++)
      check(results[0][i] == 2 * (x[i] + 1) && results[1][i] == results[0][i] && results[2][i] == x[i]);
    check(w[0] == 1 && w[5] == 1 && x[5] == (float)(turn * 5));
  }
  check(sterna_model_run(m) == 0 && gives(m, 0, weights, NULL)); /* as if it had not been */
  check_fails(call(module, "run_on", args, 5, &ret), "TypeError", "takes 2 inputs and 4 outputs, not 5 arrays");
  tensors[2].data = x;
  check_fails(call(module, "run_on", args, 6, &ret), "ValueError", "output 'y' shares memory with an input");
  tensors[2].data = (char *)results + 1;
  check_fails(call(module, "run_on", args, 6, &ret), "ValueError", "output 'y' is not aligned");
  tensors[2].data = results[1];
  check_fails(call(module, "run_on", args, 6, &ret), "ValueError", "shares memory with an input or with");
  tensors[2].data = results[0];
  args[1] = sterna_any_int(3);
  check_fails(call(module, "run_on", args, 6, &ret), "TypeError", "expected an array");
  args[1] = sterna_any_tensor(&tensors[1]);
  load_weights(m); /* a parameter is no input of a run */
  args[1] = args[0];
  check(call(module, "run_on", args + 1, 5, &ret) == 0 && results[0][5] == 2 * (x[5] + weights[5]));
  sterna_release(module);
  sterna_model_free(m);
}

static void packed_functions(void) {
  const DLDataType float32 = {kDLFloat, 32, 1}, int32 = {kDLInt, 32, 1};
  sterna_model *m = network();
  sterna_module *module = NULL;
  sterna_any ret, args[2];
  check(sterna_model_module(m, &module) == 0);
  sterna_ndarray *x = array_of(numbers, float32), *wrong = array_of(numbers, int32), *back;
  sterna_function *none = NULL;
  check(sterna_module_get_function(module, "nothing", 0, &none) == 0 && !none);
  args[0] = sterna_any_c_string("x");
  args[1] = sterna_any_object(x);
  check(call(module, "set_input", args, 2, &ret) == 0);
  args[1] = sterna_any_object(wrong);
  check_fails(call(module, "set_input", args, 2, &ret), "ValueError",
              "input 'x' is float32[2, 3], but int32[2, 3] was given");
  check_fails(call(module, "set_input", args, 1, &ret), "TypeError", "set_input takes 2 arguments, not 1");
  DLTensor bare = x->tensor;
  args[1] = sterna_any_tensor(&bare);
  check(call(module, "set_input", args, 2, &ret) == 0);
  check_fails(call(module, "set_input_zero_copy", args, 2, &ret), "TypeError", "bare DLTensor");
  int64_t backwards[] = {1, 2};
  bare.strides = backwards;
  check_fails(call(module, "set_input", args, 2, &ret), "ValueError", "'x' is not contiguous");
  check(call(module, "run", NULL, 0, &ret) == 0 && gives(m, 0, numbers, NULL));
  check(call(module, "get_num_inputs", NULL, 0, &ret) == 0 && ret.v_int64 == 2);
  check(call(module, "get_num_outputs", NULL, 0, &ret) == 0 && ret.v_int64 == 4);
  static const struct {
    const char *function, *name;
    int64_t index;
  } indices[] = {{"get_input_index", "w", 1},   {"get_input_index", "y", -1},
                 {"get_output_index", "y", 0},  {"get_output_index", "row", 2},
                 {"get_output_index", "x", -1}, {"get_output_index", "ro", -1}};
  for (size_t i = 0; i < sizeof indices / sizeof *indices; i++) {
    args[0] = sterna_any_c_string(indices[i].name);
    check(call(module, indices[i].function, args, 1, &ret) == 0 && ret.v_int64 == indices[i].index);
  }
  args[0] = sterna_any_int(1);
  args[1] = sterna_any_object(x);
  check(call(module, "set_input", args, 2, &ret) == 0);
  args[0] = sterna_any_int(2);
  check_fails(call(module, "set_input", args, 2, &ret), "IndexError", "there is no input 2");
  args[0] = sterna_any_int(0);
  check(call(module, "run", NULL, 0, &ret) == 0 && call(module, "get_output", args, 2, &ret) == 0);
  check(((float *)x->tensor.data)[5] == 24);
  args[1] = sterna_any_int(5);
  check_fails(call(module, "get_output", args, 2, &ret), "TypeError", "an array");
  check_fails(call(module, "get_output", NULL, 0, &ret), "TypeError", "takes 2 arguments, not 0");
  /* looking inside */
  check(call(module, "get_node_names", NULL, 0, &ret) == 0 && ret.type_index == STERNA_LIST);
  sterna_any_release(&ret);
  args[0] = sterna_any_int(2);
  args[1] = sterna_any_int(0);
  check(call(module, "run_node", args, 1, &ret) == 0);
  check(call(module, "get_node_output", args, 2, &ret) == 0);
  back = (sterna_ndarray *)ret.v_obj;
  check(((float *)back->tensor.data)[5] == 12);
  sterna_any_release(&ret);
  args[1] = sterna_any_int(1);
  check_fails(call(module, "get_node_output", args, 2, &ret), "IndexError", "no node 2 with an output 1");
  args[0] = sterna_any_int(6);
  check_fails(call(module, "run_node", args, 1, &ret), "IndexError", "no node 6");
  check(call(module, "reset", NULL, 0, &ret) == 0 && call(module, "run", NULL, 0, &ret) == 0);
  check(gives(m, 0, NULL, NULL));
  sterna_release(x);
  sterna_release(wrong);
  sterna_release(module);
  sterna_model_free(m);
}

static void times(void) {
  sterna_model *m = network();
  sterna_module *module = NULL;
  uint64_t took[6];
  int64_t shape = 6;
  sterna_ndarray *array = NULL, *short_one = NULL;
  sterna_any ret, arg;
  check(sterna_model_run_timed(m, took) == 0);
  check(took[0] == 0 && took[1] == 0 && took[2] > 0 && took[3] > 0 && took[4] == 0);
  check(sterna_model_module(m, &module) == 0);
  check(sterna_ndarray_empty(&shape, 1, (DLDataType){kDLInt, 64, 1}, network_cpu, &array) == 0);
  shape = 5;
  check(sterna_ndarray_empty(&shape, 1, (DLDataType){kDLInt, 64, 1}, network_cpu, &short_one) == 0);
  arg = sterna_any_object(array);
  check(call(module, "run_timed", &arg, 1, &ret) == 0 && ((int64_t *)array->tensor.data)[3] > 0);
  arg = sterna_any_object(short_one);
  check_fails(call(module, "run_timed", &arg, 1, &ret), "ValueError", "int64[6]");
  sterna_release(array);
  sterna_release(short_one);
  sterna_release(module);
  sterna_model_free(m);
}

/* ---- parameters ---- */

static void parameters(void) {
  sterna_model *m = network(), *second = NULL;
  sterna_tensor_info info;
  float other[6] = {0};
  load_weights(m);
  check(sterna_model_input_info(m, 1, &info) == 0 && info.is_parameter);
  check(sterna_model_run(m) == 0 && gives(m, 0, NULL, weights));
  check(sterna_model_share(m, &second) == 0);
  check(sterna_model_run(second) == 0 && gives(second, 0, NULL, weights));
  /* other values are for one executor alone */
  check(sterna_model_set_input(m, "w", other, sizeof other) == 0);
  check(sterna_model_run(m) == 0 && gives(m, 0, NULL, NULL));
  check(sterna_model_run(second) == 0 && gives(second, 0, NULL, weights));
  check(sterna_model_bind_input(m, "w", NULL, 0) == 0);
  check(sterna_model_run(m) == 0 && gives(m, 0, NULL, weights));
  check_fails(sterna_model_set_input(m, "v", other, 24), "RuntimeError", "they are 'x'");
  sterna_model_free(m);
  check(sterna_model_set_input(second, "x", numbers, 24) == 0);
  check(sterna_model_run(second) == 0 && gives(second, 0, numbers, weights));
  sterna_model_free(second);
}

static void sharing(void) {
  sterna_model *a = network(), *b = network();
  sterna_module *from = NULL, *to = NULL;
  char bytes[400];
  size_t size = write_params(bytes, "w", weights, 2, 3);
  sterna_bytes view = {bytes, size};
  sterna_any ret, args[2] = {sterna_any_none(), sterna_any_none()};
  load_weights(a);
  check(sterna_model_module(a, &from) == 0 && sterna_model_module(b, &to) == 0);
  args[0] = sterna_any_object(from);
  args[1].type_index = STERNA_BYTES_VIEW;
  args[1].v_ptr = &view;
  check(call(to, "share_params", args, 2, &ret) == 0);
  check(sterna_model_run(b) == 0 && gives(b, 0, NULL, weights));
  sterna_any w[2] = {sterna_any_c_string("w"), sterna_any_none()};
  sterna_any first, second;
  check(call(from, "get_input", w, 1, &first) == 0 && call(to, "get_input", w, 1, &second) == 0);
  sterna_ndarray *one = (sterna_ndarray *)first.v_obj, *two = (sterna_ndarray *)second.v_obj;
  check(one->tensor.data == two->tensor.data && sterna_ndarray_is_read_only(one));
  sterna_any_release(&first);
  sterna_any_release(&second);
  /* what its owner may still change is copied */
  check(sterna_model_set_input(a, "w", numbers, 24) == 0 && call(to, "share_params", args, 2, &ret) == 0);
  check(sterna_model_set_input(a, "w", weights, 24) == 0);
  check(sterna_model_run(b) == 0 && gives(b, 0, NULL, numbers));
  check_fails(call(from, "share_params", args, 2, &ret), "RuntimeError", "in use");
  sterna_module *table = network_module();
  args[0] = sterna_any_object(table);
  check_fails(call(to, "share_params", args, 2, &ret), "TypeError", "another executor");
  sterna_release(table);
  sterna_release(from);
  sterna_release(to);
  sterna_model_free(a);
  sterna_model_free(b);
}

static void broken_parameters(void) {
  sterna_model *m = network();
  char bytes[400], changed[400];
  size_t size = write_params(bytes, "w", weights, 2, 3);
  for (size_t left = 0; left < size; left++) {
    char *exact = malloc(left); /* so that reading past its end is seen */
    memcpy(exact, bytes, left);
    check_fails(sterna_model_load_params(m, exact, left), "ValueError", "end too early");
    free(exact);
  }
  check_fails(sterna_model_load_params(m, bytes, size + 1), "ValueError", "something follows");
  check(sterna_model_run(m) == 0 && gives(m, 0, NULL, NULL)); /* nothing of them was taken */
  size = write_params(bytes, "w", weights, 3, 2);
  check_fails(sterna_model_load_params(m, bytes, size), "ValueError",
              "parameter 'w' is float32[2, 3], but float32[3, 2] was given");
  size = write_params(bytes, "unknown", weights, 3, 2);
  check(sterna_model_load_params(m, bytes, size) == 0);
  size = write_params(bytes, "w", weights, 2, 3);
  for (int round = 0; round < 20000; round++) {
    memcpy(changed, bytes, size);
    for (int changes = 1 + (int)(check_random() % 3); changes > 0; changes--)
      changed[check_random() % size] = (char)check_random();
    if (sterna_model_load_params(m, changed, size)) sterna_clear_error();
    check(sterna_model_run(m) == 0);
  }
  sterna_model_free(m);
}

/* ---- threads ---- */

static sterna_model *busy_model;

static int node_run_again(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self, (void)args, (void)n, (void)ret;
  return sterna_model_run(busy_model);
}

static void in_use(void) {
  static const sterna_table_entry entries[] = {{"add", node_run_again}, {"double", node_double}};
  sterna_module *module = NULL;
  char *json = json_of(NETWORK_CLASSIC);
  check(sterna_module_from_table(entries, 2, &module) == 0);
  check(sterna_model_create(json, strlen(json), module, &network_cpu, 1, &busy_model) == 0);
  check_fails(sterna_model_run(busy_model), "RuntimeError", "node 'sum': the executor is in use");
  check_fails(sterna_model_run(busy_model), "RuntimeError", "node 'sum'"); /* not for good */
  sterna_model_free(busy_model);
  sterna_release(module);
  free(json);
}

static void *run_many(void *data) {
  sterna_model *m = data;
  for (int turn = 0; turn < 300; turn++) {
    float x[6];
    for (int i = 0; i < 6; i++) x[i] = (float)(turn + i);
    check(sterna_model_set_input(m, "x", x, sizeof x) == 0 && sterna_model_run(m) == 0);
    check(gives(m, 0, x, weights));
  }
  return NULL;
}

static void threads(void) {
  sterna_model *models[4] = {network()};
  pthread_t running[4];
  load_weights(models[0]);
  for (int i = 1; i < 4; i++) check(sterna_model_share(models[0], &models[i]) == 0);
  for (int i = 0; i < 4; i++) pthread_create(&running[i], NULL, run_many, models[i]);
  for (int i = 0; i < 4; i++) pthread_join(running[i], NULL);
  for (int i = 0; i < 4; i++) sterna_model_free(models[i]);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"copies", copies},
      {"bound_inputs", bound_inputs},
      {"bound_outputs", bound_outputs},
      {"output_over_input", output_over_input},
      {"own_memory", own_memory},
      {"run_on", run_on},
      {"packed_functions", packed_functions},
      {"times", times},
      {"parameters", parameters},
      {"sharing", sharing},
      {"broken_parameters", broken_parameters},
      {"in_use", in_use},
      {"threads", threads},
  };
  return CASES(cases);
}
