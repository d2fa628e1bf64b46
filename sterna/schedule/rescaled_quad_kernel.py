"""Depthwise layers of bytes with their rescaling, four channels in a vector (MVE).

Sums stay in registers until they are bytes: one piece of assembly takes a tile, and what rounds
four channels is loaded once for all of its results. All of four channels lies in one record: what
sums begin with, a word of weights for each tap, multipliers, shifts and one more, and twice the
zero point and 1. Windows as large as the image are read as they lie, without a plane, eight
channels at a time where there are so many: halves of words, whose products are those of even
channels and of odd ones.
"""

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.schedule.across_steps import FILL, HELIUM, PLANE, QUAD, shown
from sterna.schedule.contraction import Contraction
from sterna.schedule.halves_steps import STEP, Step
from sterna.schedule.implementations.across import CALLED
from sterna.schedule.overlap import bands_take_place
from sterna.schedule.quad_kernel import QuadKernel, band_rows, plane_columns, plane_height
from sterna.schedule.rescaled_kernel import held
from sterna.schedule.rescaled_window_kernel import covers_image
from sterna.tir import address_of, call_extern
from sterna.tir.ir_builder import BufferVar
from sterna.tir.stmt import BufferLoad

# Channels of a record of windows as large as the image.
EIGHT = 2 * QUAD
# Instructions of a tile beside its products and results, and of a result that becomes a byte.
TILE, FINISHED = 14, 11
# Four bytes that are copied, and a row of them.
COPIED, ROW = 1.5, 16
# Instructions of eight channels beside their taps, and of a tap.
EIGHTS, EIGHTS_TAP = 28, 8


def lanes_of(made: Contraction) -> int:
    """The channels of a record."""
    return EIGHT if covers_image(made) and made.outputs % EIGHT == 0 else QUAD


def record_words(made: Contraction, lanes: int) -> int:
    """The words of a record of so many channels."""
    return 3 * lanes + made.taps * lanes // QUAD + 1


def rescaled_quad_instructions(made: Contraction, outputs: int) -> float:
    """Of the whole layer."""
    quads = made.batch * made.outputs // QUAD
    if lanes_of(made) == EIGHT:
        return quads // 2 * (EIGHTS + EIGHTS_TAP * made.taps) + CALLED
    if covers_image(made):
        return quads * (TILE + FINISHED + 6 * made.taps) + CALLED
    tiles = made.result[1] // outputs
    columns = plane_columns(made, outputs, tiles)
    band = band_rows(made, columns)
    bands = made.result[0] // band
    copied = bands * plane_height(made, band) * (ROW + COPIED * columns)
    tile = TILE + FINISHED * outputs + made.window[0] * (2 + made.window[1] * (1 + 3 * outputs))
    return quads * (2 * CALLED * bands + copied + made.result[0] * tiles * tile)


