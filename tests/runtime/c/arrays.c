/* Arrays: sizes, views, copies. */
#include "check.h"

__extension__ typedef unsigned __int128 wide;

static const DLDevice cpu = {kDLCPU, 0};
static const DLDataType float32 = {kDLFloat, 32, 1}, int8 = {kDLInt, 8, 1}, int4 = {kDLInt, 4, 1};

static sterna_ndarray *make(int32_t ndim, const int64_t *shape, DLDataType dtype) {
  sterna_ndarray *array = NULL;
  check(sterna_ndarray_empty(shape, ndim, dtype, cpu, &array) == 0);
  return array;
}

static size_t bytes_of(const sterna_ndarray *array) {
  size_t bytes = 12345;
  check(sterna_tensor_bytes(&array->tensor, &bytes) == 0);
  return bytes;
}

static void shapes_and_strides(void) {
  int64_t shape[] = {2, 3, 5};
  sterna_ndarray *array = make(3, shape, float32);
  DLTensor *t = &array->tensor;
  check(array->header.type_index == STERNA_NDARRAY && t->ndim == 3 && t->byte_offset == 0);
  check(t->shape != shape && memcmp(t->shape, shape, sizeof shape) == 0);
  check(t->strides[0] == 15 && t->strides[1] == 5 && t->strides[2] == 1);
  check((uintptr_t)t->data % 64 == 0 && bytes_of(array) == 120);
  check(sterna_tensor_is_compact(t) && !sterna_ndarray_is_read_only(array));
  memset(t->data, 1, 120);
  sterna_release(array);

  array = make(0, NULL, float32); /* one number */
  check(array->tensor.ndim == 0 && bytes_of(array) == 4 &&
        sterna_tensor_is_compact(&array->tensor));
  *(float *)array->tensor.data = 3;
  sterna_release(array);
}

static void no_elements(void) {
  int64_t shapes[][3] = {{0, 1, 1}, {3, 0, 5}, {0, 0, 0}, {INT64_MAX, INT64_MAX, 0},
                         {0, INT64_MAX, INT64_MAX}};
  for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
    sterna_ndarray *array = make(3, shapes[i], float32), *other = make(3, shapes[i], float32);
    check(bytes_of(array) == 0 && sterna_tensor_is_compact(&array->tensor));
    check(sterna_tensor_copy(&array->tensor, &other->tensor) == 0);
    check(sterna_tensor_copy_from_memory(&array->tensor, NULL, 0) == 0);
    check(sterna_tensor_copy_to_memory(&array->tensor, NULL, 0) == 0);
    sterna_ndarray *view = NULL;
    check(sterna_ndarray_view(array, shapes[0], 3, float32, 0, &view) == 0);
    check_fails(sterna_ndarray_view(array, shapes[0], 3, float32, 1, &view), "ValueError",
                "does not fit");
    sterna_release(view);
    sterna_release(array);
    sterna_release(other);
  }
}

static void impossible_sizes(void) {
  sterna_ndarray *array = NULL;
  size_t bytes = 7;
  int64_t negative[] = {4, -1}, zero_and_negative[] = {0, -1}, huge[] = {INT64_MAX, 2};
  int64_t product[] = {(int64_t)1 << 32, (int64_t)1 << 32}, one[] = {INT64_MAX};
  int64_t large[] = {(int64_t)1 << 57};
  check_fails(sterna_ndarray_empty(negative, 2, int8, cpu, &array), "ValueError", "dimension 1");
  check_fails(sterna_ndarray_empty(zero_and_negative, 2, int8, cpu, &array), "ValueError", "-1");
  check_fails(sterna_ndarray_empty(huge, 2, int8, cpu, &array), "ValueError", "fit");
  check_fails(sterna_ndarray_empty(product, 2, int8, cpu, &array), "ValueError", "fit");
  check_fails(sterna_ndarray_empty(one, 1, int8, cpu, &array), "ValueError", "fit");
  check_fails(sterna_ndarray_empty(one, 1, float32, cpu, &array), "ValueError", "fit");
  check_fails(sterna_ndarray_empty(large, 1, int8, cpu, &array), "MemoryError", "out of memory");
  check_fails(sterna_ndarray_empty(huge, -1, int8, cpu, &array), "ValueError", "-1 dimensions");
  check_fails(sterna_ndarray_empty(huge, INT32_MIN, int8, cpu, &array), "ValueError", "dimensions");
  check_fails(sterna_ndarray_empty(NULL, 1, int8, cpu, &array), "ValueError", "dimensions");
  DLTensor t = {NULL, {kDLCPU, 0}, 2, {kDLFloat, 255, 65535}, product, NULL, 0};
  check_fails(sterna_tensor_bytes(&t, &bytes), "ValueError", "fit");
  t.shape = negative;
  check_fails(sterna_tensor_bytes(&t, &bytes), "ValueError", "negative");
  check(array == NULL && bytes == 7);

  for (int i = 0; i < 20000; i++) { /* against 128-bit arithmetic */
    int64_t shape[4];
    wide bits;
    t.ndim = (int32_t)(check_random() % 5);
    t.shape = shape;
    t.dtype = (DLDataType){kDLUInt, (uint8_t)(check_random() % 65), (uint16_t)(check_random() % 5)};
    bits = (wide)t.dtype.bits * (t.dtype.lanes ? t.dtype.lanes : 1);
    int too_large = 0;
    for (int k = 0; k < t.ndim; k++) {
      shape[k] = (int64_t)(check_random() >> (1 + check_random() % 62)) + 1;
      bits *= (uint64_t)shape[k];
      too_large |= bits > INT64_MAX;
      if (too_large) bits = INT64_MAX;
    }
    int failed = sterna_tensor_bytes(&t, &bytes);
    check(failed == (too_large ? -1 : 0));
    if (!failed) check(bytes == (size_t)((bits + 7) / 8));
  }
}

