/* A library whose functions are called once, when it is loaded for good. */
#include "sterna.h"

static int from_extension(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self;
  (void)args;
  (void)n;
  *ret = sterna_any_int(77);
  return 0;
}

STERNA_EXPORT int __sterna__closeable; /* loaded for good all the same */
int __sterna__closeable = 1;

STERNA_EXPORT int init_well(void);
int init_well(void) { return sterna_register("extension.answer", from_extension, NULL, NULL); }

STERNA_EXPORT int init_with_error(void);
int init_with_error(void) { return sterna_set_error("OSError", "the extension has no licence"); }

STERNA_EXPORT int init_silently_wrong(void);
int init_silently_wrong(void) { return 42; }
