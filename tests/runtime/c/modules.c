/* Modules that are no files: tables, the program's own symbols, custom kinds, and imports. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

static int give_number(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)args;
  (void)n;
  *ret = sterna_any_int(self ? *(int64_t *)self : 5);
  return 0;
}

static int give_six(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self;
  (void)args;
  (void)n;
  *ret = sterna_any_int(6);
  return 0;
}

static int64_t call_int(sterna_function *function) {
  sterna_any ret = sterna_any_none();
  check(sterna_function_call(function, NULL, 0, &ret) == 0);
  check(ret.type_index == STERNA_INT);
  return ret.v_int64;
}

/* What the named function gives; -1 when there is none. */
static int64_t answer(sterna_module *module, const char *name, int query_imports) {
  sterna_function *function = (sterna_function *)module;
  check(sterna_module_get_function(module, name, query_imports, &function) == 0);
  int64_t number = function ? call_int(function) : -1;
  sterna_release(function);
  return number;
}

static const sterna_table_entry five_and_six[] = {{"five", give_number}, {"six", give_six}};
static const sterna_table_entry only_seven[] = {{"seven", give_six}, {"five", give_six}};

static sterna_module *table_module(const sterna_table_entry *entries, size_t count) {
  sterna_module *module = NULL;
  check(sterna_module_from_table(entries, count, &module) == 0);
  return module;
}

static void tables(void) {
  sterna_module *module = table_module(five_and_six, 2), *same = NULL;
  sterna_any value = sterna_any_object(module);
  check_text(sterna_module_kind(module), "table");
  check(sterna_as_module(&value, &same) == 0 && same == module);
  check(answer(module, "five", 0) == 5 && answer(module, "six", 1) == 6);
  check(answer(module, "seven", 1) == -1 && answer(module, "", 1) == -1);
  sterna_function *function;
  check(sterna_module_get_function(module, "six", 0, &function) == 0);
  sterna_release(module); /* a function keeps its module */
  check(call_int(function) == 6);
  sterna_release(function);
  module = table_module(NULL, 0);
  check(answer(module, "five", 1) == -1);
  sterna_release(module);
}

/* ---- custom kinds ---- */

typedef struct {
  int64_t number;
  int destroyed, looked_up;
} custom;

static int custom_function(sterna_module *m, void *self, const char *name, sterna_function **out) {
  custom *c = self;
  c->looked_up++;
  if (strcmp(name, "broken") == 0)
    return sterna_set_error("OSError", "the custom module is broken");
  if (strcmp(name, "number") == 0) return sterna_module_function(m, give_number, &c->number, out);
  *out = NULL;
  return 0;
}

static void custom_destroy(void *self) { ((custom *)self)->destroyed++; }

static const sterna_module_type custom_type = {"custom", custom_function, custom_destroy};

static sterna_module *custom_module(custom *c) {
  sterna_module *module = NULL;
  check(sterna_module_create(&custom_type, c, &module) == 0);
  return module;
}

static void custom_kinds(void) {
  custom c = {31, 0, 0};
  sterna_module *module = custom_module(&c), *wrong = NULL;
  sterna_function *function = NULL;
  check_text(sterna_module_kind(module), "custom");
  check(sterna_module_self(module) == &c && sterna_module_type_of(module) == &custom_type);
  check(answer(module, "number", 0) == 31 && answer(module, "nothing", 0) == -1);
  check_fails(sterna_module_get_function(module, "broken", 1, &function), "OSError", "broken");
  check(function == NULL && sterna_module_get_function(module, "number", 0, &function) == 0);
  sterna_release(module);
  check(c.destroyed == 0 && call_int(function) == 31);
  sterna_release(function);
  check(c.destroyed == 1);

  sterna_module_type broken = {"kind", NULL, NULL};
  check_fails(sterna_module_create(&broken, &c, &wrong), "ValueError", "get_function");
  broken = (sterna_module_type){NULL, custom_function, NULL};
  check_fails(sterna_module_create(&broken, &c, &wrong), "ValueError", "kind");
  check_fails(sterna_module_create(NULL, &c, &wrong), "ValueError", "kind");
  check_fail_at(1, 0);
  check_fails(sterna_module_create(&custom_type, &c, &wrong), "MemoryError", "out of memory");
  check(wrong == NULL && c.destroyed == 1); /* self stays with the caller */

  sterna_object foreign = {((uint64_t)1 << 32) | 1, STERNA_MODULE, 0, {NULL}};
  sterna_any value = sterna_any_object(&foreign);
  check_fails(sterna_as_module(&value, &wrong), "TypeError", "another runtime");
}

/* ---- imports ---- */

