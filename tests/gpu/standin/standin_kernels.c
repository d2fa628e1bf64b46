/* The stand-in's modules, launches, graphs and tensor maps. */
#define _GNU_SOURCE
#include "standin_streams.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- modules ---- */

static size_t size_of(const char *type) {
  if (strstr(type, "64")) return 8;
  if (strstr(type, "32")) return 4;
  return strstr(type, "16") ? 2 : 1;
}

/* The parameters of an entry: ".param .u64 .ptr .align 16 name" or ".param .align 64 .b8 name[128]". */
static void read_parameters(const char *at, function *f) {
  const char *end = strchr(at, ')');
  while ((at = strstr(at, ".param")) && at < end) {
    const char *stop = at + strcspn(at, ",)"), *bracket = memchr(at, '[', (size_t)(stop - at));
    char text[256];
    snprintf(text, sizeof text, "%.*s", (int)(stop - at < 255 ? stop - at : 255), at);
    text[strcspn(text + 8, " ") + 8] = 0; /* behind the type */
    f->sizes[f->parameters++] = bracket ? (size_t)atoi(bracket + 1) : size_of(text);
    at = stop;
  }
}

EXPORT cu_code cuModuleLoadDataEx(cu_object *out, const void *data, uint32_t n, const int32_t *options,
                                   void **values) {
  const char *source = data;
  cu_code code = note("cuModuleLoadDataEx", "%zu", strlen(source));
  if (!code && strstr(source, "unknown_instruction")) {
    for (uint32_t i = 0; i < n; i++)
      if (options[i] == CU_JIT_ERROR_LOG_BUFFER)
        strcpy(values[i], "ptxas application ptx input, line 7; error : Unknown instruction");
    code = 218;
  }
  if (code) return code;
  module *m = calloc(1, sizeof *m);
  m->source = strdup(source);
  for (const char *at = source; (at = strstr(at, ".entry"));) {
    function *f = &m->functions[m->count++];
    at += 6 + strspn(at + 6, " ");
    snprintf(f->name, sizeof f->name, "%.*s", (int)strcspn(at, "( \n"), at);
    read_parameters(at, f);
  }
  *out = m;
  count(1);
  return 0;
}
EXPORT cu_code cuModuleUnload(cu_object object) {
  module *m = object;
  free(m->source);
  free(m);
  count(-1);
  return note("cuModuleUnload", "");
}
EXPORT cu_code cuModuleGetFunction(cu_object *out, cu_object object, const char *name) {
  module *m = object;
  for (int32_t i = 0; i < m->count; i++)
    if (strcmp(m->functions[i].name, name) == 0) {
      *out = &m->functions[i];
      return note("cuModuleGetFunction", "%s", name);
    }
  return CU_ERROR_NOT_FOUND;
}
EXPORT cu_code cuFuncGetAttribute(int32_t *out, int32_t what, cu_object f) {
  (void)what;
  (void)f;
  *out = 0;
  return 0;
}
EXPORT cu_code cuFuncSetAttribute(cu_object f, int32_t what, int32_t value) {
  return note("cuFuncSetAttribute", "%s %d %d", ((function *)f)->name, what, value);
}

/* ---- launches ---- */

EXPORT cu_code cuLaunchKernelEx(const cu_launch *l, cu_object kernel, void **values, void **extra) {
  function *f = kernel;
  node n = {KERNEL, NULL, NULL, 0, f, {0}, {0}, {{0}}};
  int pdl = 0;
  (void)extra;
  for (uint32_t i = 0; i < l->attribute_count; i++)
    pdl |= l->attributes[i].id == CU_LAUNCH_PROGRAMMATIC_SERIALIZATION && l->attributes[i].value.number;
  cu_code code = note("cuLaunchKernelEx", "%s grid %u %u %u block %u %u %u shared %u %s%s%s", f->name,
                      l->grid[0], l->grid[1], l->grid[2], l->block[0], l->block[1], l->block[2],
                      l->shared_bytes, l->stream ? "stream" : "default", pdl ? " pdl" : "",
                      l->stream && ((stream *)l->stream)->captured ? " captured" : "");
  if (!code && (l->block[0] * l->block[1] * l->block[2] > 1024 || l->shared_bytes > 232448)) code = 1;
  if (code) return code;
  memcpy(n.grid, l->grid, sizeof n.grid);
  memcpy(n.block, l->block, sizeof n.block);
  for (int32_t i = 0; i < f->parameters; i++) memcpy(n.values[i], values[i], f->sizes[i]);
  give(l->stream, &n);
  return 0;
}
EXPORT cu_code cuLaunchKernel(cu_object f, uint32_t gx, uint32_t gy, uint32_t gz, uint32_t bx, uint32_t by,
                               uint32_t bz, uint32_t shared, cu_object s, void **values, void **extra) {
  cu_launch l = {{gx, gy, gz}, {bx, by, bz}, shared, s, NULL, 0};
  return cuLaunchKernelEx(&l, f, values, extra);
}

