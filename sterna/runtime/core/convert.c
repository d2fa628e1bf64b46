/* Values between Python and the runtime. */
#include "core.h"

#include <string.h>

/* ---- Python objects as values ---- */

typedef struct {
  sterna_object header;
  PyObject *object;
} python_object;

int interpreter_is_alive(void) {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() && !Py_IsFinalizing();
#else
  return Py_IsInitialized() && !_Py_IsFinalizing();
#endif
}

void drop_python_reference(void *object) {
  if (!interpreter_is_alive()) return; /* it goes with the process */
  PyGILState_STATE gil = PyGILState_Ensure();
  Py_DECREF((PyObject *)object);
  PyGILState_Release(gil);
}

static void free_python_object(void *self, int flags) {
  python_object *wrapper = self;
  if (flags & 1) drop_python_reference(wrapper->object);
  if (flags & 2) PyMem_RawFree(wrapper);
}

int wrap_python_object(PyObject *object, sterna_object **out) {
  python_object *wrapper = PyMem_RawCalloc(1, sizeof *wrapper);
  if (!wrapper) {
    PyErr_NoMemory();
    return -1;
  }
  wrapper->header.ref_counts = ((uint64_t)1 << 32) | 1;
  wrapper->header.type_index = STERNA_PYTHON_OBJECT;
  wrapper->header.deleter = free_python_object;
  wrapper->object = Py_NewRef(object);
  *out = &wrapper->header;
  return 0;
}

PyObject *unwrap_python_object(sterna_object *object) { return ((python_object *)object)->object; }

/* ---- data types ---- */

PyObject *make_dtype(DLDataType dtype) {
  static PyObject *made; /* by their packed fields */
  if (!made && !(made = PyDict_New())) return NULL;
  uint32_t packed = dtype.code | (uint32_t)dtype.bits << 8 | (uint32_t)dtype.lanes << 16;
  PyObject *key = PyLong_FromUnsignedLong(packed);
  if (!key) return NULL;
  PyObject *result = Py_XNewRef(PyDict_GetItemWithError(made, key));
  if (!result && !PyErr_Occurred()) {
    char name[32];
    sterna_dtype_name(dtype, name);
    result = PyObject_CallFunction((PyObject *)python_side.dtype, "s", name);
    if (result && PyDict_SetItem(made, key, result) < 0) Py_CLEAR(result);
  }
  Py_DECREF(key);
  return result;
}

int parse_dtype(PyObject *object, DLDataType *out) {
  Py_ssize_t size;
  const char *name = PyUnicode_AsUTF8AndSize(object, &size);
  if (!name) return -1;
  if (sterna_dtype_parse(name, (size_t)size, out)) {
    raise_runtime_error();
    return -1;
  }
  return 0;
}

/* ---- from Python ---- */

const char *read_name(PyObject *object) {
  Py_ssize_t size;
  if (!PyUnicode_Check(object)) {
    PyErr_Format(PyExc_TypeError, "a name is text, not %s", Py_TYPE(object)->tp_name);
    return NULL;
  }
  const char *name = PyUnicode_AsUTF8AndSize(object, &size);
  if (name && strlen(name) != (size_t)size) {
    PyErr_Format(PyExc_ValueError, "the name %R has a zero in it", object);
    return NULL;
  }
  return name;
}

static int convert_int(PyObject *object, sterna_any *out) {
  int overflow;
  long long number = PyLong_AsLongLongAndOverflow(object, &overflow);
  if (number == -1 && PyErr_Occurred()) return -1;
  if (overflow) {
    PyErr_Format(PyExc_OverflowError, "the integer %R does not fit in 64 bits", object);
    if (!PyErr_ExceptionMatches(PyExc_OverflowError)) /* Python refuses to write very long ones */
      PyErr_SetString(PyExc_OverflowError, "an integer does not fit in 64 bits");
    return -1;
  }
  *out = sterna_any_int(number);
  return 0;
}

