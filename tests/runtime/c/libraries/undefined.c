/* A library that cannot be loaded: it needs a symbol that nobody has. */
#include "sterna.h"

extern int symbol_that_nobody_has(void);

STERNA_FUNCTION(undefined) {
  (void)self;
  (void)args;
  (void)n;
  (void)ret;
  return symbol_that_nobody_has();
}
