/* Values of the virtual machine that are no tensors: tuples, constructors' values, cells, lists. */
#include "vm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What hangs on an object that ends, such as the rest of a list, ends after it, not inside of it. */
static _Thread_local vm_object *ending;
static _Thread_local int is_ending;

static void end_fields(vm_object *o) {
  for (uint32_t i = 0; i < o->count; i++) sterna_any_release(&o->fields[i]);
}

static void free_object(void *self, int flags) {
  vm_object *o = self;
  if (flags != 3) {
    if (flags & 1) end_fields(o);
    if (flags & 2) free(o);
  } else if (is_ending) {
    memcpy(&o->header.ref_counts, &ending, sizeof ending);
    ending = o;
  } else {
    is_ending = 1;
    while (o) {
      end_fields(o);
      free(o);
      o = ending;
      if (o) memcpy(&ending, &o->header.ref_counts, sizeof ending);
    }
    is_ending = 0;
  }
}

vm_object *vm_new(int32_t tag, uint32_t room) {
  vm_object *o = malloc(sizeof *o + room * sizeof *o->fields);
  if (!o) {
    sterna_set_error("MemoryError", "there is no memory for a value");
    return NULL;
  }
  memset(o, 0, sizeof *o);
  o->header.ref_counts = (uint64_t)1 << 32 | 1;
  o->header.type_index = STERNA_OBJECT;
  o->header.deleter = free_object;
  o->tag = tag;
  return o;
}

vm_object *vm_as_object(const sterna_any *value) {
  int is_one = value->type_index == STERNA_OBJECT && value->v_obj->deleter == free_object;
  return is_one ? (vm_object *)value->v_obj : NULL;
}

vm_object *vm_need(const sterna_any *value, const char *what) {
  vm_object *o = vm_as_object(value);
  if (!o) sterna_set_errorf("TypeError", "expected %s, got %s", what, sterna_type_name(value->type_index));
  return o;
}

/* A list has room for the next power of two above its length. */
static uint32_t room_of(int32_t tag, uint32_t count) {
  uint32_t room = 1;
  if (tag != VM_LIST) return count;
  while (room <= count) room *= 2;
  return room;
}

int vm_make(int32_t tag, const sterna_any *fields, uint32_t count, sterna_any *out) {
  vm_object *o = vm_new(tag, room_of(tag, count));
  if (!o) return -1;
  for (; o->count < count; o->count++)
    if (sterna_any_own(&fields[o->count], &o->fields[o->count])) {
      sterna_release(o);
      return -1;
    }
  *out = sterna_any_object(o);
  return 0;
}

static int is_only_mine(const vm_object *o) { return o->header.ref_counts == ((uint64_t)1 << 32 | 1); }

/* The list passes over where nobody else holds it, so that a loop that collects is linear. */
int vm_append(sterna_any *r, const word *operands) {
  vm_object *list = vm_need(&r[operands[1]], "a list");
  if (!list) return -1;
  if (list->tag != VM_LIST) return sterna_set_error("TypeError", "a value is collected in what is no list");
  sterna_any whole = r[operands[1]];
  if (is_only_mine(list) && (!list->count || list->count & (list->count - 1))) {
    r[operands[1]] = sterna_any_none();
  } else {
    vm_object *larger = vm_new(VM_LIST, room_of(VM_LIST, list->count));
    if (!larger) return -1;
    for (; larger->count < list->count; larger->count++)
      larger->fields[larger->count] = vm_held(list->fields[larger->count]);
    whole = sterna_any_object(list = larger);
  }
  list->fields[list->count++] = vm_held(r[operands[2]]);
  vm_set(&r[operands[0]], whole);
  return 0;
}

