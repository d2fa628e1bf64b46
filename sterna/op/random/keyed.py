"""Random numbers from keys that the graph passes on: each draw gives the key for the next one.

A key is ten words: four of the generator's key, two that are zero, two of the counter, and two that
say that the key is new.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.types import Dim, TensorType, TupleType, Type
from sterna.op.axis_rows import product
from sterna.op.checks import at_least, of_kind, tensor
from sterna.op.sampling import (
    ArraySource,
    Parameter,
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
    LEFT,
    RIGHT,
    UINT64,
    block_arrays,
    each_block,
    guarded,
    word_arrays,
    word_exprs,
)
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExpr, RelayExprLike, const
from sterna.relay.op import OPAQUE, CallRule, Case, OpRecord, register
from sterna.support.dtype import DataType
from sterna.te import Tensor
from sterna.tir.ir_builder import BufferVar, IRBuilder

KEY = TensorType((10,), UINT64)
_TAIL = (0, 0, 0, 0, 1 << 63, 0)


@attributes
class KeyAttrs(Attrs):
    """Of random.threefry_key."""

    seed: int

    def normalize(self) -> None:
        if not 0 <= self.seed < 1 << 256:
            raise ValueError(f"a seed has at most 256 bits and is not negative, as {self.seed} is")


@attributes
class GenerateAttrs(Attrs):
    """Of random.threefry_generate."""

    out_shape: tuple[Dim, ...]


@attributes
class DrawAttrs(Attrs):
    """Of random.uniform and random.normal."""

    out_shape: tuple[Dim, ...]
    out_dtype: DataType = DataType("float32")


@attributes
class MultinomialAttrs(Attrs):
    """Of random.multinomial."""

    num_samples: int = 1


def _key(kind: Type) -> None:
    found = tensor(kind, "key", 1)
    if found.dtype != UINT64 or found.shape[0] != 10:
        raise ValueError(f"key is one that random.threefry_key gives, not {found!r}")


# ---- keys ----


def _key_words(attrs: KeyAttrs) -> list[int]:
    words = [attrs.seed >> 64 * i & (1 << 64) - 1 for i in range(4)]
    return [*words, *_TAIL]


def _compute_key(attrs: KeyAttrs, out: TensorType) -> Tensor:
    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        for place, word in enumerate(_key_words(attrs)):
            outs[0][place] = build.const(word, UINT64)

    return statements(out, [], fill, "T_threefry_key")[0]


def threefry_key(seed: int) -> RelayExpr:
    """A key from a seed, a number of at most 256 bits."""
    return const(np.array(_key_words(KeyAttrs(seed)), np.uint64))


register(OpRecord(
    "random.threefry_key",
    inputs=(),
    attrs=KeyAttrs,
    infer=lambda attrs: KEY,
    compute=_compute_key,
    reference=lambda attrs: np.array(_key_words(attrs), np.uint64),
    builder=threefry_key,
    pattern=OPAQUE,
    cases=[Case((), {"seed": 7}), Case((), {"seed": (1 << 200) + 3})],
    doc=threefry_key.__doc__ or "",
))


def _source(key: BufferVar) -> Source:
    return [key[i] for i in range(4)], [key[6], key[7]]


def _array_source(key: Array) -> ArraySource:
    return [int(word) for word in key[:4]], [int(word) for word in key[6:8]]


def _pass_on(old: BufferVar, new: BufferVar, blocks: Dim) -> None:
    """The key whose counter is behind the blocks that were drawn."""
    low = old[7] + build.cast(UINT64, build.as_expr(blocks))
    for place in range(10):
        new[place] = old[place]
    new[7] = low
    new[6] = old[6] + build.cast(UINT64, low < old[7])


def _passed_on(key: Array, blocks: int) -> Array:
    counter = (int(key[6]) << 64) + int(key[7]) + blocks
    made = key.copy()
    made[6:8] = [counter >> 64 & (1 << 64) - 1, counter & (1 << 64) - 1]
    return made


def _blocks(shape: Sequence[Dim]) -> Any:
    return (product(shape) + 3) // 4


def _compute_split(attrs: None, out: TupleType, key: Tensor) -> list[Tensor]:
    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        for purpose, child in zip((LEFT, RIGHT), outs, strict=True):
            words, counter = _source(ins[0])
            for place, word in enumerate(word_exprs(ib, words, [purpose, 0, *counter])):
                child[place] = word
            for place, number in enumerate(_TAIL, 4):
                child[place] = build.const(number, UINT64)

    return statements(out, [key], fill, "T_threefry_split")


def _reference_split(attrs: None, key: Array) -> list[Array]:
    words, counter = _array_source(key)
    return [
        np.array([*block_arrays(words, [purpose, 0, *counter]), *_TAIL], np.uint64)
        for purpose in (LEFT, RIGHT)
    ]


def _infer_split(attrs: None, key: Type) -> TupleType:
    _key(key)
    return TupleType((KEY, KEY))


_KEY = np.array([3, 1 << 60, 0, 9, 0, 0, 0, 5, 1 << 63, 0], np.uint64)
_FULL = np.array([1, 2, 3, 4, 0, 0, 6, (1 << 64) - 2, 1 << 63, 0], np.uint64)

register(OpRecord(
    "random.threefry_split",
    inputs=("key",),
    infer=_infer_split,
    compute=_compute_split,
    reference=_reference_split,
    num_outputs=2,
    pattern=OPAQUE,
    cases=[Case((_KEY,)), Case((_FULL,))],
    doc="Two keys for independent numbers; the old key is not used any more.",
))


# ---- numbers ----


def _infer_generate(attrs: GenerateAttrs, key: Type) -> TupleType:
    _key(key)
    return TupleType((KEY, TensorType(attrs.out_shape, UINT64)))


def _compute_generate(attrs: GenerateAttrs, out: TupleType, key: Tensor) -> list[Tensor]:
    shape = out.fields[1].shape  # type: ignore[attr-defined]

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        each_block(
            ib, *_source(ins[0]), shape,
            lambda first, words: guarded(ib, shape, first, words, outs[1].__setitem__),
        )
        _pass_on(ins[0], outs[0], _blocks(shape))

    return statements(out, [key], fill, "T_threefry_generate")


def _reference_generate(attrs: GenerateAttrs, key: Array) -> list[Array]:
    shape = TensorType(attrs.out_shape).concrete_shape
    words = word_arrays(*_array_source(key), int(np.prod(shape)))
    return [_passed_on(key, _blocks(shape)), words.reshape(shape)]


def _generate(key: RelayExprLike, shape: Sequence[Dim]) -> Any:
    """Random words of 64 bits, and the key for the next ones."""
    return make("random.threefry_generate", key, out_shape=tuple(shape))


register(OpRecord(
    "random.threefry_generate",
    inputs=("key",),
    attrs=GenerateAttrs,
    infer=_infer_generate,
    compute=_compute_generate,
    reference=_reference_generate,
    builder=_generate,
    num_outputs=2,
    pattern=OPAQUE,
    cases=[Case((_KEY,), {"out_shape": (3, 3)}), Case((_FULL,), {"out_shape": (17,)}),
           Case((_KEY,), {"out_shape": ()})],
    doc=_generate.__doc__ or "",
))


def _infer_draw(attrs: DrawAttrs, key: Type, first: Type, second: Type) -> TupleType:
    _key(key)
    for name, kind in (("the first parameter", first), ("the second parameter", second)):
        of_kind(tensor(kind, name, 0), name, "float")
    if not attrs.out_dtype.is_float:
        raise ValueError(f"the dtype of real numbers is a float, not {attrs.out_dtype}")
    return TupleType((KEY, TensorType(attrs.out_shape, attrs.out_dtype)))


def _compute_draw(
    values: Callable[[Parameter, Parameter], Values], name: str
) -> CallRule[DrawAttrs, list[Tensor]]:
    def build_it(
        attrs: DrawAttrs, out: TupleType, key: Tensor, first: Tensor, second: Tensor
    ) -> list[Tensor]:
        def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
            drawn = values(lambda: ins[1][0], lambda: ins[2][0])
            draw(ib, _source(ins[0]), outs[1], drawn)
            _pass_on(ins[0], outs[0], _blocks(attrs.out_shape))

        return statements(out, [key, first, second], fill, name)

    return build_it


def _reference_draw(function: Callable[..., Array]) -> CallRule[DrawAttrs, list[Array]]:
    def reference(attrs: DrawAttrs, key: Array, first: Array, second: Array) -> list[Array]:
        shape = TensorType(attrs.out_shape).concrete_shape
        drawn = function(_array_source(key), shape, attrs.out_dtype, first, second)
        return [_passed_on(key, _blocks(shape)), drawn]

    return reference


def _parameter(value: RelayExprLike, dtype: str) -> RelayExpr:
    wide = "float64" if dtype == "float64" else "float32"
    return value if isinstance(value, RelayExpr) else const(value, wide)


def _uniform(
    key: RelayExprLike, shape: Sequence[Dim], dtype: str = "float32", low: RelayExprLike = 0.0,
    high: RelayExprLike = 1.0,
) -> Any:
    """Numbers of [low, high), each as likely as the others, and the key for the next ones."""
    bounds = [_parameter(low, dtype), _parameter(high, dtype)]
    return make("random.uniform", key, *bounds, out_shape=tuple(shape), out_dtype=dtype)


def _normal(
    key: RelayExprLike, shape: Sequence[Dim], dtype: str = "float32", mean: RelayExprLike = 0.0,
    scale: RelayExprLike = 1.0,
) -> Any:
    """Numbers that are normal around a mean with a deviation, and the key for the next ones."""
    both = [_parameter(mean, dtype), _parameter(scale, dtype)]
    return make("random.normal", key, *both, out_shape=tuple(shape), out_dtype=dtype)


for _name, _values, _arrays, _names, _builder in (
    ("uniform", uniform, uniform_array, ("low", "high"), _uniform),
    ("normal", normal, normal_array_of, ("mean", "scale"), _normal),
):
    register(OpRecord(
        f"random.{_name}",
        inputs=("key", *_names),
        attrs=DrawAttrs,
        infer=_infer_draw,
        compute=_compute_draw(_values, f"T_random_{_name}"),
        reference=_reference_draw(_arrays),
        builder=_builder,
        num_outputs=2,
        pattern=OPAQUE,
        mixed_precision="never",
        cases=[
            Case((_KEY, np.array(-1, "float32"), np.array(3, "float32")), {"out_shape": (2, 5)}),
            Case((_KEY, np.array(0.0), np.array(1.0)), {"out_shape": (6,), "out_dtype": "float64"}),
            Case((_FULL, np.array(0, "float32"), np.array(1, "float32")),
                 {"out_shape": (9,), "out_dtype": "float16"}, tolerance=2e-3),
        ],
        doc=_builder.__doc__ or "",
    ))


def _infer_multinomial(attrs: MultinomialAttrs, key: Type, probs: Type) -> TupleType:
    _key(key)
    weights = of_kind(at_least(probs, "probs", 1), "probs", "float")
    if weights.shape[-1] == 0:
        raise ValueError("probs has a class at least, along its last dimension")
    shape = (*weights.shape[:-1], attrs.num_samples)
    return TupleType((KEY, TensorType(shape, DataType("int32"))))


def _compute_multinomial(
    attrs: MultinomialAttrs, out: TupleType, key: Tensor, probs: Tensor
) -> list[Tensor]:
    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        choose(ib, _source(ins[0]), ins[1], outs[1], logits=False)
        _pass_on(ins[0], outs[0], product(outs[1].shape))

    return statements(out, [key, probs], fill, "T_random_multinomial")


def _reference_multinomial(attrs: MultinomialAttrs, key: Array, probs: Array) -> list[Array]:
    drawn = choices_array(
        _array_source(key), probs, attrs.num_samples, DataType("int32"), logits=False
    )
    return [_passed_on(key, drawn.size), drawn]


_PROBS = np.array([[0.1, 0.0, 0.7, 0.2], [0, 1, 0, 0], [2, 2, 2, 2]], "float32")

register(OpRecord(
    "random.multinomial",
    inputs=("key", "probs"),
    attrs=MultinomialAttrs,
    infer=_infer_multinomial,
    compute=_compute_multinomial,
    reference=_reference_multinomial,
    num_outputs=2,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[Case((_KEY, _PROBS), {"num_samples": 7}), Case((_FULL, _PROBS[0]), {"num_samples": 3})],
    doc="Places along the last dimension of probs, each drawn as often as its weight says, and the "
        "key for the next ones.",
))
