/*
 * Bare tensors lent to a callback. Their memory belongs to the caller and may end with the call, but
 * Python code keeps what it likes: arrays that outlive the call get a copy of the numbers.
 */
#include "core.h"

#include <string.h>

/* A view of a lent array. */
typedef struct {
  sterna_ndarray *array;
  int exported; /* made for another library, which has its own copy of the address */
} lent_view;

struct loan {
  DLManagedTensor managed;
  sterna_ndarray *array; /* what was lent; not counted */
  sterna_ndarray *kept;  /* owns the numbers once the loan is over and somebody still wants them */
  lent_view *views;      /* each with a reference */
  size_t view_count, view_capacity;
  loan *next;
};

static loan *loans; /* all that are under way */

static int has_other_users(const sterna_ndarray *array) {
  return (uint32_t)array->header.ref_counts != 1;
}

static loan *find_loan(const sterna_ndarray *array) {
  for (loan *l = loans; l; l = l->next) {
    if (l->array == array) return l;
    for (size_t i = 0; i < l->view_count; i++)
      if (l->views[i].array == array) return l;
  }
  return NULL;
}

/* From the last to the first, since a view of a view comes after it. */
static void forget_unused_views(loan *l) {
  for (size_t i = l->view_count; i-- > 0;)
    if (!has_other_users(l->views[i].array)) {
      sterna_release(l->views[i].array);
      l->views[i].array = NULL;
    }
  size_t used = 0;
  for (size_t i = 0; i < l->view_count; i++)
    if (l->views[i].array) l->views[used++] = l->views[i];
  l->view_count = used;
}

static int make_room(loan *l) {
  if (l->view_count < l->view_capacity) return 0;
  forget_unused_views(l);
  if (l->view_count < l->view_capacity / 2) return 0;
  lent_view *more = PyMem_RawRealloc(l->views, (l->view_capacity * 2 + 8) * sizeof *more);
  if (!more) return -1;
  l->views = more;
  l->view_capacity = l->view_capacity * 2 + 8;
  return 0;
}

static int note_view(loan *l, sterna_ndarray *view, int exported) {
  if (make_room(l)) return sterna_set_error("MemoryError", "out of memory");
  sterna_retain(view);
  l->views[l->view_count++] = (lent_view){view, exported};
  return 0;
}

int note_view_of(const sterna_ndarray *array, sterna_ndarray *view) {
  loan *l = find_loan(array);
  return l ? note_view(l, view, 0) : 0;
}

sterna_ndarray *share_array(sterna_ndarray *array) {
  loan *l = find_loan(array);
  DLTensor *t = &array->tensor;
  if (!l) {
    sterna_retain(array);
    return array;
  }
  sterna_ndarray *view;
  if (sterna_ndarray_view(array, t->shape, t->ndim, t->dtype, 0, &view)) return NULL;
  if (note_view(l, view, 1) == 0) return view;
  sterna_release(view);
  return NULL;
}

static void free_loan(DLManagedTensor *managed) {
  loan *l = (loan *)managed;
  sterna_release(l->kept);
  PyMem_RawFree(l);
}

PyObject *lend_tensor(const DLTensor *tensor, loan **out) {
  loan *l = PyMem_RawCalloc(1, sizeof *l);
  if (!l) return PyErr_NoMemory();
  l->managed = (DLManagedTensor){*tensor, l, free_loan};
  if (sterna_ndarray_from_dlpack(&l->managed, &l->array)) {
    PyMem_RawFree(l);
    return raise_runtime_error();
  }
  PyObject *wrapper = wrap_object(python_side.ndarray, &l->array->header);
  if (!wrapper) return NULL;
  l->next = loans;
  loans = l;
  *out = l;
  return wrapper;
}

static void forget_loan(loan *l) {
  loan **at = &loans;
  while (*at != l) at = &(*at)->next;
  *at = l->next;
}

/* Lets an array that was kept point to the copy; without memory for one it becomes empty. */
static void move_to_copy(sterna_ndarray *array, const char *borrowed, const sterna_ndarray *copy) {
  DLTensor *t = &array->tensor;
  t->data = copy ? (char *)copy->tensor.data + ((char *)t->data - borrowed) : NULL;
  if (!copy && t->ndim) memset(t->shape, 0, (size_t)t->ndim * sizeof *t->shape);
}

int end_loan(PyObject *wrapper, loan *l) {
  sterna_ndarray *array = l->array;
  const char *borrowed = array->tensor.data;
  int exported = 0;
  forget_loan(l);
  forget_unused_views(l);
  if (Py_REFCNT(wrapper) != 1 || has_other_users(array)) {
    l->kept = copy_array(array);
    if (!l->kept) sterna_clear_error();
    move_to_copy(array, borrowed, l->kept);
  }
  for (size_t i = 0; i < l->view_count; i++) {
    exported |= l->views[i].exported;
    move_to_copy(l->views[i].array, borrowed, l->kept);
    sterna_release(l->views[i].array);
  }
  PyMem_RawFree(l->views);
  l->views = NULL;
  l->view_count = 0;
  if (!exported || PyErr_Occurred()) return 0;
  PyErr_SetString(PyExc_BufferError,
                  "an array that was lent for the length of a call is still shared with another "
                  "library after it; copy what you keep");
  return -1;
}
