/* A library of two modules, both with a function `context`: the first imports the second. */
#include "sterna.h"

#define NUMBER(n) (n), 0, 0, 0, 0, 0, 0, 0
#define LIB NUMBER(4), '_', 'l', 'i', 'b'
#define CONTENT                                                                                  \
  NUMBER(3), NUMBER(0), NUMBER(1), NUMBER(1), NUMBER(1), NUMBER(1), LIB, LIB, NUMBER(1),         \
      NUMBER(1), NUMBER(2), NUMBER(7), 'c', 'o', 'n', 't', 'e', 'x', 't', NUMBER(5), 'i', 'n',   \
      'n', 'e', 'r', NUMBER(12), '_', 'l', 'i', 'b', 'r', 'a', 'r', 'y', '_', 'c', 't', 'x',     \
      NUMBER(9), 'i', 'n', 'n', 'e', 'r', '_', 'c', 't', 'x'

STERNA_EXPORT const unsigned char __tvm_ffi__library_bin[];
const unsigned char __tvm_ffi__library_bin[] = {NUMBER(sizeof((char[]){CONTENT})), CONTENT};

STERNA_EXPORT void *__tvm_ffi__library_ctx, *inner_ctx;
void *__tvm_ffi__library_ctx, *inner_ctx;

#ifdef CLOSEABLE
STERNA_EXPORT int __sterna__closeable;
int __sterna__closeable = 1;
#endif

STERNA_FUNCTION(context) {
  (void)self, (void)args, (void)n;
  ret->type_index = STERNA_POINTER;
  ret->v_ptr = __tvm_ffi__library_ctx;
  return 0;
}

STERNA_EXPORT int inner(void *self, const sterna_any *args, int32_t n, sterna_any *ret);
int inner(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self, (void)args, (void)n;
  ret->type_index = STERNA_POINTER;
  ret->v_ptr = inner_ctx;
  return 0;
}
