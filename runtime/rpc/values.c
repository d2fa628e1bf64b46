/* Values of the runtime to and from the wire. */
#include "session.h"

#include <stdlib.h>
#include <string.h>

/* ---- from the wire ---- */

static DLDevice get_device(reader *r) {
  DLDevice device;
  device.device_type = (DLDeviceType)(int32_t)get_number(r, 4);
  device.device_id = (int32_t)get_number(r, 4);
  return device;
}

static DLDataType get_dtype(reader *r) {
  DLDataType dtype;
  dtype.code = (uint8_t)get_number(r, 1);
  dtype.bits = (uint8_t)get_number(r, 1);
  dtype.lanes = (uint16_t)get_number(r, 2);
  return dtype;
}

static int decode_shape(reader *r, sterna_any *out) {
  int64_t few[MOST_WIRE_DIMENSIONS];
  uint64_t count = get_number(r, 4);
  if (count > MOST_WIRE_DIMENSIONS)
    return sterna_set_errorf("ValueError", "a shape of %llu dimensions; at most %d are taken",
                             (unsigned long long)count, MOST_WIRE_DIMENSIONS);
  for (uint64_t i = 0; i < count; i++) few[i] = (int64_t)get_number(r, 8);
  return sterna_shape(few, (int64_t)count, out);
}

static int decode_array(session *s, reader *r, sterna_any *out) {
  int64_t shape[MOST_WIRE_DIMENSIONS];
  get_number(r, 1); /* the owner, which is this side */
  uint64_t handle = get_number(r, 8), offset = get_number(r, 8);
  get_device(r);
  DLDataType dtype = get_dtype(r);
  int32_t ndim = (int32_t)get_number(r, 4);
  for (int32_t i = 0; i < ndim; i++) shape[i] = (int64_t)get_number(r, 8);
  sterna_ndarray *view, *array = (sterna_ndarray *)handles_find(&s->owned, handle, STERNA_NDARRAY);
  if (!array || sterna_ndarray_view(array, shape, ndim, dtype, offset, &view)) return -1;
  *out = sterna_any_object(view);
  return 0;
}

static int decode_function(session *s, reader *r, sterna_any *out) {
  uint64_t owner = get_number(r, 1), handle = get_number(r, 8);
  sterna_function *made;
  if (owner == OWNED_BY_SENDER) {
    if (callback_create(s, handle, &made)) return -1;
    *out = sterna_any_object(made);
    return 0;
  }
  sterna_object *own = handles_find(&s->owned, handle, STERNA_FUNCTION_OBJECT);
  if (!own) return -1;
  sterna_retain(own);
  *out = sterna_any_object(own);
  return 0;
}

static int decode_module(session *s, reader *r, sterna_any *out) {
  get_number(r, 1);
  sterna_object *own = handles_find(&s->owned, get_number(r, 8), STERNA_MODULE);
  if (!own) return -1;
  sterna_retain(own);
  *out = sterna_any_object(own);
  return 0;
}

/* A copy of a text with a zero behind it, as a value that owns it. */
static int decode_text(reader *r, sterna_any *out) {
  size_t size = (size_t)get_number(r, 4);
  return sterna_string(get_bytes(r, size), size, out);
}

static int decode_error(reader *r, sterna_any *out) {
  sterna_any texts[3] = {sterna_any_none(), sterna_any_none(), sterna_any_none()};
  sterna_bytes kind, message;
  sterna_error *error = NULL;
  int failed = 0;
  for (int i = 0; i < 3 && !failed; i++) failed = decode_text(r, &texts[i]);
  failed = failed || sterna_as_string(&texts[0], &kind) || sterna_as_string(&texts[1], &message) ||
           sterna_error_create(kind.data, message.data, NULL, NULL, &error);
  for (int i = 0; i < 3; i++) sterna_any_release(&texts[i]);
  if (!failed) *out = sterna_any_object(error);
  return failed ? -1 : 0;
}

static int decode_list(session *s, reader *r, sterna_any *out);

