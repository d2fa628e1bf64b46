"""Checks in a run: indices and lengths that data decides fit axes, and integers have divisors.

Devices of threads make no errors: operators leave out or hold within an axis what is outside there.
"""

from sterna.frontend.calls import (
    call,
    call_unfolded,
    cast,
    constant,
    dtype_of,
    extent_of,
    rank_of,
    type_of,
)
from sterna.frontend.onnx.node import Node
from sterna.relay.arrays import Array
from sterna.relay.expr import RelayExpr


def on_axis(node: Node, place: int, axis: int, from_end: bool = True) -> RelayExpr:
    """Indices along an axis of the first operand, from whose end those below 0 may count."""
    return _on_axis(node, node[place], node.known(place), axis, from_end)


def from_front_of_axis(node: Node, indices: RelayExpr, axis: int) -> RelayExpr:
    """Computed indices along an axis of the first operand."""
    return _on_axis(node, indices, None, axis, from_end=False)


def on_axes(node: Node, place: int, first: int = 0) -> RelayExpr:
    """Tuples of indices: the last dimension has one for each axis from the first on."""
    tuples, known = node[place], node.known(place)
    last = rank_of(tuples) - 1
    count = type_of(tuples).shape[last]
    if type(count) is not int:  # the operator refuses it
        return tuples
    columns = [None if known is None else known[..., n] for n in range(count)]
    if all(_is_sure(node, each, first + n) for n, each in enumerate(columns)):
        return tuples
    parts = [call("strided_slice", tuples, (n,), (n + 1,), axes=(last,)) for n in range(count)]
    made = [
        _on_axis(node, part, own, first + n)
        for n, (part, own) in enumerate(zip(parts, columns, strict=True))
    ]
    return call("concatenate", made, axis=last)


def within_size(node: Node, place: int, size: int) -> RelayExpr:
    """Indices of the elements of a result, which has so many."""
    indices, known = node[place], node.known(place)
    where = f"is not one of the {size} elements of its result"
    if known is None:
        bounds = constant(0, "int64"), constant(size, "int64")
        return _checked(node, indices, bounds, "IndexError", f"index {{}} {where}")
    if ((known < 0) | (known >= size)).any():
        raise ValueError(f"an index {where}")
    return indices


def lengths(node: Node, place: int, axis: int) -> RelayExpr:
    """Lengths of sequences along an axis of the first operand, as far as there are such."""
    given, known = node[place], node.known(place)
    extent = type_of(node[0]).shape[axis]
    if known is not None and type(extent) is int:
        if ((known < 0) | (known > extent)).any():
            raise ValueError(f"a sequence is shorter than 0 or longer than the {extent} elements "
                             f"of axis {axis}")
        return given
    longest = cast(extent_of(node[0], axis), "int64")
    bounds = constant(0, "int64"), call("add", longest, constant(1, "int64"))
    text = f"a sequence of {{}} is shorter than 0 or longer than axis {axis}"
    return _checked(node, given, bounds, "ValueError", text)


def not_zero(node: Node, place: int) -> RelayExpr:
    """Divisors, of which integers are not 0."""
    divisors, known = node[place], node.known(place)
    if not dtype_of(divisors).startswith(("int", "uint")):
        return divisors
    text = "integers are divided by zero"
    if known is None:
        bounds = constant(0, "int64"), constant(1, "int64")
        return _checked(node, divisors, bounds, "ZeroDivisionError", text, outside=True)
    if not known.all():
        raise ValueError(text)
    return divisors


def _on_axis(
    node: Node, indices: RelayExpr, known: Array | None, axis: int, from_end: bool = True
) -> RelayExpr:
    if _is_sure(node, known, axis, from_end):
        return indices
    count = cast(extent_of(node[0], axis), "int64")
    least = call("negative", count) if from_end else constant(0, "int64")
    text = f"index {{}} is not one of the {{}} elements of axis {axis}"
    return _checked(node, indices, (least, count), "IndexError", text)


def _is_sure(node: Node, known: Array | None, axis: int, from_end: bool = True) -> bool:
    """Whether indices are on an axis in every run; a ValueError if they are in none."""
    if known is None:
        return False
    extent = type_of(node[0]).shape[axis]

    def any_outside(count: int) -> bool:
        return bool(((known < (-count if from_end else 0)) | (known >= count)).any())

    if type(extent) is int and any_outside(extent):
        raise ValueError(f"an index is not one of the {extent} elements of axis {axis}")
    return type(extent) is int or not any_outside(1)  # all have a first and a last one


def _checked(
    node: Node, values: RelayExpr, bounds: tuple[RelayExpr, RelayExpr], error: str, text: str,
    outside: bool = False,
) -> RelayExpr:
    if any(type(extent) is int and extent == 0 for extent in type_of(values).shape):
        return values
    name = str(node).replace("{", "(").replace("}", ")")
    zero = call_unfolded(
        "assert_within", values, *bounds, error=error, text=f"{name}: {text}", outside=outside)
    return call("add", values, zero)
