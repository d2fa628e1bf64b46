/* An executor as a module: its functions, under the names that the classic API gives them. */
#include "internal.h"

#include <string.h>

typedef int (*executor_call)(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret);

/* ---- arguments ---- */

/* An input by its name or its number. */
static int read_input(const sterna_model *m, const sterna_any *key, uint32_t *out) {
  int64_t index = 0;
  sterna_bytes name;
  if (key->type_index == STERNA_INT)
    return sterna_as_int(key, &index) || binding_check_input(m, index, out) ? -1 : 0;
  return sterna_as_string(key, &name) || binding_find_input(m, name.data, name.size, out) ? -1 : 0;
}

static int read_output(const sterna_model *m, const sterna_any *key, uint32_t *out) {
  int64_t index = 0;
  return sterna_as_int(key, &index) || binding_check_output(m, index, out) ? -1 : 0;
}

/* An array that can be kept. */
static int read_array(const sterna_any *value, sterna_ndarray **out) {
  DLTensor *tensor;
  if (sterna_as_tensor(value, &tensor)) return -1;
  if (value->type_index == STERNA_TENSOR_VIEW)
    return sterna_set_error("TypeError", "a bare DLTensor cannot be kept; pass an array object");
  *out = (sterna_ndarray *)((char *)tensor - offsetof(sterna_ndarray, tensor));
  return 0;
}

static int give_array(int failed, sterna_ndarray *array, sterna_any *ret) {
  if (!failed) *ret = sterna_any_object(array);
  return failed;
}

/* ---- inputs and outputs ---- */

static int call_set_input(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  uint32_t input = 0;
  DLTensor *values;
  (void)n;
  (void)ret;
  return read_input(m, &args[0], &input) || sterna_as_tensor(&args[1], &values) ||
                 binding_set_input(m, input, values)
             ? -1
             : 0;
}

static int call_set_input_zero_copy(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  uint32_t input = 0;
  sterna_ndarray *array = NULL;
  (void)n;
  (void)ret;
  if (read_input(m, &args[0], &input)) return -1;
  if (args[1].type_index != STERNA_NONE && read_array(&args[1], &array)) return -1;
  return binding_bind_input(m, input, array);
}

static int call_set_output_zero_copy(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  uint32_t output = 0;
  sterna_ndarray *array = NULL;
  (void)n;
  (void)ret;
  if (read_output(m, &args[0], &output)) return -1;
  if (args[1].type_index != STERNA_NONE && read_array(&args[1], &array)) return -1;
  return binding_bind_output(m, output, array);
}

static int call_get_input(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  uint32_t input = 0;
  sterna_ndarray *array = NULL;
  (void)n;
  int failed = read_input(m, &args[0], &input) || binding_get_input(m, input, &array);
  return give_array(failed, array, ret);
}

static int call_get_output(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  uint32_t output = 0;
  DLTensor *into;
  sterna_ndarray *array = NULL;
  if (read_output(m, &args[0], &output) || binding_get_output(m, output, &array)) return -1;
  if (n == 1) return give_array(0, array, ret);
  int failed = sterna_as_tensor(&args[1], &into) ||
               binding_check_writable(m, output, &args[1]) ||
               sterna_tensor_copy(&array->tensor, into);
  sterna_release(array);
  return failed;
}

static int call_get_num_inputs(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)args;
  (void)n;
  *ret = sterna_any_int(m->g->input_count);
  return 0;
}

static int call_get_num_outputs(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)args;
  (void)n;
  *ret = sterna_any_int(m->g->output_count);
  return 0;
}

static int call_get_input_index(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_bytes name;
  (void)n;
  if (sterna_as_string(&args[0], &name)) return -1;
  uint32_t input = graph_find_input(m->g, name.data, name.size);
  *ret = sterna_any_int(input == NO_INPUT ? -1 : (int64_t)input);
  return 0;
}

static int call_get_output_index(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_bytes name;
  (void)n;
  if (sterna_as_string(&args[0], &name)) return -1;
  *ret = sterna_any_int(-1);
  for (uint32_t i = m->g->output_count; i-- > 0;) {
    const char *own = binding_output_node(m, i)->name;
    if (strlen(own) == name.size && memcmp(own, name.data, name.size) == 0) *ret = sterna_any_int(i);
  }
  return 0;
}

