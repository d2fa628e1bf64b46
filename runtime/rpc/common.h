/* What every file of the server begins with. */
#ifndef STERNA_RPC_COMMON_H_
#define STERNA_RPC_COMMON_H_

#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE /* O_NOFOLLOW and openat with -std=c11; prctl's neighbours */
#endif

/* In the one-file build nothing is seen from outside, and what is not called is noticed. */
#if defined(STERNA_ONE_FILE)
#define INTERNAL static
#else
#define INTERNAL
#endif

#include <stddef.h>
#include <stdint.h>

#include "sterna.h"

#endif