int vm_stack(const vm_program *p, sterna_any *r, const word *operands) {
  const vm_object *list = vm_need(&r[operands[1]], "a list");
  const DLTensor *like = &p->constants[operands[2]]->tensor;
  word shape[MOST_DIMENSIONS];
  sterna_ndarray *made;
  size_t bytes;
  if (!list) return -1;
  if (like->ndim < 1 || like->ndim > MOST_DIMENSIONS) return sterna_set_error("ValueError", "a stack has no rows");
  if (like->shape[0]) { /* runs tell the extents of its rows: all are of one shape */
    DLTensor *row;
    if (!list->count) return sterna_set_error("ValueError", "a loop without rounds collects rows of unknown extents");
    if (sterna_as_tensor(&list->fields[0], &row)) return -1;
    if (row->ndim != like->ndim - 1) return sterna_set_error("ValueError", "what is stacked has another rank");
    if (row->ndim) memcpy(shape + 1, row->shape, (size_t)row->ndim * sizeof *shape);
  } else {
    memcpy(shape, like->shape, (size_t)like->ndim * sizeof *shape);
  }
  shape[0] = list->count;
  if (sterna_ndarray_empty(shape, like->ndim, like->dtype, p->device, &made)) return -1;
  DLTensor row = made->tensor;
  row.ndim--;
  row.shape++;
  row.strides++;
  int failed = sterna_tensor_bytes(&row, &bytes);
  for (uint32_t i = 0; !failed && i < list->count; i++, row.byte_offset += bytes) {
    DLTensor *part;
    failed = sterna_as_tensor(&list->fields[i], &part) || sterna_tensor_copy(part, &row);
  }
  if (failed) {
    sterna_release(made);
    return -1;
  }
  vm_set(&r[operands[0]], sterna_any_object(made));
  return 0;
}

/* Numbers of a tensor on any device, at most so many; how many they are, or -1 with an error. */
static word numbers_of(const sterna_any *value, word *out, word most) {
  DLTensor *t;
  size_t bytes;
  int32_t narrow[MOST_DIMENSIONS];
  if (sterna_as_tensor(value, &t) || sterna_tensor_bytes(t, &bytes)) return -1;
  int is_wide = t->dtype.bits == 64;
  word count = (word)(bytes / (is_wide ? 8 : 4));
  if (t->dtype.code != kDLInt || (!is_wide && t->dtype.bits != 32) || t->dtype.lanes != 1 || count > most)
    return sterna_set_error("TypeError", "counts and extents are a few int32 or int64");
  if (count && sterna_tensor_copy_to_memory(t, is_wide ? (void *)out : (void *)narrow, bytes)) return -1;
  for (word i = 0; i < count && !is_wide; i++) out[i] = narrow[i];
  return count;
}

static int count_of(const sterna_any *value, word *out) {
  word count = numbers_of(value, out, 1);
  if (count == 1) return 0;
  return count < 0 ? -1 : sterna_set_error("TypeError", "a count is one int32 or int64");
}

int vm_extents(sterna_any *r, const word *operands) {
  const DLDataType bytes = {kDLUInt, 8, 1};
  DLTensor *numbers;
  sterna_ndarray *made;
  word shape[MOST_DIMENSIONS] = {0}, count = numbers_of(&r[operands[1]], shape + 1, MOST_DIMENSIONS - 1);
  if (count < 0 || sterna_as_tensor(&r[operands[1]], &numbers)) return -1;
  for (word i = 1; i <= count; i++)
    if (shape[i] < 0 || shape[i] > INT32_MAX)
      return sterna_set_errorf("ValueError", "a tensor cannot have the extent %lld, which was computed for it",
                               (long long)shape[i]);
  if (sterna_ndarray_empty(shape, (int32_t)count + 1, bytes, numbers->device, &made)) return -1;
  vm_set(&r[operands[0]], sterna_any_object(made));
  return 0;
}

