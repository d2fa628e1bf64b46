/*
 * The interpreter of the virtual machine. A run has registers and frames of its own, on the heap, so
 * that programs may recurse deeply and several threads may run one program.
 */
#include "vm.h"

#include <stdlib.h>
#include <string.h>

typedef struct {
  const vm_function *function;
  const word *at; /* where its code goes on */
  word result;    /* the caller's register for its value */
  size_t base;    /* of its registers */
} frame;

typedef struct {
  vm_program *p;
  sterna_any *registers, *scratch;
  frame *frames;
  size_t register_room, used, frame_room, depth;
  word steps;
  vm_watch watch;
  sterna_ndarray *workspace;
  sterna_ndarray **small; /* results of blocks, two for each of their outputs */
  word *extents;          /* of the open block that is run */
} machine;

/* Results of so many bytes are kept while a run lasts: most are free again when the block next runs. */
enum { SMALL = 4096 };

static int grow(void *pointer, size_t *room, size_t wanted, size_t size) {
  void **block = pointer;
  if (wanted <= *room) return 0;
  void *larger = realloc(*block, (wanted * 2 + 16) * size);
  if (!larger) return sterna_set_error("MemoryError", "there is no memory for a deeper recursion");
  *block = larger;
  *room = wanted * 2 + 16;
  return 0;
}

static void release_all(sterna_any *values, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (values[i].type_index >= STERNA_OBJECT) sterna_release(values[i].v_obj);
}

static int check_limits(machine *m) {
  word most = atomic_load_explicit(&m->p->most_steps, memory_order_relaxed);
  if (atomic_load_explicit(&m->p->is_cancelled, memory_order_relaxed))
    return sterna_set_error("RuntimeError", "the run was cancelled");
  if (most && ++m->steps > most)
    return sterna_set_errorf("RuntimeError", "the run took more than %lld calls, the limit that is set; a "
                                             "loop may not end", (long long)most);
  if ((word)m->depth >= atomic_load_explicit(&m->p->most_depth, memory_order_relaxed))
    return sterna_set_errorf("RuntimeError", "the program recurses deeper than %lld calls, the limit that is "
                                             "set", (long long)m->depth);
  return m->watch.left-- ? 0 : vm_watch_host(&m->watch);
}

/* Enters a function, whose arguments are in scratch and pass over to it. */
static int enter(machine *m, const vm_function *f, word result) {
  if (check_limits(m) ||
      grow(&m->registers, &m->register_room, m->used + (size_t)f->registers, sizeof *m->registers) ||
      grow(&m->frames, &m->frame_room, m->depth + 1, sizeof *m->frames)) {
    release_all(m->scratch, (size_t)f->params);
    return -1;
  }
  m->frames[m->depth++] = (frame){f, f->code, result, m->used};
  sterna_any *own = m->registers + m->used;
  if (f->params) memcpy(own, m->scratch, (size_t)f->params * sizeof *own);
  for (word i = f->params; i < f->registers; i++) own[i] = sterna_any_none();
  m->used += (size_t)f->registers;
  return 0;
}

static void leave(machine *m) {
  const frame *last = &m->frames[--m->depth];
  release_all(m->registers + last->base, (size_t)last->function->registers);
  m->used = last->base;
}

/* ---- blocks ---- */

/* Memory for a block to work in: that of the last one if it is large enough. */
static int take_workspace(machine *m, word wanted) {
  const DLDataType bytes = {kDLUInt, 8, 1};
  word size = wanted > m->p->workspace ? wanted : m->p->workspace;
  if (!m->workspace) m->workspace = atomic_exchange(&m->p->spare, NULL);
  if (m->workspace && m->workspace->tensor.shape[0] >= wanted) return 0;
  sterna_release(m->workspace);
  m->workspace = NULL;
  return sterna_ndarray_empty(&size, 1, bytes, m->p->device, &m->workspace);
}

