/* DLPack structures in and out. */
#include "check.h"

static const DLDevice cpu = {kDLCPU, 0};
static const DLDataType float32 = {kDLFloat, 32, 1};

typedef struct {
  union {
    DLManagedTensor old;
    DLManagedTensorVersioned versioned;
  } as;
  int64_t shape[3], strides[3];
  float numbers[32];
  int ends;
} producer;

static void end_old(DLManagedTensor *managed) { ((producer *)managed->manager_ctx)->ends++; }

static void end_versioned(DLManagedTensorVersioned *managed) {
  ((producer *)managed->manager_ctx)->ends++;
}

static DLTensor tensor_of(producer *p) {
  for (int i = 0; i < 32; i++) p->numbers[i] = (float)i;
  p->shape[0] = 2, p->shape[1] = 1, p->shape[2] = 3;
  p->ends = 0;
  return (DLTensor){p->numbers, {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, p->shape, NULL, 0};
}

static DLManagedTensor *old_form(producer *p) {
  p->as.old = (DLManagedTensor){tensor_of(p), p, end_old};
  return &p->as.old;
}

static DLManagedTensorVersioned *versioned_form(producer *p, uint64_t flags) {
  DLPackVersion version = {DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  p->as.versioned = (DLManagedTensorVersioned){version, p, end_versioned, flags, tensor_of(p)};
  return &p->as.versioned;
}

static void taking_in(void) {
  producer p;
  sterna_ndarray *array = NULL, *view = NULL;
  check(sterna_ndarray_from_dlpack(old_form(&p), &array) == 0);
  check(array->tensor.data == p.numbers && array->tensor.shape[2] == 3);
  check(array->tensor.strides && array->tensor.strides[0] == 3 && array->tensor.strides[2] == 1);
  check(!sterna_ndarray_is_read_only(array));
  p.shape[0] = 77; /* the array has its own copy of the shape */
  check(array->tensor.shape[0] == 2);
  int64_t side = 1;
  check(sterna_ndarray_view(array, &side, 1, float32, 20, &view) == 0);
  sterna_release(array);
  check(p.ends == 0 && *(float *)view->tensor.data == 5);
  sterna_release(view);
  check(p.ends == 1);

  check(sterna_ndarray_from_dlpack_versioned(versioned_form(&p, 0), &array) == 0);
  sterna_release(array);
  check(p.ends == 1);

  DLManagedTensor *without_deleter = old_form(&p);
  without_deleter->deleter = NULL;
  check(sterna_ndarray_from_dlpack(without_deleter, &array) == 0);
  sterna_release(array);
  DLManagedTensorVersioned *versioned = versioned_form(&p, 0);
  versioned->deleter = NULL;
  check(sterna_ndarray_from_dlpack_versioned(versioned, &array) == 0);
  sterna_release(array);
}

static void strides_and_offsets(void) {
  producer p;
  sterna_ndarray *array = NULL;
  DLManagedTensor *managed = old_form(&p);
  managed->dl_tensor.strides = p.strides;
  p.strides[0] = 3, p.strides[1] = -100, p.strides[2] = 1; /* of the side of length one: anything */
  managed->dl_tensor.byte_offset = 8;
  check(sterna_ndarray_from_dlpack(managed, &array) == 0);
  check(array->tensor.data == &p.numbers[2] && array->tensor.byte_offset == 0);
  check(array->tensor.strides[1] == 3); /* tidy from here on */
  sterna_release(array);
  check(p.ends == 1);

  managed = old_form(&p);
  managed->dl_tensor.strides = p.strides;
  p.strides[0] = 6, p.strides[2] = 2;
  array = NULL;
  check_fails(sterna_ndarray_from_dlpack(managed, &array), "ValueError", "not contiguous");
  check(array == NULL && p.ends == 0); /* refused: still the caller's */
  p.strides[0] = 1, p.strides[2] = 2;
  check_fails(sterna_ndarray_from_dlpack(managed, &array), "ValueError", "not contiguous");

  managed = old_form(&p); /* no elements, so that the strides mean nothing */
  managed->dl_tensor.strides = p.strides;
  managed->dl_tensor.data = NULL;
  p.shape[1] = 0;
  check(sterna_ndarray_from_dlpack(managed, &array) == 0 && array->tensor.data == NULL);
  sterna_ndarray *twin = NULL;
  check(sterna_ndarray_empty(array->tensor.shape, 3, float32, cpu, &twin) == 0);
  check(sterna_tensor_copy(&array->tensor, &twin->tensor) == 0);
  check(sterna_tensor_copy(&twin->tensor, &array->tensor) == 0);
  sterna_release(twin);
  sterna_release(array);
  check(p.ends == 1);

  managed = old_form(&p); /* one number */
  managed->dl_tensor.ndim = 0;
  managed->dl_tensor.shape = NULL;
  check(sterna_ndarray_from_dlpack(managed, &array) == 0 && array->tensor.ndim == 0);
  sterna_release(array);
  check(p.ends == 1);
}

static void refused(void) {
  producer p;
  sterna_ndarray *array = NULL;
  DLManagedTensor *managed = old_form(&p);
  managed->dl_tensor.data = NULL;
  check_fails(sterna_ndarray_from_dlpack(managed, &array), "ValueError", "no data");
  managed = old_form(&p);
  managed->dl_tensor.ndim = -1;
  check_fails(sterna_ndarray_from_dlpack(managed, &array), "ValueError", "-1 dimensions");
  managed = old_form(&p);
  managed->dl_tensor.shape = NULL;
  check_fails(sterna_ndarray_from_dlpack(managed, &array), "ValueError", "dimensions");
  managed = old_form(&p);
  p.shape[2] = -3;
  check_fails(sterna_ndarray_from_dlpack(managed, &array), "ValueError", "negative");
  managed = old_form(&p);
  p.shape[0] = p.shape[2] = INT64_MAX;
  check_fails(sterna_ndarray_from_dlpack(managed, &array), "ValueError", "fit");
  managed = old_form(&p);
  check_fail_at(1, 0);
  check_fails(sterna_ndarray_from_dlpack(managed, &array), "MemoryError", "out of memory");
  check_fail_at(0, 0);

  DLManagedTensorVersioned *versioned = versioned_form(&p, 0);
  versioned->version.minor = 99; /* compatible */
  check(sterna_ndarray_from_dlpack_versioned(versioned, &array) == 0);
  sterna_release(array);
  check(p.ends == 1);
  array = NULL;
  for (uint32_t major = 0; major < 5; major++) {
    if (major == DLPACK_MAJOR_VERSION) continue;
    versioned = versioned_form(&p, 0);
    /* Of another major version only the version, the context and the deleter may be looked at. */
    memset(&versioned->flags, 0xff, sizeof *versioned - offsetof(DLManagedTensorVersioned, flags));
    versioned->version.major = major;
    check_fails(sterna_ndarray_from_dlpack_versioned(versioned, &array), "ValueError", "DLPack");
  }
  /* Four-bit numbers that take a byte each are not what an array of four-bit numbers is here. */
  versioned = versioned_form(&p, DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED);
  versioned->dl_tensor.dtype = (DLDataType){kDLInt, 4, 1};
  check_fails(sterna_ndarray_from_dlpack_versioned(versioned, &array), "ValueError", "padded");
  check(array == NULL && p.ends == 0);
  versioned->dl_tensor.dtype = float32; /* says nothing of whole bytes */
  check(sterna_ndarray_from_dlpack_versioned(versioned, &array) == 0);
  sterna_release(array);
  check(p.ends == 1);
}

static void read_only(void) {
  producer p;
  sterna_ndarray *array = NULL, *view = NULL;
  DLManagedTensor *out = NULL;
  DLManagedTensorVersioned *versioned = NULL;
  int64_t side = 6;
  check(sterna_ndarray_from_dlpack_versioned(versioned_form(&p, DLPACK_FLAG_BITMASK_READ_ONLY),
                                             &array) == 0);
  check(sterna_ndarray_is_read_only(array));
  check(sterna_ndarray_view(array, &side, 1, float32, 0, &view) == 0 &&
        sterna_ndarray_is_read_only(view));
  sterna_release(array);
  check(sterna_ndarray_view(view, &side, 1, float32, 0, &array) == 0); /* a view of the view */
  check(sterna_ndarray_is_read_only(array));
  check_fails(sterna_ndarray_to_dlpack(view, &out), "BufferError", "read-only");
  check(out == NULL);
  check(sterna_ndarray_to_dlpack_versioned(view, &versioned) == 0);
  check(versioned->flags == DLPACK_FLAG_BITMASK_READ_ONLY);
  sterna_release(array);
  sterna_release(view);
  check(p.ends == 0);
  check(sterna_ndarray_from_dlpack_versioned(versioned, &array) == 0); /* and back in */
  check(sterna_ndarray_is_read_only(array));
  sterna_release(array);
  check(p.ends == 1);
}

static void handing_out(void) {
  int64_t shape[] = {2, 3};
  sterna_ndarray *array = NULL, *again = NULL;
  DLManagedTensor *old = NULL;
  DLManagedTensorVersioned *versioned = NULL;
  check(sterna_ndarray_empty(shape, 2, float32, cpu, &array) == 0);
  check(sterna_ndarray_to_dlpack(array, &old) == 0);
  check(sterna_ndarray_to_dlpack_versioned(array, &versioned) == 0);
  check((array->header.ref_counts & 0xffffffff) == 3);
  float *data = array->tensor.data;
  data[5] = 42;
  sterna_release(array);
  check(old->dl_tensor.data == data && old->dl_tensor.ndim == 2 && old->dl_tensor.shape[1] == 3);
  check(old->dl_tensor.strides[0] == 3 && old->dl_tensor.byte_offset == 0);
  old->deleter(old);
  check(versioned->version.major == 1 && versioned->version.minor == 1 && versioned->flags == 0);
  check(((float *)versioned->dl_tensor.data)[5] == 42);
  check(sterna_ndarray_from_dlpack_versioned(versioned, &again) == 0);
  check(again->tensor.data == data);
  sterna_release(again);

  check(sterna_ndarray_empty(NULL, 0, float32, cpu, &array) == 0);
  check(sterna_ndarray_to_dlpack(array, &old) == 0 && old->dl_tensor.ndim == 0);
  sterna_release(array);
  check(sterna_ndarray_from_dlpack(old, &again) == 0);
  sterna_release(again);

  check(sterna_ndarray_empty(shape, 2, float32, cpu, &array) == 0);
  old = NULL, versioned = NULL;
  check_fail_at(1, 1);
  check_fails(sterna_ndarray_to_dlpack(array, &old), "MemoryError", "out of memory");
  check_fails(sterna_ndarray_to_dlpack_versioned(array, &versioned), "MemoryError",
              "out of memory");
  check_fail_at(0, 0);
  check(!old && !versioned && (array->header.ref_counts & 0xffffffff) == 1);
  sterna_release(array);
}

/* A pointer of these devices is a handle: the offset stays beside it. */
static void handles(void) {
  producer p;
  sterna_ndarray *array = NULL, *view = NULL;
  int64_t side = 2;
  DLManagedTensor *managed = old_form(&p);
  managed->dl_tensor.device.device_type = kDLVulkan;
  managed->dl_tensor.byte_offset = 64;
  check(sterna_ndarray_from_dlpack(managed, &array) == 0);
  check(array->tensor.data == p.numbers && array->tensor.byte_offset == 64);
  check(sterna_ndarray_view(array, &side, 1, float32, 8, &view) == 0);
  check(view->tensor.data == p.numbers && view->tensor.byte_offset == 72);
  sterna_release(array);
  sterna_release(view);
  check(p.ends == 1);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"taking_in", taking_in}, {"strides_and_offsets", strides_and_offsets}, {"refused", refused},
      {"read_only", read_only}, {"handing_out", handing_out},                 {"handles", handles},
  };
  return CASES(cases);
}
