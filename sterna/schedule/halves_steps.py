"""The inner loops of contractions by halves of words, as C with Arm's DSP instructions.

A compiler that schedules such loops itself loads far ahead and spills sums, so each step is one
piece of assembly, and beside it stands the same in plain C, for every other compiler and processor.
A function serves all layers of a network that have its tile.
"""

from dataclasses import dataclass

# Registers are those that the compiler picks: %[name].
_SELECT = "#if defined(__GNUC__) && defined(__ARM_FEATURE_DSP) && __ARM_FEATURE_DSP"


@dataclass(frozen=True, slots=True)
class Step:
    """A C function: its name, and its definition."""

    name: str
    definition: str


def _assembly(lines: list[str], changed: list[str], scratch: list[str], read: list[str]) -> str:
    """One piece of assembly; by the names of variables that it changes, overwrites, or reads."""
    body = "\n".join(f'      "{line}\\n\\t"' for line in lines)
    outputs = [f'[{each}] "+r"({each})' for each in changed]
    outputs += [f'[{each}] "=&r"({each})' for each in scratch]
    inputs = [f'[{each}] "r"({each})' for each in read]
    return f"    __asm__ volatile(\n{body}\n      : {', '.join(outputs)}\n" \
           f"      : {', '.join(inputs)}\n      : \"memory\");"


_WIDEN = ["sxtb16 %[odd], %[even], ror #8", "sxtb16 %[even], %[even]"]


def _dots(total: str) -> list[str]:
    return [
        f"smlad %[{total}], %[low], %[even], %[{total}]",
        f"smlad %[{total}], %[high], %[odd], %[{total}]",
    ]


def _of_groups(name: str, sums: int, step: list[str], begin: str, plain: str) -> str:
    """A loop over groups, two in a turn."""
    names = [f"s{n}" for n in range(sums)]
    changed, scratch = [*names, "weights", "panel"], ["even", "odd", "low", "high"]
    first = "\n".join(f"  {line}" for line in begin.split("\n") if line)
    kept = "\n".join(f"  sums[{n}] = s{n};" for n in range(sums))
    one, two = (_assembly(step * times, changed, scratch, []) for times in (1, 2))
    return f"""\
{name} {{
{first}
{_SELECT}
  int32_t even, odd, low, high;
  if (groups & 1) {{
{one}
  }}
  for (groups >>= 1; groups > 0; groups--) {{
{two}
  }}
#else
  for (; groups > 0; groups--) {{
{plain}
  }}
#endif
{kept}
  return 0;
}}"""


_HEAD = "static STERNA_STEP int32_t {name}(int32_t *sums, const int8_t *weights, " \
        "const int64_t *panel, int32_t groups{more})"

# Shared by all layers: a copy in each would be faster by less than it is longer.
STEP = """\
#if !defined(STERNA_STEP) && defined(__GNUC__)
#define STERNA_STEP __attribute__((noinline))
#elif !defined(STERNA_STEP)
#define STERNA_STEP
#endif

"""


def panel_dots(pixels: int) -> Step:
    """A channel times a panel of so many pixels: weights are widened once for all of them."""
    name = f"sterna_panel_dots_{pixels}"
    step = ["ldr %[even], [%[weights]], #4", "ldrd %[low], %[high], [%[panel]], #8", *_WIDEN]
    plain = [
        "    int32_t w0 = weights[0], w1 = weights[1], w2 = weights[2], w3 = weights[3];",
        "    weights += 4;",
    ]
    for pixel in range(pixels):
        if pixel:
            step.append("ldrd %[low], %[high], [%[panel]], #8")
        step += _dots(f"s{pixel}")
        plain.append(f"    s{pixel} += {_PLAIN};\n    panel++;")
    begin = "".join(f"int32_t s{n} = bias;\n" for n in range(pixels))
    head = _HEAD.format(name=name, more=", int32_t bias")
    return Step(name, STEP + _of_groups(head, pixels, step, begin, "\n".join(plain)))


