/* Shared libraries as modules. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "check.h"

/* Called by the libraries' initializers and finalizers. */
static atomic_int loads, unloads;
static void (*during_load)(void);
void test_on_load(int version);
void test_on_unload(int version);

void test_on_load(int version) {
  (void)version;
  atomic_fetch_add(&loads, 1);
  if (during_load) during_load();
}

void test_on_unload(int version) {
  (void)version;
  atomic_fetch_add(&unloads, 1);
}

static sterna_module *load(const char *path) {
  sterna_module *module = NULL;
  if (!check(sterna_module_load(path, &module) == 0)) {
    fprintf(stderr, "%s\n", sterna_last_error());
    exit(1);
  }
  return module;
}

static sterna_function *get(sterna_module *module, const char *name) {
  sterna_function *function = NULL;
  check(sterna_module_get_function(module, name, 0, &function) == 0);
  if (!check(function != NULL)) exit(1);
  return function;
}

static sterna_any call(sterna_function *function) {
  sterna_any ret = sterna_any_none();
  check(sterna_function_call(function, NULL, 0, &ret) == 0);
  return ret;
}

static int64_t answer_of(sterna_module *module) {
  sterna_function *function = get(module, "answer");
  int64_t number = call(function).v_int64;
  sterna_release(function);
  return number;
}

/* A library of that version at a path of the case's own. */
static char *put(const char *version, const char *name) {
  char *from = check_library(version), *path = check_path(name);
  check_copy(from, path);
  free(from);
  return path;
}

static void replace(const char *version, const char *path) {
  char *from = check_library(version);
  check_copy(from, path);
  free(from);
}

static void loading(void) {
  char *path = put("version1.so", "loading.so"), link[600];
  sterna_module *module = load(path), *again = load(path), *linked;
  check(module == again); /* the same file is the same module */
  snprintf(link, sizeof link, "%s/../%s/symbolic.so", check_folder(),
           strrchr(check_folder(), '/') + 1);
  check(symlink(path, link) == 0);
  linked = load(link);
  check(linked == module);
  sterna_release(linked);
  char *hard = check_path("hard.so");
  check(linkat(-100, path, -100, hard, 0) == 0);
  linked = load(hard);
  check(linked == module);
  sterna_release(linked);

  check_text(sterna_module_kind(module), "library");
  check(answer_of(module) == 1);
  sterna_function *function = (sterna_function *)path;
  check(sterna_module_get_function(module, "no such function", 0, &function) == 0 && !function);
  check(sterna_module_get_function(module, "", 1, &function) == 0 && !function);
  check(sterna_module_get_function(module, "_library_ctx", 0, &function) == 0 && !function);
  function = get(module, TEST_LONG_NAME);
  check(call(function).v_int64 == 1001);
  sterna_release(function);
  function = get(module, "fail");
  sterna_any ret = sterna_any_none();
  sterna_release(module);
  sterna_release(again);
  check_fails(sterna_function_call(function, NULL, 0, &ret), "KeyError", "version 1 fails");
  sterna_release(function);
  free(path);
  free(hard);
}

static void context(void) {
  char *path = put("version1.so", "context.so");
  sterna_module *module = load(path);
  sterna_function *function = get(module, "context");
  check(call(function).v_ptr == module);
  void *handle = dlopen(path, RTLD_NOW); /* for a look when the module has ended */
  void **variable = handle ? dlsym(handle, "__tvm_ffi__library_ctx") : NULL;
  if (!check(variable != NULL)) return;
  sterna_release(module);
  check(*variable == module && call(function).v_ptr == module); /* a function keeps its module */
  sterna_release(function);
  check(*variable == NULL);
  module = load(path);
  check(*variable == module);
  sterna_release(module);
  check(*variable == NULL);
  dlclose(handle);
  free(path);
}

/* Two modules in one file: each has its own context, and both come and go with the library. */
static void several(void) {
  static const char *const names[] = {"several.so", "several_closeable.so"};
  for (int i = 0; i < 2; i++) {
    char *path = put(names[i], names[i]);
    sterna_module *outer = load(path), *inner = NULL, *again = load(path);
    check(again == outer && sterna_module_import_count(outer) == 1);
    sterna_release(again);
    check(sterna_module_get_import(outer, 0, &inner) == 0);
    sterna_function *first = get(outer, "context"), *second = get(inner, "context");
    check(call(first).v_ptr == outer && call(second).v_ptr == inner);
    sterna_release(first);
    sterna_release(inner);
    sterna_release(outer);
    check(call(second).v_ptr == inner); /* the function holds its module, and that its library */
    again = load(path); /* which cannot serve a second one meanwhile */
    check(sterna_module_get_import(again, 0, &outer) == 0 && outer != inner);
    first = get(outer, "context");
    check(call(first).v_ptr == outer && call(second).v_ptr == inner);
    sterna_release(second);
    sterna_release(again);
    check(call(first).v_ptr == outer);
    sterna_release(outer);
    sterna_release(first);
    again = load(path);
    first = get(again, "context");
    check(call(first).v_ptr == again);
    sterna_release(first);
    sterna_release(again);
    free(path);
  }
}

