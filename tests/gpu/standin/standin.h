/* What tests may ask of the stand-in for NVIDIA's driver. */
#ifndef STANDIN_H_
#define STANDIN_H_

#include <stdint.h>

/* A kernel as a function of the host: pointers to its arguments, the grid, the block. */
typedef void (*standin_kernel)(void **arguments, const uint32_t *grid, const uint32_t *block);

/* Kernels of a name run this; those that nobody names are only written down. */
void standin_define(const char *name, standin_kernel kernel);
/* The next call but some of a function of the driver fails with a code. */
void standin_fail(const char *function, int32_t code, int32_t after);
/* All that was called since the last question, a line each; whoever asks owns nothing. */
const char *standin_calls(void);
void standin_set_version(int32_t version);
/* What is not given back: bytes of memory, streams, events, graphs, modules. */
int64_t standin_left(void);

#endif
