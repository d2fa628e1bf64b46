/*
 * What a compiled model is called by: a function of its inputs by place, over runners that are idle.
 *
 * A call takes a runner out of the list, which no other thread then has, and puts it back. Anything
 * else than one value per input, and a call while all runners are at work, is for the Python side.
 */
#include "core.h"

#include <stddef.h>
#include <structmember.h>

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  PyObject *idle;         /* a list of runners, or null */
  Py_ssize_t input_count; /* -1 while it is not known */
} ModelFunction;

static PyObject *take_runner(ModelFunction *self) {
  Py_ssize_t count = self->idle && PyList_Check(self->idle) ? PyList_GET_SIZE(self->idle) : 0;
  if (!count) return NULL;
  PyObject *runner = Py_NewRef(PyList_GET_ITEM(self->idle, count - 1));
  if (PyList_SetSlice(self->idle, count - 1, count, NULL) == 0) return runner;
  PyErr_Clear();
  Py_DECREF(runner);
  return NULL;
}

/* Takes the runner's result over: the only one, or a tuple. */
static PyObject *unwrap(PyObject *results) {
  if (!results || !PyTuple_Check(results) || PyTuple_GET_SIZE(results) != 1) return results;
  PyObject *only = Py_NewRef(PyTuple_GET_ITEM(results, 0));
  Py_DECREF(results);
  return only;
}

static PyObject *run(ModelFunction *self, PyObject *runner, PyObject *const *args, Py_ssize_t count) {
  PyObject *values = PyTuple_New(count), *kind, *value, *trace;
  if (!values) return NULL;
  for (Py_ssize_t i = 0; i < count; i++) PyTuple_SET_ITEM(values, i, Py_NewRef(args[i]));
  PyObject *results = PyObject_CallOneArg(runner, values);
  PyErr_Fetch(&kind, &value, &trace); /* what is let go may run code of its own */
  Py_DECREF(values);
  if (PyList_Append(self->idle, runner) < 0) PyErr_Clear(); /* then it is made anew */
  PyErr_Restore(kind, value, trace);
  return unwrap(results);
}

static PyObject *call(PyObject *callable, PyObject *const *args, size_t flags, PyObject *names) {
  ModelFunction *self = (ModelFunction *)callable;
  Py_ssize_t count = PyVectorcall_NARGS(flags);
  int is_plain = count == self->input_count && !(names && PyTuple_GET_SIZE(names));
  PyObject *runner = is_plain ? take_runner(self) : NULL;
  if (runner) {
    PyObject *results = run(self, runner, args, count);
    Py_DECREF(runner);
    return results;
  }
  PyObject *method = PyObject_GetAttrString(callable, "_call");
  if (!method) return NULL;
  PyObject *result = PyObject_Vectorcall(method, args, (size_t)count, names);
  Py_DECREF(method);
  return result;
}

static PyObject *function_new(PyTypeObject *type, PyObject *args, PyObject *keywords) {
  (void)args;
  (void)keywords;
  ModelFunction *self = (ModelFunction *)type->tp_alloc(type, 0);
  if (!self) return NULL;
  self->vectorcall = call;
  self->input_count = -1;
  return (PyObject *)self;
}

static int function_traverse(ModelFunction *self, visitproc visit, void *arg) {
  Py_VISIT(self->idle);
  return 0;
}

static int function_clear(ModelFunction *self) {
  Py_CLEAR(self->idle);
  return 0;
}

static void function_dealloc(ModelFunction *self) {
  PyObject_GC_UnTrack(self);
  Py_CLEAR(self->idle);
  Py_TYPE(self)->tp_free((PyObject *)self);
}

static PyMemberDef members[] = {
    {"_idle", T_OBJECT, offsetof(ModelFunction, idle), 0, "Runners that nobody uses, a list."},
    {"_input_count", T_PYSSIZET, offsetof(ModelFunction, input_count), 0, "How many values a call takes."},
    {NULL, 0, 0, 0, NULL},
};

PyTypeObject ModelFunction_Type = {
    PyVarObject_HEAD_INIT(NULL, 0).tp_name = "sterna.runtime._core.ModelFunction",
    .tp_basicsize = sizeof(ModelFunction),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    .tp_vectorcall_offset = offsetof(ModelFunction, vectorcall),
    .tp_doc = "A model that is called on one value per input.",
    .tp_new = function_new,
    .tp_call = PyVectorcall_Call,
    .tp_members = members,
    .tp_traverse = (traverseproc)function_traverse,
    .tp_clear = (inquiry)function_clear,
    .tp_dealloc = (destructor)function_dealloc,
};
