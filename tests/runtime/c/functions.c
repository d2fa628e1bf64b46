/* Functions as values, and the process's functions by name. */
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

static atomic_int ends;

static void count_end(void *self) {
  check(self == &ends);
  atomic_fetch_add(&ends, 1);
}

static int sum(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  int64_t total = self && self != &ends ? *(int64_t *)self : 0, number;
  for (int32_t i = 0; i < n; i++) {
    if (sterna_as_int(&args[i], &number)) return -1;
    total += number;
  }
  *ret = sterna_any_int(total);
  return 0;
}

static int answer(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)args;
  (void)n;
  *ret = sterna_any_int((int64_t)(intptr_t)self);
  return 0;
}

static int64_t call_global(const char *name) {
  sterna_function *function = NULL;
  sterna_any ret = sterna_any_none();
  check(sterna_get_global(name, &function) == 0);
  if (!check(function != NULL)) return -1;
  check(sterna_function_call(function, NULL, 0, &ret) == 0);
  sterna_release(function);
  return ret.v_int64;
}

static void closures(void) {
  int64_t start = 100;
  sterna_function *function;
  sterna_any args[3] = {sterna_any_int(1), sterna_any_bool(1), sterna_any_int(-4)};
  sterna_any ret = sterna_any_none();
  check(sterna_function_create(sum, &start, NULL, &function) == 0);
  check(function->header.type_index == STERNA_FUNCTION_OBJECT && function->cpp_call == NULL);
  check(sterna_function_call(function, args, 3, &ret) == 0);
  check(ret.type_index == STERNA_INT && ret.v_int64 == 98);
  ret = sterna_any_none();
  check(function->call(function, args, 1, &ret) == 0 && ret.v_int64 == 101); /* the ABI's way */
  args[1] = sterna_any_float(1);
  ret = sterna_any_none();
  check_fails(sterna_function_call(function, args, 2, &ret), "TypeError",
              "expected int, got float");
  check(ret.type_index == STERNA_NONE);
  sterna_release(function);
}

static void deleter_runs_once(void) {
  sterna_function *function;
  atomic_store(&ends, 0);
  check(sterna_function_create(sum, &ends, count_end, &function) == 0);
  sterna_any view = sterna_any_object(function), owned, list;
  check(sterna_any_own(&view, &owned) == 0 && sterna_list(&view, 1, &list) == 0);
  sterna_release(function);
  sterna_any_release(&owned);
  check(atomic_load(&ends) == 0);
  sterna_any_release(&list);
  check(atomic_load(&ends) == 1);

  check_fail_at(1, 0);
  function = NULL;
  check_fails(sterna_function_create(sum, &ends, count_end, &function), "MemoryError", "");
  check(function == NULL && atomic_load(&ends) == 1); /* self stays with the caller */
}

/* A function of another runtime: an object that only has the ABI's layout. */
static int foreign_call(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)args;
  *ret = sterna_any_int(n + ((sterna_function *)self)->header.type_index);
  return 0;
}

static void foreign_functions(void) {
  sterna_function foreign = {{((uint64_t)1 << 32) | 1, STERNA_FUNCTION_OBJECT, 0, {NULL}},
                             foreign_call, &ends};
  sterna_any ret = sterna_any_none();
  check(sterna_register_function("foreign", &foreign, 0) == 0);
  sterna_function *found = NULL;
  check(sterna_get_global("foreign", &found) == 0 && found == &foreign);
  check(sterna_function_call(found, NULL, 0, &ret) == 0 && ret.v_int64 == STERNA_FUNCTION_OBJECT);
  sterna_release(found);
  check(sterna_remove_global("foreign") == 0);
  check((foreign.header.ref_counts & 0xffffffff) == 1);
}

