"""Contractions of float16 or bfloat16 by those of float32, whose operands are widened before.

    nn.matmul(%a, %b)  ->  cast(nn.matmul(cast(%a, float32), cast(%b, float32)), float16)

Sums are of float32 either way. Elements that meet many others would be widened for each of them,
which takes longer than the products; weights that are known are widened when a model is compiled,
unless few rows meet them: those wait for memory, of which narrow weights need half.
"""

import math
from typing import TYPE_CHECKING, Any

from sterna.op.dynamic import tensor_type
from sterna.relay.arrays import from_numpy, numpy_dtype, to_numpy
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.op import call, is_call_of
from sterna.schedule.kernel import Processor
from sterna.schedule.products import FLOAT32

if TYPE_CHECKING:
    from sterna.op.nn._conv_shape import ConvAttrs
    from sterna.op.nn.conv_transpose import ConvTransposeAttrs
    from sterna.op.nn.dense import BatchMatmulAttrs, DenseAttrs, MatmulAttrs

NARROW = ("float16", "bfloat16")
# With fewer rows, or columns, elements meet too few others to be widened for; known weights too few
# rows to be read as numbers of twice the size.
LEAST, LEAST_OF_KNOWN = 4, 8


def in_float32(
    name: str, attrs: "DenseAttrs | MatmulAttrs | BatchMatmulAttrs", args: tuple[RelayExpr, ...],
    processor: Processor | None,
) -> RelayExpr | None:
    """The product of operands that are widened before, on processors that run vectors."""
    if processor is None or _has_narrow(attrs, args, processor, groups=1):
        return None
    kinds = [tensor_type(arg) for arg in args]
    if not all(kind.is_static and kind.ndim > 1 for kind in kinds):
        return None
    if min(extent for kind in kinds for extent in kind.concrete_shape[-2:]) < LEAST:
        return None
    if is_known(args[1]):
        rows = math.prod(kinds[0].concrete_shape[:-1])
        few = rows < LEAST_OF_KNOWN * math.prod(kinds[1].concrete_shape[:-2])
        if few or _adds_up(args, processor) or _constant_of(args[1]) is None:
            return None
    return _widened(name, attrs, args)


def convolved_in_float32(
    name: str, attrs: "ConvAttrs | ConvTransposeAttrs", args: tuple[RelayExpr, ...],
    processor: Processor | None, pixels: int | None,
) -> RelayExpr | None:
    """The same of a convolution with so many pixels, if their number is known."""
    if processor is None or _has_narrow(attrs, args, processor, attrs.groups):
        return None
    few = pixels is not None and pixels < LEAST_OF_KNOWN
    if few or _adds_up(args, processor) or (is_known(args[1]) and _constant_of(args[1]) is None):
        return None
    return _widened(name, attrs, args)


def _has_narrow(
    attrs: Any, args: tuple[RelayExpr, ...], processor: Processor, groups: int
) -> bool:
    """Whether operands stay as they are: others than narrow floats, and those that are packed.

    So do those of which a processor has tiles; and all where it has no vectors.
    """
    if "implementation" in attrs.FIELDS and dict(attrs.items())["implementation"]:
        return True
    kinds = [str(tensor_type(arg).dtype) for arg in args]
    if processor.lanes(FLOAT32) == 1 or any(kind not in NARROW for kind in kinds):
        return True
    return groups == 1 and kinds[0] in processor.matrix_tiles


def _adds_up(args: tuple[RelayExpr, ...], processor: Processor) -> bool:
    """Whether it adds up some products in float16, as they are."""
    return tensor_type(args[0]).dtype == "float16" and processor.fp16_arithmetic


def _widened(name: str, attrs: Any, args: tuple[RelayExpr, ...]) -> RelayExpr:
    out = attrs.out_dtype or tensor_type(args[0]).dtype
    wide = [_constant_of(arg) or call("cast", arg, dtype="float32") for arg in args]
    made = call(name, *wide, **{**dict(attrs.items()), "out_dtype": "float32"})
    return call("cast", made, dtype=out)


def _constant_of(expr: RelayExpr) -> Constant | None:
    """A constant, or one that is narrowed, as float32; None: it is none."""
    if isinstance(expr, Call) and is_call_of(expr, "cast") and isinstance(expr.args[0], Constant):
        held = to_numpy(expr.args[0].data).astype(numpy_dtype(tensor_type(expr).dtype))
    elif isinstance(expr, Constant):
        held = to_numpy(expr.data)
    else:
        return None
    return Constant(from_numpy(held.astype("float32")))


def is_known(expr: RelayExpr) -> bool:
    """Whether it is a constant, or made of one step by step, as weights are that are narrowed."""
    while isinstance(expr, Call) and len(expr.args) == 1:
        expr = expr.args[0]
    return isinstance(expr, Constant)
