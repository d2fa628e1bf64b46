/* Modules: sets of functions, and the modules they import. */
#include "internal.h"

#include <string.h>

struct sterna_module {
  sterna_object header;
  const sterna_module_type *type;
  void *self;
  /* module_mutex guards what follows. */
  sterna_module **imports;
  size_t import_count;
  uint64_t walked; /* the last walk over imports that came by */
  table looked_up; /* name to function, each with a reference */
};

static platform_mutex module_mutex = PLATFORM_MUTEX_INIT;
static uint64_t walks; /* guarded by it too */

static void free_module(void *self, int flags) {
  sterna_module *m = self;
  if (flags & 1) {
    for (size_t i = 0; i < m->looked_up.capacity; i++)
      if (table_is_live(&m->looked_up.entries[i])) sterna_release(m->looked_up.entries[i].value);
    table_free(&m->looked_up);
    for (size_t i = 0; i < m->import_count; i++) sterna_release(m->imports[i]);
    memory_release(m->imports);
    if (m->type->destroy) m->type->destroy(m->self);
  }
  if (flags & 2) memory_release(m);
}

int sterna_module_create(const sterna_module_type *type, void *self, sterna_module **out) {
  if (!type || !type->kind || !type->get_function)
    return sterna_set_error("ValueError", "a module type needs a kind and get_function");
  sterna_module *m = memory_allocate(sizeof *m, 16);
  if (!m) return -1;
  memset(m, 0, sizeof *m);
  object_init(&m->header, STERNA_MODULE, free_module);
  m->type = type;
  m->self = self;
  *out = m;
  return 0;
}

int sterna_as_module(const sterna_any *value, sterna_module **out) {
  sterna_any room;
  value = value_seen(value, &room);
  if (value->type_index != STERNA_MODULE) return error_type(value, "a module");
  if (value->v_obj->deleter != free_module)
    return sterna_set_error("TypeError", "the module belongs to another runtime");
  *out = (sterna_module *)value->v_obj;
  return 0;
}

int sterna_module_function(sterna_module *module, sterna_call call, void *self,
                           sterna_function **out) {
  return function_create_owned(call, self, &module->header, out);
}

const char *sterna_module_kind(const sterna_module *module) { return module->type->kind; }

void *sterna_module_self(const sterna_module *module) { return module->self; }

const sterna_module_type *sterna_module_type_of(const sterna_module *module) { return module->type; }

/* ---- a static table ---- */

typedef struct {
  const sterna_table_entry *entries;
  size_t count;
} static_table;

static int table_function(sterna_module *m, void *self, const char *name, sterna_function **out) {
  static_table *t = self;
  for (size_t i = 0; i < t->count; i++)
    if (strcmp(t->entries[i].name, name) == 0)
      return sterna_module_function(m, t->entries[i].call, NULL, out);
  *out = NULL;
  return 0;
}

static const sterna_module_type table_type = {"table", table_function, memory_release};

int sterna_module_from_table(const sterna_table_entry *entries, size_t count, sterna_module **out) {
  static_table *t = memory_allocate(sizeof *t, 16);
  if (!t) return -1;
  *t = (static_table){entries, count};
  if (sterna_module_create(&table_type, t, out)) {
    memory_release(t);
    return -1;
  }
  return 0;
}

/* ---- a shared library ---- */

#define SYMBOL_PREFIX "__tvm_ffi_"

/* Calls find(finder, prefix + name), the name being of any length. */
static int find_symbol(void *(*find)(void *finder, const char *symbol), void *finder,
                       const char *prefix, const char *name, void **out) {
  char small[256], *symbol = small;
  size_t prefix_size = strlen(prefix), size = strlen(name) + 1;
  if (prefix_size + size > sizeof small && !(symbol = memory_allocate(prefix_size + size, 1))) return -1;
  memcpy(symbol, prefix, prefix_size);
  memcpy(symbol + prefix_size, name, size);
  *out = find(finder, symbol);
  if (symbol != small) memory_release(symbol);
  return 0;
}

static int function_at(sterna_module *m, void *address, sterna_function **out) {
  sterna_call call;
  memcpy(&call, &address, sizeof call);
  if (call) return sterna_module_function(m, call, NULL, out);
  *out = NULL;
  return 0;
}

typedef struct {
  library *lib;
  sterna_module *module;
} library_module;