/* A list of lists: name, shape and type of each input that is no parameter. */
static int call_get_input_info(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_any *rows = memory_allocate(m->g->input_count * sizeof *rows, 16);
  int64_t count = 0;
  int failed = !rows;
  (void)args;
  (void)n;
  for (uint32_t i = 0; !failed && i < m->g->input_count; i++) {
    const graph_node *node = &m->g->nodes[m->g->inputs[i]];
    const DLTensor *t = &m->g->views[node->entry];
    sterna_any row[3] = {sterna_any_c_string(node->name), sterna_any_none(), sterna_any_dtype(t->dtype)};
    if (m->inputs[i].given) continue;
    failed = sterna_shape(t->shape, t->ndim, &row[1]) || sterna_list(row, 3, &rows[count]);
    sterna_any_release(&row[1]);
    count += !failed;
  }
  if (!failed) failed = sterna_list(rows, count, ret);
  while (count) sterna_any_release(&rows[--count]);
  memory_release(rows);
  return failed;
}

/* ---- running ---- */

static int call_run(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)args;
  (void)n;
  (void)ret;
  return executor_run(m, NULL);
}

static int call_run_on(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)ret;
  return binding_run_on(m, args, n);
}

/* Nanoseconds of each node, into an array of int64. */
static int call_run_timed(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  const DLDataType int64 = {kDLInt, 64, 1};
  DLTensor *t;
  (void)n;
  (void)ret;
  if (sterna_as_tensor(&args[0], &t)) return -1;
  if (value_is_read_only(&args[0]) || t->ndim != 1 || t->shape[0] != (int64_t)m->g->node_count ||
      memcmp(&t->dtype, &int64, sizeof int64) || t->device.device_type != kDLCPU ||
      !sterna_tensor_is_compact(t))
    return sterna_set_errorf("ValueError", "times go into a writable array int64[%u] on the CPU",
                             m->g->node_count);
  return executor_run(m, (uint64_t *)((char *)t->data + t->byte_offset));
}

static int call_run_node(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  int64_t node = 0;
  (void)n;
  (void)ret;
  return sterna_as_int(&args[0], &node) || executor_run_node(m, node) ? -1 : 0;
}

static int call_get_node_names(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_any *names = memory_allocate(m->g->node_count * sizeof *names, 16);
  (void)args;
  (void)n;
  if (!names) return -1;
  for (uint32_t i = 0; i < m->g->node_count; i++) names[i] = sterna_any_c_string(m->g->nodes[i].name);
  int failed = sterna_list(names, m->g->node_count, ret);
  memory_release(names);
  return failed;
}

/* A copy: what the memory holds belongs to another entry soon. */
static int call_get_node_output(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  int64_t node = 0, output = 0;
  sterna_ndarray *array = NULL;
  (void)n;
  if (sterna_as_int(&args[0], &node) || sterna_as_int(&args[1], &output) || binding_provide_inputs(m))
    return -1;
  if (node < 0 || node >= (int64_t)m->g->node_count || output < 0 ||
      output >= (int64_t)m->g->nodes[node].entry_count)
    return sterna_set_errorf("IndexError", "the graph has no node %lld with an output %lld", (long long)node,
                             (long long)output);
  const DLTensor *t = &m->tensors[m->g->nodes[node].entry + output];
  if (sterna_ndarray_empty(t->shape, t->ndim, t->dtype, t->device, &array)) return -1;
  int failed = sterna_tensor_copy(t, &array->tensor);
  if (failed) sterna_release(array);
  return give_array(failed, array, ret);
}

/* ---- parameters ---- */

int executor_load_param(void *model, const char *name, size_t size, const DLTensor *values) {
  sterna_model *m = model;
  sterna_ndarray *array;
  uint32_t input = graph_find_input(m->g, name, size);
  if (input == NO_INPUT) return 0;
  if (params_copy(values, &array)) return -1;
  int failed = binding_give_parameter(m, input, array);
  sterna_release(array);
  return failed;
}

static int call_load_params(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_bytes bytes;
  (void)n;
  (void)ret;
  if (sterna_as_bytes(&args[0], &bytes)) return -1;
  return params_read(bytes.data, bytes.size, executor_load_param, m);
}

/* Takes pairs of name and array as parameters, without copying them. */
static int call_give_params(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  const sterna_any *pairs, *pair;
  int64_t count, two;
  (void)n;
  (void)ret;
  if (sterna_as_list(&args[0], &pairs, &count)) return -1;
  for (int64_t i = 0; i < count; i++) {
    uint32_t input = 0;
    sterna_ndarray *array = NULL;
    if (sterna_as_list(&pairs[i], &pair, &two)) return -1;
    if (two != 2) return sterna_set_error("ValueError", "parameters are pairs of a name and an array");
    if (read_input(m, &pair[0], &input) || read_array(&pair[1], &array) ||
        binding_give_parameter(m, input, array))
      return -1;
  }
  return 0;
}

