/*
 * Input and output binding (zero copy): what an executor reads and writes.
 *
 * Nodes only ever read inputs. A parameter is an input whose array all executors of a model share; to
 * give it other values gives this executor an array of its own. Nodes write to the caller's array for
 * an output if nothing is there that they also need; otherwise it is filled when the run is over.
 * A run on arrays binds all of them for as long as it lasts and keeps no pointer to any.
 */
#include "internal.h"

#include <stdio.h>
#include <string.h>

/* ---- names and numbers ---- */

static const graph_node *input_node(const sterna_model *m, uint32_t input) {
  return &m->g->nodes[m->g->inputs[input]];
}

const graph_node *binding_output_node(const sterna_model *m, uint32_t output) {
  return &m->g->nodes[m->g->entries[m->g->outputs[output]].node];
}

/* The names of the inputs that are no parameters, as many as fit. */
static const char *list_inputs(const sterna_model *m, char *text, size_t size) {
  size_t used = 0;
  *text = 0;
  for (uint32_t i = 0; i < m->g->input_count && used + 1 < size; i++)
    if (!m->inputs[i].given)
      used += (size_t)snprintf(text + used, size - used, "%s'%s'", used ? ", " : "", input_node(m, i)->name);
  return used ? text : "none";
}

int binding_find_input(const sterna_model *m, const char *name, size_t size, uint32_t *out) {
  char names[200];
  uint32_t found = graph_find_input(m->g, name, size);
  if (found == NO_INPUT)
    return sterna_set_errorf("RuntimeError", "Could not find '%.*s' in graph's inputs; they are %s",
                             (int)(size < 200 ? size : 200), name, list_inputs(m, names, sizeof names));
  *out = found;
  return 0;
}

static int check_index(int64_t index, uint32_t count, const char *what, uint32_t *out) {
  if (index < 0 || index >= (int64_t)count)
    return sterna_set_errorf("IndexError", "the graph has %u %ss, so there is no %s %lld", count, what, what,
                             (long long)index);
  *out = (uint32_t)index;
  return 0;
}

int binding_check_input(const sterna_model *m, int64_t index, uint32_t *out) {
  return check_index(index, m->g->input_count, "input", out);
}

int binding_check_output(const sterna_model *m, int64_t index, uint32_t *out) {
  return check_index(index, m->g->output_count, "output", out);
}

/* ---- what fits ---- */

enum { DESCRIPTION = 160 };

/* "float32[1, 64]" */
static const char *describe(const DLTensor *t, char *text) {
  sterna_dtype_name(t->dtype, text);
  size_t used = strlen(text);
  text[used++] = '[';
  for (int32_t i = 0; i < t->ndim && used < DESCRIPTION - 32; i++)
    used += (size_t)snprintf(text + used, DESCRIPTION - used, i ? ", %lld" : "%lld",
                             (long long)t->shape[i]);
  snprintf(text + used, DESCRIPTION - used, used < DESCRIPTION - 32 ? "]" : ", ...]");
  return text;
}

static int check_fit(const DLTensor *wanted, const DLTensor *given, const char *role, const char *name) {
  char a[DESCRIPTION], b[DESCRIPTION];
  int same = wanted->ndim == given->ndim && memcmp(&wanted->dtype, &given->dtype, sizeof given->dtype) == 0;
  for (int32_t i = 0; same && i < wanted->ndim; i++) same = wanted->shape[i] == given->shape[i];
  if (!same)
    return sterna_set_errorf("ValueError", "%s '%s' is %s, but %s was given", role, name,
                             describe(wanted, a), describe(given, b));
  if (!sterna_tensor_is_compact(given))
    return sterna_set_errorf("ValueError", "the array given for %s '%s' is not contiguous", role, name);
  return 0;
}

static uintptr_t first_address(const DLTensor *t) { return (uintptr_t)t->data + (uintptr_t)t->byte_offset; }

