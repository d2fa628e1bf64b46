"""The inner loops of contractions across vectors, by Arm's MVE (Helium) and RISC-V's vectors.

Of MVE, loops that leave out lanes at their end (DLSTP) have no intrinsics, and compilers spill sums
of four vectors and more, so each step is one piece of assembly; RISC-V's vectors have intrinsics.
Beside them stands the same in plain C, for every other compiler and processor. All layers of a
network share these functions.
"""

from sterna.codegen.c.vectors import INCLUDE
from sterna.schedule.halves_steps import STEP, Step

HELIUM = "#if defined(__GNUC__) && defined(__ARM_FEATURE_MVE)"
# Registers of 128 bits at the least, so that four words fit.
_RVV = ("#elif defined(__riscv_v_intrinsic) && __riscv_v_intrinsic >= 11000 && "
        "__riscv_v_min_vlen >= 128")
_RVV_INCLUDE = f"""\
{_RVV.replace("#elif", "#if")}
#include <riscv_vector.h>
#endif
"""
# Output channels whose sums are computed together: registers for them have even numbers.
CHANNELS = 4
# Channels of a depthwise layer that lie side by side in its plane: words of a vector.
QUAD = 4
# Registers for sums, beside those of a weight and of what it is multiplied with.
MOST_SUMS = 6
# How far from a register loads of bytes reach.
REACH = 127


def shown(lines: list[str]) -> str:
    """Instructions as strings of C."""
    return "\n".join(f'      "{line}\\n\\t"' for line in lines)


_BLOCK = [
    "ldr %[x], %[pixel]",
    "add %[w1], %[w0], %[depth]", "add %[w2], %[w1], %[depth]", "add %[w3], %[w2], %[depth]",
    "mov %[s0], #0", "mov %[s1], #0", "mov %[s2], #0", "mov %[s3], #0",
    "dlstp.8 lr, %[depth]",
    "2:",
    "vldrb.8 q0, [%[x]], #16",
    *[line for n in range(CHANNELS) for line in (
        f"vldrb.8 q{n + 1}, [%[w{n}]], #16", f"vmladava.s8 %[s{n}], q0, q{n + 1}")],
    "letp lr, 2b",
    "vmov q0[2], q0[0], %[s0], %[s2]", "vmov q0[3], q0[1], %[s1], %[s3]",
    "vstrw.32 q0, [%[sums]], #16",
    "ldr %[s0], %[next]", "add %[w0], %[w0], %[s0]",
]

DOTS = Step("sterna_dots_across", STEP + _RVV_INCLUDE + f"""
static STERNA_STEP int32_t sterna_dots_across(int32_t *sums, const int8_t *weights,
                                          const int8_t *pixel, int32_t depth, int32_t blocks) {{
{HELIUM}
  const int8_t *x, *w0 = weights, *w1, *w2, *w3;
  int32_t s0, s1, s2, s3, next = 4 * depth - ((depth + 15) & -16);
  for (; blocks > 0; blocks--) {{
    __asm__ volatile(
{shown(_BLOCK)}
      : [s0] "=&Te"(s0), [s1] "=&Te"(s1), [s2] "=&Te"(s2), [s3] "=&Te"(s3), [w0] "+r"(w0),
        [w1] "=&r"(w1), [w2] "=&r"(w2), [w3] "=&r"(w3), [x] "=&r"(x), [sums] "+r"(sums)
      : [pixel] "m"(pixel), [next] "m"(next), [depth] "r"(depth)
      : "lr", "q0", "q1", "q2", "q3", "q4", "memory");
  }}
{_RVV}
  for (; blocks > 0; blocks--, weights += {CHANNELS} * depth) {{
    vint32m1_t a0 = __riscv_vmv_s_x_i32m1(0, 1), a1 = a0, a2 = a0, a3 = a0;
    for (int32_t at = 0; at < depth;) {{
      size_t some = __riscv_vsetvl_e8m1((size_t)(depth - at));
      vint8m1_t v = __riscv_vle8_v_i8m1(pixel + at, some);
#define STERNA_PRODUCTS(sum, n) \\
  sum = __riscv_vwredsum_vs_i16m2_i32m1( \\
      __riscv_vwmul_vv_i16m2(v, __riscv_vle8_v_i8m1(weights + at + n * depth, some), some), \\
      sum, some);
      STERNA_PRODUCTS(a0, 0) STERNA_PRODUCTS(a1, 1) STERNA_PRODUCTS(a2, 2) STERNA_PRODUCTS(a3, 3)
#undef STERNA_PRODUCTS
      at += (int32_t)some;
    }}
    *sums++ = __riscv_vmv_x_s_i32m1_i32(a0);
    *sums++ = __riscv_vmv_x_s_i32m1_i32(a1);
    *sums++ = __riscv_vmv_x_s_i32m1_i32(a2);
    *sums++ = __riscv_vmv_x_s_i32m1_i32(a3);
  }}
#else
  for (; blocks > 0; blocks--) {{
    const int8_t *x = pixel, *end = pixel + (depth & -4);
    const int8_t *w0 = weights, *w1 = w0 + depth, *w2 = w1 + depth, *w3 = w2 + depth;
    int32_t s0 = 0, s1 = 0, s2 = 0, s3 = 0;
#define STERNA_PRODUCTS \\
  {{ int32_t v = *x++; s0 += v * *w0++; s1 += v * *w1++; s2 += v * *w2++; s3 += v * *w3++; }}
    while (x < end) {{
      STERNA_PRODUCTS STERNA_PRODUCTS STERNA_PRODUCTS STERNA_PRODUCTS
    }}
    for (end = pixel + depth; x < end;) STERNA_PRODUCTS
#undef STERNA_PRODUCTS
    sums[0] = s0; sums[1] = s1; sums[2] = s2; sums[3] = s3;
    sums += {CHANNELS};
    weights = w3;
  }}
#endif
  return 0;
}}""")



