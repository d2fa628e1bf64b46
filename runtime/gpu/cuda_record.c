/* Launches that are kept with their arguments, to be made again without anything between. */
#include "cuda.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 }; /* of tensor maps */

struct cuda_record {
  cuda_record *next;
  cu_object kernel;
  cu_launch config;
  cu_launch_attribute attribute;
  void **values; /* behind this structure, and so is what they point to */
};

static size_t aligned(size_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

int cuda_record_add(cuda_record **list, const cu_launch *config, cu_object kernel, const gpu_launch *l,
                    void **values) {
  size_t bytes = sizeof(cuda_record) + (size_t)l->count * sizeof *values + ALIGNMENT;
  for (int32_t i = 0; i < l->count; i++) bytes += aligned(l->sizes[i]);
  cuda_record *made = calloc(1, bytes);
  if (!made) return sterna_set_error("MemoryError", "no memory to keep a launch");
  made->kernel = kernel;
  made->config = *config;
  if (config->attribute_count) made->attribute = config->attributes[0];
  made->config.attributes = &made->attribute;
  made->values = (void **)(made + 1);
  uintptr_t room = (uintptr_t)(made->values + l->count);
  room = (uintptr_t)aligned((size_t)room);
  for (int32_t i = 0; i < l->count; i++) {
    made->values[i] = (void *)room;
    memcpy(made->values[i], values[i], l->sizes[i]);
    room += aligned(l->sizes[i]);
  }
  while (*list) list = &(*list)->next;
  *list = made;
  return 0;
}

cu_code cuda_record_launch(cuda_record *first, cu_object stream) {
  cu_code code = 0;
  for (cuda_record *r = first; r && !code; r = r->next) {
    r->config.stream = stream;
    code = cuLaunchKernelEx(&r->config, r->kernel, r->values, NULL);
  }
  return code;
}

void cuda_record_free(cuda_record *first) {
  while (first) {
    cuda_record *next = first->next;
    free(first);
    first = next;
  }
}