/* Whether the nodes can use an array in place of the executor's memory. */
static int check_usable(const DLTensor *wanted, const DLTensor *given, const char *role, const char *name) {
  if (check_fit(wanted, given, role, name)) return -1;
  if (memcmp(&wanted->device, &given->device, sizeof given->device))
    return sterna_set_errorf(
        "ValueError", "%s '%s' is on %s(%d), but the array that was given is on %s(%d)", role, name,
        sterna_device_name(wanted->device.device_type), (int)wanted->device.device_id,
        sterna_device_name(given->device.device_type), (int)given->device.device_id);
  if (first_address(given) % tensor_alignment(given->dtype))
    return sterna_set_errorf("ValueError", "the array given for %s '%s' is not aligned to its type", role,
                             name);
  return 0;
}

static int overlap(const sterna_ndarray *a, const sterna_ndarray *b) {
  size_t size_a, size_b;
  if (!a || !b || memcmp(&a->tensor.device, &b->tensor.device, sizeof a->tensor.device) ||
      sterna_tensor_bytes(&a->tensor, &size_a) ||
      sterna_tensor_bytes(&b->tensor, &size_b))
    return 0;
  uintptr_t from_a = first_address(&a->tensor), from_b = first_address(&b->tensor);
  return size_a && size_b && from_a < from_b + size_b && from_b < from_a + size_a;
}

static int refuse_own_memory(const char *role, const char *name) {
  return sterna_set_errorf("ValueError",
                           "the array given for %s '%s' lies in the executor's own memory, where a "
                           "run would overwrite it; copy it",
                           role, name);
}

/* Whether an array lies where nodes keep what they compute. */
static int is_in_own_memory(const sterna_model *m, const sterna_ndarray *array) {
  if (overlap(array, m->arena)) return 1;
  for (uint32_t i = 0; i < m->buffer_count; i++)
    if (overlap(array, m->buffers[i])) return 1;
  return 0;
}

/* ---- outputs ---- */

static uint32_t output_root(const sterna_model *m, uint32_t output) {
  return m->g->entries[m->g->outputs[output]].root;
}

/* The input that an output shows unchanged; NO_INPUT when it is computed. */
static uint32_t input_behind(const sterna_model *m, uint32_t output) {
  const graph_node *node = &m->g->nodes[m->g->entries[output_root(m, output)].node];
  return node->kind == NODE_INPUT ? node->input : NO_INPUT;
}

/* The first output with the same memory: only that one can have it moved. */
static uint32_t first_with_root(const sterna_model *m, uint32_t output) {
  uint32_t first = 0;
  while (output_root(m, first) != output_root(m, output)) first++;
  return first;
}

static int can_be_written(const sterna_model *m, uint32_t output) {
  const sterna_ndarray *bound = m->outputs[output].bound;
  if (input_behind(m, output) != NO_INPUT || first_with_root(m, output) != output ||
      is_in_own_memory(m, bound))
    return 0;
  for (uint32_t i = 0; i < m->g->input_count; i++)
    if (overlap(bound, m->inputs[i].now)) return 0;
  for (uint32_t i = 0; i < m->g->output_count; i++)
    if (i != output && overlap(bound, m->outputs[i].bound)) return 0;
  return 1;
}

/* Decides for each bound output how it is filled; after every change of what is bound. */
static void place_outputs(sterna_model *m) {
  m->has_copied_outputs = 0;
  for (uint32_t i = 0; i < m->g->output_count; i++) {
    executor_output *output = &m->outputs[i];
    output->is_copied = output->bound && !can_be_written(m, i);
    m->has_copied_outputs |= output->is_copied;
    if (input_behind(m, i) != NO_INPUT || first_with_root(m, i) != i) continue;
    if (output->bound && !output->is_copied) executor_move(m, output_root(m, i), &output->bound->tensor, 0);
    else executor_move_home(m, output_root(m, i));
  }
}

int binding_copy_outputs(sterna_model *m) {
  for (uint32_t i = 0; i < m->g->output_count; i++)
    if (m->outputs[i].is_copied &&
        sterna_tensor_copy(&m->tensors[m->g->outputs[i]], &m->outputs[i].bound->tensor))
      return -1;
  return 0;
}

int binding_bind_output(sterna_model *m, uint32_t output, sterna_ndarray *array) {
  const char *name = binding_output_node(m, output)->name;
  if (array && check_usable(&m->tensors[m->g->outputs[output]], &array->tensor, "output", name)) return -1;
  if (array && sterna_ndarray_is_read_only(array))
    return sterna_set_errorf("ValueError", "the array given for output '%s' is read-only", name);
  sterna_ndarray *before = m->outputs[output].bound;
  m->outputs[output].bound = array;
  m->bound_outputs += (array != NULL) - (before != NULL);
  sterna_retain(array);
  place_outputs(m);
  sterna_release(before);
  return 0;
}

