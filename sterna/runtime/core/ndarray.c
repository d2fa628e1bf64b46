/* Arrays as Python objects. */
#include "core.h"

static sterna_ndarray *array_of(PyObject *self) {
  return (sterna_ndarray *)((ObjectWrapper *)self)->handle;
}

static PyObject *numbers(const int64_t *values, int32_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (int32_t i = 0; tuple && i < count; i++) {
    PyObject *number = PyLong_FromLongLong(values[i]);
    if (number) PyTuple_SET_ITEM(tuple, i, number);
    else Py_CLEAR(tuple);
  }
  return tuple;
}

static PyObject *get_shape(PyObject *self, void *unused) {
  (void)unused;
  return numbers(array_of(self)->tensor.shape, array_of(self)->tensor.ndim);
}

static PyObject *get_strides(PyObject *self, void *unused) {
  (void)unused;
  return numbers(array_of(self)->tensor.strides, array_of(self)->tensor.ndim);
}

static PyObject *get_ndim(PyObject *self, void *unused) {
  (void)unused;
  return PyLong_FromLong(array_of(self)->tensor.ndim);
}

static PyObject *get_dtype(PyObject *self, void *unused) {
  (void)unused;
  return make_dtype(array_of(self)->tensor.dtype);
}

static PyObject *get_device(PyObject *self, void *unused) {
  (void)unused;
  return make_device(array_of(self)->tensor.device);
}

static PyObject *get_read_only(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(sterna_ndarray_is_read_only(array_of(self)));
}

static PyObject *get_sole(PyObject *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(sterna_ndarray_is_sole(array_of(self)));
}

static PyObject *get_nbytes(PyObject *self, void *unused) {
  size_t bytes;
  (void)unused;
  if (sterna_tensor_bytes(&array_of(self)->tensor, &bytes)) return raise_runtime_error();
  return PyLong_FromSize_t(bytes);
}

static PyObject *data_ptr(PyObject *self, PyObject *unused) {
  DLTensor *t = &array_of(self)->tensor;
  (void)unused;
  return PyLong_FromVoidPtr((char *)t->data + t->byte_offset);
}

/* ---- copies; the GIL is free while bytes move ---- */

static int refuse_read_only(const sterna_ndarray *array) {
  if (!sterna_ndarray_is_read_only(array)) return 0;
  PyErr_SetString(PyExc_ValueError, "the array is read-only");
  return -1;
}

static PyObject *copy_from_buffer(PyObject *self, PyObject *source) {
  sterna_ndarray *array = array_of(self);
  Py_buffer view;
  int failed;
  if (refuse_read_only(array) || PyObject_GetBuffer(source, &view, PyBUF_C_CONTIGUOUS) < 0) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  failed = sterna_tensor_copy_from_memory(&array->tensor, view.buf, (size_t)view.len);
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&view);
  if (failed) return raise_runtime_error();
  Py_RETURN_NONE;
}

static PyObject *copy_to_buffer(PyObject *self, PyObject *target) {
  Py_buffer view;
  int failed;
  if (PyObject_GetBuffer(target, &view, PyBUF_C_CONTIGUOUS | PyBUF_WRITABLE) < 0) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  failed = sterna_tensor_copy_to_memory(&array_of(self)->tensor, view.buf, (size_t)view.len);
  Py_END_ALLOW_THREADS;
  PyBuffer_Release(&view);
  if (failed) return raise_runtime_error();
  Py_RETURN_NONE;
}

