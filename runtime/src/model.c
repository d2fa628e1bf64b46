/* Models for C programs: load, set inputs, run, get outputs. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

/* A model says itself which kind of device it runs on: the first of that kind is taken. */
static const DLDevice model_devices[] = {{kDLCPU, 0}, {kDLCUDA, 0}, {kDLOpenCL, 0}};
enum { MODEL_DEVICES = sizeof model_devices / sizeof *model_devices };

/* ---- models that are linked into the program ---- */

static sterna_linked_model *linked_models;
static platform_mutex model_mutex = PLATFORM_MUTEX_INIT;

void sterna_register_model(sterna_linked_model *model) {
  if (!model) return;
  platform_lock(&model_mutex);
  model->next = linked_models;
  linked_models = model;
  if (model->host) *model->host = sterna_get_host();
  platform_unlock(&model_mutex);
}

static int has_name(const sterna_linked_model *model, const char *name) {
  return !name || strcmp(model->name, name) == 0;
}

/* The linked model of a name, or the only one. */
static int find_linked(const char *name, const sterna_linked_model **out) {
  char names[200] = "";
  size_t used = 0;
  int found = 0;
  platform_lock(&model_mutex);
  for (const sterna_linked_model *model = linked_models; model; model = model->next) {
    if (used < sizeof names)
      used += (size_t)snprintf(names + used, sizeof names - used, "%s'%s'", used ? ", " : "", model->name);
    if (!has_name(model, name)) continue;
    *out = model;
    found++;
  }
  platform_unlock(&model_mutex);
  if (found == 1) return 0;
  if (!used)
    return sterna_set_error("ValueError", "no model is linked into this program; link the model's object "
                                          "file, or all of its archive (--whole-archive)");
  return sterna_set_errorf("ValueError", found ? "several models are linked into this program, name one: %s"
                                               : "no such model is linked into this program; there are %s",
                           names);
}

static int open_linked(const char *name, sterna_model **out) {
  const sterna_linked_model *model = NULL;
  sterna_module *module;
  if (find_linked(name, &model) || sterna_module_from_table(model->functions, model->function_count, &module))
    return -1;
  int failed = model_open(model->data, module, 1, model_devices, MODEL_DEVICES, out);
  sterna_release(module);
  return failed;
}

void model_before_fork(void) { platform_lock(&model_mutex); }

void model_after_fork(void) { platform_unlock(&model_mutex); }

/* ---- loading ---- */

int sterna_model_load_named(const char *path, const char *name, sterna_model **out) {
  REQUIRE(out);
  sterna_module *module;
  void *data;
  if (!path) return open_linked(name, out);
  if (sterna_module_load(path, &module)) return -1;
  int failed = symbols_find_model(module, name, &data);
  if (!failed && !data)
    failed = sterna_set_errorf("ValueError", "'%s' holds no model%s%s%s", path, name ? " named '" : "",
                               name ? name : "", name ? "'" : "");
  if (!failed) failed = model_open(data, module, 1, model_devices, MODEL_DEVICES, out);
  sterna_release(module);
  return failed;
}

int sterna_model_load(const char *path, sterna_model **out) {
  return sterna_model_load_named(path, NULL, out);
}

int sterna_model_create(const char *json, size_t size, sterna_module *functions, const DLDevice *devices,
                        int32_t device_count, sterna_model **out) {
  REQUIRE(json);
  REQUIRE(functions);
  REQUIRE_IF(device_count > 0, devices);
  REQUIRE(out);
  graph *g;
  if (graph_create(json, size, functions, devices, device_count, &g)) return -1;
  int failed = executor_create(g, out);
  sterna_release(g);
  return failed;
}

int sterna_model_share(sterna_model *model, sterna_model **out) {
  REQUIRE(model);
  REQUIRE(out);
  sterna_model *m;
  if (executor_enter(model)) return -1;
  int failed = executor_create(model->g, &m);
  for (uint32_t i = 0; !failed && i < model->g->input_count; i++)
    if (model->inputs[i].given) {
      failed = binding_give_parameter(m, i, model->inputs[i].given);
      if (failed) sterna_release(m);
    }
  executor_leave(model);
  if (!failed) *out = m;
  return failed;
}

void sterna_model_free(sterna_model *model) { sterna_release(model); }

int sterna_model_load_params(sterna_model *model, const void *data, size_t size) {
  REQUIRE(model);
  REQUIRE_IF(size, data);
  if (executor_enter(model)) return -1;
  int failed = params_read(data, size, executor_load_param, model);
  executor_leave(model);
  return failed;
}

/* ---- what it has ---- */

int32_t sterna_model_num_inputs(const sterna_model *model) {
  REQUIRE(model);
  return (int32_t)model->g->input_count;
}

int32_t sterna_model_num_outputs(const sterna_model *model) {
  REQUIRE(model);
  return (int32_t)model->g->output_count;
}

int32_t sterna_model_num_nodes(const sterna_model *model) {
  REQUIRE(model);
  return (int32_t)model->g->node_count;
}

