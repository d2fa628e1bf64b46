/* What a network calls where a kernel begins, in programs with -DSTERNA_PROFILE. */

#ifndef PROFILE_H_
#define PROFILE_H_

#include <stdint.h>

void sterna_kernel_begins(int32_t number);

#endif
