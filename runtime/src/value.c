/* Reading values, and turning borrowed ones into owned ones. */
#include "internal.h"

#include <string.h>

const char *sterna_type_name(int32_t type_index) {
  switch (type_index) {
    case STERNA_NONE: return "none";
    case STERNA_INT: return "int";
    case STERNA_BOOL: return "bool";
    case STERNA_FLOAT: return "float";
    case STERNA_POINTER: return "a pointer";
    case STERNA_DTYPE: return "a data type";
    case STERNA_DEVICE: return "a device";
    case STERNA_TENSOR_VIEW:
    case STERNA_NDARRAY: return "an array";
    case STERNA_C_STRING:
    case STERNA_SMALL_STRING:
    case STERNA_STRING: return "text";
    case STERNA_BYTES_VIEW:
    case STERNA_SMALL_BYTES:
    case STERNA_BYTES: return "bytes";
    case STERNA_ERROR: return "an error";
    case STERNA_FUNCTION_OBJECT: return "a function";
    case STERNA_SHAPE: return "a shape";
    case STERNA_LIST: return "a list";
    case STERNA_MAP: return "a map";
    case STERNA_MODULE: return "a module";
    case STERNA_PYTHON_OBJECT: return "a Python object";
    default: return "an object of another kind";
  }
}

const sterna_any *value_seen(const sterna_any *value, sterna_any *room) {
  if (value->type_index != STERNA_MOVED_OBJECT) return value;
  *room = value->v_ptr ? sterna_any_object(*(sterna_object **)value->v_ptr) : sterna_any_none();
  return room;
}

int sterna_any_own(const sterna_any *view, sterna_any *out) {
  REQUIRE(view);
  REQUIRE(out);
  sterna_bytes text;
  switch (view->type_index) {
    case STERNA_C_STRING:
      return sterna_as_string(view, &text) || sterna_string(text.data, text.size, out) ? -1 : 0;
    case STERNA_BYTES_VIEW:
      return sterna_as_bytes(view, &text) || sterna_bytes_value(text.data, text.size, out) ? -1 : 0;
    case STERNA_TENSOR_VIEW:
      return sterna_set_error("TypeError",
                              "a bare DLTensor belongs to its caller and cannot be kept or returned; "
                              "pass an array object");
    case STERNA_MOVED_OBJECT: {
      sterna_object **moved = view->v_ptr;
      REQUIRE(moved);
      *out = sterna_any_object(*moved);
      *moved = NULL;
      return 0;
    }
    default:
      *out = *view;
      if (out->type_index >= STERNA_OBJECT) sterna_retain(out->v_obj);
      return 0;
  }
}

int sterna_as_int(const sterna_any *value, int64_t *out) {
  REQUIRE(value);
  REQUIRE(out);
  if (value->type_index != STERNA_INT && value->type_index != STERNA_BOOL)
    return error_type(value, "int");
  *out = value->v_int64;
  return 0;
}

int sterna_as_float(const sterna_any *value, double *out) {
  REQUIRE(value);
  REQUIRE(out);
  if (value->type_index == STERNA_FLOAT)
    *out = value->v_float64;
  else if (value->type_index == STERNA_INT || value->type_index == STERNA_BOOL)
    *out = (double)value->v_int64;
  else
    return error_type(value, "float");
  return 0;
}

int sterna_as_tensor(const sterna_any *value, DLTensor **out) {
  REQUIRE(value);
  REQUIRE(out);
  sterna_any room;
  value = value_seen(value, &room);
  if (value->type_index == STERNA_NDARRAY)
    *out = &((sterna_ndarray *)value->v_obj)->tensor;
  else if (value->type_index == STERNA_TENSOR_VIEW && value->v_ptr)
    *out = value->v_ptr;
  else
    return error_type(value, "an array");
  return 0;
}

int value_is_read_only(const sterna_any *value) {
  sterna_any room;
  value = value_seen(value, &room);
  return value->type_index == STERNA_NDARRAY && sterna_ndarray_is_read_only((sterna_ndarray *)value->v_obj);
}

int sterna_as_function(const sterna_any *value, sterna_function **out) {
  REQUIRE(value);
  REQUIRE(out);
  sterna_any room;
  value = value_seen(value, &room);
  if (value->type_index != STERNA_FUNCTION_OBJECT) return error_type(value, "a function");
  *out = (sterna_function *)value->v_obj;
  return 0;
}

int sterna_as_device(const sterna_any *value, DLDevice *out) {
  REQUIRE(value);
  REQUIRE(out);
  if (value->type_index != STERNA_DEVICE) return error_type(value, "a device");
  *out = value->v_device;
  return 0;
}

int sterna_as_dtype(const sterna_any *value, DLDataType *out) {
  REQUIRE(value);
  REQUIRE(out);
  sterna_bytes name;
  if (value->type_index == STERNA_DTYPE) {
    *out = value->v_dtype;
    return 0;
  }
  if (value->type_index != STERNA_C_STRING && value->type_index != STERNA_SMALL_STRING &&
      value->type_index != STERNA_STRING)
    return error_type(value, "a data type");
  return sterna_as_string(value, &name) || sterna_dtype_parse(name.data, name.size, out) ? -1 : 0;
}
