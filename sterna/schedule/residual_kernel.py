"""Residual connections of few channels: a layer of one tap, rescaled and added to bytes (SMLAD).

Where a sum has few products, what follows it costs as much as they do: its rescaling, and the sum
with the bytes beside. So all of an output channel lies in one record: what its sums begin with,
weights as halves of words, the multiplier, the shift as a factor, twice the zero point and what
rounds, and how many channels are behind it. Factors of the sum, and addresses, lie behind the
panel, from where they are read when the registers of pixels are free again.
"""

from collections.abc import Sequence

from sterna.ir import build
from sterna.schedule.contraction import Contraction
from sterna.schedule.halves_kernel import HalvesKernel, groups_of
from sterna.schedule.halves_steps import PAIR, SELECT, STEP, Step, assembly
from sterna.schedule.implementations.halves import CALLED, WIDENED
from sterna.schedule.overlap import lead_of_pixels
from sterna.schedule.rescaled_kernel import (
    MOST_BYTES,
    MOST_GROUPS,
    PIXELS,
    held,
    plainly_rounded_twice,
    products_of_word,
    rounded_twice,
)
from sterna.schedule.statement_kernel import places_of
from sterna.tir import address_of, call_extern

# Words of a record beside its weights, and groups of a panel for what lies behind it.
BESIDE, TAIL = 5, 3
# Instructions of an output channel beside its pixels, and of a pixel beside its products.
CHANNEL, PIXEL = 8, 9


def residual_pixels_of(made: Contraction) -> int:
    """Pixels of a tile that all panels are full of; 0 if there is none."""
    is_one_tap = made.taps == 1 and not made.is_padded and not made.transposed
    fits = is_one_tap and made.depth % 4 == 0 and groups_of(made) <= MOST_GROUPS
    near = [each for each in PIXELS if each * made.outputs <= MOST_BYTES]
    return next((each for each in near if fits and made.pixels % each == 0), 0)


