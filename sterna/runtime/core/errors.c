/* Errors between Python and the runtime: the exception itself travels along and is raised again. */
#include "core.h"

static PyObject *exception_of(sterna_error *error);

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
  if (exception && error->cause && error->cause->type_index == STERNA_ERROR) {
    PyObject *cause = exception_of((sterna_error *)error->cause);
    if (cause) PyException_SetCause(exception, cause);
    else PyErr_Clear();
  }
  return exception;
}

static PyObject *exception_of(sterna_error *error) {
  if (error->context && error->context->type_index == STERNA_PYTHON_OBJECT) {
    PyObject *kept = unwrap_python_object(error->context);
    if (kept && PyExceptionInstance_Check(kept)) return Py_NewRef(kept);
  }
  return new_exception(error);
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
  if (wrap_python_object(exception, &context) == 0 &&
      sterna_error_create(text_of(name, "RuntimeError"), text_of(message, "a Python exception"), NULL,
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
