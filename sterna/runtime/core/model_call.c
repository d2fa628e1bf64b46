/*
 * Calls of a whole model on NumPy arrays.
 *
 * Inputs are read where the caller has them, for as long as the call lasts. Results are written right
 * into memory that becomes the returned arrays'; when the caller has let an earlier result go, its
 * memory is used again, since fresh memory costs a page fault for every page.
 */
#include "core.h"

#include <string.h>

/* ---- memory of results ---- */

/* What a result's array keeps alive: each array that shows the memory holds a reference. */
typedef struct {
  PyObject_HEAD
  sterna_ndarray *array;
} ResultMemory;

static int memory_get_buffer(ResultMemory *self, Py_buffer *view, int flags) {
  size_t bytes;
  if (sterna_tensor_bytes(&self->array->tensor, &bytes)) {
    raise_runtime_error();
    return -1;
  }
  return PyBuffer_FillInfo(view, (PyObject *)self, self->array->tensor.data, (Py_ssize_t)bytes, 0, flags);
}

static void memory_dealloc(ResultMemory *self) {
  sterna_release(self->array);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyBufferProcs memory_buffer = {(getbufferproc)memory_get_buffer, NULL};

PyTypeObject ResultMemory_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sterna.runtime._core.ResultMemory",
    .tp_basicsize = sizeof(ResultMemory),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    .tp_doc = "The memory of a model's result.",
    .tp_dealloc = (destructor)memory_dealloc,
    .tp_as_buffer = &memory_buffer,
};

/* ---- what a model takes and gives ---- */

/* Two: in `y = m(x)` over and over, the last result is let go after the next one is there. */
enum { SPARES = 2 };

typedef struct {
  DLTensor tensor;
  PyObject *spec;       /* for the function that makes values fit */
  char *format;         /* as NumPy tells the elements' type; null: NumPy has none for it */
  Py_buffer view;       /* during a call: of a NumPy array; obj is null for what is held */
  PyObject *held;       /* during a call: a value that was made to fit, or null */
  sterna_any value;
} model_input;

typedef struct {
  DLTensor tensor;
  PyObject *shape, *dtype; /* for NumPy */
  ResultMemory *spares[SPARES];
  int oldest;
  ResultMemory *memory; /* during a call: where the result goes */
} model_output;

typedef struct {
  PyObject_HEAD
  PyObject *run_on, *fit, *numpy_array;
  Py_ssize_t input_count, output_count;
  model_input *inputs;
  model_output *outputs;
  sterna_any *args;
  int is_busy;
} ModelCall;

static const DLDevice host = {kDLCPU, 0};

/* A tensor without data, over a shape of its own. */
static int describe(PyObject *shape, PyObject *dtype_name, DLTensor *out) {
  DLDataType dtype;
  int32_t ndim;
  if (!PyUnicode_Check(dtype_name)) {
    PyErr_SetString(PyExc_TypeError, "an element type is named by text");
    return -1;
  }
  if (parse_dtype(dtype_name, &dtype)) return -1;
  int64_t *dims = read_shape(shape, &ndim);
  if (!dims) return -1;
  *out = (DLTensor){NULL, host, ndim, dtype, dims, NULL, 0};
  return 0;
}

static int read_input(PyObject *item, model_input *in) {
  PyObject *shape, *dtype;
  const char *format;
  if (!PyArg_ParseTuple(item, "OOUz", &in->spec, &shape, &dtype, &format)) {
    in->spec = NULL;
    return -1;
  }
  Py_INCREF(in->spec);
  if (describe(shape, dtype, &in->tensor)) return -1;
  if (!format) return 0;
  in->format = PyMem_Malloc(strlen(format) + 1);
  if (!in->format) {
    PyErr_NoMemory();
    return -1;
  }
  strcpy(in->format, format);
  return 0;
}

static int read_output(PyObject *item, model_output *out) {
  PyObject *dtype_name;
  if (!PyArg_ParseTuple(item, "O!UO", &PyTuple_Type, &out->shape, &dtype_name, &out->dtype)) {
    out->shape = out->dtype = NULL;
    return -1;
  }
  Py_INCREF(out->shape);
  Py_INCREF(out->dtype);
  return describe(out->shape, dtype_name, &out->tensor);
}

