/* The search as a Python function. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "search.h"

static int read_buffer(PyObject *item, packer_buffer *out) {
  long long size;
  if (!PyArg_ParseTuple(item, "Lii", &size, &out->first, &out->last)) return -1;
  out->size = size;
  return 0;
}

static PyObject *result_of(packer_outcome outcome, const int64_t *offsets, Py_ssize_t count,
                           const packer_report *report) {
  if (outcome == PACKER_NO_MEMORY) return PyErr_NoMemory();
  if (outcome == PACKER_STOPPED) return Py_BuildValue("OOL", Py_None, Py_None, report->work);
  if (outcome == PACKER_IMPOSSIBLE)
    return Py_BuildValue("OLL", Py_None, report->needed, report->work);
  PyObject *list = PyList_New(count);
  for (Py_ssize_t i = 0; list && i < count; i++) {
    PyObject *offset = PyLong_FromLongLong(offsets[i]);
    if (!offset) Py_CLEAR(list);
    else PyList_SET_ITEM(list, i, offset);
  }
  return list ? Py_BuildValue("NOL", list, Py_None, report->work) : NULL;
}

static PyObject *search_places(PyObject *self, PyObject *args) {
  (void)self;
  PyObject *items, *result = NULL;
  long long capacity, work_limit;
  if (!PyArg_ParseTuple(args, "O!LL", &PyList_Type, &items, &capacity, &work_limit)) return NULL;
  Py_ssize_t count = PyList_GET_SIZE(items);
  packer_buffer *buffers = PyMem_Calloc((size_t)count + 1, sizeof *buffers);
  int64_t *offsets = PyMem_Calloc((size_t)count + 1, sizeof *offsets);
  packer_report report = {0, 0};
  int32_t sections = 0;
  if (!buffers || !offsets) {
    PyErr_NoMemory();
    goto done;
  }
  for (Py_ssize_t i = 0; i < count; i++) {
    if (read_buffer(PyList_GET_ITEM(items, i), &buffers[i])) goto done;
    if (buffers[i].last > sections) sections = buffers[i].last;
  }
  packer_outcome outcome;
  Py_BEGIN_ALLOW_THREADS;
  outcome = packer_search(buffers, (int32_t)count, sections, capacity, work_limit, offsets, &report);
  Py_END_ALLOW_THREADS;
  result = result_of(outcome, offsets, count, &report);
done:
  PyMem_Free(buffers);
  PyMem_Free(offsets);
  return result;
}

static PyMethodDef methods[] = {
    {"search_places", search_places, METH_VARARGS,
     "Places of (size, first, last) in an arena: (offsets, needed size if impossible, work)."},
    {NULL, NULL, 0, NULL}};

static struct PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_packer",
                                        "A search for places of buffers in an arena.", -1, methods,
                                        NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit__packer(void) { return PyModule_Create(&definition); }