class RescaledQuadKernel(QuadKernel):
    """Four channels after the other, each with their record."""

    def describe(self) -> str:
        return f"{super().describe()}, with their rescaling"

    def write(self) -> None:
        ib, made = self.ib, self.made
        is_whole = covers_image(made)
        if lanes_of(made) == EIGHT:
            self._eights()
            return
        self.step = rescaled_quads(1, 1, 1, 1) if is_whole else rescaled_quads(
            made.window[1], made.dilation[1], made.strides[1], self.outputs)
        ib.scope_attr(None, "pragma_import_c", self.step.definition)
        if is_whole or bands_take_place(made, self.band):
            self.read_first()
        quads = made.outputs // QUAD
        if is_whole:  # taps are rows of one column, and fours of channels are tiles
            with ib.for_range(0, made.batch, name="image") as image:
                self._call(
                    self.out[image, 0, 0, 0], build.const(0), self.data[image, 0, 0, 0],
                    (made.inputs, made.taps, quads, QUAD, record_words(made, QUAD),
                     QUAD - made.inputs, 1, 0))
            return
        for text in (FILL.definition, PLANE.definition):
            ib.scope_attr(None, "pragma_import_c", text)
        plane = ib.allocate("int8", (self.height * self.columns * QUAD,), name="plane")
        with (
            ib.for_range(0, made.batch, name="image") as image,
            ib.for_range(0, quads, name="quad") as quad,
            ib.for_range(0, made.result[0] // self.band, name="band") as band,
        ):
            self.copy(plane, image, band, quad, QUAD)
            self._tiles(plane, image, band, quad)

    def _eights(self) -> None:
        """Windows as large as the image, eight channels after the other."""
        ib, made = self.ib, self.made
        ib.scope_attr(None, "pragma_import_c", WINDOW_EIGHTS.definition)
        self.read_first()
        with ib.for_range(0, made.batch, name="image") as image:
            ib.emit(call_extern(
                "int32", WINDOW_EIGHTS.name, address_of(self.out[image, 0, 0, 0]),
                address_of(self.weight[0, 0]), address_of(self.data[image, 0, 0, 0]),
                build.const(made.outputs), build.const(made.taps)))

    def _tiles(self, plane: BufferVar, image: Expr, band: Expr, quad: Expr) -> None:
        """All results of a band."""
        made, row = self.made, self.columns * QUAD
        self._call(
            self.out[image, band * self.band, 0, quad * QUAD], quad, plane[0],
            (row * made.dilation[0], made.window[0], self.tiles,
             QUAD * self.outputs * made.strides[1], 0, 0, self.band, row * made.strides[0]))

    def _call(
        self, out: BufferLoad, quad: Expr, first: BufferLoad, numbers: tuple[int, ...]
    ) -> None:
        self.ib.emit(call_extern(
            "int32", self.step.name, address_of(out), address_of(self.weight[quad, 0]),
            address_of(first), *map(build.const, numbers), build.const(self.made.outputs)))


def rescaled_quads(columns: int, apart: int, stride: int, outputs: int) -> Step:
    """Tiles of so many neighbours of four channels, as bytes.

    apart: the steps from a column of a window to the next one.
    """
    name = f"sterna_rescaled_quads_{columns}_{stride}_{outputs}" + f"_{apart}" * (apart > 1)
    places = [[QUAD * (n * stride + tap * apart) for n in range(outputs)]
              for tap in range(columns)]
    lines = ["vldrw.32 q0, [%[w]], #16", *[f"vmov q{n}, q0" for n in range(1, outputs)],
             "dls lr, %[rows]", "2:"]
    for tap in places:
        lines.append("vldrb.s32 q6, [%[w]], #4")
        for n, at in enumerate(tap):
            lines += [f"vldrb.s32 q7, [%[x], #{at}]", "vmul.i32 q7, q7, q6",
                      f"vadd.i32 q{n}, q{n}, q7"]
    lines += ["add %[x], %[x], %[pitch]", "le lr, 2b", "vldrw.32 q6, [%[w]], #16",
              *[f"vqrdmulh.s32 q{n}, q{n}, q6" for n in range(outputs)],
              "vldrw.32 q6, [%[w]], #16", "ldr lr, [%[w]]"]
    for n in range(outputs):
        lines += [f"vshr.s32 q7, q{n}, #31", f"vadd.i32 q{n}, q{n}, q7",
                  f"vshl.s32 q{n}, q{n}, q6", f"vadd.i32 q{n}, q{n}, lr",
                  f"vshr.s32 q{n}, q{n}, #1", f"vqmovnb.s32 q{n}, q{n}",
                  f"vqmovnb.s16 q{n}, q{n}", f"vstrb.32 q{n}, [%[to]]",
                  "add %[to], %[to], %[channels]"]
    # loads that widen and stores that narrow take addresses in the first eight registers
    return Step(name, STEP + f"""\
/* Tiles, then so many rows of them; what is read, the record, the result and the next row of tiles
   lie so many bytes, words, bytes and bytes further. */
static STERNA_STEP int32_t {name}(
    int8_t *out, const int32_t *record, const int8_t *plane, int32_t pitch, int32_t rows,
    int32_t tiles, int32_t across, int32_t words, int32_t further, int32_t count, int32_t next,
    int32_t channels) {{
  int8_t *to = out;
  for (; count > 0; count--, plane += next) {{
    const int8_t *from = plane;
    for (int32_t tile = 0; tile < tiles; tile++) {{
      const int32_t *w = record;
      const int8_t *x = from;
{HELIUM}
    __asm__ volatile(
{shown(lines)}
      : [to] "+l"(to), [w] "+l"(w), [x] "+l"(x)
      : [pitch] "r"(pitch), [rows] "r"(rows), [channels] "r"(channels)
      : "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "memory");
#else
      const int32_t *rest = w + {QUAD} + rows * {columns};
      for (int32_t n = 0; n < {outputs}; n++, to += channels) {{
        for (int32_t lane = 0; lane < {QUAD}; lane++) {{
          int32_t sum = w[lane];
          for (int32_t tap = 0; tap < rows * {columns}; tap++) {{
            int32_t column = n * {stride} + tap % {columns} * {apart};
            int32_t at = tap / {columns} * pitch + {QUAD} * column;
            sum += x[at + lane] * (int8_t)(w[{QUAD} + tap] >> 8 * lane);
          }}
          sum = (int32_t)(((int64_t)sum * rest[lane] + 1073741824) >> 31);
          sum = (sum + (sum >> 31)) >> -rest[{QUAD} + lane];
          sum = (sum + rest[{2 * QUAD}]) >> 1;
          to[lane] = (int8_t){held('sum')};
        }}
      }}
#endif
      from += across;
      record += words;
      to += further;
    }}
  }}
  return 0;
}}""")


def _pairs(first: int, at: str) -> list[str]:
    """Eight words, those of even channels and those of odd ones."""
    names = f"{{q{first}, q{first + 1}}}"
    return [f"vld20.32 {names}, [%[{at}]]", f"vld21.32 {names}, [%[{at}]]!"]


_EIGHTS = [
    *_pairs(0, "record"), "dls lr, %[taps]", "2:",
    "vldrb.s16 q2, [%[record]], #8", "vldrb.s16 q3, [%[x]]", "add %[x], %[x], %[channels]",
    "vmullb.s16 q4, q2, q3", "vmullt.s16 q5, q2, q3", "vadd.i32 q0, q0, q4",
    "vadd.i32 q1, q1, q5", "le lr, 2b",
    *_pairs(2, "record"), *_pairs(4, "record"), "ldr lr, [%[record]], #4",
    *[line for n in range(2) for line in (
        f"vqrdmulh.s32 q{n}, q{n}, q{2 + n}", f"vshr.s32 q6, q{n}, #31",
        f"vadd.i32 q{n}, q{n}, q6", f"vshl.s32 q{n}, q{n}, q{4 + n}",
        f"vadd.i32 q{n}, q{n}, lr", f"vshr.s32 q{n}, q{n}, #1")],
    "vqmovnb.s32 q0, q0", "vqmovnt.s32 q0, q1", "vqmovnb.s16 q0, q0", "vstrb.16 q0, [%[out]], #8",
]

WINDOW_EIGHTS = Step("sterna_rescaled_eights", STEP + f"""\
/* Eight channels after the other, so many taps each. */
static STERNA_STEP int32_t sterna_rescaled_eights(
    int8_t *out, const int32_t *record, const int8_t *data, int32_t channels, int32_t taps) {{
  const int8_t *end = data + channels;
  for (; data != end; data += {EIGHT}) {{
{HELIUM}
    const int8_t *x = data;
    __asm__ volatile(
{shown(_EIGHTS)}
      : [out] "+l"(out), [record] "+l"(record), [x] "+l"(x)
      : [channels] "r"(channels), [taps] "r"(taps)
      : "lr", "q0", "q1", "q2", "q3", "q4", "q5", "q6", "memory");
#else
    const int32_t *rest = record + {EIGHT} + 2 * taps;
    for (int32_t lane = 0; lane < {EIGHT}; lane++) {{
      int32_t sum = record[lane];
      for (int32_t tap = 0; tap < taps; tap++) {{
        int32_t word = record[{EIGHT} + 2 * tap + lane / {QUAD}];
        sum += data[tap * channels + lane] * (int8_t)(word >> 8 * (lane % {QUAD}));
      }}
      sum = (int32_t)(((int64_t)sum * rest[lane] + 1073741824) >> 31);
      sum = (sum + (sum >> 31)) >> -rest[{EIGHT} + lane];
      sum = (sum + rest[{2 * EIGHT}]) >> 1;
      *out++ = (int8_t){held('sum')};
    }}
    record = rest + {2 * EIGHT + 1};
#endif
  }}
  return 0;
}}""")