static void small_types(void) {
  for (int64_t side = 0; side < 20; side++) {
    sterna_ndarray *array = make(1, &side, int4);
    check(bytes_of(array) == (size_t)(side + 1) / 2);
    sterna_release(array);
    DLDataType one_bit = {kDLUInt, 1, 3};
    array = make(1, &side, one_bit);
    check(bytes_of(array) == (size_t)(3 * side + 7) / 8);
    sterna_release(array);
  }
}

static void compactness(void) {
  int64_t shape[] = {2, 3, 5}, row_major[] = {15, 5, 1}, column_major[] = {1, 2, 6};
  int64_t gap[] = {30, 5, 1}, reversed[] = {15, 5, -1}, repeated[] = {0, 5, 1};
  DLTensor t = {NULL, {kDLCPU, 0}, 3, {kDLInt, 8, 1}, shape, NULL, 0};
  check(sterna_tensor_is_compact(&t));
  t.strides = row_major;
  check(sterna_tensor_is_compact(&t));
  t.strides = column_major;
  check(!sterna_tensor_is_compact(&t));
  t.strides = gap;
  check(!sterna_tensor_is_compact(&t));
  t.strides = reversed;
  check(!sterna_tensor_is_compact(&t));
  t.strides = repeated;
  check(!sterna_tensor_is_compact(&t));
  /* Where there is one element only, how far the next would be says nothing. */
  int64_t ones[] = {1, 3, 1}, wild[] = {-77, 1, INT64_MIN};
  t.shape = ones, t.strides = wild;
  check(sterna_tensor_is_compact(&t));
  int64_t none[] = {4, 0, 5}, any[] = {9, 9, 9};
  t.shape = none, t.strides = any;
  check(sterna_tensor_is_compact(&t));
  t.ndim = 0;
  check(sterna_tensor_is_compact(&t));
  /* Nonsense sizes are nonsense, but no undefined behaviour. */
  int64_t large[] = {INT64_MAX, INT64_MAX, INT64_MAX}, steps[] = {1, INT64_MAX, 1};
  t.ndim = 3, t.shape = large, t.strides = steps;
  sterna_tensor_is_compact(&t);
  int64_t powers[] = {(int64_t)1 << 40, (int64_t)1 << 40}, power_steps[] = {(int64_t)1 << 40, 1};
  t.ndim = 2, t.shape = powers, t.strides = power_steps;
  sterna_tensor_is_compact(&t);
}

static void views(void) {
  int64_t shape[] = {4, 6}, all[] = {24}, half[] = {2, 3, 2}, scalar_bytes[] = {4};
  sterna_ndarray *array = make(2, shape, float32), *view = NULL, *inner = NULL;
  char *data = array->tensor.data;
  for (int i = 0; i < 24; i++) ((float *)array->tensor.data)[i] = (float)i;
  check(sterna_ndarray_view(array, all, 1, float32, 0, &view) == 0);
  check(view->tensor.data == data && view->tensor.shape[0] == 24);
  check(sterna_ndarray_view(view, half, 3, float32, 48, &inner) == 0);
  check((char *)inner->tensor.data == data + 48 && inner->tensor.byte_offset == 0);
  sterna_release(array);
  sterna_release(view);
  check(((float *)inner->tensor.data)[0] == 12 && inner->tensor.strides[0] == 6);
  view = NULL;
  check(sterna_ndarray_view(inner, NULL, 0, float32, 44, &view) == 0); /* the last number */
  check(*(float *)view->tensor.data == 23);
  sterna_release(view);
  view = NULL;
  check_fails(sterna_ndarray_view(inner, NULL, 0, float32, 45, &view), "ValueError",
              "does not fit");
  check_fails(sterna_ndarray_view(inner, half, 3, float32, 4, &view), "ValueError", "offset 4");
  check_fails(sterna_ndarray_view(inner, scalar_bytes, 1, int8, UINT64_MAX, &view), "ValueError",
              "fit");
  check_fails(sterna_ndarray_view(inner, scalar_bytes, 1, int8, UINT64_MAX - 3, &view),
              "ValueError", "fit");
  check_fails(sterna_ndarray_view(inner, all, -1, int8, 0, &view), "ValueError", "dimensions");
  int64_t negative[] = {-4}, huge[] = {INT64_MAX, INT64_MAX};
  check_fails(sterna_ndarray_view(inner, negative, 1, int8, 0, &view), "ValueError", "negative");
  check_fails(sterna_ndarray_view(inner, huge, 2, int8, 0, &view), "ValueError", "fit");
  check(sterna_ndarray_view(inner, scalar_bytes, 1, int8, 44, &view) == 0); /* another type */
  check(bytes_of(view) == 4);
  sterna_release(view);
  sterna_release(inner);
}

