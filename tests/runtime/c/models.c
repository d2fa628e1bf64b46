/* Models in libraries and in the program itself. */
#include "model_data.h"
#include "network.h"

static const float weights[6] = {1, 2, 3, 4, 5, 6};

static void runs_right(sterna_model *m, float x, const float *w) {
  float input[6], y[6];
  for (int i = 0; i < 6; i++) input[i] = x;
  check(sterna_model_set_input(m, "x", input, sizeof input) == 0 && sterna_model_run(m) == 0);
  check(sterna_model_get_output(m, 0, y, sizeof y) == 0);
  for (int i = 0; i < 6; i++) check(y[i] == 2 * (x + (w ? w[i] : 0)));
}

/* ---- linked into the program ---- */

static _Alignas(64) unsigned char one_data[MODEL_SIZE], two_data[MODEL_SIZE];
static const sterna_host *own_host;

static void linked(void) {
  static const float other[6] = {9, 8, 7, 6, 5, 4};
  static sterna_linked_model one = {NULL, "one", one_data, network_functions, 6, &own_host};
  static sterna_linked_model two = {NULL, "two", two_data, network_functions, 6, NULL};
  char *graph = json_of(NETWORK_PLANNED);
  sterna_model *m = NULL, *again = NULL;
  write_model(one_data, "one", graph, weights);
  write_model(two_data, "two", graph, other);
  check_fails(sterna_model_load(NULL, &m), "ValueError", "no model is linked into this program");
  sterna_register_model(&one);
  check(own_host == sterna_get_host());
  check(sterna_model_load(NULL, &m) == 0);
  runs_right(m, 3, weights);
  check(sterna_model_load_named(NULL, "one", &again) == 0);
  runs_right(again, 4, weights);
  sterna_model_free(again);
  sterna_model_free(m);
  sterna_register_model(&two);
  check_fails(sterna_model_load(NULL, &m), "ValueError", "several models are linked into this program");
  check(strstr(sterna_last_error(), "'two', 'one'") != NULL);
  check(sterna_model_load_named(NULL, "two", &m) == 0);
  runs_right(m, 5, other);
  sterna_model_free(m);
  check_fails(sterna_model_load_named(NULL, "three", &m), "ValueError", "there are 'two', 'one'");
  free(graph);
}

/* ---- in a library ---- */

static void in_library(void) {
  char *path = check_library("model.so"), *plain = check_library("version1.so");
  sterna_model *m = NULL, *shared = NULL;
  check(sterna_model_load(path, &m) == 0);
  runs_right(m, 1, weights);
  check(sterna_model_share(m, &shared) == 0);
  runs_right(shared, 2, weights);
  sterna_model_free(m);
  runs_right(shared, 3, weights);
  sterna_model_free(shared);
  check(sterna_model_load_named(path, "net", &m) == 0);
  runs_right(m, 4, weights);
  sterna_model_free(m);
  check_fails(sterna_model_load_named(path, "gnat", &m), "ValueError", "holds no model named 'gnat'");
  check_fails(sterna_model_load(plain, &m), "ValueError", "holds no model");
  check_fails(sterna_model_load("/nonexistent.so", &m), "ValueError", "/nonexistent.so");
  free(path);
  free(plain);
}

static sterna_any call(sterna_module *module, const char *name, const sterna_any *args, int32_t n) {
  sterna_function *f = NULL;
  sterna_any ret = sterna_any_none();
  if (!check(sterna_module_get_function(module, name, 0, &f) == 0 && f)) return ret;
  if (!check(sterna_function_call(f, args, n, &ret) == 0)) puts(sterna_last_error());
  sterna_release(f);
  return ret;
}

static void executor_runs(sterna_any value, const float *w) {
  sterna_module *executor = NULL;
  if (!check(sterna_as_module(&value, &executor) == 0)) return;
  runs_right(sterna_module_self(executor), 6, w);
  sterna_any_release(&value);
}

