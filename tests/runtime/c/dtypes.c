/* Names of data types. */
#include "check.h"

static const struct {
  const char *name;
  uint8_t code, bits;
} fixed[] = {{"bool", kDLBool, 8},
             {"handle", kDLOpaqueHandle, 64},
             {"bfloat16", kDLBfloat, 16},
             {"complex64", kDLComplex, 64},
             {"complex128", kDLComplex, 128},
             {"float16", kDLFloat, 16},
             {"float32", kDLFloat, 32},
             {"float64", kDLFloat, 64},
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
             {"float4_e2m1fn", kDLFloat4_e2m1fn, 4}};

static int parse(const char *name, DLDataType *out) {
  return sterna_dtype_parse(name, strlen(name), out);
}

static void round_trip(const char *name, uint8_t code, uint8_t bits) {
  static const int lane_counts[] = {1, 2, 3, 4, 16, 255, 256, 9999, 65535};
  char full[64], printed[32];
  for (size_t i = 0; i < sizeof lane_counts / sizeof *lane_counts; i++) {
    DLDataType dtype = {99, 99, 99};
    if (lane_counts[i] == 1) snprintf(full, sizeof full, "%s", name);
    else snprintf(full, sizeof full, "%sx%d", name, lane_counts[i]);
    check(parse(full, &dtype) == 0);
    check(dtype.code == code && dtype.bits == bits && dtype.lanes == lane_counts[i]);
    memset(printed, '?', sizeof printed);
    sterna_dtype_name(dtype, printed);
    check_text(printed, full);
  }
}

static void every_type(void) {
  char name[16];
  for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
    round_trip(fixed[i].name, fixed[i].code, fixed[i].bits);
  for (int bits = 1; bits <= 64; bits++) {
    snprintf(name, sizeof name, "int%d", bits);
    round_trip(name, kDLInt, (uint8_t)bits);
    snprintf(name, sizeof name, "uint%d", bits);
    round_trip(name, kDLUInt, (uint8_t)bits);
  }
  DLDataType dtype;
  check(parse("int", &dtype) == 0 && dtype.code == kDLInt && dtype.bits == 32);
  check(parse("float", &dtype) == 0 && dtype.code == kDLFloat && dtype.bits == 32);
  check(parse("uint", &dtype) == 0 && dtype.code == kDLUInt && dtype.bits == 32);
  check(parse("float32x1", &dtype) == 0 && dtype.lanes == 1);
}

/* Every structure there can be prints within 31 bytes, and what parses again is the same. */
static void every_structure(void) {
  for (int code = 0; code < 256; code++)
    for (int bits = 0; bits < 256; bits++)
      for (int k = 0; k < 3; k++) {
        DLDataType dtype = {(uint8_t)code, (uint8_t)bits,
                            (uint16_t)(k == 0 ? 1 : k == 1 ? 7 : 65535)};
        DLDataType again;
        char name[33];
        name[32] = 0x55;
        sterna_dtype_name(dtype, name);
        check(strlen(name) < 32 && name[32] == 0x55);
        if (sterna_dtype_parse(name, strlen(name), &again)) continue;
        if (!check(memcmp(&dtype, &again, sizeof dtype) == 0))
          fprintf(stderr, "%s is %d, %d\n", name, code, bits);
      }
}

