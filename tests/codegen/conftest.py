"""What the tests of code share."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import sterna as tvm


@pytest.fixture
def register() -> Iterator[Callable[[str, Callable[..., Any]], None]]:
    """Registers functions for the length of a test."""
    names = []

    def add(name: str, function: Callable[..., Any]) -> None:
        tvm.register_func(name, function)
        names.append(name)

    yield add
    for name in names:
        tvm.remove_global_func(name)
