/* Reference-counted objects, and the simple ones among them: text, bytes, lists, shapes. */
#include "internal.h"

#include <string.h>

#define WEAK_ONE ((uint64_t)1 << 32)
#define STRONG_MASK (WEAK_ONE - 1)

static _Atomic uint64_t *counts(sterna_object *object) {
  return (_Atomic uint64_t *)&object->ref_counts;
}

void object_init(sterna_object *object, int32_t type_index, void (*deleter)(void *self, int flags)) {
  object->ref_counts = WEAK_ONE | 1;
  object->type_index = type_index;
  object->reserved = 0;
  object->align_deleter = 0;
  object->deleter = deleter;
}

void sterna_retain(void *object) {
  if (object) atomic_fetch_add_explicit(counts(object), 1, memory_order_relaxed);
}

int object_try_retain(sterna_object *object) {
  uint64_t seen = atomic_load(counts(object));
  while (seen & STRONG_MASK)
    if (atomic_compare_exchange_weak(counts(object), &seen, seen + 1)) return 1;
  return 0;
}

int object_is_alive(sterna_object *object) { return (atomic_load(counts(object)) & STRONG_MASK) != 0; }

void object_retain_weak(sterna_object *object) {
  if (object) atomic_fetch_add_explicit(counts(object), WEAK_ONE, memory_order_relaxed);
}

void object_release_weak(sterna_object *object) {
  if (!object) return;
  uint64_t before = atomic_fetch_sub_explicit(counts(object), WEAK_ONE, memory_order_acq_rel);
  if (before >> 32 == 1 && object->deleter) object->deleter(object, 2);
}

int object_is_only_mine(sterna_object *object) {
  return atomic_load_explicit(counts(object), memory_order_acquire) == (WEAK_ONE | 1);
}

void sterna_release(void *pointer) {
  sterna_object *object = pointer;
  if (!object) return;
  uint64_t before = atomic_fetch_sub_explicit(counts(object), 1, memory_order_release);
  if ((before & STRONG_MASK) != 1) return;
  atomic_load_explicit(counts(object), memory_order_acquire);
  if (before == (WEAK_ONE | 1)) {
    if (object->deleter) object->deleter(object, 3);
    return;
  }
  if (object->deleter) object->deleter(object, 1);
  object_release_weak(object);
}

void sterna_any_release(sterna_any *value) {
  if (!value) return;
  int is_object = value->type_index >= STERNA_OBJECT;
  sterna_object *object = value->v_obj;
  *value = sterna_any_none();
  if (is_object) sterna_release(object);
}

/* ---- text and bytes ---- */

typedef struct {
  sterna_object header;
  sterna_bytes content;
} text_object;

static void free_plain(void *self, int flags) {
  if (flags & 2) memory_release(self);
}

static int make_text(const void *data, size_t size, int32_t small_type, int32_t type, sterna_any *out) {
  sterna_any value = sterna_any_none();
  if (size <= 7) {
    value.type_index = small_type;
    value.small_len = (uint32_t)size;
    if (size) memcpy(value.v_bytes, data, size);
    *out = value;
    return 0;
  }
  if (size > SIZE_MAX - sizeof(text_object) - 1) return error_out_of_memory();
  text_object *text = memory_allocate(sizeof *text + size + 1, 16);
  if (!text) return -1;
  char *copy = (char *)(text + 1);
  object_init(&text->header, type, free_plain);
  memcpy(copy, data, size);
  copy[size] = 0;
  text->content.data = copy;
  text->content.size = size;
  *out = sterna_any_object(text);
  return 0;
}

int sterna_string(const char *data, size_t size, sterna_any *out) {
  REQUIRE_IF(size, data);
  REQUIRE(out);
  return make_text(data, size, STERNA_SMALL_STRING, STERNA_STRING, out);
}

int sterna_bytes_value(const void *data, size_t size, sterna_any *out) {
  REQUIRE_IF(size, data);
  REQUIRE(out);
  return make_text(data, size, STERNA_SMALL_BYTES, STERNA_BYTES, out);
}

static void small_content(const sterna_any *value, sterna_bytes *out) {
  out->data = value->v_bytes;
  out->size = value->small_len <= 7 ? value->small_len : 7;
}