def row_dots(channels: int, widened: bool) -> Step:
    """So many channels times one pixel, from a panel or from bytes as they lie."""
    name = f"sterna_row_dots_{channels}" if widened else f"sterna_byte_dots_{channels}"
    step = ["ldrd %[low], %[high], [%[panel]], #8"]
    if not widened:
        step = ["ldr %[low], [%[panel]], #4", "sxtb16 %[high], %[low], ror #8",
                "sxtb16 %[low], %[low]"]
    plain = []
    for channel in range(channels):
        step += ["ldr %[even], [%[weights]], #4", *_WIDEN, *_dots(f"s{channel}")]
        products = _PLAIN if widened else _PLAIN_BYTES
        plain.append(
            "    {\n      int32_t w0 = weights[0], w1 = weights[1], w2 = weights[2], "
            f"w3 = weights[3];\n      s{channel} += {products};\n      weights += 4;\n    }}"
        )
    plain.append("    panel++;" if widened else "    panel += 4;")
    begin = "".join(f"int32_t s{n} = sums[{n}];\n" for n in range(channels))
    head = _HEAD.format(name=name, more="")
    head = head if widened else head.replace("int64_t *panel", "int8_t *panel")
    return Step(name, STEP + _of_groups(head, channels, step, begin, "\n".join(plain)))


_PLAIN_BYTES = "panel[0] * w0 + panel[1] * w1 + panel[2] * w2 + panel[3] * w3"
_PLAIN = "(int16_t)*panel * w0 + (int16_t)(*panel >> 32) * w1 +\n" \
         "          (int16_t)(*panel >> 16) * w2 + (int16_t)(*panel >> 48) * w3"


# ---- depthwise ----


PAIR_PLANE = Step("sterna_copy_pairs", STEP + f"""\
static inline int32_t sterna_pair(int32_t a, int32_t b) {{
{_SELECT}
  int32_t both;
  __asm__("pkhbt %0, %1, %2, lsl #16" : "=r"(both) : "r"(a), "r"(b));
  return both;
#else
  return (int32_t)((uint32_t)(uint16_t)a | (uint32_t)b << 16);
#endif
}}

/* Rows of one channel, two neighbours in a word, between the border's pixels. */
static STERNA_STEP int32_t sterna_copy_pairs(
    int32_t *plane, const int8_t *image, int32_t rows, int32_t pitch, int32_t channels,
    int32_t words, int32_t before, int32_t inside, int32_t border) {{
  const int32_t both = sterna_pair(border, border);
  for (; rows > 0; rows--) {{
    const int8_t *from = image;
    int32_t *end = plane + words, left = inside;
    for (int32_t pixel = before; pixel > 1; pixel -= 2) *plane++ = both;
    if (before & 1) {{
      *plane++ = sterna_pair(border, from[0]);
      from += channels;
      left--;
    }}
    for (; left > 3; left -= 4) {{
      plane[0] = sterna_pair(from[0], from[channels]);
      plane[1] = sterna_pair(from[2 * channels], from[3 * channels]);
      plane += 2;
      from += 4 * channels;
    }}
    if (left > 1) {{
      *plane++ = sterna_pair(from[0], from[channels]);
      from += 2 * channels;
      left -= 2;
    }}
    if (left > 0) *plane++ = sterna_pair(from[0], border);
    while (plane < end) *plane++ = both;
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
    body = _assembly(lines, [*names, "weights", "plane"], ["even", "odd", "two"], ["pitch"])
    kept = "\n".join(f"  sums[{n}] = s{n};" for n in range(outputs))
    one_row = "\n".join(plain[: len(plain) // rows])
    return Step(name, STEP + f"""\
static STERNA_STEP int32_t {name}(int32_t *sums, const int8_t *weights, const int32_t *plane,
                               int32_t pitch, int32_t bias) {{
{begin}
{_SELECT}
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