int value_decode(session *s, reader *r, sterna_any *out) {
  uint64_t bits;
  size_t size;
  int tag = (int)get_number(r, 1);
  switch (tag) {
    case TAG_NONE: *out = sterna_any_none(); return 0;
    case TAG_FALSE:
    case TAG_TRUE: *out = sterna_any_bool(tag == TAG_TRUE); return 0;
    case TAG_INT: *out = sterna_any_int((int64_t)get_number(r, 8)); return 0;
    case TAG_FLOAT:
      bits = get_number(r, 8);
      *out = sterna_any_float(0);
      memcpy(&out->v_float64, &bits, sizeof bits);
      return 0;
    case TAG_STR: return decode_text(r, out);
    case TAG_BYTES:
      size = (size_t)get_number(r, 4);
      return sterna_bytes_value(get_bytes(r, size), size, out);
    case TAG_DTYPE: *out = sterna_any_dtype(get_dtype(r)); return 0;
    case TAG_DEVICE:
      *out = sterna_any_none();
      out->type_index = STERNA_DEVICE;
      out->v_device = get_device(r);
      return 0;
    case TAG_SHAPE: return decode_shape(r, out);
    case TAG_LIST: return decode_list(s, r, out);
    case TAG_ARRAY: return decode_array(s, r, out);
    case TAG_FUNCTION: return decode_function(s, r, out);
    case TAG_MODULE: return decode_module(s, r, out);
    default: return decode_error(r, out);
  }
}

static int decode_list(session *s, reader *r, sterna_any *out) {
  uint64_t count = get_number(r, 4), made = 0;
  sterna_any *items = calloc(count ? (size_t)count : 1, sizeof *items);
  int failed = items ? 0 : sterna_set_error("MemoryError", "no memory for a list");
  while (!failed && made < count) {
    failed = value_decode(s, r, &items[made]);
    made += !failed;
  }
  if (!failed) failed = sterna_list(items, (int64_t)count, out);
  while (made) sterna_any_release(&items[--made]);
  free(items);
  return failed;
}

/* ---- to the wire ---- */

static void put_device(writer *w, DLDevice device) {
  put_number(w, (uint32_t)device.device_type, 4);
  put_number(w, (uint32_t)device.device_id, 4);
}

static void put_dtype(writer *w, DLDataType dtype) {
  put_number(w, dtype.code, 1);
  put_number(w, dtype.bits, 1);
  put_number(w, dtype.lanes, 2);
}

/* A thing of this side, under a new number. */
static int encode_own(session *s, int tag, void *object, uint64_t bytes, writer *w) {
  uint64_t handle = 0;
  if (handles_add(&s->owned, object, bytes, &handle)) return -1;
  put_number(w, (uint64_t)tag, 1);
  put_number(w, OWNED_BY_SENDER, 1);
  put_number(w, handle, 8);
  return 0;
}

int value_encode_array(session *s, sterna_ndarray *array, uint64_t bytes, writer *w) {
  const DLTensor *t = &array->tensor;
  if (t->ndim > MOST_WIRE_DIMENSIONS || !sterna_tensor_is_compact(t))
    return sterna_set_error("ValueError", "only compact arrays of at most 32 dimensions can be sent");
  if (encode_own(s, TAG_ARRAY, array, bytes, w)) return -1;
  put_number(w, 0, 8);
  put_device(w, t->device);
  put_dtype(w, t->dtype);
  put_number(w, (uint32_t)t->ndim, 4);
  for (int32_t i = 0; i < t->ndim; i++) put_number(w, (uint64_t)t->shape[i], 8);
  return 0;
}

static int encode_function(session *s, sterna_function *function, writer *w) {
  uint64_t handle = 0;
  if (!callback_handle(function, &handle)) return encode_own(s, TAG_FUNCTION, function, 0, w);
  put_number(w, TAG_FUNCTION, 1);
  put_number(w, OWNED_BY_RECEIVER, 1);
  put_number(w, handle, 8);
  return 0;
}

static int encode_text(const sterna_any *value, writer *w) {
  sterna_bytes text;
  if (sterna_as_string(value, &text)) return -1;
  if (!is_utf8(text.data, text.size)) return sterna_set_error("ValueError", "the text is no UTF-8");
  put_number(w, TAG_STR, 1);
  put_number(w, text.size, 4);
  put_bytes(w, text.data, text.size);
  return 0;
}

