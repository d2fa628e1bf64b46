/* Arrays, and DLPack structures that watch how they are treated. */
#include <stdlib.h>

#include "sterna.h"

/* describe(array): [data, ndim, code, bits, lanes, device type, device id, dims..., strides...] */
STERNA_FUNCTION(describe) {
  DLTensor *t;
  sterna_any facts[64];
  int32_t count = 7;
  (void)self;
  if (n != 1 || sterna_as_tensor(&args[0], &t)) return -1;
  if (t->ndim > 20) return sterna_set_error("ValueError", "at most 20 dimensions");
  facts[0] = sterna_any_int((int64_t)(intptr_t)((char *)t->data + t->byte_offset));
  facts[1] = sterna_any_int(t->ndim);
  facts[2] = sterna_any_int(t->dtype.code);
  facts[3] = sterna_any_int(t->dtype.bits);
  facts[4] = sterna_any_int(t->dtype.lanes);
  facts[5] = sterna_any_int(t->device.device_type);
  facts[6] = sterna_any_int(t->device.device_id);
  for (int32_t i = 0; i < t->ndim; i++) facts[count++] = sterna_any_int(t->shape[i]);
  for (int32_t i = 0; i < t->ndim; i++) facts[count++] = sterna_any_int(t->strides[i]);
  return sterna_list(facts, count, ret);
}

/* add_one(array): in place, float32. */
STERNA_FUNCTION(add_one) {
  DLTensor *t;
  int64_t count = 1;
  (void)self, (void)ret;
  if (n != 1 || sterna_as_tensor(&args[0], &t)) return -1;
  for (int32_t i = 0; i < t->ndim; i++) count *= t->shape[i];
  float *data = (float *)((char *)t->data + t->byte_offset);
  for (int64_t i = 0; i < count; i++) data[i] += 1;
  return 0;
}

/* new_array(n): made in C. */
STERNA_FUNCTION(new_array) {
  sterna_ndarray *array;
  int64_t count;
  (void)self;
  if (n != 1 || sterna_as_int(&args[0], &count) ||
      sterna_ndarray_empty(&count, 1, (DLDataType){kDLFloat, 32, 1}, (DLDevice){kDLCPU, 0}, &array))
    return -1;
  for (int64_t i = 0; i < count; i++) ((float *)array->tensor.data)[i] = (float)i;
  *ret = sterna_any_object(array);
  return 0;
}

/* ---- structures for capsules, called through ctypes ---- */

static int deleted;
static int64_t shape[] = {2, 2}, gaps[] = {3, 1};
static float numbers[] = {0, 1, 2, 3, 4, 5, 6, 7};

static DLTensor probe_tensor(int with_gaps) {
  return (DLTensor){numbers, {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, with_gaps ? gaps : NULL, 4};
}

static void delete_plain(DLManagedTensor *managed) {
  deleted++;
  free(managed);
}

static void delete_versioned(DLManagedTensorVersioned *managed) {
  deleted++;
  free(managed);
}

STERNA_EXPORT void *probe_plain(int with_gaps) {
  DLManagedTensor *managed = malloc(sizeof *managed);
  *managed = (DLManagedTensor){probe_tensor(with_gaps), NULL, delete_plain};
  return managed;
}

STERNA_EXPORT void *probe_versioned(int with_gaps, int major, int flags) {
  DLManagedTensorVersioned *managed = malloc(sizeof *managed);
  *managed = (DLManagedTensorVersioned){
      {(uint32_t)major, 0}, NULL, delete_versioned, (uint64_t)flags, probe_tensor(with_gaps)};
  return managed;
}

STERNA_EXPORT int probe_deleted(void) { return deleted; }
STERNA_EXPORT uint64_t probe_flags(void *managed) { return ((DLManagedTensorVersioned *)managed)->flags; }
