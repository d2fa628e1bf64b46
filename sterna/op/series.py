"""Functions that are sums of series and iterations, written once for kernels and for NumPy.

A formula takes a kit, which has functions and loops of one of the two, and numbers of float64; so
what a kernel computes is what the reference computes, and both are right to float32's last digit.
"""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

import numpy as np

from sterna.ir import build
from sterna.ir.types import TensorType, Type
from sterna.op.checks import broadcast_shapes, of_kind, same_dtype, tensor
from sterna.op.indexing import broadcast_place
from sterna.op.statements import filled, loops, variable
from sterna.op.tensor.unary import erf_of
from sterna.relay.arrays import Array
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.te import Tensor
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder

WIDE = "float64"

# An expression of float64, or an array of it; conditions are of truth values.
Number: TypeAlias = Any
Body: TypeAlias = Callable[..., Sequence[Number]]


class Kit(Protocol):
    """Functions of numbers."""

    def where(self, condition: Number, then: Number, otherwise: Number) -> Number:
        """One of two numbers."""

    def of(self, name: str, *x: Number) -> Number:
        """A function of C's mathematics by its name."""

    def equal(self, a: Number, b: Number) -> Number:
        """Whether two numbers are equal."""

    def loop(self, count: Number, start: Sequence[Number], body: Body) -> list[Number]:
        """Numbers after body(k, *numbers) for k = 0, 1, ..., count - 1."""


Formula: TypeAlias = Callable[..., Number]


class ArrayKit:
    """Of NumPy's arrays."""

    _FUNCTIONS: ClassVar[dict[str, Callable[..., Array]]] = {
        "exp": np.exp, "log": np.log, "log1p": np.log1p, "sqrt": np.sqrt, "sin": np.sin,
        "cos": np.cos, "abs": np.abs, "floor": np.floor, "power": np.power, "erf": erf_of,
        "cosh": np.cosh,
    }

    def where(self, condition: Number, then: Number, otherwise: Number) -> Number:
        return np.where(condition, then, otherwise)

    def of(self, name: str, *x: Number) -> Number:
        return self._FUNCTIONS[name](*(np.asarray(each, np.float64) for each in x))

    def equal(self, a: Number, b: Number) -> Number:
        return np.equal(a, b)

    def loop(self, count: Number, start: Sequence[Number], body: Body) -> list[Number]:
        state = [np.asarray(each, np.float64) for each in start]
        most = int(np.max(count)) if np.size(count) else 0
        for k in range(most):
            made = body(np.float64(k), *state)
            goes_on = np.asarray(k < count)
            state = [np.where(goes_on, new, old) for new, old in zip(made, state, strict=True)]
        return state


class KernelKit:
    """Of expressions, named by statements so that none is computed twice."""

    def __init__(self, ib: IRBuilder) -> None:
        self.ib = ib

    def where(self, condition: Number, then: Number, otherwise: Number) -> Number:
        chosen = build.select(condition, build.cast(WIDE, build.as_expr(then)),
                              build.cast(WIDE, build.as_expr(otherwise)))
        return self.ib.let("chosen", chosen)

    def of(self, name: str, *x: Number) -> Number:
        given = [build.cast(WIDE, build.as_expr(each)) for each in x]
        return self.ib.let(name, getattr(t, name)(*given))

    def equal(self, a: Number, b: Number) -> Number:
        return build.equal(*build.match_types(a, b))

    def loop(self, count: Number, start: Sequence[Number], body: Body) -> list[Number]:
        held = [variable(self.ib, WIDE, "state", each) for each in start]
        most = build.cast("int32", build.as_expr(count))
        with self.ib.for_range(0, most, name="k") as k:
            now = [self.ib.let("now", each.get()) for each in held]
            made = body(build.cast(WIDE, k), *now)
            named = [self.ib.let("next", build.as_expr(each)) for each in made]
            for each, value in zip(held, named, strict=True):
                each.set(value)
        return [self.ib.let("made", each.get()) for each in held]


def _infer(names: Sequence[str]) -> Callable[..., TensorType]:
    def infer(attrs: None, *kinds: Type) -> TensorType:
        found = [
            of_kind(tensor(kind, name), name, "float")
            for kind, name in zip(kinds, names, strict=True)
        ]
        same_dtype(found, names)
        shape = found[0].shape
        for kind in found[1:]:
            shape = broadcast_shapes(shape, kind.shape)
        return TensorType(tuple(shape), found[0].dtype)

    return infer


def _compute(name: str, formula: Formula) -> Callable[..., Tensor]:
    def compute(attrs: None, out: TensorType, *given: Tensor) -> Tensor:
        def fill(ib: IRBuilder, result: BufferVar, ins: list[BufferVar]) -> None:
            with loops(ib, out.shape, "i") as at:
                numbers = [
                    ib.let("x", build.cast(WIDE, source[broadcast_place(at, each)]))
                    for source, each in zip(ins, given, strict=True)
                ]
                made = formula(KernelKit(ib), *numbers)
                result[tuple(at) or 0] = build.cast(out.dtype, build.as_expr(made))

        return filled(out, given, fill, f"T_{name.rpartition('.')[2]}")

    return compute


def _reference(formula: Formula) -> Callable[..., Array]:
    def reference(attrs: None, *arrays: Array) -> Array:
        wide = np.broadcast_arrays(*(np.asarray(each).astype(np.float64) for each in arrays))
        with np.errstate(all="ignore"):
            made = formula(ArrayKit(), *wide)
            return np.asarray(made).astype(arrays[0].dtype).reshape(wide[0].shape)

    return reference


def register_formula(
    name: str, inputs: tuple[str, ...], formula: Formula, doc: str, cases: Sequence[Case]
) -> None:
    """An operator whose elements a formula gives, of operands that are broadcast."""
    register(OpRecord(
        name,
        inputs=inputs,
        infer=_infer(inputs),
        compute=_compute(name, formula),
        reference=_reference(formula),
        pattern=OPAQUE,
        mixed_precision="never",
        cases=list(cases),
        doc=doc,
    ))
