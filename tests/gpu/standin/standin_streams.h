/* What the files of the stand-in share. */
#ifndef STANDIN_STREAMS_H_
#define STANDIN_STREAMS_H_

#include "cuda_driver.h"
#include "standin.h"

#define EXPORT __attribute__((visibility("default")))

enum { MOST_PARAMETERS = 64, MOST_NODES = 4096 };

typedef struct {
  enum { COPY, KERNEL, EVENT } kind;
  void *to;
  const void *from;
  size_t bytes;
  struct function *kernel;
  uint32_t grid[3], block[3];
  char values[MOST_PARAMETERS][128];
} node;

typedef struct {
  int32_t count;
  node *nodes;
} graph;

typedef struct {
  graph *captured; /* or null */
} stream;

typedef struct {
  double seconds;
} event;

typedef struct function {
  char name[128];
  int32_t parameters;
  size_t sizes[MOST_PARAMETERS];
} function;

typedef struct {
  char *source;
  function functions[64];
  int32_t count;
} module;


/* Writes a call down; the code that it fails with, or 0. */
int32_t note(const char *name, const char *format, ...);
void count(int64_t change);           /* of what is not given back */
void give(cu_object stream, node *n); /* does it now, or captures it */

#endif