static PyObject *copy_from_array(PyObject *self, PyObject *source) {
  sterna_ndarray *array = array_of(self);
  int failed;
  if (!PyObject_TypeCheck(source, &NDArray_Type)) {
    PyErr_Format(PyExc_TypeError, "expected an NDArray, got %s", Py_TYPE(source)->tp_name);
    return NULL;
  }
  if (refuse_read_only(array)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  failed = sterna_tensor_copy(&array_of(source)->tensor, &array->tensor);
  Py_END_ALLOW_THREADS;
  if (failed) return raise_runtime_error();
  Py_RETURN_NONE;
}

/* ---- making arrays ---- */

int64_t *read_shape(PyObject *object, int32_t *ndim) {
  PyObject *items = PySequence_Tuple(object); /* a list may change while it is read */
  if (!items) {
    if (PyErr_ExceptionMatches(PyExc_TypeError))
      PyErr_Format(PyExc_TypeError, "a shape is a sequence of integers, not %s",
                   Py_TYPE(object)->tp_name);
    return NULL;
  }
  Py_ssize_t count = PyTuple_GET_SIZE(items);
  int64_t *shape = PyMem_Malloc(((size_t)count + 1) * sizeof *shape);
  if (!shape) PyErr_NoMemory();
  for (Py_ssize_t i = 0; shape && i < count; i++) {
    PyObject *number = PyNumber_Index(PyTuple_GET_ITEM(items, i));
    if (number) shape[i] = PyLong_AsLongLong(number);
    Py_XDECREF(number);
    if (PyErr_Occurred()) {
      PyMem_Free(shape);
      shape = NULL;
    }
  }
  Py_DECREF(items);
  *ndim = (int32_t)count;
  return shape;
}

static PyObject *empty(PyObject *module, PyObject *args) {
  PyObject *shape_object, *dtype_name, *device;
  DLDataType dtype;
  sterna_ndarray *array;
  int32_t ndim;
  (void)module;
  if (!PyArg_ParseTuple(args, "OUO!", &shape_object, &dtype_name, &Device_Type, &device) ||
      parse_dtype(dtype_name, &dtype))
    return NULL;
  int64_t *shape = read_shape(shape_object, &ndim);
  if (!shape) return NULL;
  int failed = sterna_ndarray_empty(shape, ndim, dtype, ((DeviceWrapper *)device)->device, &array);
  PyMem_Free(shape);
  return failed ? raise_runtime_error() : wrap_object(python_side.ndarray, &array->header);
}

static PyObject *view(PyObject *self, PyObject *args) {
  PyObject *shape_object, *dtype_name;
  unsigned long long offset;
  DLDataType dtype;
  sterna_ndarray *array;
  int32_t ndim;
  if (!PyArg_ParseTuple(args, "OUK", &shape_object, &dtype_name, &offset) ||
      parse_dtype(dtype_name, &dtype))
    return NULL;
  int64_t *shape = read_shape(shape_object, &ndim);
  if (!shape) return NULL;
  int failed = sterna_ndarray_view(array_of(self), shape, ndim, dtype, offset, &array);
  PyMem_Free(shape);
  if (failed) return raise_runtime_error();
  if (note_view_of(array_of(self), array)) {
    sterna_release(array);
    return raise_runtime_error();
  }
  return wrap_object(python_side.ndarray, &array->header);
}

static PyObject *from_dlpack(PyObject *module, PyObject *object) {
  sterna_ndarray *array;
  (void)module;
  if (PyObject_TypeCheck(object, &NDArray_Type)) return Py_NewRef(object);
  int failed = take_dlpack(object, &array);
  if (failed > 0)
    PyErr_Format(PyExc_TypeError, "%s is no array that speaks DLPack", Py_TYPE(object)->tp_name);
  return failed ? NULL : wrap_object(python_side.ndarray, &array->header);
}

static PyMethodDef methods[] = {
    {"data_ptr", data_ptr, METH_NOARGS, "The address of the first element."},
    {"__dlpack__", (PyCFunction)(void (*)(void))ndarray_dlpack, METH_FASTCALL | METH_KEYWORDS,
     "A DLPack capsule that shares the array's memory."},
    {"__dlpack_device__", ndarray_dlpack_device, METH_NOARGS, "DLPack's device type and id."},
    {"_copy_from_buffer", copy_from_buffer, METH_O, NULL},
    {"_copy_to_buffer", copy_to_buffer, METH_O, NULL},
    {"_copy_from_array", copy_from_array, METH_O, NULL},
    {"_view", view, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"shape", get_shape, NULL, "The extents, a tuple of int.", NULL},
    {"strides", get_strides, NULL, "The distance between neighbours, in elements.", NULL},
    {"ndim", get_ndim, NULL, "The number of dimensions.", NULL},
    {"dtype", get_dtype, NULL, "The element type's name.", NULL},
    {"device", get_device, NULL, "Where the array lives.", NULL},
    {"nbytes", get_nbytes, NULL, "The size in bytes.", NULL},
    {"is_read_only", get_read_only, NULL, "Whether its owner forbids writing.", NULL},
    {"is_sole", get_sole, NULL, "Whether nobody else holds its memory, which is the runtime's own.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject NDArray_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sterna.runtime._core.NDArray",
    .tp_basicsize = sizeof(ObjectWrapper),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_methods = methods,
    .tp_getset = getset,
};

PyMethodDef ndarray_functions[] = {
    {"empty", empty, METH_VARARGS, NULL},
    {"from_dlpack", from_dlpack, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};
