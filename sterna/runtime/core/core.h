/* What the files of the Python binding share. Everything here needs the GIL unless it says otherwise. */
#ifndef STERNA_CORE_H_
#define STERNA_CORE_H_

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "sterna.h"

/* A Python object that holds one reference to a runtime object. */
typedef struct {
  PyObject_HEAD
  sterna_object *handle;
  PyObject *weak_references;
} ObjectWrapper;

typedef struct {
  ObjectWrapper base;
  vectorcallfunc vectorcall;
  int is_python; /* the function is a Python callable, so the GIL may stay */
} FunctionWrapper;

typedef struct {
  PyObject_HEAD
  DLDevice device;
} DeviceWrapper;

extern PyTypeObject Object_Type, Function_Type, NDArray_Type, Module_Type, Device_Type;
extern PyTypeObject ModelCall_Type, ResultMemory_Type, DeviceCall_Type, ModelFunction_Type;

/* What the Python side has told us: the classes to make, and things to recognise. */
typedef struct {
  PyTypeObject *ndarray, *module, *device, *dtype, *numpy_generic, *void_pointer;
  PyObject *make_exception;
} PythonSide;
extern PythonSide python_side;

/* object.c */
PyObject *wrap_object(PyTypeObject *type, sterna_object *handle); /* takes over the reference */
int ready_types(PyObject *module);

/* errors.c */
PyObject *raise_runtime_error(void);  /* the thread's runtime error as a Python exception; null */
int report_python_error(void);        /* the Python exception as the thread's runtime error; -1 */

/* convert.c */
enum { FRAME_ARGUMENTS = 8 };

/* The arguments of one call, and what must live until it is over. */
typedef struct {
  sterna_any *values;
  sterna_object **owned; /* one per argument, or null */
  sterna_bytes *bytes;   /* room for views of bytes, one per argument */
  Py_ssize_t count;
} ArgumentFrame;

/* Views an argument; what had to be made for it goes into the frame. */
int convert_argument(PyObject *object, ArgumentFrame *frame, Py_ssize_t index);
int convert_owned(PyObject *object, sterna_any *out); /* a value that owns */
void frame_release(ArgumentFrame *frame, Py_ssize_t converted);
PyObject *convert_result(sterna_any *value);           /* takes the value over */
PyObject *convert_view(const sterna_any *value);       /* borrows it */
int wrap_python_object(PyObject *object, sterna_object **out);
PyObject *unwrap_python_object(sterna_object *object); /* borrowed */
PyObject *make_dtype(DLDataType dtype);
int parse_dtype(PyObject *object, DLDataType *out);
PyObject *make_device(DLDevice device);
const char *read_name(PyObject *object); /* borrowed; refuses what is no text without zeros */
int interpreter_is_alive(void);
void drop_python_reference(void *object); /* from any thread, without the GIL */

/* function.c */
int make_function(PyObject *callable, sterna_function **out);
PyObject *wrap_function(sterna_function *function); /* takes over the reference */
extern PyMethodDef registry_methods[];

/* ndarray.c */
int64_t *read_shape(PyObject *object, int32_t *ndim); /* freed with PyMem_Free; null when it fails */
extern PyMethodDef ndarray_functions[];

/* dlpack.c */
/* A runtime array over a foreign one; 0 done, -1 failed, 1 the object speaks no DLPack. */
int take_dlpack(PyObject *object, sterna_ndarray **out);
/* Another library's array as it is now, without asking it for more; 1, or 0 when it cannot be had. */
int view_foreign(PyObject *object, DLTensor *out);
/* The stream that its library works in now; 1, or 0 when it does not say. */
int stream_of_foreign(PyObject *object, DLDevice device, void **out);
PyObject *ndarray_dlpack(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names);
PyObject *ndarray_dlpack_device(PyObject *self, PyObject *unused);
int add_exchange_api(void); /* lets others take our arrays without Python calls */
sterna_ndarray *copy_array(sterna_ndarray *array); /* null when it fails, with the runtime's error */

/* streams.c: those of the calling thread; null, and nothing to do, on devices that have none. */
int has_streams(DLDevice device);
int get_stream(DLDevice device, void **out);
int set_stream(DLDevice device, void *stream);
int wait_for_stream(DLDevice device, void *stream, void *other); /* lets a stream wait for another */

/* remote.c */
extern PyMethodDef remote_functions[];

/* loan.c */
/* Wraps a bare tensor for the length of a callback. If somebody kept it, or a view of it, it gets a
   copy of the numbers; memory shared with another library cannot move, so then end_loan fails. */
typedef struct loan loan;
PyObject *lend_tensor(const DLTensor *tensor, loan **out);
int end_loan(PyObject *array, loan *l);
int note_view_of(const sterna_ndarray *array, sterna_ndarray *view); /* for each view that is made */
sterna_ndarray *share_array(sterna_ndarray *array); /* to hand its memory to another library */

/* module.c */
PyObject *wrap_module(sterna_module *module); /* takes over the reference */
extern PyMethodDef module_functions[];

#endif
