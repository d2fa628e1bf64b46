/*
 * Graphs: read from JSON, checked as a whole before anything of them is believed, and joined to the
 * functions that their nodes call. A graph never changes, so all executors of it share one.
 */
#include "internal.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LARGEST_TEXT = 1 << 30 };
#define LARGEST_ARENA (INT64_MAX / 2)

/* Where the parts of the JSON begin, and how much room the graph takes. */
typedef struct {
  const char *nodes, *inputs, *outputs, *row_ptr;
  const char *dtypes, *shapes, *storages, *offsets, *devices;
  size_t links, flat, dimensions, text;
} graph_source;

static int graph_wrong(const char *format, ...) STERNA_PRINTF(1, 2);

static int graph_wrong(const char *format, ...) {
  char text[400];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  return sterna_set_errorf("ValueError", "the graph is wrong: %s", text);
}

static int graph_wrong_node(const graph *g, const graph_node *node, const char *reason) {
  return graph_wrong("node %lld ('%.100s') %s", (long long)(node - g->nodes), node->name, reason);
}

static void free_graph(void *self, int flags) {
  graph *g = self;
  if (flags & 1) {
    for (uint32_t i = 0; i < g->node_count; i++) sterna_release(g->nodes[i].function);
    table_free(&g->input_index);
    sterna_release(g->module);
  }
  if (flags & 2) memory_release(g);
}

/* ---- a first look: how much there is ---- */

static int find_list(const char *object, const char *name, const char **out) {
  *out = json_member(object, name);
  return *out && **out == '[' ? 0 : graph_wrong("'%s' is missing or no list", name);
}

/* An attribute of the graph is a list of its kind and its value. */
static const char *attribute(const char *attrs, const char *name) {
  const char *pair = json_member(attrs, name);
  if (!pair || *pair != '[') return pair;
  const char *kind = json_first(pair);
  return kind && *kind == '"' ? json_next(kind) : NULL;
}

static int find_items(const char *attrs, const char *name, int64_t count, const char **out) {
  *out = attribute(attrs, name);
  int64_t items = *out ? json_count(*out) : -1;
  if (items >= 0 && items == count) return 0;
  if (items < 0) return graph_wrong("its attribute '%s' is missing or no list", name);
  return graph_wrong("its attribute '%s' has %lld items for %lld entries", name, (long long)items,
               (long long)count);
}

static int find_optional_items(const char *attrs, const char *name, int64_t count, const char **out) {
  return json_member(attrs, name) ? find_items(attrs, name, count, out) : 0;
}

/* A node's members, and those of its attributes. */
typedef struct {
  const char *op, *name, *inputs, *attrs;
  const char *function, *input_count, *output_count, *flatten;
} node_json;

static node_json look_into(const char *node) {
  static const char *const names[] = {"op", "name", "inputs", "attrs"};
  static const char *const attributes[] = {"func_name", "num_inputs", "num_outputs", "flatten_data"};
  const char *found[8];
  json_members(node, names, found, 4);
  json_members(found[3], attributes, found + 4, 4);
  return (node_json){found[0], found[1], found[2], found[3], found[4], found[5], found[6], found[7]};
}

static int is_flat(const node_json *j) {
  int64_t value;
  return j->flatten && json_integer(j->flatten, &value) == 0 && value;
}

static int is_text(const char *value) { return value && *value == '"'; }

static size_t text_size(const char *value) { return is_text(value) ? json_text(value, NULL) + 1 : 0; }

static int count_node(const graph *g, graph_source *s, const char *node) {
  if (*node != '{') return graph_wrong("an item of 'nodes' is no object");
  node_json j = look_into(node);
  int64_t links = json_count(j.inputs);
  if (links < 0) links = 0;
  s->links += (size_t)links;
  s->text += text_size(j.name) + text_size(j.function);
  if (is_flat(&j)) {
    if (!s->flat) s->flat = g->entry_count; /* room for the outputs of all such nodes together */
    s->flat += (size_t)links;
  }
  return 0;
}

