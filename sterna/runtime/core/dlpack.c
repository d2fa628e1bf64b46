/* Arrays in and out of other libraries without a copy. */
#include "core.h"

#include <string.h>

/* DLPack's table of C functions, by which libraries exchange arrays without calls into Python. */
typedef struct {
  struct {
    DLPackVersion version;
    void *previous;
  } header;
  int (*allocate)(DLTensor *prototype, DLManagedTensorVersioned **out, void *context,
                  void (*set_error)(void *context, const char *kind, const char *message));
  int (*from_python)(void *object, DLManagedTensorVersioned **out);
  int (*to_python)(DLManagedTensorVersioned *tensor, void **out);
  int (*view_python)(void *object, DLTensor *out);
  int (*current_stream)(DLDeviceType type, int32_t id, void **out);
} exchange_api;

#define EXCHANGE_ATTRIBUTE "__dlpack_c_exchange_api__"
#define EXCHANGE_CAPSULE "dlpack_exchange_api"

/* ---- in ---- */

/* How the objects of a type give their arrays. */
typedef struct {
  PyTypeObject *type;
  const exchange_api *api; /* or null */
  int has_method;
} exporter;

static int has_attribute(PyTypeObject *type, const char *name, PyObject **out) {
  *out = PyObject_GetAttrString((PyObject *)type, name);
  if (*out) return 1;
  if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
  PyErr_Clear();
  return 0;
}

static int learn(PyTypeObject *type, exporter *out) {
  PyObject *found;
  *out = (exporter){type, NULL, 0};
  int has = has_attribute(type, "__dlpack__", &found);
  if (has < 0) return -1;
  out->has_method = has;
  Py_XDECREF(found);
  has = has_attribute(type, EXCHANGE_ATTRIBUTE, &found);
  if (has < 0) return -1;
  if (has && PyCapsule_IsValid(found, EXCHANGE_CAPSULE)) {
    const exchange_api *api = PyCapsule_GetPointer(found, EXCHANGE_CAPSULE);
    if (api->header.version.major == DLPACK_MAJOR_VERSION && api->from_python) out->api = api;
  }
  Py_XDECREF(found);
  return 0;
}

/* Remembers the last few types; asking a type anew costs more than the exchange itself. */
static int find_exporter(PyTypeObject *type, exporter *out) {
  enum { REMEMBERED = 16 };
  static exporter known[REMEMBERED];
  static int next;
  for (int i = 0; i < REMEMBERED; i++)
    if (known[i].type == type) {
      *out = known[i];
      return 0;
    }
  if (learn(type, out)) return -1;
  PyTypeObject *forgotten = known[next].type;
  Py_INCREF(type);
  known[next] = *out;
  next = (next + 1) % REMEMBERED;
  Py_XDECREF(forgotten);
  return 0;
}

static int take_capsule(PyObject *capsule, sterna_ndarray **out) {
  int failed;
  if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    failed = sterna_ndarray_from_dlpack_versioned(PyCapsule_GetPointer(capsule, "dltensor_versioned"),
                                                  out);
    if (!failed) PyCapsule_SetName(capsule, "used_dltensor_versioned");
  } else if (PyCapsule_IsValid(capsule, "dltensor")) {
    failed = sterna_ndarray_from_dlpack(PyCapsule_GetPointer(capsule, "dltensor"), out);
    if (!failed) PyCapsule_SetName(capsule, "used_dltensor");
  } else {
    PyErr_SetString(PyExc_ValueError, "expected a DLPack capsule that has not been used yet");
    return -1;
  }
  if (failed) raise_runtime_error();
  return failed;
}

/* The stream in which the taker of an object's array will use it, by DLPack's numbers; 0: not asked. */
static int find_taking_stream(PyObject *object, long long *out) {
  int type, id;
  void *stream = NULL;
  *out = 0;
  PyObject *pair = PyObject_CallMethod(object, "__dlpack_device__", NULL);
  if (!pair) {
    if (!PyErr_ExceptionMatches(PyExc_AttributeError)) return -1;
    PyErr_Clear(); /* an exporter that is on the host */
    return 0;
  }
  int failed = !PyTuple_Check(pair) || !PyArg_ParseTuple(pair, "ii", &type, &id);
  Py_DECREF(pair);
  if (failed) {
    PyErr_Clear();
    return 0;
  }
  DLDevice device = {(DLDeviceType)type, id};
  if (type == kDLCPU || !has_streams(device)) return 0;
  if (get_stream(device, &stream)) {
    raise_runtime_error();
    return -1;
  }
  *out = stream ? (long long)(intptr_t)stream : 1;
  return 0;
}

