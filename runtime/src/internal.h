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
INTERNAL int value_is_read_only(const sterna_any *value); /* an array that its owner forbids to write */

/* error.c */
INTERNAL int error_out_of_memory(void); /* needs no memory; returns -1 */
INTERNAL int error_type(const sterna_any *value, const char *expected); /* "expected int, got text" */
/* Says in front of the error's message where it happened; the error itself becomes the cause. */
INTERNAL int error_prefix(const char *format, const char *name);
/* What public functions begin with: a null pointer is an error that names the function. */
INTERNAL int error_null(const char *argument); /* returns -1 */
#define REQUIRE_OR(result, pointer)        \
  do {                                     \
    if (!(pointer)) {                      \
      error_null(#pointer);                \
      return result;                       \
    }                                      \
  } while (0)
#define REQUIRE(pointer) REQUIRE_OR(-1, pointer)
#define REQUIRE_IF(needed, pointer) \
  if (needed) REQUIRE(pointer)
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
/* Behind it stands a kind of modules; the function so named makes one from its bytes. */
#define LOAD_FROM_BYTES "ffi.Module.load_from_bytes."
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
INTERNAL void **table_find_sized(const table *t, const char *name, size_t size);
/* The name must not be there yet. -1 when memory runs out, with no error set. */
INTERNAL int table_put(table *t, const char *name, void *value);
INTERNAL void *table_remove(table *t, const char *name);
INTERNAL void table_free(table *t);
INTERNAL int table_is_live(const struct table_entry *entry);

/* ndarray.c */
enum { MOST_DIMENSIONS = 64 }; /* of arrays that are read from files */
/* An array over memory that is described by a tensor and that owner, if any, keeps alive. */
INTERNAL int ndarray_over(const DLTensor *t, sterna_object *owner, int read_only, sterna_ndarray **out);
INTERNAL size_t tensor_alignment(DLDataType dtype); /* what an element's address must be a multiple of */
/* Puts the tensor at an offset into the memory of another one. */
INTERNAL void tensor_place(DLTensor *t, const DLTensor *memory, uint64_t byte_offset);

/* device.c: the device's table, or an error that says why there is none. */
INTERNAL int device_get(DLDevice device, const sterna_device_api **out);
/* Loads the back end of a kind of device, which also registers what loads modules of its kernels. */
INTERNAL void device_load_named(const char *kind);

/* binary.c: refuses a file that the system's loader would choke on. */
INTERNAL int binary_check(const char *path);

/* seal.c: whether a file of ours has another content than it was written with. */
INTERNAL int seal_is_broken(const char *path);

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
  sterna_bytes level;     /* which of a model's levels runs here; none: it has no levels */
  struct module_part *parts;     /* the modules over them, until they are published */
  table owned;            /* the symbols that belong to one module alone */
};
/* The best of a portable library's levels that this processor runs; see processor.c. */
INTERNAL int processor_pick_level(const char *name, const char *levels, sterna_bytes *out);
/* A module over symbols: all that belong to no other. */
INTERNAL int symbols_module(symbols *under, sterna_module **out);
/* The data of a library's model, by its name or, when that is null, of its only one; null: none. */
INTERNAL int symbols_find_model(sterna_module *module, const char *name, void **out);
/* Gives a module symbols of its own: the function name, or its context variable, is this symbol. */
INTERNAL int symbols_own(sterna_module *module, const char *name, const char *symbol);
INTERNAL void symbols_publish(symbols *under);
INTERNAL void symbols_shutdown(void);
INTERNAL void symbols_before_fork(void);
INTERNAL void symbols_after_fork(void);

/* blob.c: the modules that symbols hold, as a table of theirs says; the first of them. */
INTERNAL int blob_load(symbols *under, const void *blob, const char *origin, sterna_module **out);

/* module.c */
INTERNAL uint64_t module_id(const sterna_module *module); /* never another's, not even later */
/* What sterna_module_lookup finds, or null. */
INTERNAL int module_look_up(sterna_module *module, const char *name, sterna_function **out);
INTERNAL int module_is_own(const sterna_object *object); /* not another runtime's */
/* Takes an array and its references over as the imports of a module that had none. */
INTERNAL void module_set_imports(sterna_module *module, sterna_module **imports, size_t count);
INTERNAL void module_before_fork(void);
INTERNAL void module_after_fork(void);