static void registering(void) {
  sterna_function *function = (sterna_function *)&ends;
  atomic_store(&ends, 0);
  check(sterna_get_global("twice", &function) == 0 && function == NULL);
  check(sterna_register("twice", answer, (void *)1, NULL) == 0);
  check_fails(sterna_register("twice", sum, &ends, count_end), "ValueError", "'twice' is already");
  check(atomic_load(&ends) == 0); /* self stays with the caller when this fails */
  check(call_global("twice") == 1);

  check(sterna_function_create(answer, (void *)2, NULL, &function) == 0);
  check_fails(sterna_register_function("twice", function, 0), "ValueError", "'twice' is already");
  check((function->header.ref_counts & 0xffffffff) == 1);
  sterna_function *held;
  check(sterna_get_global("twice", &held) == 0); /* goes on working after it was replaced */
  check(sterna_register_function("twice", function, 1) == 0 && call_global("twice") == 2);
  check(sterna_register_function("twice", function, 1) == 0 && call_global("twice") == 2);
  check((function->header.ref_counts & 0xffffffff) == 2);
  sterna_any ret = sterna_any_none();
  check(sterna_function_call(held, NULL, 0, &ret) == 0 && ret.v_int64 == 1);
  sterna_release(held);
  sterna_release(function);

  check(sterna_remove_global("twice") == 0);
  check_fails(sterna_remove_global("twice"), "ValueError", "no function named 'twice'");
  check(sterna_register("twice", sum, &ends, count_end) == 0);
  check(sterna_remove_global("twice") == 0 && atomic_load(&ends) == 1);

  check_fails(sterna_register("", sum, NULL, NULL), "ValueError", "needs a name");
  check_fails(sterna_register(NULL, sum, &ends, count_end), "ValueError", "needs a name");
  check_fails(sterna_register_function("nothing", NULL, 0), "ValueError", "function");
  check(sterna_get_global("nothing", &function) == 0 && function == NULL);
  check(sterna_register("left", sum, &ends, count_end) == 0);
  sterna_shutdown();
  check(atomic_load(&ends) == 2);
  check(sterna_get_global("left", &function) == 0 && function == NULL);
}

static void failing_registration(void) {
  atomic_store(&ends, 0);
  for (int n = 1;; n++) {
    check_fail_at(n, 0);
    int failed = sterna_register("name", sum, &ends, count_end);
    int ran_out = check_has_failed();
    check_fail_at(0, 0);
    if (!failed) {
      check(!ran_out && n > 2);
      break;
    }
    check_fails(failed, "MemoryError", "out of memory");
    check(atomic_load(&ends) == 0);
    sterna_function *function;
    check(sterna_get_global("name", &function) == 0 && function == NULL);
  }
  check(sterna_remove_global("name") == 0 && atomic_load(&ends) == 1);
}

static void listing(void) {
  char name[400];
  const sterna_any *items;
  int64_t count = -1;
  sterna_any list;
  check(sterna_list_globals(&list) == 0 && sterna_as_list(&list, &items, &count) == 0 &&
        count == 0);
  sterna_any_release(&list);
  for (int round = 0; round < 2; round++) { /* again after everything was removed */
    for (int i = 0; i < 700; i++) {
      int size = snprintf(name, sizeof name, "n%d", i * 7919 % 700);
      if (i % 50 == 0) memset(name + size, 'x', 300), name[size + 300] = 0;
      check(sterna_register(name, answer, NULL, NULL) == 0);
    }
    check(sterna_list_globals(&list) == 0 && sterna_as_list(&list, &items, &count) == 0);
    check(count == 700);
    sterna_bytes before = {"", 0};
    for (int64_t i = 0; i < count; i++) {
      sterna_bytes text;
      check(sterna_as_string(&items[i], &text) == 0);
      check(strcmp(before.data, text.data) < 0);
      before = text;
      check(sterna_remove_global(text.data) == 0);
    }
    sterna_any_release(&list);
    check(sterna_list_globals(&list) == 0 && sterna_as_list(&list, &items, &count) == 0);
    check(count == 0);
    sterna_any_release(&list);
  }
  for (int i = 0; i < 5000; i++) { /* removed names must not fill the table */
    snprintf(name, sizeof name, "%d", i);
    check(sterna_register(name, answer, (void *)(intptr_t)i, NULL) == 0);
    if (i >= 3) {
      snprintf(name, sizeof name, "%d", i - 3);
      check(call_global(name) == i - 3 && sterna_remove_global(name) == 0);
    }
  }
}

