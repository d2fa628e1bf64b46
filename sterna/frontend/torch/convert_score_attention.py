"""Attention whose scores and masks are programs of the user: flex_attention.

PyTorch records them for one score, as scalars; here they get all scores at once, and the places of
these along four axes. So every operator in them must work element by element.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from sterna.frontend.calls import call, cast, constant, dtype_of, like, rank_of
from sterna.frontend.calls import reshape as reshaped
from sterna.frontend.torch.convert_control import Function
from sterna.frontend.torch.convert_index import index
from sterna.frontend.torch.convert_reduce import logsumexp
from sterna.frontend.torch.convert_shape import expand, extent_of
from sterna.frontend.torch.convert_special import safe_softmax
from sterna.frontend.torch.extents import counted, dims_of
from sterna.frontend.torch.program import Argument, Body, Ref, Step, refs_of
from sterna.frontend.torch.table import aten
from sterna.relay.expr import RelayExpr
from sterna.support.errors import OpNotImplemented

_MODULAR_INDEX = "torch._dynamo._trace_wrapped_higher_order_op.ModIndex"

# Operators of scalars that mean the same of every element.
_BY_ELEMENT = frozenset({
    "__and__", "__lshift__", "__or__", "__rshift__", "__xor__", "_to_copy", "abs", "add",
    "alias", "atan", "bitwise_and", "bitwise_not", "bitwise_or", "bitwise_xor", "ceil", "clamp",
    "clamp_max", "clamp_min", "clone", "cos", "cosh", "detach", "detach_", "div", "elu", "eq",
    "erf", "exp", "exp2", "expm1", "flat_apply", "floor", "floor_divide", "fmod", "full", "ge",
    "gelu", "gt", "index", "isinf", "isnan", "le", "lift_fresh_copy", "log", "log10", "log1p",
    "log2", "logical_and", "logical_not", "logical_or", "logical_xor", "lt", "masked_fill",
    "maximum", "minimum", "mul", "ne", "neg", "new_full", "new_ones", "new_zeros", "ones",
    "pow", "reciprocal", "relu", "remainder", "round", "rsqrt", "rsub", "scalar_tensor",
    "sigmoid", "sign", "silu", "sin", "sinh", "softplus", "sqrt", "square", "sub", "tan",
    "tanh", "to", "trunc", "where", "xlogy", "zeros",
})


@aten("ops::higher_order.flex_attention")
def flex_attention(
    query: RelayExpr, key: RelayExpr, value: RelayExpr, score_mod: Function,
    block_mask: Sequence[object], scale: float, score_buffers: Sequence[RelayExpr] = (),
    mask_buffers: Sequence[RelayExpr] = (),
) -> list[RelayExpr]:
    """(batch, heads, length, width). The sums' logarithms and the largest scores count in bits.

    A mask's blocks tell what it says of whole tiles, which its function says of every score.
    """
    batch, heads, length, _ = dims_of(query)
    groups = extent_of(query, 1) // extent_of(key, 1)
    if groups > 1:
        key, value = (call("repeat", part, groups, axis=1) for part in (key, value))
    key, value = (expand(part, (batch, *dims_of(part)[1:])) for part in (key, value))
    reach = dims_of(key)[2]
    whole = (batch, heads, length, reach)
    places = [
        reshaped(
            cast(counted(extent), "int32"),
            tuple(extent if at == axis else 1 for at in range(4)),
        )
        for axis, extent in enumerate(whole)
    ]
    working = "float64" if dtype_of(query) == "float64" else "float32"
    scores = cast(_product(query, key, True), working)
    scores = call("multiply", scores, like(scale, scores))
    (changed,) = _by_element(score_mod)(scores, *places, *score_buffers)
    mask_mod = block_mask[-1]
    assert callable(mask_mod)
    (seen,) = _by_element(mask_mod)(*places, *mask_buffers)
    lowest = constant(-math.inf, working)
    scores = expand(call("where", seen, cast(changed, working), lowest), whole)
    most = call("max", scores, axis=(3,))
    bits = constant(1 / math.log(2), working)
    sums, most = (call("multiply", each, bits) for each in (logsumexp(scores, [3]), most))
    weights = cast(safe_softmax(scores, 3), dtype_of(query))
    return [_product(weights, value, False), sums, most]


def _product(a: RelayExpr, b: RelayExpr, turn_b: bool) -> RelayExpr:
    """Products of matrices over (batch, heads)."""
    batch, heads, rows, _ = dims_of(a)
    flat = [reshaped(each, (batch * heads, *dims_of(each)[2:])) for each in (a, b)]
    made = call("nn.batch_matmul", *flat, transpose_a=False, transpose_b=turn_b)
    return reshaped(made, (batch, heads, rows, dims_of(b)[2 if turn_b else 3]))


def _by_element(function: Function) -> Function:
    """The function, all of whose operators must be those of elements."""
    assert isinstance(function, partial)
    body: Body = function.args[0]
    for step in body.steps:
        if _operator(step) not in _BY_ELEMENT:
            raise OpNotImplemented(f"a score or mask that is computed by {step.target}")
    return partial(function.func, replace(body, steps=_picks_at_once(body.steps)))


def _operator(step: Step) -> str:
    return step.target.removeprefix("ops.").split(".")[1]


def _picks_at_once(steps: Sequence[Step]) -> list[Step]:
    """Of x[b][h] all places together: what x[b] alone is has no axis more per score."""
    made: list[Step] = []
    picked: dict[str, list[Argument]] = {}
    for step in steps:
        name, given = _operator(step), step.arguments
        if name in ("index", "flat_apply"):
            x, places = (
                (given["self"], given["indices"]) if name == "index"
                else (_list(given["operands"])[0], _list(given["operands"])[1:])
            )
            whole = [x, *_list(places)]
            if isinstance(x, Ref) and x.name in picked:
                whole = [*picked[x.name], *whole[1:]]
            picked[step.outputs[0]] = whole
            step = replace(
                step, target="ops.higher_order.flat_apply",
                arguments={"name": given.get("name", _MODULAR_INDEX), "operands": whole},
            )
        made.append(step)
    used = {name for step in made for each in step.arguments.values() for name in refs_of(each)}
    return [
        step for step in made
        if step.outputs[0] not in picked or step.outputs[0] in used or step is made[-1]
    ]


def _list(argument: Argument) -> list[Argument]:
    assert isinstance(argument, list)
    return argument


@aten("ops::higher_order.flat_apply")
def flat_apply(name: str, operands: Sequence[RelayExpr]) -> RelayExpr:
    """A tensor of the user at the places of a score."""
    if name != _MODULAR_INDEX:
        raise OpNotImplemented(f"the function {name}")
    x, *places = operands
    if len(places) != rank_of(x):
        raise OpNotImplemented("a score or mask that picks parts of tensors and not elements")
    return index(x, [cast(each, "int64") for each in places])
