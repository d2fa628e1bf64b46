"""Dense and pointwise layers of few pixels with their rescaling (SMLAD, SMMLA), row after row.

Weights are read once for each pixel, so they stay bytes, four channels to a record: what their sums
begin with, and by four inputs a word of each channel. Where there is room, pairs of channels are in
one number of 16 bits, 256 times the first and the second. Products with that and with its low byte
take one widening in the place of two; 256 times the first channel's sum is what lies between them,
in words that wrap around. What rounds sums to bytes lies behind the records: the zero point, then a
multiplier and a shift as a factor, of all channels or of each.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.contraction import Contraction
from sterna.schedule.halves_kernel import HalvesKernel, groups_of, reads_bytes
from sterna.schedule.halves_steps import (
    SELECT,
    STEP,
    Step,
    assembly,
    dots,
    load_pixel,
    loop,
    row_products,
)
from sterna.schedule.implementations.halves import WIDENED
from sterna.schedule.overlap import lead_of_pixels
from sterna.schedule.rescaled_kernel import plainly_rounded_twice, rounded_twice
from sterna.schedule.statement_kernel import places_of
from sterna.tir import address_of, call_extern

FOUR = 4
# Instructions of a row's call, of a record beside its groups, and of a sum that becomes a byte.
CALLED, RECORD, FINISHED = 30, 20, 6.5
# Sums of a pair's first channel stay below.
MOST_SUM = 1 << 23


@dataclass(frozen=True, slots=True)
class Records:
    """What records there are."""

    has_pairs: bool
    """Whether two channels are in one number."""
    has_one_factor: bool
    """Whether all channels are rounded alike."""


def rescaled_rows_instructions(made: Contraction, has_pairs: bool) -> float:
    """Of the whole layer."""
    groups, is_bytes = groups_of(made), reads_bytes(made, 1, FOUR)
    whole, rest = divmod(made.outputs, FOUR)

    def record(channels: int) -> float:
        step = len(record_products(channels, not is_bytes, has_pairs)) + 2 / _turn(channels)
        return groups * step + RECORD + channels * FINISHED

    row = whole * record(FOUR) + (record(rest) if rest else 0)
    calls = CALLED * ((whole > 0) + (rest > 0))
    return made.pixels * (calls + row + (0 if is_bytes else WIDENED * groups))


class RescaledRowsKernel(HalvesKernel):
    """Pixels one after the other, each times all records."""

    def __init__(self, made: Contraction, outer: Sequence[int], records: Records) -> None:
        super().__init__(made, 1, FOUR, outer)
        self.records = records

    def describe(self) -> str:
        return f"halves of words, {FOUR} channels in registers, with their rescaling"

    def write(self) -> None:
        ib, made = self.ib, self.made
        whole, rest = divmod(made.outputs, FOUR)
        counts = [(FOUR, whole)] * (whole > 0) + [(rest, 1)] * (rest > 0)
        steps = [(rescaled_rows(channels, not self.bytes, self.records), channels, records)
                 for channels, records in counts]
        for step, _, _ in steps:
            ib.scope_attr(None, "pragma_import_c", step.definition)
        self.read_first(lead_of_pixels(made, 0 if self.bytes else 1))
        memory = self.data
        if not self.bytes:
            memory = ib.allocate("int64", (self.groups,), name="pixel")
        behind = made.outputs * (1 + self.groups)
        with ib.for_range(0, made.pixels, name="row") as row:
            start: Expr | int = row * made.depth
            if not self.bytes:
                self._widen(memory, row, build.const(1))
                start = 0
            first = 0
            for step, channels, records in steps:
                factors = behind + 1 + (0 if self.records.has_one_factor else 2 * first)
                ib.emit(call_extern(
                    "int32", step.name, address_of(self.out[(*places_of(row, self.outer), first)]),
                    address_of(self.weight[first * (1 + self.groups)]), address_of(memory[start]),
                    build.const(self.groups), build.const(records),
                    address_of(self.weight[factors]), self.weight[behind]))
                first += channels * records


def record_products(channels: int, widened: bool, has_pairs: bool) -> list[str]:
    """Four products of each of so many channels, by assembly."""
    paired = channels // 2 * 2 if has_pairs else 0
    own = row_products(channels - paired, widened, paired)
    if not paired:
        return own
    steps, own = load_pixel(widened), own[len(load_pixel(widened)):]
    for first in range(0, paired, 2):
        steps += [
            "ldrd %[even], %[odd], [%[weights]], #8", *dots(f"s{first}"),
            "sxtb16 %[even], %[even]", "sxtb16 %[odd], %[odd]", *dots(f"s{first + 1}")]
    return [*steps, *own]


def _turn(channels: int) -> int:
    """Groups of a turn of the loop."""
    return 2 if channels > 2 else 4


def rescaled_rows(channels: int, widened: bool, records: Records) -> Step:
    """A pixel times records of so many channels, as bytes."""
    has_one_factor, paired = records.has_one_factor, channels // 2 * 2 * records.has_pairs
    kinds = ("panel" if widened else "bytes", *["pairs"] * (paired > 0),
             *["alike"] * has_one_factor)
    name = f"sterna_rescaled_rows_{channels}_{'_'.join(kinds)}"
    sums, turn = [f"s{n}" for n in range(channels)], _turn(channels)
    begun = [f"ldrd %[{one}], %[{two}], [%[weights]], #8"
             for one, two in zip(sums[::2], sums[1::2], strict=False)]
    if channels % 2:
        begun.append(f"ldr %[{sums[-1]}], [%[weights]], #4")
    held = ["even", "odd", "low", "high", *["next"] * (channels - paired > 1)]
    group = record_products(channels, widened, records.has_pairs)
    changed = [*sums, "weights", "panel", "left"]
    one = assembly(loop(group, "left", 1), changed, held, [])
    more = assembly(loop(group * turn, "left", turn), changed, held, [])
    load = "ldrd %[even], %[odd], [%[factors]]"
    finish = [load] if has_one_factor else []
    for n, each in enumerate(sums):
        if n % 2 == 0 and n < paired:
            finish += [f"sub %[{each}], %[{each}], %[{sums[n + 1]}]",
                       f"asr %[{each}], %[{each}], #8"]
        finish += [*([] if has_one_factor else [f"{load}, #8"]),
                   *rounded_twice(each, "even", "odd", "zero"), f"strb %[{each}], [%[out]], #1"]
    moved, still = (["out"], ["factors", "zero"]) if has_one_factor else (
        ["out", "factors"], ["zero"])
    finished = assembly(finish, [*sums, *moved], ["even", "odd"], still)
    kind = "int64_t" if widened else "int8_t"
    return Step(name, STEP + f"""\