/* workspace.c */
INTERNAL void *workspace_allocate(uint64_t bytes, uint64_t alignment); /* or null */
INTERNAL void workspace_release(void *block);
INTERNAL void workspace_shutdown(void);
INTERNAL void workspace_before_fork(void);
INTERNAL void workspace_after_fork(void);

/* json.c: a value is a pointer to its first character, in a text that was checked. */
INTERNAL int json_check(const char *text, size_t size, const char *what); /* that it is an object */
INTERNAL const char *json_first(const char *container); /* its first item or key; null when empty */
INTERNAL const char *json_next(const char *item); /* a key's value, else the next item; null at the end */
INTERNAL const char *json_member(const char *object, const char *name); /* or null */
/* Several at once. Of members with the same name the first counts. */
INTERNAL void json_members(const char *object, const char *const *names, const char **values, size_t count);
INTERNAL int64_t json_count(const char *array); /* -1 when it is no array or null */
INTERNAL int json_is(const char *string, const char *text);
INTERNAL int json_integer(const char *value, int64_t *out); /* as a number or as text; sets no error */
INTERNAL size_t json_text(const char *string, char *out); /* its size; out may be null, gets no zero */

/* graph.c */
enum { NODE_INPUT, NODE_CALL, NODE_VIEW, NODE_COPY };
#define NO_INPUT UINT32_MAX
#define NO_VIEW UINT32_MAX

typedef struct {
  const char *name, *function_name;
  sterna_function *function; /* of a NODE_CALL */
  uint32_t link, link_count; /* the entries that it reads, in graph.links */
  uint32_t entry, entry_count; /* those that it writes */
  uint32_t argument;           /* of a call or copy: where its arguments begin in graph.arguments */
  uint32_t input;              /* of an input: its number */
  uint8_t kind, flat;
} graph_node;

typedef struct {
  size_t bytes;
  int64_t offset;   /* in the arena or, on another device, in its storage; or -1 */
  uint32_t storage; /* else which buffer */
  uint32_t root;    /* the entry whose memory it shows: itself unless a NODE_VIEW made it */
  uint32_t node;    /* that writes it */
} graph_entry;

typedef struct {
  sterna_object header;
  sterna_module *module;
  DLDevice device; /* where the arena is */
  int64_t arena_bytes;
  graph_node *nodes;
  graph_entry *entries;
  DLTensor *views;     /* without data: one for each entry, then the flat ones that nodes see */
  uint32_t *next_view; /* from an entry through all views of its memory, NO_VIEW at the end */
  uint32_t *links, *arguments; /* entries; views */
  uint32_t *inputs, *outputs;  /* nodes; entries */
  int64_t *dimensions, *flat_sizes;
  char *text;
  uint32_t node_count, entry_count, input_count, output_count;
  uint32_t link_count, argument_count, flat_count, call_count;
  table input_index; /* name to node */
} graph;
INTERNAL int graph_in_arena(const graph *g, uint32_t entry);
INTERNAL int graph_create(const char *json, size_t size, sterna_module *module, const DLDevice *devices,
                          int32_t device_count, graph **out);
INTERNAL uint32_t graph_find_input(const graph *g, const char *name, size_t size); /* or NO_INPUT */

/* executor.c: runs a graph. All of it expects that the caller has entered the executor. */
typedef struct {
  sterna_ndarray *given; /* the parameter that all executors share, or null */
  sterna_ndarray *own;   /* made when it is first needed */
  sterna_ndarray *now;   /* what the nodes read, counted once more; null while there is nothing */
} executor_input;

typedef struct {
  sterna_ndarray *bound; /* the caller's array, or null */
  int is_copied;         /* it is filled at the end of a run; otherwise the nodes write to it */
} executor_output;

struct sterna_model {
  sterna_object header;
  graph *g;
  atomic_flag in_use;
  sterna_ndarray *arena, **buffers; /* a buffer for each storage number that is used */
  DLTensor *tensors;                /* the graph's views, with data */
  struct prepared_call *calls;
  executor_input *inputs;
  executor_output *outputs;
  uint32_t buffer_count, bound_outputs;
  int has_copied_outputs, lacks_inputs;
  sterna_function *replay_function; /* of a device that records runs, or null */
  sterna_replay replay;
};
INTERNAL int executor_enter(sterna_model *m); /* RuntimeError when somebody is inside */
INTERNAL void executor_leave(sterna_model *m);
INTERNAL int executor_create(graph *g, sterna_model **out);
/* Lets all views of an entry's memory lie in other memory, or in the executor's own. */
INTERNAL void executor_move(sterna_model *m, uint32_t root, const DLTensor *memory, uint64_t byte_offset);
INTERNAL void executor_move_home(sterna_model *m, uint32_t root);
INTERNAL sterna_ndarray *executor_home(const sterna_model *m, uint32_t root, uint64_t *byte_offset);
INTERNAL int executor_run(sterna_model *m, uint64_t *nanoseconds); /* one for each node, or null */
INTERNAL int executor_run_calls(sterna_model *m); /* the nodes alone, on what is in place */
INTERNAL int executor_run_node(sterna_model *m, int64_t node);

