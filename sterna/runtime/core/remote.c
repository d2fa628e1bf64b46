/* Devices of other machines: what is done there is done by an object of Python's, one per machine. */
#include "core.h"

enum { MACHINES = 1024, TYPES = 32 };

typedef struct machine machine;

/* What the runtime is told about one type of device of a machine. */
typedef struct {
  sterna_device_api api;
  machine *machine;
  int type;
} remote_device;

struct machine {
  PyObject *implementation; /* or null */
  remote_device devices[TYPES];
};

/* Made when they are first needed and then kept: arrays refer to their tables. */
static machine *machines[MACHINES];

/* ---- what the runtime calls, with or without the GIL ---- */

/* Takes over the result of a call; -1 with the runtime's error when it failed. */
static int finish(PyObject *result, long long *number) {
  int failed = !result;
  if (result && number) {
    *number = PyLong_AsLongLong(result);
    failed = PyErr_Occurred() != NULL;
  }
  Py_XDECREF(result);
  return failed ? report_python_error() : 0;
}

static PyObject *implementation_of(remote_device *device) {
  if (!device->machine->implementation)
    PyErr_SetString(PyExc_RuntimeError, "the session of the remote device has ended");
  return device->machine->implementation;
}

static int remote_exists(void *self, int32_t device_id) {
  remote_device *device = self;
  long long there = 0;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *implementation = implementation_of(device);
  if (finish(implementation ? PyObject_CallMethod(implementation, "exists", "ii", device->type,
                                                  (int)device_id)
                            : NULL,
             &there))
    sterna_clear_error();
  PyGILState_Release(gil);
  return there == 1;
}

static int remote_allocate(void *self, DLDevice device, size_t bytes, size_t alignment, void **out) {
  remote_device *remote = self;
  long long address = 0;
  (void)alignment;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *implementation = implementation_of(remote);
  int failed = finish(implementation ? PyObject_CallMethod(implementation, "allocate", "iin",
                                                           remote->type, (int)device.device_id,
                                                           (Py_ssize_t)bytes)
                                     : NULL,
                      &address);
  PyGILState_Release(gil);
  if (!failed) *out = (void *)(intptr_t)address;
  return failed;
}

static void remote_release(void *self, DLDevice device, void *block) {
  remote_device *remote = self;
  (void)device;
  if (!interpreter_is_alive()) return;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *type, *value, *traceback, *implementation = remote->machine->implementation;
  PyErr_Fetch(&type, &value, &traceback); /* arrays end while exceptions are under way, too */
  if (implementation && finish(PyObject_CallMethod(implementation, "release", "N",
                                                   PyLong_FromVoidPtr(block)),
                               NULL))
    sterna_clear_error();
  PyErr_Restore(type, value, traceback);
  PyGILState_Release(gil);
}

static int remote_copy(void *self, void *to, DLDevice to_device, const void *from, DLDevice from_device,
                       size_t bytes) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *implementation = implementation_of(self), *result = NULL;
  Py_ssize_t size = (Py_ssize_t)bytes;
  if (implementation && to_device.device_type == kDLCPU)
    result = PyObject_CallMethod(implementation, "copy_from", "NN", PyLong_FromVoidPtr((void *)from),
                                 PyMemoryView_FromMemory(to, size, PyBUF_WRITE));
  else if (implementation && from_device.device_type == kDLCPU)
    result = PyObject_CallMethod(implementation, "copy_to", "NN", PyLong_FromVoidPtr(to),
                                 PyMemoryView_FromMemory((char *)from, size, PyBUF_READ));
  else if (implementation)
    result = PyObject_CallMethod(implementation, "copy_within", "NNn", PyLong_FromVoidPtr(to),
                                 PyLong_FromVoidPtr((void *)from), size);
  int failed = finish(result, NULL);
  PyGILState_Release(gil);
  return failed;
}

static int remote_sync(void *self, DLDevice device) {
  remote_device *remote = self;
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *implementation = implementation_of(remote);
  int failed = finish(implementation ? PyObject_CallMethod(implementation, "sync", "ii", remote->type,
                                                           (int)device.device_id)
                                     : NULL,
                      NULL);
  PyGILState_Release(gil);
  return failed;
}