/* Functions made for another runtime would take our modules for their own kind of thing. */
static int call_foreign(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_call call;
  for (int32_t i = 0; i < n; i++)
    if (args[i].type_index == STERNA_MODULE && args[i].v_obj->deleter == free_module)
      return sterna_set_errorf("TypeError",
                               "argument %d is a module, which a function made for another runtime "
                               "cannot take",
                               (int)i);
  memcpy(&call, &self, sizeof call);
  return call(NULL, args, n, ret);
}

static void *symbol_in_library(void *lib, const char *symbol) { return library_symbol(lib, symbol); }

static int library_function(sterna_module *m, void *self, const char *name, sterna_function **out) {
  void *address = NULL;
  library *lib = ((library_module *)self)->lib;
  /* _library_ctx and its like are the library's variables, not functions */
  if (strncmp(name, "_library_", 9) != 0 &&
      find_symbol(symbol_in_library, lib, SYMBOL_PREFIX, name, &address))
    return -1;
  if (address && library_is_foreign(lib)) return sterna_module_function(m, call_foreign, address, out);
  return function_at(m, address, out);
}

static void destroy_library_module(void *self) {
  library_module *over = self;
  library_release(over->lib, over->module);
  memory_release(over);
}

static const sterna_module_type library_type = {"library", library_function, destroy_library_module};

int sterna_module_load(const char *path, sterna_module **out) {
  library *lib;
  sterna_module *candidate;
  if (library_open(path, &lib)) return -1;
  library_module *over = memory_allocate(sizeof *over, 16);
  if (!over || sterna_module_create(&library_type, over, &candidate)) {
    memory_release(over);
    library_release(lib, NULL);
    return -1;
  }
  *over = (library_module){lib, candidate};
  sterna_module *module = library_adopt(lib, candidate);
  if (module != candidate) sterna_release(candidate);
  *out = module;
  return 0;
}

int sterna_load_extension(const char *path, const char *init) {
  library *lib;
  if (library_open(path, &lib)) return -1;
  library_keep(lib);
  if (!init) return 0;
  void *address = library_symbol(lib, init);
  int (*run)(void);
  memcpy(&run, &address, sizeof run);
  if (!run)
    return sterna_set_errorf("ValueError", "'%s' exports no function '%s'; is it marked STERNA_EXPORT?",
                             path, init);
  sterna_clear_error();
  int code = run();
  if (code && !*sterna_last_error_kind())
    return sterna_set_errorf("RuntimeError", "'%s' of '%s' returned %d", init, path, code);
  return code ? -1 : 0;
}

/* ---- the program's own symbols ---- */

static table system_symbols;

int sterna_register_system_symbol(const char *symbol, void *address) {
  platform_lock(&module_mutex);
  void **there = table_find(&system_symbols, symbol);
  int failed = 0;
  if (there) *there = address;
  else failed = table_put(&system_symbols, symbol, address);
  platform_unlock(&module_mutex);
  return failed ? error_out_of_memory() : 0;
}

static void *system_symbol(void *finder, const char *symbol) {
  (void)finder;
  platform_lock(&module_mutex);
  void **there = table_find(&system_symbols, symbol);
  void *address = there ? *there : NULL;
  platform_unlock(&module_mutex);
  return address;
}

static int system_function(sterna_module *m, void *self, const char *name, sterna_function **out) {
  void *address;
  if (find_symbol(system_symbol, NULL, self, name, &address)) return -1;
  return function_at(m, address, out);
}

static const sterna_module_type system_type = {"system", system_function, memory_release};

int sterna_system_module(const char *prefix, sterna_module **out) {
  size_t size = strlen(prefix) + 1;
  char *full = memory_allocate(sizeof SYMBOL_PREFIX - 1 + size, 1);
  if (!full) return -1;
  memcpy(full, SYMBOL_PREFIX, sizeof SYMBOL_PREFIX - 1);
  memcpy(full + sizeof SYMBOL_PREFIX - 1, prefix, size);
  if (sterna_module_create(&system_type, full, out)) {
    memory_release(full);
    return -1;
  }
  return 0;
}

void module_shutdown(void) {
  platform_lock(&module_mutex);
  table_free(&system_symbols);
  platform_unlock(&module_mutex);
}

/* ---- imports ---- */

