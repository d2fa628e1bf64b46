"""Depthwise layers whose window is as large as the image, with their rescaling (SMLABB, SMMLA).

There are no neighbours whose sums share what they read, so four channels are summed together: a
word of data and one of weights are all that a tap reads. Four channels lie in one record: what
sums begin with, a word of weights for each tap, and by channel a multiplier and a shift as a
factor, behind the zero point.
"""

from sterna.ir import build
from sterna.schedule.contraction import Contraction
from sterna.schedule.halves_steps import SELECT, STEP, Step, assembly, loop
from sterna.schedule.rescaled_kernel import plainly_rounded_twice, rounded_twice
from sterna.schedule.statement_kernel import StatementKernel
from sterna.tir import address_of, call_extern

# Channels of a record, and its words beside those of weights.
FOUR, BESIDE = 4, 13
# Instructions of four channels beside their taps, of two taps, and of one that is left.
CALLED, PAIR, SINGLE = 42, 23, 12


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


_SUMS = [f"s{n}" for n in range(FOUR)]


def _tap(place: str) -> list[str]:
    return [
        f"ldr %[x], {place}", "ldr %[w], [%[records]], #4",
        "sxtb16 %[x1], %[x], ror #8", "sxtb16 %[w1], %[w], ror #8",
        "sxtb16 %[x], %[x]", "sxtb16 %[w], %[w]",
        "smlabb %[s0], %[x], %[w], %[s0]", "smlabb %[s1], %[x1], %[w1], %[s1]",
        "smlatt %[s2], %[x], %[w], %[s2]", "smlatt %[s3], %[x1], %[w1], %[s3]",
    ]


_CHANGED, _SCRATCH = [*_SUMS, "records", "from"], ["x", "x1", "w", "w1"]
_BEGIN = assembly(["ldrd %[s0], %[s1], [%[records]], #8", "ldrd %[s2], %[s3], [%[records]], #8"],
                  ["records"], _SUMS, [])
_SINGLE = assembly([*_tap("[%[from]]"), "add %[from], %[from], %[channels]"],
                   _CHANGED, _SCRATCH, ["channels"])
_PAIRS = assembly(
    loop([*_tap("[%[from]]"), *_tap("[%[from], %[channels]]"),
          "add %[from], %[from], %[channels], lsl #1"], "left", 1),
    [*_CHANGED, "left"], _SCRATCH, ["channels"])
_FINISH = assembly(
    ["ldr %[zero], [%[records]], #4",
     *[line for each in _SUMS for line in (
         "ldrd %[factor], %[right], [%[records]], #8",
         *rounded_twice(each, "factor", "right", "zero"), f"strb %[{each}], [%[out]], #1")]],
    [*_SUMS, "records", "out"], ["factor", "right", "zero"], [])
_PLAIN = "\n".join(f"      {line}" for line in plainly_rounded_twice("sum"))

WINDOW_DOTS = Step("sterna_rescaled_window", STEP + f"""\
/* Four channels after the other, so many taps each. */
static STERNA_STEP int32_t sterna_rescaled_window(
    int8_t *out, const int32_t *records, const int8_t *data, int32_t taps, int32_t channels) {{
  for (int32_t channel = 0; channel < channels; channel += {FOUR}) {{
{SELECT}
    const int8_t *from = data + channel;
    int32_t s0, s1, s2, s3, x, x1, w, w1, factor, right, zero, left = (taps >> 1) - 1;
{_BEGIN}
    if (taps & 1) {{
{_SINGLE}
    }}
    if (left >= 0) {{
{_PAIRS}
    }}
{_FINISH}
#else
    const int32_t *words = records + {FOUR}, *rest = words + taps;
    int32_t zero = *rest++;
    for (int32_t n = 0; n < {FOUR}; n++) {{
      int32_t sum = *records++, factor = *rest++, right = *rest++;
      for (int32_t tap = 0; tap < taps; tap++) {{
        sum += data[tap * channels + channel + n] * (int8_t)(words[tap] >> 8 * n);
      }}
{_PLAIN}
      *out++ = (int8_t)sum;
    }}
    records = rest;
#endif
  }}
  return 0;
}}""")
