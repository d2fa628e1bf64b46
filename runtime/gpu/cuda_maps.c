/*
 * Tensor maps: what the copy engine of newer GPUs wants to know of an array, made by the driver once for
 * each kernel, parameter and address. They are kept with the kernel, where they are found by address.
 */
#include "cuda.h"

#include <stdio.h>
#include <stdlib.h>

enum { KEPT = 32, L2_PROMOTION_256_BYTES = 3 };

typedef struct {
  uint64_t address;
  int32_t parameter; /* a number among the maps */
  cu_tensor_map map;
} kept_map;

typedef struct {
  kept_map maps[KEPT];
  uint32_t count, next; /* the oldest is overwritten */
} map_cache;

static cu_code encode(const gpu_map *m, uint64_t address, cu_tensor_map *out) {
  void *array = (void *)(uintptr_t)address;
  uint32_t rank = (uint32_t)m->rank;
  if (m->is_im2col)
    return cuTensorMapEncodeIm2col(out, m->type, rank, array, m->dimensions, m->strides, m->lower, m->upper,
                                   m->channels, m->pixels, m->steps, 0, m->swizzle, L2_PROMOTION_256_BYTES, 0);
  return cuTensorMapEncodeTiled(out, m->type, rank, array, m->dimensions, m->strides, m->box, m->steps, 0,
                                m->swizzle, L2_PROMOTION_256_BYTES, 0);
}

/* Aligned as the maps in it must be. */
static map_cache *make_cache(void **block) {
  char *made = calloc(1, sizeof(map_cache) + 64);
  *block = made;
  return made ? (map_cache *)(((uintptr_t)made + 63) / 64 * 64) : NULL;
}

static int explain(const gpu_kernel *k, const gpu_launch *l, cuda_device *d, const gpu_map *m, cu_code code) {
  char words[CUDA_EXPLAINED], text[CUDA_EXPLAINED + 200];
  cuda_explain(d, code, words, sizeof words);
  snprintf(text, sizeof text,
           "the driver makes no %s tensor map of type %d, swizzle %d, rank %d, innermost dimension %llu: %s",
           m->is_im2col ? "im2col" : "tiled", (int)m->type, (int)m->swizzle, (int)m->rank,
           (unsigned long long)m->dimensions[0], words);
  return gpu_launch_error(k, l, text);
}

static int find_map(map_cache *cache, uint64_t address, int32_t parameter, cu_tensor_map *out) {
  for (uint32_t i = 0; i < cache->count; i++)
    if (cache->maps[i].address == address && cache->maps[i].parameter == parameter) {
      *out = cache->maps[i].map;
      return 1;
    }
  return 0;
}

int cuda_encode_maps(gpu_kernel *k, const gpu_launch *l, cuda_device *d, cu_tensor_map *out) {
  if (!k->map_count) return 0;
  if (!cuTensorMapEncodeTiled || !cuTensorMapEncodeIm2col)
    return gpu_launch_error(k, l, "the driver makes no tensor maps; install one of CUDA 12.0 or newer");
  map_cache *cache = k->kept ? (map_cache *)(((uintptr_t)k->kept + 63) / 64 * 64) : make_cache(&k->kept);
  if (!cache) return sterna_set_error("MemoryError", "no memory to keep tensor maps");
  for (int32_t i = 0, map = 0; i < l->count; i++) {
    if (k->parameters[i] != 'm') continue;
    const gpu_map *m = &k->maps[map];
    if (!find_map(cache, l->values[i], map, &out[map])) {
      kept_map *place = &cache->maps[cache->next];
      cu_code code = encode(m, l->values[i], &place->map);
      place->address = code ? 0 : l->values[i];
      place->parameter = map;
      if (code) return explain(k, l, d, m, code);
      out[map] = place->map;
      cache->next = (cache->next + 1) % KEPT;
      if (cache->count < KEPT) cache->count++;
    }
    map++;
  }
  return 0;
}
