/* Runs out of memory at every single allocation of a scenario that touches the whole API. */
#include <stdatomic.h>

#include "model_data.h"
#include "network.h"

/* A step gives 0, or -1 with the error set; it cleans up after itself either way. */
typedef int (*step)(void);

/* 0 when the call failed as it should; -1 when there was no memory even for that error. */
static int expect(int result, const char *kind) {
  check(result == -1);
  if (strcmp(sterna_last_error_kind(), kind) == 0) return 0;
  return -1;
}

static const DLDevice cpu = {kDLCPU, 0};
static const DLDataType float32 = {kDLFloat, 32, 1};
static int64_t sides[] = {3, 4};
static int ends;

static void count_end(void *self) { ++*(int *)self; }

static int answer(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self;
  (void)args;
  (void)n;
  return sterna_string("a result that is long enough", 28, ret);
}

static int conversions(void) {
  sterna_any none = sterna_any_none();
  int64_t number;
  double real;
  sterna_bytes text;
  DLTensor *tensor;
  sterna_function *function;
  sterna_module *module;
  DLDevice device;
  DLDataType dtype;
  const sterna_any *items;
  const int64_t *dims;
  char name[32];
  int failed = expect(sterna_as_int(&none, &number), "TypeError") ||
               expect(sterna_as_float(&none, &real), "TypeError") ||
               expect(sterna_as_string(&none, &text), "TypeError") ||
               expect(sterna_as_bytes(&none, &text), "TypeError") ||
               expect(sterna_as_tensor(&none, &tensor), "TypeError") ||
               expect(sterna_as_function(&none, &function), "TypeError") ||
               expect(sterna_as_module(&none, &module), "TypeError") ||
               expect(sterna_as_device(&none, &device), "TypeError") ||
               expect(sterna_as_dtype(&none, &dtype), "TypeError") ||
               expect(sterna_as_list(&none, &items, &number), "TypeError") ||
               expect(sterna_as_shape(&none, &dims, &number), "TypeError") ||
               expect(sterna_dtype_parse("floot", 5, &dtype), "ValueError");
  sterna_dtype_name(float32, name);
  return failed ? -1 : 0;
}

static int values(void) {
  sterna_any text = sterna_any_none(), bytes = text, list = text, shape = text, own = text,
      items[3];
  sterna_any view = sterna_any_c_string("borrowed and rather long");
  int failed = sterna_string("0123456789", 10, &text) ||
               sterna_bytes_value("0123456789", 10, &bytes) ||
               sterna_shape(sides, 2, &shape) || sterna_any_own(&view, &own);
  if (!failed) {
    items[0] = view;
    items[1] = shape;
    items[2] = sterna_any_c_string("another one that is borrowed");
    failed = sterna_list(items, 3, &list);
  }
  sterna_any_release(&text);
  sterna_any_release(&bytes);
  sterna_any_release(&shape);
  sterna_any_release(&own);
  sterna_any_release(&list);
  return failed ? -1 : 0;
}

static int errors(void) {
  static char large[2000];
  memset(large, 'x', sizeof large - 1);
  int failed = expect(sterna_set_error("KeyError", "a"), "KeyError") ||
               expect(sterna_set_errorf("OSError", "%s", large), "OSError") ||
               expect(sterna_wrap_error("IndexError", "b"), "IndexError");
  if (failed) return -1;
  sterna_error *before = sterna_take_error(), *error = NULL;
  failed = sterna_error_create("AError", "a", before, NULL, &error);
  sterna_release(before);
  if (failed) return -1;
  sterna_bytes text = {"somewhere\n", 10};
  error->update_backtrace(error, &text, 1); /* a courtesy: does without when it must */
  sterna_raise(error);
  sterna_release(error);
  check_text(sterna_last_error_kind(), "AError");
  sterna_clear_error();
  return 0;
}

