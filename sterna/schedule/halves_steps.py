"""The inner loops of contractions by halves of words, as C with Arm's DSP instructions.

A compiler that schedules such loops itself loads far ahead and spills sums, so each step is one
piece of assembly, and beside it stands the same in plain C, for every other compiler and processor.
A function serves all layers of a network that have its tile.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

# Registers are those that the compiler picks: %[name].
SELECT = "#if defined(__GNUC__) && defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP"


@dataclass(frozen=True, slots=True)
class Step:
    """A C function: its name, and its definition."""

    name: str
    definition: str

    def written_out(self) -> "Step":
        """The same for one kernel, whose sums stay in registers: no call, no stores, no loads."""
        text = self.definition.replace(STEP, OUT).replace("static STERNA_STEP", "static STERNA_OUT")
        return replace(self, name=f"{self.name}_out",
                       definition=text.replace(f"{self.name}(", f"{self.name}_out("))


def assembly(lines: list[str], changed: list[str], scratch: list[str], read: list[str]) -> str:
    """One piece of assembly; by the names of variables that it changes, overwrites, or reads."""
    body = "\n".join(f'      "{line}\\n\\t"' for line in lines)
    outputs = [f'[{each}] "+r"({each})' for each in changed]
    outputs += [f'[{each}] "=&r"({each})' for each in scratch]
    inputs = [f'[{each}] "r"({each})' for each in read]
    return f"    __asm__ volatile(\n{body}\n      : {', '.join(outputs)}\n" \
           f"      : {', '.join(inputs)}\n      : \"cc\", \"memory\");"


def loop(lines: list[str], count: str, step: int) -> list[str]:
    """Turns until a count, from which a step is taken after each, is negative.

    A loop in C around assembly is unrolled by compilers that take it for short.
    """
    return ["1:", *lines, f"subs %[{count}], %[{count}], #{step}", "bge 1b"]


_WIDEN = ["sxtb16 %[odd], %[even], ror #8", "sxtb16 %[even], %[even]"]


def dots(total: str, begin: str = "", own: str = "") -> list[str]:
    """Four products, which are added to a total, or to what it begins with."""
    return [
        f"smlad %[{total}], %[low{own}], %[even], %[{begin or total}]",
        f"smlad %[{total}], %[high{own}], %[odd], %[{total}]",
    ]


# Pixels of a panel are loaded in pairs, by one instruction, where there are registers for it. It
# takes them in the order of their numbers; compilers may keep r7 and r11 for frames, r9 for data.
MOST_PAIRED = 4
PAIR = {"low": "r4", "high": "r5", "low2": "r6", "high2": "r8"}
_LOAD_PAIR = f"ldmia %[panel]!, {{{', '.join(f'%[{each}]' for each in PAIR)}}}"
_LOAD_ONE = "ldrd %[low], %[high], [%[panel]], #8"


def panel_loads(pixels: int) -> int:
    """The instructions that load so many pixels of a panel."""
    return -(-pixels // 2) if pixels <= MOST_PAIRED else pixels


def _of_groups(
    name: str, sums: int, step: list[str], begin: str, plain: str, first: str = "",
    pixels: Sequence[str] = ("low", "high"),
) -> str:
    """A loop over groups, two in a turn; first: assembly of the first group, which begins sums.

    pixels: the variables that hold pixels, in registers of their own where there are pairs.
    """
    names = [f"s{n}" for n in range(sums)]
    changed, scratch = [*names, "weights", "panel"], ["even", "odd", *pixels]
    held = f"  int32_t even, odd, {', '.join(pixels)};" if len(pixels) < len(PAIR) else "\n".join([
        "  int32_t even, odd;",
        *(f'  register int32_t {each} __asm__("{PAIR[each]}");' for each in pixels)])
    kept = "\n".join(f"  sums[{n}] = s{n};" for n in range(sums))
    one, two = (assembly(step * times, changed, scratch, []) for times in (1, 2))
    return f"""\
{name} {{
  int32_t {", ".join(names)};
{begin if not first else ""}
{SELECT}
{held}
{first}
  if (groups & 1) {{
{one}
  }}
  for (groups >>= 1; groups > 0; groups--) {{
{two}
  }}
#else
{begin if first else ""}
  for (; groups > 0; groups--) {{
{plain}
  }}
#endif
{kept}
  return 0;
}}"""


_HEAD = "static STERNA_STEP int32_t {name}(int32_t *sums, const int8_t *weights, " \
        "const int64_t *panel, int32_t groups{more})"

# Shared by all layers: a copy in each is longer.
STEP = """\
#if !defined(STERNA_STEP) && defined(__GNUC__)
#define STERNA_STEP __attribute__((noinline))
#elif !defined(STERNA_STEP)
#define STERNA_STEP
#endif

