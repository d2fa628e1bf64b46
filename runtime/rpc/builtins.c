/* The functions whose names begin with "rpc.", and the registry's. */
#include "session.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

static int give(sterna_any *ret, void *object) {
  *ret = sterna_any_object(object);
  return 0;
}

static int named_function(sterna_module *module, sterna_bytes name, int imports, sterna_function **out) {
  *out = NULL;
  if (memchr(name.data, 0, name.size)) return 0;
  sterna_any copy = sterna_any_none(); /* with a zero behind it */
  if (sterna_string(name.data, name.size, &copy)) return -1;
  int failed = sterna_as_string(&copy, &name);
  if (!failed && module) failed = sterna_module_get_function(module, name.data, imports, out);
  if (!failed && !module) failed = sterna_get_global(name.data, out);
  sterna_any_release(&copy);
  return failed;
}

/* ---- modules ---- */

static int get_function(session *s, const sterna_any *args, sterna_any *ret) {
  sterna_bytes name;
  sterna_function *found = NULL;
  if (sterna_as_string(&args[0], &name) || builtin_get_function(s, name, &found)) return -1;
  return give(ret, found);
}

static int module_function(session *s, const sterna_any *args, sterna_any *ret) {
  sterna_module *module;
  sterna_bytes name;
  int64_t imports;
  sterna_function *found = NULL;
  (void)s;
  return sterna_as_module(&args[0], &module) || sterna_as_string(&args[1], &name) ||
                 sterna_as_int(&args[2], &imports) || named_function(module, name, imports != 0, &found) ||
                 give(ret, found)
             ? -1
             : 0;
}

static int module_kind(session *s, const sterna_any *args, sterna_any *ret) {
  sterna_module *module;
  (void)s;
  if (sterna_as_module(&args[0], &module)) return -1;
  const char *kind = sterna_module_kind(module);
  return sterna_string(kind, strlen(kind), ret);
}

static int module_imports(session *s, const sterna_any *args, sterna_any *ret) {
  sterna_module *module;
  (void)s;
  if (sterna_as_module(&args[0], &module)) return -1;
  size_t count = sterna_module_import_count(module), made = 0;
  sterna_any *found = calloc(count ? count : 1, sizeof *found);
  int failed = found ? 0 : sterna_set_error("MemoryError", "no memory for the list of imports");
  while (!failed && made < count) {
    sterna_module *import = NULL;
    failed = sterna_module_get_import(module, made, &import);
    if (!failed) found[made++] = sterna_any_object(import);
  }
  if (!failed) failed = sterna_list(found, (int64_t)count, ret);
  while (made) sterna_any_release(&found[--made]);
  free(found);
  return failed;
}

static int import_module(session *s, const sterna_any *args, sterna_any *ret) {
  sterna_module *module, *imported;
  (void)s;
  (void)ret;
  return sterna_as_module(&args[0], &module) || sterna_as_module(&args[1], &imported) ||
                 sterna_module_import(module, imported)
             ? -1
             : 0;
}

static int system_lib(session *s, const sterna_any *args, sterna_any *ret) {
  sterna_bytes prefix;
  sterna_module *module = NULL;
  (void)s;
  return sterna_as_string(&args[0], &prefix) || sterna_system_module(prefix.data, &module) || give(ret, module)
             ? -1
             : 0;
}

/* ---- the machine ---- */

static int device_exists(session *s, const sterna_any *args, sterna_any *ret) {
  DLDevice device;
  (void)s;
  if (sterna_as_device(&args[0], &device)) return -1;
  *ret = sterna_any_bool(sterna_device_exists(device));
  return 0;
}

static int device_sync(session *s, const sterna_any *args, sterna_any *ret) {
  DLDevice device;
  (void)s;
  (void)ret;
  return sterna_as_device(&args[0], &device) || sterna_device_sync(device) ? -1 : 0;
}

static int add_fact(const char *name, sterna_any value, sterna_any *out) {
  const sterna_any pair[2] = {sterna_any_c_string(name), value};
  return sterna_list(pair, 2, out);
}

static int server_info(session *s, const sterna_any *args, sterna_any *ret) {
  struct utsname names;
  sterna_any facts[4] = {sterna_any_none(), sterna_any_none(), sterna_any_none(), sterna_any_none()};
  (void)s;
  (void)args;
  if (uname(&names)) return sterna_set_error("OSError", "the system does not tell its name");
  for (char *at = names.sysname; *at; at++) *at = (char)tolower((unsigned char)*at);
  int failed = add_fact("version", sterna_any_c_string(sterna_version()), &facts[0]) ||
               add_fact("machine", sterna_any_c_string(names.machine), &facts[1]) ||
               add_fact("system", sterna_any_c_string(names.sysname), &facts[2]) ||
               add_fact("pointer_bits", sterna_any_int(8 * (int64_t)sizeof(void *)), &facts[3]) ||
               sterna_list(facts, 4, ret);
  for (int i = 0; i < 4; i++) sterna_any_release(&facts[i]);
  return failed ? -1 : 0;
}

/* ---- the table ---- */

static const builtin builtins[] = {
    {"rpc.get_function", 1, get_function},
    {"rpc.module_function", 3, module_function},
    {"rpc.module_kind", 1, module_kind},
    {"rpc.module_imports", 1, module_imports},
    {"rpc.import_module", 2, import_module},
    {"rpc.load_module", 1, builtin_load_module},
    {"rpc.system_lib", 1, system_lib},
    {"rpc.link", 1, builtin_link},
    {"rpc.upload", 4, builtin_upload},
    {"rpc.download", 3, builtin_download},
    {"rpc.remove", 1, builtin_remove},
    {"rpc.listdir", 1, builtin_listdir},
    {"rpc.device_exists", 1, device_exists},
    {"rpc.device_sync", 1, device_sync},
    {"rpc.time_evaluator", 8, builtin_time_evaluator},
    {"rpc.server_info", 0, server_info},
};

typedef struct {
  session *s;
  const builtin *what;
} bound_builtin;

static int call_bound(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  const bound_builtin *b = self;
  if (n != b->what->arguments)
    return sterna_set_errorf("TypeError", "%s takes %d arguments, not %d", b->what->name,
                             (int)b->what->arguments, (int)n);
  return b->what->call(b->s, args, ret);
}

static int bind_builtin(session *s, const builtin *what, sterna_function **out) {
  bound_builtin *b = malloc(sizeof *b);
  if (!b) return sterna_set_error("MemoryError", "no memory for a function");
  *b = (bound_builtin){s, what};
  if (!sterna_function_create(call_bound, b, free, out)) return 0;
  free(b);
  return -1;
}

int builtin_get_function(session *s, sterna_bytes name, sterna_function **out) {
  for (size_t i = 0; i < sizeof builtins / sizeof *builtins; i++)
    if (strlen(builtins[i].name) == name.size && !memcmp(builtins[i].name, name.data, name.size))
      return bind_builtin(s, &builtins[i], out);
  return named_function(NULL, name, 0, out);
}
