"""An operator with a schedule of its own: the squared distance of two points, of many pairs.

In the tree this is one file, sterna/op/nn/squared_distance.py, down to the call of register.
"""

import numpy as np

import sterna
from sterna import relay, te
from sterna.ir import build
from sterna.ir.expr import Expr, Var
from sterna.ir.types import TensorType, Type
from sterna.op.checks import of_kind, same_dtype, tensor
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import COMM_REDUCE, Case, OpRecord, register
from sterna.schedule.choose import choose
from sterna.schedule.kernel import Kernel


@attributes
class SquaredDistanceAttrs(Attrs):
    """Of nn.squared_distance."""

    weight: float = 1.0


def _infer(attrs: SquaredDistanceAttrs, a: Type, b: Type) -> TensorType:
    first = of_kind(tensor(a, "a", 2), "a", "float")
    second = tensor(b, "b", 2)
    same_dtype([first, second], ["a", "b"])
    if first.shape != second.shape:
        raise ValueError(f"a and b have one shape, not {first.shape} and {second.shape}")
    return TensorType(first.shape[:1], first.dtype)


def _compute(
    attrs: SquaredDistanceAttrs, out: TensorType, a: te.Tensor, b: te.Tensor
) -> te.Tensor:
    k = te.reduce_axis((0, a.shape[1]), name="k")

    def square(i: Var) -> Expr:
        difference = a[i, k] - b[i, k]
        return difference * difference * attrs.weight

    return te.compute(out.shape, lambda i: te.sum(square(i), axis=k), name="T_squared_distance")


def _reference(attrs: SquaredDistanceAttrs, a: Array, b: Array) -> Array:
    return (np.sum((a - b) ** 2, axis=1) * attrs.weight).astype(a.dtype)


def schedule_pairs(kernel: Kernel) -> None:
    """A pair of points in each lane of a vector, and the rows of pairs shared among threads."""
    (output,) = kernel.outputs
    stage = kernel.schedule[output]
    whole = kernel.processor.lanes(output.dtype)
    pairs = build.int_value(output.shape[0]) or whole
    lanes = choose("lanes", [whole, whole // 2 or 1], lambda some: -(-pairs // some))
    outer, inner = stage.split(stage.op.axis[0], factor=lanes)
    if stage.op.reduce_axis:  # nothing was fused behind the sum
        stage.reorder(outer, stage.op.reduce_axis[0], inner)
    else:
        kernel.schedule[kernel.anchor[0]].compute_at(stage, inner)
    stage.vectorize(inner)
    stage.parallel(outer)


register(OpRecord(
    "nn.squared_distance",
    inputs=("a", "b"),
    attrs=SquaredDistanceAttrs,
    infer=_infer,
    compute=_compute,
    reference=_reference,
    pattern=COMM_REDUCE,
    schedules={"cpu": schedule_pairs},
    macs=lambda attrs, out, a, b: int(np.prod(a.concrete_shape)),
    cases=[Case(((8, 3), (8, 3))), Case(((5, 16), (5, 16)), {"weight": 0.5})],
    doc="The sum over the last axis of (a - b) * (a - b) * weight.",
))

# The builder, the text form, type checking, constant folding and the executor know it now.
a, b = relay.var("a", shape=(64, 3)), relay.var("b", shape=(64, 3))
graph = relay.Function([a, b], relay.nn.squared_distance(a, b, weight=2.0))
model = sterna.compile(graph)

rng = np.random.default_rng(0)
points = [rng.standard_normal((64, 3)).astype("float32") for _ in range(2)]
wanted = 2 * np.sum((points[0] - points[1]) ** 2, axis=1)
print(np.allclose(model(*points), wanted, rtol=1e-5))
(kernel,) = model.report().kernels
print(kernel.anchor, kernel.schedule, kernel.decisions["lanes"])
