/* Values, their conversions, and the counts of objects. */
#include <float.h>
#include <pthread.h>
#include <stdatomic.h>

#include "check.h"

/* One value of each kind, in the order of their type indices. */
enum { KINDS = 24 };

static int ignore_call(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self;
  (void)args;
  (void)n;
  (void)ret;
  return 0;
}

static int no_function(sterna_module *m, void *self, const char *name, sterna_function **out) {
  (void)m;
  (void)self;
  (void)name;
  *out = NULL;
  return 0;
}

static const sterna_module_type empty_module = {"empty", no_function, NULL};
static int64_t one_side[1] = {3};
static float numbers[3];
static DLTensor bare = {numbers, {kDLCPU, 0}, 1, {kDLFloat, 32, 1}, one_side, NULL, 0};
static sterna_bytes some_bytes = {"\0\1\2", 3};

static sterna_any pointer_value(int32_t type, void *pointer) {
  sterna_any value = sterna_any_none();
  value.type_index = type;
  value.v_ptr = pointer;
  return value;
}

static int make_all(sterna_any *all) {
  int count = 0;
  DLDataType int8x4 = {kDLInt, 8, 4};
  sterna_function *function = NULL;
  sterna_module *module = NULL;
  sterna_ndarray *array = NULL;
  sterna_error *error = NULL;
  sterna_any item = sterna_any_int(7);
  all[count++] = sterna_any_none();
  all[count++] = sterna_any_int(INT64_MIN);
  all[count++] = sterna_any_bool(17);
  all[count++] = sterna_any_float(-0.5);
  all[count++] = pointer_value(STERNA_POINTER, all);
  all[count++] = sterna_any_dtype(int8x4);
  all[count++] = sterna_any_device(kDLCPU, 5);
  all[count++] = sterna_any_tensor(&bare);
  all[count++] = sterna_any_c_string("float32x2");
  all[count++] = pointer_value(STERNA_BYTES_VIEW, &some_bytes);
  check(sterna_string("int8", 4, &all[count++]) == 0);
  check(sterna_bytes_value("\0a", 2, &all[count++]) == 0);
  check(sterna_string("float8_e4m3fnuz", 15, &all[count++]) == 0);
  check(sterna_bytes_value("0123456789", 10, &all[count++]) == 0);
  check(sterna_error_create("KeyError", "x", NULL, NULL, &error) == 0);
  all[count++] = sterna_any_object(error);
  check(sterna_function_create(ignore_call, NULL, NULL, &function) == 0);
  all[count++] = sterna_any_object(function);
  check(sterna_shape(one_side, 1, &all[count++]) == 0);
  check(sterna_ndarray_empty(one_side, 1, int8x4, (DLDevice){kDLCPU, 0}, &array) == 0);
  all[count++] = sterna_any_object(array);
  check(sterna_list(&item, 1, &all[count++]) == 0);
  check(sterna_module_create(&empty_module, NULL, &module) == 0);
  all[count++] = sterna_any_object(module);
  return count;
}

static void release_all(sterna_any *all, int count) {
  for (int i = 0; i < count; i++) {
    sterna_any_release(&all[i]);
    check(all[i].type_index == STERNA_NONE && all[i].v_int64 == 0);
    sterna_any_release(&all[i]); /* none may be released as often as one likes */
  }
}

/* A conversion works for the kinds in allowed and is a TypeError that names both for the others. */
#define EACH_KIND(call, wanted, ...)                                                        \
  do {                                                                                      \
    static const int allowed[] = {__VA_ARGS__};                                             \
    for (int i = 0; i < count; i++) {                                                       \
      int expected = 0;                                                                     \
      const sterna_any *v = &all[i];                                                        \
      for (size_t k = 0; k < sizeof allowed / sizeof *allowed; k++)                         \
        expected |= v->type_index == allowed[k];                                            \
      if (expected) {                                                                       \
        if (!check((call) == 0)) fprintf(stderr, "for type %d\n", v->type_index);           \
      } else {                                                                              \
        check_fails(call, "TypeError", "expected " wanted ", got ");                        \
        check(strstr(sterna_last_error(), sterna_type_name(v->type_index)) != NULL);        \
      }                                                                                     \
    }                                                                                       \
  } while (0)

