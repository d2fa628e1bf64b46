"""The inner loops of depthwise layers with their rescaling (SMLAD, SMMLA), channel after channel.

All of a channel lies in one record: what its sums begin with, weights as bytes, by a row of the
window w0 w1 w1 w2, w2 w3 w3 w4, and so on, and what rounds sums to bytes. Weights are widened once
for all results of a channel, into words that a tile reads in their order, and then what moves it on
to the next one.
"""

from dataclasses import dataclass

from sterna.schedule.halves_steps import PAIR, SELECT, STEP, Step, assembly, tile_products
from sterna.schedule.rescaled_kernel import plainly_rounded_twice, rounded_twice

# Words of a record beside its weights, and of what a tile reads behind widened ones.
BESIDE, TAIL = 4, 7
# Channels whose planes are copied together.
FOUR = 4


def rescaled_planes(
    window: tuple[int, int], stride: int, outputs: tuple[int, int], lanes: int
) -> Step:
    """Some channels of a plane in which their words alternate.

    outputs: results of a row whose sums are in registers together, and those of its last tile
    where that has fewer. After a tile comes one that is so many bytes further, after so many tiles
    a row, from the first on.
    """
    rows, columns = window
    pairs, (most, rest) = columns // 2, outputs
    words = 1 + 2 * rows * pairs + TAIL
    name = f"sterna_rescaled_planes_{rows}x{columns}_{stride}_{most}_{rest}_{lanes}"
    blocks = [_tile(window, stride, most, lanes, words, is_looped=True)]
    if rest:
        blocks.append(_tile(window, stride, rest, lanes, words, is_looped=False))
    plain = [_plain_tile(window, stride, most, lanes, "tiles")]
    if rest:
        plain.append(_plain_tile(window, stride, rest, lanes, "1"))
    names = ", ".join(f"s{n}" for n in range(most))
    weights = rows * pairs
    return Step(name, STEP + f"""\
/* Tiles of so many results, then so many rows of them; steps are those of bytes. */
static STERNA_STEP int32_t {name}(
    int8_t *out, const int32_t *record, const int32_t *plane, int32_t pitch, int32_t tiles,
    int32_t advance, int32_t rows, int32_t next, int32_t channels) {{
  for (int32_t lane = 0; lane < {lanes}; lane++) {{
    const int32_t *row = plane + lane, *from;
{SELECT}
    int32_t words[{words}], *at = words, even, odd, two, {names};
    *at++ = *record++;
    for (int32_t n = 0; n < {weights}; n++) {{
      two = *record++;
      __asm__("sxtb16 %0, %1" : "=r"(even) : "r"(two));
      __asm__("sxtb16 %0, %1, ror #8" : "=r"(odd) : "r"(two));
      *at++ = even;
      *at++ = odd;
    }}
    *at++ = *record++;
    *at++ = *record++;
    *at++ = *record++;
    *at++ = channels;
    *at++ = advance;
    at[1] = (int32_t)(intptr_t)(out + lane);
    for (int32_t left = rows; left > 0; left--) {{
      words[{words - 2}] = tiles;
      at = words;
      from = row;
{chr(10).join(blocks)}
      row = (const int32_t *)((const char *)row + next);
    }}
#else
    int8_t *to = out + lane;
    int32_t factor = record[{weights + 1}], right = record[{weights + 2}];
    int32_t zero = record[{weights + 3}];
    for (int32_t left = rows; left > 0; left--) {{
      from = row;
{chr(10).join(plain)}
      row = (const int32_t *)((const char *)row + next);
    }}
    record += {weights + BESIDE};
#endif
  }}
  return 0;
}}""")


def _tile(
    window: tuple[int, int], stride: int, outputs: int, lanes: int, words: int, is_looped: bool
) -> str:
    """Some neighbours of a row, by assembly."""
    names = [f"s{n}" for n in range(outputs)]
    lines = [f"ldr %[{names[-1]}], [%[at]], #4",
             *tile_products(window, stride, outputs, lanes),
             "ldrd %[even], %[odd], [%[at]], #8", "ldr %[two], [%[at]], #4"]
    for each in names:
        lines += rounded_twice(each, "even", "odd", "two")
    lines += ["ldrd %[even], %[odd], [%[at]], #8", "add %[from], %[from], %[odd]",
              "ldrd %[odd], %[two], [%[at]]"]
    for first in range(0, outputs - 1, 2):
        lines += [f"strb %[s{first}], [%[two]]", f"strb %[s{first + 1}], [%[two], %[even]]",
                  "add %[two], %[two], %[even], lsl #1"]
    if outputs % 2:
        lines += [f"strb %[{names[-1]}], [%[two]]", "add %[two], %[two], %[even]"]
    lines += ["subs %[odd], %[odd], #1", "strd %[odd], %[two], [%[at]]",
              f"sub %[at], %[at], #{4 * (words - 2)}"]
    if is_looped:
        lines = ["1:", *lines, "bne 1b"]
    return assembly(lines, ["at", "from"], [*names, "even", "odd", "two"], ["pitch"])