static int look_over(const char *json, graph *g, graph_source *s) {
  const char *attrs = json_member(json, "attrs"), *arena = NULL;
  if (!attrs || *attrs != '{') return graph_wrong("'attrs' is missing");
  if (find_list(json, "nodes", &s->nodes) || find_list(json, "arg_nodes", &s->inputs) ||
      find_list(json, "heads", &s->outputs) || find_list(json, "node_row_ptr", &s->row_ptr))
    return -1;
  int64_t entries = json_count(attribute(attrs, "dltype"));
  if (find_items(attrs, "dltype", entries, &s->dtypes) ||
      find_items(attrs, "shape", entries, &s->shapes) ||
      find_items(attrs, "storage_id", entries, &s->storages) ||
      find_optional_items(attrs, "device_index", entries, &s->devices) ||
      find_optional_items(attrs, "storage_offset", entries, &s->offsets))
    return -1;
  arena = attribute(attrs, "arena_bytes");
  if (s->offsets && (!arena || json_integer(arena, &g->arena_bytes) || g->arena_bytes < 0))
    return graph_wrong("it has storage_offset, but no valid arena_bytes");
  g->entry_count = (uint32_t)entries;
  g->node_count = (uint32_t)json_count(s->nodes);
  g->input_count = (uint32_t)json_count(s->inputs);
  g->output_count = (uint32_t)json_count(s->outputs);
  if (json_count(s->row_ptr) != (int64_t)g->node_count + 1)
    return graph_wrong("'node_row_ptr' must have one more item than 'nodes'");
  for (const char *node = json_first(s->nodes); node; node = json_next(node))
    if (count_node(g, s, node)) return -1;
  for (const char *shape = json_first(s->shapes); shape; shape = json_next(shape)) {
    int64_t ndim = json_count(shape);
    if (ndim < 0 || ndim > MOST_DIMENSIONS) return graph_wrong("an item of 'shape' is no shape");
    s->dimensions += (size_t)ndim;
  }
  return 0;
}

/* ---- one block for all of it ---- */

static void *graph_part(char *block, size_t *used, size_t count, size_t size) {
  size_t here = *used;
  *used += (count * size + 15) / 16 * 16;
  return block ? block + here : NULL;
}

/* Sets the graph's pointers into a block of memory, if there is one; how many bytes it takes. */
static size_t lay_out(graph *g, const graph_source *s, char *block) {
  size_t views = g->entry_count + s->flat, used = 0;
  graph_part(block, &used, 1, sizeof *g);
  g->nodes = graph_part(block, &used, g->node_count, sizeof *g->nodes);
  g->entries = graph_part(block, &used, g->entry_count, sizeof *g->entries);
  g->views = graph_part(block, &used, views, sizeof *g->views);
  g->next_view = graph_part(block, &used, views, sizeof *g->next_view);
  g->links = graph_part(block, &used, s->links, sizeof *g->links);
  g->arguments = graph_part(block, &used, s->links + g->entry_count, sizeof *g->arguments);
  g->inputs = graph_part(block, &used, g->input_count, sizeof *g->inputs);
  g->outputs = graph_part(block, &used, g->output_count, sizeof *g->outputs);
  g->dimensions = graph_part(block, &used, s->dimensions + s->flat, sizeof *g->dimensions);
  g->text = graph_part(block, &used, s->text, 1);
  return used;
}

static graph *allocate_graph(graph *counted, const graph_source *s) {
  size_t bytes = lay_out(counted, s, NULL);
  graph *g = memory_allocate(bytes, 16);
  if (!g) return NULL;
  memset(g, 0, bytes);
  *g = *counted;
  object_init(&g->header, STERNA_OBJECT, free_graph);
  lay_out(g, s, (char *)g);
  return g;
}

/* ---- entries: what the nodes read and write ---- */

/* The device of this type among those that were given; type 0 is the first one. */
static int choose_device(const DLDevice *devices, int32_t count, int64_t type, DLDevice *out) {
  for (int32_t i = 0; i < count; i++)
    if (!type || devices[i].device_type == (DLDeviceType)type) {
      *out = devices[i];
      return 0;
    }
  const char *name = type < 1000 ? sterna_device_name((DLDeviceType)type) : NULL;
  return sterna_set_errorf("ValueError", "the graph needs a device of type %s, which was not given",
                           name ? name : "unknown");
}

static int read_shape(DLTensor *t, const char *shape, int64_t **room) {
  t->shape = *room;
  for (const char *extent = json_first(shape); extent; extent = json_next(extent), t->ndim++) {
    if (json_integer(extent, *room) || **room < 0) return graph_wrong("a shape has an extent that is no size");
    ++*room;
  }
  return 0;
}

/* The next item of a list that may be missing; then null. */
static const char *step_on(const char *item) { return item ? json_next(item) : NULL; }