"""

# In the place of each call, unless code is to be short.
OUT = """\
#if !defined(STERNA_OUT) && defined(__GNUC__) && !defined(__OPTIMIZE_SIZE__)
#define STERNA_OUT inline __attribute__((always_inline))
#elif !defined(STERNA_OUT) && defined(__GNUC__)
#define STERNA_OUT __attribute__((noinline))
#elif !defined(STERNA_OUT)
#define STERNA_OUT inline
#endif

"""
# Instructions that a call takes beside its products, and for each sum that it stores.
CALL, STORED = 20, 2
# Instructions that must be saved for each byte of code, and the part of a kernel that they must be.
WORTH, PART = 5, 1 / 4
INSTRUCTION_BYTES = 4


def is_written_out(calls: int, sums: int, length: int, kernel: float) -> bool:
    """Whether a step of so many instructions pays its length in a kernel of so many."""
    saved = calls * (CALL + STORED * sums)
    return saved > WORTH * INSTRUCTION_BYTES * length and saved > PART * kernel


def panel_dots(pixels: int) -> Step:
    """A channel times a panel of so many pixels: weights are widened once for all of them."""
    name = f"sterna_panel_dots_{pixels}"
    is_paired = 2 <= pixels <= MOST_PAIRED
    step = ["ldr %[even], [%[weights]], #4"]
    first, last = [*step], f"s{pixels - 1}"  # which holds the bias until its products come
    plain = [
        "    int32_t w0 = weights[0], w1 = weights[1], w2 = weights[2], w3 = weights[3];",
        "    weights += 4;",
    ]
    for pixel in range(pixels):
        own = "2" if is_paired and pixel % 2 else ""
        loads = [] if own else [_LOAD_PAIR if is_paired and pixel + 1 < pixels else _LOAD_ONE]
        loads += _WIDEN if pixel == 0 else []
        step += [*loads, *dots(f"s{pixel}", own=own)]
        first += [*loads, *dots(f"s{pixel}", last, own)]
        plain.append(f"    s{pixel} += {_PLAIN};\n    panel++;")
    others = [f"s{n}" for n in range(pixels - 1)]
    held = list(PAIR) if is_paired else ["low", "high"]
    scratch = [*others, "even", "odd", *held]
    begun = f"  {last} = bias;\n{assembly(first, [last, 'weights', 'panel'], scratch, [])}\n" \
            "  groups--;"
    begin = "  " + "".join(f"s{n} = " for n in range(pixels)) + "bias;"
    head = _HEAD.format(name=name, more=", int32_t bias")
    return Step(name, STEP + _of_groups(
        head, pixels, step, begin, "\n".join(plain), begun, held))


def load_pixel(widened: bool) -> list[str]:
    """Four inputs of a pixel."""
    if widened:
        return ["ldrd %[low], %[high], [%[panel]], #8"]
    return ["ldr %[low], [%[panel]], #4", "sxtb16 %[high], %[low], ror #8",
            "sxtb16 %[low], %[low]"]


def row_products(channels: int, widened: bool, first: int = 0) -> list[str]:
    """Four products of each of so many channels from one on, by assembly."""
    step = load_pixel(widened)
    for channel in range(channels):
        if channel % 2:  # its weights came with those of the one before
            step += ["sxtb16 %[odd], %[next], ror #8", "sxtb16 %[even], %[next]"]
        else:
            is_pair = channel + 1 < channels
            step += ["ldrd %[even], %[next], [%[weights]], #8" if is_pair
                     else "ldr %[even], [%[weights]], #4", *_WIDEN]
        step += dots(f"s{first + channel}")
    return step


def row_dots(channels: int, widened: bool) -> Step:
    """So many channels times one pixel, from a panel or from bytes as they lie."""
    name = f"sterna_row_dots_{channels}" if widened else f"sterna_byte_dots_{channels}"
    step = row_products(channels, widened)
    plain = []
    for channel in range(channels):
        products = _PLAIN if widened else _PLAIN_BYTES
        plain.append(
            "    {\n      int32_t w0 = weights[0], w1 = weights[1], w2 = weights[2], "
            f"w3 = weights[3];\n      s{channel} += {products};\n      weights += 4;\n    }}"
        )
    plain.append("    panel++;" if widened else "    panel += 4;")
    begin = "\n".join(f"  s{n} = sums[{n}];" for n in range(channels))
    head = _HEAD.format(name=name, more="")
    head = head if widened else head.replace("int64_t *panel", "int8_t *panel")
    held = ("low", "high", "next") if channels > 1 else ("low", "high")
    return Step(name, STEP + _of_groups(
        head, channels, step, begin, "\n".join(plain), pixels=held))


def widen_rows(pixels: int) -> Step:
    """Pixels that lie one after the other, two groups of four bytes or more, into a panel."""
    name = f"sterna_widen_rows_{pixels}"
    group = ["ldr %[low], [%[rows]], #4", "sxtb16 %[high], %[low], ror #8",
             "sxtb16 %[low], %[low]", f"strd %[low], %[high], [%[to]], #{8 * pixels}"]
    changed, scratch = ["rows", "to"], ["low", "high"]
    one = assembly(group, changed, scratch, [])
    two = assembly(loop([*group, *group], "pairs", 1), [*changed, "pairs"], scratch, [])
    return Step(name, STEP + f"""\