static void conversions(void) {
  sterna_any all[KINDS];
  int count = make_all(all);
  int64_t number, ndim;
  double real;
  sterna_bytes text;
  DLTensor *tensor;
  sterna_function *function;
  sterna_module *module;
  DLDevice device;
  DLDataType dtype;
  const sterna_any *items;
  const int64_t *dims;
  EACH_KIND(sterna_as_int(v, &number), "int", STERNA_INT, STERNA_BOOL);
  EACH_KIND(sterna_as_float(v, &real), "float", STERNA_FLOAT, STERNA_INT, STERNA_BOOL);
  EACH_KIND(sterna_as_string(v, &text), "text", STERNA_C_STRING, STERNA_SMALL_STRING,
            STERNA_STRING);
  EACH_KIND(sterna_as_bytes(v, &text), "bytes", STERNA_BYTES_VIEW, STERNA_SMALL_BYTES,
            STERNA_BYTES);
  EACH_KIND(sterna_as_tensor(v, &tensor), "an array", STERNA_TENSOR_VIEW, STERNA_NDARRAY);
  EACH_KIND(sterna_as_function(v, &function), "a function", STERNA_FUNCTION_OBJECT);
  EACH_KIND(sterna_as_module(v, &module), "a module", STERNA_MODULE);
  EACH_KIND(sterna_as_device(v, &device), "a device", STERNA_DEVICE);
  EACH_KIND(sterna_as_dtype(v, &dtype), "a data type", STERNA_DTYPE, STERNA_C_STRING,
            STERNA_SMALL_STRING, STERNA_STRING);
  EACH_KIND(sterna_as_list(v, &items, &number), "a list", STERNA_LIST);
  EACH_KIND(sterna_as_shape(v, &dims, &ndim), "a shape", STERNA_SHAPE);
  release_all(all, count);
}

static void numbers_and_devices(void) {
  int64_t number = 99;
  double real = 99;
  DLDevice device;
  sterna_any v = sterna_any_int(INT64_MIN);
  check(sterna_as_int(&v, &number) == 0 && number == INT64_MIN);
  check(sterna_as_float(&v, &real) == 0 && real == -9223372036854775808.0);
  v = sterna_any_bool(17);
  check(v.v_int64 == 1 && sterna_as_int(&v, &number) == 0 && number == 1);
  v = sterna_any_float(DBL_MAX);
  check(sterna_as_float(&v, &real) == 0 && real == DBL_MAX);
  number = 99;
  check_fails(sterna_as_int(&v, &number), "TypeError", "expected int, got float");
  check(number == 99); /* left alone */
  v = sterna_any_device(kDLVulkan, -3);
  check(sterna_as_device(&v, &device) == 0);
  check(device.device_type == kDLVulkan && device.device_id == -3);
  v = sterna_any_tensor(NULL);
  DLTensor *tensor = NULL;
  check_fails(sterna_as_tensor(&v, &tensor), "TypeError", "an array");
  v = sterna_any_object(NULL);
  check(v.type_index == STERNA_NONE);
}

static void text_of_every_size(void) {
  char source[300];
  for (size_t i = 0; i < sizeof source; i++) source[i] = (char)(i * 7 % 5 ? i : 0); /* many zeros */
  for (size_t size = 0; size <= sizeof source; size++) {
    sterna_any v, copy;
    sterna_bytes seen = {NULL, 0};
    check(sterna_string(source, size, &v) == 0);
    check(v.type_index == (size <= 7 ? STERNA_SMALL_STRING : STERNA_STRING));
    check(sterna_as_string(&v, &seen) == 0);
    check(seen.size == size && memcmp(seen.data, source, size) == 0 && seen.data[size] == 0);
    check(sterna_any_own(&v, &copy) == 0);
    sterna_any_release(&v);
    check(sterna_as_string(&copy, &seen) == 0);
    check(seen.size == size && memcmp(seen.data, source, size) == 0 && seen.data[size] == 0);
    sterna_any_release(&copy);

    check(sterna_bytes_value(source, size, &v) == 0);
    check(v.type_index == (size <= 7 ? STERNA_SMALL_BYTES : STERNA_BYTES));
    check(sterna_as_bytes(&v, &seen) == 0);
    check(seen.size == size && memcmp(seen.data, source, size) == 0 && seen.data[size] == 0);
    sterna_any_release(&v);
  }
  sterna_any v = sterna_any_int(5);
  check(sterna_string(NULL, 0, &v) == 0 && v.type_index == STERNA_SMALL_STRING && v.small_len == 0);
  v = sterna_any_int(5);
  check_fails(sterna_string("", SIZE_MAX, &v), "MemoryError", "out of memory");
  check_fails(sterna_bytes_value("", SIZE_MAX - 8, &v), "MemoryError", "out of memory");
  check(v.type_index == STERNA_INT && v.v_int64 == 5); /* left alone */
  v = sterna_any_none(); /* a length that no small text has, from a careless foreign caller */
  v.type_index = STERNA_SMALL_STRING;
  v.small_len = 4000000000u;
  sterna_bytes seen;
  check(sterna_as_string(&v, &seen) == 0 && seen.size <= 7);
}