static int read_all(ModelCall *self, PyObject *inputs, PyObject *outputs) {
  Py_ssize_t input_count = PyTuple_GET_SIZE(inputs), output_count = PyTuple_GET_SIZE(outputs);
  self->inputs = PyMem_Calloc((size_t)input_count + 1, sizeof *self->inputs);
  self->outputs = PyMem_Calloc((size_t)output_count + 1, sizeof *self->outputs);
  self->args = PyMem_Calloc((size_t)(input_count + output_count) + 1, sizeof *self->args);
  if (!self->inputs || !self->outputs || !self->args) {
    PyErr_NoMemory();
    return -1;
  }
  while (self->input_count < input_count) {
    Py_ssize_t i = self->input_count++;
    if (read_input(PyTuple_GET_ITEM(inputs, i), &self->inputs[i])) return -1;
  }
  while (self->output_count < output_count) {
    Py_ssize_t i = self->output_count++;
    if (read_output(PyTuple_GET_ITEM(outputs, i), &self->outputs[i])) return -1;
    self->args[input_count + i] = sterna_any_tensor(&self->outputs[i].tensor);
  }
  return 0;
}

static PyObject *call_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  static char *names[] = {"run_on", "fit", "numpy_array", "inputs", "outputs", NULL};
  PyObject *run_on, *fit, *numpy_array, *inputs, *outputs;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!OO!O!O!:ModelCall", names, &Function_Type, &run_on,
                                   &fit, &PyType_Type, &numpy_array, &PyTuple_Type, &inputs,
                                   &PyTuple_Type, &outputs))
    return NULL;
  ModelCall *self = (ModelCall *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->run_on = Py_NewRef(run_on);
  self->fit = Py_NewRef(fit);
  self->numpy_array = Py_NewRef(numpy_array);
  if (read_all(self, inputs, outputs) == 0) return (PyObject *)self;
  Py_DECREF(self);
  return NULL;
}

static int call_traverse(ModelCall *self, visitproc visit, void *arg) {
  Py_VISIT(self->run_on);
  Py_VISIT(self->fit);
  Py_VISIT(self->numpy_array);
  for (Py_ssize_t i = 0; i < self->input_count; i++) Py_VISIT(self->inputs[i].spec);
  return 0;
}

