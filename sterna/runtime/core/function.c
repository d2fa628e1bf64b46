/* Packed functions: calling them from Python, Python callables as functions, the registry. */
#include "core.h"

#include <stdatomic.h>

/* ---- Python callables as functions ---- */

/* The arguments of one callback. Bare tensors are lent to it and taken back when it is over. */
typedef struct {
  PyObject **objects; /* with room for one in front */
  loan **loans;
  int32_t count;
} CallbackFrame;

static int convert_arguments(CallbackFrame *frame, const sterna_any *args, int32_t n) {
  for (; frame->count < n; frame->count++) {
    const sterna_any *arg = &args[frame->count];
    loan **lent = &frame->loans[frame->count];
    *lent = NULL;
    PyObject *object = arg->type_index == STERNA_TENSOR_VIEW && arg->v_ptr
                           ? lend_tensor(arg->v_ptr, lent)
                           : convert_view(arg);
    if (!object) return -1;
    frame->objects[frame->count] = object;
  }
  return 0;
}

static int end_callback(CallbackFrame *frame) {
  int failed = 0;
  for (int32_t i = 0; i < frame->count; i++) {
    if (frame->loans[i] && end_loan(frame->objects[i], frame->loans[i])) failed = -1;
    Py_DECREF(frame->objects[i]);
  }
  return failed;
}

static int run_in_frame(PyObject *callable, CallbackFrame *frame, const sterna_any *args, int32_t n,
                        sterna_any *ret) {
  int failed = convert_arguments(frame, args, n);
  if (!failed) {
    PyObject *result = PyObject_Vectorcall(callable, frame->objects,
                                           (size_t)n | PY_VECTORCALL_ARGUMENTS_OFFSET, NULL);
    failed = result ? convert_owned(result, ret) : -1;
    Py_XDECREF(result);
  }
  if (end_callback(frame) == 0) return failed;
  if (!failed) sterna_any_release(ret);
  return -1;
}

static int run_callable(PyObject *callable, const sterna_any *args, int32_t n, sterna_any *ret) {
  PyObject *objects[FRAME_ARGUMENTS + 1];
  loan *loans[FRAME_ARGUMENTS];
  CallbackFrame frame = {objects + 1, loans, 0};
  if (n <= FRAME_ARGUMENTS) return run_in_frame(callable, &frame, args, n, ret);
  void **block = PyMem_Malloc(((size_t)n * 2 + 1) * sizeof *block);
  if (!block) {
    PyErr_NoMemory();
    return -1;
  }
  frame.objects = (PyObject **)block + 1;
  frame.loans = (loan **)(block + n + 1);
  int failed = run_in_frame(callable, &frame, args, n, ret);
  PyMem_Free(block);
  return failed;
}

static int call_python(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  if (!PyInterpreterState_Main()) return sterna_set_error("RuntimeError", "Python has ended");
  PyGILState_STATE gil = PyGILState_Ensure();
  int failed = run_callable(self, args, n, ret);
  if (failed) report_python_error();
  PyGILState_Release(gil);
  return failed;
}

int make_function(PyObject *callable, sterna_function **out) {
  if (sterna_function_create(call_python, callable, drop_python_reference, out)) {
    raise_runtime_error();
    return -1;
  }
  Py_INCREF(callable);
  return 0;
}

/* ---- calling ---- */

static PyObject *call_frame(FunctionWrapper *self, ArgumentFrame *frame, PyObject *const *args) {
  sterna_function *function = (sterna_function *)self->base.handle;
  sterna_any ret = sterna_any_none();
  PyObject *result = NULL;
  Py_ssize_t converted = 0;
  while (converted < frame->count && convert_argument(args[converted], frame, converted) == 0)
    converted++;
  if (converted == frame->count) {
    int failed;
    if (self->is_python) {
      failed = function->call(function, frame->values, (int32_t)frame->count, &ret);
    } else {
      PyThreadState *thread = PyEval_SaveThread();
      failed = function->call(function, frame->values, (int32_t)frame->count, &ret);
      PyEval_RestoreThread(thread);
    }
    result = failed ? raise_runtime_error() : convert_result(&ret);
  }
  frame_release(frame, converted);
  return result;
}

/* Calls the function again and again, dropping its results. */
static int call_repeatedly(sterna_function *function, ArgumentFrame *frame, long long number) {
  for (long long i = 0; i < number; i++) {
    sterna_any ret = sterna_any_none();
    if (function->call(function, frame->values, (int32_t)frame->count, &ret)) return -1;
    if (ret.type_index >= STERNA_OBJECT) sterna_any_release(&ret);
  }
  return 0;
}

