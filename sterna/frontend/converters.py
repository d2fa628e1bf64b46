"""The converters of a format: functions, each registered for the operators that it converts."""

from collections.abc import Callable
from typing import Generic, TypeVar

from sterna.frontend.node import Node, Result

NodeT = TypeVar("NodeT", bound=Node)
Converter = Callable[[NodeT], Result]
ConverterT = TypeVar("ConverterT", bound=Callable[..., Result])

LATEST = 1 << 30


class Converters(Generic[NodeT]):
    """A decorator that registers converters, and finds them again.

    An operator is known by its kind, by the domain of its operator set where a format has several,
    and by the versions of that set for which a converter holds.
    """

    def __init__(self) -> None:
        self._known: dict[tuple[str, str], list[tuple[int, int, Converter[NodeT]]]] = {}

    def __call__(
        self, *kinds: str, since: int = 1, until: int = LATEST, domain: str = ""
    ) -> Callable[[ConverterT], ConverterT]:
        """Register a function for operators of these kinds."""

        def add(function: ConverterT) -> ConverterT:
            for kind in kinds:
                self._known.setdefault((domain, kind), []).append((since, until, function))
            return function

        return add

    def find(self, domain: str, kind: str, version: int = 1) -> Converter[NodeT] | None:
        """The converter of an operator at a version of its operator set."""
        for since, until, function in self._known.get((domain, kind), ()):
            if since <= version <= until:
                return function
        return None
