"""Names that are each there once."""

from collections.abc import Iterable


class Names:
    """The names that are taken; another thing of the same name gets a number behind it."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = dict.fromkeys(taken, 1)

    def unique(self, wanted: str) -> str:
        """The name that is wanted, numbered if it is taken; it is taken from now on."""
        name = wanted
        while name in self._taken:
            name = f"{wanted}_{self._taken[wanted]}"
            self._taken[wanted] += 1
        self._taken[name] = 1
        return name
