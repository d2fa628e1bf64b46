/* quantize: made by Sterna. */

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

static float sterna_float16_value(uint16_t bits) {
  uint32_t sign = (uint32_t)(bits & 0x8000u) << 16, exponent = (bits >> 10) & 31u;
  uint32_t fraction = bits & 0x3ffu, word;
  float value;
  if (exponent == 0) {
    value = (float)fraction * (1.0f / 16777216.0f);
    return sign ? -value : value;
  }
  word = sign | (exponent == 31 ? 0x7f800000u : (exponent + 112) << 23) | fraction << 13;
  memcpy(&value, &word, sizeof value);
  return value;
}

static inline int32_t sterna_saturate_int32_to_int8(int32_t x) {
#if defined(__GNUC__) && defined(__ARM_FEATURE_SAT) && __ARM_ARCH >= 7
  int32_t y;
  __asm__("ssat %0, #8, %1" : "=r"(y) : "r"(x));
  return y;
#else
  x = x < -128 ? -128 : x;
  return x > 127 ? 127 : x;
#endif
}

/* quantize(A: Buffer[(64,), "float16"], C: Buffer[(64,), "int8"], zero: int32) */
STERNA_EXPORT int32_t quantize(uint16_t *restrict A, int8_t *restrict C, int32_t zero) {
  {
    int32_t T[8];
    for (int32_t i = 0; i < 8; i++) {
      for (int32_t lane = 0; lane < 8; lane++) {
        T[lane] = (int32_t)sterna_float16_value(A[i*8 + lane]);
      }
      /* unrolled */
      for (int32_t j = 0; j < 8; j++) {
        if (i*8 + j < 60) {
          C[i*8 + j] = sterna_saturate_int32_to_int8((int32_t)((uint32_t)T[j] + (uint32_t)zero));
        }
      }
    }
  }
  return 0;
}
