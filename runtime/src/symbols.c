/*
 * Modules over symbols: of a shared library, of the program itself, of code that somebody else has
 * linked. Function f is the symbol __tvm_ffi_f. Several modules may share one set of symbols; then a
 * table (blob.c) says which of them belong to which.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

#define SYMBOL_PREFIX "__tvm_ffi_"
#define CONTEXT "_library_ctx"

/* Calls find(finder, prefix + name), the name being of any length. */
static int find_symbol(sterna_find_symbol find, void *finder, const char *prefix, const char *name,
                       void **out) {
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

/* Functions made for another runtime would take our modules for their own kind of thing. */
static int call_foreign(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  sterna_call call;
  for (int32_t i = 0; i < n; i++)
    if (args[i].type_index == STERNA_MODULE && module_is_own(args[i].v_obj))
      return sterna_set_errorf("TypeError",
                               "argument %d is a module, which a function made for another runtime "
                               "cannot take",
                               (int)i);
  memcpy(&call, &self, sizeof call);
  return call(NULL, args, n, ret);
}

/* ---- parts: the modules over one set of symbols ---- */

typedef struct module_part {
  symbols *under;
  sterna_module *module;
  struct module_part *next;
  void **context; /* the variable through which its code finds the module, or null */
  int has_own;    /* it has the symbols in own and no others */
  table own;      /* name to address */
} module_part;

static void free_symbols(void *self, int flags) {
  symbols *under = self;
  if (flags & 1) {
    table_free(&under->owned);
    if (under->lib) library_release(under->lib, under);
    if (under->destroy) under->destroy(under->self);
  }
  if (flags & 2) memory_release(under);
}

/* What is not owned by another part. */
static void *shared_symbol(void *self, const char *symbol) {
  symbols *under = self;
  return table_find(&under->owned, symbol) ? NULL : under->find(under->self, symbol);
}

/* The data of the model of a name or, when that is null, of the one that the symbols name. */
static int find_model(symbols *under, const char *name, void **out) {
  char whole[256];
  if (!name) name = under->find(under->self, MODEL_SYMBOL);
  *out = NULL;
  if (!name) return 0;
  if (under->level.size) {
    int size = snprintf(whole, sizeof whole, "%s.%.*s", name, (int)under->level.size, under->level.data);
    if (size < 0 || (size_t)size >= sizeof whole) return 0;
    name = whole;
  }
  return find_symbol(under->find, under->self, MODEL_SYMBOL "_", name, out);
}

/* What a model among the symbols adds to the functions. */
static int model_function(sterna_module *m, symbols *under, const char *name, sterna_function **out) {
  void *data;
  if (find_model(under, factory_names(name) ? NULL : name, &data)) return -1;
  if (data) return factory_function(m, data, name, out);
  *out = NULL;
  return 0;
}

static int part_function(sterna_module *m, void *self, const char *name, sterna_function **out) {
  module_part *p = self;
  void *address = NULL;
  if (strncmp(name, "_library_", 9) == 0) { /* variables, not functions */
    *out = NULL;
    return 0;
  }
  if (p->has_own) {
    void **there = table_find(&p->own, name);
    address = there ? *there : NULL;
  } else if (find_symbol(shared_symbol, p->under, SYMBOL_PREFIX, name, &address)) {
    return -1;
  }
  if (!address) return model_function(m, p->under, name, out);
  if (p->under->foreign) return sterna_module_function(m, call_foreign, address, out);
  return function_at(m, address, out);
}

static void destroy_part(void *self) {
  module_part *p = self;
  if (p->context) library_forget(p->context, p->module);
  table_free(&p->own);
  sterna_release(p->under);
  memory_release(p);
}

static const sterna_module_type part_type = {"library", part_function, destroy_part};

int symbols_find_model(sterna_module *module, const char *name, void **out) {
  return find_model(((module_part *)sterna_module_self(module))->under, name, out);
}

int symbols_module(symbols *under, sterna_module **out) {
  module_part *p = memory_allocate(sizeof *p, 16);
  if (!p) return -1;
  memset(p, 0, sizeof *p);
  if (sterna_module_create(&part_type, p, out)) {
    memory_release(p);
    return -1;
  }
  p->under = under;
  p->module = *out;
  p->context = under->find(under->self, SYMBOL_PREFIX CONTEXT);
  p->next = under->parts;
  under->parts = p;
  sterna_retain(under);
  return 0;
}

int symbols_own(sterna_module *module, const char *name, const char *symbol) {
  module_part *p = sterna_module_self(module);
  if (!p->has_own) p->context = NULL;
  p->has_own = 1;
  if (!name) return 0;
  void *address = p->under->find(p->under->self, symbol);
  if (!address || table_find(&p->own, name)) return 1;
  if (strcmp(name, CONTEXT) == 0) {
    p->context = address;
    return 0;
  }
  if (table_put(&p->own, name, address) ||
      (!table_find(&p->under->owned, symbol) && table_put(&p->under->owned, symbol, address)))
    return error_out_of_memory();
  return 0;
}

void symbols_publish(symbols *under) {
  for (module_part *p = under->parts; p; p = p->next)
    if (p->context) *p->context = p->module;
  under->parts = NULL;
}

/* The modules over symbols, with one reference to them. Takes self over when it works. */
static int make_modules(const symbols *wanted, const char *origin, symbols **made, sterna_module **out) {
  symbols *under = memory_allocate(sizeof *under, 16);
  if (!under) return -1;
  *under = *wanted;
  object_init(&under->header, STERNA_OBJECT, free_symbols);
  const char *levels = under->find(under->self, "__sterna__levels");
  const char *needs = levels ? NULL : under->find(under->self, "__sterna__needs");
  const void *blob = under->find(under->self, SYMBOL_PREFIX "_library_bin");
  under->several = blob != NULL;
  if ((needs && sterna_check_processor(origin, needs)) ||
      (levels && processor_pick_level(origin, levels, &under->level)) ||
      (blob ? blob_load(under, blob, origin, out) : symbols_module(under, out))) {
    under->lib = NULL; /* they stay the caller's */
    under->destroy = NULL;
    sterna_release(under);
    return -1;
  }
  *made = under;
  return 0;
}

int sterna_module_from_symbols(const char *name, sterna_find_symbol find, void *self,
                               void (*destroy)(void *self), sterna_module **out) {
  REQUIRE(out);
  symbols *under, wanted = {.find = find, .self = self, .destroy = destroy};
  if (!name || !find)
    return sterna_set_error("ValueError", "a module over symbols needs a name and what finds them");
  if (make_modules(&wanted, name, &under, out)) return -1;
  const sterna_host **host = find(self, "__sterna__host");
  if (host) *host = sterna_get_host();
  symbols_publish(under);
  sterna_release(under);
  return 0;
}

/* ---- shared libraries ---- */

static void *symbol_in_library(void *lib, const char *symbol) { return library_symbol(lib, symbol); }

int sterna_module_load(const char *path, sterna_module **out) {
  REQUIRE(path);
  REQUIRE(out);
  sterna_module *module = NULL, *candidate;
  while (!module) {
    library *lib;
    if (library_open(path, &lib)) return -1;
    symbols *under, wanted = {.find = symbol_in_library, .self = lib, .lib = lib};
    wanted.foreign = library_is_foreign(lib);
    if (make_modules(&wanted, path, &under, &candidate)) {
      library_release(lib, NULL);
      return -1;
    }
    module = library_adopt(lib, candidate, under);
    if (module != candidate) sterna_release(candidate);
    sterna_release(under);
  }
  *out = module;
  return 0;
}

int sterna_load_extension(const char *path, const char *init) {
  REQUIRE(path);
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
static platform_mutex system_mutex = PLATFORM_MUTEX_INIT;

int sterna_register_system_symbol(const char *symbol, void *address) {
  REQUIRE(symbol);
  platform_lock(&system_mutex);
  void **there = table_find(&system_symbols, symbol);
  int failed = 0;
  if (there) *there = address;
  else failed = table_put(&system_symbols, symbol, address);
  platform_unlock(&system_mutex);
  return failed ? error_out_of_memory() : 0;
}

static void *system_symbol(void *finder, const char *symbol) {
  (void)finder;
  platform_lock(&system_mutex);
  void **there = table_find(&system_symbols, symbol);
  void *address = there ? *there : NULL;
  platform_unlock(&system_mutex);
  return address;
}

static int system_function(sterna_module *m, void *self, const char *name, sterna_function **out) {
  void *address;
  if (find_symbol(system_symbol, NULL, self, name, &address)) return -1;
  return function_at(m, address, out);
}

static const sterna_module_type system_type = {"system", system_function, memory_release};

int sterna_system_module(const char *prefix, sterna_module **out) {
  REQUIRE(prefix);
  REQUIRE(out);
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

void symbols_shutdown(void) {
  platform_lock(&system_mutex);
  table_free(&system_symbols);
  platform_unlock(&system_mutex);
}

void symbols_before_fork(void) { platform_lock(&system_mutex); }

void symbols_after_fork(void) { platform_unlock(&system_mutex); }
