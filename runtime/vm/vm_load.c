/*
 * Programs of the virtual machine: read from bytes, and checked as a whole before any of it runs.
 *
 * After the checks every register, function, block, constant and place that an instruction names is
 * there, jumps go forward to instructions, and no function runs off its end. What only the run can
 * tell (whether a value is a tensor, an object or a closure) the interpreter asks of the values, and
 * blocks ask it of their arguments.
 */
#include "vm.h"

#include <stdlib.h>
#include <string.h>

#define VM_FORM(name, form) form,
static const char *const vm_forms[] = {VM_INSTRUCTIONS(VM_FORM)};
#undef VM_FORM

enum { MOST_REGISTERS = 1 << 20, MOST_PARTS = 1 << 24 };

typedef struct {
  const word *at, *end;
  int failed;
} reader;

/* The next word, which is from least up to below most; after a failure all are 0. */
static word take(reader *r, word least, word most) {
  if (!r->failed && r->at < r->end && *r->at >= least && *r->at < most) return *r->at++;
  r->failed = 1;
  return 0;
}

static word words_of(word bytes) { return (bytes + 7) / 8; }

static const word *take_words(reader *r, word count) {
  const word *here = r->at;
  if (r->failed || count > r->end - r->at) {
    r->failed = 1;
    return NULL;
  }
  r->at += count;
  return here;
}

static char *take_name(reader *r) {
  word size = take(r, 0, 1 << 20);
  const word *text = take_words(r, words_of(size));
  char *name = text ? malloc((size_t)size + 1) : NULL;
  if (!name) {
    r->failed = 1;
    return NULL;
  }
  memcpy(name, text, (size_t)size);
  name[size] = 0;
  return name;
}

/* Room for many of something, each of which takes words yet to be read. */
static void *make_room(reader *r, word count, size_t size) {
  void *room = !r->failed && count <= r->end - r->at ? calloc((size_t)count + 1, size) : NULL;
  if (!room) r->failed = 1;
  return room;
}

static vm_type take_type(reader *r) {
  word dtype = take(r, 0, (word)1 << 32);
  word ndim = take(r, 0, MOST_DIMENSIONS);
  const word *shape = take_words(r, ndim);
  vm_type type = {{(uint8_t)dtype, (uint8_t)(dtype >> 8), (uint16_t)(dtype >> 16)}, (int32_t)ndim, shape, 0};
  DLTensor t = {NULL, {kDLCPU, 0}, type.ndim, type.dtype, (int64_t *)(uintptr_t)shape, NULL, 0};
  if (!r->failed && sterna_tensor_bytes(&t, &type.bytes)) r->failed = 1;
  return type;
}

static void take_block(reader *r, vm_program *p, vm_block *b) {
  b->name = take_name(r);
  b->input_count = take(r, 0, MOST_REGISTERS);
  b->constant_count = take(r, 0, MOST_REGISTERS);
  b->constants = r->at;
  for (word i = 0; i < b->constant_count && !r->failed; i++) take(r, 0, p->constant_count);
  b->workspace = take(r, -1, INT64_MAX);
  b->is_open = take(r, 0, 2);
  b->output_count = take(r, 0, MOST_REGISTERS);
  b->outputs = make_room(r, b->output_count, sizeof *b->outputs);
  for (word i = 0; i < b->output_count && !r->failed; i++) b->outputs[i] = take_type(r);
  b->extent_count = b->is_open;
  for (word i = 0; i < b->output_count && b->is_open && !r->failed; i++) b->extent_count += b->outputs[i].ndim;
  if (b->extent_count > p->most_extents) p->most_extents = b->extent_count;
  b->first_output = p->output_count;
  p->output_count += b->output_count;
  word all = b->input_count + b->constant_count + b->output_count + 1;
  if (all > p->most_arguments) p->most_arguments = all;
  if (b->workspace > p->workspace) p->workspace = b->workspace;
}

static void take_function(reader *r, vm_program *p, vm_function *f) {
  f->name = take_name(r);
  f->names = take_name(r);
  f->params = take(r, 0, MOST_REGISTERS);
  f->registers = take(r, f->params, MOST_REGISTERS);
  f->size = take(r, 1, INT64_MAX);
  f->code = take_words(r, f->size);
  if (f->params > p->most_arguments) p->most_arguments = f->params;
}

/* ---- the code of a function ---- */

enum { IS_INSTRUCTION = 1, IS_TARGET = 2 };

static void take_registers(reader *r, const vm_function *f, word count) {
  while (count-- > 0 && !r->failed) take(r, 0, f->registers);
}

