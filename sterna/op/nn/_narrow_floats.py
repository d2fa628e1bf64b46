"""Products of float16 or bfloat16 whose operands only the run knows, by those of float32.

    nn.matmul(%a, %b)  ->  cast(nn.matmul(cast(%a, float32), cast(%b, float32)), float16)

Sums are of float32 either way. Constant weights are widened, or packed, when a model is compiled;
others would be widened once for every row that meets them, which takes longer than the products.
"""

from typing import TYPE_CHECKING

from sterna.op.dynamic import tensor_type
from sterna.relay.expr import Call, Constant, RelayExpr
from sterna.relay.op import call
from sterna.target import Target, processor_of

if TYPE_CHECKING:
    from sterna.op.nn.dense import BatchMatmulAttrs, DenseAttrs, MatmulAttrs

NARROW = ("float16", "bfloat16")
# With fewer rows, or columns, elements meet too few others to be widened for.
LEAST = 4


def in_float32(
    name: str, attrs: "DenseAttrs | MatmulAttrs | BatchMatmulAttrs", args: tuple[RelayExpr, ...],
    target: Target | None,
) -> RelayExpr | None:
    """The product of operands that are widened before, on processors that run vectors."""
    if target is None or not target.kind.picks_instructions:
        return None
    if "implementation" in attrs.FIELDS and dict(attrs.items())["implementation"]:
        return None
    kinds = [tensor_type(arg) for arg in args]
    if is_known(args[1]) or any(kind.dtype not in NARROW for kind in kinds):
        return None
    if str(kinds[0].dtype) in processor_of(target).matrix_tiles:
        return None
    if not all(kind.is_static and kind.ndim > 1 for kind in kinds):
        return None
    if min(extent for kind in kinds for extent in kind.concrete_shape[-2:]) < LEAST:
        return None
    out = attrs.out_dtype or kinds[0].dtype
    wide = [call("cast", arg, dtype="float32") for arg in args]
    made = call(name, *wide, **{**dict(attrs.items()), "out_dtype": "float32"})
    return call("cast", made, dtype=out)


def is_known(expr: RelayExpr) -> bool:
    """Whether it is a constant, or made of one step by step, as weights are that are narrowed."""
    while isinstance(expr, Call) and len(expr.args) == 1:
        expr = expr.args[0]
    return isinstance(expr, Constant)
