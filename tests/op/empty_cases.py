"""Operators' cases with operands that have no elements."""

from collections.abc import Callable, Iterator
from typing import Any

from sterna.relay.infer import TypeInferenceError
from sterna.relay.op import AnyOp, Case
from tests.op.harness import arrays_of, constant_of, flatten, type_of


def _emptied(operands: list[Any], is_cut: Callable[[int, int, int], bool]) -> list[Any]:
    """The operands without the elements along dimensions, asked by operand, axis and extent."""
    count = iter(range(1000))

    def cut(value: Any) -> Any:
        if isinstance(value, list):
            return [cut(item) for item in value]
        place = next(count)
        kept = [0 if is_cut(place, axis, n) else n for axis, n in enumerate(value.shape)]
        return value[tuple(slice(0, extent) for extent in kept)] if kept else value

    return [cut(value) for value in operands]


def emptied(case: Case) -> Iterator[list[Any]]:
    """The operands of a case with one extent set to 0, alone and wherever it is met."""
    operands = arrays_of(case)
    seen = set()
    for place, value in enumerate(flatten(operands)):
        for axis, extent in enumerate(value.shape):
            for made in (
                _emptied(operands, lambda p, a, n, own=(place, axis): (p, a) == own),  # type: ignore[misc]
                _emptied(operands, lambda p, a, n, own=extent: n == own),  # type: ignore[misc]
            ):
                shapes = tuple(part.shape for part in flatten(made))
                if shapes not in seen:
                    seen.add(shapes)
                    yield made


def fits_type_rule(record: AnyOp, attrs: Any, operands: list[Any]) -> bool:
    """Whether the type rule takes operands; it refuses others with a message of its own."""
    try:
        record.infer(attrs, *[type_of(value) for value in operands])
        if record.to_static is not None:  # numbers among the operands say a shape
            assert record.reference is not None
            record.reference(attrs, *operands)
            record.to_static(attrs, tuple(map(constant_of, operands)))
    except (ValueError, TypeInferenceError) as error:
        assert str(error)
        return False
    return True
