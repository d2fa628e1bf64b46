"""Pointwise layers of few channels with their rescaling (SMLAD, SMMLA), one record per channel.

Where a sum has few products, what follows it costs as much as they do. So all of an output channel
lies in one record: what its sums begin with, weights as halves of words, the multiplier, and what
is added to the high word of the product before the shift that all channels have; or, where each has
its own, the multiplier, the shift as a factor, twice the zero point and what rounds. One piece of
assembly reads records one after the other, and stores bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sterna.ir import build
from sterna.schedule.contraction import Contraction
from sterna.schedule.halves_kernel import HalvesKernel, groups_of
from sterna.schedule.halves_steps import SELECT, STEP, Step, assembly, loop
from sterna.schedule.implementations.halves import WIDENED
from sterna.schedule.overlap import lead_of_pixels
from sterna.schedule.statement_kernel import places_of
from sterna.tir import address_of, call_extern

# Pixels whose sums are in registers together, and what addresses inside instructions reach.
PIXELS = (4, 3, 2)
MOST_GROUPS, MOST_BYTES = 30, 4095
# Words of a record beside its weights, where all channels have one shift, and where they do not.
BESIDE, WITH_SHIFT = 3, 4
# Instructions of a panel beside its channels.
CALLED = 24


def pixels_of(made: Contraction) -> int:
    """Pixels of a tile that all panels are full of; 0 if there is none."""
    fits = made.is_pointwise and made.depth % 4 == 0 and groups_of(made) <= MOST_GROUPS
    near = [each for each in PIXELS if each * made.outputs <= MOST_BYTES]
    return next((each for each in near if fits and made.pixels % each == 0), 0)


def rescaled_instructions(made: Contraction, pixels: int, one_shift: bool) -> float:
    """Of the whole layer."""
    groups = groups_of(made)
    channel = groups * (1 + 3 * pixels) + (4 + 3 * pixels if one_shift else 5 + 5 * pixels)
    panel = CALLED + WIDENED * groups * pixels + made.outputs * channel
    return made.pixels // pixels * panel


class RescaledKernel(HalvesKernel):
    """Panels of pixels one after the other, each times all records."""

    def __init__(
        self, made: Contraction, pixels: int, shift: int, outer: Sequence[int]
    ) -> None:
        """shift: that of all channels, or 0 if each has its own."""
        super().__init__(made, pixels, 1, outer)
        self.shift = shift

    def describe(self) -> str:
        return f"halves of words, {self.pixels} pixels in registers, with their rescaling"

    def write(self) -> None:
        ib, made, each = self.ib, self.made, self.pixels
        step = rescaled_dots(each, self.groups, made.outputs, self.shift)
        ib.scope_attr(None, "pragma_import_c", step.definition)
        self.read_first(lead_of_pixels(made, each))
        panel = ib.allocate("int64", (self.groups * each,), name="pixels")
        with ib.for_range(0, made.pixels // each, name="panel") as number:
            first = number * each
            self._widen(panel, first, build.const(each))
            ib.emit(call_extern(
                "int32", step.name, address_of(self.out[(*places_of(first, self.outer), 0)]),
                address_of(self.weight[0, 0]), address_of(panel[0])))


def rescaled_dots(pixels: int, groups: int, outputs: int, shift: int) -> Step:
    """So many pixels of a panel times all records, as bytes."""
    name = f"sterna_rescaled_dots_{pixels}x{4 * groups}x{outputs}_{shift}"
    names = [f"s{n}" for n in range(pixels)]
    begun = names[-1]  # holds what sums begin with until its own products come
    lines = [f"ldr %[{begun}], [%[records]], #4"]
    plain = [f"    {' = '.join(names)} = *records++;",
             f"    for (int32_t g = 0; g < {groups}; g++) {{"]
    for group in range(groups):
        lines.append("ldrd %[even], %[odd], [%[records]], #8")
        for pixel, total in enumerate(names):
            lines += [
                f"ldrd %[low], %[high], [%[panel], #{8 * (group * pixels + pixel)}]",
                f"smlad %[{total}], %[low], %[even], %[{begun if group == 0 else total}]",
                f"smlad %[{total}], %[high], %[odd], %[{total}]",
            ]
    plain += ["      int32_t even = *records++, odd = *records++;"]
    for pixel, total in enumerate(names):
        plain += [f"      int64_t p{pixel} = panel[g * {pixels} + {pixel}];",
                  f"      {total} += {products_of_word('even', f'p{pixel}', 0)} + "
                  f"{products_of_word('odd', f'p{pixel}', 32)};"]
    plain.append("    }")
    finish = _with_one_shift(shift) if shift else _with_own_shifts()
    lines += finish.loads
    plain.append(finish.plain_loads)
    for pixel in reversed(range(pixels)):
        at = f"[%[out], #{pixel * outputs}]" if pixel else "[%[out]], #1"
        lines += [*finish.steps(f"s{pixel}"), f"strb %[s{pixel}], {at}"]
        plain += [*finish.plain_steps(f"s{pixel}"),
                  f"    out[{pixel * outputs}] = (int8_t)s{pixel};"]
    scratch = [*names, "even", "odd", "low", "high"]
    body = assembly(loop(lines, "left", 1), ["out", "records", "left"], scratch, ["panel"])
    slow = "\n".join([*plain, "    out++;"])
    return Step(name, STEP + f"""\
