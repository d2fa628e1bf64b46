/* A library of functions. ANSWER tells its versions apart; CLOSEABLE lets it be unloaded. */
#include <string.h>

#include "sterna.h"

#ifndef ANSWER
#define ANSWER 1
#endif

#ifdef CLOSEABLE
STERNA_EXPORT int __sterna__closeable;
int __sterna__closeable = 1;
#endif

STERNA_EXPORT void *__tvm_ffi__library_ctx;
void *__tvm_ffi__library_ctx = NULL;

STERNA_EXPORT const sterna_host *__sterna__host;
const sterna_host *__sterna__host = NULL;

/* The test program counts loads and unloads and may do anything while one happens. */
extern void test_on_load(int version) __attribute__((weak));
extern void test_on_unload(int version) __attribute__((weak));

__attribute__((constructor)) static void begin(void) {
  if (test_on_load) test_on_load(ANSWER);
}

__attribute__((destructor)) static void end(void) {
  if (test_on_unload) test_on_unload(ANSWER);
}

STERNA_FUNCTION(answer) {
  (void)self;
  (void)args;
  (void)n;
  *ret = sterna_any_int(ANSWER);
  return 0;
}

STERNA_FUNCTION(context) { /* what the loader wrote into the library */
  (void)self;
  (void)args;
  (void)n;
  ret->type_index = STERNA_POINTER;
  ret->v_ptr = __tvm_ffi__library_ctx;
  return 0;
}

STERNA_FUNCTION(host) {
  (void)self;
  (void)args;
  (void)n;
  memcpy(&ret->v_ptr, &__sterna__host, sizeof ret->v_ptr);
  ret->type_index = STERNA_POINTER;
  return 0;
}

STERNA_FUNCTION(fail) {
  (void)self;
  (void)args;
  (void)n;
  (void)ret;
  return sterna_set_errorf("KeyError", "version %d fails", ANSWER);
}

/* Compiled code's way to another function: looked up by name, then called with what is left. */
STERNA_FUNCTION(call) {
  sterna_bytes name;
  sterna_function *function;
  (void)self;
  if (n < 1 || sterna_as_string(&args[0], &name)) return -1;
  if (sterna_module_lookup(__tvm_ffi__library_ctx, name.data, &function)) return -1;
  return sterna_function_call(function, args + 1, n - 1, ret);
}

/* A name longer than any small buffer; the driver defines it. */
#define NAMED(name) STERNA_FUNCTION(name)
NAMED(LONG_NAME) {
  (void)self;
  (void)args;
  (void)n;
  *ret = sterna_any_int(1000 + ANSWER);
  return 0;
}