static int convert_text(PyObject *object, sterna_any *out, sterna_object **owned) {
  Py_ssize_t size;
  const char *text = PyUnicode_AsUTF8AndSize(object, &size);
  if (!text) return -1;
  if (size > 7 && strlen(text) == (size_t)size) {
    *out = sterna_any_c_string(text); /* the str keeps it */
    return 0;
  }
  if (sterna_string(text, (size_t)size, out)) {
    raise_runtime_error();
    return -1;
  }
  if (out->type_index >= STERNA_OBJECT) *owned = out->v_obj;
  return 0;
}

static int convert_bytes(PyObject *object, sterna_any *out, sterna_object **owned, sterna_bytes *view) {
  char *data;
  Py_ssize_t size;
  int immutable = PyBytes_Check(object);
  if (immutable) {
    data = PyBytes_AS_STRING(object);
    size = PyBytes_GET_SIZE(object);
  } else {
    data = PyByteArray_AS_STRING(object);
    size = PyByteArray_GET_SIZE(object);
  }
  if (immutable && size > 7) {
    *view = (sterna_bytes){data, (size_t)size};
    *out = sterna_any_none();
    out->type_index = STERNA_BYTES_VIEW;
    out->v_ptr = view;
    return 0;
  }
  if (sterna_bytes_value(data, (size_t)size, out)) {
    raise_runtime_error();
    return -1;
  }
  if (out->type_index >= STERNA_OBJECT) *owned = out->v_obj;
  return 0;
}

static int convert_sequence(PyObject *object, sterna_any *out, sterna_object **owned) {
  PyObject *items = PySequence_Tuple(object); /* a list may change while it is read */
  if (!items) return -1;
  Py_ssize_t count = PyTuple_GET_SIZE(items), done = 0;
  sterna_any *values = PyMem_Calloc((size_t)count + 1, sizeof *values);
  int failed = -1;
  if (!values) {
    PyErr_NoMemory();
  } else if (Py_EnterRecursiveCall(" while a list is passed to a packed function") == 0) {
    while (done < count && convert_owned(PyTuple_GET_ITEM(items, done), &values[done]) == 0) done++;
    Py_LeaveRecursiveCall();
    if (done == count) {
      failed = sterna_list(values, count, out);
      if (failed) raise_runtime_error();
      else *owned = out->v_obj;
    }
    for (Py_ssize_t i = 0; i < done; i++) sterna_any_release(&values[i]);
  }
  PyMem_Free(values);
  Py_DECREF(items);
  return failed;
}

static int convert_void_pointer(PyObject *object, sterna_any *out) {
  PyObject *value = PyObject_GetAttrString(object, "value");
  if (!value) return -1;
  *out = sterna_any_none();
  if (value != Py_None) {
    out->type_index = STERNA_POINTER;
    out->v_ptr = PyLong_AsVoidPtr(value);
  }
  Py_DECREF(value);
  return PyErr_Occurred() ? -1 : 0;
}

static int keep(void *object, sterna_any *out, sterna_object **owned) {
  *out = sterna_any_object(object);
  *owned = object;
  return 0;
}

/* A date's item may be an int too, so a number is known by its base: int, float, bool. */
static int is_numpy_number(PyObject *object) {
  PyObject *dtype = PyObject_GetAttrString(object, "dtype");
  PyObject *kind = dtype ? PyObject_GetAttrString(dtype, "kind") : NULL;
  int is_number = -1;
  if (kind)
    is_number = PyUnicode_Check(kind) && PyUnicode_GET_LENGTH(kind) == 1 &&
                strchr("biuf", (int)PyUnicode_READ_CHAR(kind, 0));
  Py_XDECREF(dtype);
  Py_XDECREF(kind);
  return is_number;
}

/* A NumPy scalar: converted through the Python number that it stands for. */
static int convert_numpy_scalar(PyObject *object, ArgumentFrame *frame, Py_ssize_t index) {
  int is_number = is_numpy_number(object), failed = -1;
  if (is_number < 0) return -1;
  PyObject *item = PyObject_CallMethod(object, "item", NULL);
  if (!item) return -1;
  if (is_number && (PyLong_CheckExact(item) || PyFloat_CheckExact(item) || PyBool_Check(item)))
    failed = convert_argument(item, frame, index);
  else
    PyErr_Format(PyExc_TypeError, "a NumPy scalar of type %s cannot be passed to a packed function",
                 Py_TYPE(object)->tp_name);
  Py_DECREF(item);
  return failed;
}