static void imports(void) {
  custom c = {8, 0, 0};
  sterna_module *a = table_module(five_and_six, 2), *b = table_module(only_seven, 2);
  sterna_module *deep = custom_module(&c), *out = NULL;
  check(sterna_module_import_count(a) == 0);
  check(sterna_module_import(a, b) == 0 && sterna_module_import(b, deep) == 0);
  check(sterna_module_import(a, deep) == 0 && sterna_module_import(a, b) == 0); /* twice is fine */
  check(sterna_module_import_count(a) == 3);
  check(answer(a, "five", 1) == 5);            /* its own come first */
  check(answer(a, "seven", 1) == 6);           /* then its imports' */
  check(answer(a, "seven", 0) == -1);          /* if they are wanted */
  check(answer(a, "number", 1) == 8);          /* and theirs */
  sterna_function *function = NULL;
  check_fails(sterna_module_get_function(a, "broken", 1, &function), "OSError", "broken");
  check(function == NULL);
  check(sterna_module_get_import(a, 1, &out) == 0 && out == deep);
  sterna_release(out);
  out = NULL;
  check_fails(sterna_module_get_import(a, 3, &out), "IndexError", "number 3");
  check_fails(sterna_module_get_import(a, SIZE_MAX, &out), "IndexError", "no import");

  check_fails(sterna_module_import(a, a), "ValueError", "import itself");
  check_fails(sterna_module_import(b, a), "ValueError", "import itself");
  check_fails(sterna_module_import(deep, a), "ValueError", "import itself");
  check(sterna_module_import_count(a) == 3 && sterna_module_import_count(deep) == 0);
  check(sterna_module_clear_imports(a) == 0 && sterna_module_import_count(a) == 0);
  check(sterna_module_clear_imports(a) == 0);
  check(sterna_module_import(b, a) == 0); /* no circle any more */
  check_fails(sterna_module_import(a, b), "ValueError", "import itself");
  sterna_release(a);
  sterna_release(deep);
  check(answer(b, "six", 1) == 6 && answer(b, "number", 1) == 8 && c.destroyed == 0);
  sterna_release(b);
  check(c.destroyed == 1);
}

/* Each imports the one below twice: there are 2^40 ways down, which nobody may walk one by one. */
static void many_ways_down(void) {
  enum { LAYERS = 40 };
  sterna_module *layers[LAYERS];
  double start = check_seconds();
  for (int i = 0; i < LAYERS; i++) {
    layers[i] = table_module(i ? only_seven : five_and_six, 2);
    if (i) {
      check(sterna_module_import(layers[i], layers[i - 1]) == 0);
      check(sterna_module_import(layers[i], layers[i - 1]) == 0);
    }
  }
  check(answer(layers[LAYERS - 1], "six", 1) == 6);
  check(answer(layers[LAYERS - 1], "missing", 1) == -1);
  sterna_function *found = NULL;
  check_fails(sterna_module_lookup(layers[LAYERS - 1], "missing", &found), "ValueError", "'missing'");
  check_fails(sterna_module_import(layers[0], layers[LAYERS - 1]), "ValueError", "import itself");
  check(check_seconds() - start < 5);
  for (int i = 0; i < LAYERS; i++) sterna_release(layers[i]);
}

static void long_chain(void) {
  enum { LENGTH = 200000 };
  sterna_module *first = table_module(five_and_six, 2), *last = first;
  for (int i = 1; i < LENGTH; i++) {
    sterna_module *next = table_module(only_seven, i == LENGTH - 1 ? 2 : 0);
    check(sterna_module_import(last, next) == 0);
    sterna_release(next);
    last = next;
  }
  check(answer(first, "seven", 1) == 6 && answer(first, "missing", 1) == -1);
  check_fails(sterna_module_import(last, first), "ValueError", "import itself");
  sterna_release(first);
}

/* ---- lookups of compiled code ---- */

static void lookups(void) {
  custom c = {12, 0, 0}, d = {13, 0, 0};
  sterna_module *module = table_module(five_and_six, 2), *imported = custom_module(&c);
  sterna_module *other = custom_module(&d);
  sterna_function *found = NULL, *again = NULL;
  check_fails(sterna_module_lookup(module, "number", &found), "ValueError", "no function 'number'");
  check_fails(sterna_module_lookup(NULL, "number", &found), "RuntimeError", "in no module");
  check_fails(sterna_module_lookup(module, "six", &found), "ValueError", "'six'"); /* not its own */
  check(sterna_register("number", give_six, NULL, NULL) == 0);
  check(sterna_register("plain", give_six, NULL, NULL) == 0);
  check(sterna_module_import(module, imported) == 0);
  check(sterna_module_lookup(module, "number", &found) == 0 && call_int(found) == 12);
  int before = c.looked_up;
  check(sterna_module_lookup(module, "number", &again) == 0 && again == found);
  check(c.looked_up == before); /* remembered */
  check(sterna_module_clear_imports(module) == 0 && sterna_module_import(module, other) == 0);
  check(sterna_module_lookup(module, "number", &again) == 0 && call_int(again) == 12);
  check(sterna_module_lookup(module, "plain", &found) == 0 && call_int(found) == 6);
  check(sterna_remove_global("plain") == 0);
  check(sterna_module_lookup(module, "plain", &again) == 0 && again == found &&
        call_int(found) == 6);
  check_fails(sterna_module_lookup(module, "broken", &again), "OSError", "broken");
  check_fail_at(1, 0);
  sterna_release(imported);
  sterna_release(other);
  check(c.destroyed == 0); /* what is remembered is kept */
  sterna_release(module);
  check(c.destroyed == 1 && d.destroyed == 1);
}

