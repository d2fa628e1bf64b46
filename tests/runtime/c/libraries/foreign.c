/* Stands in for another runtime of the same ABI, which keeps its own error for each thread. */
#include "sterna.h"

STERNA_EXPORT int __sterna__closeable;
int __sterna__closeable = 1;

static _Thread_local sterna_error *raised;

STERNA_EXPORT void TVMFFIErrorSetRaised(void *error);
void TVMFFIErrorSetRaised(void *error) {
  sterna_error *before = raised;
  sterna_retain(error);
  raised = error;
  sterna_release(before);
}

STERNA_EXPORT void TVMFFIErrorMoveFromRaised(void **error);
void TVMFFIErrorMoveFromRaised(void **error) {
  *error = raised;
  raised = NULL;
}

/* Fails the way that runtime's functions do: the error is laid there and nowhere else. */
STERNA_FUNCTION(fail_there) {
  sterna_error *error, *before;
  (void)self;
  (void)args;
  (void)n;
  (void)ret;
  if (sterna_error_create("TheirError", "raised in the other runtime", NULL, NULL, &error))
    return -1;
  before = raised;
  raised = error;
  sterna_release(before);
  return -1;
}