static size_t find_bytes(const char *data, size_t size, const char *part, size_t length) {
  for (size_t i = 0; i + length <= size; i++)
    if (memcmp(data + i, part, length) == 0) return i;
  return 0;
}

/* Whatever the table in a library says, it is not read past the library's memory. */
static void broken_tables(void) {
  static const char kind[] = "\4\0\0\0\0\0\0\0_lib";
  char *path = check_library("several.so"), *copy = check_path("broken.so");
  size_t size = 0, refused = 0;
  char *content = check_read(path, &size);
  size_t start = find_bytes(content, size, kind, sizeof kind - 1);
  if (!check(start > 56)) return;
  start -= 56;
  for (size_t at = 0; at < 150; at++) {
    unsigned char before = (unsigned char)content[start + at];
    content[start + at] = (char)(at % 8 == 7 ? 0x7f : 0xff);
    remove(copy);
    check_write(copy, content, size);
    content[start + at] = (char)before;
    sterna_module *module = NULL;
    if (sterna_module_load(copy, &module)) {
      check_text(sterna_last_error_kind(), "ValueError");
      check(strstr(sterna_last_error(), "broken.so") != NULL);
      refused++;
    }
    sterna_release(module); /* another name for a function breaks nothing */
  }
  check(refused > 100);
  free(content);
  free(copy);
  free(path);
}

static int count_task(int32_t task, int32_t tasks, void *data) {
  (void)task;
  (void)tasks;
  atomic_fetch_add((atomic_int *)data, 1);
  return 0;
}

/* Released workspaces are kept for the next one who asks, within limits; the rest goes at once. */
static void workspaces(const sterna_host *table) {
  long live = check_live();
  void *first = NULL;
  for (uint64_t alignment = 1; alignment <= 64; alignment *= 2) {
    void *block = table->allocate(100, alignment);
    check(block && (uintptr_t)block % alignment == 0 && check_live() == live + 1);
    check(!first || block == first);
    first = block;
    table->release(block);
    check(check_live() == live + 1);
  }
  void *smaller = table->allocate(60, 64), *tiny = table->allocate(10, 64);
  check(smaller == first && tiny != first && check_live() == live + 2);
  table->release(smaller);
  table->release(tiny);
  table->release(NULL);
  check(table->allocate(UINT64_MAX, 64) == NULL && table->allocate(8, 128) == NULL);
  void *huge = table->allocate((uint64_t)65 << 20, 64);
  check(huge && check_live() == live + 3);
  table->release(huge);
  check(check_live() == live + 2);
  void *many[40];
  for (uint64_t i = 0; i < 40; i++) many[i] = table->allocate(1000 + (i << 12), 64);
  for (int i = 0; i < 40; i++) table->release(many[i]);
  check(check_live() <= live + 16);
}

static void *release_elsewhere(void *block) {
  sterna_get_host()->release(block);
  return NULL;
}

/* A thread gets the block that it had, though another thread released one after it. */
static void workspace_of_a_thread(const sterna_host *table) {
  void *mine = table->allocate(5 << 20, 64), *other = table->allocate(5 << 20, 64);
  pthread_t thread;
  table->release(mine);
  check(pthread_create(&thread, NULL, release_elsewhere, other) == 0);
  pthread_join(thread, NULL);
  void *again = table->allocate(5 << 20, 64), *second = table->allocate(5 << 20, 64);
  check(again == mine && second == other);
  table->release(again);
  table->release(second);
}

enum { WORKERS = 20 };
static pthread_barrier_t together;

static void *work_in_two_sizes(void *unused) {
  const sterna_host *table = sterna_get_host();
  void *small = NULL, *large = NULL;
  for (int round = 0; round < 3; round++) {
    void *first = table->allocate(300 << 10, 64), *second = table->allocate(1 << 20, 64);
    check(round == 0 || (first == small && second == large));
    small = first;
    large = second;
    pthread_barrier_wait(&together);
    table->release(first);
    table->release(second);
    pthread_barrier_wait(&together);
  }
  return unused;
}