static void malformed(void) {
  static const char *const names[] = {
      "", " ", "x", "x4", "float31", "float8", "float0", "float-32", "float32 ", " float32",
      "float32x", "float32x0", "float32x65536", "float32x99999999999", "float32x-1", "float32x 2",
      "float32x2x2", "float32y2", "float32.0", "float032x2y", "FLOAT32", "Float32", "flo",
      "floatx", "floatx4", "int0", "int65", "int128", "int-8", "int8x", "intx4",
      "int99999999999999999999", "int4294967304", "uint256", "uint264", "bfloat", "bfloat32",
      "bfloat8", "complex", "complex32", "complex256", "bool8", "bool1", "boolx", "boolx0",
      "handle64", "handle32", "float8_", "float8_e", "float8_e4m3f", "float8_e4m3fn8",
      "float8_e4m3fnu", "float8_e9m9", "float4_e2m1", "float6_e2m3", "custom0_8", "custom[my]8",
      "void", "int8x4294967297", "int8x65537", "\xff\xfe", "int\xc3\xbc", "int8\n", "int 8",
      "int8,", "tuple", "str", "uint-1", "int+8", "int8x+4", "0int8", "8int",
  };
  DLDataType dtype = {99, 98, 97};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (!check_fails(parse(names[i], &dtype), "ValueError", "data type"))
      fprintf(stderr, "for '%s'\n", names[i]);
  check_fails(sterna_dtype_parse("int8\0x", 6, &dtype), "ValueError", "data type");
  check_fails(sterna_dtype_parse("float32\0", 8, &dtype), "ValueError", "data type");
  check_fails(sterna_dtype_parse(NULL, 0, &dtype), "ValueError", "data type");
  check(dtype.code == 99 && dtype.bits == 98 && dtype.lanes == 97);
  check_fails(parse("nonsense", &dtype), "ValueError", "'nonsense' names no data type");

  static char long_name[100001];
  memset(long_name, '8', sizeof long_name - 1);
  memcpy(long_name, "int", 3);
  check_fails(parse(long_name, &dtype), "ValueError", "data type");
  check(strlen(sterna_last_error()) < 300);
}

/* Random texts without a terminating zero, in a block of just their size. */
static void fuzz(void) {
  static const char *const pieces[] = {
      "float", "int", "uint", "bfloat", "bool", "complex", "handle", "8", "32", "x", "_e4m3",
      "fn", "uz", "x4", "0", "16", "1", "_", "e5m2", "65535", "float8_",
  };
  for (int i = 0; i < 200000; i++) {
    char text[64], printed[32];
    size_t size = 0;
    DLDataType dtype = {0, 0, 0}, again;
    if (i % 2) {
      size = check_random() % 24;
      for (size_t k = 0; k < size; k++) text[k] = (char)check_random();
    } else {
      for (uint64_t k = check_random() % 5; k > 0; k--) {
        const char *piece = pieces[check_random() % (sizeof pieces / sizeof *pieces)];
        memcpy(text + size, piece, strlen(piece));
        size += strlen(piece);
      }
      if (size && check_random() % 3 == 0)
        text[check_random() % size] ^= (char)(1 << check_random() % 8);
    }
    char *exact = malloc(size ? size : 1);
    memcpy(exact, text, size);
    int failed = sterna_dtype_parse(exact, size, &dtype);
    free(exact);
    if (failed) {
      check_text(sterna_last_error_kind(), "ValueError");
      continue;
    }
    check(dtype.bits >= 1 && dtype.lanes >= 1);
    sterna_dtype_name(dtype, printed);
    check(parse(printed, &again) == 0 && memcmp(&dtype, &again, sizeof dtype) == 0);
  }
}

static void from_values(void) {
  DLDataType dtype;
  sterna_any v = sterna_any_c_string("float16x8");
  check(sterna_as_dtype(&v, &dtype) == 0 && dtype.bits == 16 && dtype.lanes == 8);
  check(sterna_string("float8_e5m2fnuz", 15, &v) == 0 && sterna_as_dtype(&v, &dtype) == 0);
  check(dtype.code == kDLFloat8_e5m2fnuz);
  sterna_any_release(&v);
  v = sterna_any_c_string("floot");
  check_fails(sterna_as_dtype(&v, &dtype), "ValueError", "'floot'");
  v = sterna_any_dtype(dtype);
  check(sterna_as_dtype(&v, &dtype) == 0 && dtype.code == kDLFloat8_e5m2fnuz);
}

int main(int argc, char **argv) {
  static const test_case cases[] = {
      {"every_type", every_type}, {"every_structure", every_structure}, {"malformed", malformed},
      {"fuzz", fuzz},             {"from_values", from_values},
  };
  return CASES(cases);
}