static void fill_info(const sterna_model *m, const char *name, uint32_t entry, sterna_tensor_info *out) {
  const DLTensor *t = &m->g->views[entry];
  *out = (sterna_tensor_info){name, t->dtype, t->ndim, t->shape, m->g->entries[entry].bytes, 0};
}

int sterna_model_input_info(const sterna_model *model, int32_t index, sterna_tensor_info *out) {
  REQUIRE(model);
  REQUIRE(out);
  uint32_t input = 0;
  if (binding_check_input(model, index, &input)) return -1;
  const graph_node *node = &model->g->nodes[model->g->inputs[input]];
  fill_info(model, node->name, node->entry, out);
  out->is_parameter = model->inputs[input].given != NULL;
  return 0;
}

int sterna_model_output_info(const sterna_model *model, int32_t index, sterna_tensor_info *out) {
  REQUIRE(model);
  REQUIRE(out);
  uint32_t output = 0;
  if (binding_check_output(model, index, &output)) return -1;
  fill_info(model, binding_output_node(model, output)->name, model->g->outputs[output], out);
  return 0;
}

const char *sterna_model_node_name(const sterna_model *model, int32_t index) {
  return index >= 0 && index < sterna_model_num_nodes(model) ? model->g->nodes[index].name : NULL;
}

/* ---- plain memory in place of arrays ---- */

/* What an entry of the graph is, over the caller's memory of as many bytes. */
static int describe_memory(const sterna_model *m, const char *what, const char *name, uint32_t entry,
                           const void *data, size_t bytes, DLTensor *out) {
  if (bytes != m->g->entries[entry].bytes)
    return sterna_set_errorf("ValueError", "%s '%s' has %llu bytes, but %llu were given", what, name,
                             (unsigned long long)m->g->entries[entry].bytes, (unsigned long long)bytes);
  *out = m->g->views[entry];
  out->device = model_devices[0]; /* where the memory of a C program is */
  out->data = (void *)(uintptr_t)data;
  return 0;
}

static int describe_input(const sterna_model *m, const char *name, const void *data, size_t bytes,
                          uint32_t *input, DLTensor *out) {
  if (binding_find_input(m, name, strlen(name), input)) return -1;
  return describe_memory(m, "input", name, m->g->nodes[m->g->inputs[*input]].entry, data, bytes, out);
}

static int describe_output(const sterna_model *m, int32_t index, void *data, size_t bytes, uint32_t *output,
                           DLTensor *out) {
  if (binding_check_output(m, index, output)) return -1;
  return describe_memory(m, "output", binding_output_node(m, *output)->name, m->g->outputs[*output], data,
                         bytes, out);
}

int sterna_model_set_input(sterna_model *model, const char *name, const void *data, size_t bytes) {
  REQUIRE(model);
  REQUIRE(name);
  REQUIRE_IF(bytes, data);
  uint32_t input = 0;
  DLTensor t;
  if (executor_enter(model)) return -1;
  int failed = describe_input(model, name, data, bytes, &input, &t) || binding_set_input(model, input, &t);
  executor_leave(model);
  return failed ? -1 : 0;
}

int sterna_model_bind_input(sterna_model *model, const char *name, const void *data, size_t bytes) {
  REQUIRE(model);
  REQUIRE(name);
  uint32_t input = 0;
  DLTensor t;
  sterna_ndarray *array = NULL;
  if (executor_enter(model)) return -1;
  int failed = data ? describe_input(model, name, data, bytes, &input, &t) || ndarray_over(&t, NULL, 1, &array)
                    : binding_find_input(model, name, strlen(name), &input);
  if (!failed) failed = binding_bind_input(model, input, array);
  sterna_release(array);
  executor_leave(model);
  return failed ? -1 : 0;
}

int sterna_model_bind_output(sterna_model *model, int32_t index, void *data, size_t bytes) {
  REQUIRE(model);
  uint32_t output = 0;
  DLTensor t;
  sterna_ndarray *array = NULL;
  if (executor_enter(model)) return -1;
  int failed = data ? describe_output(model, index, data, bytes, &output, &t) ||
                          ndarray_over(&t, NULL, 0, &array)
                    : binding_check_output(model, index, &output);
  if (!failed) failed = binding_bind_output(model, output, array);
  sterna_release(array);
  executor_leave(model);
  return failed ? -1 : 0;
}

int sterna_model_get_output(sterna_model *model, int32_t index, void *data, size_t bytes) {
  REQUIRE(model);
  REQUIRE_IF(bytes, data);
  uint32_t output = 0;
  DLTensor t;
  sterna_ndarray *array = NULL;
  if (executor_enter(model)) return -1;
  int failed = describe_output(model, index, data, bytes, &output, &t) ||
               binding_get_output(model, output, &array) || sterna_tensor_copy(&array->tensor, &t);
  sterna_release(array);
  executor_leave(model);
  return failed ? -1 : 0;
}

/* ---- running ---- */

int sterna_model_run_timed(sterna_model *model, uint64_t *nanoseconds) {
  REQUIRE(model);
  if (executor_enter(model)) return -1;
  int failed = executor_run(model, nanoseconds);
  executor_leave(model);
  return failed;
}

int sterna_model_run(sterna_model *model) { return sterna_model_run_timed(model, NULL); }
