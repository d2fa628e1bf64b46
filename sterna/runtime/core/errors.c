/* Errors between Python and the runtime: the exception itself travels along and is raised again. */
#include "core.h"

/* A new exception for an error that did not begin as a Python exception. */
static PyObject *new_exception(sterna_error *error) {
  PyObject *message =
      PyUnicode_DecodeUTF8(error->message.data, (Py_ssize_t)error->message.size, "replace");
  PyObject *kind = PyUnicode_DecodeUTF8(error->kind.data, (Py_ssize_t)error->kind.size, "replace");
  PyObject *exception = NULL;
  if (message && kind)
    exception = PyObject_CallFunctionObjArgs(python_side.make_exception, kind, message, NULL);
  Py_XDECREF(message);
  Py_XDECREF(kind);
  if (exception && !PyExceptionInstance_Check(exception)) {
    Py_DECREF(exception);
    PyErr_SetString(PyExc_SystemError, "an error could not be turned into an exception");
    return NULL;
  }
  return exception;
}

/* The exception that an error began as, borrowed; null when it did not. */
static PyObject *kept_exception(sterna_error *error) {
  if (!error->context || error->context->type_index != STERNA_PYTHON_OBJECT) return NULL;
  PyObject *kept = unwrap_python_object(error->context);
  return kept && PyExceptionInstance_Check(kept) ? kept : NULL;
}

static PyObject *exception_of(sterna_error *error) {
  PyObject *kept = kept_exception(error);
  PyObject *first = kept ? Py_NewRef(kept) : new_exception(error), *last = first;
  /* One after the other: a chain may be long. An exception from Python has its own causes. */
  while (last && !kept && error->cause && error->cause->type_index == STERNA_ERROR) {
    error = (sterna_error *)error->cause;
    kept = kept_exception(error);
    PyObject *cause = kept ? Py_NewRef(kept) : new_exception(error);
    if (cause) PyException_SetCause(last, cause);
    else PyErr_Clear();
    last = cause;
  }
  return first;
}

PyObject *raise_runtime_error(void) {
  sterna_error *error = sterna_take_error();
  if (!error) {
    PyErr_SetString(PyExc_RuntimeError, "the function failed without saying why");
    return NULL;
  }
  PyObject *exception = exception_of(error);
  sterna_release(error);
  if (!exception) return NULL;
  PyErr_Restore(Py_NewRef((PyObject *)Py_TYPE(exception)), exception,
                PyException_GetTraceback(exception));
  return NULL;
}

static const char *text_of(PyObject *text, const char *otherwise) {
  const char *utf8 = text ? PyUnicode_AsUTF8(text) : NULL;
  if (!utf8) PyErr_Clear();
  return utf8 ? utf8 : otherwise;
}

int report_python_error(void) {
  PyObject *type, *exception, *traceback;
  PyErr_Fetch(&type, &exception, &traceback);
  PyErr_NormalizeException(&type, &exception, &traceback);
  if (traceback) PyException_SetTraceback(exception, traceback);
  PyObject *name = PyType_GetName(Py_TYPE(exception));
  PyObject *message = PyObject_Str(exception);
  sterna_object *context = NULL;
  sterna_error *error = NULL;
  wrap_python_object(exception, &context); /* without memory for this, its text alone travels */
  if (sterna_error_create(text_of(name, "RuntimeError"), text_of(message, "a Python exception"), NULL,
                          context, &error) == 0) {
    sterna_raise(error);
    sterna_release(error);
  }
  sterna_release(context);
  Py_XDECREF(name);
  Py_XDECREF(message);
  PyErr_Clear();
  Py_DECREF(type);
  Py_DECREF(exception);
  Py_XDECREF(traceback);
  return -1;
}