int sterna_as_string(const sterna_any *value, sterna_bytes *out) {
  REQUIRE(value);
  REQUIRE(out);
  sterna_any room;
  value = value_seen(value, &room);
  switch (value->type_index) {
    case STERNA_C_STRING:
      if (!value->v_c_str)
        return sterna_set_error("TypeError", "expected text, got a null pointer");
      out->data = value->v_c_str;
      out->size = strlen(value->v_c_str);
      return 0;
    case STERNA_SMALL_STRING:
      small_content(value, out);
      return 0;
    case STERNA_STRING:
      *out = ((text_object *)value->v_obj)->content;
      return 0;
    default:
      return error_type(value, "text");
  }
}

int sterna_as_bytes(const sterna_any *value, sterna_bytes *out) {
  REQUIRE(value);
  REQUIRE(out);
  sterna_any room;
  value = value_seen(value, &room);
  switch (value->type_index) {
    case STERNA_BYTES_VIEW:
      if (!value->v_ptr) return sterna_set_error("TypeError", "expected bytes, got a null pointer");
      *out = *(const sterna_bytes *)value->v_ptr;
      return 0;
    case STERNA_SMALL_BYTES:
      small_content(value, out);
      return 0;
    case STERNA_BYTES:
      *out = ((text_object *)value->v_obj)->content;
      return 0;
    default:
      return error_type(value, "bytes");
  }
}

/* ---- lists and shapes ---- */

typedef struct {
  sterna_object header;
  sterna_any *items;
  int64_t count, capacity;
  void (*free_items)(void *items); /* null: they lie in the object's own memory */
} list_object;

static void free_list(void *self, int flags) {
  list_object *list = self;
  if (flags & 1) {
    for (int64_t i = 0; i < list->count; i++) sterna_any_release(&list->items[i]);
    list->count = 0;
    if (list->free_items) list->free_items(list->items);
  }
  if (flags & 2) memory_release(self);
}

int sterna_list(const sterna_any *items, int64_t count, sterna_any *out) {
  REQUIRE_IF(count > 0, items);
  REQUIRE(out);
  if (count < 0) return sterna_set_errorf("ValueError", "a list of %lld items", (long long)count);
  if ((uint64_t)count > (SIZE_MAX - sizeof(list_object)) / sizeof *items) return error_out_of_memory();
  list_object *list = memory_allocate(sizeof *list + (size_t)count * sizeof *items, 16);
  if (!list) return -1;
  object_init(&list->header, STERNA_LIST, free_list);
  list->items = (sterna_any *)(list + 1);
  list->count = 0;
  list->capacity = count;
  list->free_items = NULL;
  for (int64_t i = 0; i < count; i++) {
    if (sterna_any_own(&items[i], &list->items[i])) {
      sterna_release(list);
      return -1;
    }
    list->count++;
  }
  *out = sterna_any_object(list);
  return 0;
}

int sterna_as_list(const sterna_any *value, const sterna_any **items, int64_t *count) {
  REQUIRE(value);
  REQUIRE(items);
  REQUIRE(count);
  sterna_any room;
  value = value_seen(value, &room);
  if (value->type_index != STERNA_LIST) return error_type(value, "a list");
  list_object *list = (list_object *)value->v_obj;
  *items = list->items;
  *count = list->count;
  return 0;
}

typedef struct {
  sterna_object header;
  const int64_t *dims;
  size_t ndim;
} shape_object;

int sterna_shape(const int64_t *dims, int64_t ndim, sterna_any *out) {
  REQUIRE_IF(ndim > 0, dims);
  REQUIRE(out);
  if (ndim < 0) return sterna_set_errorf("ValueError", "a shape of %lld dimensions", (long long)ndim);
  if ((uint64_t)ndim > (SIZE_MAX - sizeof(shape_object)) / sizeof *dims) return error_out_of_memory();
  shape_object *shape = memory_allocate(sizeof *shape + (size_t)ndim * sizeof *dims, 16);
  if (!shape) return -1;
  object_init(&shape->header, STERNA_SHAPE, free_plain);
  if (ndim) memcpy(shape + 1, dims, (size_t)ndim * sizeof *dims);
  shape->dims = (const int64_t *)(shape + 1);
  shape->ndim = (size_t)ndim;
  *out = sterna_any_object(shape);
  return 0;
}

int sterna_as_shape(const sterna_any *value, const int64_t **dims, int64_t *ndim) {
  REQUIRE(value);
  REQUIRE(dims);
  REQUIRE(ndim);
  sterna_any room;
  value = value_seen(value, &room);
  if (value->type_index != STERNA_SHAPE) return error_type(value, "a shape");
  shape_object *shape = (shape_object *)value->v_obj;
  *dims = shape->dims;
  *ndim = (int64_t)shape->ndim;
  return 0;
}