static int has_shape(const sterna_ndarray *array, const vm_type *t) {
  return t->ndim == 0 || !memcmp(array->tensor.shape, t->shape, (size_t)t->ndim * sizeof *t->shape);
}

/* A tensor for a block's result: one of the last two if nobody holds it any more, else a new one. */
static int make_output(machine *m, const vm_block *b, word number, const vm_type *t, sterna_any *out) {
  sterna_ndarray **kept = m->small + 2 * (b->first_output + number), *made;
  for (int i = 0; i < 2; i++)
    if (kept[i] && kept[i]->header.ref_counts == ((uint64_t)1 << 32 | 1) && has_shape(kept[i], t)) {
      sterna_retain(kept[i]);
      *out = sterna_any_object(kept[i]);
      return 0;
    }
  if (sterna_ndarray_empty(t->shape, t->ndim, t->dtype, m->p->device, &made)) return -1;
  if (t->bytes <= SMALL) {
    sterna_release(kept[0]);
    kept[0] = kept[1];
    kept[1] = made;
    sterna_retain(made);
  }
  *out = sterna_any_object(made);
  return 0;
}

static int wrap_block(const vm_block *b) {
  char said[600];
  strncpy(said, sterna_last_error(), sizeof said - 1);
  said[sizeof said - 1] = 0;
  char kind[64];
  strncpy(kind, sterna_last_error_kind(), sizeof kind - 1);
  kind[sizeof kind - 1] = 0;
  return sterna_set_errorf(kind, "block '%.100s': %s", b->name, said);
}

/* The extents of an open block, from the shapes of its inputs: the workspace's bytes, then outputs' shapes. */
static int tell_extents(machine *m, const vm_block *b, sterna_any *args) {
  word count = b->extent_count;
  sterna_any ret = sterna_any_none();
  DLTensor vector = {m->extents, {kDLCPU, 0}, 1, {kDLInt, 64, 1}, &count, NULL, 0};
  args[b->input_count] = sterna_any_tensor(&vector);
  sterna_function *tell = atomic_load_explicit(&b->extents, memory_order_relaxed);
  int failed = tell->call(tell, args, (int32_t)b->input_count + 1, &ret);
  sterna_any_release(&ret);
  return failed;
}

static int make_outputs(machine *m, const vm_block *b, sterna_any *outputs, word *made) {
  const word *shape = m->extents + 1;
  for (*made = 0; *made < b->output_count; ++*made) {
    vm_type t = b->outputs[*made];
    DLTensor whole = {NULL, {kDLCPU, 0}, t.ndim, t.dtype, (int64_t *)(uintptr_t)shape, NULL, 0};
    if (b->is_open) {
      t.shape = shape;
      shape += t.ndim;
      if (sterna_tensor_bytes(&whole, &t.bytes)) return -1;
    }
    if (make_output(m, b, *made, &t, &outputs[*made])) return -1;
  }
  return 0;
}

static int run_block(machine *m, const vm_block *b, sterna_any *r, const word *operands) {
  const vm_program *p = m->p;
  sterna_any *args = m->scratch, *outputs = args + b->input_count + b->constant_count, ret = sterna_any_none();
  word n = 0, made = 0, bytes = b->workspace;
  DLTensor memory;
  for (; n < b->input_count; n++) args[n] = r[operands[n]];
  int failed = b->is_open && tell_extents(m, b, args);
  if (!failed && b->is_open) bytes = m->extents[0];
  for (word i = 0; i < b->constant_count; i++) args[n++] = sterna_any_object(p->constants[b->constants[i]]);
  failed = failed || make_outputs(m, b, outputs, &made);
  n += made;
  if (!failed && bytes >= 0) {
    failed = take_workspace(m, bytes);
    if (!failed) memory = m->workspace->tensor;
    memory.shape = &bytes;
    args[n++] = sterna_any_tensor(&memory);
  }
  sterna_function *run = atomic_load_explicit(&b->function, memory_order_relaxed);
  failed = failed || run->call(run, args, (int32_t)n, &ret);
  sterna_any_release(&ret);
  if (failed) {
    release_all(outputs, (size_t)made);
    return wrap_block(b);
  }
  for (word i = 0; i < made; i++) vm_set(&r[operands[b->input_count + i]], outputs[i]);
  return 0;
}