/* binding.c: what an executor reads and writes. */
INTERNAL int binding_find_input(const sterna_model *m, const char *name, size_t size, uint32_t *out);
INTERNAL int binding_check_input(const sterna_model *m, int64_t index, uint32_t *out);
INTERNAL int binding_check_output(const sterna_model *m, int64_t index, uint32_t *out);
INTERNAL const graph_node *binding_output_node(const sterna_model *m, uint32_t output);
INTERNAL int binding_give_parameter(sterna_model *m, uint32_t input, sterna_ndarray *values);
INTERNAL int binding_set_input(sterna_model *m, uint32_t input, const DLTensor *values);
INTERNAL int binding_bind_input(sterna_model *m, uint32_t input, sterna_ndarray *array);
INTERNAL int binding_bind_output(sterna_model *m, uint32_t output, sterna_ndarray *array);
INTERNAL int binding_share_parameter(sterna_model *m, uint32_t input, sterna_model *from, uint32_t theirs);
INTERNAL int binding_get_input(sterna_model *m, uint32_t input, sterna_ndarray **out);
INTERNAL int binding_get_output(sterna_model *m, uint32_t output, sterna_ndarray **out);
INTERNAL int binding_provide_inputs(sterna_model *m);    /* zeros for those that nobody has set */
INTERNAL int binding_copy_outputs(sterna_model *m);      /* to the arrays that nodes could not write to */
/* Runs on arrays: first the inputs that are no parameters, then the outputs. */
INTERNAL int binding_run_on(sterna_model *m, const sterna_any *args, int32_t n);
INTERNAL int binding_check_writable(const sterna_model *m, uint32_t output, const sterna_any *value);
INTERNAL void binding_reset(sterna_model *m);
INTERNAL void binding_release(sterna_model *m);

/* executor_module.c: the values of a parameter that a graph may have; for params_read. */
INTERNAL int executor_load_param(void *model, const char *name, size_t size, const DLTensor *values);

/* params.c: parameters as the classic system saves them. */
typedef int (*params_visit)(void *context, const char *name, size_t name_size, const DLTensor *values);
/* Visits all, after everything was checked. The values lie in data and may not be aligned. */
INTERNAL int params_read(const void *data, size_t size, params_visit visit, void *context);
INTERNAL int params_copy(const DLTensor *from, sterna_ndarray **out);

/* model_data.c */
typedef struct model_data model_data;
INTERNAL int model_check(const model_data *d); /* before anything else is asked of it */
INTERNAL sterna_bytes model_name(const model_data *d);
INTERNAL sterna_bytes model_graph(const model_data *d);
INTERNAL int64_t model_param_count(const model_data *d);
/* A parameter as an array over the data, which owner keeps alive. */
INTERNAL int model_get_param(const model_data *d, int64_t index, sterna_object *owner, sterna_bytes *name,
                             sterna_ndarray **out);
/* An executor of a model whose functions are in a module. */
INTERNAL int model_open(const model_data *d, sterna_module *module, int with_params, const DLDevice *devices,
                        int32_t device_count, sterna_model **out);

/* factory.c */
/* The name of a library's model, or of one of them; with _ and a name behind it, that model's data. */
#define MODEL_SYMBOL "__sterna__model"
INTERNAL int factory_names(const char *name); /* whether every model adds a function of this name */
/* The function of a name that a model adds to its module; null when it adds none. */
INTERNAL int factory_function(sterna_module *module, const void *data, const char *name,
                              sterna_function **out);
INTERNAL sterna_call factory_find_global(const char *name);

/* model.c */
INTERNAL void model_before_fork(void);
INTERNAL void model_after_fork(void);

/* threads.c */
/* sterna_num_threads; what the environment says now is said until the number is set. */
INTERNAL int threads_of_loops(int32_t *out);
INTERNAL void threads_shutdown(void);
INTERNAL void threads_after_fork(void);

#endif