def tile_instructions(window: tuple[int, int], stride: int, outputs: int) -> int:
    """The instructions of a tile."""
    products = len(tile_products(window, stride, outputs, 1))
    return products + 11 + 5 * outputs + -(-outputs // 2)


def _plain_tile(
    window: tuple[int, int], stride: int, outputs: int, lanes: int, tiles: str
) -> str:
    """The same in C."""
    rows, columns = window
    pairs = columns // 2
    finish = "\n".join(f"        {line}" for line in plainly_rounded_twice("sum"))
    return f"""\
      for (int32_t tile = 0; tile < {tiles}; tile++) {{
        for (int32_t n = 0; n < {outputs}; n++, to += channels) {{
          int32_t sum = record[0];
          for (int32_t tap = 0; tap < {rows * columns}; tap++) {{
            int32_t y = tap / {columns}, x = tap % {columns}, own = n * {stride} + x;
            int32_t pair = x / 2 < {pairs - 1} ? x / 2 : {pairs - 1}, byte = x - 2 * pair;
            int32_t word = record[1 + y * {pairs} + pair] >> (byte + byte / 2) * 8;
            const int32_t *line = (const int32_t *)((const char *)from + y * pitch);
            sum += (int8_t)word * (int16_t)(line[own / 2 * {lanes}] >> own % 2 * 16);
          }}
{finish}
          *to = (int8_t)sum;
        }}
        from = (const int32_t *)((const char *)from + {rows - 1} * pitch + advance);
      }}"""


# ---- windows of one row ----


@dataclass(frozen=True, slots=True)
class Line:
    """Tiles of a window of one row, which is short: its record is read as it lies."""

    columns: int
    stride: int
    lanes: int
    channels: int
    advance: int
    """The bytes of a plane from one tile to the next."""


def rescaled_lines(line: Line, outputs: tuple[int, int]) -> Step:
    """The same of a window of one row, with weights that are widened for each tile.

    Extents stand in instructions, so that addresses and counts have registers of their own.
    """
    window, lanes, (most, rest) = (1, line.columns), line.lanes, outputs
    blocks = [_line_tile(line, most, is_looped=True)]
    plain = [_plain_tile(window, line.stride, most, lanes, "tiles")]
    if rest:
        blocks.append(_line_tile(line, rest, is_looped=False))
        plain.append(_plain_tile(window, line.stride, rest, lanes, "1"))
    extents = (line.columns, line.stride, most, rest, lanes, line.channels, line.advance)
    name = f"sterna_rescaled_lines_{'_'.join(map(str, extents))}"
    pairs = line.columns // 2
    return Step(name, STEP + f"""\
/* Tiles of so many results, then so many rows of them; next: the bytes to the next row. */
static STERNA_STEP int32_t {name}(
    int8_t *out, const int32_t *record, const int32_t *plane, int32_t tiles, int32_t rows,
    int32_t next) {{
  for (int32_t lane = 0; lane < {lanes}; lane++) {{
    const int32_t *row = plane + lane, *from;
    int8_t *to = out + lane;
{SELECT}
    for (int32_t more = rows; more > 0; more--) {{
      int32_t even, odd, two, {", ".join(f"s{n}" for n in range(most))}, left = tiles;
      from = row;
{chr(10).join(blocks)}
      row = (const int32_t *)((const char *)row + next);
    }}
#else
    const int32_t pitch = 0, advance = {line.advance}, channels = {line.channels};
    int32_t factor = record[{pairs + 1}], right = record[{pairs + 2}];
    int32_t zero = record[{pairs + 3}];
    for (int32_t more = rows; more > 0; more--) {{
      from = row;
{chr(10).join(plain)}
      row = (const int32_t *)((const char *)row + next);
    }}
#endif
    record += {pairs + BESIDE};
  }}
  return 0;
}}""")


def _line_tile(line: Line, outputs: int, is_looped: bool) -> str:
    """Some neighbours of a row, by assembly."""
    names = [f"s{n}" for n in range(outputs)]
    finish = 4 * (line.columns // 2 + 1)
    lines = [*_line_products(line.columns, line.stride, outputs, line.lanes),
             f"ldrd %[even], %[odd], [%[record], #{finish}]",
             f"ldr %[two], [%[record], #{finish + 8}]"]
    for n, each in enumerate(names):
        lines += [*rounded_twice(each, "even", "odd", "two"),
                  f"strb %[{each}], [%[to], #{n * line.channels}]"]
    lines += [f"addw %[to], %[to], #{outputs * line.channels}"]
    if is_looped:
        lines = ["1:", *lines, f"addw %[from], %[from], #{line.advance}",
                 "subs %[left], %[left], #1", "bne 1b"]
        return assembly(lines, ["from", "to", "left"], [*names, "even", "odd", "two"], ["record"])
    return assembly(lines, ["to"], [*names, "even", "odd", "two"], ["record", "from"])


def _line_products(columns: int, stride: int, outputs: int, lanes: int) -> list[str]:
    """The products of a tile, from a record."""
    begun = f"s{outputs - 1}"

    def weights(pair: int) -> list[str]:
        load = f"ldr %[two], [%[record], #{4 * (1 + pair)}]" if pair else (
            f"ldrd %[{begun}], %[two], [%[record]]")
        return [load, "sxtb16 %[even], %[two]", "sxtb16 %[odd], %[two], ror #8"]

    return tile_products((1, columns), stride, outputs, lanes, weights)


def line_instructions(columns: int, stride: int, outputs: int) -> int:
    """The instructions of such a tile."""
    return len(_line_products(columns, stride, outputs, 1)) + 6 + 5 * outputs


# ---- planes of four channels ----

_TWO_PIXELS = [
    "ldr %[low2], [%[from]]", "ldr %[high2], [%[from], %[channels]]",
    "add %[from], %[from], %[channels], lsl #1",
    "sxtb16 %[a], %[low2]", "sxtb16 %[low2], %[low2], ror #8",
    "sxtb16 %[b], %[high2]", "sxtb16 %[high2], %[high2], ror #8",
    "pkhbt %[low], %[a], %[b], lsl #16", "pkhbt %[high], %[low2], %[high2], lsl #16",
    "pkhtb %[high2], %[high2], %[low2], asr #16", "pkhtb %[low2], %[b], %[a], asr #16",
    f"stmia %[plane]!, {{{', '.join(f'%[{each}]' for each in PAIR)}}}",
]

COPY_FOURS = Step("sterna_copy_fours", STEP + f"""\
/* Rows of four channels, whose words alternate: two neighbours in a word, the first perhaps the
   second of its word. What lies before and behind them is there already, and skipped, but for
   halves of their words. */
static STERNA_STEP int32_t sterna_copy_fours(
    int32_t *plane, const int8_t *image, int32_t rows, int32_t pitch, int32_t channels,
    int32_t skip, int32_t is_second, int32_t inside, int32_t border) {{
  for (; rows > 0; rows--) {{
    const int8_t *from = image;
    int32_t left = inside;
    if (is_second) {{
      for (int32_t n = 0; n < 4; n++) {{
        *plane++ = (int32_t)((uint32_t)(uint16_t)border | (uint32_t)from[n] << 16);
      }}
      from += channels;
      left--;
    }}
{SELECT}
    left -= 2;
    if (left >= 0) {{
      int32_t a, b;
{chr(10).join(f'      register int32_t {each} __asm__("{PAIR[each]}");' for each in PAIR)}
{assembly(["1:", *_TWO_PIXELS, "subs %[left], %[left], #2", "bge 1b"],
          ["from", "plane", "left"], ["a", "b", *PAIR], ["channels"])}
    }}
    left += 2;
#else
    for (; left > 1; left -= 2, from += 2 * channels) {{
      for (int32_t n = 0; n < 4; n++) {{
        *plane++ = (int32_t)((uint32_t)(uint16_t)from[n] | (uint32_t)from[n + channels] << 16);
      }}
    }}
#endif
    if (left) {{
      for (int32_t n = 0; n < 4; n++) {{
        *plane++ = (int32_t)((uint32_t)(uint16_t)from[n] | (uint32_t)border << 16);
      }}
    }}
    plane += 4 * skip;
    image += pitch;
  }}
  return 0;
}}""")
