/*
 * The graph executor: memory for a graph's entries, and calls whose arguments are laid out once.
 *
 * All nodes see an entry through the same tensor, so an entry moves to other memory by one store. A
 * run allocates nothing.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

typedef struct prepared_call {
  sterna_function *function; /* null: a copy from the first argument to the second */
  sterna_any *args;
  int32_t count;
  uint32_t node;
} prepared_call;

static void free_executor(void *self, int flags) {
  sterna_model *m = self;
  if (flags & 1) {
    if (m->replay.kept) m->replay.end(m->replay.kept);
    memory_release(m->replay.addresses);
    sterna_release(m->replay_function);
    binding_release(m);
    for (uint32_t i = 0; i < m->buffer_count; i++) sterna_release(m->buffers[i]);
    sterna_release(m->arena);
    sterna_release(m->g);
  }
  if (flags & 2) memory_release(m);
}

int executor_enter(sterna_model *m) {
  if (!atomic_flag_test_and_set_explicit(&m->in_use, memory_order_acquire)) return 0;
  return sterna_set_error("RuntimeError",
                          "the executor is in use; let each thread have an executor of its own");
}

void executor_leave(sterna_model *m) { atomic_flag_clear_explicit(&m->in_use, memory_order_release); }

/* ---- memory ---- */

static uint64_t entry_offset(const graph_entry *entry) {
  return entry->offset < 0 ? 0 : (uint64_t)entry->offset;
}

void executor_move(sterna_model *m, uint32_t root, const DLTensor *memory, uint64_t byte_offset) {
  for (uint32_t view = root; view != NO_VIEW; view = m->g->next_view[view])
    tensor_place(&m->tensors[view], memory, byte_offset);
}

sterna_ndarray *executor_home(const sterna_model *m, uint32_t root, uint64_t *byte_offset) {
  const graph_entry *entry = &m->g->entries[root];
  *byte_offset = entry_offset(entry);
  return graph_in_arena(m->g, root) ? m->arena : m->buffers[entry->storage];
}

void executor_move_home(sterna_model *m, uint32_t root) {
  uint64_t byte_offset;
  sterna_ndarray *memory = executor_home(m, root, &byte_offset);
  executor_move(m, root, &memory->tensor, byte_offset);
}

static int allocate_bytes(size_t bytes, DLDevice device, sterna_ndarray **out) {
  const int64_t size = (int64_t)bytes;
  return sterna_ndarray_empty(&size, 1, (DLDataType){kDLUInt, 8, 1}, device, out);
}

/* Whether the executor has memory for an entry: inputs and views lie elsewhere. */
static int is_computed(const graph *g, uint32_t entry) {
  int kind = g->nodes[g->entries[entry].node].kind;
  return kind == NODE_CALL || kind == NODE_COPY;
}

/* A buffer holds all entries in it, each at its offset. */
static int allocate_buffer(sterna_model *m, const graph_entry *entry, DLDevice device, size_t bytes) {
  sterna_ndarray **buffer = &m->buffers[entry->storage];
  if (m->buffer_count <= entry->storage) m->buffer_count = entry->storage + 1;
  if (!*buffer) return allocate_bytes(bytes, device, buffer);
  if (memcmp(&(*buffer)->tensor.device, &device, sizeof device) == 0) return 0;
  return sterna_set_errorf("ValueError", "the graph is wrong: storage %u is on two devices",
                           entry->storage);
}

static int allocate_buffers(sterna_model *m) {
  const graph *g = m->g;
  size_t *sizes = memory_allocate(g->entry_count * sizeof *sizes, 16);
  if (!sizes) return -1;
  memset(sizes, 0, g->entry_count * sizeof *sizes);
  for (uint32_t i = 0; i < g->entry_count; i++) {
    const graph_entry *entry = &g->entries[i];
    size_t end = entry_offset(entry) + entry->bytes;
    if (is_computed(g, i) && !graph_in_arena(g, i) && sizes[entry->storage] < end) sizes[entry->storage] = end;
  }
  int failed = 0;
  for (uint32_t i = 0; !failed && i < g->entry_count; i++) {
    const graph_entry *entry = &g->entries[i];
    if (!is_computed(g, i)) continue;
    if (!graph_in_arena(g, i))
      failed = allocate_buffer(m, entry, g->views[i].device, sizes[entry->storage]);
    if (!failed) executor_move_home(m, i);
  }
  memory_release(sizes);
  return failed;
}

/* ---- making ---- */

static void prepare_calls(sterna_model *m, sterna_any *args) {
  prepared_call *call = m->calls;
  for (uint32_t i = 0; i < m->g->node_count; i++) {
    const graph_node *node = &m->g->nodes[i];
    if (node->kind != NODE_CALL && node->kind != NODE_COPY) continue;
    uint32_t count = node->link_count + node->entry_count;
    *call++ = (prepared_call){node->function, args + node->argument, (int32_t)count, i};
    for (uint32_t k = node->argument; k < node->argument + count; k++)
      args[k] = sterna_any_tensor(&m->tensors[m->g->arguments[k]]);
  }
}

/* ---- runs that a device records ---- */

static int run_call(sterna_model *m, const prepared_call *call);

static int run_step(void *self, int32_t step) {
  sterna_model *m = self;
  return run_call(m, &m->calls[step]);
}

static int is_on_one_device(const graph *g) {
  for (uint32_t i = 0; i < g->entry_count; i++)
    if (memcmp(&g->views[i].device, &g->device, sizeof g->device)) return 0;
  return 1;
}