static int read_entries(graph *g, const graph_source *s, const DLDevice *devices, int32_t device_count) {
  const char *dtype = json_first(s->dtypes), *shape = json_first(s->shapes);
  const char *storage = json_first(s->storages);
  const char *offset = s->offsets ? json_first(s->offsets) : NULL;
  const char *device = s->devices ? json_first(s->devices) : NULL;
  int64_t *room = g->dimensions;
  for (uint32_t i = 0; i < g->entry_count; i++) {
    graph_entry *entry = &g->entries[i];
    DLTensor *t = &g->views[i];
    char name[32];
    int64_t id, type = 0;
    size_t size = *dtype == '"' ? json_text(dtype, NULL) : sizeof name;
    if (size >= sizeof name) return graph_wrong("an item of 'dltype' is no name of a type");
    json_text(dtype, name);
    if (sterna_dtype_parse(name, size, &t->dtype) || read_shape(t, shape, &room) ||
        sterna_tensor_bytes(t, &entry->bytes))
      return -1;
    if (json_integer(storage, &id) || id < -1 || id >= (int64_t)g->entry_count)
      return graph_wrong("an item of 'storage_id' is out of range");
    entry->storage = (uint32_t)id;
    entry->offset = -1;
    if (offset && json_integer(offset, &entry->offset))
      return graph_wrong("an item of 'storage_offset' is no integer");
    if (device && (json_integer(device, &type) || type < 0))
      return graph_wrong("an item of 'device_index' is no device type");
    if (choose_device(devices, device_count, type, &t->device)) return -1;
    if (i == 0) g->device = t->device;
    entry->root = i;
    g->next_view[i] = NO_VIEW;
    dtype = json_next(dtype);
    shape = json_next(shape);
    storage = json_next(storage);
    offset = step_on(offset);
    device = step_on(device);
  }
  g->flat_sizes = room;
  return 0;
}

/* Whether an entry lies in the graph's arena; others have an offset in a storage of their device. */
int graph_in_arena(const graph *g, uint32_t entry) {
  return g->entries[entry].offset >= 0 && memcmp(&g->views[entry].device, &g->device, sizeof g->device) == 0;
}

/* Where an entry lies in the executor's memory. Inputs and views lie elsewhere. */
static int check_place(const graph *g, const graph_node *node, uint32_t index) {
  const graph_entry *entry = &g->entries[index];
  const DLTensor *t = &g->views[index];
  int in_arena = graph_in_arena(g, index);
  int64_t room = in_arena ? g->arena_bytes : LARGEST_ARENA;
  if (!in_arena && entry->storage == (uint32_t)-1)
    return graph_wrong_node(g, node, "has an output without storage");
  if (entry->offset < 0) return 0;
  if (entry->offset > room || entry->bytes > (uint64_t)(room - entry->offset))
    return graph_wrong_node(g, node, "has an output that reaches out of the arena");
  if ((uint64_t)entry->offset % tensor_alignment(t->dtype))
    return graph_wrong_node(g, node, "has an output at an offset that is not aligned to its type");
  return 0;
}

/* ---- nodes ---- */

/* Copies a text into the graph; its size is known to fit. */
static int copy_text(const char *string, char **room, const char **out) {
  size_t size = json_text(string, *room);
  if (memchr(*room, 0, size)) return graph_wrong("a name has a zero in it");
  (*room)[size] = 0;
  *out = *room;
  *room += size + 1;
  return 0;
}

/* Reads [node, output, version], the node being one before limit. */
static int read_link(const graph *g, const char *link, uint32_t limit, uint32_t *out) {
  const char *item = *link == '[' ? json_first(link) : NULL;
  int64_t node, output;
  if (!item || json_integer(item, &node) || !(item = json_next(item)) || json_integer(item, &output))
    return graph_wrong("a reference to a node is no list of node and output");
  if (node < 0 || node >= limit)
    return graph_wrong("a reference is to node %lld, which is not among the %lld before it", (long long)node,
                 (long long)limit);
  if (output < 0 || output >= g->nodes[node].entry_count)
    return graph_wrong("a reference is to output %lld of node %lld, which has %u", (long long)output,
                 (long long)node, g->nodes[node].entry_count);
  *out = g->nodes[node].entry + (uint32_t)output;
  return 0;
}

static int expect_count(const graph *g, const graph_node *node, const char *value, const char *name,
                        uint32_t count) {
  int64_t number;
  if (value && json_integer(value, &number) == 0 && number == count) return 0;
  return graph_wrong("node %lld ('%.100s') has %u of what its '%s' counts", (long long)(node - g->nodes),
                     node->name, count, name);
}