/* ---- graphs ---- */

EXPORT cu_code cuGraphInstantiateWithFlags(cu_object *out, cu_object object, unsigned long long flags) {
  graph *from = object, *made;
  cu_code code = note("cuGraphInstantiate", "%d nodes %llu", from->count, flags);
  if (code) return code;
  made = calloc(1, sizeof *made);
  made->nodes = calloc((size_t)from->count + 1, sizeof *made->nodes);
  memcpy(made->nodes, from->nodes, (size_t)from->count * sizeof *made->nodes);
  made->count = from->count;
  *out = made;
  count(1);
  return 0;
}
EXPORT cu_code cuGraphLaunch(cu_object object, cu_object s) {
  graph *g = object;
  cu_code code = note("cuGraphLaunch", "%d nodes %s", g->count, s ? "stream" : "default");
  for (int32_t i = 0; i < g->count && !code; i++) give(s, &g->nodes[i]);
  return code;
}
static cu_code end_graph(graph *g) {
  free(g->nodes);
  free(g);
  count(-1);
  return 0;
}
EXPORT cu_code cuGraphExecDestroy(cu_object g) { return end_graph(g); }
EXPORT cu_code cuGraphDestroy(cu_object g) { return end_graph(g); }

/* ---- tensor maps: what was encoded, in words that tests can read ---- */

EXPORT cu_code cuTensorMapEncodeTiled(cu_tensor_map *out, int32_t type, uint32_t rank, void *address,
                                       const uint64_t *dims, const uint64_t *strides, const uint32_t *boxes,
                                       const uint32_t *steps, int32_t interleave, int32_t swizzle,
                                       int32_t promotion, int32_t fill) {
  cu_code code = note("cuTensorMapEncodeTiled", "type %d rank %u dim %llu box %u step %u swizzle %d %d %d %d",
                      type, rank, (unsigned long long)dims[0], boxes[0], steps[0], swizzle, interleave,
                      promotion, fill);
  if ((uintptr_t)address % 16 || (uintptr_t)out % 64 || (rank > 1 && strides[0] % 16)) code = 1;
  if (code) return code;
  memset(out, 0, sizeof *out);
  out->words[0] = (uint64_t)(uintptr_t)address;
  out->words[1] = rank;
  for (uint32_t i = 0; i < rank; i++) out->words[2 + i] = dims[i];
  return 0;
}
EXPORT cu_code cuTensorMapEncodeIm2col(cu_tensor_map *out, int32_t type, uint32_t rank, void *address,
                                        const uint64_t *dims, const uint64_t *strides, const int32_t *lower,
                                        const int32_t *upper, uint32_t channels, uint32_t pixels,
                                        const uint32_t *steps, int32_t interleave, int32_t swizzle,
                                        int32_t promotion, int32_t fill) {
  cu_code code = note("cuTensorMapEncodeIm2col",
                      "type %d rank %u dim %llu lower %d upper %d channels %u pixels %u step %u swizzle %d %d %d %d",
                      type, rank, (unsigned long long)dims[0], lower[0], upper[0], channels, pixels, steps[1],
                      swizzle, interleave, promotion, fill);
  if ((uintptr_t)address % 16 || (rank > 1 && strides[0] % 16)) code = 1;
  if (code) return code;
  memset(out, 0, sizeof *out);
  out->words[0] = (uint64_t)(uintptr_t)address;
  out->words[1] = rank;
  return 0;
}