def few_dots(channels: int) -> Step:
    """All sums of a layer that has fewer channels than are computed together."""
    name, every = f"sterna_dots_across_{channels}", range(channels)
    apart = [f"add %[w{n}], %[w{n - 1}], %[depth]" for n in every if n]
    lines = [
        *apart, *(f"mov %[s{n}], #0" for n in every), "dlstp.8 lr, %[depth]", "2:",
        "vldrb.8 q0, [%[x]], #16",
        *(line for n in every for line in (
            f"vldrb.8 q1, [%[w{n}]], #16", f"vmladava.s8 %[s{n}], q0, q1")),
        "letp lr, 2b"]
    held = [*(f'[s{n}] "=&Te"(s{n})' for n in every), '[x] "+r"(x)', '[w0] "+r"(w0)',
            *(f'[w{n}] "=&r"(w{n})' for n in every if n)]
    sums = " ".join(f"sums[{n}] = s{n};" for n in every)
    wide = "\n".join(
        f"    a{n} = __riscv_vwredsum_vs_i16m2_i32m1(__riscv_vwmul_vv_i16m2(\n"
        f"      v, __riscv_vle8_v_i8m1(weights + at + {n} * depth, some), some), a{n}, some);"
        for n in every)
    return Step(name, _RVV_INCLUDE + f"""
static inline int32_t {name}(int32_t *sums, const int8_t *weights, const int8_t *x,
                                           int32_t depth) {{
{HELIUM}
  int32_t {", ".join(f"s{n}" for n in every)};
  const int8_t *w0 = weights{"".join(f", *w{n}" for n in every if n)};
  __asm__ volatile(
{shown(lines)}
    : {", ".join(held)}
    : [depth] "r"(depth) : "lr", "q0", "q1", "memory");
  {sums}
{_RVV}
  vint32m1_t {", ".join(f"a{n} = __riscv_vmv_s_x_i32m1(0, 1)" for n in every)};
  for (int32_t at = 0; at < depth;) {{
    size_t some = __riscv_vsetvl_e8m1((size_t)(depth - at));
    vint8m1_t v = __riscv_vle8_v_i8m1(x + at, some);
{wide}
    at += (int32_t)some;
  }}
  {" ".join(f"sums[{n}] = __riscv_vmv_x_s_i32m1_i32(a{n});" for n in every)}
#else
  int32_t {", ".join(f"s{n} = 0" for n in every)};
  for (int32_t at = 0; at < depth; at++) {{
    int32_t v = x[at];
    {" ".join(f"s{n} += v * weights[at + {n} * depth];" for n in every)}
  }}
  {sums}
#endif
  return 0;
}}""")


