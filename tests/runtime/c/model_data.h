/* Writes the data of a model as the compiler does. */
#ifndef STERNA_TEST_MODEL_DATA_H_
#define STERNA_TEST_MODEL_DATA_H_

#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "sterna.h"

typedef struct {
  char magic[8];
  uint32_t byte_order, version;
  uint64_t size, head_size, checksum, name, name_size, graph, graph_size, param_count;
} test_header;

typedef struct {
  uint64_t name, name_size, shape;
  int32_t ndim;
  DLDataType dtype;
  uint64_t values, size;
} test_param;

enum { MODEL_SIZE = 2048 };

static inline uint32_t adler(const unsigned char *from, const unsigned char *to) {
  uint32_t a = 1, b = 0;
  for (; from < to; from++) {
    a = (a + *from) % 65521;
    b = (b + a) % 65521;
  }
  return b << 16 | a;
}

static inline void seal_model(unsigned char *into) {
  test_header *h = (test_header *)into;
  h->checksum = adler((const unsigned char *)&h->name, into + h->head_size);
}

/* A model of a graph with one parameter "w" of float32[2, 3]; into is on a 64-byte boundary. */
static inline void write_model(unsigned char *into, const char *name, const char *graph, const float *w) {
  test_header h = {"sterna.m", 0x01020304, 1, 0, 0, 0, 0, strlen(name), 0, strlen(graph), 1};
  test_param p = {0, 1, sizeof h + sizeof p, 2, {kDLFloat, 32, 1}, 0, 24};
  const int64_t shape[] = {2, 3};
  memcpy(h.magic, "sterna.m", 8);
  h.name = p.shape + sizeof shape;
  p.name = h.name + h.name_size;
  h.graph = p.name + 1;
  h.head_size = h.graph + h.graph_size;
  p.values = (h.head_size + 63) / 64 * 64;
  h.size = p.values + p.size;
  memset(into, 0, MODEL_SIZE);
  memcpy(into, &h, sizeof h);
  memcpy(into + sizeof h, &p, sizeof p);
  memcpy(into + p.shape, shape, sizeof shape);
  memcpy(into + h.name, name, h.name_size);
  memcpy(into + p.name, "w", 1);
  memcpy(into + h.graph, graph, h.graph_size);
  memcpy(into + p.values, w, 24);
  seal_model(into);
}

#endif
