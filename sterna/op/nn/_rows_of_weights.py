"""Products on GPUs by matrices whose rows are as long as the sums, as Tensor Cores read them there.

    nn.matmul(%a, %b)  ->  nn.dense(%a, transpose(%b))

Constants are turned when a model is compiled. Others take a kernel of their own, which costs less
than a product without Tensor Cores as soon as there are some rows. The lanes that multiply float32
read columns side by side as they lie, and so do groups of four warps: there it is the other way,

    nn.dense(transpose(%a), transpose(%b))  ->  nn.matmul(%a, %b, transpose_a=True)
"""

from typing import TYPE_CHECKING

from sterna.op.dynamic import tensor_type
from sterna.op.nn._narrow_floats import is_known
from sterna.op.nn._transposed_operand import swaps_last
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.op import call
from sterna.schedule.gpu.tensor_cores import reads_columns
from sterna.target import Target, is_gpu

if TYPE_CHECKING:
    from sterna.op.nn.dense import BatchMatmulAttrs, DenseAttrs, MatmulAttrs

KINDS = ("bfloat16", "float16")
# Rows from which on a matrix that only the run knows is turned for them.
LEAST_ROWS = 64


def by_rows(
    attrs: "MatmulAttrs", args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """A product by a matrix of floats; None where it stays as it is."""
    if target is None or not is_gpu(target) or attrs.transpose_a:
        return None
    data, weight = (tensor_type(arg) for arg in args)
    if not data.is_static or not weight.is_static or data.ndim < 2:
        return None
    if str(data.dtype) not in KINDS or data.dtype != weight.dtype:
        return None
    turned = args[1]
    if not attrs.transpose_b:
        if not is_known(turned) and (
            data.concrete_shape[-2] < LEAST_ROWS or reads_columns(target.attrs.get("arch"))
        ):
            return None
        turned = call("transpose", turned, axes=(1, 0))
    units = tensor_type(turned).concrete_shape[0]
    return call("nn.dense", args[0], turned, units=units, out_dtype=attrs.out_dtype)


def as_they_lie(
    name: str, attrs: "BatchMatmulAttrs | DenseAttrs | MatmulAttrs", args: tuple[RelayExpr, ...],
    target: Target | None,
) -> RelayExpr | None:
    """A product of what operands were before their last axes changed places, where Tensor Cores
    read them so; name: that of the operator."""
    if target is None or not is_gpu(target) or not reads_columns(target.attrs.get("arch")):
        return None
    kind = str(tensor_type(args[0]).dtype)
    if kind not in (*KINDS, "float32"):
        return None
    turned = [False, True] if name == "nn.dense" else [
        attrs.transpose_a, attrs.transpose_b]  # type: ignore[union-attr]
    lies = [
        isinstance(arg, Call) and swaps_last(arg) and not is_known(arg.args[0]) for arg in args
    ]
    # Lanes read rows as long as the sums alone, and tiles the columns of one matrix each.
    lies[0] = lies[0] and kind in KINDS and (
        name == "nn.batch_matmul" or tensor_type(args[0]).ndim == 2)
    if not any(lies):
        return None
    given = [arg.args[0] if lie else arg  # type: ignore[attr-defined]
             for arg, lie in zip(args, lies, strict=True)]
    turned = [one != lie for one, lie in zip(turned, lies, strict=True)]
    flags = {"transpose_a": turned[0], "transpose_b": turned[1], "out_dtype": attrs.out_dtype}
    if name == "nn.batch_matmul":
        return call(name, *given, **flags)
    return call("nn.matmul", *given, units=attrs.units, **flags)  # type: ignore[union-attr]