static PyObject *repeat_frame(FunctionWrapper *self, ArgumentFrame *frame, PyObject *const *args,
                              long long number) {
  sterna_function *function = (sterna_function *)self->base.handle;
  Py_ssize_t converted = 0;
  int failed = -1;
  while (converted < frame->count && convert_argument(args[converted], frame, converted) == 0)
    converted++;
  if (converted == frame->count) {
    PyThreadState *thread = PyEval_SaveThread();
    failed = call_repeatedly(function, frame, number);
    PyEval_RestoreThread(thread);
    if (failed) raise_runtime_error();
  }
  frame_release(frame, converted);
  return failed ? NULL : Py_NewRef(Py_None);
}

/* number < 0: one call, whose result is returned; else that many calls. */
static PyObject *call_many(FunctionWrapper *self, PyObject *const *args, Py_ssize_t count,
                           long long number) {
  size_t each = sizeof(sterna_any) + sizeof(sterna_object *) + sizeof(sterna_bytes);
  if (count > INT32_MAX) {
    PyErr_SetString(PyExc_TypeError, "too many arguments for a packed function");
    return NULL;
  }
  char *block = PyMem_Malloc((size_t)count * each + 1);
  if (!block) return PyErr_NoMemory();
  ArgumentFrame frame;
  frame.count = count;
  frame.values = (sterna_any *)block;
  frame.bytes = (sterna_bytes *)(frame.values + count);
  frame.owned = (sterna_object **)(frame.bytes + count);
  PyObject *result = number < 0 ? call_frame(self, &frame, args)
                                : repeat_frame(self, &frame, args, number);
  PyMem_Free(block);
  return result;
}

static PyObject *function_vectorcall(PyObject *self, PyObject *const *args, size_t nargsf,
                                     PyObject *names) {
  Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if (names && PyTuple_GET_SIZE(names)) {
    PyErr_Format(PyExc_TypeError, "a packed function takes no keyword arguments; got '%U'",
                 PyTuple_GET_ITEM(names, 0));
    return NULL;
  }
  if (count > FRAME_ARGUMENTS) return call_many((FunctionWrapper *)self, args, count, -1);
  sterna_any values[FRAME_ARGUMENTS];
  sterna_object *owned[FRAME_ARGUMENTS];
  sterna_bytes bytes[FRAME_ARGUMENTS];
  ArgumentFrame frame = {values, owned, bytes, count};
  return call_frame((FunctionWrapper *)self, &frame, args);
}

PyObject *wrap_function(sterna_function *function) {
  PyObject *self = wrap_object(&Function_Type, &function->header);
  if (!self) return NULL;
  ((FunctionWrapper *)self)->vectorcall = function_vectorcall;
  ((FunctionWrapper *)self)->is_python = sterna_function_self(function, call_python) != NULL;
  return self;
}

static PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  static char *names[] = {"callable", NULL};
  PyObject *callable;
  sterna_function *function;
  (void)type;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O:PackedFunc", names, &callable)) return NULL;
  if (Py_TYPE(callable) == &Function_Type) return Py_NewRef(callable);
  if (!PyCallable_Check(callable)) {
    PyErr_Format(PyExc_TypeError, "a packed function is made from a callable, not from %s",
                 Py_TYPE(callable)->tp_name);
    return NULL;
  }
  return make_function(callable, &function) ? NULL : wrap_function(function);
}

static PyObject *function_repeat(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  long long number = nargs ? PyLong_AsLongLong(args[0]) : -1;
  if (PyErr_Occurred()) return NULL;
  if (number < 0) {
    PyErr_SetString(PyExc_ValueError, "the number of calls comes first and is at least 0");
    return NULL;
  }
  return call_many((FunctionWrapper *)self, args + 1, nargs - 1, number);
}

static PyMethodDef function_methods[] = {
    {"_repeat", (PyCFunction)(void (*)(void))function_repeat, METH_FASTCALL,
     "Calls it this many times with these arguments and drops the results."},
    {NULL, NULL, 0, NULL},
};

static PyObject *get_callable(PyObject *self, void *unused) {
  (void)unused;
  PyObject *callable =
      sterna_function_self((sterna_function *)((ObjectWrapper *)self)->handle, call_python);
  return Py_NewRef(callable ? callable : Py_None);
}