/* ---- other instructions ---- */

/* A closure and further arguments, into scratch; the function, or null. */
static const vm_function *open_closure(machine *m, const sterna_any *r, const word *operands) {
  const vm_object *o = vm_need(&r[operands[0]], "a function");
  if (!o) return NULL;
  word given = operands[1], number = VM_CLOSURE_OF - o->tag;
  if (number < 0 || number >= m->p->function_count) {
    sterna_set_error("TypeError", "a value is called that is no function of this program");
    return NULL;
  }
  const vm_function *f = &m->p->functions[number];
  if (o->count + given != f->params) {
    sterna_set_errorf("TypeError", "a function of %lld parameters is given %lld values",
                      (long long)(f->params - o->count), (long long)given);
    return NULL;
  }
  for (uint32_t i = 0; i < o->count; i++) m->scratch[i] = vm_held(o->fields[i]);
  for (word i = 0; i < given; i++) m->scratch[o->count + i] = vm_held(r[operands[2 + i]]);
  return f;
}

static int make_object(sterna_any *r, word to, word tag, const word *list) {
  uint32_t count = (uint32_t)list[0];
  vm_object *o = vm_new((int32_t)tag, count + 1);
  if (!o) return -1;
  for (; o->count < count; o->count++) o->fields[o->count] = vm_held(r[list[1 + o->count]]);
  vm_set(&r[to], sterna_any_object(o));
  return 0;
}

static int read_field(sterna_any *r, word to, const sterna_any *from, word index) {
  const vm_object *o = vm_need(from, "a tuple or a constructor's value");
  if (!o) return -1;
  if (index < 0 || index >= o->count)
    return sterna_set_errorf("IndexError", "field %lld of a value with %u", (long long)index, o->count);
  vm_set(&r[to], vm_held(o->fields[index]));
  return 0;
}

static int write_cell(const sterna_any *cell, sterna_any value) {
  vm_object *o = vm_need(cell, "a reference");
  if (!o) return -1;
  if (o->tag != VM_CELL) return sterna_set_error("TypeError", "what is written to is no reference");
  vm_set(&o->fields[0], vm_held(value));
  return 0;
}

/* The function that a call names, with its arguments in scratch; x is moved behind them. */
static const vm_function *open_call(machine *m, const sterna_any *r, const word **x, int is_closure) {
  const word *at = *x;
  if (is_closure) {
    *x = at + 2 + at[1];
    return open_closure(m, r, at);
  }
  const vm_function *f = &m->p->functions[*at++];
  for (word i = 0; i < f->params; i++) m->scratch[i] = vm_held(r[*at++]);
  *x = at;
  return f;
}