static STERNA_STEP int32_t {name}(int8_t *out, const int32_t *records, const int64_t *panel) {{
  int32_t {", ".join(names)};
{SELECT}
  int32_t even, odd, low, high, left = {outputs - 1};
{body}
#else
  for (int32_t channel = 0; channel < {outputs}; channel++) {{
{slow}
  }}
#endif
  return 0;
}}""")


@dataclass(frozen=True, slots=True)
class _Finish:
    """How sums become bytes: what is loaded once, and what each takes, in assembly and in C."""

    loads: list[str]
    steps: Callable[[str], list[str]]
    plain_loads: str
    plain_steps: Callable[[str], list[str]]


def _with_one_shift(shift: int) -> _Finish:
    return _Finish(
        ["ldrd %[even], %[odd], [%[records]], #8"],
        lambda each: [f"smmla %[{each}], %[{each}], %[even], %[odd]",
                      f"ssat %[{each}], #8, %[{each}], asr #{shift}"],
        "    int32_t factor = *records++, more = *records++;",
        lambda each: [f"    {each} = (int32_t)((int64_t){each} * factor >> 32) + more;",
                      f"    {each} >>= {shift};", f"    {each} = {held(each)};"],
    )


def _with_own_shifts() -> _Finish:
    return _Finish(
        ["ldrd %[even], %[odd], [%[records]], #8", "ldr %[low], [%[records]], #4"],
        lambda each: rounded_twice(each, "even", "odd", "low"),
        "    int32_t factor = *records++, right = *records++, zero = *records++;",
        plainly_rounded_twice,
    )


def rounded_twice(each: str, factor: str, right: str, zero: str) -> list[str]:
    """A sum as a byte, by registers with the last three words of a record."""
    return [f"smmlar %[{each}], %[{each}], %[{factor}], %[{each}]",
            f"add %[{each}], %[{each}], %[{each}], asr #31",
            f"smmla %[{each}], %[{each}], %[{right}], %[{zero}]",
            f"ssat %[{each}], #8, %[{each}], asr #1"]


def plainly_rounded_twice(each: str) -> list[str]:
    """The same in C, by factor, right and zero."""
    return [
        f"    {each} += (int32_t)(((int64_t){each} * factor + INT64_C(0x80000000)) >> 32);",
        f"    {each} = (int32_t)((int64_t)({each} + ({each} >> 31)) * right >> 32) + zero;",
        f"    {each} = {held(f'({each} >> 1)')};",
    ]


def held(number: str) -> str:
    """Within the range of a byte."""
    return f"({number} < -128 ? -128 : {number} > 127 ? 127 : {number})"


def products_of_word(word: str, pixel: str, place: int) -> str:
    """The products of the halves of a word and those of a pixel from a bit on."""
    return (f"(int16_t){word} * (int16_t)({pixel} >> {place}) + "
            f"({word} >> 16) * (int16_t)({pixel} >> {place + 16})")