static void call_dealloc(ModelCall *self) {
  PyObject_GC_UnTrack(self);
  Py_XDECREF(self->run_on);
  Py_XDECREF(self->fit);
  Py_XDECREF(self->numpy_array);
  for (Py_ssize_t i = 0; i < self->input_count; i++) {
    Py_XDECREF(self->inputs[i].spec);
    PyMem_Free(self->inputs[i].format);
    PyMem_Free(self->inputs[i].tensor.shape);
  }
  for (Py_ssize_t i = 0; i < self->output_count; i++) {
    Py_XDECREF(self->outputs[i].shape);
    Py_XDECREF(self->outputs[i].dtype);
    for (int k = 0; k < SPARES; k++) Py_XDECREF((PyObject *)self->outputs[i].spares[k]);
    PyMem_Free(self->outputs[i].tensor.shape);
  }
  PyMem_Free(self->inputs);
  PyMem_Free(self->outputs);
  PyMem_Free(self->args);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

/* ---- inputs ---- */

static int has_right_shape(const model_input *in, const Py_buffer *view) {
  const DLTensor *t = &in->tensor;
  int same = view->ndim == t->ndim && view->itemsize * 8 == (Py_ssize_t)t->dtype.bits * t->dtype.lanes;
  for (int i = 0; same && i < view->ndim; i++) same = view->shape[i] == (Py_ssize_t)t->shape[i];
  return same;
}

/* Views a NumPy array that can be read where it is: 1; another one: 0, and no error is set. */
static int view_array(model_input *in, PyObject *array, const char *format) {
  Py_buffer *view = &in->view;
  if (PyObject_GetBuffer(array, view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT) < 0) {
    PyErr_Clear();
    view->obj = NULL;
    return 0;
  }
  size_t alignment = (size_t)view->itemsize & (0 - (size_t)view->itemsize);
  if (has_right_shape(in, view) && (uintptr_t)view->buf % (alignment ? alignment : 1) == 0 &&
      (!format || strcmp(format, view->format) == 0)) {
    in->tensor.data = view->buf;
    in->value = sterna_any_tensor(&in->tensor);
    return 1;
  }
  PyBuffer_Release(view);
  return 0;
}

static int take_input(ModelCall *self, model_input *in, PyObject *value) {
  if (in->format && (PyObject *)Py_TYPE(value) == self->numpy_array && view_array(in, value, in->format))
    return 0;
  PyObject *args[] = {in->spec, value};
  in->held = PyObject_Vectorcall(self->fit, args, 2, NULL);
  if (!in->held) return -1;
  if (PyObject_TypeCheck(in->held, &NDArray_Type)) {
    in->value = sterna_any_object(((ObjectWrapper *)in->held)->handle);
    return 0;
  }
  if (view_array(in, in->held, NULL)) return 0;
  PyErr_Format(PyExc_TypeError, "%R cannot be read as %S", Py_TYPE(in->held), in->spec);
  return -1;
}

/* ---- outputs ---- */

static ResultMemory *make_memory(const DLTensor *t) {
  ResultMemory *made = (ResultMemory *)ResultMemory_Type.tp_alloc(&ResultMemory_Type, 0);
  if (!made) return NULL;
  if (sterna_ndarray_empty(t->shape, t->ndim, t->dtype, host, &made->array) == 0) return made;
  made->array = NULL;
  Py_DECREF(made);
  raise_runtime_error();
  return NULL;
}

/* Memory that nobody shows any more, or fresh memory. */
static int take_memory(model_output *out) {
  for (int i = 0; i < SPARES && !out->memory; i++)
    if (out->spares[i] && Py_REFCNT(out->spares[i]) == 1)
      out->memory = (ResultMemory *)Py_NewRef((PyObject *)out->spares[i]);
  if (!out->memory) {
    out->memory = make_memory(&out->tensor);
    if (!out->memory) return -1;
    ResultMemory *before = out->spares[out->oldest];
    out->spares[out->oldest] = (ResultMemory *)Py_NewRef((PyObject *)out->memory);
    out->oldest = (out->oldest + 1) % SPARES;
    Py_XDECREF((PyObject *)before);
  }
  out->tensor.data = out->memory->array->tensor.data;
  return 0;
}

static PyObject *make_results(ModelCall *self) {
  PyObject *results = PyTuple_New(self->output_count);
  for (Py_ssize_t i = 0; results && i < self->output_count; i++) {
    model_output *out = &self->outputs[i];
    PyObject *args[] = {out->shape, out->dtype, (PyObject *)out->memory};
    PyObject *array = PyObject_Vectorcall(self->numpy_array, args, 3, NULL);
    if (array) PyTuple_SET_ITEM(results, i, array);
    else Py_CLEAR(results);
  }
  return results;
}

/* ---- calling ---- */

static PyObject *run(ModelCall *self, PyObject *values) {
  Py_ssize_t count = self->input_count + self->output_count;
  sterna_function *function = (sterna_function *)((ObjectWrapper *)self->run_on)->handle;
  sterna_any ret = sterna_any_none();
  for (Py_ssize_t i = 0; i < self->input_count; i++) {
    if (take_input(self, &self->inputs[i], PyTuple_GET_ITEM(values, i))) return NULL;
    self->args[i] = self->inputs[i].value;
  }
  for (Py_ssize_t i = 0; i < self->output_count; i++)
    if (take_memory(&self->outputs[i])) return NULL;
  PyThreadState *thread = PyEval_SaveThread();
  int failed = function->call(function, self->args, (int32_t)count, &ret);
  PyEval_RestoreThread(thread);
  return failed ? raise_runtime_error() : make_results(self);
}

/* Lets go of everything that belongs to one call. */
static void end_call(ModelCall *self) {
  for (Py_ssize_t i = 0; i < self->input_count; i++) {
    model_input *in = &self->inputs[i];
    if (in->view.obj) PyBuffer_Release(&in->view);
    in->tensor.data = NULL;
    Py_CLEAR(in->held);
  }
  for (Py_ssize_t i = 0; i < self->output_count; i++) {
    PyObject *memory = (PyObject *)self->outputs[i].memory;
    self->outputs[i].memory = NULL;
    self->outputs[i].tensor.data = NULL;
    Py_XDECREF(memory);
  }
}

static PyObject *call_call(ModelCall *self, PyObject *args, PyObject *keywords) {
  PyObject *values;
  if ((keywords && PyDict_GET_SIZE(keywords)) || !PyArg_ParseTuple(args, "O!", &PyTuple_Type, &values) ||
      PyTuple_GET_SIZE(values) != self->input_count) {
    if (!PyErr_Occurred())
      PyErr_Format(PyExc_TypeError, "a call takes a tuple of %zd values", self->input_count);
    return NULL;
  }
  if (self->is_busy) {
    PyErr_SetString(PyExc_RuntimeError, "the call is under way; let each thread have one of its own");
    return NULL;
  }
  self->is_busy = 1;
  PyObject *results = run(self, values);
  PyObject *kind, *value, *trace;
  PyErr_Fetch(&kind, &value, &trace); /* what is let go may run code of its own */
  end_call(self);
  PyErr_Restore(kind, value, trace);
  self->is_busy = 0;
  return results;
}

PyTypeObject ModelCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sterna.runtime._core.ModelCall",
    .tp_basicsize = sizeof(ModelCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC,
    .tp_doc = "Calls an executor's run_on with NumPy arrays; one thread at a time may use it.",
    .tp_new = call_new,
    .tp_call = (ternaryfunc)call_call,
    .tp_traverse = (traverseproc)call_traverse,
    .tp_dealloc = (destructor)call_dealloc,
};