static void owning_views(void) {
  sterna_any v = sterna_any_c_string("short"), owned;
  sterna_bytes text;
  check(sterna_any_own(&v, &owned) == 0 && owned.type_index == STERNA_SMALL_STRING);
  char buffer[] = "longer than seven bytes";
  v = sterna_any_c_string(buffer);
  check(sterna_any_own(&v, &owned) == 0 && owned.type_index == STERNA_STRING);
  memset(buffer, '!', sizeof buffer - 1);
  check(sterna_as_string(&owned, &text) == 0);
  check_text(text.data, "longer than seven bytes");
  sterna_any_release(&owned);

  sterna_bytes view = {"\0 and some more bytes", 21};
  v = pointer_value(STERNA_BYTES_VIEW, &view);
  check(sterna_any_own(&v, &owned) == 0 && owned.type_index == STERNA_BYTES);
  check(sterna_as_bytes(&owned, &text) == 0 && text.size == 21 && text.data != view.data);
  check(memcmp(text.data, view.data, 21) == 0);
  sterna_any_release(&owned);

  v = sterna_any_c_string(NULL);
  check_fails(sterna_as_string(&v, &text), "TypeError", "a null pointer");
  owned = sterna_any_int(3);
  check_fails(sterna_any_own(&v, &owned), "TypeError", "a null pointer");
  v = sterna_any_tensor(&bare);
  check_fails(sterna_any_own(&v, &owned), "TypeError", "bare DLTensor");
  check(owned.type_index == STERNA_INT && owned.v_int64 == 3);

  sterna_function *function;
  check(sterna_function_create(ignore_call, NULL, NULL, &function) == 0);
  v = sterna_any_object(function);
  check(sterna_any_own(&v, &owned) == 0);
  check((function->header.ref_counts & 0xffffffff) == 2);
  sterna_any_release(&owned);
  check((function->header.ref_counts & 0xffffffff) == 1);

  sterna_object *moved = &function->header;
  v = pointer_value(STERNA_MOVED_OBJECT, &moved);
  check(sterna_any_own(&v, &owned) == 0 && moved == NULL);
  check(owned.type_index == STERNA_FUNCTION_OBJECT && owned.v_obj == &function->header);
  check((function->header.ref_counts & 0xffffffff) == 1); /* passed on, not counted again */
  /* moved away already */
  check(sterna_any_own(&v, &owned) == 0 && owned.type_index == STERNA_NONE);
  sterna_release(function);
  for (int type = 0; type <= 6; type++) {
    v = sterna_any_int(41);
    v.type_index = type;
    check(sterna_any_own(&v, &owned) == 0 && owned.type_index == type && owned.v_int64 == 41);
  }
}

static void lists(void) {
  sterna_any items[4], list, nested, v = sterna_any_int(8);
  const sterna_any *seen;
  int64_t count = -1;
  sterna_bytes text;
  items[0] = sterna_any_c_string("text that is borrowed");
  items[1] = sterna_any_int(-1);
  check(sterna_shape(one_side, 1, &items[2]) == 0);
  items[3] = sterna_any_none();
  check(sterna_list(items, 4, &list) == 0);
  check((items[2].v_obj->ref_counts & 0xffffffff) == 2);
  check(sterna_list(&list, 1, &nested) == 0);
  sterna_any_release(&list);
  check(sterna_as_list(&nested, &seen, &count) == 0 && count == 1);
  check(sterna_as_list(&seen[0], &seen, &count) == 0 && count == 4);
  check(sterna_as_string(&seen[0], &text) == 0);
  check_text(text.data, "text that is borrowed");
  check(seen[1].v_int64 == -1 && seen[2].type_index == STERNA_SHAPE);
  check(seen[3].type_index == STERNA_NONE);
  sterna_any_release(&nested);
  check((items[2].v_obj->ref_counts & 0xffffffff) == 1);

  check(sterna_list(NULL, 0, &list) == 0 && sterna_as_list(&list, &seen, &count) == 0 &&
        count == 0);
  sterna_any_release(&list);
  check_fails(sterna_list(NULL, -1, &v), "ValueError", "-1 items");
  check_fails(sterna_list(items, INT64_MAX, &v), "MemoryError", "out of memory");
  check_fails(sterna_list(items, INT64_MAX / 16, &v), "MemoryError", "out of memory");
  items[1] = sterna_any_tensor(&bare); /* cannot be owned: what was taken before is given back */
  check_fails(sterna_list(items, 4, &v), "TypeError", "bare DLTensor");
  items[1] = items[2];
  items[3] = sterna_any_tensor(&bare);
  check_fails(sterna_list(items, 4, &v), "TypeError", "bare DLTensor");
  check((items[2].v_obj->ref_counts & 0xffffffff) == 1);
  check(v.type_index == STERNA_INT && v.v_int64 == 8);
  sterna_any_release(&items[2]);
}