/* ---- several threads ---- */

static atomic_int registered, stop;

static void *register_and_remove(void *data) {
  int own = *(int *)data;
  char name[40];
  for (int i = 0; i < 600; i++) {
    sterna_function *function = NULL;
    snprintf(name, sizeof name, "own.%d.%d", own, i);
    check(sterna_register(name, answer, (void *)(intptr_t)i, NULL) == 0);
    check(call_global(name) == i);
    if (sterna_register("contested", sum, &ends, count_end) == 0) {
      atomic_fetch_add(&registered, 1);
      check(sterna_remove_global("contested") == 0); /* only who registered it removes it */
    }
    check(sterna_function_create(answer, (void *)5, NULL, &function) == 0);
    check(sterna_register_function("override", function, 1) == 0 && call_global("override") == 5);
    sterna_release(function);
    check(sterna_get_global("contested", &function) == 0);
    sterna_release(function);
    check(sterna_remove_global(name) == 0);
  }
  return NULL;
}

static void *list_all_the_time(void *data) {
  (void)data;
  while (!atomic_load(&stop)) {
    sterna_any list;
    const sterna_any *items;
    int64_t count = -1;
    check(sterna_list_globals(&list) == 0 && sterna_as_list(&list, &items, &count) == 0);
    for (int64_t i = 1; i < count; i++) {
      sterna_bytes a, b;
      check(sterna_as_string(&items[i - 1], &a) == 0 && sterna_as_string(&items[i], &b) == 0);
      check(strcmp(a.data, b.data) < 0);
    }
    sterna_any_release(&list);
  }
  return NULL;
}

static void concurrent_registry(void) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS], lister;
  int numbers[THREADS];
  atomic_store(&ends, 0);
  atomic_store(&registered, 0);
  atomic_store(&stop, 0);
  pthread_create(&lister, NULL, list_all_the_time, NULL);
  for (int i = 0; i < THREADS; i++) {
    numbers[i] = i;
    pthread_create(&threads[i], NULL, register_and_remove, &numbers[i]);
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  atomic_store(&stop, 1);
  pthread_join(lister, NULL);
  check(atomic_load(&registered) > 0 && atomic_load(&ends) == atomic_load(&registered));
  check(sterna_remove_global("override") == 0);
}

/* A deleter that uses the registry: no lock may be held while it runs. */
static void register_another(void *self) {
  (void)self;
  sterna_function *function;
  check(sterna_get_global("reenter", &function) == 0);
  sterna_release(function);
  check_fails(sterna_remove_global("never there"), "ValueError", "never there");
  sterna_register("from a deleter", answer, NULL, NULL);
}

static void reentrant_deleters(void) {
  sterna_function *function;
  check(sterna_register("reenter", answer, NULL, register_another) == 0);
  check(sterna_function_create(answer, (void *)7, register_another, &function) == 0);
  check(sterna_register_function("reenter", function, 1) == 0);
  sterna_release(function);
  check(call_global("reenter") == 7);
  check(sterna_remove_global("reenter") == 0);
  check(sterna_remove_global("from a deleter") == 0);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"closures", closures},
      {"deleter_runs_once", deleter_runs_once},
      {"foreign_functions", foreign_functions},
      {"registering", registering},
      {"failing_registration", failing_registration},
      {"listing", listing},
      {"concurrent_registry", concurrent_registry},
      {"reentrant_deleters", reentrant_deleters},
  };
  return CASES(cases);
}
