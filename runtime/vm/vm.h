/* The virtual machine: programs with control flow around blocks of compiled code.
 *
 * A program is kept as words of eight bytes, the lowest first; sterna/lowering/vm_code.py writes it:
 *   PROGRAM_MAGIC, how many words come up to the constants, how many constants, blocks, functions
 *   each block: its name, how many inputs; how many constants, these; the bytes of its workspace or -1;
 *     whether it is open; how many outputs, of each the element type (code, bits, lanes in bytes 0, 1, 2
 *     to 3), the number of dimensions, these; those of an open block are all 0, and its function NAME_extents
 *     tells them and the workspace's bytes from the inputs' shapes
 *   each function: its name, its parameters' names with line feeds between, how many parameters, how
 *     many registers; how many words of code, these
 *   each constant: 0 where it is given later; else 1, element type, number of dimensions, these,
 *     how many bytes, these
 * Names and bytes have their number in front and are filled up to whole words.
 */
#ifndef STERNA_VM_H_
#define STERNA_VM_H_

#include <stdatomic.h>

#include "sterna.h"

#define PROGRAM_MAGIC 0x326d762e616e7374 /* "tsna.vm2" */

/* An instruction is a word with its code, then its operands:
     w  a register that is written      r  a register that is read
     c  a constant                      i  a number
     f  a function, whose parameters the registers that follow are
     F  a function of which a closure holds the first parameters
     b  a block: registers that it reads, then those that it writes
     j  a place further on in the function, for when a condition does not hold
     *  how many registers that are read follow, then these */
#define VM_INSTRUCTIONS(_)                                    \
  _(MOVE, "wr")     /* another name of a value */             \
  _(CONSTANT, "wc") /* a tensor of the program */             \
  _(BLOCK, "b")     /* compiled code on tensors */            \
  _(CALL, "wf")     /* a function; its value comes back */    \
  _(TAIL, "f")      /* a function in the place of this one */ \
  _(CLOSURE, "wF*") /* a function and its first arguments */  \
  _(APPLY, "wr*")   /* a closure is called */                 \
  _(RUN, "r*")      /* the same in the place of this one */   \
  _(OBJECT, "wi*")  /* a tag and fields */                    \
  _(FIELD, "wri")   /* one of them */                         \
  _(IF, "rj")       /* go on when a scalar is true */         \
  _(CASE, "rij")    /* go on when an object has this tag */   \
  _(JUMP, "j")                                                \
  _(RETURN, "r")                                              \
  _(DROP, "*")      /* values that nobody reads any more */   \
  _(REFERENCE, "wr") /* a cell that can be written */         \
  _(READ, "wr")                                               \
  _(WRITE, "rr")                                              \
  _(FAIL, "")       /* no clause of a match holds */          \
  _(APPEND, "wrr")  /* a list with one more at its end */     \
  _(STACK, "wrc")   /* the tensors of a list as one; the constant is an empty one, or a row of unknown extents */ \
  _(TRIM, "wrri")   /* a tensor cut along an axis to as many as the first element of another says */ \
  _(EXTENTS, "wr")  /* an empty tensor whose dimensions behind the first are the elements of a vector */ \
  _(REFUSE, "wc")   /* an error, whose text the bytes of a constant are */ \
  _(EXPECT, "wrrrc") /* a value if a scalar is true, else an error: every # of its text is an element of the vector */

#define VM_NAME(name, form) VM_##name,
enum { VM_INSTRUCTIONS(VM_NAME) VM_CODES };
#undef VM_NAME

enum { MOST_DIMENSIONS = 64 };

typedef int64_t word;

typedef struct {
  char *name, *names; /* its own, those of its parameters */
  const word *code;
  word size, params, registers;
} vm_function;

typedef struct {
  DLDataType dtype;
  int32_t ndim;
  const word *shape;
  size_t bytes;
} vm_type;

typedef struct {
  char *name;
  _Atomic(sterna_function *) function; /* found when the program is first run */
  _Atomic(sterna_function *) extents;  /* of an open block: (input, ..., int64 vector) fills in workspace and shapes */
  const word *constants;
  vm_type *outputs;
  word input_count, constant_count, output_count;
  word first_output; /* among those of all blocks */
  word workspace; /* bytes, or -1: it takes none */
  word is_open;
  word extent_count; /* of an open block: one for the workspace, and the dimensions of all outputs */
} vm_block;

typedef struct {
  word *words;
  vm_function *functions;
  vm_block *blocks;
  sterna_ndarray **constants;
  word function_count, block_count, constant_count, output_count;
  word most_arguments; /* of a block or a function */
  word workspace;      /* the largest that is known */
  word most_extents;   /* of an open block */
  atomic_int is_ready, is_cancelled;
  atomic_flag moves_constants; /* whether a thread takes them to the device */
  atomic_llong most_steps; /* of one run: calls; 0: no limit */
  atomic_llong most_depth; /* calls that wait for others */
  _Atomic(sterna_ndarray *) spare; /* a workspace that no run uses, or null */
  DLDevice device; /* where tensors lie; conditions and counts are read from there */
} vm_program;

/* A value with a tag and fields: a tuple, a constructor's value, a cell, a list, a closure. */
enum { VM_TUPLE = -1, VM_CELL = -2, VM_LIST = -3, VM_CLOSURE_OF = -16 /* minus the function's number */ };

typedef struct {
  sterna_object header;
  int32_t tag;
  uint32_t count;
  sterna_any fields[];
} vm_object;

/* When a run last looked at the clock and asked its host, and how many calls it makes until it looks. */
typedef struct {
  uint64_t read, asked;
  uint32_t left, gap;
} vm_watch;

/* vm_watch.c */
int vm_watch_host(vm_watch *w); /* -1, with an error, when the run is to end */

/* vm_load.c */
vm_program *vm_load(sterna_bytes bytes); /* null, with an error, when they are no program */
void vm_free(void *program);

/* vm_values.c */
vm_object *vm_new(int32_t tag, uint32_t room); /* without fields yet */
vm_object *vm_as_object(const sterna_any *value); /* or null */
int vm_make(int32_t tag, const sterna_any *fields, uint32_t count, sterna_any *out);
int vm_append(sterna_any *registers, const word *operands);
int vm_stack(const vm_program *p, sterna_any *registers, const word *operands);
int vm_trim(sterna_any *registers, const word *operands);
int vm_extents(sterna_any *registers, const word *operands);
int vm_refuse(const sterna_ndarray *text); /* -1, with that error */
int vm_expect(const vm_program *p, sterna_any *registers, const word *operands);
int vm_is_true(const sterna_any *value, int *out);
vm_object *vm_need(const sterna_any *value, const char *what); /* null: with an error */

static inline sterna_any vm_held(sterna_any value) {
  if (value.type_index >= STERNA_OBJECT) sterna_retain(value.v_obj);
  return value;
}

static inline void vm_set(sterna_any *to, sterna_any value) {
  sterna_any before = *to;
  *to = value;
  if (before.type_index >= STERNA_OBJECT) sterna_release(before.v_obj);
}

/* vm_run.c: runs a function; the arguments are borrowed, the result is the caller's. */
int vm_run(vm_program *p, const vm_function *f, const sterna_any *args, sterna_any *ret);

#endif