static int encode_list(session *s, const sterna_any *value, int depth, writer *w) {
  const sterna_any *items;
  int64_t count;
  if (sterna_as_list(value, &items, &count)) return -1;
  if (depth == MOST_NESTED_LISTS) return sterna_set_error("ValueError", "lists nest too deep to be sent");
  put_number(w, TAG_LIST, 1);
  put_number(w, (uint64_t)count, 4);
  for (int64_t i = 0; i < count; i++)
    if (value_encode(s, &items[i], depth + 1, w)) return -1;
  return 0;
}

static int encode_shape(const sterna_any *value, writer *w) {
  const int64_t *dims;
  int64_t ndim;
  if (sterna_as_shape(value, &dims, &ndim)) return -1;
  put_number(w, TAG_SHAPE, 1);
  put_number(w, (uint64_t)ndim, 4);
  for (int64_t i = 0; i < ndim; i++) put_number(w, (uint64_t)dims[i], 8);
  return 0;
}

static void encode_error(const sterna_error *error, writer *w) {
  put_number(w, TAG_ERROR, 1);
  put_text(w, error->kind.data, error->kind.size);
  put_text(w, error->message.data, error->message.size);
  put_text(w, error->backtrace.data, error->backtrace.size);
}

static int encode_bare_tensor(session *s, const sterna_any *value, writer *w) {
  DLTensor *t;
  sterna_ndarray *copy = NULL;
  if (sterna_as_tensor(value, &t) || sterna_ndarray_empty(t->shape, t->ndim, t->dtype, t->device, &copy))
    return -1;
  int failed = sterna_tensor_copy(t, &copy->tensor) || value_encode_array(s, copy, 0, w);
  sterna_release(copy);
  return failed ? -1 : 0;
}

int value_encode(session *s, const sterna_any *value, int depth, writer *w) {
  sterna_bytes bytes;
  switch (value->type_index) {
    case STERNA_NONE: put_number(w, TAG_NONE, 1); return 0;
    case STERNA_BOOL: put_number(w, value->v_int64 ? TAG_TRUE : TAG_FALSE, 1); return 0;
    case STERNA_INT: put_tagged_int(w, value->v_int64); return 0;
    case STERNA_FLOAT:
      put_number(w, TAG_FLOAT, 1);
      put_number(w, value->v_uint64, 8);
      return 0;
    case STERNA_DTYPE:
      put_number(w, TAG_DTYPE, 1);
      put_dtype(w, value->v_dtype);
      return 0;
    case STERNA_DEVICE:
      put_number(w, TAG_DEVICE, 1);
      put_device(w, value->v_device);
      return 0;
    case STERNA_C_STRING:
    case STERNA_SMALL_STRING:
    case STERNA_STRING: return encode_text(value, w);
    case STERNA_BYTES_VIEW:
    case STERNA_SMALL_BYTES:
    case STERNA_BYTES:
      if (sterna_as_bytes(value, &bytes)) return -1;
      put_number(w, TAG_BYTES, 1);
      put_number(w, bytes.size, 4);
      put_bytes(w, bytes.data, bytes.size);
      return 0;
    case STERNA_SHAPE: return encode_shape(value, w);
    case STERNA_LIST: return encode_list(s, value, depth, w);
    case STERNA_TENSOR_VIEW: return encode_bare_tensor(s, value, w);
    case STERNA_NDARRAY: return value_encode_array(s, (sterna_ndarray *)value->v_obj, 0, w);
    case STERNA_FUNCTION_OBJECT: return encode_function(s, (sterna_function *)value->v_obj, w);
    case STERNA_MODULE: return encode_own(s, TAG_MODULE, value->v_obj, 0, w);
    case STERNA_ERROR: encode_error((const sterna_error *)value->v_obj, w); return 0;
    default:
      return sterna_set_errorf("TypeError", "%s cannot be sent to another machine",
                               sterna_type_name(value->type_index));
  }
}