static PyObject *call_method(PyObject *object, long long stream) {
  static PyObject *method, *names, *all_names, *version;
  if (!method) {
    version = Py_BuildValue("(ii)", DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION);
    names = Py_BuildValue("(s)", "max_version");
    all_names = Py_BuildValue("(ss)", "max_version", "stream");
    method = PyUnicode_InternFromString("__dlpack__");
    if (!method || !names || !all_names || !version) return NULL;
  }
  PyObject *number = stream ? PyLong_FromLongLong(stream) : Py_NewRef(Py_None);
  if (!number) return NULL;
  PyObject *args[] = {object, version, number};
  PyObject *capsule = PyObject_VectorcallMethod(method, args, 1 | PY_VECTORCALL_ARGUMENTS_OFFSET,
                                                stream ? all_names : names);
  if (!capsule && PyErr_ExceptionMatches(PyExc_TypeError)) {
    PyErr_Clear(); /* an exporter from before versions */
    capsule = stream ? PyObject_CallMethod(object, "__dlpack__", "O", number)
                     : PyObject_CallMethodNoArgs(object, method);
  }
  Py_DECREF(number);
  return capsule;
}

static int take_through_method(PyObject *object, sterna_ndarray **out) {
  long long stream;
  if (find_taking_stream(object, &stream)) return -1;
  PyObject *capsule = call_method(object, stream);
  if (!capsule) return -1;
  int failed = take_capsule(capsule, out);
  Py_DECREF(capsule);
  return failed;
}

/* Lets this thread's stream of a device wait for the one that a library works in. */
static int wait_for_library(const exchange_api *api, DLDevice device) {
  void *own = NULL, *theirs = NULL;
  if (device.device_type == kDLCPU || !api->current_stream || !has_streams(device)) return 0;
  if (api->current_stream(device.device_type, device.device_id, &theirs)) return -1;
  if (get_stream(device, &own) || wait_for_stream(device, own, theirs)) {
    raise_runtime_error();
    return -1;
  }
  return 0;
}

static int take_through_api(const exporter *how, PyObject *object, sterna_ndarray **out) {
  DLManagedTensorVersioned *tensor = NULL;
  if (how->api->from_python(object, &tensor)) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_BufferError, "%s does not export itself", Py_TYPE(object)->tp_name);
    return -1;
  }
  /* PyTorch's C function does not look whether a tensor is to be conjugated; its method does. */
  if (tensor->dl_tensor.dtype.code == kDLComplex && how->has_method) {
    if (tensor->deleter) tensor->deleter(tensor);
    return take_through_method(object, out);
  }
  if (wait_for_library(how->api, tensor->dl_tensor.device)) {
    if (tensor->deleter) tensor->deleter(tensor);
    return -1;
  }
  if (sterna_ndarray_from_dlpack_versioned(tensor, out) == 0) return 0;
  raise_runtime_error(); /* first: the deleter may run code that sets errors of its own */
  if (tensor->deleter) tensor->deleter(tensor);
  return -1;
}

int take_dlpack(PyObject *object, sterna_ndarray **out) {
  exporter how;
  if (PyType_Check(object)) return 1;
  if (PyCapsule_CheckExact(object)) {
    const char *name = PyCapsule_GetName(object);
    return name && strstr(name, "dltensor") ? take_capsule(object, out) : 1;
  }
  if (find_exporter(Py_TYPE(object), &how)) return -1;
  if (how.api) return take_through_api(&how, object, out);
  return how.has_method ? take_through_method(object, out) : 1;
}

int view_foreign(PyObject *object, DLTensor *out) {
  exporter how;
  if (find_exporter(Py_TYPE(object), &how)) {
    PyErr_Clear();
    return 0;
  }
  if (!how.api || !how.api->view_python) return 0;
  if (how.api->view_python(object, out) == 0 && out->dtype.code != kDLComplex) return 1;
  PyErr_Clear(); /* taking it in the usual way says what is wrong */
  return 0;
}

