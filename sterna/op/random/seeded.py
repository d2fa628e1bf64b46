"""Random numbers from a seed that the graph holds: every run draws the same.

Two calls with one seed draw the same numbers too, yet stay two calls.
"""

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import Dim, TensorType, Type
from sterna.op.checks import at_least, of_kind, tensor
from sterna.op.indexing import dims_of
from sterna.op.sampling import (
    ArraySource,
    Source,
    Values,
    choices_array,
    choose,
    draw,
    normal,
    normal_array_of,
    uniform,
    uniform_array,
)
from sterna.op.statements import statements
from sterna.op.threefry import (
    UINT64,
    each_block,
    guarded,
    real_type,
    unit_array,
    unit_expr,
    word_arrays,
)
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import OPAQUE, CallRule, Case, OpRecord, register
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder


@attributes
class SeededUniformAttrs(Attrs):
    """Of random.seeded_uniform."""

    shape: tuple[Dim, ...]
    low: float = 0.0
    high: float = 1.0
    seed: int = 0
    dtype: DataType = DataType("float32")


@attributes
class SeededNormalAttrs(Attrs):
    """Of random.seeded_normal."""

    shape: tuple[Dim, ...]
    mean: float = 0.0
    scale: float = 1.0
    seed: int = 0
    dtype: DataType = DataType("float32")


@attributes
class BernoulliAttrs(Attrs):
    """Of random.bernoulli."""

    seed: int = 0
    dtype: DataType | None = None


@attributes
class SeededMultinomialAttrs(Attrs):
    """Of random.seeded_multinomial."""

    num_samples: int = 1
    seed: int = 0
    dtype: DataType = DataType("int32")


_MASK = (1 << 64) - 1

SeededAttrs = SeededUniformAttrs | SeededNormalAttrs | BernoulliAttrs | SeededMultinomialAttrs
Real = TypeVar("Real", SeededUniformAttrs, SeededNormalAttrs)


def _source(attrs: SeededAttrs) -> Source:
    words = [attrs.seed & _MASK, attrs.seed >> 64 & _MASK, 0, 0]
    return [build.const(word, UINT64) for word in words], [build.const(0, UINT64)] * 2


def _array_source(attrs: SeededAttrs) -> ArraySource:
    return [attrs.seed & _MASK, attrs.seed >> 64 & _MASK, 0, 0], [0, 0]


def _infer(attrs: SeededUniformAttrs | SeededNormalAttrs) -> TensorType:
    if not attrs.dtype.is_float:
        raise ValueError(f"the dtype of real numbers is a float, not {attrs.dtype}")
    return TensorType(attrs.shape, attrs.dtype)


def _drawn(name: str, values: Callable[[Real], Values]) -> CallRule[Real, Tensor]:
    def build_it(attrs: Real, out: TensorType) -> Tensor:
        def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
            draw(ib, _source(attrs), outs[0], values(attrs))

        return statements(out, [], fill, name)[0]

    return build_it


register(OpRecord(
    "random.seeded_uniform",
    inputs=(),
    attrs=SeededUniformAttrs,
    infer=_infer,
    compute=_drawn("T_seeded_uniform", lambda attrs: uniform(attrs.low, attrs.high)),
    reference=lambda attrs: uniform_array(
        _array_source(attrs), attrs.shape, attrs.dtype, attrs.low, attrs.high),
    pattern=OPAQUE,
    foldable=False,
    mixed_precision="never",
    cases=[
        Case((), {"shape": (3, 5), "seed": 11}),
        Case((), {"shape": (), "low": -2.0, "high": 5.0, "dtype": "float64", "seed": -1}),
        Case((), {"shape": (6,), "dtype": "float16"}, tolerance=1e-3),
    ],
    doc="Numbers of [low, high), each as likely as the others, by a seed.",
))

