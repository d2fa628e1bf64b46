/* Parameters as the classic system saves them: names, then arrays, each with a header of its own. */
#include "internal.h"

#include <string.h>

#define FILE_MAGIC 0xF7E58D4F05049CB7u
#define ARRAY_MAGIC 0xDD5E40F096B4A13Fu

typedef struct {
  const char *at, *end;
} param_reader;

static int params_broken(const char *reason) {
  sterna_set_errorf("ValueError", "these are no complete parameters: %s", reason);
  return -1;
}

static int param_take(param_reader *r, void *into, size_t size) {
  if ((size_t)(r->end - r->at) < size) return params_broken("they end too early");
  memcpy(into, r->at, size);
  r->at += size;
  return 0;
}

/* Eight bytes of magic, eight of nothing. */
static int param_take_magic(param_reader *r, uint64_t magic, const char *reason) {
  uint64_t found[2];
  if (param_take(r, found, sizeof found)) return -1;
  return found[0] == magic ? 0 : params_broken(reason);
}

static int param_skip(param_reader *r, uint64_t size, const char **out) {
  if ((uint64_t)(r->end - r->at) < size) return params_broken("they end too early");
  *out = r->at;
  r->at += size;
  return 0;
}

static int param_take_dtype(param_reader *r, DLDataType *out) {
  char name[32];
  DLDataType parsed;
  if (param_take(r, out, sizeof *out)) return -1;
  sterna_dtype_name(*out, name);
  if (sterna_dtype_parse(name, strlen(name), &parsed) || memcmp(&parsed, out, sizeof parsed))
    return params_broken("an array has an unknown type");
  return 0;
}

/* The classic bool is an unsigned integer of one bit that takes a byte. */
static void param_take_for_bool(DLTensor *t, uint64_t bytes) {
  const DLDataType as_bool = {kDLBool, 8, 1}, before = t->dtype;
  size_t size;
  if (before.code != kDLUInt || before.bits != 1 || before.lanes != 1) return;
  t->dtype = as_bool;
  if (sterna_tensor_bytes(t, &size) || size != bytes) t->dtype = before;
}

static int param_take_array(param_reader *r, DLTensor *t, int64_t *shape) {
  uint64_t bytes;
  size_t expected;
  const char *data = NULL;
  if (param_take_magic(r, ARRAY_MAGIC, "an array has a broken header") ||
      param_take(r, &t->device, sizeof t->device) || param_take(r, &t->ndim, sizeof t->ndim))
    return -1;
  if (t->device.device_type != kDLCPU) return params_broken("an array is not of the CPU");
  if (t->ndim < 0 || t->ndim > MOST_DIMENSIONS) return params_broken("an array has too many dimensions");
  t->shape = shape;
  if (param_take_dtype(r, &t->dtype) || param_take(r, shape, (size_t)t->ndim * sizeof *shape) ||
      param_take(r, &bytes, sizeof bytes))
    return -1;
  param_take_for_bool(t, bytes);
  if (sterna_tensor_bytes(t, &expected)) return -1;
  if (bytes != expected) return params_broken("an array's size does not fit its shape");
  if (param_skip(r, bytes, &data)) return -1;
  t->data = (void *)(uintptr_t)data;
  t->device.device_id = 0;
  return 0;
}

/* Goes through all names and arrays; visit may be null. */
static int params_walk(const void *data, size_t size, params_visit visit, void *context) {
  param_reader names = {data, (const char *)data + size}, arrays;
  uint64_t count, again, length;
  const char *name = NULL;
  if (param_take_magic(&names, FILE_MAGIC, "they do not begin as parameters do") ||
      param_take(&names, &count, sizeof count))
    return -1;
  arrays = names;
  for (uint64_t i = 0; i < count; i++)
    if (param_take(&arrays, &length, sizeof length) || param_skip(&arrays, length, &name)) return -1;
  if (param_take(&arrays, &again, sizeof again)) return -1;
  if (again != count) return params_broken("they have not as many arrays as names");
  for (uint64_t i = 0; i < count; i++) {
    int64_t shape[MOST_DIMENSIONS];
    DLTensor t = {NULL, {kDLCPU, 0}, 0, {0, 0, 0}, NULL, NULL, 0};
    if (param_take(&names, &length, sizeof length) || param_skip(&names, length, &name) ||
        param_take_array(&arrays, &t, shape) || (visit && visit(context, name, (size_t)length, &t)))
      return -1;
  }
  return arrays.at == arrays.end ? 0 : params_broken("something follows them");
}

int params_read(const void *data, size_t size, params_visit visit, void *context) {
  return params_walk(data, size, NULL, NULL) || params_walk(data, size, visit, context) ? -1 : 0;
}

int params_copy(const DLTensor *from, sterna_ndarray **out) {
  sterna_ndarray *array;
  if (sterna_ndarray_empty(from->shape, from->ndim, from->dtype, from->device, &array)) return -1;
  if (sterna_tensor_copy(from, &array->tensor)) {
    sterna_release(array);
    return -1;
  }
  *out = array;
  return 0;
}