/* Many threads keep what each of them needs, and do not drive out each other's. */
static void workspaces_of_many_threads(void) {
  pthread_t threads[WORKERS];
  pthread_barrier_init(&together, NULL, WORKERS);
  for (int i = 0; i < WORKERS; i++)
    check(pthread_create(&threads[i], NULL, work_in_two_sizes, NULL) == 0);
  for (int i = 0; i < WORKERS; i++) pthread_join(threads[i], NULL);
  pthread_barrier_destroy(&together);
}

/* What threads left behind when they ended makes room for what others release. */
static void workspaces_of_ended_threads(const sterna_host *table) {
  long live = check_live();
  for (int i = 0; i < 100; i++) {
    void *block = table->allocate((uint64_t)40 << 20, 64);
    pthread_t thread;
    check(block && pthread_create(&thread, NULL, release_elsewhere, block) == 0);
    pthread_join(thread, NULL);
    void *other = table->allocate((uint64_t)(10 + i % 2 * 15) << 20, 64);
    check(other != NULL);
    table->release(other);
  }
  check(check_live() < live + 30);
}

/* What a library may ask of its host without knowing a symbol of it. */
static void host(void) {
  char *path = put("version1.so", "host.so");
  sterna_module *module = load(path);
  sterna_function *function = get(module, "host");
  const sterna_host *table = call(function).v_ptr;
  int32_t threads = 0, expected = 0;
  atomic_int ran = 0;
  check(table == sterna_get_host() && table->size == sizeof *table);
  check_fails(table->set_error("KeyError", "from a library"), "KeyError", "from a library");
  check(table->parallel(count_task, &ran, 30) == 0 && atomic_load(&ran) == 30);
  check(table->num_threads(&threads) == 0 && sterna_num_threads(&expected) == 0 &&
        threads == expected);
  workspaces(table);
  workspace_of_a_thread(table);
  workspaces_of_many_threads();
  workspaces_of_ended_threads(table);
  sterna_release(function);
  sterna_release(module);
  free(path);
}

/* Compiled code asks for functions by name, by way of its context. */
static void lookup(void) {
  char *path = put("version1.so", "lookup.so"), *other_path = put("version2.so", "looked-up.so");
  sterna_module *module = load(path), *other = load(other_path);
  sterna_function *function = get(module, "call");
  sterna_any name = sterna_any_c_string("answer"), ret = sterna_any_none();
  check_fails(sterna_function_call(function, &name, 1, &ret), "ValueError", "'answer'");
  check(sterna_module_import(module, other) == 0);
  sterna_release(other);
  check(sterna_function_call(function, &name, 1, &ret) == 0 && ret.v_int64 == 2);
  sterna_release(module);
  check(sterna_function_call(function, &name, 1, &ret) == 0 && ret.v_int64 == 2);
  sterna_release(function);
  free(path);
  free(other_path);
}

static void stays_loaded(void) {
  char *path = put("version1.so", "stays.so");
  atomic_store(&loads, 0);
  atomic_store(&unloads, 0);
  for (int i = 0; i < 3; i++) sterna_release(load(path));
  check(atomic_load(&loads) == 1 && atomic_load(&unloads) == 0);
  free(path);
}

static void closeable(void) {
  char *path = put("closeable1.so", "closeable.so");
  atomic_store(&loads, 0);
  atomic_store(&unloads, 0);
  sterna_module *module = load(path), *again = load(path);
  sterna_function *function = get(module, "answer");
  sterna_release(module);
  sterna_release(again);
  check(call(function).v_int64 == 1 && atomic_load(&unloads) == 0);
  sterna_release(function);
  check(atomic_load(&loads) == 1 && atomic_load(&unloads) == 1);
  check(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL); /* really gone */
  replace("closeable2.so", path); /* and nothing of it is left */
  module = load(path);
  check(answer_of(module) == 2);
  sterna_release(module);
  check(atomic_load(&loads) == 2 && atomic_load(&unloads) == 2);
  check_fail_at(2, 0); /* no memory for the module: the library does not stay */
  check_fails(sterna_module_load(path, &module), "MemoryError", "out of memory");
  check_fail_at(0, 0);
  check(atomic_load(&loads) == 3 && atomic_load(&unloads) == 3);
  free(path);
}

/* The system never unloads some libraries, whatever they promise. */
static void closeable_but_kept(void) {
  char *path = put("kept1.so", "kept.so");
  sterna_module *module;
  for (int i = 0; i < 3; i++) {
    module = load(path);
    check(answer_of(module) == 1);
    sterna_release(module);
  }
  replace("kept2.so", path);
  for (int i = 0; i < 3; i++) {
    module = load(path);
    check(answer_of(module) == 2);
    sterna_release(module);
  }
  free(path);
}

