"""Dense and pointwise layers of few pixels with their rescaling (SMLAD, SMMLA), row after row.

Weights are read once for each pixel, so they stay bytes, four channels to a record: what their sums
begin with, and by four inputs a word of each channel. What rounds sums to bytes lies behind the
records: the zero point, then a multiplier and a shift as a factor, of all channels or of each.
"""

from collections.abc import Sequence

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.contraction import Contraction
from sterna.schedule.halves_kernel import HalvesKernel, groups_of, reads_bytes
from sterna.schedule.halves_steps import SELECT, STEP, Step, assembly, loop, row_products
from sterna.schedule.implementations.halves import WIDENED
from sterna.schedule.overlap import lead_of_pixels
from sterna.schedule.rescaled_kernel import plainly_rounded_twice, rounded_twice
from sterna.schedule.statement_kernel import places_of
from sterna.tir import address_of, call_extern

FOUR = 4
# Instructions of a row's call, of a record beside its groups, and of a sum that becomes a byte.
CALLED, RECORD, FINISHED = 30, 24, 6


def rescaled_rows_instructions(made: Contraction) -> float:
    """Of the whole layer."""
    groups, is_bytes = groups_of(made), reads_bytes(made, 1, FOUR)
    whole, rest = divmod(made.outputs, FOUR)

    def record(channels: int) -> float:
        step = len(row_products(channels, not is_bytes)) + 1
        return groups * step + RECORD + channels * FINISHED

    row = whole * record(FOUR) + (record(rest) if rest else 0)
    calls = CALLED * ((whole > 0) + (rest > 0))
    return made.pixels * (calls + row + (0 if is_bytes else WIDENED * groups))


class RescaledRowsKernel(HalvesKernel):
    """Pixels one after the other, each times all records."""

    def __init__(self, made: Contraction, outer: Sequence[int], has_one_factor: bool) -> None:
        super().__init__(made, 1, FOUR, outer)
        self.has_one_factor = has_one_factor

    def describe(self) -> str:
        return f"halves of words, {FOUR} channels in registers, with their rescaling"

    def write(self) -> None:
        ib, made = self.ib, self.made
        whole, rest = divmod(made.outputs, FOUR)
        counts = [(FOUR, whole)] * (whole > 0) + [(rest, 1)] * (rest > 0)
        steps = [(rescaled_rows(channels, not self.bytes, self.has_one_factor), channels, records)
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
                factors = behind + 1 + (0 if self.has_one_factor else 2 * first)
                ib.emit(call_extern(
                    "int32", step.name, address_of(self.out[(*places_of(row, self.outer), first)]),
                    address_of(self.weight[first * (1 + self.groups)]), address_of(memory[start]),
                    build.const(self.groups), build.const(records),
                    address_of(self.weight[factors]), self.weight[behind]))
                first += channels * records


def rescaled_rows(channels: int, widened: bool, has_one_factor: bool) -> Step:
    """A pixel times records of so many channels, as bytes."""
    kinds = ("panel" if widened else "bytes", *["alike"] * has_one_factor)
    name = f"sterna_rescaled_rows_{channels}_{'_'.join(kinds)}"
    sums = [f"s{n}" for n in range(channels)]
    begun = [f"ldrd %[{one}], %[{two}], [%[weights]], #8"
             for one, two in zip(sums[::2], sums[1::2], strict=False)]
    if channels % 2:
        begun.append(f"ldr %[{sums[-1]}], [%[weights]], #4")
    held = ["even", "odd", "low", "high", *["next"] * (channels > 1)]
    group = row_products(channels, widened)
    changed = [*sums, "weights", "panel"]
    one = assembly(group, changed, held, [])
    two = assembly(loop([*group, *group], "left", 1), [*changed, "left"], held, [])
    load = "ldrd %[even], %[odd], [%[factors]]"
    finish = [load] if has_one_factor else []
    for each in sums:
        finish += [*([] if has_one_factor else [f"{load}, #8"]),
                   *rounded_twice(each, "even", "odd", "zero"), f"strb %[{each}], [%[out]], #1"]
    moved, still = (["out"], ["factors", "zero"]) if has_one_factor else (
        ["out", "factors"], ["zero"])
    finished = assembly(finish, [*sums, *moved], ["even", "odd"], still)
    kind = "int64_t" if widened else "int8_t"
    plain = "\n".join(f"      {line}" for line in plainly_rounded_twice("sum"))
    operands = [f"((int16_t)(*x >> {place}))" for place in (0, 32, 16, 48)] if widened else [
        f"x[{place}]" for place in range(4)]
    products = " +\n               ".join(
        f"{operand} * (int8_t)(word >> {8 * n})" for n, operand in enumerate(operands))
    return Step(name, STEP + f"""\
/* So many records; factors: of the first channel, or of all of them. */
static STERNA_STEP int32_t {name}(
    int8_t *out, const int32_t *weights, const {kind} *pixel, int32_t groups, int32_t records,
    const int32_t *factors, int32_t zero) {{
  for (; records > 0; records--) {{
{SELECT}
    const {kind} *panel = pixel;
    int32_t {", ".join([*sums, *held])}, left = (groups >> 1) - 1;
{assembly(begun, ["weights"], sums, [])}
    if (groups & 1) {{
{one}
    }}
    if (left >= 0) {{
{two}
    }}
{finished}
#else
    for (int32_t n = 0; n < {channels}; n++) {{
      const {kind} *x = pixel;
      int32_t sum = weights[n], factor = factors[0], right = factors[1];
      for (int32_t group = 0; group < groups; group++, x += {1 if widened else 4}) {{
        int32_t word = weights[{channels} * (group + 1) + n];
        sum += {products};
      }}
{plain}
      *out++ = (int8_t)sum;
{'' if has_one_factor else '      factors += 2;'}
    }}
    weights += {channels} * (1 + groups);
#endif
  }}
  return 0;
}}""")
