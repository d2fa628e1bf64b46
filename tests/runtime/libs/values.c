/* Values of every kind, in and out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "sterna.h"

STERNA_FUNCTION(echo) {
  (void)self;
  if (n != 1) return sterna_set_errorf("TypeError", "echo takes one argument, got %d", (int)n);
  return sterna_any_own(&args[0], ret);
}

/* The type index of each argument. */
STERNA_FUNCTION(kinds) {
  sterna_any numbers[16];
  (void)self;
  if (n > 16) return sterna_set_error("TypeError", "kinds takes at most 16 arguments");
  for (int32_t i = 0; i < n; i++) numbers[i] = sterna_any_int(args[i].type_index);
  return sterna_list(numbers, n, ret);
}

STERNA_FUNCTION(pack) {
  (void)self;
  return sterna_list(args, n, ret);
}

STERNA_FUNCTION(sum) {
  int64_t total = 0, number;
  (void)self;
  for (int32_t i = 0; i < n; i++) {
    if (sterna_as_int(&args[i], &number)) return -1;
    total += number;
  }
  *ret = sterna_any_int(total);
  return 0;
}

/* read(kind, value): the value as C sees it. */
STERNA_FUNCTION(read) {
  sterna_bytes kind, text;
  DLDataType dtype;
  DLDevice device;
  double real;
  int64_t whole;
  (void)self;
  if (n != 2 || sterna_as_string(&args[0], &kind)) return sterna_set_error("TypeError", "read(kind, value)");
  if (strcmp(kind.data, "int") == 0) {
    if (sterna_as_int(&args[1], &whole)) return -1;
    *ret = sterna_any_int(whole);
  } else if (strcmp(kind.data, "float") == 0) {
    if (sterna_as_float(&args[1], &real)) return -1;
    *ret = sterna_any_float(real);
  } else if (strcmp(kind.data, "text") == 0) {
    return sterna_as_string(&args[1], &text) || sterna_bytes_value(text.data, text.size, ret) ? -1 : 0;
  } else if (strcmp(kind.data, "bytes") == 0) {
    return sterna_as_bytes(&args[1], &text) || sterna_bytes_value(text.data, text.size, ret) ? -1 : 0;
  } else if (strcmp(kind.data, "dtype") == 0) {
    if (sterna_as_dtype(&args[1], &dtype)) return -1;
    *ret = sterna_any_dtype(dtype);
  } else if (strcmp(kind.data, "device") == 0) {
    if (sterna_as_device(&args[1], &device)) return -1;
    *ret = sterna_any_device(device.device_type, device.device_id);
  } else if (strcmp(kind.data, "pointer") == 0) {
    char digits[32];
    int length = snprintf(digits, sizeof digits, "%p", args[1].v_ptr);
    return sterna_string(digits, (size_t)length, ret);
  } else {
    return sterna_set_errorf("ValueError", "read knows no %s", kind.data);
  }
  return 0;
}

/* make(what): results that Python cannot make, among them some that break the rules. */
STERNA_FUNCTION(make) {
  static const int64_t dims[] = {2, 3, INT64_MAX};
  static DLTensor tensor;
  sterna_bytes what;
  (void)self;
  if (n != 1 || sterna_as_string(&args[0], &what)) return sterna_set_error("TypeError", "make(what)");
  if (strcmp(what.data, "nan") == 0) *ret = sterna_any_float(NAN);
  else if (strcmp(what.data, "shape") == 0) return sterna_shape(dims, 3, ret);
  else if (strcmp(what.data, "scalar shape") == 0) return sterna_shape(dims, 0, ret);
  else if (strcmp(what.data, "error") == 0) {
    sterna_error *error;
    if (sterna_error_create("ValueError", "a value", NULL, NULL, &error)) return -1;
    *ret = sterna_any_object(error);
  } else if (strcmp(what.data, "null pointer") == 0) {
    ret->type_index = STERNA_POINTER;
  } else if (strcmp(what.data, "bad text") == 0) {
    return sterna_string("\xff\xfe", 2, ret);
  } else if (strcmp(what.data, "bad long text") == 0) {
    return sterna_string("long text \xff\xfe", 12, ret);
  } else if (strcmp(what.data, "unknown kind") == 0) {
    ret->type_index = 33;
  } else if (strcmp(what.data, "null object") == 0) {
    ret->type_index = STERNA_OBJECT;
  } else if (strcmp(what.data, "borrowed text") == 0) {
    *ret = sterna_any_c_string("borrowed");
  } else if (strcmp(what.data, "bare tensor") == 0) {
    *ret = sterna_any_tensor(&tensor);
  } else {
    return sterna_set_errorf("ValueError", "make knows no %s", what.data);
  }
  return 0;
}
