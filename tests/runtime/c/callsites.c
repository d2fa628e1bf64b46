/* Places in compiled code that call functions by name: sterna_host's call. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

static sterna_any given; /* what the function below returns, with a reference of its own */
static int32_t seen;     /* how many arguments it got last */

static int give(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self;
  seen = n;
  if (n && args[0].type_index == STERNA_C_STRING)
    return sterna_set_error("KeyError", args[0].v_c_str);
  return sterna_any_own(&given, ret);
}

static int give_six(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self;
  (void)args;
  (void)n;
  *ret = sterna_any_int(6);
  return 0;
}

static int host_call(sterna_call_site *site, int32_t wanted, sterna_any *ret) {
  return sterna_get_host()->call(site, NULL, 0, wanted, ret);
}

/* Without a module only registered functions are found, and nothing is remembered. */
static void registered(void) {
  sterna_call_site site = {"caller", "give", NULL, 0, NULL};
  sterna_any ret, arg = sterna_any_c_string("from inside");
  check_fails(host_call(&site, STERNA_NONE, &ret), "ValueError", "caller calls 'give', but no");
  check(sterna_register("give", give, NULL, NULL) == 0);
  given = sterna_any_int(7);
  check(host_call(&site, STERNA_INT, &ret) == 0 && ret.v_int64 == 7 && seen == 0);
  check(sterna_get_host()->call(&site, &given, 1, STERNA_INT, &ret) == 0 && seen == 1);
  check_fails(sterna_get_host()->call(&site, &arg, 1, STERNA_NONE, &ret), "KeyError", "from inside");
  check(sterna_remove_global("give") == 0);
  check_fails(host_call(&site, STERNA_NONE, &ret), "ValueError", "'give'");
  check(site.module_id == 0 && site.function == NULL);
}

static void results(void) {
  static const int32_t kinds[] = {STERNA_INT, STERNA_FLOAT, STERNA_POINTER};
  sterna_call_site site = {"caller", "give", NULL, 0, NULL};
  sterna_any ret, text = sterna_any_none();
  check(sterna_register("give", give, NULL, NULL) == 0);
  given = sterna_any_bool(1);
  check(host_call(&site, STERNA_INT, &ret) == 0 && ret.v_int64 == 1);
  check(host_call(&site, STERNA_FLOAT, &ret) == 0 && ret.v_float64 == 1);
  given = sterna_any_int(-3);
  check(host_call(&site, STERNA_FLOAT, &ret) == 0 && ret.type_index == STERNA_FLOAT &&
        ret.v_float64 == -3);
  given = sterna_any_float(1.5);
  check(host_call(&site, STERNA_FLOAT, &ret) == 0 && ret.v_float64 == 1.5);
  check_fails(host_call(&site, STERNA_INT, &ret), "TypeError",
              "caller calls 'give', which returned float instead of int");
  given = sterna_any_none();
  check(host_call(&site, STERNA_POINTER, &ret) == 0 && ret.v_ptr == NULL);
  check_fails(host_call(&site, STERNA_INT, &ret), "TypeError", "returned none instead of int");
  given.type_index = STERNA_POINTER;
  given.v_ptr = &site;
  check(host_call(&site, STERNA_POINTER, &ret) == 0 && ret.v_ptr == &site);
  check_fails(host_call(&site, STERNA_FLOAT, &ret), "TypeError", "returned a pointer instead of float");
  /* Objects that nobody can use are given back, whether that is an error or not. */
  check(sterna_string("a text that needs memory", 24, &text) == 0);
  given = text;
  sterna_clear_error();
  long live = check_live();
  check(host_call(&site, STERNA_NONE, &ret) == 0 && ret.type_index == STERNA_NONE);
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
    check_fails(host_call(&site, kinds[i], &ret), "TypeError", "returned text instead of");
  sterna_clear_error();
  check(check_live() == live);
  given = sterna_any_none();
  sterna_any_release(&text);
}

/* With a module its imports come first, and a place remembers what it found for that module. */
static void remembered(void) {
  static const sterna_table_entry table[] = {{"give", give_six}};
  sterna_any ret;
  void *context = NULL;
  sterna_call_site site = {"caller", "give", &context, 0, NULL};
  check(sterna_register("give", give, NULL, NULL) == 0);
  given = sterna_any_int(1);
  check(host_call(&site, STERNA_INT, &ret) == 0 && ret.v_int64 == 1 && !site.function);
  for (int round = 0; round < 4; round++) { /* modules that may follow each other in one place */
    sterna_module *module, *imported;
    check(sterna_module_from_table(table, 0, &module) == 0);
    check(sterna_module_from_table(table, 1, &imported) == 0);
    if (round % 2) check(sterna_module_import(module, imported) == 0);
    context = module;
    for (int again = 0; again < 2; again++)
      check(host_call(&site, STERNA_INT, &ret) == 0 && ret.v_int64 == (round % 2 ? 6 : 1));
    check(site.function != NULL && sterna_module_import(module, imported) == 0);
    check(host_call(&site, STERNA_INT, &ret) == 0 && ret.v_int64 == (round % 2 ? 6 : 1));
    sterna_release(imported);
    sterna_release(module);
  }
}

typedef struct {
  sterna_call_site site;
  atomic_int go, wrong;
} shared_site;

static void *call_often(void *data) {
  shared_site *s = data;
  sterna_any ret;
  while (!atomic_load(&s->go)) {
  }
  for (int i = 0; i < 1000; i++)
    if (host_call(&s->site, STERNA_INT, &ret) || ret.v_int64 != 6) atomic_fetch_add(&s->wrong, 1);
  return NULL;
}

static void from_many_threads(void) {
  pthread_t threads[4];
  sterna_module *module;
  check(sterna_module_from_table(NULL, 0, &module) == 0);
  check(sterna_register("six", give_six, NULL, NULL) == 0);
  void *context = module;
  shared_site s = {{"caller", "six", &context, 0, NULL}, 0, 0};
  for (int i = 0; i < 4; i++) check(pthread_create(&threads[i], NULL, call_often, &s) == 0);
  atomic_store(&s.go, 1);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  check(atomic_load(&s.wrong) == 0);
  sterna_release(module);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"registered", registered},
      {"results", results},
      {"remembered", remembered},
      {"from_many_threads", from_many_threads},
  };
  return CASES(cases);
}