int stream_of_foreign(PyObject *object, DLDevice device, void **out) {
  exporter how;
  if (find_exporter(Py_TYPE(object), &how) == 0 && how.api && how.api->current_stream &&
      how.api->current_stream(device.device_type, device.device_id, out) == 0)
    return 1;
  PyErr_Clear();
  return 0;
}

/* ---- out ---- */

static void end_unused_capsule(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, "dltensor")) {
    DLManagedTensor *tensor = PyCapsule_GetPointer(capsule, "dltensor");
    tensor->deleter(tensor);
  } else if (PyCapsule_IsValid(capsule, "dltensor_versioned")) {
    DLManagedTensorVersioned *tensor = PyCapsule_GetPointer(capsule, "dltensor_versioned");
    tensor->deleter(tensor);
  }
}

typedef struct {
  int versioned, copy;
} export_wishes;

static PyObject *export_capsule(sterna_ndarray *array, export_wishes wishes) {
  DLManagedTensorVersioned *with_version;
  DLManagedTensor *plain;
  PyObject *capsule;
  if (wishes.versioned) {
    if (sterna_ndarray_to_dlpack_versioned(array, &with_version)) return raise_runtime_error();
    if (wishes.copy) with_version->flags |= DLPACK_FLAG_BITMASK_IS_COPIED;
    capsule = PyCapsule_New(with_version, "dltensor_versioned", end_unused_capsule);
    if (!capsule) with_version->deleter(with_version);
  } else {
    if (sterna_ndarray_to_dlpack(array, &plain)) return raise_runtime_error();
    capsule = PyCapsule_New(plain, "dltensor", end_unused_capsule);
    if (!capsule) plain->deleter(plain);
  }
  return capsule;
}

static int read_pair(PyObject *value, const char *name, int *first, int *second) {
  if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != 2) {
    PyErr_Format(PyExc_TypeError, "%s is a pair of integers, not %R", name, value);
    return -1;
  }
  return PyArg_ParseTuple(value, "ii", first, second) ? 0 : -1;
}

static int read_device_wish(PyObject *value, const sterna_ndarray *array) {
  int type, id;
  if (value == Py_None) return 0;
  if (read_pair(value, "dl_device", &type, &id)) return -1;
  if (type == (int)array->tensor.device.device_type && id == array->tensor.device.device_id) return 0;
  PyErr_SetString(PyExc_BufferError, "the array can only be exported on its own device; copy it first");
  return -1;
}

/* Lets the stream of whoever takes an array wait for what this thread has done; -1 asks for nothing. */
static int read_stream_wish(PyObject *value, DLDevice device) {
  void *own = NULL;
  if (value == Py_None && !has_streams(device)) return 0;
  if (device.device_type == kDLCPU) {
    PyErr_SetString(PyExc_BufferError, "an array on the CPU has no stream");
    return -1;
  }
  long long stream = value == Py_None ? 1 : PyLong_AsLongLong(value);
  if (stream == -1) return PyErr_Occurred() ? -1 : 0;
  void *theirs = stream == 1 ? NULL : (void *)(intptr_t)stream;
  if (get_stream(device, &own) || wait_for_stream(device, theirs, own)) {
    raise_runtime_error();
    return -1;
  }
  return 0;
}

static int read_wish(PyObject *name, PyObject *value, const sterna_ndarray *array, export_wishes *out) {
  if (PyUnicode_CompareWithASCIIString(name, "max_version") == 0) {
    int major = 0, minor = 0;
    if (value == Py_None) return 0;
    if (read_pair(value, "max_version", &major, &minor)) return -1;
    out->versioned = major >= 1;
  } else if (PyUnicode_CompareWithASCIIString(name, "copy") == 0) {
    out->copy = PyObject_IsTrue(value);
    return out->copy < 0 ? -1 : 0;
  } else if (PyUnicode_CompareWithASCIIString(name, "dl_device") == 0) {
    return read_device_wish(value, array);
  } else if (PyUnicode_CompareWithASCIIString(name, "stream") == 0) {
    return read_stream_wish(value, array->tensor.device);
  } else {
    PyErr_Format(PyExc_TypeError, "__dlpack__() got an unexpected keyword argument '%U'", name);
    return -1;
  }
  return 0;
}