/* A node whose one output has the bytes of its one input. */
static int check_pair(const graph *g, const graph_node *node) {
  uint32_t from = g->links[node->link], to = node->entry;
  if (node->link_count != 1 || node->entry_count != 1 || g->entries[from].bytes != g->entries[to].bytes ||
      (node->kind == NODE_VIEW && memcmp(&g->views[from].device, &g->views[to].device, sizeof g->device)))
    return graph_wrong_node(g, node, "must have one input and one output of the same size and device");
  return 0;
}

static void add_view(graph *g, uint32_t view, uint32_t root) {
  g->next_view[view] = g->next_view[root];
  g->next_view[root] = view;
}

/* The argument that an entry is to a node: itself, or a view of it with one dimension. */
static uint32_t graph_argument_view(graph *g, const graph_node *node, uint32_t entry) {
  if (!node->flat) return entry;
  uint32_t view = g->entry_count + g->flat_count;
  int64_t *size = &g->flat_sizes[g->flat_count++];
  uint64_t product = 1; /* unsigned: an empty array's other sides may be long */
  for (int32_t i = 0; i < g->views[entry].ndim; i++) product *= (uint64_t)g->views[entry].shape[i];
  *size = (int64_t)product;
  g->views[view] = g->views[entry];
  g->views[view].ndim = 1;
  g->views[view].shape = size;
  add_view(g, view, g->entries[entry].root);
  return view;
}

static int read_call(graph *g, graph_node *node, const node_json *j, char **room) {
  if (!is_text(j->function)) return graph_wrong_node(g, node, "has no func_name");
  if (copy_text(j->function, room, &node->function_name) ||
      expect_count(g, node, j->input_count, "num_inputs", node->link_count) ||
      expect_count(g, node, j->output_count, "num_outputs", node->entry_count))
    return -1;
  node->kind = strcmp(node->function_name, "__nop") == 0    ? NODE_VIEW
               : strcmp(node->function_name, "__copy") == 0 ? NODE_COPY
                                                            : NODE_CALL;
  if (node->kind != NODE_CALL && check_pair(g, node)) return -1;
  if (node->kind == NODE_VIEW) {
    g->entries[node->entry].root = g->entries[g->links[node->link]].root;
    add_view(g, node->entry, g->entries[node->entry].root);
    return 0;
  }
  for (uint32_t i = 0; i < node->entry_count; i++)
    if (check_place(g, node, node->entry + i)) return -1;
  node->flat = (uint8_t)is_flat(j);
  node->argument = g->argument_count;
  for (uint32_t i = 0; i < node->link_count; i++)
    g->arguments[g->argument_count++] = graph_argument_view(g, node, g->links[node->link + i]);
  for (uint32_t i = 0; i < node->entry_count; i++)
    g->arguments[g->argument_count++] = graph_argument_view(g, node, node->entry + i);
  g->call_count++;
  return 0;
}

static int read_node(graph *g, graph_node *node, const char *json, char **room) {
  node_json j = look_into(json);
  if (!is_text(j.name)) return graph_wrong("node %lld has no name", (long long)(node - g->nodes));
  if (copy_text(j.name, room, &node->name)) return -1;
  node->link = g->link_count;
  if (json_count(j.inputs) > 0)
    for (const char *link = json_first(j.inputs); link; link = json_next(link))
      if (read_link(g, link, (uint32_t)(node - g->nodes), &g->links[g->link_count++])) return -1;
  node->link_count = g->link_count - node->link;
  if (j.op && json_is(j.op, "tvm_op")) return read_call(g, node, &j, room);
  if (!j.op || !json_is(j.op, "null")) return graph_wrong_node(g, node, "is neither a null nor a tvm_op");
  node->kind = NODE_INPUT;
  node->input = NO_INPUT;
  if (node->entry_count != 1 || node->link_count)
    return graph_wrong_node(g, node, "is an input, so it must have one output and no inputs");
  return 0;
}

static int read_nodes(graph *g, const graph_source *s) {
  const char *pointer = json_first(s->row_ptr), *json = json_first(s->nodes);
  char *room = g->text;
  int64_t from, to;
  if (json_integer(pointer, &from) || from) return graph_wrong("'node_row_ptr' does not begin with 0");
  for (uint32_t i = 0; i < g->node_count; i++, from = to, json = json_next(json)) {
    pointer = json_next(pointer);
    if (json_integer(pointer, &to) || to < from || to > (int64_t)g->entry_count)
      return graph_wrong("item %u of 'node_row_ptr' is out of range", i + 1);
    g->nodes[i].entry = (uint32_t)from;
    g->nodes[i].entry_count = (uint32_t)(to - from);
    for (int64_t entry = from; entry < to; entry++) g->entries[entry].node = i;
    if (read_node(g, &g->nodes[i], json, &room)) return -1;
  }
  return from == (int64_t)g->entry_count ? 0 : graph_wrong("'node_row_ptr' leaves entries out");
}

