/* Functions that fail. */
#include <string.h>

#include "sterna.h"

STERNA_FUNCTION(fail) {
  sterna_bytes kind, message;
  (void)self, (void)ret;
  if (n != 2 || sterna_as_string(&args[0], &kind) || sterna_as_string(&args[1], &message))
    return sterna_set_error("TypeError", "fail(kind, message)");
  char kind_copy[256];
  if (kind.size >= sizeof kind_copy) return sterna_set_error("ValueError", "a shorter kind");
  memcpy(kind_copy, kind.data, kind.size);
  kind_copy[kind.size] = 0;
  return sterna_set_error(kind_copy, message.data);
}

STERNA_FUNCTION(fail_silently) {
  (void)self, (void)args, (void)n, (void)ret;
  sterna_clear_error();
  return -1;
}

STERNA_FUNCTION(fail_in_bad_text) {
  (void)self, (void)args, (void)n, (void)ret;
  return sterna_set_error("Value\xff""Error", "caf\xe9");
}

/* fail_often(times): a chain of that many errors. */
STERNA_FUNCTION(fail_often) {
  int64_t times;
  (void)self, (void)ret;
  if (n != 1 || sterna_as_int(&args[0], &times)) return -1;
  sterna_set_error("KeyError", "first");
  for (int64_t i = 1; i < times; i++) sterna_wrap_error("ValueError", "again");
  return -1;
}

/* wrap(f): a failure of f() becomes the cause of this one. */
STERNA_FUNCTION(wrap) {
  sterna_function *f;
  (void)self;
  if (n != 1 || sterna_as_function(&args[0], &f)) return -1;
  if (sterna_function_call(f, NULL, 0, ret) == 0) return 0;
  return sterna_wrap_error("ValueError", "wrapped in C");
}

/* ---- what load_extension calls ---- */

static int from_init(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self, (void)args;
  *ret = sterna_any_int(n);
  return 0;
}

STERNA_EXPORT int init_works(void) { return sterna_register("test.from_init", from_init, NULL, NULL); }
STERNA_EXPORT int init_fails(void) { return sterna_set_error("LookupError", "init says no"); }
STERNA_EXPORT int init_returns_3(void) { return 3; }