static void check_operand(reader *r, const vm_program *p, const vm_function *f, char form, uint8_t *marks) {
  word here = r->at - f->code, number;
  switch (form) {
    case 'w':
    case 'r': take_registers(r, f, 1); break;
    case 'c': take(r, 0, p->constant_count); break;
    case 'i': take(r, INT32_MIN, INT32_MAX); break;
    case 'f':
      number = take(r, 0, p->function_count);
      if (!r->failed) take_registers(r, f, p->functions[number].params);
      break;
    case 'F':
      number = take(r, 0, p->function_count);
      if (!r->failed && r->at < r->end && *r->at > p->functions[number].params) r->failed = 1; /* * takes it */
      break;
    case 'b':
      number = take(r, 0, p->block_count);
      if (!r->failed) take_registers(r, f, p->blocks[number].input_count + p->blocks[number].output_count);
      break;
    case 'j':
      number = take(r, here, f->size);
      if (!r->failed) marks[number] |= IS_TARGET;
      break;
    default: take_registers(r, f, take(r, 0, f->size)); break;
  }
}

static int check_function(const vm_program *p, const vm_function *f) {
  reader r = {f->code, f->code + f->size, 0};
  uint8_t *marks = calloc((size_t)f->size, 1);
  word code = VM_DROP;
  if (!marks) return -1;
  while (r.at < r.end && !r.failed) {
    marks[r.at - f->code] |= IS_INSTRUCTION;
    code = take(&r, 0, VM_CODES);
    for (const char *form = vm_forms[code]; *form && !r.failed; form++) check_operand(&r, p, f, *form, marks);
  }
  for (word i = 0; i < f->size; i++) r.failed |= marks[i] == IS_TARGET;
  free(marks);
  /* the last instruction goes nowhere further */
  return r.failed || !(code == VM_RETURN || code == VM_TAIL || code == VM_RUN || code == VM_FAIL);
}

/* ---- constants ---- */

static void take_constant(reader *r, sterna_ndarray **out) {
  if (!take(r, 0, 2)) return;
  vm_type type = take_type(r);
  word bytes = take(r, 0, INT64_MAX);
  const word *values = take_words(r, words_of(bytes));
  r->failed = r->failed || sterna_ndarray_empty(type.shape, type.ndim, type.dtype, (DLDevice){kDLCPU, 0}, out) ||
              sterna_tensor_copy_from_memory(&(*out)->tensor, values, (size_t)bytes);
}

/* ---- all of it ---- */

void vm_free(void *program) {
  vm_program *p = program;
  for (word i = 0; p->blocks && i < p->block_count; i++) {
    free(p->blocks[i].name);
    free(p->blocks[i].outputs);
    sterna_release(atomic_load(&p->blocks[i].function));
    sterna_release(atomic_load(&p->blocks[i].extents));
  }
  for (word i = 0; p->functions && i < p->function_count; i++) {
    free(p->functions[i].name);
    free(p->functions[i].names);
  }
  for (word i = 0; p->constants && i < p->constant_count; i++) sterna_release(p->constants[i]);
  sterna_release(atomic_load(&p->spare));
  free(p->blocks);
  free(p->functions);
  free(p->constants);
  free(p->words);
  free(p);
}

static const char *fill(vm_program *p, reader r) {
  if (take(&r, PROGRAM_MAGIC, PROGRAM_MAGIC + 1) != PROGRAM_MAGIC) return "it does not begin as programs do";
  word program = take(&r, 0, r.end - r.at);
  reader rest = {r.at + program, r.end, 0};
  r.end = r.failed ? r.at : rest.at;
  p->constant_count = take(&r, 0, MOST_PARTS);
  p->block_count = take(&r, 0, MOST_PARTS);
  p->function_count = take(&r, 0, MOST_PARTS);
  p->blocks = make_room(&r, p->block_count, sizeof *p->blocks);
  p->functions = make_room(&r, p->function_count, sizeof *p->functions);
  p->constants = make_room(&rest, p->constant_count, sizeof *p->constants);
  for (word i = 0; i < p->block_count && !r.failed; i++) take_block(&r, p, &p->blocks[i]);
  for (word i = 0; i < p->function_count && !r.failed; i++) take_function(&r, p, &p->functions[i]);
  if (r.failed || r.at != r.end) return "its parts are cut off or out of range";
  for (word i = 0; i < p->function_count; i++)
    if (check_function(p, &p->functions[i])) return "it holds code that no compiler writes";
  for (word i = 0; i < p->constant_count && !rest.failed; i++) take_constant(&rest, &p->constants[i]);
  return rest.failed ? "its constants are cut off or do not fit" : NULL;
}

vm_program *vm_load(sterna_bytes bytes) {
  vm_program *p = calloc(1, sizeof *p);
  word *words = p ? malloc(bytes.size + 8) : NULL;
  if (!words) {
    free(p);
    sterna_set_error("MemoryError", "there is no memory for a program");
    return NULL;
  }
  memcpy(words, bytes.data, bytes.size);
  p->words = words;
  p->workspace = -1;
  atomic_store(&p->most_depth, 1 << 20);
  atomic_flag_clear(&p->moves_constants);
  p->device = (DLDevice){kDLCPU, 0};
  const char *reason = bytes.size % 8 ? "its size is odd" : fill(p, (reader){words, words + bytes.size / 8, 0});
  if (!reason) return p;
  vm_free(p);
  sterna_set_errorf("ValueError", "the program of the virtual machine is broken: %s", reason);
  return NULL;
}