# What is copied may be nothing.
COPY = Step("sterna_copy_bytes", _RVV_INCLUDE + f"""
static inline int8_t *sterna_copy_bytes(int8_t *to, const int8_t *from, int32_t count) {{
{HELIUM}
  int8_t *at = to;
  __asm__ volatile(
    "wlstp.8 lr, %[count], 2f\\n"
    "1:\\n\\t"
    "vldrb.8 q0, [%[from]], #16\\n\\t"
    "vstrb.8 q0, [%[at]], #16\\n\\t"
    "letp lr, 1b\\n"
    "2:"
    : [at] "+r"(at), [from] "+r"(from) : [count] "r"(count) : "lr", "q0", "memory");
{_RVV}
  for (int32_t at = 0; at < count;) {{
    size_t some = __riscv_vsetvl_e8m8((size_t)(count - at));
    __riscv_vse8_v_i8m8(to + at, __riscv_vle8_v_i8m8(from + at, some), some);
    at += (int32_t)some;
  }}
#else
  int32_t at = 0;
  for (; at < count - 3; at += 4) {{
    int8_t a = from[at], b = from[at + 1], c = from[at + 2], d = from[at + 3];
    to[at] = a; to[at + 1] = b; to[at + 2] = c; to[at + 3] = d;
  }}
  for (; at < count; at++) to[at] = from[at];
#endif
  return to + count;
}}""")

FILL = Step("sterna_fill_bytes", _RVV_INCLUDE + f"""
static inline int8_t *sterna_fill_bytes(int8_t *to, int32_t number, int32_t count) {{
{HELIUM}
  int8_t *at = to;
  __asm__ volatile(
    "wlstp.8 lr, %[count], 2f\\n\\t"
    "vdup.8 q0, %[number]\\n"
    "1:\\n\\t"
    "vstrb.8 q0, [%[at]], #16\\n\\t"
    "letp lr, 1b\\n"
    "2:"
    : [at] "+r"(at) : [count] "r"(count), [number] "r"(number) : "lr", "q0", "memory");
{_RVV}
  for (int32_t at = 0; at < count;) {{
    size_t some = __riscv_vsetvl_e8m8((size_t)(count - at));
    __riscv_vse8_v_i8m8(to + at, __riscv_vmv_v_x_i8m8((int8_t)number, some), some);
    at += (int32_t)some;
  }}
#else
  for (int32_t at = 0; at < count; at++) to[at] = (int8_t)number;
#endif
  return to + count;
}}""")

# Beside COPY and FILL, in any order.
WINDOW = Step("sterna_copy_window", STEP + """\
static inline int8_t *sterna_copy_bytes(int8_t *to, const int8_t *from, int32_t count);
static inline int8_t *sterna_fill_bytes(int8_t *to, int32_t number, int32_t count);

/* What a window reads, its corner being at a row and a column that may lie outside. */
static STERNA_STEP int32_t sterna_copy_window(
    int8_t *to, const int8_t *image, int32_t top, int32_t left, int32_t rows, int32_t columns,
    int32_t depth, int32_t down, int32_t across, int32_t border) {
  int32_t first = left < 0 ? -left : 0, last = columns - left;
  first = first < across ? first : across;
  last = last < across ? last : across;
  last = last > first ? last : first;
  int32_t before = first * depth, inside = (last - first) * depth, after = (across - last) * depth;
  image += (top * columns + left) * depth;
  for (int32_t row = top; row < top + down; row++) {
    if (row < 0 || row >= rows) {
      to = sterna_fill_bytes(to, border, across * depth);
    } else {
      to = sterna_fill_bytes(to, border, before);
      to = sterna_copy_bytes(to, image + before, inside);
      to = sterna_fill_bytes(to, border, after);
    }
    image += columns * depth;
  }
  return 0;
}""")