int binding_get_output(sterna_model *m, uint32_t output, sterna_ndarray **out) {
  const DLTensor *t = &m->tensors[m->g->outputs[output]];
  const executor_output *first = &m->outputs[first_with_root(m, output)];
  uint32_t input = input_behind(m, output);
  uint64_t byte_offset = 0;
  sterna_ndarray *memory = m->outputs[output].bound;
  if (!memory && input != NO_INPUT) {
    if (binding_provide_inputs(m)) return -1;
    memory = m->inputs[input].now;
  }
  if (!memory && first->bound && !first->is_copied) memory = first->bound;
  if (!memory) memory = executor_home(m, output_root(m, output), &byte_offset);
  return sterna_ndarray_view(memory, t->shape, t->ndim, t->dtype, byte_offset, out);
}

/* ---- inputs ---- */

/* Lets the nodes read an array; null: what the model gives, if anything. */
static void read_from(sterna_model *m, uint32_t input, sterna_ndarray *array) {
  executor_input *state = &m->inputs[input];
  sterna_ndarray *before = state->now;
  if (before == array) return;
  state->now = array;
  sterna_retain(array);
  if (array) executor_move(m, m->g->nodes[m->g->inputs[input]].entry, &array->tensor, 0);
  else m->lacks_inputs = 1;
  if (m->bound_outputs) place_outputs(m);
  sterna_release(before);
}

static int fill_with_zeros(sterna_ndarray *array) {
  size_t bytes;
  if (sterna_tensor_bytes(&array->tensor, &bytes)) return -1;
  if (array->tensor.device.device_type == kDLCPU) {
    memset(array->tensor.data, 0, bytes);
    return 0;
  }
  void *zeros = memory_allocate(bytes, 16);
  if (!zeros) return -1;
  memset(zeros, 0, bytes);
  int failed = sterna_tensor_copy_from_memory(&array->tensor, zeros, bytes);
  memory_release(zeros);
  return failed;
}

static int make_own(sterna_model *m, uint32_t input) {
  const DLTensor *t = &m->g->views[input_node(m, input)->entry];
  sterna_ndarray *made;
  if (m->inputs[input].own) return 0;
  if (sterna_ndarray_empty(t->shape, t->ndim, t->dtype, t->device, &made)) return -1;
  if (fill_with_zeros(made)) {
    sterna_release(made);
    return -1;
  }
  m->inputs[input].own = made;
  return 0;
}

int binding_set_input(sterna_model *m, uint32_t input, const DLTensor *values) {
  const graph_node *node = input_node(m, input);
  if (check_fit(&m->tensors[node->entry], values, "input", node->name) || make_own(m, input) ||
      sterna_tensor_copy(values, &m->inputs[input].own->tensor))
    return -1;
  read_from(m, input, m->inputs[input].own);
  return 0;
}

int binding_bind_input(sterna_model *m, uint32_t input, sterna_ndarray *array) {
  const graph_node *node = input_node(m, input);
  if (!array) {
    read_from(m, input, m->inputs[input].given);
    return 0;
  }
  if (check_usable(&m->tensors[node->entry], &array->tensor, "input", node->name)) return -1;
  if (is_in_own_memory(m, array)) return refuse_own_memory("input", node->name);
  read_from(m, input, array);
  return 0;
}

/* The array itself if the nodes can read it where it is, else a copy of it. */
static int make_readable(const DLTensor *wanted, sterna_ndarray *array, sterna_ndarray **out) {
  const DLTensor *t = &array->tensor;
  if (memcmp(&wanted->device, &t->device, sizeof t->device) == 0 &&
      first_address(t) % tensor_alignment(t->dtype) == 0) {
    sterna_retain(array);
    *out = array;
    return 0;
  }
  if (sterna_ndarray_empty(t->shape, t->ndim, t->dtype, wanted->device, out)) return -1;
  if (sterna_tensor_copy(t, &(*out)->tensor) == 0) return 0;
  sterna_release(*out);
  return -1;
}