/* ---- files that change ---- */

static void replaced(void) {
  char *path = put("version1.so", "replaced.so");
  sterna_module *first = load(path), *again;
  replace("version2.so", path);
  sterna_module *second = load(path);
  check(first != second && answer_of(first) == 1 && answer_of(second) == 2);
  again = load(path); /* asked for once more it is the new one, not the first */
  check(again == second && answer_of(again) == 2);
  sterna_release(again);
  sterna_release(second);
  second = load(path);
  check(answer_of(second) == 2);
  replace("version3.so", path);
  sterna_module *third = load(path);
  check(answer_of(first) == 1 && answer_of(second) == 2 && answer_of(third) == 3);
  sterna_release(first);
  sterna_release(second);
  sterna_release(third);
  third = load(path);
  check(answer_of(third) == 3);
  sterna_release(third);
  replace("version1.so", path); /* back again */
  first = load(path);
  check(answer_of(first) == 1);
  sterna_release(first);
  free(path);
}

static void replaced_closeable(void) {
  char *path = put("version1.so", "mixed.so");
  sterna_module *first = load(path);
  replace("closeable2.so", path);
  sterna_module *second = load(path);
  check(answer_of(first) == 1 && answer_of(second) == 2);
  sterna_release(second); /* gone; the first is still loaded under this path */
  second = load(path);
  check(answer_of(second) == 2);
  sterna_release(second);
  replace("version3.so", path);
  sterna_module *third = load(path);
  check(answer_of(third) == 3 && answer_of(first) == 1);
  sterna_release(first);
  sterna_release(third);
  free(path);
}

static int overwrite(void *data) {
  (void)data;
  char *path = put("version1.so", "overwritten.so"), *from = check_library("version2.so");
  sterna_module *module = load(path);
  check(answer_of(module) == 1);
  sterna_release(module); /* its code is lost with its file */
  check_overwrite(from, path);
  module = load(path);
  check(answer_of(module) == 2);
  sterna_module *again = load(path);
  check(again == module);
  char *hard = check_path("overwritten-hard.so"); /* the same file under another name */
  check(link(path, hard) == 0);
  sterna_module *other = load(hard);
  check(answer_of(other) == 2);
  sterna_release(other);
  sterna_release(again);
  free(from);
  from = check_library("version3.so");
  check_overwrite(from, path);
  other = load(hard);
  check(answer_of(other) == 3 && answer_of(module) == 2); /* a copy is not overwritten */
  sterna_release(module);
  sterna_release(other);
  free(from);
  free(hard);
  free(path);
  return 0;
}

/* In a process of its own: what was loaded from the file is lost, and would be run at exit. */
static void overwritten(void) { check(check_child(overwrite, NULL) == 0); }

static void no_room_for_copies(void) {
  char *path = put("version1.so", "no-room.so"), *before = getenv("TMPDIR");
  char *saved = before ? strdup(before) : NULL;
  sterna_module *module = load(path), *other = NULL;
  replace("version2.so", path);
  setenv("TMPDIR", "/nonexistent/folder", 1);
  check_fails(sterna_module_load(path, &other), "ValueError", "no-room.so");
  check(strstr(sterna_last_error(), "/nonexistent/folder") != NULL && other == NULL);
  if (saved) setenv("TMPDIR", saved, 1);
  else unsetenv("TMPDIR");
  other = load(path);
  check(answer_of(other) == 2);
  sterna_release(other);
  sterna_release(module);
  free(saved);
  free(path);
}

static void held_over_shutdown(void) {
  static const char *const names[] = {"version2.so", "closeable2.so"};
  for (int i = 0; i < 2; i++) {
    char *path = put(names[i], i ? "held-closeable.so" : "held.so");
    sterna_module *module = load(path);
    sterna_function *function = get(module, "context");
    sterna_shutdown();
    check(answer_of(module) == 2 && call(function).v_ptr == module);
    sterna_module *again = load(path);
    check(again == module);
    sterna_release(again);
    sterna_release(module);
    sterna_shutdown();
    sterna_release(function);
    module = load(path);
    check(answer_of(module) == 2);
    sterna_release(module);
    free(path);
  }
}

/* ---- extensions ---- */