# Beside COPY and FILL, in any order.
WINDOW_APART = Step("sterna_copy_window_apart", STEP + """\
static inline int8_t *sterna_copy_bytes(int8_t *to, const int8_t *from, int32_t count);
static inline int8_t *sterna_fill_bytes(int8_t *to, int32_t number, int32_t count);

/* The same of a window whose taps lie so many rows and columns apart. */
static STERNA_STEP int32_t sterna_copy_window_apart(
    int8_t *to, const int8_t *image, int32_t top, int32_t left, int32_t rows, int32_t columns,
    int32_t depth, int32_t down, int32_t across, int32_t border, int32_t row_step,
    int32_t column_step) {
  for (int32_t row = top; row < top + down * row_step; row += row_step) {
    for (int32_t column = left; column < left + across * column_step; column += column_step) {
      if (row < 0 || row >= rows || column < 0 || column >= columns) {
        to = sterna_fill_bytes(to, border, depth);
      } else {
        to = sterna_copy_bytes(to, image + (row * columns + column) * depth, depth);
      }
    }
  }
  return 0;
}""")


# ---- depthwise ----


# Beside FILL, in any order.
PLANE = Step("sterna_copy_plane", f"""{STEP}{INCLUDE}

static inline int8_t *sterna_fill_bytes(int8_t *to, int32_t number, int32_t count);

/* Up to four channels of some rows, with room for four, between the border's pixels. */
static STERNA_STEP int32_t sterna_copy_plane(
    int8_t *to, const int8_t *image, int32_t top, int32_t rows, int32_t columns, int32_t channels,
    int32_t height, int32_t before, int32_t inside, int32_t after, int32_t border,
    int32_t count) {{
  image += top * columns * channels;
{HELIUM}
  /* four pixels at once where they are words, whose addresses gathers take only if aligned */
  int is_word = count == {QUAD} && (((uintptr_t)image | (uint32_t)channels) & 3) == 0;
  uint32x4_t pixels = vmulq_n_u32(vidupq_n_u32(0, 1), (uint32_t)channels);
  int32_t four = 4 * channels, row = top;
  for (; is_word && row < top + height; row++, image += columns * channels) {{
    if (row < 0 || row >= rows) {{
      to = sterna_fill_bytes(to, border, (before + inside + after) * {QUAD});
      continue;
    }}
    if (before > 0) to = sterna_fill_bytes(to, border, before * {QUAD});
    const int8_t *from = image;
    int8_t *at = to;
    __asm__ volatile(
      "wlstp.32 lr, %[inside], 2f\\n"
      "1:\\n\\t"
      "vldrw.u32 q0, [%[from], %q[pixels]]\\n\\t"
      "add %[from], %[from], %[four]\\n\\t"
      "vstrw.32 q0, [%[at]], #16\\n\\t"
      "letp lr, 1b\\n"
      "2:"
      : [at] "+r"(at), [from] "+r"(from)
      : [inside] "r"(inside), [pixels] "w"(pixels), [four] "r"(four)
      : "lr", "q0", "memory");
    to += inside * {QUAD};
    if (after > 0) to = sterna_fill_bytes(to, border, after * {QUAD});
  }}
  if (is_word) return 0;
  mve_pred16_t some = vctp32q((uint32_t)count);
#endif
  for (int32_t row = top; row < top + height; row++) {{
    const int8_t *from = image;
    image += columns * channels;
    if (row < 0 || row >= rows) {{
      to = sterna_fill_bytes(to, border, (before + inside + after) * {QUAD});
      continue;
    }}
    to = sterna_fill_bytes(to, border, before * {QUAD});
    for (int32_t column = inside; column > 0; column--) {{
{HELIUM}
      vstrbq_p_s32(STERNA_PLACE(int8_t, to),
                   vldrbq_z_s32(STERNA_PLACE(const int8_t, from), some), some);
#else
      for (int32_t channel = 0; channel < count; channel++) to[channel] = from[channel];
#endif
      to += {QUAD};
      from += channels;
    }}
    to = sterna_fill_bytes(to, border, after * {QUAD});
  }}
  return 0;
}}""")

