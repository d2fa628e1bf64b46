/* What the runtime's files share with each other and with nobody else. */
#ifndef STERNA_INTERNAL_H_
#define STERNA_INTERNAL_H_

#if !defined(STERNA_BUILD) && !defined(STERNA_STATIC)
#define STERNA_BUILD
#endif
#include "platform.h"
#include "sterna.h"

/* memory.c */
INTERNAL void *memory_allocate(size_t bytes, size_t alignment); /* sets MemoryError when it fails */
INTERNAL void *memory_try_allocate(size_t bytes, size_t alignment); /* leaves the error alone */
INTERNAL void memory_release(void *block);

/* object.c */
INTERNAL void object_init(sterna_object *object, int32_t type_index, void (*deleter)(void *self, int flags));
/* Takes a reference only if the object still has one; a weak reference keeps its memory for that. */
INTERNAL int object_try_retain(sterna_object *object);
INTERNAL int object_is_alive(sterna_object *object);
INTERNAL void object_retain_weak(sterna_object *object);  /* null is allowed */
INTERNAL void object_release_weak(sterna_object *object); /* null is allowed */
/* Nobody but the caller holds a reference, not even a weak one. */
INTERNAL int object_is_only_mine(sterna_object *object);

/* value.c: the value, or what a moved object holds, put into room. */
INTERNAL const sterna_any *value_seen(const sterna_any *value, sterna_any *room);

/* error.c */
INTERNAL int error_out_of_memory(void); /* needs no memory; returns -1 */
INTERNAL int error_type(const sterna_any *value, const char *expected); /* "expected int, got text" */
INTERNAL void error_before_fork(void);
INTERNAL void error_after_fork(void);

/* foreign.c: another runtime of the same ABI in this process. */
INTERNAL int foreign_found_in(void *handle); /* whether a library is made for it */
INTERNAL void foreign_raise(sterna_error *error);
INTERNAL sterna_error *foreign_take_error(void);

/* function.c */
INTERNAL void function_set_deleter(sterna_function *function, void (*deleter)(void *self));
/* A function that also holds a reference to owner. */
INTERNAL int function_create_owned(sterna_call call, void *self, sterna_object *owner, sterna_function **out);

/* registry.c */
INTERNAL void registry_before_fork(void);
INTERNAL void registry_after_fork(void);
INTERNAL void registry_shutdown(void);

/* table.c: names to pointers. Not synchronized. */
typedef struct {
  struct table_entry {
    char *name; /* null: never used; table_gone: removed */
    void *value;
  } *entries;
  size_t capacity, used, live;
} table;
INTERNAL void **table_find(const table *t, const char *name);
/* The name must not be there yet. -1 when memory runs out, with no error set. */
INTERNAL int table_put(table *t, const char *name, void *value);
INTERNAL void *table_remove(table *t, const char *name);
INTERNAL void table_free(table *t);
INTERNAL int table_is_live(const struct table_entry *entry);

/* device.c: the device's table, or an error that says why there is none. */
INTERNAL int device_get(DLDevice device, const sterna_device_api **out);

/* binary.c: refuses a file that the system's loader would choke on. */
INTERNAL int binary_check(const char *path);

/* library.c: the shared libraries that are loaded, each once. */
typedef struct library library;
typedef struct symbols symbols;
INTERNAL void library_before_fork(void);
INTERNAL void library_after_fork(void);
INTERNAL int library_open(const char *path, library **out); /* ends with library_release */
INTERNAL void *library_symbol(library *lib, const char *name);
INTERNAL int library_is_foreign(const library *lib);
/* Makes a module the library's, with the symbols under it, unless there is one: then gives that,
   with a reference. Null: parts of the one before live on, which cannot be shared; load anew. */
INTERNAL sterna_module *library_adopt(library *lib, sterna_module *candidate, symbols *under);
INTERNAL void library_release(library *lib, const symbols *under); /* under: what ends, or null */
INTERNAL void library_forget(void **context, const sterna_module *module); /* that it pointed to */
INTERNAL void library_keep(library *lib); /* instead: stays loaded for good */
INTERNAL void library_shutdown(void);

/* symbols.c: modules over symbols. */
struct symbols {
  sterna_object header; /* each module over them holds a reference */
  sterna_find_symbol find;
  void *self;
  library *lib;           /* null: they come from elsewhere */
  void (*destroy)(void *self);
  int foreign;            /* made for another runtime */
  int several;            /* a table says which modules there are */
  struct module_part *parts;     /* the modules over them, until they are published */
  table owned;            /* the symbols that belong to one module alone */
};
/* A module over symbols: all that belong to no other. */
INTERNAL int symbols_module(symbols *under, sterna_module **out);
/* Gives a module symbols of its own: the function name, or its context variable, is this symbol. */
INTERNAL int symbols_own(sterna_module *module, const char *name, const char *symbol);
INTERNAL void symbols_publish(symbols *under);
INTERNAL void symbols_shutdown(void);
INTERNAL void symbols_before_fork(void);
INTERNAL void symbols_after_fork(void);

/* blob.c: the modules that symbols hold, as a table of theirs says; the first of them. */
INTERNAL int blob_load(symbols *under, const void *blob, const char *origin, sterna_module **out);

/* module.c */
INTERNAL int module_is_own(const sterna_object *object); /* not another runtime's */
/* Takes an array and its references over as the imports of a module that had none. */
INTERNAL void module_set_imports(sterna_module *module, sterna_module **imports, size_t count);
INTERNAL void module_before_fork(void);
INTERNAL void module_after_fork(void);

/* host.c */
INTERNAL void host_shutdown(void);
INTERNAL void host_before_fork(void);
INTERNAL void host_after_fork(void);

/* threads.c */
INTERNAL void threads_shutdown(void);
INTERNAL void threads_after_fork(void);

#endif
