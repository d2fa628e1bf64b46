"""Layers drawn at random: contractions of every kind that an implementation may suit."""

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st

from sterna import relay
from sterna.op.nn._conv_shape import Conv2DAttrs, contraction_of
from sterna.relay.arrays import Array, from_numpy, to_numpy
from sterna.relay.expr import Constant, Var
from sterna.schedule.contraction import Contraction
from sterna.schedule.kernel import Processor
from tests.op.harness import kind

# Vectors of 128, 256 and 512 bits; products of bytes by fours, in pairs, in tiles, or none.
PROCESSORS = {
    "neon": Processor(128, 32, by_element_fma=True),
    "a small cache": Processor(128, 32, by_element_fma=True, l2_bytes=1 << 17, threads=2),
    "neon with dots": Processor(128, 32, by_element_fma=True, has_dot4=True, threads=2),
    "avx2": Processor(256, 16, has_dot2=True, threads=2),
    "avx512": Processor(512, 32, l2_bytes=1 << 20, has_dot2=True, threads=3),
    "vnni": Processor(512, 32, l2_bytes=1 << 20, has_dot4=True),
    "amx": Processor(
        512, 32, l2_bytes=2 << 20, has_dot4=True, matrix_tiles=("bfloat16", "int8"), threads=2
    ),
    "cortex-m55": Processor(
        128, 8, has_dot_halves=True, has_dot_across=True, has_spare_memory=False
    ),
    "cortex-m4": Processor(32, 8, has_dot_halves=True, has_spare_memory=False),
}


@dataclass(frozen=True)
class Layer:
    """A convolution, or a dense layer."""

    data: tuple[int, ...]
    weight: tuple[int, ...]
    """(output channel, window, input channel), or (unit, number)."""
    dtypes: tuple[str, str, str]
    attrs: dict[str, Any] = field(default_factory=dict)
    layout: str = "NHWC"

    @property
    def is_dense(self) -> bool:
        return len(self.weight) == 2

    @property
    def contraction(self) -> Contraction:
        data, weight, out = (kind((), each).dtype for each in self.dtypes)
        if self.is_dense:
            rows = int(np.prod(self.data[:-1]))
            return Contraction(
                1, (1, rows), self.data[-1], (1, rows), self.weight[0], data, weight, out,
                data_layout="NC", out_layout="NC",
            )
        attrs = Conv2DAttrs(
            data_layout=self.layout, kernel_layout="OHWI", out_dtype=out, **self.attrs
        )
        made = contraction_of(
            attrs, kind(self.data, self.dtypes[0]), kind(self.weight, self.dtypes[1])
        )
        assert made is not None
        return made

    def times(self, count: int) -> "Layer":
        """The same over so many times as many images or rows."""
        return replace(self, data=(count * self.data[0], *self.data[1:]))

    def numbers(self, seed: int, most: int = 127) -> tuple[Array, Array]:
        """Data, and weights of which few are large; most: those of integers that are not."""
        rng = np.random.default_rng(seed)
        return _numbers(rng, self.data, self.dtypes[0], 127), _numbers(
            rng, self.weight, self.dtypes[1], most
        )

    def call(self, weight: Array) -> tuple[Var, Any]:
        """Its data and the layer, with weights that are known."""
        x: Var = relay.var("x", shape=self.data, dtype=self.dtypes[0])
        held = Constant(from_numpy(weight))
        if self.is_dense:
            return x, relay.nn.dense(x, held, out_dtype=self.dtypes[2])
        return x, relay.nn.conv2d(
            x, held, data_layout=self.layout, kernel_layout="OHWI", out_dtype=self.dtypes[2],
            **self.attrs,
        )

    def plain(self, weight: Array) -> Array:
        """Weights as implementations are given them."""
        return weight.reshape(self.weight[0], *self.contraction.window, -1)


def _numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: str, most: int) -> Array:
    if dtype in ("float32", "bfloat16"):
        return to_numpy(from_numpy(rng.standard_normal(shape).astype("float32"), dtype))
    info = np.iinfo(dtype)
    every = rng.integers(max(-most - 1, info.min), min(2 * most + 1, info.max) + 1, shape)
    ends = rng.choice([info.min, info.max], shape)
    return np.where(rng.random(shape) < 0.02, ends, np.minimum(every, most)).astype(dtype)


FLOATS = ("float32",) * 3
HALVES = ("bfloat16",) * 3
WIDENED = ("bfloat16", "bfloat16", "float32")
BYTES = ("uint8", "int8", "int32")
SIGNED = ("int8", "int8", "int32")
FAMILIES = (
    "windows", "stem", "pointwise", "depthwise", "dense", "one pixel", "many rows",
    "channels first", "planes",
)


