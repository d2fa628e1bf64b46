/* Modules: sets of functions, and the modules they import. */
#include "internal.h"

#include <string.h>

struct sterna_module {
  sterna_object header;
  const sterna_module_type *type;
  void *self;
  uint64_t id;
  /* module_mutex guards what follows. */
  sterna_module **imports;
  size_t import_count;
  table looked_up; /* name to function, each with a reference */
  /* The last walk over imports that came by, from where, and which of the imports is next. */
  uint64_t walked;
  sterna_module *came_from;
  size_t next_import;
};

static platform_mutex module_mutex = PLATFORM_MUTEX_INIT;
static _Atomic uint64_t modules_made;
static uint64_t walks; /* guarded by it too */

/* Modules that nobody else holds end one after the other: a long chain must not fill the stack. */
static void drop_imports(sterna_module *m) {
  sterna_module *rest = NULL, *ends = NULL;
  for (;;) {
    for (size_t i = 0; i < m->import_count; i++) {
      sterna_module *imported = m->imports[i];
      if (object_is_only_mine(&imported->header)) {
        imported->came_from = rest;
        rest = imported;
      } else {
        sterna_release(imported);
      }
    }
    memory_release(m->imports);
    m->imports = NULL;
    m->import_count = 0;
    sterna_release(ends);
    if (!rest) return;
    ends = m = rest;
    rest = m->came_from;
  }
}

static void free_module(void *self, int flags) {
  sterna_module *m = self;
  if (flags & 1) {
    for (size_t i = 0; i < m->looked_up.capacity; i++)
      if (table_is_live(&m->looked_up.entries[i])) sterna_release(m->looked_up.entries[i].value);
    table_free(&m->looked_up);
    drop_imports(m);
    if (m->type->destroy) m->type->destroy(m->self);
  }
  if (flags & 2) memory_release(m);
}

int sterna_module_create(const sterna_module_type *type, void *self, sterna_module **out) {
  REQUIRE(out);
  if (!type || !type->kind || !type->get_function)
    return sterna_set_error("ValueError", "a module type needs a kind and get_function");
  sterna_module *m = memory_allocate(sizeof *m, 16);
  if (!m) return -1;
  memset(m, 0, sizeof *m);
  object_init(&m->header, STERNA_MODULE, free_module);
  m->type = type;
  m->self = self;
  m->id = atomic_fetch_add_explicit(&modules_made, 1, memory_order_relaxed) + 1;
  *out = m;
  return 0;
}

uint64_t module_id(const sterna_module *module) { return module->id; }

int module_is_own(const sterna_object *object) { return object->deleter == free_module; }

int sterna_as_module(const sterna_any *value, sterna_module **out) {
  REQUIRE(value);
  REQUIRE(out);
  sterna_any room;
  value = value_seen(value, &room);
  if (value->type_index != STERNA_MODULE) return error_type(value, "a module");
  if (!module_is_own(value->v_obj))
    return sterna_set_error("TypeError", "the module belongs to another runtime");
  *out = (sterna_module *)value->v_obj;
  return 0;
}

int sterna_module_function(sterna_module *module, sterna_call call, void *self,
                           sterna_function **out) {
  REQUIRE(module);
  REQUIRE(call);
  REQUIRE(out);
  return function_create_owned(call, self, &module->header, out);
}

const char *sterna_module_kind(const sterna_module *module) {
  REQUIRE_OR(NULL, module);
  return module->type->kind;
}

void *sterna_module_self(const sterna_module *module) {
  REQUIRE_OR(NULL, module);
  return module->self;
}

const sterna_module_type *sterna_module_type_of(const sterna_module *module) {
  REQUIRE_OR(NULL, module);
  return module->type;
}

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
  REQUIRE_IF(count, entries);
  REQUIRE(out);
  static_table *t = memory_allocate(sizeof *t, 16);
  if (!t) return -1;
  *t = (static_table){entries, count};
  if (sterna_module_create(&table_type, t, out)) {
    memory_release(t);
    return -1;
  }
  return 0;
}