static int interpret(machine *m, sterna_any *ret) {
  const vm_program *p = m->p;
  while (1) {
    frame *now = &m->frames[m->depth - 1];
    sterna_any *r = m->registers + now->base;
    const word *at = now->at, *x = at + 1;
    int holds = 1, failed = 0;
    switch (*at) {
      case VM_MOVE: vm_set(&r[x[0]], vm_held(r[x[1]])); x += 2; break;
      case VM_CONSTANT: vm_set(&r[x[0]], vm_held(sterna_any_object(p->constants[x[1]]))); x += 2; break;
      case VM_BLOCK: {
        const vm_block *b = &p->blocks[x[0]];
        failed = run_block(m, b, r, x + 1);
        x += 1 + b->input_count + b->output_count;
        break;
      }
      case VM_CALL:
      case VM_TAIL:
      case VM_APPLY:
      case VM_RUN: {
        int is_tail = *at == VM_TAIL || *at == VM_RUN;
        word result = is_tail ? now->result : *x++;
        const vm_function *f = open_call(m, r, &x, *at == VM_APPLY || *at == VM_RUN);
        if (!f) return -1;
        now->at = x;
        if (is_tail) leave(m);
        if (enter(m, f, result)) return -1;
        continue;
      }
      case VM_CLOSURE: failed = make_object(r, x[0], VM_CLOSURE_OF - x[1], x + 2); x += 3 + x[2]; break;
      case VM_OBJECT: failed = make_object(r, x[0], x[1], x + 2); x += 3 + x[2]; break;
      case VM_FIELD: failed = read_field(r, x[0], &r[x[1]], x[2]); x += 3; break;
      case VM_IF: failed = vm_is_true(&r[x[0]], &holds); x += 2; break;
      case VM_CASE: {
        const vm_object *o = vm_need(&r[x[0]], "a constructor's value");
        failed = !o;
        holds = o && o->tag == x[1];
        x += 3;
        break;
      }
      case VM_JUMP: holds = 0; x += 1; break;
      case VM_RETURN: {
        word result = now->result;
        sterna_any value = r[x[0]];
        r[x[0]] = sterna_any_none();
        leave(m);
        if (!m->depth) {
          *ret = value;
          return 0;
        }
        vm_set(&m->registers[m->frames[m->depth - 1].base + (size_t)result], value);
        continue;
      }
      case VM_DROP:
        for (word i = 1; i <= x[0]; i++) vm_set(&r[x[i]], sterna_any_none());
        x += 1 + x[0];
        break;
      case VM_REFERENCE: {
        const word one[] = {1, x[1]};
        failed = make_object(r, x[0], VM_CELL, one);
        x += 2;
        break;
      }
      case VM_READ: failed = read_field(r, x[0], &r[x[1]], 0); x += 2; break;
      case VM_WRITE: failed = write_cell(&r[x[0]], r[x[1]]); x += 2; break;
      case VM_APPEND: failed = vm_append(r, x); x += 3; break;
      case VM_TRIM: failed = vm_trim(r, x); x += 4; break;
      case VM_EXTENTS: failed = vm_extents(r, x); x += 2; break;
      case VM_STACK: failed = vm_stack(p, r, x); x += 3; break;
      case VM_EXPECT: failed = vm_expect(p, r, x); x += 5; break;
      case VM_REFUSE: return vm_refuse(p->constants[x[1]]);
      default: return sterna_set_error("ValueError", "no clause of a match holds for its value");
    }
    if (failed) return -1;
    now->at = holds ? x : now->function->code + x[-1];
  }
}

int vm_run(vm_program *p, const vm_function *f, const sterna_any *args, sterna_any *ret) {
  machine m = {.p = p};
  word given = 0;
  m.scratch = malloc((size_t)(p->most_arguments + 1) * sizeof *m.scratch);
  m.small = calloc((size_t)(2 * p->output_count + 1), sizeof *m.small);
  m.extents = calloc((size_t)p->most_extents + 1, sizeof *m.extents);
  int failed = m.scratch && m.small && m.extents ? 0 : sterna_set_error("MemoryError", "there is no memory for a run");
  for (; !failed && given < f->params; given += !failed) failed = sterna_any_own(&args[given], &m.scratch[given]);
  if (failed) release_all(m.scratch, (size_t)given);
  else failed = enter(&m, f, 0) || interpret(&m, ret);
  while (m.depth) leave(&m);
  for (word i = 0; m.small && i < 2 * p->output_count; i++) sterna_release(m.small[i]);
  free(m.small);
  if (m.workspace) sterna_release(atomic_exchange(&p->spare, m.workspace));
  free(m.frames);
  free(m.registers);
  free(m.scratch);
  free(m.extents);
  return failed ? -1 : 0;
}
