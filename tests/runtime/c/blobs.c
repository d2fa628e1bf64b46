/* Several modules in one set of symbols: the table that says so, good ones and broken ones. */
#include <sys/mman.h>
#include <unistd.h>

#include "check.h"

/* ---- writing tables ---- */

typedef struct {
  unsigned char data[4096];
  size_t size;
} table;

static void put_number(table *t, uint64_t number) {
  for (int i = 0; i < 8; i++) t->data[t->size++] = (unsigned char)(number >> (8 * i));
}

static void put_text(table *t, const char *text) {
  put_number(t, strlen(text));
  memcpy(t->data + t->size, text, strlen(text));
  t->size += strlen(text);
}

static table begin(void) {
  table t = {{0}, 8};
  return t;
}

static void put_numbers(table *t, size_t count, const uint64_t *numbers) {
  put_number(t, count);
  for (size_t i = 0; i < count; i++) put_number(t, numbers[i]);
}

#define NUMBERS(...) \
  sizeof((uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t), (uint64_t[]){__VA_ARGS__}

static void finish(table *t) {
  size_t size = t->size;
  t->size = 0;
  put_number(t, size - 8);
  t->size = size;
}

/* ---- a set of symbols ---- */

static int give_one(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self, (void)args, (void)n;
  *ret = sterna_any_int(1);
  return 0;
}

static int give_two(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self, (void)args, (void)n;
  *ret = sterna_any_int(2);
  return 0;
}

typedef struct {
  table blob;
  void *context, *other_context;
  const sterna_host *host;
  int destroyed;
} code;

static void *placed_at; /* where the table lies instead, if not null */

static void *address_of(sterna_call call) {
  void *address;
  memcpy(&address, &call, sizeof address);
  return address;
}

static void *find(void *self, const char *symbol) {
  code *c = self;
  if (strcmp(symbol, "__tvm_ffi__library_bin") == 0)
    return placed_at ? placed_at : c->blob.size ? (void *)c->blob.data : NULL;
  if (strcmp(symbol, "__tvm_ffi__library_ctx") == 0) return &c->context;
  if (strcmp(symbol, "__sterna__host") == 0) return &c->host;
  if (strcmp(symbol, "other_context") == 0) return &c->other_context;
  if (strcmp(symbol, "__tvm_ffi_f") == 0) return address_of(give_one);
  if (strcmp(symbol, "__tvm_ffi_f__1") == 0 || strcmp(symbol, "__tvm_ffi_g") == 0)
    return address_of(give_two);
  return NULL;
}

static void end(void *self) { ((code *)self)->destroyed++; }

static int64_t answer(sterna_module *module, const char *name, int query_imports) {
  sterna_function *function = NULL;
  sterna_any ret = sterna_any_none();
  check(sterna_module_get_function(module, name, query_imports, &function) == 0);
  if (!function) return -1;
  check(sterna_function_call(function, NULL, 0, &ret) == 0);
  sterna_release(function);
  return ret.v_int64;
}

static sterna_module *imported(sterna_module *module, size_t index) {
  sterna_module *found = NULL;
  check(sterna_module_get_import(module, index, &found) == 0);
  sterna_release(found); /* its importer holds it */
  return found;
}

/* A host of f, which imports f and g of a namespace of their own. */
static table two_modules(void) {
  table t = begin();
  put_numbers(&t, NUMBERS(0, 1, 1));
  put_numbers(&t, NUMBERS(1));
  put_text(&t, "_lib");
  put_text(&t, "_lib");
  put_number(&t, 1);
  put_number(&t, 1);
  put_number(&t, 3);
  put_text(&t, "f");
  put_text(&t, "__tvm_ffi_f__1");
  put_text(&t, "g");
  put_text(&t, "__tvm_ffi_g");
  put_text(&t, "_library_ctx");
  put_text(&t, "other_context");
  finish(&t);
  return t;
}

static void alone(void) {
  code c = {{{0}, 0}, NULL, NULL, NULL, 0};
  sterna_module *module = NULL;
  check(sterna_module_from_symbols("mine", find, &c, end, &module) == 0);
  check_text(sterna_module_kind(module), "library");
  check(c.host == sterna_get_host() && c.context == module);
  check(answer(module, "f", 0) == 1 && answer(module, "g", 0) == 2 && answer(module, "h", 1) == -1);
  check(answer(module, "_library_bin", 0) == -1 && sterna_module_import_count(module) == 0);
  sterna_release(module);
  check(c.destroyed == 1 && !c.context);
  check_fails(sterna_module_from_symbols(NULL, find, &c, end, &module), "ValueError", "a name");
  check_fails(sterna_module_from_symbols("mine", NULL, &c, end, &module), "ValueError", "finds them");
}

static void namespaces(void) {
  code c = {two_modules(), NULL, NULL, NULL, 0};
  sterna_module *module = NULL;
  sterna_function *g = NULL, *found = NULL;
  check(sterna_module_from_symbols("mine", find, &c, end, &module) == 0);
  check(sterna_module_import_count(module) == 1);
  sterna_module *other = imported(module, 0);
  check(c.context == module && c.other_context == other);
  check(answer(module, "f", 1) == 1 && answer(other, "f", 0) == 2);
  check(answer(module, "g", 0) == -1 && answer(module, "g", 1) == 2); /* not its own */
  check(answer(module, "f__1", 1) == -1 && answer(other, "_library_ctx", 0) == -1);
  check(sterna_module_lookup(c.context, "f", &found) == 0); /* imports first */
  check(sterna_module_get_function(other, "g", 0, &g) == 0);
  sterna_release(module);
  check(c.destroyed == 0 && !c.context && c.other_context == other); /* g holds its module */
  sterna_release(g);
  check(c.destroyed == 1 && !c.other_context);
}

static void shared_names(void) { /* as others write them: without names */
  code c = {begin(), NULL, NULL, NULL, 0};
  sterna_module *module = NULL;
  put_numbers(&c.blob, NUMBERS(0, 2, 3, 3));
  put_numbers(&c.blob, NUMBERS(1, 2, 2)); /* both import the third */
  for (int i = 0; i < 3; i++) put_text(&c.blob, "_lib");
  finish(&c.blob);
  check(sterna_module_from_symbols("mine", find, &c, end, &module) == 0);
  check(sterna_module_import_count(module) == 2);
  check(imported(imported(module, 0), 0) == imported(module, 1));
  check(answer(module, "g", 0) == 2 && answer(imported(module, 1), "f", 0) == 1);
  sterna_release(module);
  check(c.destroyed == 1);
}

/* ---- kinds that a function loads ---- */

static const sterna_table_entry entries[] = {{"one", give_one}};

static int load_bytes(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_bytes bytes;
  sterna_module *module;
  if (n != 1 || sterna_as_bytes(&args[0], &bytes)) return -1;
  if (bytes.size != 4 || memcmp(bytes.data, "data", 4)) return sterna_set_error("OSError", "bad bytes");
  *(int *)self += 1;
  if (sterna_module_from_table(entries, 1, &module)) return -1;
  *ret = sterna_any_object(module);
  return 0;
}

static table with_kind(const char *kind, const char *bytes) {
  table t = begin();
  put_numbers(&t, NUMBERS(0, 1, 1));
  put_numbers(&t, NUMBERS(1));
  put_text(&t, kind);
  put_text(&t, bytes);
  put_text(&t, "_lib");
  finish(&t);
  return t;
}

static void kinds(void) {
  int calls = 0;
  code c = {with_kind("mine", "data"), NULL, NULL, NULL, 0};
  sterna_module *module = NULL;
  check_fails(sterna_module_from_symbols("a file", find, &c, end, &module), "ValueError",
              "cannot load 'a file': it holds a module of kind 'mine'");
  check(sterna_register("ffi.Module.load_from_bytes.mine", load_bytes, &calls, NULL) == 0);
  check(sterna_module_from_symbols("a file", find, &c, end, &module) == 0 && calls == 1);
  check_text(sterna_module_kind(module), "table");
  check(answer(module, "one", 0) == 1 && answer(module, "f", 0) == -1 && answer(module, "f", 1) == 1);
  check(c.context == imported(module, 0));
  sterna_release(module);
  check(c.destroyed == 1);
  c.blob = with_kind("mine", "dat");
  check_fails(sterna_module_from_symbols("a file", find, &c, end, &module), "OSError", "bad bytes");
  check(sterna_register("ffi.Module.load_from_bytes.number", give_one, NULL, NULL) == 0);
  c.blob = with_kind("number", "data");
  check_fails(sterna_module_from_symbols("a file", find, &c, end, &module), "TypeError", "a module");
  check(c.destroyed == 1);
}

/* ---- broken tables ---- */

static void refuse(table *t, const char *part) {
  code c = {*t, NULL, NULL, NULL, 0};
  sterna_module *module = NULL;
  check_fails(sterna_module_from_symbols("a file", find, &c, end, &module), "ValueError", part);
  check(!module && !c.destroyed && !c.context && !c.host);
}

static void graphs(void) {
  table t = begin();
  put_numbers(&t, NUMBERS(0));
  put_numbers(&t, 0, NULL);
  finish(&t);
  refuse(&t, "'a file': its table of modules is broken: it holds no modules");
  static const struct {
    uint64_t starts[3], edges[2];
    const char *reason;
  } bad[] = {
      {{1, 0, 0}, {1, 1}, "begin at a wrong place"}, {{0, 1, 3}, {1, 1}, "begin at a wrong place"},
      {{0, 1, 1}, {2, 0}, "that is not there"},      {{0, 1, 2}, {1, 0}, "in a circle"},
      {{0, 1, 1}, {0, 0}, "in a circle"},            {{0, UINT64_MAX, 2}, {1, 1}, "wrong place"},
  };
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    t = begin();
    put_numbers(&t, 3, bad[i].starts);
    put_numbers(&t, 2, bad[i].edges);
    put_text(&t, "_lib");
    put_text(&t, "_lib");
    finish(&t);
    refuse(&t, bad[i].reason);
  }
}