static STERNA_STEP int32_t {name}(int64_t *panel, const int8_t *rows, int32_t groups,
                               int32_t count) {{
  for (; count > 0; count--) {{
    int64_t *to = panel++;
{SELECT}
    int32_t low, high, pairs = (groups >> 1) - 1;
    if (groups & 1) {{
{one}
    }}
{two}
#else
    for (int32_t group = 0; group < groups; group++, rows += 4, to += {pixels}) {{
      uint32_t low = (uint16_t)rows[0] | (uint32_t)rows[2] << 16;
      uint32_t high = (uint16_t)rows[1] | (uint32_t)rows[3] << 16;
      *to = (int64_t)((uint64_t)high << 32 | low);
    }}
#endif
  }}
  return 0;
}}""")


_PLAIN_BYTES = "panel[0] * w0 + panel[1] * w1 + panel[2] * w2 + panel[3] * w3"
_PLAIN = "(int16_t)*panel * w0 + (int16_t)(*panel >> 32) * w1 +\n" \
         "          (int16_t)(*panel >> 16) * w2 + (int16_t)(*panel >> 48) * w3"


# ---- depthwise ----


_FOUR_PIXELS = assembly(loop([
    "ldrsb %[b], [%[from], %[channels]]", "ldrsb %[c], [%[from], %[two]]",
    "ldrsb %[d], [%[from], %[three]]", "ldrsb %[a], [%[from]]",
    "add %[from], %[from], %[channels], lsl #2", "pkhbt %[a], %[a], %[b], lsl #16",
    "pkhbt %[c], %[c], %[d], lsl #16", "strd %[a], %[c], [%[plane]], #8",
], "left", 4), ["from", "plane", "left"], ["a", "b", "c", "d"], ["channels", "two", "three"])

PAIR_PLANE = Step("sterna_copy_pairs", STEP + f"""\
static inline int32_t sterna_pair(int32_t a, int32_t b) {{
{SELECT}
  int32_t both;
  __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(both) : "r"(a), "r"(b));
  return both;
#else
  return (int32_t)((uint32_t)(uint16_t)a | (uint32_t)b << 16);
#endif
}}

/* Rows of one channel, two neighbours in a word, the first perhaps the second of its word: what
   lies before and behind them is there already, and skipped, but for halves of their words. */
static STERNA_STEP int32_t sterna_copy_pairs(
    int32_t *plane, const int8_t *image, int32_t rows, int32_t pitch, int32_t channels,
    int32_t skip, int32_t is_second, int32_t inside, int32_t border) {{
  const int32_t two = 2 * channels, three = 3 * channels;
  for (; rows > 0; rows--) {{
    const int8_t *from = image;
    int32_t left = inside;
    if (is_second) {{
      *plane++ = sterna_pair(border, from[0]);
      from += channels;
      left--;
    }}
{SELECT}
    int32_t a, b, c, d;
    left -= 4;
    if (left >= 0) {{
{_FOUR_PIXELS}
    }}
    left += 4;
#else
    for (; left > 3; left -= 4) {{
      plane[0] = sterna_pair(from[0], from[channels]);
      plane[1] = sterna_pair(from[two], from[three]);
      plane += 2;
      from += 4 * channels;
    }}
#endif
    if (left & 2) {{
      *plane++ = sterna_pair(from[0], from[channels]);
      from += two;
    }}
    if (left & 1) *plane++ = sterna_pair(from[0], border);
    plane += skip;
    image += pitch;
  }}
  return 0;
}}""")


def plane_dots(window: tuple[int, int], stride: int, outputs: int) -> Step:
    """So many neighbours of a row of one channel, from pairs of pixels.

    A window has an odd number of columns 2 * pairs + 1. Four weights of a row are a word, w0 w1 w1
    w2, from which halves (w0, w1) and (w1, w2) come: windows that begin with a pair take the first,
    and the last weight alone, those that begin between two take the first weight alone and the
    second.
    """
    rows, columns = window
    name = f"sterna_plane_dots_{rows}x{columns}_{stride}_{outputs}"
    pairs = columns // 2
    names = [f"s{n}" for n in range(outputs)]
    lines: list[str] = []
    plain: list[str] = []
    for row in range(rows):
        if row:
            lines.append("add %[plane], %[plane], %[pitch]")
        for pair in range(pairs):
            lines += ["ldr %[even], [%[weights]], #4", *_WIDEN]
            for word, uses in _uses(outputs, stride, pair, pairs).items():
                lines.append(f"ldr %[two], [%[plane], #{4 * word}]")
                lines += [f"{op} %[s{n}], %[two], %[{half}], %[s{n}]" for n, op, half in uses]
        products = [
            f"      s{n} += STERNA_AT({n * stride + tap}) * weights[{_place_of(tap, pairs)}];"
            for n in range(outputs)
            for tap in range(columns)
        ]
        plain += [*products, f"      weights += {4 * pairs};",
                  "      plane = (const int32_t *)((const char *)plane + pitch);"]
    begin = "\n".join(f"  int32_t s{n} = bias;" for n in range(outputs))
    body = assembly(lines, [*names, "weights", "plane"], ["even", "odd", "two"], ["pitch"])
    kept = "\n".join(f"  sums[{n}] = s{n};" for n in range(outputs))
    one_row = "\n".join(plain[: len(plain) // rows])
    return Step(name, STEP + f"""\