/* Everything that is no plain value: arrays of other libraries, callables, other Python objects. */
static int convert_other(PyObject *object, ArgumentFrame *frame, Py_ssize_t index) {
  sterna_any *out = &frame->values[index];
  sterna_object **owned = &frame->owned[index];
  sterna_object *wrapped;
  sterna_ndarray *array;
  sterna_function *function;
  int foreign = take_dlpack(object, &array);
  if (foreign <= 0) return foreign ? -1 : keep(array, out, owned);
  if (PyObject_TypeCheck(object, python_side.numpy_generic))
    return convert_numpy_scalar(object, frame, index);
  if (PyObject_TypeCheck(object, python_side.void_pointer)) return convert_void_pointer(object, out);
  /* Expressions of graphs are called to build calls of them; they are values all the same. */
  if (PyCallable_Check(object) &&
      !PyObject_HasAttrString((PyObject *)Py_TYPE(object), "passed_as_object"))
    return make_function(object, &function) ? -1 : keep(function, out, owned);
  return wrap_python_object(object, &wrapped) ? -1 : keep(wrapped, out, owned);
}

int convert_argument(PyObject *object, ArgumentFrame *frame, Py_ssize_t index) {
  sterna_any *out = &frame->values[index];
  sterna_object **owned = &frame->owned[index];
  *owned = NULL;
  if (PyObject_TypeCheck(object, &Object_Type)) {
    *out = sterna_any_object(((ObjectWrapper *)object)->handle);
    if (Py_TYPE(object) == &Function_Type) {
      sterna_retain(out->v_obj); /* see function_traverse */
      *owned = out->v_obj;
    }
    return 0;
  }
  if (object == Py_None) {
    *out = sterna_any_none();
    return 0;
  }
  if (PyBool_Check(object)) {
    *out = sterna_any_bool(object == Py_True);
    return 0;
  }
  if (PyLong_Check(object)) return convert_int(object, out);
  if (PyFloat_Check(object)) {
    *out = sterna_any_float(PyFloat_AS_DOUBLE(object));
    return 0;
  }
  if (PyUnicode_Check(object)) {
    if (!PyObject_TypeCheck(object, python_side.dtype)) return convert_text(object, out, owned);
    DLDataType dtype;
    if (parse_dtype(object, &dtype)) return -1;
    *out = sterna_any_dtype(dtype);
    return 0;
  }
  if (PyObject_TypeCheck(object, &Device_Type)) {
    DLDevice device = ((DeviceWrapper *)object)->device;
    *out = sterna_any_device(device.device_type, device.device_id);
    return 0;
  }
  if (PyBytes_Check(object) || PyByteArray_Check(object))
    return convert_bytes(object, out, owned, &frame->bytes[index]);
  if (PyList_Check(object) || PyTuple_Check(object)) return convert_sequence(object, out, owned);
  return convert_other(object, frame, index);
}

int convert_owned(PyObject *object, sterna_any *out) {
  sterna_any value;
  sterna_object *owned;
  sterna_bytes bytes;
  ArgumentFrame frame = {&value, &owned, &bytes, 1};
  if (convert_argument(object, &frame, 0)) return -1;
  if (owned) {
    *out = value; /* already ours */
    return 0;
  }
  if (sterna_any_own(&value, out)) {
    raise_runtime_error();
    return -1;
  }
  return 0;
}

void frame_release(ArgumentFrame *frame, Py_ssize_t converted) {
  for (Py_ssize_t i = 0; i < converted; i++)
    if (frame->owned[i]) sterna_release(frame->owned[i]);
}

/* ---- to Python ---- */

static PyObject *make_list(const sterna_any *value) {
  const sterna_any *items;
  int64_t count;
  if (sterna_as_list(value, &items, &count)) return raise_runtime_error();
  PyObject *list = PyList_New((Py_ssize_t)count);
  if (!list || Py_EnterRecursiveCall(" while a list comes from a packed function")) {
    Py_XDECREF(list);
    return NULL;
  }
  for (int64_t i = 0; list && i < count; i++) {
    PyObject *item = convert_view(&items[i]);
    if (item) PyList_SET_ITEM(list, (Py_ssize_t)i, item);
    else Py_CLEAR(list);
  }
  Py_LeaveRecursiveCall();
  return list;
}

