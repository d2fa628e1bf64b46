"""One stage of a computation, typed as what it is: te.compute gives one tensor or several."""

from collections.abc import Callable, Sequence
from typing import Any

from sterna import te
from sterna.te import Tensor


def stage(
    shape: Sequence[Any], element: Callable[..., Any], name: str, tag: str = "",
    attrs: dict[str, Any] | None = None,
) -> Tensor:
    """The tensor whose elements a function gives."""
    made = te.compute(tuple(shape), element, name=name, tag=tag, attrs=attrs)
    assert isinstance(made, Tensor)
    return made