static void shapes(void) {
  int64_t dims[] = {INT64_MAX, -1, 0};
  const int64_t *seen;
  int64_t ndim = -1;
  sterna_any v;
  check(sterna_shape(dims, 3, &v) == 0 && sterna_as_shape(&v, &seen, &ndim) == 0);
  check(ndim == 3 && seen != dims && memcmp(seen, dims, sizeof dims) == 0);
  sterna_any_release(&v);
  check(sterna_shape(NULL, 0, &v) == 0 && sterna_as_shape(&v, &seen, &ndim) == 0 && ndim == 0);
  sterna_any_release(&v);
  check_fails(sterna_shape(dims, -5, &v), "ValueError", "-5 dimensions");
  check_fails(sterna_shape(dims, INT64_MAX, &v), "MemoryError", "out of memory");
}

static void names_of_types(void) {
  for (int32_t type = -3; type < 200; type++) check(*sterna_type_name(type) != 0);
  check_text(sterna_type_name(STERNA_NDARRAY), "an array");
  check_text(sterna_type_name(STERNA_SMALL_STRING), "text");
  check_text(sterna_type_name(INT32_MIN), sterna_type_name(INT32_MAX));
}

/* ---- counts ---- */

#define WEAK_ONE ((uint64_t)1 << 32)

static int ended, freed;

static void count_ends(void *self, int flags) {
  sterna_object *object = self;
  if (flags & 1) ended++;
  if (flags & 2) freed++, object->deleter = NULL;
}

static void weak_half(void) {
  sterna_object object = {WEAK_ONE | 1, STERNA_OBJECT, 0, {count_ends}};
  ended = freed = 0;
  sterna_release(&object);
  check(ended == 1 && freed == 1); /* nobody else: both in one call */

  object = (sterna_object){2 * WEAK_ONE | 2, STERNA_OBJECT, 0, {count_ends}};
  ended = freed = 0;
  sterna_release(&object);
  check(ended == 0 && object.ref_counts == (2 * WEAK_ONE | 1));
  sterna_release(&object); /* a weak reference is left: the content ends, the memory stays */
  check(ended == 1 && freed == 0 && object.ref_counts == WEAK_ONE);

  object = (sterna_object){WEAK_ONE | 1, STERNA_OBJECT, 0, {NULL}};
  sterna_release(&object); /* an object without a deleter */
  sterna_retain(NULL);
  sterna_release(NULL);

  /* The runtime's own objects under a foreign holder's weak reference. */
  sterna_any all[KINDS];
  int count = make_all(all);
  for (int i = 0; i < count; i++) {
    if (all[i].type_index < STERNA_OBJECT) continue;
    sterna_object *held = all[i].v_obj;
    check(held->ref_counts == (WEAK_ONE | 1));
    held->ref_counts += WEAK_ONE;
    long live = check_live();
    sterna_any_release(&all[i]);
    check(held->ref_counts == WEAK_ONE && check_live() <= live);
    live = check_live();
    held->deleter(held, 2); /* what the last weak holder does */
    check(check_live() == live - 1);
  }
}

static atomic_int shared_ends;

static void count_shared_ends(void *self) { atomic_fetch_add((atomic_int *)self, 1); }

static void *retain_and_release(void *object) {
  for (int i = 0; i < 20000; i++) {
    sterna_retain(object);
    sterna_release(object);
  }
  sterna_release(object);
  return NULL;
}

static void counts_in_threads(void) {
  enum { THREADS = 4 };
  for (int round = 0; round < 20; round++) {
    pthread_t threads[THREADS];
    sterna_function *function;
    atomic_store(&shared_ends, 0);
    check(sterna_function_create(ignore_call, &shared_ends, count_shared_ends, &function) == 0);
    for (int i = 0; i < THREADS; i++) {
      sterna_retain(function);
      pthread_create(&threads[i], NULL, retain_and_release, function);
    }
    sterna_release(function);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    check(atomic_load(&shared_ends) == 1);
  }
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"conversions", conversions},
      {"numbers_and_devices", numbers_and_devices},
      {"text_of_every_size", text_of_every_size},
      {"owning_views", owning_views},
      {"lists", lists},
      {"shapes", shapes},
      {"names_of_types", names_of_types},
      {"weak_half", weak_half},
      {"counts_in_threads", counts_in_threads},
  };
  return CASES(cases);
}