int vm_trim(sterna_any *r, const word *operands) {
  DLTensor *whole;
  sterna_ndarray *made;
  word count = 0, axis = operands[3], shape[MOST_DIMENSIONS];
  if (sterna_as_tensor(&r[operands[1]], &whole) || count_of(&r[operands[2]], &count)) return -1;
  if (axis < 0 || axis >= whole->ndim || whole->ndim > MOST_DIMENSIONS || count < 0 || count > whole->shape[axis])
    return sterna_set_errorf("ValueError", "a tensor cannot be cut to %lld along its axis %lld", (long long)count,
                             (long long)axis);
  memcpy(shape, whole->shape, (size_t)whole->ndim * sizeof *shape);
  shape[axis] = count;
  DLTensor inner = *whole;
  size_t bytes, rows = 1;
  inner.ndim -= (int32_t)axis + 1;
  inner.shape += axis + 1;
  inner.strides = NULL;
  if (sterna_tensor_bytes(&inner, &bytes)) return -1;
  for (word i = 0; i < axis; i++) rows *= (size_t)whole->shape[i];
  if (rows == 1 && r[operands[1]].type_index == STERNA_NDARRAY) { /* what is kept lies together */
    if (sterna_ndarray_view((sterna_ndarray *)r[operands[1]].v_obj, shape, whole->ndim, whole->dtype, 0, &made)) return -1;
    vm_set(&r[operands[0]], sterna_any_object(made));
    return 0;
  }
  if (sterna_ndarray_empty(shape, whole->ndim, whole->dtype, whole->device, &made)) return -1;
  size_t row = bytes * (size_t)count, step = bytes * (size_t)whole->shape[axis];
  int64_t extent = (int64_t)row;
  if (!row) rows = 0;
  DLTensor from = *whole, to = made->tensor;
  from.ndim = to.ndim = 1;
  from.dtype = to.dtype = (DLDataType){kDLUInt, 8, 1};
  from.shape = to.shape = &extent;
  from.strides = to.strides = NULL;
  int failed = 0;
  for (; rows && !failed; rows--, from.byte_offset += step, to.byte_offset += row)
    failed = sterna_tensor_copy(&from, &to);
  if (failed) {
    sterna_release(made);
    return -1;
  }
  vm_set(&r[operands[0]], sterna_any_object(made));
  return 0;
}

enum { MOST_TEXT = 600, MOST_TOLD = 8 };

static int text_of(const sterna_ndarray *text, char *said) {
  size_t bytes;
  if (sterna_tensor_bytes(&text->tensor, &bytes)) return -1;
  if (bytes >= MOST_TEXT) return sterna_set_error("ValueError", "an error of the program has too long a text");
  return bytes && sterna_tensor_copy_to_memory(&text->tensor, said, bytes) ? -1 : 0;
}

int vm_refuse(const sterna_ndarray *text) {
  char said[MOST_TEXT] = {0};
  return text_of(text, said) ? -1 : sterna_set_error("BranchNotCompiled", said);
}

int vm_expect(const vm_program *p, sterna_any *r, const word *operands) {
  char said[MOST_TEXT] = {0}, whole[MOST_TEXT + MOST_TOLD * 24];
  word numbers[MOST_TOLD], next = 0;
  size_t at = 0;
  int holds;
  if (vm_is_true(&r[operands[2]], &holds)) return -1;
  if (holds) {
    vm_set(&r[operands[0]], vm_held(r[operands[1]]));
    return 0;
  }
  word count = numbers_of(&r[operands[3]], numbers, MOST_TOLD);
  if (count < 0 || text_of(p->constants[operands[4]], said)) return -1;
  for (const char *c = said; *c; c++)
    if (*c == '#' && next < count)
      at += (size_t)snprintf(whole + at, sizeof whole - at, "%lld", (long long)numbers[next++]);
    else
      whole[at++] = *c;
  whole[at] = 0;
  return sterna_set_error("ValueError", whole);
}

int vm_is_true(const sterna_any *value, int *out) {
  DLTensor *t;
  size_t bytes;
  if (sterna_as_tensor(value, &t)) return -1;
  if (sterna_tensor_bytes(t, &bytes) || bytes != 1)
    return sterna_set_error("TypeError", "a condition is one bool");
  uint8_t held = 0;
  if (t->device.device_type == kDLCPU) held = *((const uint8_t *)t->data + t->byte_offset);
  else if (sterna_tensor_copy_to_memory(t, &held, 1)) return -1;
  *out = held != 0;
  return 0;
}
