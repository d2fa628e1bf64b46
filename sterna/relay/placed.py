"""What planning on several devices sees of a graph: values, and annotations of where they lie."""

from collections.abc import Iterator

from sterna.relay.expr import Call, RelayExpr, Tuple, TupleGetItem
from sterna.relay.op import is_call_of

DEVICE = "device_type"
"""The attribute of functions that run on one device: DLPack's number of its kind."""


def is_annotation(expr: object) -> bool:
    """Whether an expression only says where a value lies."""
    return is_call_of(expr, "on_device") or is_call_of(expr, "device_copy")


def leaves(arg: RelayExpr) -> Iterator[RelayExpr]:
    """The values that an operand consists of."""
    if isinstance(arg, Tuple):
        for part in arg.fields:
            yield from leaves(part)
    else:
        yield arg


def source(leaf: RelayExpr) -> RelayExpr:
    """What a value is computed by, or is an item of."""
    while isinstance(leaf, TupleGetItem):
        leaf = leaf.tuple_value
    return leaf


def behind(leaf: RelayExpr) -> RelayExpr:
    """The value that annotations are about."""
    while isinstance(leaf, Call) and is_annotation(leaf):
        (leaf,) = leaf.args
    return leaf