static int functions(void) {
  sterna_function *function = NULL, *found = NULL;
  sterna_any ret = sterna_any_none(), list = ret;
  int before = ends, mine = 1;
  if (sterna_function_create(answer, &ends, count_end, &function)) return -1;
  check(sterna_function_self(function, answer) == &ends);
  int failed = sterna_function_call(function, NULL, 0, &ret) ||
               sterna_register_function("memory.one", function, 0) ||
               sterna_register_function("memory.one", function, 1) ||
               expect(sterna_register_function("memory.one", function, 0), "ValueError") ||
               sterna_get_global("memory.one", &found);
  if (!failed) failed = sterna_register("memory.two", answer, &ends, count_end), mine = failed;
  if (!failed) failed = sterna_list_globals(&list) || sterna_remove_global("memory.two");
  if (!failed) failed = expect(sterna_remove_global("memory.two"), "ValueError");
  sterna_retain(function);
  sterna_release(function);
  sterna_any_release(&ret);
  sterna_any_release(&list);
  sterna_release(found);
  sterna_release(function);
  if (sterna_get_global("memory.one", &found) == 0 && found) {
    sterna_release(found);
    check(sterna_remove_global("memory.one") == 0);
  }
  if (sterna_get_global("memory.two", &found) == 0 && found) {
    sterna_release(found);
    check(sterna_remove_global("memory.two") == 0);
  }
  check(ends == before + (mine ? 1 : 2)); /* each once, and not at all what stayed with us */
  return failed ? -1 : 0;
}

/* ---- arrays ---- */

static int fake_exists(void *self, int32_t id) {
  (void)self;
  return id == 0;
}

static int fake_allocate(void *self, DLDevice device, size_t bytes, size_t alignment, void **out) {
  (void)self;
  (void)device;
  (void)alignment;
  *out = malloc(bytes);
  return 0;
}

static void fake_release(void *self, DLDevice device, void *block) {
  (void)self;
  (void)device;
  free(block);
}

static int fake_copy(void *self, void *to, DLDevice to_device, const void *from,
                     DLDevice from_device, size_t bytes) {
  (void)self;
  (void)to_device;
  (void)from_device;
  memcpy(to, from, bytes);
  return 0;
}

static int fake_sync(void *self, DLDevice device) {
  (void)self;
  (void)device;
  return 0;
}

static const sterna_device_api fake = {NULL,         fake_exists, fake_allocate,
                                       fake_release, fake_copy,   fake_sync};

static int arrays(void) {
  DLDevice here = {kDLExtDev, 0}, there = {kDLTrn, 0};
  sterna_ndarray *a = NULL, *b = NULL, *c = NULL, *view = NULL;
  float numbers[12] = {0};
  size_t bytes;
  int failed = sterna_register_device(kDLExtDev, &fake) || sterna_register_device(kDLTrn, &fake) ||
               sterna_ndarray_empty(sides, 2, float32, cpu, &a) ||
               sterna_ndarray_empty(sides, 2, float32, here, &b) ||
               sterna_ndarray_empty(sides, 2, float32, there, &c) ||
               sterna_ndarray_view(a, sides, 1, float32, 8, &view);
  sterna_set_remote_devices(NULL);
  check(sterna_device_exists(here) && sterna_device_sync(here) == 0 && sterna_device_name(kDLTrn));
  if (!failed)
    failed = sterna_tensor_copy_from_memory(&a->tensor, numbers, sizeof numbers) ||
             sterna_tensor_copy(&a->tensor, &b->tensor) ||
             sterna_tensor_copy(&b->tensor, &c->tensor) ||
             sterna_tensor_copy_to_memory(&c->tensor, numbers, sizeof numbers) ||
             sterna_tensor_bytes(&a->tensor, &bytes) ||
             expect(sterna_tensor_copy(&view->tensor, &a->tensor), "ValueError");
  if (!failed) check(sterna_tensor_is_compact(&a->tensor) && !sterna_ndarray_is_read_only(a));
  if (!failed) check(sterna_ndarray_is_sole(b) && !sterna_ndarray_is_sole(a)); /* the view holds a */
  sterna_release(view);
  sterna_release(a);
  sterna_release(b);
  sterna_release(c);
  return failed ? -1 : 0;
}

static int dlpack(void) {
  sterna_ndarray *array = NULL, *again = NULL;
  DLManagedTensor *old = NULL;
  DLManagedTensorVersioned *versioned = NULL;
  if (sterna_ndarray_empty(sides, 2, float32, cpu, &array)) return -1;
  int failed = sterna_ndarray_to_dlpack(array, &old) ||
               sterna_ndarray_to_dlpack_versioned(array, &versioned);
  sterna_release(array);
  if (!failed) {
    failed = sterna_ndarray_from_dlpack(old, &again);
    if (!failed) old = NULL;
  }
  sterna_release(again);
  again = NULL;
  if (!failed) failed = sterna_ndarray_from_dlpack_versioned(versioned, &again);
  if (!failed) versioned = NULL;
  sterna_release(again);
  if (old) old->deleter(old); /* still ours */
  if (versioned) versioned->deleter(versioned);
  return failed ? -1 : 0;
}

/* ---- modules ---- */

