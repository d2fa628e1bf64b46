/*
 * Calls of a whole model on a device.
 *
 * Arrays that lie on the device already, PyTorch's among them, are read where they are, in the stream
 * that their library works in; results are then arrays of the device. What comes from the host is
 * copied there, and the results are copied back. The memory of a result that the caller has let go is
 * used again.
 */
#include "core.h"

#include <stddef.h>

/* Kernels move sixteen bytes at once; an array that begins elsewhere is copied. */
enum { SPARES = 2, ALIGNMENT = 16 };

typedef struct {
  DLTensor tensor; /* what it must be like */
  PyObject *spec;  /* for the function that makes values fit */
  PyObject *held;  /* during a call: what was made to fit, or null */
} device_input;

typedef struct {
  DLTensor tensor;
  PyObject *to_host; /* makes what a caller on the host gets */
  sterna_ndarray *spares[SPARES];
  int oldest;
  sterna_ndarray *array; /* during a call: where the result goes */
} device_output;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *run_on, *fit;
  DLDevice device;
  Py_ssize_t input_count, output_count;
  device_input *inputs;
  device_output *outputs;
  sterna_any *args;
  void *stream; /* of the last call */
  int is_busy;
} DeviceCall;

/* What the inputs of one call say. */
typedef struct {
  int are_there; /* one is on the device already */
  int has_stream;
  void *stream; /* in which one of them is made */
} call_state;

/* ---- making ---- */

static int describe(PyObject *shape, PyObject *dtype_name, DLDevice device, DLTensor *out) {
  DLDataType dtype;
  int32_t ndim;
  if (parse_dtype(dtype_name, &dtype)) return -1;
  int64_t *dims = read_shape(shape, &ndim);
  if (!dims) return -1;
  *out = (DLTensor){NULL, device, ndim, dtype, dims, NULL, 0};
  return 0;
}

static int read_all(DeviceCall *self, PyObject *inputs, PyObject *outputs) {
  Py_ssize_t input_count = PyTuple_GET_SIZE(inputs), output_count = PyTuple_GET_SIZE(outputs);
  PyObject *shape, *dtype;
  self->inputs = PyMem_Calloc((size_t)input_count + 1, sizeof *self->inputs);
  self->outputs = PyMem_Calloc((size_t)output_count + 1, sizeof *self->outputs);
  self->args = PyMem_Calloc((size_t)(input_count + output_count) + 1, sizeof *self->args);
  if (!self->inputs || !self->outputs || !self->args) {
    PyErr_NoMemory();
    return -1;
  }
  while (self->input_count < input_count) {
    device_input *in = &self->inputs[self->input_count];
    PyObject *spec;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(inputs, self->input_count), "OOU", &spec, &shape, &dtype) ||
        describe(shape, dtype, self->device, &in->tensor))
      return -1;
    in->spec = Py_NewRef(spec);
    self->input_count++;
  }
  while (self->output_count < output_count) {
    device_output *out = &self->outputs[self->output_count];
    PyObject *to_host;
    if (!PyArg_ParseTuple(PyTuple_GET_ITEM(outputs, self->output_count), "OUO", &shape, &dtype, &to_host) ||
        describe(shape, dtype, self->device, &out->tensor))
      return -1;
    out->to_host = Py_NewRef(to_host);
    self->output_count++;
  }
  return 0;
}

static PyObject *call_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *keywords);

static PyObject *call_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  static char *names[] = {"run_on", "fit", "device", "inputs", "outputs", NULL};
  PyObject *run_on, *fit, *device, *inputs, *outputs;
  if (!PyArg_ParseTupleAndKeywords(args, keywords, "O!OO!O!O!:DeviceCall", names, &Function_Type, &run_on,
                                   &fit, &Device_Type, &device, &PyTuple_Type, &inputs, &PyTuple_Type,
                                   &outputs))
    return NULL;
  DeviceCall *self = (DeviceCall *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->vectorcall = call_call;
  self->run_on = Py_NewRef(run_on);
  self->fit = Py_NewRef(fit);
  self->device = ((DeviceWrapper *)device)->device;
  if (read_all(self, inputs, outputs) == 0) return (PyObject *)self;
  Py_DECREF(self);
  return NULL;
}

static int call_traverse(DeviceCall *self, visitproc visit, void *arg) {
  Py_VISIT(self->run_on);
  Py_VISIT(self->fit);
  for (Py_ssize_t i = 0; i < self->input_count; i++) Py_VISIT(self->inputs[i].spec);
  for (Py_ssize_t i = 0; i < self->output_count; i++) Py_VISIT(self->outputs[i].to_host);
  return 0;
}