def residual_instructions(made: Contraction, pixels: int) -> float:
    """Of the whole layer, with its sum."""
    groups = groups_of(made)
    products = groups * (1 + -(-pixels // 2) + 2 * pixels)
    panel = 2 * CALLED + WIDENED * groups * pixels
    return made.pixels // pixels * (
        panel + made.outputs * (CHANNEL + products + PIXEL * pixels))


class ResidualKernel(HalvesKernel):
    """Panels of pixels one after the other, each times all records, and added to bytes."""

    def __init__(
        self, made: Contraction, pixels: int, factors: tuple[int, int, int, int],
        outer: Sequence[int],
    ) -> None:
        """factors: of the layer and of the bytes beside, what is added, and the shift."""
        super().__init__(made, pixels, 1, outer)
        self.factors = factors

    def describe(self) -> str:
        return f"halves of words, {self.pixels} pixels in registers, with their residual sum"

    def write(self) -> None:
        ib, made, each = self.ib, self.made, self.pixels
        step = residual_dots(each, self.groups, made.outputs, self.factors)
        ib.scope_attr(None, "pragma_import_c", step.definition)
        beside = self.beside[0]
        self.read_first(lead_of_pixels(made, each))
        self.read_first(source=beside)
        panel = ib.allocate("int64", (self.groups * each + TAIL,), name="pixels")
        with ib.for_range(0, made.pixels // each, name="panel") as number:
            first = number * each
            self._widen(panel, first, build.const(each))
            at = (*places_of(first, self.outer), 0)
            ib.emit(call_extern(
                "int32", step.name, address_of(self.out[at]), address_of(beside[at]),
                address_of(self.weight[0, 0]), address_of(panel[0])))


def residual_dots(
    pixels: int, groups: int, outputs: int, factors: tuple[int, int, int, int]
) -> Step:
    """So many pixels of a panel times all records, added to as many bytes."""
    given = "_".join(f"{each & 0xFFFFFFFF:x}" for each in factors)
    name = f"sterna_residual_dots_{pixels}x{4 * groups}x{outputs}_{given}"
    shift = factors[3]
    names = [f"s{n}" for n in range(pixels)]
    fast = [*_keep(factors, 8 * groups * pixels), "1:", *_products(names, groups),
            *_rescaled(names), *_summed(names, outputs, shift, 8 * groups * pixels + 12), "bne 1b"]
    held = "\n".join(f'  register int32_t {each} __asm__("{PAIR[each]}");' for each in PAIR)
    body = assembly(fast, ["even", "odd", "records", "panel"], [*names, *PAIR], [])
    return Step(name, STEP + f"""\
static STERNA_STEP int32_t {name}(
    int8_t *out, const int8_t *beside, const int32_t *records, int64_t *panel) {{
  int32_t {", ".join(names)};
{SELECT}
  int8_t *even = out;
  const int8_t *odd = beside;
{held}
{body}
#else
  for (int32_t channel = 0; channel < {outputs}; channel++, out++, beside++) {{
{_plain(names, groups, outputs, factors)}
  }}
#endif
  return 0;
}}""")


def _keep(factors: tuple[int, int, int, int], tail: int) -> list[str]:
    """Factors and addresses behind the panel."""
    lines = [f"strd %[even], %[odd], [%[panel], #{tail + 12}]"]
    for place, number in enumerate(factors[:3]):
        low, high = number & 0xFFFF, number >> 16 & 0xFFFF
        lines += [f"movw %[low], #{low}", f"movt %[low], #{high}",
                  f"str %[low], [%[panel], #{tail + 4 * place}]"]
    return lines


def _products(names: Sequence[str], groups: int) -> list[str]:
    """Sums of all groups; the last holds what sums begin with until its own products come."""
    begun = names[-1]
    lines = [f"ldr %[{begun}], [%[records]], #4"]
    pair = ", ".join(f"%[{each}]" for each in PAIR)
    for group in range(groups):
        lines.append("ldrd %[even], %[odd], [%[records]], #8")
        for pixel, total in enumerate(names):
            second = "2" if pixel % 2 else ""
            if not second:
                lines.append(f"ldmia %[panel]!, {{{pair}}}" if pixel + 1 < len(names)
                             else "ldrd %[low], %[high], [%[panel]], #8")
            lines += [
                f"smlad %[{total}], %[low{second}], %[even], %[{total if group else begun}]",
                f"smlad %[{total}], %[high{second}], %[odd], %[{total}]",
            ]
    return lines


def _rescaled(names: Sequence[str]) -> list[str]:
    """Sums as bytes: low is the multiplier, high the shift, low2 the zero point.

    Flags say from here on whether there is a channel behind this one.
    """
    lines = [f"ldmia %[records]!, {{{', '.join(f'%[{each}]' for each in PAIR)}}}",
             "cmp %[high2], #0"]
    for each in names:
        lines += rounded_twice(each, "low", "high", "low2")
    return lines


def _summed(names: Sequence[str], outputs: int, shift: int, tail: int) -> list[str]:
    """Bytes times a factor (low), with those beside (high2) times another (high), and start."""
    lines = ["ldmia %[panel]!, {%[low], %[high], %[low2]}", "ldrd %[even], %[odd], [%[panel]]"]
    for pixel in reversed(range(len(names))):
        to, read = (f"[%[{each}], #{pixel * outputs}]" if pixel else f"[%[{each}]], #1"
                    for each in ("even", "odd"))
        each = names[pixel]
        lines += [f"ldrsb %[high2], {read}", f"mla %[{each}], %[{each}], %[low], %[low2]",
                  f"mla %[{each}], %[high2], %[high], %[{each}]",
                  f"ssat %[{each}], #8, %[{each}], asr #{shift}", f"strb %[{each}], {to}"]
    return [*lines, "strd %[even], %[odd], [%[panel]]", f"sub %[panel], %[panel], #{tail}"]


def _plain(
    names: Sequence[str], groups: int, outputs: int, factors: tuple[int, int, int, int]
) -> str:
    """The same of one channel in plain C."""
    own, other, start, shift = factors
    lines = [f"    {' = '.join(names)} = *records++;",
             f"    for (int32_t g = 0; g < {groups}; g++) {{",
             "      int32_t even = *records++, odd = *records++;"]
    for pixel, total in enumerate(names):
        lines += [f"      int64_t p{pixel} = panel[g * {len(names)} + {pixel}];",
                  f"      {total} += {products_of_word('even', f'p{pixel}', 0)} + "
                  f"{products_of_word('odd', f'p{pixel}', 32)};"]
    lines += ["    }", "    int32_t factor = *records++, right = *records++, zero = *records++;",
              "    records++;"]
    for pixel, each in enumerate(names):
        at = pixel * outputs
        lines += [
            *plainly_rounded_twice(each),
            f"    {each} = ({each} * ({own}) + beside[{at}] * ({other}) + ({start})) >> {shift};",
            f"    out[{at}] = (int8_t){held(each)};",
        ]
    return "\n".join(lines)