static int prepare_replay(sterna_model *m) {
  const graph *g = m->g;
  char name[64];
  if (g->device.device_type == kDLCPU || !sterna_device_name(g->device.device_type) || !is_on_one_device(g))
    return 0;
  snprintf(name, sizeof name, "sterna.replay.%s", sterna_device_name(g->device.device_type));
  if (sterna_get_global(name, &m->replay_function)) return -1;
  if (!m->replay_function) return 0;
  int32_t count = (int32_t)(g->input_count + g->output_count);
  const void **addresses = memory_allocate(((size_t)count + 1) * sizeof *addresses, 16);
  if (!addresses) return -1;
  m->replay = (sterna_replay){sizeof m->replay, g->device, run_step, m, addresses, (int32_t)g->call_count,
                              count, NULL, NULL, NULL};
  return 0;
}

/* nanoseconds: one for each call, or null */
static int replay_calls(sterna_model *m, uint64_t *nanoseconds) {
  const graph *g = m->g;
  sterna_any argument = sterna_any_none(), ret = sterna_any_none();
  const void **next = m->replay.addresses;
  for (uint32_t i = 0; i < g->input_count; i++) *next++ = m->tensors[g->nodes[g->inputs[i]].entry].data;
  for (uint32_t i = 0; i < g->output_count; i++) *next++ = m->tensors[g->outputs[i]].data;
  m->replay.nanoseconds = nanoseconds;
  argument.type_index = STERNA_POINTER;
  argument.v_ptr = &m->replay;
  return m->replay_function->call(m->replay_function, &argument, 1, &ret);
}

int executor_create(graph *g, sterna_model **out) {
  size_t views = g->entry_count + g->flat_count;
  size_t bytes = sizeof(sterna_model) + g->argument_count * sizeof(sterna_any) +
                 views * sizeof(DLTensor) + g->call_count * sizeof(prepared_call) +
                 g->input_count * sizeof(executor_input) +
                 g->output_count * sizeof(executor_output) +
                 g->entry_count * sizeof(sterna_ndarray *);
  sterna_model *m = memory_allocate(bytes, 16);
  if (!m) return -1;
  memset(m, 0, bytes);
  object_init(&m->header, STERNA_OBJECT, free_executor);
  atomic_flag_clear(&m->in_use);
  sterna_any *args = (sterna_any *)(m + 1);
  m->tensors = (DLTensor *)(args + g->argument_count);
  m->calls = (prepared_call *)(m->tensors + views);
  m->inputs = (executor_input *)(m->calls + g->call_count);
  m->outputs = (executor_output *)(m->inputs + g->input_count);
  m->buffers = (sterna_ndarray **)(m->outputs + g->output_count);
  m->g = g;
  m->lacks_inputs = 1;
  sterna_retain(g);
  if (views) memcpy(m->tensors, g->views, views * sizeof *m->tensors);
  if ((g->arena_bytes && allocate_bytes((size_t)g->arena_bytes, g->device, &m->arena)) ||
      allocate_buffers(m) || prepare_replay(m)) {
    sterna_release(m);
    return -1;
  }
  prepare_calls(m, args);
  *out = m;
  return 0;
}

/* ---- running ---- */

static int run_call(sterna_model *m, const prepared_call *call) {
  if (call->function) {
    sterna_any ret = sterna_any_none();
    int failed = call->function->call(call->function, call->args, call->count, &ret);
    if (ret.type_index >= STERNA_OBJECT) sterna_any_release(&ret);
    if (!failed) return 0;
  } else if (sterna_tensor_copy(call->args[0].v_ptr, call->args[1].v_ptr) == 0) {
    return 0;
  }
  return error_prefix("node '%s'", m->g->nodes[call->node].name);
}

static int run_timed(sterna_model *m, uint64_t *nanoseconds) {
  memset(nanoseconds, 0, m->g->node_count * sizeof *nanoseconds);
  if (m->replay_function) {
    if (replay_calls(m, nanoseconds)) return -1;
    for (uint32_t i = m->g->call_count; i-- > 0;) { /* a call's node comes no earlier than its number */
      uint64_t taken = nanoseconds[i];
      nanoseconds[i] = 0;
      nanoseconds[m->calls[i].node] = taken;
    }
    return 0;
  }
  uint64_t before = platform_nanoseconds();
  for (uint32_t i = 0; i < m->g->call_count; i++) {
    const prepared_call *call = &m->calls[i];
    const DLTensor *last = call->args[call->count - 1].v_ptr;
    if (run_call(m, call)) return -1;
    if (last->device.device_type != kDLCPU && sterna_device_sync(last->device)) return -1;
    uint64_t now = platform_nanoseconds();
    nanoseconds[call->node] = now - before;
    before = now;
  }
  return 0;
}

int executor_run_calls(sterna_model *m) {
  if (m->replay_function) return replay_calls(m, NULL);
  const prepared_call *end = m->calls + m->g->call_count;
  for (const prepared_call *call = m->calls; call < end; call++)
    if (run_call(m, call)) return -1;
  return 0;
}

int executor_run(sterna_model *m, uint64_t *nanoseconds) {
  if (m->lacks_inputs && binding_provide_inputs(m)) return -1;
  if (nanoseconds ? run_timed(m, nanoseconds) : executor_run_calls(m)) return -1;
  return m->has_copied_outputs ? binding_copy_outputs(m) : 0;
}

int executor_run_node(sterna_model *m, int64_t node) {
  if (node < 0 || node >= (int64_t)m->g->node_count)
    return sterna_set_errorf("IndexError", "the graph has %u nodes, so there is no node %lld",
                             m->g->node_count, (long long)node);
  if (m->lacks_inputs && binding_provide_inputs(m)) return -1;
  for (uint32_t i = 0; i < m->g->call_count; i++)
    if (m->calls[i].node == node) return run_call(m, &m->calls[i]);
  return 0; /* an input or a view: nothing to do */
}