/* ---- imports ---- */

/* With the lock held. Comes by all that a module imports, by way of others too: each once, a module
   before its own imports. Gives their number, and where into is not null the modules. */
static size_t walk_imports(sterna_module *top, sterna_module **into) {
  size_t count = 0;
  top->walked = ++walks;
  top->came_from = NULL;
  top->next_import = 0;
  for (sterna_module *m = top; m;) {
    if (m->next_import == m->import_count) {
      m = m->came_from;
      continue;
    }
    sterna_module *imported = m->imports[m->next_import++];
    if (imported->walked == walks) continue;
    imported->walked = walks;
    imported->came_from = m;
    imported->next_import = 0;
    if (into) into[count] = imported;
    count++;
    m = imported;
  }
  return count;
}

void module_set_imports(sterna_module *module, sterna_module **imports, size_t count) {
  platform_lock(&module_mutex);
  module->imports = imports;
  module->import_count = count;
  platform_unlock(&module_mutex);
}

int sterna_module_import(sterna_module *module, sterna_module *imported) {
  REQUIRE(module);
  REQUIRE(imported);
  platform_lock(&module_mutex);
  walk_imports(imported, NULL);
  int circle = module->walked == walks;
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
  REQUIRE(module);
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
  REQUIRE_OR(0, module);
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
  REQUIRE(module);
  REQUIRE(out);
  sterna_module *found = import_at(module, index);
  if (!found)
    return sterna_set_errorf("IndexError", "the module has no import number %llu",
                             (unsigned long long)index);
  *out = found;
  return 0;
}

/* ---- looking functions up ---- */

/* All that a module imports, each with a reference; few is used where it has room. */
static int gather_imports(sterna_module *module, sterna_module **few, size_t room,
                          sterna_module ***out, size_t *count) {
  sterna_module **all = few;
  platform_lock(&module_mutex);
  *count = walk_imports(module, NULL);
  if (*count > room) all = memory_try_allocate(*count * sizeof *all, 16);
  if (all) walk_imports(module, all);
  for (size_t i = 0; all && i < *count; i++) sterna_retain(all[i]);
  platform_unlock(&module_mutex);
  *out = all;
  return all ? 0 : error_out_of_memory();
}

static int search_imports(sterna_module *module, const char *name, sterna_function **out) {
  sterna_module *few[16], **all;
  size_t count;
  int failed = 0;
  if (gather_imports(module, few, sizeof few / sizeof *few, &all, &count)) return -1;
  *out = NULL;
  for (size_t i = 0; i < count; i++) {
    if (!failed && !*out) failed = all[i]->type->get_function(all[i], all[i]->self, name, out);
    sterna_release(all[i]);
  }
  if (all != few) memory_release(all);
  return failed ? -1 : 0;
}

int sterna_module_get_function(sterna_module *module, const char *name, int query_imports,
                               sterna_function **out) {
  REQUIRE(module);
  REQUIRE(name);
  REQUIRE(out);
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

int module_look_up(sterna_module *module, const char *name, sterna_function **out) {
  sterna_function *found = remembered(module, name);
  if (found) {
    *out = found;
    return 0;
  }
  if (search_imports(module, name, &found) || (!found && sterna_get_global(name, &found))) return -1;
  if (!found) {
    *out = NULL;
    return 0;
  }
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

int sterna_module_lookup(void *library_ctx, const char *name, sterna_function **out) {
  REQUIRE(name);
  REQUIRE(out);
  sterna_function *found;
  if (!library_ctx) return sterna_set_errorf("RuntimeError", "'%s' was looked up in no module", name);
  if (module_look_up(library_ctx, name, &found)) return -1;
  if (!found)
    return sterna_set_errorf("ValueError",
                             "no function '%s' among the module's imports or the registered functions",
                             name);
  *out = found;
  return 0;
}

void module_before_fork(void) { platform_lock(&module_mutex); }

void module_after_fork(void) { platform_unlock(&module_mutex); }
