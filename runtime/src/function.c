/* Functions as values. */
#include "internal.h"

typedef struct {
  sterna_function function;
  sterna_call call;
  void *self;
  void (*deleter)(void *self);
  sterna_object *owner; /* kept alive, or null */
} closure;

static void free_closure(void *self, int flags) {
  closure *c = self;
  if (flags & 1) {
    if (c->deleter) c->deleter(c->self);
    sterna_release(c->owner);
  }
  if (flags & 2) memory_release(c);
}

static int call_closure(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  closure *c = self;
  return c->call(c->self, args, n, ret);
}

int sterna_function_create(sterna_call call, void *self, void (*deleter)(void *self),
                           sterna_function **out) {
  REQUIRE(call);
  REQUIRE(out);
  closure *c = memory_allocate(sizeof *c, 16);
  if (!c) return -1;
  object_init(&c->function.header, STERNA_FUNCTION_OBJECT, free_closure);
  c->function.call = call_closure;
  c->function.cpp_call = NULL;
  c->call = call;
  c->self = self;
  c->deleter = deleter;
  c->owner = NULL;
  *out = &c->function;
  return 0;
}

void *sterna_function_self(const sterna_function *function, sterna_call call) {
  REQUIRE_OR(NULL, function);
  const closure *c = (const closure *)function;
  return function->call == call_closure && c->call == call ? c->self : NULL;
}

void function_set_deleter(sterna_function *function, void (*deleter)(void *self)) {
  ((closure *)function)->deleter = deleter;
}

int function_create_owned(sterna_call call, void *self, sterna_object *owner, sterna_function **out) {
  if (sterna_function_create(call, self, NULL, out)) return -1;
  ((closure *)*out)->owner = owner;
  sterna_retain(owner);
  return 0;
}

int sterna_function_call(sterna_function *function, const sterna_any *args, int32_t n,
                         sterna_any *ret) {
  REQUIRE(function);
  REQUIRE_IF(n > 0, args);
  REQUIRE(ret);
  return function->call(function, args, n, ret);
}