register(OpRecord(
    "random.seeded_normal",
    inputs=(),
    attrs=SeededNormalAttrs,
    infer=_infer,
    compute=_drawn("T_seeded_normal", lambda attrs: normal(attrs.mean, attrs.scale)),
    reference=lambda attrs: normal_array_of(
        _array_source(attrs), attrs.shape, attrs.dtype, attrs.mean, attrs.scale),
    pattern=OPAQUE,
    foldable=False,
    mixed_precision="never",
    cases=[
        Case((), {"shape": (3, 5), "seed": 11}),
        Case((), {"shape": (2, 1), "mean": 4.0, "scale": 0.5, "dtype": "float64"}),
        Case((), {"shape": (0, 2)}),
    ],
    doc="Numbers that are normal around a mean with a deviation, by a seed.",
))


# ---- by probabilities ----


def _infer_bernoulli(attrs: BernoulliAttrs, data: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "float")
    return TensorType(kind.shape, attrs.dtype or kind.dtype)


def _compute_bernoulli(attrs: BernoulliAttrs, out: TensorType, data: Tensor) -> Tensor:
    shape = dims_of(data)
    kind = real_type(data.dtype)

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        def write(place: Expr, unit: Expr) -> None:
            outs[0][place] = build.cast(out.dtype, unit < build.cast(kind, ins[0][place]))

        def store(first: Expr, words: list[Expr]) -> None:
            guarded(ib, shape, first, [unit_expr(word, kind) for word in words], write)

        each_block(ib, *_source(attrs), shape, store)

    return statements(out, [data], fill, "T_bernoulli")[0]


def _reference_bernoulli(attrs: BernoulliAttrs, data: Array) -> Array:
    kind = real_type(DataType(str(data.dtype)))
    units = unit_array(word_arrays(*_array_source(attrs), data.size), kind).reshape(data.shape)
    made = units < data.astype(numpy_dtype(kind))
    return np.asarray(made).astype(numpy_dtype(attrs.dtype) if attrs.dtype else data.dtype)


_HALF = np.array([[0.0, 1.0, 0.5], [0.5, 0.2, 0.9]], "float32")

register(OpRecord(
    "random.bernoulli",
    inputs=("data",),
    attrs=BernoulliAttrs,
    infer=_infer_bernoulli,
    compute=_compute_bernoulli,
    reference=_reference_bernoulli,
    pattern=OPAQUE,
    foldable=False,
    mixed_precision="never",
    cases=[
        Case((_HALF,)),
        Case((_HALF.astype("float64"),), {"dtype": "bool", "seed": 5}),
        Case((_HALF.astype("float16"),), {"dtype": "int8", "seed": 6}),
    ],
    doc="1 where a number of [0, 1), drawn by a seed, is below the element, which is the "
        "probability of that; 0 elsewhere.",
))


def _infer_multinomial(attrs: SeededMultinomialAttrs, logits: Type) -> TensorType:
    kind = of_kind(at_least(logits, "logits", 1), "logits", "float")
    if kind.shape[-1] == 0:
        raise ValueError("logits has a class at least, along its last dimension")
    return TensorType((*kind.shape[:-1], attrs.num_samples), attrs.dtype)


def _compute_multinomial(
    attrs: SeededMultinomialAttrs, out: TensorType, logits: Tensor
) -> Tensor:
    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        choose(ib, _source(attrs), ins[0], outs[0], logits=True)

    return statements(out, [logits], fill, "T_seeded_multinomial")[0]


register(OpRecord(
    "random.seeded_multinomial",
    inputs=("logits",),
    attrs=SeededMultinomialAttrs,
    infer=_infer_multinomial,
    compute=_compute_multinomial,
    reference=lambda attrs, logits: choices_array(
        _array_source(attrs), logits, attrs.num_samples, attrs.dtype, logits=True),
    pattern=OPAQUE,
    foldable=False,
    mixed_precision="never",
    cases=[
        Case(((2, 5),), {"num_samples": 6, "seed": 2}),
        Case((np.array([[-np.inf, 0.0, -np.inf]], "float16"),), {"num_samples": 3,
                                                                 "dtype": "int64"}),
    ],
    doc="Places along the last dimension, each drawn as often as the logarithm of its weight says, "
        "by a seed.",
))