static void extensions(void) {
  char *path = put("extension.so", "extension.so");
  check(sterna_load_extension(path, NULL) == 0);
  check(sterna_load_extension(path, "init_well") == 0);
  sterna_function *function = NULL;
  check(sterna_get_global("extension.answer", &function) == 0 && function != NULL);
  check(call(function).v_int64 == 77);
  sterna_release(function);
  check_fails(sterna_load_extension(path, "init_well"), "ValueError", "extension.answer");
  sterna_set_error("KeyError", "an older error, of no concern");
  check_fails(sterna_load_extension(path, "init_with_error"), "OSError", "no licence");
  check_fails(sterna_load_extension(path, "init_silently_wrong"), "RuntimeError", "returned 42");
  check(strstr(sterna_last_error(), "extension.so") &&
        strstr(sterna_last_error(), "init_silently"));
  check_fails(sterna_load_extension(path, "init_missing"), "ValueError", "'init_missing'");
  check_fails(sterna_load_extension("/nonexistent.so", NULL), "ValueError", "/nonexistent.so");
  check(dlopen(path, RTLD_NOW | RTLD_NOLOAD) != NULL); /* for good, although it is closeable */
  sterna_module *module = load(path);
  sterna_release(module);
  check(sterna_get_global("extension.answer", &function) == 0 && call(function).v_int64 == 77);
  sterna_release(function);
  free(path);
}

/* ---- several threads ---- */

enum { FILES = 6, THREADS = 4 };
static char *paths[FILES];
static atomic_int go;

static void *load_and_release(void *data) {
  (void)data;
  while (!atomic_load(&go)) {
  }
  for (int i = 0; i < 150; i++) {
    sterna_module *module = load(paths[i % FILES]);
    sterna_function *function = get(module, "context");
    check(call(function).v_ptr == module);
    sterna_release(module);
    check(call(function).v_ptr == module);
    sterna_release(function);
  }
  return NULL;
}

static void concurrent_loads(void) {
  pthread_t threads[THREADS];
  char name[40];
  for (int i = 0; i < FILES; i++) {
    snprintf(name, sizeof name, "concurrent%d.so", i);
    paths[i] = put(i % 2 ? "closeable1.so" : "version1.so", name);
    if (i >= 2) { /* some of them as copies */
      sterna_release(load(paths[i]));
      replace(i % 2 ? "closeable2.so" : "version2.so", paths[i]);
    }
  }
  atomic_store(&go, 0);
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, load_and_release, NULL);
  atomic_store(&go, 1);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  for (int i = 0; i < FILES; i++) free(paths[i]);
}

/* While an initializer runs the system's loader is locked. It may use the runtime, and other
   threads may be in the runtime: neither may wait for the other for good. */
static char *inner_path;
static sterna_module *inner, *held[20];
static atomic_int initializing;

static void use_the_runtime(void) {
  during_load = NULL;
  atomic_store(&initializing, 1);
  check_sleep(60000); /* time for the other thread to get stuck */
  inner = load(inner_path);
  check(answer_of(inner) == 2);
}

static void *release_meanwhile(void *data) {
  (void)data;
  while (!atomic_load(&initializing)) check_sleep(100);
  for (int i = 0; i < 20; i++) sterna_release(held[i]);
  return NULL;
}

static void busy_initializers(void) {
  char name[40], *outer_path = put("version1.so", "outer.so"), *path;
  pthread_t thread;
  inner_path = put("version2.so", "inner.so");
  for (int i = 0; i < 20; i++) {
    snprintf(name, sizeof name, "meanwhile%d.so", i);
    path = put("version3.so", name);
    held[i] = load(path);
    free(path);
  }
  atomic_store(&initializing, 0);
  pthread_create(&thread, NULL, release_meanwhile, NULL);
  during_load = use_the_runtime;
  sterna_module *outer = load(outer_path);
  pthread_join(thread, NULL);
  check(answer_of(outer) == 1 && inner != outer);
  sterna_release(outer);
  sterna_release(inner);
  free(outer_path);
  free(inner_path);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"loading", loading},
      {"context", context},
      {"several", several},
      {"broken_tables", broken_tables},
      {"host", host},
      {"lookup", lookup},
      {"stays_loaded", stays_loaded},
      {"closeable", closeable},
      {"closeable_but_kept", closeable_but_kept},
      {"replaced", replaced},
      {"replaced_closeable", replaced_closeable},
      {"overwritten", overwritten},
      {"no_room_for_copies", no_room_for_copies},
      {"held_over_shutdown", held_over_shutdown},
      {"extensions", extensions},
      {"concurrent_loads", concurrent_loads},
      {"busy_initializers", busy_initializers},
  };
  return CASES(cases);
}