static int custom_function(sterna_module *m, void *self, const char *name, sterna_function **out) {
  *out = NULL;
  return strcmp(name, "answer") ? 0 : sterna_module_function(m, answer, self, out);
}

static const sterna_module_type custom = {"custom", custom_function, count_end};
static const sterna_table_entry entries[] = {{"answer", answer}};

static void *find_answer(void *self, const char *symbol) {
  void *address;
  sterna_call call = answer;
  (void)self;
  memcpy(&address, &call, sizeof address);
  return strcmp(symbol, "__tvm_ffi_answer") ? NULL : address;
}

static int symbols(void) {
  sterna_module *module = NULL;
  sterna_function *function = NULL;
  int before = ends;
  int failed = sterna_check_processor(NULL, "any no-such-feature") ||
               sterna_module_from_symbols("answers", find_answer, &ends, count_end, &module) ||
               sterna_module_get_function(module, "answer", 0, &function);
  int made = module != NULL;
  sterna_release(module);
  sterna_release(function);
  check(ends == before + made);
  return failed ? -1 : 0;
}

static int modules(void) {
  sterna_module *table = NULL, *own = NULL, *system = NULL, *imported = NULL;
  sterna_function *function = NULL, *found = NULL;
  int before = ends;
  void *address;
  sterna_call call = answer;
  static char name[400];
  memset(name, 'n', sizeof name - 1);
  memcpy(&address, &call, sizeof address);
  int failed = sterna_module_from_table(entries, 1, &table) ||
               sterna_module_create(&custom, &ends, &own) ||
               sterna_system_module("memory_", &system) ||
               sterna_register_system_symbol("__tvm_ffi_memory_answer", address) ||
               sterna_module_import(table, own) || sterna_module_import(table, system) ||
               expect(sterna_module_import(own, table), "ValueError") ||
               sterna_module_get_import(table, 1, &imported) ||
               expect(sterna_module_get_import(table, 2, &imported), "IndexError") ||
               sterna_module_get_function(system, "answer", 0, &function);
  if (!failed) {
    sterna_release(function);
    function = NULL;
    failed = sterna_module_get_function(system, name, 1, &function) ||
             sterna_module_lookup(table, "answer", &found) ||
             expect(sterna_module_lookup(table, "nothing", &found), "ValueError") ||
             expect(sterna_module_lookup(NULL, "nothing", &found), "RuntimeError");
  }
  int made = own != NULL;
  if (table) {
    check(sterna_module_kind(table) && sterna_module_self(table) && sterna_module_type_of(table));
    if (!failed) check(sterna_module_import_count(table) == 2);
    check(sterna_module_clear_imports(table) == 0);
  }
  sterna_release(imported);
  sterna_release(function);
  sterna_release(own);
  sterna_release(system);
  sterna_release(table);
  check(ends == before + made);
  return failed ? -1 : 0;
}

static int libraries(void) {
  static const char *const names[] = {"version1.so", "closeable1.so"};
  int failed = 0;
  for (int i = 0; i < 2 && !failed; i++) {
    char *path = check_library(names[i]);
    sterna_module *module = NULL, *again = NULL;
    sterna_function *function = NULL;
    failed = sterna_module_load(path, &module) || sterna_module_load(path, &again) ||
             sterna_module_get_function(module, TEST_LONG_NAME, 0, &function);
    check(!module || !again || module == again);
    sterna_release(function);
    sterna_release(again);
    sterna_release(module);
    free(path);
  }
  sterna_module *none = NULL;
  if (!failed) failed = expect(sterna_module_load("/nonexistent.so", &none), "ValueError");
  return failed ? -1 : 0;
}

static int extensions(void) {
  char *path = check_library("extension.so");
  int failed = sterna_load_extension(path, "init_well") ||
               expect(sterna_load_extension(path, "init_missing"), "ValueError") ||
               expect(sterna_load_extension(path, "init_with_error"), "OSError") ||
               expect(sterna_load_extension(path, "init_silently_wrong"), "RuntimeError");
  free(path);
  return failed ? -1 : 0;
}

/* ---- models ---- */

static const float six[6] = {1, 2, 3, 4, 5, 6};

static int call_it(sterna_module *module, const char *name, const sterna_any *args, int32_t n) {
  sterna_function *f = NULL;
  sterna_any ret = sterna_any_none();
  int failed = sterna_module_get_function(module, name, 0, &f);
  if (!failed) failed = sterna_function_call(f, args, n, &ret);
  sterna_any_release(&ret);
  sterna_release(f);
  return failed;
}

