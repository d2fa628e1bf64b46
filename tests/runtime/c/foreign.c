/* Beside another runtime of the same ABI, which keeps errors in a place of its own. */
#include <dlfcn.h>
#include <pthread.h>

#include "check.h"

static sterna_function *fail_there;
static void (*set_raised)(void *error);
static void (*move_from_raised)(void **error);

static void load_other_runtime(void) {
  char *path = check_library("foreign.so");
  sterna_module *module = NULL;
  if (!check(sterna_module_load(path, &module) == 0)) exit(1);
  check(sterna_module_get_function(module, "fail_there", 0, &fail_there) == 0 && fail_there);
  sterna_release(module);
  void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD), *set, *move;
  if (!check(handle != NULL)) exit(1);
  set = dlsym(handle, "TVMFFIErrorSetRaised");
  move = dlsym(handle, "TVMFFIErrorMoveFromRaised");
  memcpy(&set_raised, &set, sizeof set);
  memcpy(&move_from_raised, &move, sizeof move);
  dlclose(handle);
  free(path);
}

static sterna_error *take_there(void) {
  void *error = NULL;
  move_from_raised(&error);
  return error;
}

static void errors_from_there(void) {
  load_other_runtime();
  sterna_any ret = sterna_any_none();
  /* With and without an older error here: the call that failed last counts. */
  for (int older = 0; older < 2; older++) {
    if (older) sterna_set_error("OldError", "an older one");
    check_fails(sterna_function_call(fail_there, NULL, 0, &ret), "TheirError",
                "in the other runtime");
    check_fails(-1, "TheirError", "in the other runtime"); /* reading takes nothing away */
    check_fails(sterna_wrap_error("ValueError", "it failed"), "ValueError", "it failed");
    sterna_error *error = sterna_take_error();
    if (check(error && error->cause))
      check_text(((sterna_error *)error->cause)->kind.data, "TheirError");
    sterna_release(error);
    check(sterna_take_error() == NULL); /* neither here nor there */
    check_text(sterna_last_error(), "");
    if (older) sterna_set_error("OldError", "an older one");
    check(sterna_function_call(fail_there, NULL, 0, &ret) == -1);
    error = sterna_take_error();
    check_text(error->kind.data, "TheirError");
    sterna_release(error);
    check(sterna_take_error() == NULL);
  }
  check(sterna_function_call(fail_there, NULL, 0, &ret) == -1);
  sterna_clear_error();
  check_text(sterna_last_error_kind(), "");
  sterna_release(fail_there);
}

static void errors_to_there(void) {
  load_other_runtime();
  check_fails(sterna_set_error("ValueError", "made here"), "ValueError", "made here");
  sterna_error *error = take_there();
  if (check(error != NULL)) check_text(error->message.data, "made here");
  sterna_release(error);
  check_fails(-1, "ValueError", "made here"); /* taken there, still known here */
  sterna_clear_error();
  check(take_there() == NULL);
  sterna_set_error("ValueError", "first");
  sterna_set_error("ValueError", "second");
  error = sterna_take_error();
  check_text(error->message.data, "second");
  sterna_release(error);
  check(sterna_take_error() == NULL && take_there() == NULL);
  check_fail_at(1, 1);
  check_fails(sterna_set_error("A", "a"), "MemoryError", "out of memory");
  check_fail_at(0, 0);
  error = take_there();
  check_text(error->kind.data, "MemoryError");
  sterna_release(error);
  sterna_release(fail_there);
}

static int fail_in_task(int32_t task, int32_t tasks, void *data) {
  sterna_any ret = sterna_any_none();
  (void)tasks;
  (void)data;
  return task == 3 ? sterna_function_call(fail_there, NULL, 0, &ret) : 0;
}

static void errors_in_tasks(void) {
  load_other_runtime();
  check(sterna_set_num_threads(3) == 0);
  for (int i = 0; i < 50; i++)
    check_fails(sterna_parallel(fail_in_task, NULL, 8), "TheirError", "in the other runtime");
  sterna_clear_error();
  check(sterna_take_error() == NULL);
  sterna_release(fail_there);
}

/* Its functions are remembered, so it must stay, although it says that it may be closed. */
static void stays(void) {
  load_other_runtime();
  sterna_release(fail_there);
  char *path = check_library("foreign.so");
  void *handle = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
  check(handle != NULL);
  dlclose(handle);
  free(path);
  check_fails(sterna_set_error("ValueError", "still works"), "ValueError", "still works");
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"errors_from_there", errors_from_there},
      {"errors_to_there", errors_to_there},
      {"errors_in_tasks", errors_in_tasks},
      {"stays", stays},
  };
  return CASES(cases);
}
