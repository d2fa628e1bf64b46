/* Files inside tar archives. */
#ifndef STERNA_RPC_TAR_H_
#define STERNA_RPC_TAR_H_

#include "common.h"

/* Where a plain file lies in an open archive; 1: found, 0: there is none, -1: it is no complete tar
   file, and the error says so. */
INTERNAL int tar_find(int archive, const char *name, uint64_t *offset, uint64_t *size);

#endif