static PyGetSetDef function_getset[] = {
    {"_callable", get_callable, NULL, "The Python callable that it was made from, or None.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyObject *function_repr(FunctionWrapper *self) {
  PyObject *callable = sterna_function_self((sterna_function *)self->base.handle, call_python);
  if (callable) return PyUnicode_FromFormat("<PackedFunc of %R>", callable);
  return PyUnicode_FromFormat("<PackedFunc at %p>", self->base.handle);
}

/* ---- for Python's garbage collector ---- */

/* The callable, if nobody holds the function but this wrapper: then it is the wrapper's own.
   Whoever calls a function keeps a reference to each function that is an argument, so that this does
   not change from yes to no while a collection looks around: only Python code could make it. */
static PyObject *own_callable(FunctionWrapper *self) {
  sterna_function *function = (sterna_function *)self->base.handle;
  if (!function || !self->is_python) return NULL;
  uint64_t counts = atomic_load((_Atomic uint64_t *)&function->header.ref_counts);
  return counts == (((uint64_t)1 << 32) | 1) ? sterna_function_self(function, call_python) : NULL;
}

static int function_traverse(FunctionWrapper *self, visitproc visit, void *arg) {
  Py_VISIT(own_callable(self));
  return 0;
}

static int call_collected(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self;
  (void)args;
  (void)n;
  (void)ret;
  return sterna_set_error("RuntimeError", "the function is gone: nothing but itself referred to it");
}

/* Another object that ends with this one may still call it, so something callable takes its place. */
static int function_clear(FunctionWrapper *self) {
  sterna_object *before = self->base.handle;
  sterna_function *collected;
  if (!own_callable(self) || sterna_function_create(call_collected, NULL, NULL, &collected)) return 0;
  self->base.handle = &collected->header;
  self->is_python = 0;
  sterna_release(before);
  return 0;
}

static void function_dealloc(PyObject *self) {
  PyObject_GC_UnTrack(self);
  Object_Type.tp_dealloc(self);
}

PyTypeObject Function_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sterna.runtime.PackedFunc",
    .tp_basicsize = sizeof(FunctionWrapper),
    .tp_vectorcall_offset = offsetof(FunctionWrapper, vectorcall),
    .tp_call = PyVectorcall_Call,
    .tp_new = function_new,
    .tp_repr = (reprfunc)function_repr,
    .tp_methods = function_methods,
    .tp_getset = function_getset,
    .tp_dealloc = function_dealloc,
    .tp_traverse = (traverseproc)function_traverse,
    .tp_clear = (inquiry)function_clear,
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_VECTORCALL | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "PackedFunc(callable)\n--\n\nA function of the runtime. It takes and returns values of "
              "any kind: numbers, text, bytes, arrays, devices, types, functions, modules, lists.",
};

/* ---- the registry ---- */

static PyObject *register_global(PyObject *module, PyObject *args) {
  const char *name;
  PyObject *callable;
  sterna_function *function;
  int override_it;
  (void)module;
  if (!PyArg_ParseTuple(args, "sOp", &name, &callable, &override_it)) return NULL;
  PyObject *wrapped = PyObject_CallOneArg((PyObject *)&Function_Type, callable);
  if (!wrapped) return NULL;
  function = (sterna_function *)((ObjectWrapper *)wrapped)->handle;
  if (sterna_register_function(name, function, override_it)) {
    Py_DECREF(wrapped);
    return raise_runtime_error();
  }
  return wrapped;
}

static PyObject *get_global(PyObject *module, PyObject *name) {
  sterna_function *function;
  (void)module;
  const char *text = read_name(name);
  if (!text) return NULL;
  if (sterna_get_global(text, &function)) return raise_runtime_error();
  if (!function) Py_RETURN_NONE;
  return wrap_function(function);
}

static PyObject *remove_global(PyObject *module, PyObject *name) {
  (void)module;
  const char *text = read_name(name);
  if (!text) return NULL;
  if (sterna_remove_global(text)) return raise_runtime_error();
  Py_RETURN_NONE;
}

static PyObject *list_globals(PyObject *module, PyObject *unused) {
  sterna_any names = sterna_any_none();
  (void)module;
  (void)unused;
  if (sterna_list_globals(&names)) return raise_runtime_error();
  return convert_result(&names);
}

PyMethodDef registry_methods[] = {
    {"register_global", register_global, METH_VARARGS, NULL},
    {"get_global", get_global, METH_O, NULL},
    {"remove_global", remove_global, METH_O, NULL},
    {"list_globals", list_globals, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};
