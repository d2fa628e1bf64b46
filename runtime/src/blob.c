/*
 * The modules in one set of symbols. Where there is a symbol __tvm_ffi__library_bin, its bytes say
 * which modules there are and which imports which:
 *
 *     bytes    u64, of all that follows
 *     imports  vector of u64: where the imports of each module begin in the next one, and its end
 *              vector of u64: the numbers of the imported modules
 *     modules  text: the kind. "_lib": the symbols' functions; of any other kind bytes follow, from
 *              which the function ffi.Module.load_from_bytes.<kind> makes the module
 *     names    (may be missing) u64: the number of modules with symbols of their own; for each of
 *              them u64: which, u64: how many names; for each of these text: the name, text: the
 *              symbol. What is named here belongs to no other module.
 *
 * Numbers have their lowest byte first. Vectors, text and bytes begin with a u64, their length. The
 * first module is the one that loading gives.
 */
#include "internal.h"

#include <string.h>

typedef struct {
  const unsigned char *at;
  uint64_t left;
  const char *origin; /* for messages */
} blob_reader;

static int blob_broken(const blob_reader *r, const char *reason) {
  return sterna_set_errorf("ValueError", "cannot load '%s': its table of modules is broken: %s", r->origin,
                           reason);
}

static uint64_t blob_number_at(const unsigned char *at) {
  uint64_t number = 0;
  for (int i = 7; i >= 0; i--) number = number << 8 | at[i];
  return number;
}

static int take_number(blob_reader *r, uint64_t *out) {
  if (r->left < 8) return blob_broken(r, "it ends too early");
  *out = blob_number_at(r->at);
  r->at += 8;
  r->left -= 8;
  return 0;
}

/* Gives where a number of items of some size begin, and skips them. */
static int take_items(blob_reader *r, uint64_t size, uint64_t *count, const unsigned char **out) {
  if (take_number(r, count)) return -1;
  if (*count > r->left / size) return blob_broken(r, "it ends too early");
  *out = r->at;
  r->at += *count * size;
  r->left -= *count * size;
  return 0;
}

/* Text into a new block that ends in a zero. */
static int take_text(blob_reader *r, char **out) {
  uint64_t size;
  const unsigned char *data;
  if (take_items(r, 1, &size, &data)) return -1;
  if (memchr(data, 0, (size_t)size)) return blob_broken(r, "a name has a zero in it");
  char *text = memory_allocate((size_t)size + 1, 1);
  if (!text) return -1;
  memcpy(text, data, (size_t)size);
  text[size] = 0;
  *out = text;
  return 0;
}

/* ---- which module imports which ---- */

typedef struct {
  size_t modules;
  const unsigned char *starts, *imported;
} import_graph;

static size_t import_begin(const import_graph *g, size_t module) {
  return (size_t)blob_number_at(g->starts + 8 * module);
}

static size_t import_number(const import_graph *g, size_t index) {
  return (size_t)blob_number_at(g->imported + 8 * index);
}

/* Takes away modules that nothing left imports; what then remains is a circle. */
static int refuse_circles(const blob_reader *r, const import_graph *g) {
  size_t *importers = memory_allocate(g->modules * 2 * sizeof *importers, 16), free_ones = 0, done = 0;
  if (!importers) return -1;
  size_t *queue = importers + g->modules, edges = import_begin(g, g->modules);
  memset(importers, 0, g->modules * sizeof *importers);
  for (size_t i = 0; i < edges; i++) importers[import_number(g, i)]++;
  for (size_t i = 0; i < g->modules; i++)
    if (!importers[i]) queue[free_ones++] = i;
  for (; done < free_ones; done++)
    for (size_t i = import_begin(g, queue[done]); i < import_begin(g, queue[done] + 1); i++)
      if (--importers[import_number(g, i)] == 0) queue[free_ones++] = import_number(g, i);
  memory_release(importers);
  return done == g->modules ? 0 : blob_broken(r, "modules import each other in a circle");
}

static int take_imports(blob_reader *r, import_graph *g) {
  uint64_t starts, count, before = 0;
  if (take_items(r, 8, &starts, &g->starts) || take_items(r, 8, &count, &g->imported)) return -1;
  if (starts < 2) return blob_broken(r, "it holds no modules");
  for (uint64_t i = 0; i < starts; i++) {
    uint64_t start = blob_number_at(g->starts + 8 * i);
    if (start < before || start > count) return blob_broken(r, "imports begin at a wrong place");
    before = start;
  }
  for (uint64_t i = 0; i < before; i++)
    if (blob_number_at(g->imported + 8 * i) >= starts - 1)
      return blob_broken(r, "a module is imported that is not there");
  /* Each module has at least the length of its kind's name: no more are made than can be read. */
  if (r->left / 8 < starts - 1) return blob_broken(r, "it ends too early");
  g->modules = (size_t)(starts - 1);
  return refuse_circles(r, g);
}

/* ---- making the modules ---- */

