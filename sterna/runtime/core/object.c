/* Python wrappers of runtime objects, devices, and what all wrappers have in common. */
#include "core.h"

#include <structmember.h>

PythonSide python_side;

PyObject *wrap_object(PyTypeObject *type, sterna_object *handle) {
  ObjectWrapper *self = (ObjectWrapper *)type->tp_alloc(type, 0);
  if (!self) {
    sterna_release(handle);
    return NULL;
  }
  self->handle = handle;
  return (PyObject *)self;
}

static void object_dealloc(ObjectWrapper *self) {
  if (self->weak_references) PyObject_ClearWeakRefs((PyObject *)self);
  sterna_release(self->handle);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static Py_hash_t object_hash(ObjectWrapper *self) {
  Py_hash_t hash = (Py_hash_t)((uintptr_t)self->handle >> 4);
  return hash == -1 ? -2 : hash;
}

static PyObject *object_compare(PyObject *self, PyObject *other, int operation) {
  if ((operation != Py_EQ && operation != Py_NE) || !PyObject_TypeCheck(other, &Object_Type))
    Py_RETURN_NOTIMPLEMENTED;
  int same = ((ObjectWrapper *)self)->handle == ((ObjectWrapper *)other)->handle;
  return PyBool_FromLong(same == (operation == Py_EQ));
}

static PyObject *object_same_as(PyObject *self, PyObject *other) {
  if (!PyObject_TypeCheck(other, &Object_Type)) Py_RETURN_FALSE;
  return PyBool_FromLong(((ObjectWrapper *)self)->handle == ((ObjectWrapper *)other)->handle);
}

static PyObject *object_handle(ObjectWrapper *self, void *unused) {
  (void)unused;
  return PyLong_FromVoidPtr(self->handle);
}

static PyObject *object_type_index(ObjectWrapper *self, void *unused) {
  (void)unused;
  return PyLong_FromLong(self->handle->type_index);
}

static PyMethodDef object_methods[] = {
    {"same_as", object_same_as, METH_O, "Whether both are the same runtime object."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef object_getset[] = {
    {"handle", (getter)object_handle, NULL, "The address of the runtime object.", NULL},
    {"type_index", (getter)object_type_index, NULL, "The runtime's number for its kind.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject Object_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sterna.runtime.Object",
    .tp_basicsize = sizeof(ObjectWrapper),
    .tp_weaklistoffset = offsetof(ObjectWrapper, weak_references),
    .tp_dealloc = (destructor)object_dealloc,
    .tp_hash = (hashfunc)object_hash,
    .tp_richcompare = object_compare,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "An object that lives in the runtime.",
    .tp_methods = object_methods,
    .tp_getset = object_getset,
};

/* ---- devices ---- */

static PyObject *device_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  static char *names[] = {"device_type", "device_id", NULL};
  int device_type, device_id = 0;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "i|i", names, &device_type, &device_id)) return NULL;
  DeviceWrapper *self = (DeviceWrapper *)type->tp_alloc(type, 0);
  if (self) self->device = (DLDevice){(DLDeviceType)device_type, device_id};
  return (PyObject *)self;
}

PyObject *make_device(DLDevice device) {
  DeviceWrapper *self = (DeviceWrapper *)python_side.device->tp_alloc(python_side.device, 0);
  if (self) self->device = device;
  return (PyObject *)self;
}

static Py_hash_t device_hash(DeviceWrapper *self) {
  return ((Py_hash_t)self->device.device_type << 16) ^ (self->device.device_id & 0x7fffffff);
}

static PyObject *device_compare(PyObject *a, PyObject *b, int operation) {
  if ((operation != Py_EQ && operation != Py_NE) || !PyObject_TypeCheck(b, &Device_Type))
    Py_RETURN_NOTIMPLEMENTED;
  DLDevice x = ((DeviceWrapper *)a)->device, y = ((DeviceWrapper *)b)->device;
  int same = x.device_type == y.device_type && x.device_id == y.device_id;
  return PyBool_FromLong(same == (operation == Py_EQ));
}

static PyObject *device_repr(DeviceWrapper *self) {
  int type = self->device.device_type, machine = type / STERNA_REMOTE_DEVICES - 1;
  const char *name =
      sterna_device_name((DLDeviceType)(machine < 0 ? type : type % STERNA_REMOTE_DEVICES));
  if (name && machine >= 0)
    return PyUnicode_FromFormat("remote[%d]:%s(%d)", machine, name, (int)self->device.device_id);
  if (!name)
    return PyUnicode_FromFormat("device_type_%d(%d)", (int)self->device.device_type,
                                (int)self->device.device_id);
  return PyUnicode_FromFormat("%s(%d)", name, (int)self->device.device_id);
}

static PyObject *device_exists(DeviceWrapper *self, void *unused) {
  (void)unused;
  return PyBool_FromLong(sterna_device_exists(self->device));
}

static PyObject *device_sync(DeviceWrapper *self, PyObject *unused) {
  (void)unused;
  int failed;
  Py_BEGIN_ALLOW_THREADS;
  failed = sterna_device_sync(self->device);
  Py_END_ALLOW_THREADS;
  if (failed) return raise_runtime_error();
  Py_RETURN_NONE;
}

static PyObject *device_reduce(DeviceWrapper *self, PyObject *unused) {
  (void)unused;
  return Py_BuildValue("O(ii)", Py_TYPE(self), (int)self->device.device_type,
                       (int)self->device.device_id);
}

static PyMemberDef device_members[] = {
    {"device_type", T_INT, offsetof(DeviceWrapper, device.device_type), READONLY, "DLPack's number."},
    {"device_id", T_INT, offsetof(DeviceWrapper, device.device_id), READONLY, "Which of its kind."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef device_getset[] = {
    {"exist", (getter)device_exists, NULL, "Whether the device is there and usable.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef device_methods[] = {
    {"sync", (PyCFunction)device_sync, METH_NOARGS, "Waits until all work on the device is done."},
    {"__reduce__", (PyCFunction)device_reduce, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

PyTypeObject Device_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sterna.runtime._core.Device",
    .tp_basicsize = sizeof(DeviceWrapper),
    .tp_new = device_new,
    .tp_hash = (hashfunc)device_hash,
    .tp_richcompare = device_compare,
    .tp_repr = (reprfunc)device_repr,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .tp_members = device_members,
    .tp_getset = device_getset,
    .tp_methods = device_methods,
};

/* ---- all types ---- */

int ready_types(PyObject *module) {
  NDArray_Type.tp_base = Module_Type.tp_base = Function_Type.tp_base = &Object_Type;
  struct {
    const char *name;
    PyTypeObject *type;
  } all[] = {{"Object", &Object_Type},
             {"PackedFunc", &Function_Type},
             {"NDArray", &NDArray_Type},
             {"Module", &Module_Type},
             {"Device", &Device_Type},
             {"ModelCall", &ModelCall_Type},
             {"DeviceCall", &DeviceCall_Type},
             {"ModelFunction", &ModelFunction_Type},
             {"ResultMemory", &ResultMemory_Type}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    if (PyType_Ready(all[i].type) < 0 ||
        PyModule_AddObjectRef(module, all[i].name, (PyObject *)all[i].type) < 0)
      return -1;
  return 0;
}