static void names(void) {
  static const struct {
    uint64_t which;
    const char *name, *symbol, *reason;
  } bad[] = {
      {2, "f", "__tvm_ffi_f", "names belong to no module"},
      {1, "h", "__tvm_ffi_h", "as the symbol '__tvm_ffi_h' that is not there"},
      {0, "h", "h", "belong to no module"}, /* the first is of another kind */
  };
  int calls = 0;
  check(sterna_register("ffi.Module.load_from_bytes.mine", load_bytes, &calls, NULL) == 0);
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    table t = with_kind("mine", "data");
    put_number(&t, 1);
    put_number(&t, bad[i].which);
    put_number(&t, 1);
    put_text(&t, bad[i].name);
    put_text(&t, bad[i].symbol);
    finish(&t);
    refuse(&t, bad[i].reason);
  }
  table twice = two_modules();
  put_number(&twice, 0);
  finish(&twice);
  refuse(&twice, "something follows it");
  twice = two_modules();
  twice.data[96] = 0; /* within a name */
  refuse(&twice, "table of modules is broken");
}

static void every_length(void) {
  table whole = two_modules();
  for (size_t size = 8; size < whole.size; size++) {
    table cut = whole;
    cut.size = size;
    finish(&cut);
    code c = {cut, NULL, NULL, NULL, 0};
    sterna_module *module = NULL;
    int failed = sterna_module_from_symbols("a file", find, &c, end, &module);
    if (size == 80) check(!failed); /* there the names begin, which may be missing */
    else check(failed && strstr(sterna_last_error(), "a file"));
    if (!failed) sterna_release(module);
  }
}