static int read_inputs(graph *g, const char *json) {
  for (uint32_t i = 0; i < g->input_count; i++, json = json_next(json)) {
    int64_t index;
    if (json_integer(json, &index) || index < 0 || index >= (int64_t)g->node_count ||
        g->nodes[index].kind != NODE_INPUT)
      return graph_wrong("item %u of 'arg_nodes' is no input", i);
    graph_node *node = &g->nodes[index];
    if (table_find(&g->input_index, node->name)) return graph_wrong_node(g, node, "is an input twice");
    if (table_put(&g->input_index, node->name, node)) return error_out_of_memory();
    node->input = i;
    g->inputs[i] = (uint32_t)index;
  }
  for (uint32_t i = 0; i < g->node_count; i++)
    if (g->nodes[i].kind == NODE_INPUT && g->nodes[i].input == NO_INPUT)
      return graph_wrong_node(g, &g->nodes[i], "is an input that 'arg_nodes' leaves out");
  return 0;
}

/* ---- functions ---- */

static int refuse_missing(const graph *g, table *found, size_t size) {
  char *names = memory_allocate(size + 1, 1), *at = names;
  if (!names) return -1;
  for (uint32_t i = 0; i < g->node_count; i++) {
    const graph_node *node = &g->nodes[i];
    if (node->kind != NODE_CALL || node->function || !table_find(found, node->function_name)) continue;
    table_remove(found, node->function_name); /* named once */
    at += sprintf(at, "%s'%s'", at == names ? "" : ", ", node->function_name);
  }
  sterna_set_errorf("ValueError", "the library lacks functions that the graph calls: %s", names);
  memory_release(names);
  return -1;
}

/* Each function is looked up once; those that are missing are named all at once. */
static int find_functions(graph *g, table *found) {
  size_t missing = 0;
  for (uint32_t i = 0; i < g->node_count; i++) {
    graph_node *node = &g->nodes[i];
    if (node->kind != NODE_CALL) continue;
    void **there = table_find(found, node->function_name);
    if (there) {
      node->function = *there;
      sterna_retain(node->function);
      continue;
    }
    if (sterna_module_get_function(g->module, node->function_name, 1, &node->function)) return -1;
    if (table_put(found, node->function_name, node->function)) return error_out_of_memory();
    if (!node->function) missing += strlen(node->function_name) + 4;
  }
  return missing ? refuse_missing(g, found, missing) : 0;
}

static int read_graph(graph *g, const graph_source *s, const DLDevice *devices, int32_t device_count) {
  table found = {NULL, 0, 0, 0};
  if (read_entries(g, s, devices, device_count) || read_nodes(g, s) ||
      read_inputs(g, json_first(s->inputs)))
    return -1;
  const char *head = json_first(s->outputs);
  for (uint32_t i = 0; i < g->output_count; i++, head = json_next(head))
    if (read_link(g, head, g->node_count, &g->outputs[i])) return -1;
  int failed = find_functions(g, &found);
  table_free(&found);
  return failed;
}

int graph_create(const char *json, size_t size, sterna_module *module, const DLDevice *devices,
                 int32_t device_count, graph **out) {
  graph counted;
  graph_source s;
  memset(&counted, 0, sizeof counted);
  memset(&s, 0, sizeof s);
  if (size > LARGEST_TEXT) return graph_wrong("its text is longer than a gibibyte");
  if (device_count < 1) return sterna_set_error("ValueError", "a graph runs on a device; give one");
  if (json_check(json, size, "the graph") || look_over(json + strspn(json, " \n\r\t"), &counted, &s)) return -1;
  graph *g = allocate_graph(&counted, &s);
  if (!g) return -1;
  g->device = devices[0];
  g->module = module;
  sterna_retain(module);
  if (read_graph(g, &s, devices, device_count)) {
    sterna_release(g);
    return -1;
  }
  *out = g;
  return 0;
}

uint32_t graph_find_input(const graph *g, const char *name, size_t size) {
  void **there = table_find_sized(&g->input_index, name, size);
  return there ? ((graph_node *)*there)->input : NO_INPUT;
}
