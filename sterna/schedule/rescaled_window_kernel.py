"""Depthwise layers whose window is as large as the image, with their rescaling (SMLAD, SMMLA).

There are no neighbours whose sums share what they read, so four channels are summed together, two
taps at a time: words of data are widened to pairs of taps, as which weights lie there. Four
channels lie in one record: what sums begin with, two words of weights for a tap that is alone, of
channels 0 and 2 and of 1 and 3, four for two taps, one of each channel, and by channel a multiplier
and a shift as a factor, behind the zero point.
"""

from sterna.ir import build
from sterna.schedule.contraction import Contraction
from sterna.schedule.halves_steps import SELECT, STEP, Step, assembly, loop
from sterna.schedule.rescaled_kernel import plainly_rounded_twice, rounded_twice
from sterna.schedule.statement_kernel import StatementKernel
from sterna.tir import address_of, call_extern

# Channels of a record, and its words beside those of weights.
FOUR, BESIDE = 4, 13
# Instructions of four channels beside their taps, of two taps, and of one that is alone.
CALLED, PAIR, SINGLE = 36, 16, 10


def covers_image(made: Contraction) -> bool:
    """Whether each channel of an image has a single sum, of all that there is."""
    return made.is_depthwise and made.window == made.image and not made.is_padded


def rescaled_window_instructions(made: Contraction) -> float:
    """Of the whole layer."""
    pairs, single = divmod(made.taps, 2)
    return made.batch * made.outputs // FOUR * (CALLED + PAIR * pairs + SINGLE * single)


class RescaledWindowKernel(StatementKernel):
    """Images one after the other, each four channels at a time."""

    def __init__(self, made: Contraction) -> None:
        self.made = made

    def describe(self) -> str:
        return "halves of words, four channels in registers, with their rescaling"

    def write(self) -> None:
        ib, made = self.ib, self.made
        ib.scope_attr(None, "pragma_import_c", WINDOW_DOTS.definition)
        with ib.for_range(0, made.batch, name="image") as image:
            ib.emit(call_extern(
                "int32", WINDOW_DOTS.name, address_of(self.out[image, 0, 0, 0]),
                address_of(self.weight[0, 0]), address_of(self.data[image, 0, 0, 0]),
                build.const(made.taps), build.const(made.outputs)))


# In the order in which one instruction loads them.
_SUMS = {f"s{n}": f"r{register}" for n, register in enumerate((4, 5, 6, 8))}


_PAIR = [
    "ldr %[x], [%[from]]", "ldr %[y], [%[from], %[channels]]",
    "add %[from], %[from], %[channels], lsl #1",
    "pkhbt %[x1], %[x], %[y], lsl #16", "pkhtb %[y], %[y], %[x], asr #16",
    "ldrd %[w], %[w1], [%[records]], #8", "sxtb16 %[x], %[x1]", "sxtb16 %[x1], %[x1], ror #8",
    "smlad %[s0], %[x], %[w], %[s0]", "smlad %[s1], %[x1], %[w1], %[s1]",
    "ldrd %[w], %[w1], [%[records]], #8", "sxtb16 %[x], %[y]", "sxtb16 %[y], %[y], ror #8",
    "smlad %[s2], %[x], %[w], %[s2]", "smlad %[s3], %[y], %[w1], %[s3]",
]
_ALONE = [
    "ldr %[x], [%[from]]", "ldrd %[w], %[w1], [%[records]], #8",
    "add %[from], %[from], %[channels]",
    "sxtb16 %[x1], %[x], ror #8", "sxtb16 %[x], %[x]",
    "smlabb %[s0], %[x], %[w], %[s0]", "smlabb %[s1], %[x1], %[w1], %[s1]",
    "smlatt %[s2], %[x], %[w], %[s2]", "smlatt %[s3], %[x1], %[w1], %[s3]",
]
_CHANGED, _SCRATCH = [*_SUMS, "records", "from"], ["x", "x1", "y", "w", "w1"]
_BEGIN = assembly([f"ldmia %[records]!, {{{', '.join(f'%[{each}]' for each in _SUMS)}}}"],
                  ["records"], [*_SUMS], [])
_SINGLE = assembly(_ALONE, _CHANGED, ["x", "x1", "w", "w1"], ["channels"])
_ONE_PAIR = assembly(_PAIR, _CHANGED, _SCRATCH, ["channels"])
_PAIRS = assembly(loop([*_PAIR, *_PAIR], "left", 1), [*_CHANGED, "left"], _SCRATCH, ["channels"])
# What rounds two sums is loaded together, the zero point before the first ones.
_LOADED = {"zero": "r2", "factor": "r3", "right": "r10", "factor1": "r12", "right1": "r14"}
_FINISH = assembly(
    [line for first in range(0, FOUR, 2) for line in (
        f"ldmia %[records]!, {{{', '.join(f'%[{each}]' for each in [*_LOADED][first // 2:])}}}",
        *rounded_twice(f"s{first}", "factor", "right", "zero"), f"strb %[s{first}], [%[out]], #1",
        *rounded_twice(f"s{first + 1}", "factor1", "right1", "zero"),
        f"strb %[s{first + 1}], [%[out]], #1")],
    [*_SUMS, "records", "out"], [*_LOADED], [])
_PLAIN = "\n".join(f"      {line}" for line in plainly_rounded_twice("sum"))


def _registers(names: dict[str, str]) -> str:
    return "\n".join(
        f'    register int32_t {each} __asm__("{place}");' for each, place in names.items())


WINDOW_DOTS = Step("sterna_rescaled_window", STEP + f"""\
/* Four channels after the other, so many taps each. */
static STERNA_STEP int32_t sterna_rescaled_window(
    int8_t *out, const int32_t *records, const int8_t *data, int32_t taps, int32_t channels) {{
  const int8_t *from = data, *end = out + channels;
  const int32_t back = {FOUR} - taps * channels;
  for (; out != end; from += back) {{
{SELECT}
#ifdef __clang__
    /* It would hold known numbers in registers of their own, of which none is free below. */
    __asm__("" : "+r"(taps), "+r"(channels));
#endif
{_registers(_SUMS)}
    int32_t left = (taps >> 2) - 1;
{_BEGIN}
    if (taps & 1) {{
      int32_t x, x1, w, w1;
{_SINGLE}
    }}
    if (taps & 2) {{
      int32_t x, x1, y, w, w1;
{_ONE_PAIR}
    }}
    if (left >= 0) {{
      int32_t x, x1, y, w, w1;
{_PAIRS}
    }}
{_registers(_LOADED)}
{_FINISH}
#else
    const int32_t *words = records + {FOUR}, *rest = words + 2 * taps;
    const int32_t alone = taps & 1, *pairs = words + 2 * alone;
    int32_t zero = *rest++;
    for (int32_t n = 0; n < {FOUR}; n++) {{
      int32_t sum = *records++, factor = *rest++, right = *rest++;
      if (alone) sum += from[n] * (int16_t)(words[n % 2] >> 16 * (n / 2));
      for (int32_t tap = 0; tap < taps - alone; tap++) {{
        int32_t word = pairs[{FOUR} * (tap / 2) + n] >> 16 * (tap % 2);
        sum += from[(tap + alone) * channels + n] * (int16_t)word;
      }}
{_PLAIN}
      *out++ = (int8_t)sum;
    }}
    records = rest;
    from += taps * channels;
#endif
  }}
  return 0;
}}""")
