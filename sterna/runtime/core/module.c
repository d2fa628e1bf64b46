/* Modules as Python objects, the thread count, and the extension itself. */
#include "core.h"

#include <string.h>

static sterna_module *module_of(PyObject *self) {
  return (sterna_module *)((ObjectWrapper *)self)->handle;
}

/* A module made in Python: its class, and the object that knows its functions and all else. */
typedef struct {
  PyTypeObject *type;
  PyObject *implementation;
} python_module;

static int find_in_python(sterna_module *module, void *self, const char *name, sterna_function **out);

static void end_python_module(void *self) {
  python_module *made = self;
  drop_python_reference(made->implementation);
  drop_python_reference(made->type);
  PyMem_RawFree(made);
}

static const sterna_module_type compiled_type = {"compiled", find_in_python, end_python_module};

static python_module *made_in_python(sterna_module *module) {
  return sterna_module_type_of(module) == &compiled_type ? sterna_module_self(module) : NULL;
}

PyObject *wrap_module(sterna_module *module) {
  python_module *made = made_in_python(module);
  return wrap_object(made ? made->type : python_side.module, (sterna_object *)module);
}

static PyObject *get_implementation(PyObject *self, void *unused) {
  (void)unused;
  python_module *made = made_in_python(module_of(self));
  return Py_NewRef(made ? made->implementation : Py_None);
}

static PyObject *get_kind(PyObject *self, void *unused) {
  (void)unused;
  return PyUnicode_FromString(sterna_module_kind(module_of(self)));
}