@st.composite
def layers(draw: st.DrawFn, family: str, dtypes: tuple[str, str, str]) -> Layer:
    """A small one, whose every extent may be odd but for those that vectors must fill."""

    def number(low: int, high: int) -> int:
        return draw(st.integers(low, high))

    inputs, outputs = 4 * number(1, 4), 8 * number(1, 4)
    if family == "one pixel":
        few = 32 * number(1, 4)
        return Layer((1, 1, 1, few), (number(2, 16), 1, 1, few), dtypes)
    if family == "many rows":
        return Layer((8 * number(5, 8), 512), (64, 512), dtypes)
    if family == "dense":
        rows = (number(1, 20),) if draw(st.booleans()) else (number(1, 3), number(1, 7))
        return Layer((*rows, inputs), (outputs, inputs), dtypes)
    if family == "channels first":
        return draw(_channels_first(dtypes))
    if family == "planes":
        made = draw(_channels_first(dtypes))
        channels = 2 * number(1, 4)
        data, weight = list(made.data), (channels, *made.weight[1:3], 1)
        data[1] = channels
        return replace(made, data=tuple(data), weight=weight,
                       attrs={**made.attrs, "groups": channels})
    attrs: dict[str, Any] = {"padding": tuple(number(0, 2) for _ in range(4))}
    if dtypes in (BYTES, SIGNED):
        attrs["border"] = number(0, 100)
    window = (1, 1) if family == "pointwise" else (number(2, 4),) * 2
    if family == "windows" and dtypes != FLOATS:
        attrs |= {"strides": (number(1, 2), number(1, 3)), "dilation": (number(1, 2), number(1, 2))}
        window = (number(1, 3), number(1, 3))
    elif family == "windows":
        attrs["dilation"] = (number(1, 3), number(1, 3))
    if family == "stem":
        inputs, window = number(1, 4), (number(3, 7),) * 2
        attrs["strides"] = (2, 2)
    reach = [
        (size - 1) * apart + 1
        for size, apart in zip(window, attrs.get("dilation", (1, 1)), strict=True)
    ]
    image = number(max(5, reach[0]), 13), number(max(5, reach[1]), 13)
    weight = (outputs, *window, inputs)
    if family == "depthwise":
        inputs, attrs["groups"], weight = outputs, outputs, (outputs, *window, 1)
        attrs["strides"] = (number(1, 2), number(1, 2))
    return Layer((number(1, 2), *image, inputs), weight, dtypes, attrs)


@st.composite
def _channels_first(draw: st.DrawFn, dtypes: tuple[str, str, str]) -> Layer:
    """Any extents: neither channels nor pixels need fill vectors."""

    def pair(low: int, high: int) -> tuple[int, int]:
        return draw(st.integers(low, high)), draw(st.integers(low, high))

    groups, (inputs, outputs) = draw(st.integers(1, 3)), pair(1, 20)
    window, image = draw(st.sampled_from([(1, 1), (3, 1), (1, 3), (2, 4)])), pair(7, 19)
    attrs = {"groups": groups, "strides": pair(1, 2), "dilation": pair(1, 2)}
    if draw(st.booleans()):
        attrs["padding"] = (*pair(0, 2), *pair(0, 2))
    data = (draw(st.integers(1, 2)), groups * inputs, *image)
    return Layer(data, (groups * outputs, *window, inputs), dtypes, attrs, "NCHW")


# One layer of each kind, from which it is known who suits what.
SAMPLES: dict[tuple[str, tuple[str, str, str]], Layer] = {
    (family, dtypes): {
        "windows": Layer((1, 4, 5, 8), (16, 3, 3, 8), dtypes, {"padding": (1, 1, 0, 1)}),
        "stem": Layer((1, 12, 12, 3), (16, 5, 5, 3), dtypes, {"strides": (2, 2)}),
        "pointwise": Layer((1, 4, 5, 8), (16, 1, 1, 8), dtypes),
        "depthwise": Layer((1, 4, 5, 16), (16, 3, 3, 1), dtypes, {"groups": 16}),
        "dense": Layer((5, 8), (16, 8), dtypes),
        "one pixel": Layer((1, 1, 1, 1024), (8, 1, 1, 1024), dtypes),
        "many rows": Layer((48, 512), (64, 512), dtypes),
        "channels first": Layer((1, 8, 4, 5), (16, 1, 1, 8), dtypes, layout="NCHW"),
        "planes": Layer((1, 8, 7, 9), (8, 3, 3, 1), dtypes, {"groups": 8}, "NCHW"),
    }[family]
    for family in FAMILIES
    for dtypes in (FLOATS, HALVES, WIDENED, BYTES, SIGNED)
}