static int load_from_bytes(const blob_reader *r, const char *kind, sterna_bytes bytes, sterna_module **out) {
  static const char prefix[] = LOAD_FROM_BYTES;
  sterna_function *load;
  sterna_any argument = sterna_any_none(), made = sterna_any_none();
  size_t size = strlen(kind) + 1;
  char *name = memory_allocate(sizeof prefix - 1 + size, 1);
  if (!name) return -1;
  memcpy(name, prefix, sizeof prefix - 1);
  memcpy(name + sizeof prefix - 1, kind, size);
  int failed = sterna_get_global(name, &load);
  if (!failed && !load)
    failed = sterna_set_errorf("ValueError",
                               "cannot load '%s': it holds a module of kind '%.100s', and nothing here "
                               "loads such modules (no function '%.150s' is registered)",
                               r->origin, kind, name);
  memory_release(name);
  if (failed) return -1;
  argument.type_index = STERNA_BYTES_VIEW;
  argument.v_ptr = &bytes;
  failed = sterna_function_call(load, &argument, 1, &made);
  sterna_release(load);
  if (failed) return -1;
  failed = sterna_as_module(&made, out);
  if (!failed) sterna_retain(*out);
  sterna_any_release(&made);
  return failed;
}

static int take_module(blob_reader *r, symbols *under, sterna_module **out, char *is_part) {
  char *kind;
  uint64_t size;
  const unsigned char *data;
  if (take_text(r, &kind)) return -1;
  int failed;
  *is_part = strcmp(kind, "_lib") == 0;
  if (*is_part) {
    failed = symbols_module(under, out);
  } else {
    failed = take_items(r, 1, &size, &data);
    if (!failed) {
      sterna_bytes bytes = {(const char *)data, (size_t)size};
      failed = load_from_bytes(r, kind, bytes, out);
    }
  }
  memory_release(kind);
  return failed;
}

static int take_name(blob_reader *r, sterna_module *module) {
  char *name, *symbol;
  if (take_text(r, &name)) return -1;
  int failed = take_text(r, &symbol);
  if (!failed) {
    failed = symbols_own(module, name, symbol);
    if (failed > 0)
      failed = sterna_set_errorf("ValueError",
                                 "cannot load '%s': its table of modules is broken: it names '%.100s' twice "
                                 "or as the symbol '%.150s' that is not there",
                                 r->origin, name, symbol);
    memory_release(symbol);
  }
  memory_release(name);
  return failed;
}

static int take_names(blob_reader *r, const import_graph *g, sterna_module **modules, const char *is_part) {
  uint64_t owners, which, names;
  if (!r->left) return 0;
  if (take_number(r, &owners)) return -1;
  for (; owners; owners--) {
    if (take_number(r, &which) || take_number(r, &names)) return -1;
    if (which >= g->modules || !is_part[which]) return blob_broken(r, "names belong to no module");
    if (symbols_own(modules[which], NULL, NULL)) return -1;
    for (; names; names--)
      if (take_name(r, modules[which])) return -1;
  }
  return r->left ? blob_broken(r, "something follows it") : 0;
}

/* Modules that were just made have no imports yet; what a loader gave may have some, and may even
   be the same module twice. */
static int link_module(const import_graph *g, size_t index, sterna_module **modules, int is_part) {
  size_t begin = import_begin(g, index), count = import_begin(g, index + 1) - begin;
  if (!is_part) {
    for (size_t i = 0; i < count; i++)
      if (sterna_module_import(modules[index], modules[import_number(g, begin + i)])) return -1;
    return 0;
  }
  if (!count) return 0;
  sterna_module **imports = memory_allocate(count * sizeof *imports, 16);
  if (!imports) return -1;
  for (size_t i = 0; i < count; i++) {
    imports[i] = modules[import_number(g, begin + i)];
    sterna_retain(imports[i]);
  }
  module_set_imports(modules[index], imports, count);
  return 0;
}

static int link_modules(const import_graph *g, sterna_module **modules, const char *is_part) {
  for (int parts = 1; parts >= 0; parts--)
    for (size_t i = 0; i < g->modules; i++)
      if (is_part[i] == parts && link_module(g, i, modules, parts)) return -1;
  return 0;
}

int blob_load(symbols *under, const void *blob, const char *origin, sterna_module **out) {
  blob_reader r = {blob, platform_readable(blob), origin};
  uint64_t bytes;
  import_graph g;
  if (take_number(&r, &bytes)) return -1;
  if (bytes > r.left) return blob_broken(&r, "it says that it is longer than it is");
  r.left = bytes;
  if (take_imports(&r, &g)) return -1;
  sterna_module **modules = memory_allocate(g.modules * (sizeof *modules + 1), 16);
  if (!modules) return -1;
  char *is_part = (char *)(modules + g.modules);
  size_t made = 0;
  int failed = 0;
  while (!failed && made < g.modules) {
    failed = take_module(&r, under, &modules[made], &is_part[made]);
    made += !failed;
  }
  failed = failed || take_names(&r, &g, modules, is_part) || link_modules(&g, modules, is_part);
  if (!failed) {
    sterna_retain(modules[0]);
    *out = modules[0];
  }
  while (made) sterna_release(modules[--made]);
  memory_release(modules);
  return failed ? -1 : 0;
}
