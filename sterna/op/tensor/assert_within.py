"""Checks of elements: an error of the run where one is outside of what a program may be given.

The result is a number to add to what was checked, so that whoever reads that waits for the check:

    places + assert_within(places, -4, 4)
"""

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.ir.types import TensorType, Type
from sterna.op.axis_rows import index_type, product
from sterna.op.checks import of_kind, tensor
from sterna.op.dynamic import tensor_type
from sterna.op.indexing import dims_of
from sterna.op.statements import filled, variable
from sterna.relay.arrays import Array, numpy_dtype
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.expr import RelayExpr, const
from sterna.relay.op import OPAQUE, Case, OpRecord, register
from sterna.support.errors import make_exception
from sterna.target import Target, is_gpu
from sterna.te import Tensor, compute
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import AssertStmt

# Elements that one thread looks at before another may join.
SHARE = 1 << 15
# Elements that are looked at together: whole vectors of any processor.
LANES = 16


@attributes
class AssertWithinAttrs(Attrs):
    """Of assert_within."""

    error: str = "IndexError"
    text: str = "{} is not below {} and at least {}"
    but: int | None = None
    outside: bool = False

    def normalize(self) -> None:
        if self.text.count("{}") > 3:
            raise ValueError(f"text has {{}} for an element, high and low alone: {self.text!r}")


def _infer(attrs: AssertWithinAttrs, data: Type, low: Type, high: Type) -> TensorType:
    kind = of_kind(tensor(data, "data"), "data", "int", "uint")
    for name, bound in (("low", low), ("high", high)):
        if tensor(bound, name, 0).dtype != "int64":
            raise ValueError(f"{name} is a number of int64")
    return TensorType((), kind.dtype)


def _compute(
    attrs: AssertWithinAttrs, out: TensorType, data: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    dims = dims_of(data)
    count = product(dims)

    def is_fault(value: Expr, bounds: tuple[Expr, Expr]) -> Expr:
        wide = build.cast("int64", value)
        if attrs.outside:
            found = t.all(wide >= bounds[0], wide < bounds[1])
        else:
            found = t.any(wide < bounds[0], wide >= bounds[1])
        return found if attrs.but is None else t.all(found, build.not_equal(wide, attrs.but))

    def fill(ib: IRBuilder, result: BufferVar, inputs: list[BufferVar]) -> None:
        given = inputs[0]
        kind = index_type(count)
        bounds = ib.let("low", inputs[1][0]), ib.let("high", inputs[2][0])
        shares = (build.as_expr(count) + (SHARE - 1)) // SHARE
        faults = ib.allocate("int32", (shares,), name="faults")
        is_one = build.int_value(shares) == 1
        with ib.for_range(
            0, shares, name="share", dtype=kind, kind="serial" if is_one else "parallel"
        ) as share:
            begin = ib.let("begin", share * SHARE)
            size = ib.let("size", build.minimum(count - begin, SHARE))
            found = ib.allocate("int32", (LANES,), name="found", scope="local")
            with ib.for_range(0, LANES, name="lane", kind="vectorize") as lane:
                found[lane] = 0
            with (
                ib.for_range(0, size // LANES, name="vector") as vector,
                ib.for_range(0, LANES, name="lane", kind="vectorize") as lane,
            ):
                value = given[begin + vector * LANES + lane]
                found[lane] = found[lane] | build.cast("int32", is_fault(value, bounds))
            with ib.for_range(0, size % LANES, name="rest") as rest:
                value = given[begin + size // LANES * LANES + rest]
                found[0] = found[0] | build.cast("int32", is_fault(value, bounds))
            whole = build.as_expr(found[0])
            for number in range(1, LANES):
                whole = whole | found[number]
            faults[share] = whole
        with (
            ib.for_range(0, shares, name="share", dtype=kind) as share,
            ib.if_scope(build.not_equal(faults[share], 0)),
        ):
            begin = ib.let("begin", share * SHARE)
            fault = variable(ib, "int64", "fault", 0)
            with (
                ib.for_range(0, build.minimum(count - begin, SHARE), name="k") as k,
                ib.if_scope(is_fault(given[begin + k], bounds)),
            ):
                fault.set(given[begin + k])
            values = (fault.get(), bounds[1], bounds[0])[: attrs.text.count("{}")]
            ib.emit(AssertStmt(build.const(False, "bool"), attrs.error, attrs.text, values))
        result[0] = build.const(0, out.dtype)

    return filled(out, [data, low, high], fill, "T_assert_within")


def _compute_by_threads(
    attrs: AssertWithinAttrs, out: TensorType, data: Tensor, low: Tensor, high: Tensor
) -> Tensor:
    """A kernel of a device ends without errors; operators hold indices within their axes there."""
    made: Tensor = compute((), lambda: build.const(0, out.dtype), name="T_assert_within")
    return made


def _legalize(
    attrs: AssertWithinAttrs, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """On devices of threads the 0 that it gives."""
    if target is None or not is_gpu(target):
        return None
    return const(np.zeros((), numpy_dtype(tensor_type(args[0]).dtype)))


def _reference(attrs: AssertWithinAttrs, data: Array, low: Array, high: Array) -> Array:
    wide = data.astype(np.int64)
    faults = (wide < low) | (wide >= high)
    if attrs.outside:
        faults = ~faults
    if attrs.but is not None:
        faults &= wide != attrs.but
    if faults.any():
        values = wide[faults].flat[-1], high, low
        raise make_exception(attrs.error, attrs.text.format(*(int(each) for each in values)))
    return np.zeros((), data.dtype)


_BOUNDS = np.array(-4), np.array(4)

register(OpRecord(
    "assert_within",
    inputs=("data", "low", "high"),
    attrs=AssertWithinAttrs,
    infer=_infer,
    compute=_compute,
    compute_by_threads=_compute_by_threads,
    legalize=_legalize,
    reference=_reference,
    pattern=OPAQUE,
    cases=[
        Case((np.array([[0, 3, -4], [1, -1, 2]]), *_BOUNDS)),
        Case((np.array(3, "uint8"), *_BOUNDS)),
        Case((np.array([3, -100] * 30, "int32"), *_BOUNDS), {"but": -100}),
        Case((np.zeros((0, 2), "int64"), *_BOUNDS)),
        Case((np.array([4, -5] * 30), *_BOUNDS), {"outside": True}),
    ],
    doc="0 where all elements of data are from low to below high (none, if outside), or are but; "
        "else an error, whose text has {} for an element, high and low. Devices make no error.",
))