static void functions_of_a_library(void) {
  char *path = check_library("model.so");
  sterna_module *module = NULL, *bare = NULL;
  sterna_any device = sterna_any_device(kDLCPU, 0), debug[2] = {sterna_any_c_string("net"), device}, ret;
  sterna_bytes json;
  const sterna_any *pairs, *pair;
  int64_t count, two;
  check(sterna_module_load(path, &module) == 0);
  executor_runs(call(module, "net", &device, 1), weights);
  executor_runs(call(module, "debug_create", debug, 2), weights);
  ret = call(module, "get_graph_json", NULL, 0);
  check(sterna_as_string(&ret, &json) == 0 && json.size > 100 && json.data[0] == '{');
  sterna_any_release(&ret);
  ret = call(module, "get_graph_params", NULL, 0);
  check(sterna_as_list(&ret, &pairs, &count) == 0 && count == 1);
  check(sterna_as_list(&pairs[0], &pair, &two) == 0 && two == 2);
  sterna_ndarray *w = (sterna_ndarray *)pair[1].v_obj;
  check(((float *)w->tensor.data)[5] == 6 && sterna_ndarray_is_read_only(w));
  sterna_any_release(&ret);
  ret = call(module, "remove_params", NULL, 0);
  check(sterna_as_module(&ret, &bare) == 0);
  sterna_release(module);
  check_text(sterna_module_kind(bare), "GraphExecutorFactory");
  executor_runs(call(bare, "net", &device, 1), NULL);
  sterna_any none = call(bare, "get_graph_params", NULL, 0);
  check(sterna_as_list(&none, &pairs, &count) == 0 && count == 0);
  sterna_any_release(&none);
  sterna_function *f = NULL;
  check(sterna_module_get_function(bare, "default", 0, &f) == 0 && !f);
  check(sterna_module_get_function(bare, "net", 0, &f) == 0 && f);
  sterna_any_release(&ret);
  check_fails(sterna_function_call(f, NULL, 0, &none), "TypeError", "made for a device");
  none = sterna_any_int(1);
  check_fails(sterna_function_call(f, &none, 1, &none), "TypeError", "a device");
  sterna_release(f);
  free(path);
}

/* Symbols of our own, with broken data among them. */
static _Alignas(64) unsigned char broken_data[MODEL_SIZE];

static void *find_broken(void *self, const char *symbol) {
  (void)self;
  if (strcmp(symbol, "__sterna__model_one") == 0) return broken_data;
  void *address = NULL;
  if (strcmp(symbol, "__tvm_ffi_add") == 0) memcpy(&address, &(sterna_call){node_add}, sizeof address);
  if (strcmp(symbol, "__tvm_ffi_double") == 0) memcpy(&address, &(sterna_call){node_double}, sizeof address);
  return address;
}

/* The factory function of the data, or an executor from it, or -1. */
static int try_data(void) {
  sterna_module *module = NULL;
  sterna_function *f = NULL;
  sterna_any ret = sterna_any_none(), device = sterna_any_device(kDLCPU, 0);
  check(sterna_module_from_symbols("broken", find_broken, NULL, NULL, &module) == 0);
  int failed = sterna_module_get_function(module, "one", 0, &f);
  if (!failed && f) failed = sterna_function_call(f, &device, 1, &ret);
  sterna_any_release(&ret);
  sterna_release(f);
  sterna_release(module);
  return failed;
}

static void broken_models(void) {
  char *graph = json_of(NETWORK_PLANNED);
  test_header *h = (test_header *)broken_data;
  test_param *p = (test_param *)(h + 1);
#define BREAK(change, reason)                             \
  (write_model(broken_data, "one", graph, weights), change, seal_model(broken_data), \
   check_fails(try_data(), "ValueError", reason))
  write_model(broken_data, "one", graph, weights);
  check(try_data() == 0);
  BREAK(h->magic[0] = 'S', "does not begin");
  BREAK(h->byte_order = 0x04030201, "byte order");
  BREAK(h->version = 2, "version 2; this runtime knows version 1");
  BREAK(h->graph = MODEL_SIZE, "points outside");
  BREAK(h->graph_size = UINT64_MAX, "points outside");
  BREAK(h->name = 3, "points outside");
  BREAK(h->param_count = 1000, "points outside");
  BREAK(p->values = 1, "lies outside");
  BREAK(p->values = MODEL_SIZE, "lies outside");
  BREAK(p->size = UINT64_MAX, "lies outside");
  BREAK(p->ndim = -1, "lies outside");
  BREAK(p->ndim = 64, "");
  BREAK(p->shape += 1, "lies outside");
  BREAK(p->name = UINT64_MAX - 3, "lies outside");
  BREAK(p->size = 20, "does not fit its shape");
  BREAK(p->dtype.bits = 64, "does not fit its shape");
  BREAK(broken_data[p->name] = 'v', "no input of its graph");
  BREAK(broken_data[h->graph] = '[', "no JSON");
  write_model(broken_data, "one", graph, weights);
  h->head_size = h->size + 1; /* cannot be sealed */
  check_fails(try_data(), "ValueError", "points outside");
  h->head_size = 8;
  check_fails(try_data(), "ValueError", "points outside");
  for (size_t at = offsetof(test_header, checksum); at < sizeof *h + sizeof *p; at++) {
    write_model(broken_data, "one", graph, weights);
    broken_data[at] ^= 16;
    check(try_data() == -1);
  }
  free(graph);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {{"linked", linked},
                                    {"in_library", in_library},
                                    {"functions_of_a_library", functions_of_a_library},
                                    {"broken_models", broken_models}};
  return CASES(cases);
}