sterna_ndarray *copy_array(sterna_ndarray *array) {
  DLTensor *t = &array->tensor;
  sterna_ndarray *copy;
  if (sterna_ndarray_empty(t->shape, t->ndim, t->dtype, t->device, &copy)) return NULL;
  if (sterna_tensor_copy(t, &copy->tensor)) {
    sterna_release(copy);
    return NULL;
  }
  return copy;
}

PyObject *ndarray_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names) {
  sterna_ndarray *array = (sterna_ndarray *)((ObjectWrapper *)self)->handle;
  export_wishes wishes = {0, 0};
  if (nargs) {
    PyErr_SetString(PyExc_TypeError, "__dlpack__() takes keyword arguments only");
    return NULL;
  }
  for (Py_ssize_t i = 0; names && i < PyTuple_GET_SIZE(names); i++)
    if (read_wish(PyTuple_GET_ITEM(names, i), args[i], array, &wishes)) return NULL;
  sterna_ndarray *exported = wishes.copy ? copy_array(array) : share_array(array);
  if (!exported) return raise_runtime_error();
  PyObject *capsule = export_capsule(exported, wishes);
  sterna_release(exported);
  return capsule;
}

PyObject *ndarray_dlpack_device(PyObject *self, PyObject *unused) {
  DLDevice device = ((sterna_ndarray *)((ObjectWrapper *)self)->handle)->tensor.device;
  (void)unused;
  return Py_BuildValue("(ii)", (int)device.device_type, (int)device.device_id);
}

/* ---- the C table that we offer ---- */

static sterna_ndarray *array_in(void *object) {
  if (PyObject_TypeCheck((PyObject *)object, &NDArray_Type))
    return (sterna_ndarray *)((ObjectWrapper *)object)->handle;
  PyErr_SetString(PyExc_TypeError, "expected an NDArray");
  return NULL;
}

static int offer_from_python(void *object, DLManagedTensorVersioned **out) {
  sterna_ndarray *array = array_in(object);
  if (!array) return -1;
  sterna_ndarray *exported = share_array(array);
  int failed = !exported || sterna_ndarray_to_dlpack_versioned(exported, out);
  sterna_release(exported);
  if (failed) raise_runtime_error();
  return failed ? -1 : 0;
}

static int offer_to_python(DLManagedTensorVersioned *tensor, void **out) {
  sterna_ndarray *array;
  if (sterna_ndarray_from_dlpack_versioned(tensor, &array)) {
    raise_runtime_error();
    return -1;
  }
  *out = wrap_object(python_side.ndarray, &array->header);
  return *out ? 0 : -1;
}

static int offer_view(void *object, DLTensor *out) {
  sterna_ndarray *array = array_in(object);
  if (!array) return -1;
  *out = array->tensor;
  return 0;
}

static int offer_stream(DLDeviceType type, int32_t id, void **out) {
  *out = NULL;
  if (get_stream((DLDevice){type, id}, out) == 0) return 0;
  raise_runtime_error();
  return -1;
}

/* May be called without the GIL. */
static int offer_allocate(DLTensor *prototype, DLManagedTensorVersioned **out, void *context,
                          void (*set_error)(void *context, const char *kind, const char *message)) {
  sterna_ndarray *array;
  if (sterna_ndarray_empty(prototype->shape, prototype->ndim, prototype->dtype, prototype->device,
                           &array) == 0) {
    int failed = sterna_ndarray_to_dlpack_versioned(array, out);
    sterna_release(array);
    if (!failed) return 0;
  }
  if (set_error) set_error(context, sterna_last_error_kind(), sterna_last_error());
  return -1;
}

static const exchange_api offered = {{{1, 3}, NULL}, offer_allocate, offer_from_python,
                                     offer_to_python, offer_view,    offer_stream};

int add_exchange_api(void) {
  PyObject *capsule = PyCapsule_New((void *)&offered, EXCHANGE_CAPSULE, NULL);
  int failed = !capsule || PyDict_SetItemString(NDArray_Type.tp_dict, EXCHANGE_ATTRIBUTE, capsule) < 0;
  Py_XDECREF(capsule);
  return failed ? -1 : 0;
}