int binding_give_parameter(sterna_model *m, uint32_t input, sterna_ndarray *values) {
  const graph_node *node = input_node(m, input);
  sterna_ndarray *readable, *given;
  if (check_fit(&m->tensors[node->entry], &values->tensor, "parameter", node->name) ||
      make_readable(&m->tensors[node->entry], values, &readable))
    return -1;
  /* whoever asks for the input may read what all executors share, but not change it */
  int failed = ndarray_over(&readable->tensor, &readable->header, 1, &given);
  sterna_release(readable);
  if (failed) return -1;
  sterna_release(m->inputs[input].given);
  m->inputs[input].given = given;
  read_from(m, input, given);
  return 0;
}

/* What the other executor reads there, unless it may still change that: then a copy. */
int binding_share_parameter(sterna_model *m, uint32_t input, sterna_model *from, uint32_t theirs) {
  const executor_input *state = &from->inputs[theirs];
  sterna_ndarray *array;
  if (state->given && state->now == state->given) return binding_give_parameter(m, input, state->given);
  if (binding_get_input(from, theirs, &array)) return -1;
  sterna_ndarray *copy = NULL;
  int failed = params_copy(&array->tensor, &copy) || binding_give_parameter(m, input, copy);
  sterna_release(copy);
  sterna_release(array);
  return failed ? -1 : 0;
}

int binding_get_input(sterna_model *m, uint32_t input, sterna_ndarray **out) {
  if (!m->inputs[input].now) {
    if (make_own(m, input)) return -1;
    read_from(m, input, m->inputs[input].own);
  }
  *out = m->inputs[input].now;
  sterna_retain(*out);
  return 0;
}

int binding_provide_inputs(sterna_model *m) {
  for (uint32_t i = 0; i < m->g->input_count; i++) {
    if (m->inputs[i].now) continue;
    if (make_own(m, i)) return -1;
    read_from(m, i, m->inputs[i].own);
  }
  m->lacks_inputs = 0;
  return 0;
}

/* ---- a run on arrays ---- */

/* Whether an array meets memory of some bytes on its own device. */
static int meets(const DLTensor *t, size_t bytes, const DLTensor *other, size_t other_bytes) {
  uintptr_t from = first_address(t), from_other = first_address(other);
  return bytes && other_bytes && from < from_other + other_bytes && from_other < from + bytes &&
         memcmp(&t->device, &other->device, sizeof t->device) == 0;
}

static int meets_own_memory(const sterna_model *m, const DLTensor *t, size_t bytes) {
  if (m->arena && meets(t, bytes, &m->arena->tensor, (size_t)m->g->arena_bytes)) return 1;
  for (uint32_t i = 0; i < m->buffer_count; i++)
    if (m->buffers[i] && meets(t, bytes, &m->buffers[i]->tensor, (size_t)m->buffers[i]->tensor.shape[0]))
      return 1;
  return 0;
}

int binding_check_writable(const sterna_model *m, uint32_t output, const sterna_any *value) {
  if (!value_is_read_only(value)) return 0;
  return sterna_set_errorf("ValueError", "the array given for output '%s' is read-only",
                           binding_output_node(m, output)->name);
}

static int check_run_input(const sterna_model *m, uint32_t input, const DLTensor *t) {
  const graph_node *node = input_node(m, input);
  if (check_usable(&m->tensors[node->entry], t, "input", node->name)) return -1;
  if (!meets_own_memory(m, t, m->g->entries[node->entry].bytes)) return 0;
  return refuse_own_memory("input", node->name);
}

/* Whether an output's array meets what the nodes read, or the array of an output before it. */
static int meets_others(const sterna_model *m, uint32_t output, const DLTensor *t, const sterna_any *args) {
  const graph *g = m->g;
  size_t bytes = g->entries[g->outputs[output]].bytes;
  DLTensor *other;
  for (uint32_t i = 0; i < g->input_count; i++) {
    uint32_t entry = input_node(m, i)->entry;
    other = &m->tensors[entry];
    if (!m->inputs[i].given && sterna_as_tensor(args++, &other)) return 1;
    if (meets(t, bytes, other, g->entries[entry].bytes)) return 1;
  }
  for (uint32_t i = 0; i < output; i++)
    if (sterna_as_tensor(&args[i], &other) || meets(t, bytes, other, g->entries[g->outputs[i]].bytes))
      return 1;
  return 0;
}