static const sterna_device_api *find_remote(DLDeviceType type) {
  int number = (int)type / STERNA_REMOTE_DEVICES - 1, own = (int)type % STERNA_REMOTE_DEVICES;
  if (number < 0 || number >= MACHINES || own >= TYPES || !machines[number]) return NULL;
  return machines[number]->implementation ? &machines[number]->devices[own].api : NULL;
}

/* ---- what Python calls ---- */

static machine *make_machine(void) {
  machine *made = PyMem_RawCalloc(1, sizeof *made);
  if (!made) {
    PyErr_NoMemory();
    return NULL;
  }
  for (int type = 0; type < TYPES; type++) {
    remote_device *device = &made->devices[type];
    device->api = (sterna_device_api){device,         remote_exists, remote_allocate,
                                      remote_release, remote_copy,   remote_sync};
    device->machine = made;
    device->type = type;
  }
  return made;
}

static PyObject *add_machine(PyObject *self, PyObject *implementation) {
  (void)self;
  for (int number = 0; number < MACHINES; number++) {
    if (!machines[number] && !(machines[number] = make_machine())) return NULL;
    if (machines[number]->implementation) continue;
    machines[number]->implementation = Py_NewRef(implementation);
    sterna_set_remote_devices(find_remote);
    return PyLong_FromLong(number);
  }
  PyErr_Format(PyExc_RuntimeError, "there are %d remote sessions already; close some", MACHINES);
  return NULL;
}

static PyObject *remove_machine(PyObject *self, PyObject *args) {
  int number;
  (void)self;
  if (!PyArg_ParseTuple(args, "i", &number)) return NULL;
  if (number < 0 || number >= MACHINES || !machines[number]) Py_RETURN_NONE;
  Py_CLEAR(machines[number]->implementation);
  Py_RETURN_NONE;
}

/* An array's memory that a Python object stands for: it ends with the array. */
static void end_remote_memory(DLManagedTensorVersioned *managed) {
  drop_python_reference(managed->manager_ctx);
  PyMem_RawFree(managed->dl_tensor.shape);
  PyMem_RawFree(managed);
}

static PyObject *array_over(PyObject *self, PyObject *args) {
  PyObject *shape_object, *dtype_name, *device, *owner;
  unsigned long long address;
  DLDataType dtype;
  sterna_ndarray *array;
  int32_t ndim;
  (void)self;
  if (!PyArg_ParseTuple(args, "OUO!KO", &shape_object, &dtype_name, &Device_Type, &device, &address,
                        &owner) ||
      parse_dtype(dtype_name, &dtype))
    return NULL;
  int64_t *shape = read_shape(shape_object, &ndim);
  if (!shape) return NULL;
  DLManagedTensorVersioned *managed = PyMem_RawCalloc(1, sizeof *managed);
  int64_t *kept = PyMem_RawCalloc((size_t)ndim + 1, sizeof *kept);
  if (!managed || !kept) {
    PyMem_RawFree(managed);
    PyMem_RawFree(kept);
    PyMem_Free(shape);
    return PyErr_NoMemory();
  }
  for (int32_t i = 0; i < ndim; i++) kept[i] = shape[i];
  PyMem_Free(shape);
  managed->version = (DLPackVersion){DLPACK_MAJOR_VERSION, DLPACK_MINOR_VERSION};
  managed->manager_ctx = Py_NewRef(owner);
  managed->deleter = end_remote_memory;
  managed->dl_tensor = (DLTensor){(void *)(uintptr_t)address, ((DeviceWrapper *)device)->device, ndim,
                                  dtype, kept, NULL, 0};
  if (sterna_ndarray_from_dlpack_versioned(managed, &array)) {
    end_remote_memory(managed);
    return raise_runtime_error();
  }
  return wrap_object(python_side.ndarray, &array->header);
}

PyMethodDef remote_functions[] = {
    {"add_machine", add_machine, METH_O, NULL},
    {"remove_machine", remove_machine, METH_VARARGS, NULL},
    {"array_over", array_over, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};
