"""What OpenCL C lacks of the C that functions are written in, and the names that it keeps."""

from sterna.support.dtype import DataType

DOUBLES = "#pragma OPENCL EXTENSION cl_khr_fp64 : enable"

PRELUDE = """\
typedef char int8_t;
typedef uchar uint8_t;
typedef short int16_t;
typedef ushort uint16_t;
typedef int int32_t;
typedef uint uint32_t;
typedef long int64_t;
typedef ulong uint64_t;
#define INT32_MIN (-2147483647 - 1)
#define INT64_C(number) number##L
#define INT64_MIN (-9223372036854775807L - 1)
#define UINT64_C(number) number##UL"""

COPY = """\
static void sterna_copy(uint8_t *to, const uint8_t *from, uint32_t bytes) {
  for (uint32_t i = 0; i < bytes; i++) to[i] = from[i];
}
#define memcpy(to, from, bytes) sterna_copy((uint8_t *)(to), (const uint8_t *)(from), bytes)"""

# Other threads may change the other bits of the byte, and only words can be changed at once.
STORE_BITS = """\
static void sterna_store_bits(volatile __global uint8_t *byte, uint8_t mask, uint8_t bits) {
  uint32_t shift = ((uint32_t)(size_t)byte & 3u) * 8u;
  volatile __global uint32_t *word = (volatile __global uint32_t *)(byte - shift / 8u);
  atomic_and(word, ~((uint32_t)mask << shift));
  atomic_or(word, (uint32_t)bits << shift);
}"""

_NAMES = """
    global local constant private generic kernel half uchar ushort uint ulong quad bool2 char2
    short2 int2 long2 float2 double2 half2 read_only write_only read_write image1d_t image2d_t
    image3d_t sampler_t event_t size_t ptrdiff_t intptr_t uintptr_t barrier atomic_add atomic_and
    atomic_or abs abs_diff add_sat hadd rhadd clamp clz mad_hi mad_sat max min mul_hi rotate sub_sat
    upsample popcount mad24 mul24 degrees mix radians step smoothstep sign cross dot distance length
    normalize isequal isnotequal isgreater isless isordered isunordered isnormal any all bitselect
    select shuffle shuffle2 vload2 vload4 vstore2 vstore4 mad fma fract maxmag minmag nan rsqrt
    rootn pown powr sinpi cospi tanpi asinpi acospi atanpi sincos exp10 remquo modf ilogb logb
    frexp as_float as_int as_uint as_double as_long as_ulong convert_int printf pipe uniform
    sterna_copy sterna_store_bits sterna_half sterna_float memcpy
"""
NAMES = frozenset(_NAMES.split())

# C's functions that OpenCL has under another name.
RENAMED = {"nearbyint": "rint", "roundeven": "rint"}


def half_text(dtype: DataType) -> str:
    """The function from a float to the bits of the nearest small float, without doubles."""
    if dtype == "float16":
        return """\
static uint16_t sterna_float16_from_float(float value) {
  uint16_t bits;
  vstore_half_rte(value, 0, (half *)&bits);
  return bits;
}"""
    return """\
static uint16_t sterna_bfloat16_from_float(float value) {
  uint32_t word = as_uint(value);
  if (value != value) return (uint16_t)((word >> 16) | 0x40u);
  return (uint16_t)((word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
}"""