static int check_run_output(const sterna_model *m, uint32_t output, const sterna_any *args,
                            const sterna_any *value) {
  const char *name = binding_output_node(m, output)->name;
  const DLTensor *wanted = &m->tensors[m->g->outputs[output]];
  DLTensor *t;
  if (sterna_as_tensor(value, &t) || binding_check_writable(m, output, value) ||
      check_usable(wanted, t, "output", name))
    return -1;
  if (meets_others(m, output, t, args))
    return sterna_set_errorf("ValueError", "the array given for output '%s' shares memory with an input or "
                                           "with another output", name);
  return meets_own_memory(m, t, m->g->entries[m->g->outputs[output]].bytes)
             ? refuse_own_memory("output", name)
             : 0;
}

static int check_run_arrays(const sterna_model *m, const sterna_any *args, int32_t n) {
  const sterna_any *next = args;
  DLTensor *t;
  int32_t free_inputs = 0;
  for (uint32_t i = 0; i < m->g->input_count; i++) free_inputs += !m->inputs[i].given;
  if (n != free_inputs + (int32_t)m->g->output_count)
    return sterna_set_errorf("TypeError", "a run on arrays takes %d inputs and %u outputs, not %d arrays",
                             (int)free_inputs, m->g->output_count, (int)n);
  for (uint32_t i = 0; i < m->g->input_count; i++)
    if (!m->inputs[i].given && (sterna_as_tensor(next++, &t) || check_run_input(m, i, t))) return -1;
  for (uint32_t i = 0; i < m->g->output_count; i++)
    if (check_run_output(m, i, args, next++)) return -1;
  return 0;
}

/* Whether the nodes can write an output where the caller wants it. */
static int is_written_in_place(const sterna_model *m, uint32_t output) {
  return input_behind(m, output) == NO_INPUT && first_with_root(m, output) == output;
}

/* Lets the nodes use what is bound for good, after a run on arrays. */
static void end_run(sterna_model *m) {
  static const DLTensor nowhere;
  for (uint32_t i = 0; i < m->g->input_count; i++) {
    const sterna_ndarray *now = m->inputs[i].now;
    if (!m->inputs[i].given) executor_move(m, input_node(m, i)->entry, now ? &now->tensor : &nowhere, 0);
  }
  place_outputs(m);
}

int binding_run_on(sterna_model *m, const sterna_any *args, int32_t n) {
  const sterna_any *next = args;
  DLTensor *t;
  if (check_run_arrays(m, args, n)) return -1;
  for (uint32_t i = 0; i < m->g->input_count; i++)
    if (!m->inputs[i].given && sterna_as_tensor(next++, &t) == 0)
      executor_move(m, input_node(m, i)->entry, t, 0);
  const sterna_any *outputs = next;
  for (uint32_t i = 0; i < m->g->output_count; i++)
    if (sterna_as_tensor(&outputs[i], &t) == 0 && is_written_in_place(m, i))
      executor_move(m, output_root(m, i), t, 0);
  int failed = executor_run_calls(m);
  for (uint32_t i = 0; i < m->g->output_count && !failed; i++)
    if (!is_written_in_place(m, i))
      failed = sterna_as_tensor(&outputs[i], &t) || sterna_tensor_copy(&m->tensors[m->g->outputs[i]], t);
  end_run(m);
  return failed ? -1 : 0;
}

/* ---- all of it ---- */

void binding_reset(sterna_model *m) {
  for (uint32_t i = 0; i < m->g->output_count; i++) {
    sterna_release(m->outputs[i].bound);
    m->outputs[i].bound = NULL;
  }
  m->bound_outputs = 0;
  place_outputs(m);
  for (uint32_t i = 0; i < m->g->input_count; i++) {
    read_from(m, i, m->inputs[i].given);
    sterna_release(m->inputs[i].own);
    m->inputs[i].own = NULL;
  }
}

void binding_release(sterna_model *m) {
  for (uint32_t i = 0; i < m->g->output_count; i++) sterna_release(m->outputs[i].bound);
  for (uint32_t i = 0; i < m->g->input_count; i++) {
    sterna_release(m->inputs[i].now);
    sterna_release(m->inputs[i].own);
    sterna_release(m->inputs[i].given);
  }
}