# Beside FILL, in any order.
PLANE_REPEATED = Step("sterna_copy_plane_repeated", STEP + f"""\
static inline int8_t *sterna_fill_bytes(int8_t *to, int32_t number, int32_t count);

/* The same where so many channels in a row read one channel of the image, the first four of them
   one channel from so many on. */
static STERNA_STEP int32_t sterna_copy_plane_repeated(
    int8_t *to, const int8_t *image, int32_t top, int32_t rows, int32_t columns, int32_t channels,
    int32_t height, int32_t before, int32_t inside, int32_t after, int32_t border,
    int32_t count, int32_t first, int32_t multiplier) {{
  int32_t place[{QUAD}];
  for (int32_t n = 0; n < {QUAD}; n++) {{
    place[n] = (first + (n < count ? n : count - 1)) / multiplier;
  }}
  image += top * columns * channels;
  for (int32_t row = top; row < top + height; row++) {{
    const int8_t *from = image;
    image += columns * channels;
    if (row < 0 || row >= rows) {{
      to = sterna_fill_bytes(to, border, (before + inside + after) * {QUAD});
      continue;
    }}
    to = sterna_fill_bytes(to, border, before * {QUAD});
    for (int32_t column = 0; column < inside; column++, from += channels, to += {QUAD}) {{
      to[0] = from[place[0]]; to[1] = from[place[1]];
      to[2] = from[place[2]]; to[3] = from[place[3]];
    }}
    to = sterna_fill_bytes(to, border, after * {QUAD});
  }}
  return 0;
}}""")


def _words(place: str) -> str:
    """Four bytes as a vector of words."""
    return f"__riscv_vsext_vf4_i32m1(__riscv_vle8_v_i8mf4({place}, 4), 4)"


def quad_dots(columns: int, apart: int, stride: int, outputs: int) -> Step:
    """Windows of so many columns over a plane of four channels, so many neighbours at a time.

    apart: the steps from a column of a window to the next one.
    """
    name = f"sterna_quad_dots_{columns}_{stride}_{outputs}" + f"_{apart}" * (apart > 1)
    row: list[str] = []
    plain: list[str] = []
    wide: list[str] = []
    for tap in range(columns):
        row.append("vldrb.s32 q6, [%[w]], #4")
        wide.append(f"      v = {_words(f'w + {QUAD * tap}')};")
        for n in range(outputs):
            at = QUAD * (n * stride + tap * apart)
            row += [f"vldrb.s32 q7, [%[x], #{at}]", "vmul.i32 q7, q7, q6",
                    f"vadd.i32 q{n}, q{n}, q7"]
            plain.append(f"        s{n} += x[{at}] * w[{QUAD * tap}];")
            wide.append(f"      s{n} = __riscv_vmacc_vv_i32m1(s{n}, {_words(f'x + {at}')}, v, 4);")
    body = [
        "dls lr, %[rows]", *[f"vmov.i32 q{n}, #0" for n in range(outputs)], "2:", *row,
        "add %[x], %[x], %[pitch]", "le lr, 2b",
        *[f"vstrw.32 q{n}, [%[sums]], #16" for n in range(outputs)],
    ]
    products, vectors = "\n".join(plain), "\n".join(wide)
    stored = "\n".join(f"    __riscv_vse32_v_i32m1(sums, s{n}, 4); sums += {QUAD};"
                       for n in range(outputs))
    kept = "\n".join(f"      sums[{QUAD * n}] = s{n};" for n in range(outputs))
    # loads that widen take addresses in the first eight registers
    return Step(name, STEP + _RVV_INCLUDE + f"""
static STERNA_STEP int32_t {name}(
    int32_t *sums, const int8_t *weights, const int8_t *plane, int32_t pitch, int32_t rows,
    int32_t tiles) {{
  for (; tiles > 0; tiles--) {{
    const int8_t *x = plane, *w = weights;
{HELIUM}
    __asm__ volatile(
{shown(body)}
      : [sums] "+r"(sums), [w] "+l"(w), [x] "+l"(x) : [pitch] "r"(pitch), [rows] "r"(rows)
      : "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "memory");
{_RVV}
    vint32m1_t v, {", ".join(f"s{n} = __riscv_vmv_v_x_i32m1(0, 4)" for n in range(outputs))};
    for (int32_t row = 0; row < rows; row++, x += pitch, w += {QUAD * columns}) {{
{vectors}
    }}
{stored}
#else
    for (int32_t lane = 0; lane < {QUAD}; lane++, sums++) {{
      int32_t {", ".join(f"s{n} = 0" for n in range(outputs))};
      x = plane + lane, w = weights + lane;
#if defined(__clang__)
#pragma nounroll  /* a row's products are written out */
#endif
      for (int32_t row = 0; row < rows; row++, x += pitch, w += {QUAD * columns}) {{
{products}
      }}
{kept}
    }}
    sums += {QUAD * (outputs - 1)};
#endif
    plane += {QUAD * outputs * stride};
  }}
  return 0;
}}""")
