/* Functions that make executors: those that a model adds to its module, and those of the runtime. */
#include "internal.h"

#include <string.h>

enum { MOST_DEVICES = 16 };

static int read_devices(const sterna_any *args, int32_t n, DLDevice *out) {
  if (n < 1 || n > MOST_DEVICES)
    return sterna_set_error("TypeError", "an executor is made for a device, or for a few of them");
  for (int32_t i = 0; i < n; i++)
    if (sterna_as_device(&args[i], &out[i])) return -1;
  return 0;
}

static int give_executor(int failed, sterna_model *m, sterna_any *ret) {
  sterna_module *module;
  if (failed) return -1;
  failed = sterna_model_module(m, &module);
  sterna_release(m);
  if (!failed) *ret = sterna_any_object(module);
  return failed;
}

/* Adds a pair of a name and an array, whose reference passes over, to a list that is being made. */
static int add_pair(sterna_any *pairs, int64_t *count, sterna_bytes name, sterna_ndarray *array) {
  sterna_any pair[2] = {sterna_any_none(), sterna_any_object(array)};
  int failed = sterna_string(name.data, name.size, &pair[0]) || sterna_list(pair, 2, &pairs[*count]);
  sterna_any_release(&pair[0]);
  sterna_any_release(&pair[1]);
  *count += !failed;
  return failed ? -1 : 0;
}

static int give_pairs(int failed, sterna_any *pairs, int64_t count, sterna_any *ret) {
  if (!failed) failed = sterna_list(pairs, count, ret);
  while (count) sterna_any_release(&pairs[--count]);
  memory_release(pairs);
  return failed ? -1 : 0;
}

/* ---- the functions of a model in a module ---- */

typedef struct {
  sterna_module *module;
  const model_data *data;
  int with_params;
} model_source;

static int source_function(const model_source *from, const char *name, sterna_function **out);

static void free_source(void *self) {
  sterna_release(((model_source *)self)->module);
  memory_release(self);
}

/* (device, ...) */
static int source_create(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  const model_source *s = self;
  DLDevice devices[MOST_DEVICES];
  sterna_model *m = NULL;
  int failed = read_devices(args, n, devices) ||
               model_open(s->data, s->module, s->with_params, devices, n, &m);
  return give_executor(failed, m, ret);
}

/* (name, device, ...): every executor can be looked into, so this is no other one. */
static int source_debug_create(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  if (n < 1) return sterna_set_error("TypeError", "debug_create takes the model's name and a device");
  return source_create(self, args + 1, n - 1, ret);
}

static int source_graph_json(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_bytes json = model_graph(((model_source *)self)->data);
  (void)args;
  (void)n;
  return sterna_string(json.data, json.size, ret);
}

static int source_graph_params(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  const model_source *s = self;
  int64_t count = 0, wanted = s->with_params ? model_param_count(s->data) : 0;
  sterna_any *pairs = memory_allocate((size_t)wanted * sizeof *pairs, 16);
  int failed = !pairs;
  (void)args;
  (void)n;
  while (!failed && count < wanted) {
    sterna_bytes name;
    sterna_ndarray *array;
    failed = model_get_param(s->data, count, (sterna_object *)s->module, &name, &array) ||
             add_pair(pairs, &count, name, array);
  }
  return give_pairs(failed, pairs, count, ret);
}

static int find_in_source(sterna_module *module, void *self, const char *name, sterna_function **out) {
  (void)module;
  return source_function(self, name, out);
}

static const sterna_module_type source_type = {"GraphExecutorFactory", find_in_source, free_source};

static model_source *copy_source(const model_source *from) {
  model_source *s = memory_allocate(sizeof *s, 16);
  if (!s) return NULL;
  *s = *from;
  sterna_retain(s->module);
  return s;
}

static int source_remove_params(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_module *module;
  model_source *s = copy_source(self);
  (void)args;
  (void)n;
  if (!s) return -1;
  s->with_params = 0;
  if (sterna_module_create(&source_type, s, &module)) {
    free_source(s);
    return -1;
  }
  *ret = sterna_any_object(module);
  return 0;
}

static const sterna_table_entry source_functions[] = {
    {"get_graph_json", source_graph_json},
    {"get_graph_params", source_graph_params},
    {"debug_create", source_debug_create},
    {"cuda_graph_create", source_create}, /* every executor on CUDA replays graphs */
    {"remove_params", source_remove_params},
};

static sterna_call find_entry_call(const sterna_table_entry *entries, size_t count, const char *name) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(entries[i].name, name) == 0) return entries[i].call;
  return NULL;
}

#define FIND_CALL(entries, name) find_entry_call(entries, sizeof entries / sizeof *entries, name)

int factory_names(const char *name) { return FIND_CALL(source_functions, name) != NULL; }

static int source_function(const model_source *from, const char *name, sterna_function **out) {
  sterna_call call = FIND_CALL(source_functions, name);
  *out = NULL;
  if (model_check(from->data)) return -1;
  sterna_bytes own = model_name(from->data);
  if (!call && strlen(name) == own.size && memcmp(name, own.data, own.size) == 0) call = source_create;
  if (!call) return 0;
  model_source *s = copy_source(from);
  if (!s) return -1;
  if (sterna_function_create(call, s, free_source, out)) {
    free_source(s);
    return -1;
  }
  return 0;
}

int factory_function(sterna_module *module, const void *data, const char *name, sterna_function **out) {
  model_source s = {module, data, 1};
  return source_function(&s, name, out);
}

/* ---- the runtime's own functions ---- */

/* (json, module, device, ...) */
static int create_executor(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  DLDevice devices[MOST_DEVICES];
  sterna_bytes json;
  sterna_module *module;
  sterna_model *m = NULL;
  (void)self;
  if (n < 3) return sterna_set_error("TypeError", "an executor is made from a graph, a module and a device");
  int failed = sterna_as_string(&args[0], &json) || sterna_as_module(&args[1], &module) ||
               read_devices(args + 2, n - 2, devices) ||
               sterna_model_create(json.data, json.size, module, devices, n - 2, &m);
  return give_executor(failed, m, ret);
}

typedef struct {
  sterna_any *pairs;
  int64_t count, room;
} pair_list;

static int count_param(void *context, const char *name, size_t size, const DLTensor *values) {
  (void)name;
  (void)size;
  (void)values;
  ((pair_list *)context)->room++;
  return 0;
}

static int collect_param(void *context, const char *name, size_t size, const DLTensor *values) {
  pair_list *list = context;
  sterna_ndarray *array;
  return params_copy(values, &array) ||
                 add_pair(list->pairs, &list->count, (sterna_bytes){name, size}, array)
             ? -1
             : 0;
}

/* (bytes): a list of pairs of name and array */
static int load_params(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  pair_list list = {NULL, 0, 0};
  sterna_bytes bytes;
  (void)self;
  if (n != 1) return sterna_set_error("TypeError", "parameters are loaded from bytes");
  if (sterna_as_bytes(&args[0], &bytes) || params_read(bytes.data, bytes.size, count_param, &list)) return -1;
  list.pairs = memory_allocate((size_t)list.room * sizeof *list.pairs, 16);
  int failed = !list.pairs || params_read(bytes.data, bytes.size, collect_param, &list);
  return give_pairs(failed, list.pairs, list.count, ret);
}

static const sterna_table_entry own_functions[] = {
    {"tvm.graph_executor.create", create_executor},
    {"sterna.load_params", load_params},
};

sterna_call factory_find_global(const char *name) { return FIND_CALL(own_functions, name); }