typedef struct {
  sterna_model *to, *from;
} sharing;

static int share_param(void *context, const char *name, size_t size, const DLTensor *values) {
  sharing *s = context;
  uint32_t to = graph_find_input(s->to->g, name, size), from = graph_find_input(s->from->g, name, size);
  (void)values;
  if (to == NO_INPUT) return 0;
  if (from == NO_INPUT)
    return sterna_set_errorf("ValueError", "the executor to share with has no input '%.*s'", (int)size, name);
  return binding_share_parameter(s->to, to, s->from, from);
}

static const sterna_module_type executor_type;

static int call_share_params(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_module *other;
  sterna_bytes bytes;
  (void)n;
  (void)ret;
  if (sterna_as_module(&args[0], &other) || sterna_as_bytes(&args[1], &bytes)) return -1;
  if (sterna_module_type_of(other) != &executor_type)
    return sterna_set_error("TypeError", "parameters are shared with another executor");
  sharing s = {m, sterna_module_self(other)};
  if (executor_enter(s.from)) return -1;
  int failed = params_read(bytes.data, bytes.size, share_param, &s);
  executor_leave(s.from);
  return failed;
}

static int call_reset(sterna_model *m, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)args;
  (void)n;
  (void)ret;
  binding_reset(m);
  return 0;
}

/* ---- the module ---- */

typedef struct {
  const char *name;
  int32_t least, most; /* arguments */
  executor_call call;
} executor_function;

static const executor_function executor_functions[] = {
    {"set_input", 2, 2, call_set_input},
    {"set_input_zero_copy", 2, 2, call_set_input_zero_copy},
    {"set_output_zero_copy", 2, 2, call_set_output_zero_copy},
    {"get_input", 1, 1, call_get_input},
    {"get_output", 1, 2, call_get_output},
    {"get_num_inputs", 0, 0, call_get_num_inputs},
    {"get_num_outputs", 0, 0, call_get_num_outputs},
    {"get_input_index", 1, 1, call_get_input_index},
    {"get_output_index", 1, 1, call_get_output_index},
    {"get_input_info", 0, 0, call_get_input_info},
    {"run", 0, 0, call_run},
    {"run_on", 0, INT32_MAX, call_run_on},
    {"run_timed", 1, 1, call_run_timed},
    {"run_node", 1, 1, call_run_node},
    {"get_node_names", 0, 0, call_get_node_names},
    {"get_node_output", 2, 2, call_get_node_output},
    {"give_params", 1, 1, call_give_params},
    {"load_params", 1, 1, call_load_params},
    {"share_params", 2, 2, call_share_params},
    {"reset", 0, 0, call_reset},
};

typedef struct {
  sterna_model *m;
  const executor_function *function;
} executor_closure;

static int call_executor(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  const executor_closure *closure = self;
  const executor_function *f = closure->function;
  if (n < f->least || n > f->most)
    return sterna_set_errorf("TypeError", "%s takes %d arguments, not %d", f->name, (int)f->most, (int)n);
  if (executor_enter(closure->m)) return -1;
  int failed = f->call(closure->m, args, n, ret);
  executor_leave(closure->m);
  return failed ? -1 : 0;
}

static int find_executor_function(sterna_module *module, void *self, const char *name, sterna_function **out) {
  const executor_function *f = executor_functions;
  const executor_function *end = f + sizeof executor_functions / sizeof *f;
  while (f < end && strcmp(f->name, name)) f++;
  *out = NULL;
  if (f == end) return 0;
  executor_closure *closure = memory_allocate(sizeof *closure, 16);
  if (!closure) return -1;
  *closure = (executor_closure){self, f};
  if (sterna_module_function(module, call_executor, closure, out)) {
    memory_release(closure);
    return -1;
  }
  function_set_deleter(*out, memory_release);
  return 0;
}

static const sterna_module_type executor_type = {"GraphExecutor", find_executor_function, sterna_release};

int sterna_model_module(sterna_model *model, sterna_module **out) {
  REQUIRE(model);
  REQUIRE(out);
  if (sterna_module_create(&executor_type, model, out)) return -1;
  sterna_retain(model);
  return 0;
}