static PyObject *make_shape(const sterna_any *value) {
  const int64_t *dims;
  int64_t ndim;
  if (sterna_as_shape(value, &dims, &ndim)) return raise_runtime_error();
  PyObject *tuple = PyTuple_New((Py_ssize_t)ndim);
  for (int64_t i = 0; tuple && i < ndim; i++) {
    PyObject *dim = PyLong_FromLongLong(dims[i]);
    if (dim) PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, dim);
    else Py_CLEAR(tuple);
  }
  return tuple;
}

static PyObject *make_text(const sterna_any *value) {
  sterna_bytes text;
  if (sterna_as_string(value, &text)) return raise_runtime_error();
  return PyUnicode_DecodeUTF8(text.data, (Py_ssize_t)text.size, NULL);
}

static PyObject *make_bytes(const sterna_any *value) {
  sterna_bytes bytes;
  if (sterna_as_bytes(value, &bytes)) return raise_runtime_error();
  return PyBytes_FromStringAndSize(bytes.data, (Py_ssize_t)bytes.size);
}

/* Takes over a reference to the object. */
static PyObject *make_object(sterna_object *object) {
  switch (object->type_index) {
    case STERNA_NDARRAY: return wrap_object(python_side.ndarray, object);
    case STERNA_FUNCTION_OBJECT: return wrap_function((sterna_function *)object);
    case STERNA_MODULE: {
      sterna_any value = sterna_any_object(object);
      sterna_module *module;
      if (sterna_as_module(&value, &module)) break; /* another runtime's */
      return wrap_module((sterna_module *)object);
    }
    case STERNA_PYTHON_OBJECT: {
      PyObject *kept = Py_NewRef(unwrap_python_object(object));
      sterna_release(object);
      return kept;
    }
    default: break;
  }
  sterna_clear_error();
  return wrap_object(&Object_Type, object);
}

PyObject *convert_view(const sterna_any *value) {
  switch (value->type_index) {
    case STERNA_NONE: Py_RETURN_NONE;
    case STERNA_INT: return PyLong_FromLongLong(value->v_int64);
    case STERNA_BOOL: return PyBool_FromLong(value->v_int64 != 0);
    case STERNA_FLOAT: return PyFloat_FromDouble(value->v_float64);
    case STERNA_POINTER:
      return PyObject_CallFunction((PyObject *)python_side.void_pointer, "N",
                                   PyLong_FromVoidPtr(value->v_ptr));
    case STERNA_DTYPE: return make_dtype(value->v_dtype);
    case STERNA_DEVICE: return make_device(value->v_device);
    case STERNA_C_STRING:
    case STERNA_SMALL_STRING:
    case STERNA_STRING: return make_text(value);
    case STERNA_BYTES_VIEW:
    case STERNA_SMALL_BYTES:
    case STERNA_BYTES: return make_bytes(value);
    case STERNA_LIST: return make_list(value);
    case STERNA_SHAPE: return make_shape(value);
    default: break;
  }
  if (value->type_index < STERNA_OBJECT && value->type_index != STERNA_MOVED_OBJECT) {
    PyErr_Format(PyExc_TypeError, "a value of unknown kind %d came from a packed function",
                 (int)value->type_index);
    return NULL;
  }
  sterna_any owned;
  if (sterna_any_own(value, &owned)) return raise_runtime_error();
  return owned.v_obj ? make_object(owned.v_obj) : Py_NewRef(Py_None);
}

PyObject *convert_result(sterna_any *value) {
  if (value->type_index >= STERNA_OBJECT && value->v_obj && value->type_index != STERNA_LIST &&
      value->type_index != STERNA_SHAPE && value->type_index != STERNA_STRING &&
      value->type_index != STERNA_BYTES)
    return make_object(value->v_obj);
  PyObject *result = convert_view(value);
  sterna_any_release(value);
  return result;
}
