/* scale: made by Sterna. */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Nobody wrote the comparisons below by hand: those whose outcome is certain are no mistakes. */
#if defined(__GNUC__)
#pragma GCC diagnostic ignored "-Wtype-limits"
#pragma GCC diagnostic ignored "-Wtautological-compare"
#endif

#if defined(_WIN32)
#define STERNA_EXPORT __declspec(dllexport)
#define STERNA_SLOT STERNA_EXPORT
#elif defined(__GNUC__)
#define STERNA_EXPORT __attribute__((visibility("default")))
#define STERNA_SLOT __attribute__((visibility("default"), weak))
#else
#define STERNA_EXPORT
#define STERNA_SLOT
#endif

/* What the host offers: the address of a struct sterna_host, or 0. */
STERNA_SLOT void *__sterna__host = 0;

struct sterna_host {
  uint64_t size;
  int (*set_error)(const char *kind, const char *message);
  int (*parallel)(int (*body)(int32_t task, int32_t tasks, void *data), void *data, int32_t tasks);
  int (*num_threads)(int32_t *out);
  void *(*allocate)(uint64_t bytes, uint64_t alignment);
  void (*release)(void *block);
  int (*call)(void *site, const void *args, int32_t n, int32_t wanted, void *ret);
};

static int32_t sterna_parallel(int (*body)(int32_t, int32_t, void *), void *data, int64_t extent) {
  const struct sterna_host *host = (const struct sterna_host *)__sterna__host;
  int32_t tasks = 1;
  if (extent <= 0) return 0;
  if (host && host->num_threads(&tasks) != 0) return -1;
  if (!host || tasks <= 1 || extent == 1) return body(0, 1, data);
  tasks *= 8;
  if (tasks > extent) tasks = (int32_t)extent;
  return host->parallel(body, data, tasks) == 0 ? 0 : -1;
}

static float sterna_max_float32(float a, float b) {
  return a > b ? a : b;
}

/* scale(A: Buffer[(n, 16), "float32"], C: Buffer[(n, 16), "float32"], n: Size[int32]) */
struct scale_task_data {
  float *A;
  float *C;
  int32_t n;
};

static int scale_task(int32_t sterna_task, int32_t sterna_tasks, void *sterna_data) {
  const struct scale_task_data *sterna_outside = (const struct scale_task_data *)sterna_data;
  float *restrict A = sterna_outside->A;
  float *restrict C = sterna_outside->C;
  int32_t n = sterna_outside->n;
  const int32_t i_from = (int32_t)((int64_t)n*sterna_task / sterna_tasks);
  const int32_t i_to = (int32_t)((int64_t)n*(sterna_task + 1) / sterna_tasks);
  for (int32_t i = i_from; i < i_to; i++) {
    for (int32_t j = 0; j < 16; j++) {
      C[i*16 + j] = sterna_max_float32(A[i*16 + j]*0.5f, 0.0f);
    }
  }
  return 0;
}

STERNA_EXPORT int32_t scale(float *restrict A, float *restrict C, int32_t n) {
  struct scale_task_data outside = {A, C, n};
  if (sterna_parallel(scale_task, &outside, n) != 0) {
    return -1;
  }
  return 0;
}