/* Each of an executor's functions. */
static int executor_functions(sterna_model *m) {
  sterna_module *module = NULL;
  sterna_ndarray *array = NULL, *times = NULL;
  sterna_any x = sterna_any_c_string("x"), zero = sterna_any_int(0), args[2], list = sterna_any_none(), pair = list;
  int64_t nodes = 6;
  int failed = sterna_model_module(m, &module) || sterna_ndarray_empty(sides, 2, float32, cpu, &array) ||
               sterna_ndarray_empty(&nodes, 1, (DLDataType){kDLInt, 64, 1}, cpu, &times);
  if (!failed) {
    memset(array->tensor.data, 0, 48);
    args[0] = x, args[1] = sterna_any_object(array);
    failed = expect(call_it(module, "set_input", args, 2), "ValueError") ||
             expect(call_it(module, "set_input_zero_copy", args, 2), "ValueError") ||
             call_it(module, "get_input", &x, 1) || call_it(module, "get_output", &zero, 1) ||
             call_it(module, "get_input_info", NULL, 0) || call_it(module, "get_node_names", NULL, 0);
    args[0] = sterna_any_int(2), args[1] = zero;
    if (!failed) failed = call_it(module, "get_node_output", args, 2);
    args[0] = sterna_any_object(times);
    if (!failed) failed = call_it(module, "run_timed", args, 1);
    args[0] = sterna_any_c_string("w"), args[1] = sterna_any_object(array);
    if (!failed) failed = sterna_list(args, 2, &pair) || sterna_list(&pair, 1, &list);
    if (!failed) failed = expect(call_it(module, "give_params", &list, 1), "ValueError");
    if (!failed) failed = call_it(module, "reset", NULL, 0);
  }
  sterna_any_release(&pair);
  sterna_any_release(&list);
  sterna_release(array);
  sterna_release(times);
  sterna_release(module);
  return failed;
}

static int use_model(sterna_model *m) {
  sterna_model *second = NULL;
  sterna_tensor_info info;
  float y[6] = {0};
  uint64_t took[6];
  int failed = sterna_model_set_input(m, "x", six, 24) || sterna_model_run(m) ||
               sterna_model_get_output(m, 0, y, 24) || sterna_model_share(m, &second);
  check(sterna_model_num_inputs(m) == 2 && sterna_model_num_outputs(m) == 4);
  check(sterna_model_num_nodes(m) == 6 && sterna_model_node_name(m, 0));
  check(sterna_model_input_info(m, 1, &info) == 0 && sterna_model_output_info(m, 0, &info) == 0);
  if (!failed)
    failed = sterna_model_bind_input(second, "x", six, 24) || sterna_model_bind_output(second, 0, y, 24) ||
             sterna_model_bind_output(second, 2, y, 24) || sterna_model_run_timed(second, took) ||
             sterna_model_bind_output(second, 0, NULL, 0) || executor_functions(second);
  if (!failed) check(y[5] == 6);
  sterna_model_free(second);
  return failed ? -1 : 0;
}

static int models(void) {
  static _Alignas(64) unsigned char data[MODEL_SIZE];
  static sterna_linked_model linked = {NULL, "linked", data, network_functions, 6, NULL};
  sterna_model *m = NULL, *other = NULL;
  char *path = check_library("model.so");
  if (!data[0]) {
    char *graph = json_of(NETWORK_CLASSIC);
    write_model(data, "linked", graph, six);
    sterna_register_model(&linked);
    free(graph);
  }
  int failed = sterna_model_load(NULL, &m) || use_model(m) || sterna_model_load_named(path, "net", &other) ||
               use_model(other) || expect(sterna_model_load_params(m, "", 0), "ValueError");
  sterna_model_free(m);
  sterna_model_free(other);
  free(path);
  return failed ? -1 : 0;
}

static int model_from_parts(void) {
  sterna_model *m = NULL;
  sterna_module *module = NULL;
  sterna_function *f = NULL;
  sterna_any args[3], ret = sterna_any_none();
  char *graph = json_of(NETWORK_PLANNED);
  if (sterna_module_from_table(network_functions, 6, &module)) {
    free(graph);
    return -1;
  }
  args[0] = sterna_any_c_string(graph);
  args[1] = sterna_any_object(module);
  args[2] = sterna_any_device(kDLCPU, 0);
  int failed = sterna_model_create(graph, strlen(graph), module, &cpu, 1, &m) || use_model(m) ||
               sterna_get_global("tvm.graph_executor.create", &f) || sterna_function_call(f, args, 3, &ret);
  sterna_any_release(&ret);
  sterna_release(f);
  sterna_model_free(m);
  sterna_release(module);
  free(graph);
  return failed ? -1 : 0;
}