static STERNA_STEP int32_t {name}(int32_t *sums, const int8_t *weights, const int32_t *plane,
                               int32_t pitch, int32_t bias) {{
{begin}
{SELECT}
  int32_t even, odd, two;
{body}
#else
#define STERNA_AT(x) ((int16_t)(plane[(x) / 2] >> ((x) % 2 * 16)))
  for (int32_t row = 0; row < {rows}; row++) {{
{one_row}
  }}
#undef STERNA_AT
#endif
{kept}
  return 0;
}}""")


def widened_pair(pair: int) -> list[str]:
    """The weights of two columns of a window, which lie widened one after the other."""
    return ["ldrd %[even], %[odd], [%[at]], #8"]


def tile_products(
    window: tuple[int, int], stride: int, outputs: int, lanes: int,
    weights: Callable[[int], list[str]] = widened_pair,
) -> list[str]:
    """The products of such neighbours, with weights of a pair of columns as they are loaded.

    The sum of the last holds what all begin with. lanes: the words of a plane between neighbours.
    """
    rows, columns = window
    pairs, begun = columns // 2, f"s{outputs - 1}"
    lines: list[str] = []
    fresh = set(range(outputs))
    for row in range(rows):
        if row:
            lines.append("add %[from], %[from], %[pitch]")
        for pair in range(pairs):
            lines += weights(pair)
            for word, uses in _uses(outputs, stride, pair, pairs).items():
                lines.append(f"ldr %[two], [%[from], #{4 * lanes * word}]")
                for n, op, half in uses:
                    total = begun if n in fresh else f"s{n}"
                    lines.append(f"{op} %[s{n}], %[two], %[{half}], %[{total}]")
                    fresh.discard(n)
    return lines


def plane_length(window: tuple[int, int], stride: int, outputs: int) -> int:
    """The instructions of such a step."""
    pairs = window[1] // 2
    uses = [_uses(outputs, stride, pair, pairs) for pair in range(pairs)]
    return window[0] * sum(4 + len(each) + sum(map(len, each.values())) for each in uses)


def _place_of(tap: int, pairs: int) -> int:
    """Where a weight lies among those of its row."""
    pair = min(tap // 2, pairs - 1)
    return 4 * pair + (0, 1, 3)[tap - 2 * pair]


def words_of_row(columns: int, stride: int, outputs: int) -> int:
    """The words of a plane's row that so many neighbours read, from the first on."""
    pairs = columns // 2
    last = [max(_uses(outputs, stride, pair, pairs)) for pair in range(pairs)]
    return max(last) + 1


def _uses(
    outputs: int, stride: int, pair: int, pairs: int
) -> dict[int, list[tuple[int, str, str]]]:
    """By the words of a row: which outputs take them, how, and with which weights of a pair."""
    found: dict[int, list[tuple[int, str, str]]] = {}
    last = pair == pairs - 1
    for n in range(outputs):
        first, between = divmod(n * stride, 2)
        if between:  # the first weight alone, of the upper half
            if pair == 0:
                found.setdefault(first, []).append((n, "smlatb", "even"))
            found.setdefault(first + pair + 1, []).append((n, "smlad", "odd"))
        else:
            found.setdefault(first + pair, []).append((n, "smlad", "even"))
            if last:
                found.setdefault(first + pair + 1, []).append((n, "smlabt", "odd"))
    return dict(sorted(found.items()))