static void drop_spares(device_output *out) {
  for (int i = 0; i < SPARES; i++) {
    sterna_release(out->spares[i]);
    out->spares[i] = NULL;
  }
}

static void call_dealloc(DeviceCall *self) {
  PyObject_GC_UnTrack(self);
  Py_XDECREF(self->run_on);
  Py_XDECREF(self->fit);
  for (Py_ssize_t i = 0; i < self->input_count; i++) {
    Py_XDECREF(self->inputs[i].spec);
    PyMem_Free(self->inputs[i].tensor.shape);
  }
  for (Py_ssize_t i = 0; i < self->output_count; i++) {
    Py_XDECREF(self->outputs[i].to_host);
    drop_spares(&self->outputs[i]);
    PyMem_Free(self->outputs[i].tensor.shape);
  }
  PyMem_Free(self->inputs);
  PyMem_Free(self->outputs);
  PyMem_Free(self->args);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

/* ---- inputs ---- */

static int is_same_device(DLDevice a, DLDevice b) {
  return a.device_type == b.device_type && a.device_id == b.device_id;
}

/* Whether an array can be read where it is. */
static int fits(const DLTensor *wanted, const DLTensor *t) {
  int same = is_same_device(t->device, wanted->device) && t->ndim == wanted->ndim &&
             t->dtype.code == wanted->dtype.code && t->dtype.bits == wanted->dtype.bits &&
             t->dtype.lanes == wanted->dtype.lanes;
  for (int32_t i = 0; same && i < t->ndim; i++) same = t->shape[i] == wanted->shape[i];
  return same && ((uintptr_t)t->data + t->byte_offset) % ALIGNMENT == 0 && sterna_tensor_is_compact(t);
}

/* Reads another library's array in place: 1; anything else: 0. */
static int take_in_place(device_input *in, PyObject *value, call_state *state) {
  DLTensor seen;
  void *stream = NULL;
  if (!view_foreign(value, &seen) || !fits(&in->tensor, &seen)) return 0;
  if (has_streams(in->tensor.device)) {
    if (!stream_of_foreign(value, in->tensor.device, &stream)) return 0;
    if (state->has_stream && state->stream != stream) return 0;
    state->has_stream = 1;
    state->stream = stream;
  }
  in->tensor.data = (char *)seen.data + seen.byte_offset;
  state->are_there = 1;
  return 1;
}

/* fit gives an array on the device, and whether the value was there before */
static int take_fitted(DeviceCall *self, device_input *in, PyObject *value, call_state *state) {
  PyObject *args[] = {in->spec, value};
  PyObject *array, *pair = PyObject_Vectorcall(self->fit, args, 2, NULL);
  int was_there;
  if (!pair) return -1;
  if (!PyArg_ParseTuple(pair, "O!p", &NDArray_Type, &array, &was_there)) {
    Py_DECREF(pair);
    return -1;
  }
  in->held = Py_NewRef(array);
  Py_DECREF(pair);
  state->are_there |= was_there;
  return 0;
}

static int take_input(DeviceCall *self, Py_ssize_t i, PyObject *value, call_state *state) {
  device_input *in = &self->inputs[i];
  if (PyObject_TypeCheck(value, &NDArray_Type)) {
    const DLTensor *t = &((sterna_ndarray *)((ObjectWrapper *)value)->handle)->tensor;
    if (fits(&in->tensor, t)) {
      in->held = Py_NewRef(value);
      state->are_there = 1;
    }
  } else if (take_in_place(in, value, state)) {
    self->args[i] = sterna_any_tensor(&in->tensor);
    return 0;
  }
  if (!in->held && take_fitted(self, in, value, state)) return -1;
  self->args[i] = sterna_any_object(((ObjectWrapper *)in->held)->handle);
  return 0;
}

/* ---- outputs ---- */

static int has_other_users(const sterna_ndarray *array) {
  return (uint32_t)array->header.ref_counts != 1;
}

static int take_memory(device_output *out) {
  const DLTensor *t = &out->tensor;
  for (int i = 0; i < SPARES && !out->array; i++)
    if (out->spares[i] && !has_other_users(out->spares[i])) {
      out->array = out->spares[i];
      sterna_retain(out->array);
    }
  if (out->array) return 0;
  if (sterna_ndarray_empty(t->shape, t->ndim, t->dtype, t->device, &out->array)) {
    out->array = NULL;
    raise_runtime_error();
    return -1;
  }
  sterna_release(out->spares[out->oldest]);
  out->spares[out->oldest] = out->array;
  sterna_retain(out->array);
  out->oldest = (out->oldest + 1) % SPARES;
  return 0;
}

static PyObject *make_result(device_output *out, int stays_there) {
  sterna_ndarray *array = out->array;
  sterna_retain(array);
  PyObject *result = wrap_object(python_side.ndarray, &array->header);
  if (!result || stays_there) return result;
  PyObject *on_host = PyObject_CallOneArg(out->to_host, result);
  Py_DECREF(result);
  return on_host;
}

static PyObject *make_results(DeviceCall *self, const call_state *state) {
  PyObject *results = PyTuple_New(self->output_count);
  for (Py_ssize_t i = 0; results && i < self->output_count; i++) {
    PyObject *result = make_result(&self->outputs[i], state->are_there);
    if (result) PyTuple_SET_ITEM(results, i, result);
    else Py_CLEAR(results);
  }
  return results;
}

/* ---- calling ---- */

static int launch(DeviceCall *self) {
  sterna_function *function = (sterna_function *)((ObjectWrapper *)self->run_on)->handle;
  int32_t count = (int32_t)(self->input_count + self->output_count);
  sterna_any ret = sterna_any_none();
  PyThreadState *thread = PyEval_SaveThread();
  int failed = function->call(function, self->args, count, &ret);
  PyEval_RestoreThread(thread);
  if (failed) raise_runtime_error();
  return failed;
}

static int run_now(DeviceCall *self) {
  for (Py_ssize_t i = 0; i < self->output_count; i++) {
    if (take_memory(&self->outputs[i])) return -1;
    self->args[self->input_count + i] = sterna_any_object(self->outputs[i].array);
  }
  return launch(self);
}

/* In a stream that is not the thread's own; what the thread does later waits for it. */
static int run_in_stream(DeviceCall *self, void *stream) {
  void *own = NULL;
  if (get_stream(self->device, &own)) {
    raise_runtime_error();
    return -1;
  }
  if (own == stream) return run_now(self);
  if (set_stream(self->device, stream)) {
    raise_runtime_error();
    return -1;
  }
  int failed = run_now(self);
  if (set_stream(self->device, own) || (!failed && wait_for_stream(self->device, own, stream))) {
    if (!failed) raise_runtime_error();
    failed = -1;
  }
  return failed;
}

static PyObject *run(DeviceCall *self, PyObject *values) {
  call_state state = {0, 0, NULL};
  for (Py_ssize_t i = 0; i < self->input_count; i++)
    if (take_input(self, i, PyTuple_GET_ITEM(values, i), &state)) return NULL;
  if (state.has_stream && state.stream != self->stream) { /* the pool knows what other streams still do */
    for (Py_ssize_t i = 0; i < self->output_count; i++) drop_spares(&self->outputs[i]);
    self->stream = state.stream;
  }
  int failed = state.has_stream ? run_in_stream(self, state.stream) : run_now(self);
  return failed ? NULL : make_results(self, &state);
}

static void end_call(DeviceCall *self) {
  for (Py_ssize_t i = 0; i < self->input_count; i++) {
    self->inputs[i].tensor.data = NULL;
    Py_CLEAR(self->inputs[i].held);
  }
  for (Py_ssize_t i = 0; i < self->output_count; i++) {
    sterna_release(self->outputs[i].array);
    self->outputs[i].array = NULL;
  }
}

static PyObject *call_call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *keywords) {
  DeviceCall *self = (DeviceCall *)callable;
  PyObject *kind, *value, *trace;
  if ((keywords && PyTuple_GET_SIZE(keywords)) || PyVectorcall_NARGS(flags) != 1 ||
      !PyTuple_Check(args[0]) || PyTuple_GET_SIZE(args[0]) != self->input_count) {
    PyErr_Format(PyExc_TypeError, "a call takes a tuple of %zd values", self->input_count);
    return NULL;
  }
  if (self->is_busy) {
    PyErr_SetString(PyExc_RuntimeError, "the call is under way; let each thread have one of its own");
    return NULL;
  }
  self->is_busy = 1;
  PyObject *results = run(self, args[0]);
  PyErr_Fetch(&kind, &value, &trace); /* what is let go may run code of its own */
  end_call(self);
  PyErr_Restore(kind, value, trace);
  self->is_busy = 0;
  return results;
}

PyTypeObject DeviceCall_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sterna.runtime._core.DeviceCall",
    .tp_basicsize = sizeof(DeviceCall),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(DeviceCall, vectorcall),
    .tp_doc = "Calls an executor's run_on with arrays of its device; one thread at a time may use it.",
    .tp_new = call_new,
    .tp_call = PyVectorcall_Call,
    .tp_traverse = (traverseproc)call_traverse,
    .tp_dealloc = (destructor)call_dealloc,
};
