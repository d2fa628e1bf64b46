/* The global function registry: the process's functions by name. */
#include "internal.h"

#include <stdlib.h>
#include <string.h>

static table functions;
static platform_mutex registry_mutex = PLATFORM_MUTEX_INIT;

int sterna_register_function(const char *name, sterna_function *function, int override_it) {
  if (!name || !*name) return sterna_set_error("ValueError", "a function needs a name");
  if (!function) return sterna_set_errorf("ValueError", "no function was given for '%s'", name);
  platform_lock(&registry_mutex);
  void **there = table_find(&functions, name);
  sterna_function *before = NULL;
  int taken = there && !override_it, failed = 0;
  if (!taken) {
    if (there) {
      before = *there;
      *there = function;
    } else {
      failed = table_put(&functions, name, function);
    }
    if (!failed) sterna_retain(function);
  }
  platform_unlock(&registry_mutex);
  sterna_release(before);
  if (taken)
    return sterna_set_errorf("ValueError",
                             "a function named '%s' is already registered; pass override to replace it",
                             name);
  return failed ? error_out_of_memory() : 0;
}

int sterna_register(const char *name, sterna_call call, void *self, void (*deleter)(void *self)) {
  REQUIRE(call);
  sterna_function *function;
  if (sterna_function_create(call, self, NULL, &function)) return -1;
  int failed = sterna_register_function(name, function, 0);
  /* self passes to the registry only when this succeeds */
  if (!failed && deleter) function_set_deleter(function, deleter);
  sterna_release(function);
  return failed;
}

static sterna_function *find_registered(const char *name) {
  platform_lock(&registry_mutex);
  void **there = table_find(&functions, name);
  sterna_function *found = there ? *there : NULL;
  sterna_retain(found);
  platform_unlock(&registry_mutex);
  return found;
}

int sterna_get_global(const char *name, sterna_function **out) {
  REQUIRE(name);
  REQUIRE(out);
  sterna_function *found = find_registered(name);
  if (!found && strncmp(name, LOAD_FROM_BYTES, sizeof LOAD_FROM_BYTES - 1) == 0) {
    device_load_named(name + sizeof LOAD_FROM_BYTES - 1); /* a library beside this one may know the kind */
    found = find_registered(name);
  }
  sterna_call own = found ? NULL : factory_find_global(name);
  if (own) return sterna_function_create(own, NULL, NULL, out);
  *out = found;
  return 0;
}

int sterna_remove_global(const char *name) {
  REQUIRE(name);
  platform_lock(&registry_mutex);
  sterna_function *found = table_remove(&functions, name);
  platform_unlock(&registry_mutex);
  if (!found) return sterna_set_errorf("ValueError", "no function named '%s' is registered", name);
  sterna_release(found);
  return 0;
}

static int by_name(const void *a, const void *b) {
  return strcmp(((const sterna_any *)a)->v_c_str, ((const sterna_any *)b)->v_c_str);
}

/* Copies every name into one block: first an array of views, then the text they point to. */
static sterna_any *copy_names(size_t *count) {
  size_t text_size = 0;
  for (size_t i = 0; i < functions.capacity; i++)
    if (table_is_live(&functions.entries[i])) text_size += strlen(functions.entries[i].name) + 1;
  sterna_any *names = memory_try_allocate(functions.live * sizeof *names + text_size, 16);
  if (!names) return NULL;
  char *text = (char *)(names + functions.live);
  *count = 0;
  for (size_t i = 0; i < functions.capacity; i++) {
    if (!table_is_live(&functions.entries[i])) continue;
    size_t size = strlen(functions.entries[i].name) + 1;
    memcpy(text, functions.entries[i].name, size);
    names[(*count)++] = sterna_any_c_string(text);
    text += size;
  }
  return names;
}

int sterna_list_globals(sterna_any *out) {
  REQUIRE(out);
  size_t count = 0;
  platform_lock(&registry_mutex);
  sterna_any *names = copy_names(&count);
  platform_unlock(&registry_mutex);
  if (!names) return error_out_of_memory();
  if (count) qsort(names, count, sizeof *names, by_name);
  int failed = sterna_list(names, (int64_t)count, out);
  memory_release(names);
  return failed;
}

void registry_shutdown(void) {
  platform_lock(&registry_mutex);
  table old = functions;
  functions = (table){NULL, 0, 0, 0};
  platform_unlock(&registry_mutex);
  for (size_t i = 0; i < old.capacity; i++)
    if (table_is_live(&old.entries[i])) sterna_release(old.entries[i].value);
  table_free(&old);
}

void registry_before_fork(void) { platform_lock(&registry_mutex); }

void registry_after_fork(void) { platform_unlock(&registry_mutex); }