/* The table at the end of what can be read, with a length that goes on and on. */
static void beyond_memory(void) {
  table whole = two_modules();
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *memory = mmap(NULL, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (!check(memory != MAP_FAILED && mprotect(memory + page, page, PROT_NONE) == 0)) return;
  placed_at = memory + page - whole.size;
  for (int byte = 0; byte < 8; byte++) {
    code c = {whole, NULL, NULL, NULL, 0};
    sterna_module *module = NULL;
    c.blob.data[byte] = (unsigned char)(byte == 7 ? 0x7f : 0xff);
    memcpy(placed_at, c.blob.data, whole.size);
    check_fails(sterna_module_from_symbols("a file", find, &c, end, &module), "ValueError",
                "longer than it is");
  }
  placed_at = NULL;
  munmap(memory, 2 * page);
}

static void random_changes(void) {
  table whole = two_modules();
  for (int turn = 0; turn < 20000; turn++) {
    code c = {whole, NULL, NULL, NULL, 0};
    for (uint64_t changes = 1 + check_random() % 3; changes; changes--) {
      size_t at = 8 + (size_t)(check_random() % (whole.size - 8));
      c.blob.data[at] = (unsigned char)(check_random() % 2 ? check_random() : check_random() % 4);
    }
    sterna_module *module = NULL;
    if (sterna_module_from_symbols("a file", find, &c, NULL, &module)) continue;
    answer(module, "f", 1);
    sterna_release(module);
    check(!c.context && !c.other_context);
  }
}

static void out_of_memory(void) {
  for (long n = 1;; n++) {
    code c = {two_modules(), NULL, NULL, NULL, 0};
    sterna_module *module = NULL;
    check_fail_at(n, 0);
    int failed = sterna_module_from_symbols("a file", find, &c, end, &module);
    int refused = check_has_failed();
    check_fail_at(0, 0);
    check(failed == -refused);
    if (failed) check_text(sterna_last_error_kind(), "MemoryError");
    else sterna_release(module);
    check(c.destroyed == !failed && !c.context);
    if (!failed) break;
  }
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"alone", alone},
      {"namespaces", namespaces},
      {"shared_names", shared_names},
      {"kinds", kinds},
      {"graphs", graphs},
      {"names", names},
      {"every_length", every_length},
      {"beyond_memory", beyond_memory},
      {"random_changes", random_changes},
      {"out_of_memory", out_of_memory},
  };
  return CASES(cases);
}