typedef struct {
  sterna_module *module;
  atomic_int go, wrong;
} shared_lookup;

static void *look_up_often(void *data) {
  shared_lookup *s = data;
  char name[24];
  while (!atomic_load(&s->go)) {
  }
  for (int i = 0; i < 400; i++) {
    sterna_function *first = NULL, *second = NULL;
    snprintf(name, sizeof name, "f%d", i % 100);
    check(sterna_module_lookup(s->module, name, &first) == 0);
    check(sterna_module_lookup(s->module, name, &second) == 0 && first == second);
    if (call_int(first) != 6) atomic_fetch_add(&s->wrong, 1);
    if (i % 50 == 0) {
      sterna_module *extra = table_module(only_seven, 2);
      check(sterna_module_import(s->module, extra) == 0);
      sterna_release(extra);
    }
    if (i % 70 == 0) check(sterna_module_clear_imports(s->module) == 0);
    sterna_function *seven;
    check(sterna_module_get_function(s->module, "seven", 1, &seven) == 0);
    sterna_release(seven);
  }
  return NULL;
}

static void concurrent_lookups(void) {
  shared_lookup s = {table_module(five_and_six, 2), 0, 0};
  pthread_t threads[4];
  char name[24];
  for (int i = 0; i < 100; i++) {
    snprintf(name, sizeof name, "f%d", i);
    check(sterna_register(name, give_six, NULL, NULL) == 0);
  }
  for (int i = 0; i < 4; i++) pthread_create(&threads[i], NULL, look_up_often, &s);
  atomic_store(&s.go, 1);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  check(atomic_load(&s.wrong) == 0);
  sterna_release(s.module);
}

/* ---- the program's own symbols ---- */

static void *address_of(sterna_call call) {
  void *address;
  memcpy(&address, &call, sizeof address);
  return address;
}

static void system_symbols(void) {
  char name[600], symbol[700];
  sterna_module *all = NULL, *mine = NULL;
  check(sterna_system_module("", &all) == 0 && sterna_system_module("mine_", &mine) == 0);
  check_text(sterna_module_kind(all), "system");
  check(answer(all, "number", 0) == -1);
  check(sterna_register_system_symbol("__tvm_ffi_number", address_of(give_number)) == 0);
  check(sterna_register_system_symbol("__tvm_ffi_mine_number", address_of(give_six)) == 0);
  check(sterna_register_system_symbol("number_of_others", address_of(give_six)) == 0);
  check(answer(all, "number", 0) == 5 && answer(mine, "number", 0) == 6);
  check(answer(all, "mine_number", 0) == 6 && answer(mine, "mine_number", 0) == -1);
  check(answer(all, "number_of_others", 0) == -1);
  check(sterna_register_system_symbol("__tvm_ffi_number", address_of(give_six)) == 0);
  check(answer(all, "number", 0) == 6); /* the last one holds */
  memset(name, 'n', sizeof name - 1);
  name[sizeof name - 1] = 0;
  snprintf(symbol, sizeof symbol, "__tvm_ffi_mine_%s", name);
  check(sterna_register_system_symbol(symbol, address_of(give_number)) == 0);
  check(answer(mine, name, 0) == 5);
  for (size_t size = 236; size < 250; size++) { /* around the end of the small buffer */
    name[size] = 0;
    snprintf(symbol, sizeof symbol, "__tvm_ffi_%s", name);
    check(answer(all, name, 0) == -1);
    check(sterna_register_system_symbol(symbol, address_of(give_six)) == 0);
    check(answer(all, name, 0) == 6);
    name[size] = 'n';
  }
  sterna_function *function = NULL;
  check_fail_at(1, 0);
  check_fails(sterna_module_get_function(all, name, 0, &function), "MemoryError", "out of memory");
  check_fail_at(0, 0);
  sterna_release(all);
  sterna_release(mine);
}

static void processors(void) {
  check(sterna_check_processor("mine", "") == 0 && sterna_check_processor("mine", "tomorrows") == 0);
  check(sterna_check_processor(NULL, "tomorrows with  teeth ") == 0);
#if defined(__x86_64__) /* of no processor that this is likely to run on */
  check_fails(sterna_check_processor("mine", "bdver4 avx xop fma4"), "ValueError",
              "cannot load 'mine': it was compiled for -mcpu=bdver4, and this processor lacks xop, fma4");
  check_fails(sterna_check_processor(NULL, "bdver4 xop"), "ValueError", "the code was compiled for");
#endif
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"tables", tables},
      {"custom_kinds", custom_kinds},
      {"imports", imports},
      {"many_ways_down", many_ways_down},
      {"long_chain", long_chain},
      {"lookups", lookups},
      {"concurrent_lookups", concurrent_lookups},
      {"system_symbols", system_symbols},
      {"processors", processors},
  };
  return CASES(cases);
}
