"""Words of 32 bits as halves of 16: instructions of Arm's DSP extension, and the same in C."""

# One instruction where the compiler takes its name, else what follows #else.
_EITHER = """\
static inline int32_t sterna_{name}({parameters}) {{
#if defined(__GNUC__) && defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP
  int32_t y;
  __asm__("{instruction}" : "=r"(y) : {operands});
  return y;
#else
  return (int32_t)({plain});
#endif
}}"""


def _either(name: str, arguments: str, instruction: str, operands: str, plain: str) -> str:
    return _EITHER.format(
        name=name, instruction=instruction, plain=plain,
        parameters=", ".join(f"int32_t {each}" for each in arguments),
        operands=", ".join(f'"r"({each})' for each in operands.split(", ")),
    )


# Products of 64 bits are functions of the compiler's library on processors that have none of more
# than 32: four products of halves, and of the low word what decides how the high one is rounded.
# It is a function of its own: such processors have few registers.
_HIGH_OF_HALVES = """\
#if defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
__attribute__((noinline)) static int32_t sterna_high_of_halves(int32_t a, int32_t b) {
  uint32_t low = (uint32_t)(uint16_t)a * (uint16_t)b;
  uint32_t below = (uint32_t)(uint16_t)a * (uint32_t)(b >> 16) + (low >> 16);
  int32_t above = (a >> 16) * (int32_t)(uint16_t)b;
  uint32_t middle = (below & 0xffff) + ((uint32_t)above & 0xffff);
  int32_t high = (a >> 16) * (b >> 16) + (int32_t)(below >> 16) + (above >> 16);
  high += (int32_t)(middle >> 16);
  return (int32_t)((uint32_t)high * 2 + ((((middle >> 14) & 3) + 1) >> 1));
}
#endif
"""

_CALLED = """\
#elif defined(__ARM_ARCH_6M__) || defined(__ARM_ARCH_8M_BASE__)
  return sterna_high_of_halves(a, b);
#else"""

HALVES: dict[str, str] = {
    "widen_even": _either(
        "widen_even", "a", "sxtb16 %0, %1", "a",
        "(uint32_t)(uint16_t)(int8_t)a | (uint32_t)(int8_t)(a >> 16) << 16",
    ),
    "widen_odd": _either(
        "widen_odd", "a", "sxtb16 %0, %1, ror #8", "a",
        "(uint32_t)(uint16_t)(int8_t)(a >> 8) | (uint32_t)(a >> 24) << 16",
    ),
    "join_halves": _either(
        "join_halves", "ab", "pkhbt %0, %1, %2, lsl #16", "a, b",
        "(uint32_t)(uint16_t)a | (uint32_t)b << 16",
    ),
    # Twice b has no room for a sign: the instruction counts a * 2**32 less, and adds a again.
    "high_product": _HIGH_OF_HALVES + _either(
        "high_product", "ab", "smmlar %0, %1, %2, %1", "a, (int32_t)((uint32_t)b << 1)",
        "((int64_t)a * b + 1073741824) >> 31",
    ).replace("#else", _CALLED),
}

LOAD_WORD = """\
static inline int32_t sterna_load_word(const int8_t *p) {
  return (int32_t)((uint32_t)(uint8_t)p[0] | (uint32_t)(uint8_t)p[1] << 8 |
                   (uint32_t)(uint8_t)p[2] << 16 | (uint32_t)(uint8_t)p[3] << 24);
}"""


def saturate_word(name: str, bits: int, shift: int) -> str:
    """A word, shifted to the right, held within the range of so many bits with a sign: SSAT.

    It stays a word: compilers do not know that what assembly gives needs no extension.
    """
    least, most = -(1 << bits - 1), (1 << bits - 1) - 1
    moved = f", asr #{shift}" if shift else ""
    plain = f"  x >>= {shift};\n" if shift else ""
    return f"""\
static inline int32_t {name}(int32_t x) {{
#if defined(__GNUC__) && defined(__ARM_FEATURE_SAT) && __ARM_ARCH >= 7
  int32_t y;
  __asm__("ssat %0, #{bits}, %1{moved}" : "=r"(y) : "r"(x));
  return y;
#else
{plain}  x = x < {least} ? {least} : x;
  return x > {most} ? {most} : x;
#endif
}}"""