/* With the lock held. Each module is walked once, however many import it. */
static int reaches(sterna_module *from, const sterna_module *to) {
  if (from == to) return 1;
  if (from->walked == walks) return 0;
  from->walked = walks;
  for (size_t i = 0; i < from->import_count; i++)
    if (reaches(from->imports[i], to)) return 1;
  return 0;
}

int sterna_module_import(sterna_module *module, sterna_module *imported) {
  platform_lock(&module_mutex);
  walks++;
  int circle = reaches(imported, module);
  sterna_module **longer = NULL, **old = module->imports;
  if (!circle) longer = memory_try_allocate((module->import_count + 1) * sizeof *longer, 16);
  if (longer) {
    if (module->import_count) memcpy(longer, old, module->import_count * sizeof *longer);
    longer[module->import_count++] = imported;
    module->imports = longer;
    sterna_retain(imported);
  }
  platform_unlock(&module_mutex);
  if (circle) return sterna_set_error("ValueError", "a module cannot import itself, not even by way of others");
  if (!longer) return error_out_of_memory();
  memory_release(old);
  return 0;
}

int sterna_module_clear_imports(sterna_module *module) {
  platform_lock(&module_mutex);
  sterna_module **imports = module->imports;
  size_t count = module->import_count;
  module->imports = NULL;
  module->import_count = 0;
  platform_unlock(&module_mutex);
  for (size_t i = 0; i < count; i++) sterna_release(imports[i]);
  memory_release(imports);
  return 0;
}

size_t sterna_module_import_count(sterna_module *module) {
  platform_lock(&module_mutex);
  size_t count = module->import_count;
  platform_unlock(&module_mutex);
  return count;
}

/* The index-th import with a reference, or null past the end. */
static sterna_module *import_at(sterna_module *module, size_t index) {
  platform_lock(&module_mutex);
  sterna_module *found = index < module->import_count ? module->imports[index] : NULL;
  sterna_retain(found);
  platform_unlock(&module_mutex);
  return found;
}

int sterna_module_get_import(sterna_module *module, size_t index, sterna_module **out) {
  sterna_module *found = import_at(module, index);
  if (!found)
    return sterna_set_errorf("IndexError", "the module has no import number %llu",
                             (unsigned long long)index);
  *out = found;
  return 0;
}

/* ---- looking functions up ---- */

static int search_imports(sterna_module *module, const char *name, sterna_function **out) {
  sterna_module *imported;
  *out = NULL;
  for (size_t i = 0; !*out && (imported = import_at(module, i)); i++) {
    int failed = sterna_module_get_function(imported, name, 1, out);
    sterna_release(imported);
    if (failed) return -1;
  }
  return 0;
}

int sterna_module_get_function(sterna_module *module, const char *name, int query_imports,
                               sterna_function **out) {
  sterna_function *found = NULL;
  if (module->type->get_function(module, module->self, name, &found)) return -1;
  if (!found && query_imports && search_imports(module, name, &found)) return -1;
  *out = found;
  return 0;
}

static sterna_function *remembered(sterna_module *module, const char *name) {
  platform_lock(&module_mutex);
  void **there = table_find(&module->looked_up, name);
  sterna_function *found = there ? *there : NULL;
  platform_unlock(&module_mutex);
  return found;
}

int sterna_module_lookup(void *library_ctx, const char *name, sterna_function **out) {
  sterna_module *module = library_ctx;
  if (!module) return sterna_set_errorf("RuntimeError", "'%s' was looked up in no module", name);
  sterna_function *found = remembered(module, name);
  if (found) {
    *out = found;
    return 0;
  }
  if (search_imports(module, name, &found) || (!found && sterna_get_global(name, &found))) return -1;
  if (!found)
    return sterna_set_errorf("ValueError",
                             "no function '%s' among the module's imports or the registered functions",
                             name);
  platform_lock(&module_mutex);
  void **there = table_find(&module->looked_up, name);
  sterna_function *spare = NULL;
  int failed = 0;
  if (there) {
    spare = found;
    found = *there;
  } else {
    failed = table_put(&module->looked_up, name, found);
    if (failed) spare = found;
  }
  platform_unlock(&module_mutex);
  sterna_release(spare);
  if (failed) return error_out_of_memory();
  *out = found;
  return 0;
}

void module_before_fork(void) { platform_lock(&module_mutex); }

void module_after_fork(void) { platform_unlock(&module_mutex); }