static PyObject *get_function(PyObject *self, PyObject *args) {
  const char *name;
  int query_imports, failed;
  sterna_function *function = NULL;
  if (!PyArg_ParseTuple(args, "sp", &name, &query_imports)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  failed = sterna_module_get_function(module_of(self), name, query_imports, &function);
  Py_END_ALLOW_THREADS;
  if (failed) return raise_runtime_error();
  if (!function) Py_RETURN_NONE;
  return wrap_function(function);
}

static PyObject *import_module(PyObject *self, PyObject *imported) {
  if (!PyObject_TypeCheck(imported, &Module_Type)) {
    PyErr_Format(PyExc_TypeError, "expected a Module, got %s", Py_TYPE(imported)->tp_name);
    return NULL;
  }
  if (sterna_module_import(module_of(self), module_of(imported))) return raise_runtime_error();
  Py_RETURN_NONE;
}

static PyObject *clear_imports(PyObject *self, PyObject *unused) {
  (void)unused;
  if (sterna_module_clear_imports(module_of(self))) return raise_runtime_error();
  Py_RETURN_NONE;
}

static PyObject *get_imports(PyObject *self, void *unused) {
  (void)unused;
  PyObject *list = PyList_New(0);
  size_t count = sterna_module_import_count(module_of(self));
  for (size_t i = 0; list && i < count; i++) {
    sterna_module *imported;
    if (sterna_module_get_import(module_of(self), i, &imported)) break; /* it shrank meanwhile */
    PyObject *item = wrap_module(imported);
    if (!item || PyList_Append(list, item) < 0) Py_CLEAR(list);
    Py_XDECREF(item);
  }
  return list;
}

static PyMethodDef methods[] = {
    {"_get_function", get_function, METH_VARARGS, NULL},
    {"import_module", import_module, METH_O, "Adds a module whose functions this one may use."},
    {"clear_imports", clear_imports, METH_NOARGS, "Removes all imports."},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef getset[] = {
    {"kind", get_kind, NULL, "What sort of module it is: library, table, system, ...", NULL},
    {"imported_modules", get_imports, NULL, "The imported modules, a list.", NULL},
    {"_implementation", get_implementation, NULL, "What make_module was given, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

PyTypeObject Module_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sterna.runtime._core.Module",
    .tp_basicsize = sizeof(ObjectWrapper),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_methods = methods,
    .tp_getset = getset,
};

/* ---- modules made in Python: an object finds functions by name ---- */

/* What it gave: the address of code, a packed function, or None. */
static int take_found(sterna_module *module, PyObject *found, sterna_function **out) {
  if (found == Py_None) return 0;
  if (Py_TYPE(found) == &Function_Type) {
    *out = (sterna_function *)((ObjectWrapper *)found)->handle;
    sterna_retain(*out);
    return 0;
  }
  void *pointer = PyLong_AsVoidPtr(found);
  if (PyErr_Occurred()) return report_python_error();
  sterna_call call;
  memcpy(&call, &pointer, sizeof call);
  return sterna_module_function(module, call, NULL, out);
}

static int find_in_python(sterna_module *module, void *self, const char *name,
                          sterna_function **out) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *found = PyObject_CallMethod(((python_module *)self)->implementation, "find", "s", name);
  int failed = found ? take_found(module, found, out) : report_python_error();
  Py_XDECREF(found);
  PyGILState_Release(gil);
  return failed;
}

static PyObject *make_module(PyObject *self, PyObject *args) {
  PyTypeObject *type;
  PyObject *implementation;
  sterna_module *module;
  (void)self;
  if (!PyArg_ParseTuple(args, "O!O", &PyType_Type, &type, &implementation)) return NULL;
  if (!PyType_IsSubtype(type, &Module_Type)) {
    PyErr_SetString(PyExc_TypeError, "expected a class derived from Module");
    return NULL;
  }
  python_module *made = PyMem_RawMalloc(sizeof *made);
  if (!made) return PyErr_NoMemory();
  if (sterna_module_create(&compiled_type, made, &module)) {
    PyMem_RawFree(made);
    return raise_runtime_error();
  }
  Py_INCREF(type);
  *made = (python_module){type, Py_NewRef(implementation)};
  return wrap_module(module);
}

/* ---- modules over symbols that a Python callable finds ---- */

static void *find_symbol_in_python(void *self, const char *symbol) {
  PyGILState_STATE gil = PyGILState_Ensure();
  PyObject *found = PyObject_CallFunction((PyObject *)self, "s", symbol);
  void *address = found && found != Py_None ? PyLong_AsVoidPtr(found) : NULL;
  if (PyErr_Occurred()) PyErr_WriteUnraisable((PyObject *)self);
  Py_XDECREF(found);
  PyGILState_Release(gil);
  return address;
}

static PyObject *module_from_symbols(PyObject *self, PyObject *args) {
  const char *name;
  PyObject *find;
  sterna_module *module;
  (void)self;
  if (!PyArg_ParseTuple(args, "sO", &name, &find)) return NULL;
  Py_INCREF(find);
  if (sterna_module_from_symbols(name, find_symbol_in_python, find, drop_python_reference, &module)) {
    Py_DECREF(find);
    return raise_runtime_error();
  }
  return wrap_module(module);
}

/* ---- functions ---- */

static PyObject *load_module(PyObject *self, PyObject *args) {
  PyObject *path;
  sterna_module *module;
  int failed;
  (void)self;
  if (!PyArg_ParseTuple(args, "O&", PyUnicode_FSConverter, &path)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  failed = sterna_module_load(PyBytes_AS_STRING(path), &module);
  Py_END_ALLOW_THREADS;
  Py_DECREF(path);
  return failed ? raise_runtime_error() : wrap_module(module);
}

static PyObject *load_extension(PyObject *self, PyObject *args) {
  PyObject *path;
  const char *init;
  int failed;
  (void)self;
  if (!PyArg_ParseTuple(args, "O&z", PyUnicode_FSConverter, &path, &init)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  failed = sterna_load_extension(PyBytes_AS_STRING(path), init);
  Py_END_ALLOW_THREADS;
  Py_DECREF(path);
  if (failed) return raise_runtime_error();
  Py_RETURN_NONE;
}

static PyObject *system_lib(PyObject *self, PyObject *prefix) {
  sterna_module *module;
  const char *text = read_name(prefix);
  (void)self;
  if (!text) return NULL;
  return sterna_system_module(text, &module) ? raise_runtime_error() : wrap_module(module);
}

static PyObject *num_threads(PyObject *self, PyObject *unused) {
  int32_t threads;
  (void)self;
  (void)unused;
  return sterna_num_threads(&threads) ? raise_runtime_error() : PyLong_FromLong(threads);
}

static PyObject *set_num_threads(PyObject *self, PyObject *args) {
  int threads, failed;
  (void)self;
  if (!PyArg_ParseTuple(args, "i", &threads)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  failed = sterna_set_num_threads(threads);
  Py_END_ALLOW_THREADS;
  if (failed) return raise_runtime_error();
  Py_RETURN_NONE;
}

static PyObject *check_processor(PyObject *self, PyObject *args) {
  const char *needs;
  (void)self;
  if (!PyArg_ParseTuple(args, "s", &needs)) return NULL;
  if (sterna_check_processor(NULL, needs)) return raise_runtime_error();
  Py_RETURN_NONE;
}

static PyObject *host_address(PyObject *self, PyObject *unused) {
  (void)self;
  (void)unused;
  return PyLong_FromVoidPtr((void *)sterna_get_host());
}

static PyObject *version(PyObject *self, PyObject *unused) {
  (void)self;
  (void)unused;
  return PyUnicode_FromString(sterna_version());
}

/* Tells the extension the classes that Python defines on top of its own. */
static PyObject *configure(PyObject *self, PyObject *args, PyObject *keywords) {
  static char *names[] = {"ndarray",       "module",       "device",         "dtype",
                          "numpy_generic", "void_pointer", "make_exception", NULL};
  PythonSide side;
  (void)self;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "$O!O!O!O!O!O!O", names, &PyType_Type, &side.ndarray,
                                   &PyType_Type, &side.module, &PyType_Type, &side.device, &PyType_Type,
                                   &side.dtype, &PyType_Type, &side.numpy_generic, &PyType_Type,
                                   &side.void_pointer, &side.make_exception))
    return NULL;
  if (!PyType_IsSubtype(side.ndarray, &NDArray_Type) || !PyType_IsSubtype(side.module, &Module_Type) ||
      !PyType_IsSubtype(side.device, &Device_Type) ||
      !PyType_IsSubtype(side.dtype, &PyUnicode_Type)) {
    PyErr_SetString(PyExc_TypeError, "each class must be derived from the one that it replaces");
    return NULL;
  }
  Py_INCREF(side.ndarray);
  Py_INCREF(side.module);
  Py_INCREF(side.device);
  Py_INCREF(side.dtype);
  Py_INCREF(side.numpy_generic);
  Py_INCREF(side.void_pointer);
  Py_INCREF(side.make_exception);
  python_side = side; /* for the life of the process */
  Py_RETURN_NONE;
}

PyMethodDef module_functions[] = {
    {"make_module", make_module, METH_VARARGS, NULL},
    {"module_from_symbols", module_from_symbols, METH_VARARGS, NULL},
    {"load_module", load_module, METH_VARARGS, NULL},
    {"load_extension", load_extension, METH_VARARGS, NULL},
    {"system_lib", system_lib, METH_O, NULL},
    {"num_threads", num_threads, METH_NOARGS, NULL},
    {"set_num_threads", set_num_threads, METH_VARARGS, NULL},
    {"check_processor", check_processor, METH_VARARGS, NULL},
    {"host_address", host_address, METH_NOARGS, NULL},
    {"version", version, METH_NOARGS, NULL},
    {"configure", (PyCFunction)(void (*)(void))configure, METH_VARARGS | METH_KEYWORDS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "sterna.runtime._core", .m_size = -1};

PyMODINIT_FUNC PyInit__core(void) {
  PyObject *module = PyModule_Create(&definition);
  if (!module) return NULL;
  if (ready_types(module) < 0 || add_exchange_api() < 0 ||
      PyModule_AddFunctions(module, registry_methods) < 0 ||
      PyModule_AddFunctions(module, ndarray_functions) < 0 ||
      PyModule_AddFunctions(module, remote_functions) < 0 ||
      PyModule_AddFunctions(module, module_functions) < 0) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