static int factory(void) {
  sterna_module *module = NULL;
  sterna_any args[2] = {sterna_any_c_string("net"), sterna_any_device(kDLCPU, 0)};
  char *path = check_library("model.so");
  int failed = sterna_module_load(path, &module) || call_it(module, "net", &args[1], 1) ||
               call_it(module, "debug_create", args, 2) || call_it(module, "get_graph_json", NULL, 0) ||
               call_it(module, "get_graph_params", NULL, 0) || call_it(module, "remove_params", NULL, 0);
  sterna_release(module);
  free(path);
  return failed ? -1 : 0;
}

/* ---- threads ---- */

static int count_task(int32_t task, int32_t tasks, void *data) {
  (void)task;
  (void)tasks;
  atomic_fetch_add((atomic_int *)data, 1);
  return 0;
}

static int fail_task(int32_t task, int32_t tasks, void *data) {
  (void)data;
  return task == tasks - 1 ? sterna_set_error("KeyError", "the last one") : 0;
}

static int threads(void) {
  atomic_int ran = 0;
  int32_t count;
  int failed = sterna_set_num_threads(3) || sterna_num_threads(&count) ||
               sterna_parallel(count_task, &ran, 20);
  if (!failed) check(atomic_load(&ran) == 20);
  if (!failed) failed = expect(sterna_parallel(fail_task, NULL, 10), "KeyError");
  return failed ? -1 : 0;
}

static int process(void) {
  sterna_allocator incomplete = {NULL, NULL, NULL};
  check(*sterna_version() && *sterna_type_name(STERNA_NONE));
  const sterna_host *host = sterna_get_host();
  void *block = host->allocate(100, 32);
  if (!block) return host->set_error("MemoryError", "out of memory");
  host->release(block);
  return expect(sterna_set_allocator(&incomplete), "ValueError");
}

static const step steps[] = {conversions, values,    errors,     functions, arrays,  dlpack,
                             modules,     symbols,   libraries,  extensions, threads,  process,
                             models,      model_from_parts,     factory};

/* Runs every step; how many of them failed. */
static int run_steps(void) {
  int failures = 0;
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    sterna_clear_error();
    int result = steps[i]();
    if (result == 0) continue;
    failures++;
    check(result == -1 && check_has_failed());
    if (!check_fails(result, "MemoryError", "out of memory"))
      fprintf(stderr, "step %d at allocation %ld\n", (int)i, check_allocations());
  }
  return failures;
}

static void each_allocation(int forever) {
  long live = check_live(), n = 1;
  int swallowed = 0;
  check(run_steps() == 0); /* once with enough of it */
  sterna_shutdown();
  check(check_live() == live);
  for (;; n++) {
    check_fail_at(n, forever);
    int failures = run_steps(), refused = check_has_failed();
    check_fail_at(0, 0);
    sterna_shutdown();
    if (!check(check_live() == live)) {
      fprintf(stderr, "%ld blocks left at allocation %ld\n", check_live() - live, n);
      break;
    }
    if (!refused) {
      check(failures == 0);
      break;
    }
    swallowed += failures == 0;
  }
  check(n > 80 && swallowed <= 1); /* a backtrace is all that may silently be missing */
  printf("%ld allocations\n", n - 1);
}

static void one_by_one(void) { each_allocation(0); }

static void from_one_on(void) { each_allocation(1); }

static void *other_allocate(void *self, size_t bytes, size_t alignment) {
  (void)self;
  (void)bytes;
  (void)alignment;
  return NULL;
}

static void other_release(void *self, void *block) {
  (void)self;
  (void)block;
}

static void late_allocator(void) {
  sterna_allocator other = {NULL, other_allocate, other_release};
  check_fails(sterna_set_allocator(&other), "RuntimeError", "before the runtime is first used");
  check_fails(sterna_set_allocator(NULL), "ValueError", "both allocate and release");
  other.release = NULL;
  check_fails(sterna_set_allocator(&other), "ValueError", "both allocate and release");
  char version[32];
  snprintf(version, sizeof version, "%d.%d.%d", STERNA_VERSION_MAJOR, STERNA_VERSION_MINOR,
           STERNA_VERSION_PATCH);
  check_text(sterna_version(), version);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"one_by_one", one_by_one}, {"from_one_on", from_one_on}, {"late_allocator", late_allocator}};
  return CASES(cases);
}