/* A view of a view of a view ...: neither the objects in between nor the stack may pile up. */
static void views_of_views(void) {
  int64_t side = 8;
  sterna_ndarray *array = make(1, &side, int8);
  long live = check_live();
  for (int i = 0; i < 300000; i++) {
    sterna_ndarray *view;
    if (!check(sterna_ndarray_view(array, &side, 1, int8, 0, &view) == 0)) break;
    sterna_release(array);
    array = view;
  }
  check(check_live() <= live + 1);
  memset(array->tensor.data, 1, 8);
  sterna_release(array);
}

/* An array of another runtime: an object of the ABI's layout that may have gaps. */
static void foreign_arrays(void) {
  float numbers[12] = {0};
  int64_t shape[] = {2, 3}, gaps[] = {6, 2}, part[] = {2};
  sterna_ndarray foreign = {{((uint64_t)1 << 32) | 1, STERNA_NDARRAY, 0, {NULL}},
                            {numbers, cpu, 2, float32, shape, gaps, 0}};
  sterna_ndarray *view = NULL;
  check(!sterna_ndarray_is_read_only(&foreign));
  check_fails(sterna_ndarray_view(&foreign, part, 1, float32, 0, &view), "ValueError",
              "contiguous");
  foreign.tensor.strides = NULL;
  foreign.tensor.byte_offset = 8;
  check(sterna_ndarray_view(&foreign, part, 1, float32, 4, &view) == 0);
  check(view->tensor.data == &numbers[3] && view->tensor.byte_offset == 0);
  check((foreign.header.ref_counts & 0xffffffff) == 2);
  sterna_release(view);
  check((foreign.header.ref_counts & 0xffffffff) == 1);
}

static void copies(void) {
  int64_t shape[] = {3, 4}, flat[] = {12}, bytes[] = {48}, other[] = {13}, gaps[] = {8, 2};
  float numbers[12], back[12];
  for (int i = 0; i < 12; i++) numbers[i] = (float)i / 3;
  sterna_ndarray *a = make(2, shape, float32), *b = make(1, flat, float32);
  sterna_ndarray *c = make(1, bytes, int8), *d = make(1, other, float32);
  check(sterna_tensor_copy_from_memory(&a->tensor, numbers, sizeof numbers) == 0);
  check(sterna_tensor_copy(&a->tensor, &b->tensor) == 0);
  check(sterna_tensor_copy(&b->tensor, &c->tensor) == 0); /* equal in bytes is enough */
  check(sterna_tensor_copy_to_memory(&c->tensor, back, sizeof back) == 0);
  check(memcmp(numbers, back, sizeof back) == 0);
  check_fails(sterna_tensor_copy(&a->tensor, &d->tensor), "ValueError", "48 bytes");
  check_fails(sterna_tensor_copy_from_memory(&a->tensor, numbers, 47), "ValueError", "47 bytes");
  check_fails(sterna_tensor_copy_to_memory(&a->tensor, back, 49), "ValueError", "49 bytes");
  DLTensor strided = a->tensor;
  strided.strides = gaps;
  check_fails(sterna_tensor_copy(&strided, &b->tensor), "ValueError", "source");
  check_fails(sterna_tensor_copy(&b->tensor, &strided), "ValueError", "destination");
  check_fails(sterna_tensor_copy_from_memory(&strided, numbers, 48), "ValueError", "contiguous");
  check_fails(sterna_tensor_copy_to_memory(&strided, back, 48), "ValueError", "contiguous");

  float larger[20]; /* a tensor that begins inside of its memory, and one that overlaps itself */
  for (int i = 0; i < 20; i++) larger[i] = (float)i;
  DLTensor inside = {larger, cpu, 1, float32, flat, NULL, 8};
  check(sterna_tensor_copy(&inside, &b->tensor) == 0 && ((float *)b->tensor.data)[0] == 2);
  DLTensor later = {larger, cpu, 1, float32, flat, NULL, 12};
  check(sterna_tensor_copy(&inside, &later) == 0);
  for (int i = 0; i < 12; i++) check(larger[3 + i] == (float)(i + 2));
  check(sterna_tensor_copy(&a->tensor, &a->tensor) == 0);
  sterna_release(a);
  sterna_release(b);
  sterna_release(c);
  sterna_release(d);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"shapes_and_strides", shapes_and_strides},
      {"no_elements", no_elements},
      {"impossible_sizes", impossible_sizes},
      {"small_types", small_types},
      {"compactness", compactness},
      {"views", views},
      {"views_of_views", views_of_views},
      {"foreign_arrays", foreign_arrays},
      {"copies", copies},
  };
  return CASES(cases);
}