/* So many records; factors: of the first channel, or of all of them. */
static STERNA_STEP int32_t {name}(
    int8_t *out, const int32_t *weights, const {kind} *pixel, int32_t groups, int32_t records,
    const int32_t *factors, int32_t zero) {{
  for (; records > 0; records--) {{
{SELECT}
    const {kind} *panel = pixel;
    int32_t {", ".join([*sums, *held])}, left = (groups & {turn - 1}) - 1;
{assembly(begun, ["weights"], sums, [])}
    if (left >= 0) {{
{one}
    }}
    left = groups - {turn};
    left -= groups & {turn - 1};
    if (left >= 0) {{
{more}
    }}
{finished}
#else
    const {kind} *x = pixel;
    uint32_t sums[{channels}];
    for (int32_t n = 0; n < {channels}; n++) sums[n] = (uint32_t)*weights++;
    for (int32_t group = 0; group < groups; group++, x += {1 if widened else 4}) {{
{_plain_products(channels, paired, widened)}
    }}
    for (int32_t n = 0; n < {channels}; n++) {{
      int32_t sum = (int32_t)sums[n], factor = factors[0], right = factors[1];
      if (n % 2 == 0 && n < {paired}) sum = (int32_t)(sums[n] - sums[n + 1]) >> 8;
{chr(10).join(f"      {line}" for line in plainly_rounded_twice("sum"))}
      *out++ = (int8_t)sum;
{"" if has_one_factor else "      factors += 2;"}
    }}
#endif
  }}
  return 0;
}}""")


def _plain_products(channels: int, paired: int, widened: bool) -> str:
    """The same four products in C."""
    places = (0, 32, 16, 48) if widened else range(4)
    operands = [f"(int16_t)(*x >> {place})" if widened else f"x[{place}]" for place in places]
    lines = [f"      int32_t x{n} = {operand};" for n, operand in enumerate(operands)]

    def words(kind: str) -> str:
        """Of two words halves or their low bytes, which stand for inputs as pixels have them."""
        halves = [("w0", 0), ("w1", 0), ("w0", 16), ("w1", 16)]
        return " + ".join(f"x{n} * ({kind})({word} >> {place})"
                          for n, (word, place) in enumerate(halves))

    for first in range(0, paired, 2):
        lines += ["      {", "        int32_t w0 = *weights++, w1 = *weights++;",
                  f"        sums[{first}] += (uint32_t)({words('int16_t')});",
                  f"        sums[{first + 1}] += (uint32_t)({words('int8_t')});", "      }"]
    products = " + ".join(f"x{n} * (int8_t)(w0 >> {8 * n})" for n in range(4))
    for channel in range(paired, channels):
        lines += ["      {", "        int32_t w0 = *weights++;",
                  f"        sums[{channel}] += (uint32_t)({products});", "      }"]
    return "\n".join(lines)
