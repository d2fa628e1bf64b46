/* Data types and their names. */
#include "internal.h"

#include <stdio.h>
#include <string.h>

/* bits 0: the number stands in the name; otherwise the name says it all. */
static const struct {
  const char *name;
  uint8_t code, bits;
} type_names[] = {
    {"bool", kDLBool, 8},
    {"handle", kDLOpaqueHandle, 64},
    {"bfloat", kDLBfloat, 0},
    {"complex", kDLComplex, 0},
    {"float8_e3m4", kDLFloat8_e3m4, 8},
    {"float8_e4m3", kDLFloat8_e4m3, 8},
    {"float8_e4m3b11fnuz", kDLFloat8_e4m3b11fnuz, 8},
    {"float8_e4m3fn", kDLFloat8_e4m3fn, 8},
    {"float8_e4m3fnuz", kDLFloat8_e4m3fnuz, 8},
    {"float8_e5m2", kDLFloat8_e5m2, 8},
    {"float8_e5m2fnuz", kDLFloat8_e5m2fnuz, 8},
    {"float8_e8m0fnu", kDLFloat8_e8m0fnu, 8},
    {"float6_e2m3fn", kDLFloat6_e2m3fn, 6},
    {"float6_e3m2fn", kDLFloat6_e3m2fn, 6},
    {"float4_e2m1fn", kDLFloat4_e2m1fn, 4},
    {"float", kDLFloat, 0},
    {"uint", kDLUInt, 0},
    {"int", kDLInt, 0},
};

enum { TYPE_NAMES = sizeof type_names / sizeof *type_names };

static int refuse_name(const char *name, size_t size) {
  return sterna_set_errorf("ValueError",
                           "'%.*s' names no data type; expected one like float32, int8, uint4, bool, "
                           "bfloat16, float8_e4m3fn or float32x4",
                           (int)(size < 60 ? size : 60), name);
}

/* Reads digits at *at; -1 when there are none or too many. */
static int read_number(const char *text, size_t size, size_t *at) {
  int number = 0;
  size_t start = *at;
  while (*at < size && text[*at] >= '0' && text[*at] <= '9' && *at - start < 5)
    number = number * 10 + (text[(*at)++] - '0');
  return *at == start ? -1 : number;
}

static int bits_fit(uint8_t code, int bits) {
  switch (code) {
    case kDLFloat: return bits == 16 || bits == 32 || bits == 64;
    case kDLBfloat: return bits == 16;
    case kDLComplex: return bits == 64 || bits == 128;
    default: return bits >= 1 && bits <= 64;
  }
}

int sterna_dtype_parse(const char *name, size_t size, DLDataType *out) {
  REQUIRE_IF(size, name);
  REQUIRE(out);
  int best = -1;
  size_t best_length = 0;
  for (int i = 0; i < TYPE_NAMES; i++) {
    size_t length = strlen(type_names[i].name);
    if (length > best_length && length <= size && memcmp(name, type_names[i].name, length) == 0) {
      best = i;
      best_length = length;
    }
  }
  if (best < 0) return refuse_name(name, size);
  size_t at = best_length;
  int bits = type_names[best].bits, lanes = 1;
  if (!bits) {
    bits = at == size ? 32 : read_number(name, size, &at);
    if (!bits_fit(type_names[best].code, bits)) return refuse_name(name, size);
  }
  if (at < size) {
    if (name[at++] != 'x') return refuse_name(name, size);
    lanes = read_number(name, size, &at);
    if (at != size || lanes < 1 || lanes > UINT16_MAX) return refuse_name(name, size);
  }
  *out = (DLDataType){type_names[best].code, (uint8_t)bits, (uint16_t)lanes};
  return 0;
}

void sterna_dtype_name(DLDataType dtype, char *buffer) {
  if (!buffer) return;
  const char *name = NULL;
  int numbered = 1;
  for (int i = 0; i < TYPE_NAMES && !name; i++) {
    if (type_names[i].code != dtype.code || (type_names[i].bits && type_names[i].bits != dtype.bits)) continue;
    name = type_names[i].name;
    numbered = type_names[i].bits == 0;
  }
  int used;
  if (!name) used = snprintf(buffer, 32, "custom%d_%d", dtype.code, dtype.bits);
  else if (numbered) used = snprintf(buffer, 32, "%s%d", name, dtype.bits);
  else used = snprintf(buffer, 32, "%s", name);
  if (dtype.lanes > 1) snprintf(buffer + used, 32 - (size_t)used, "x%d", dtype.lanes);
}
