"""What a model needs and its importer lacks, gathered so that a user sees all of it at once."""

from sterna.support.errors import OpNotImplemented

SHOWN = 5


class Unsupported:
    """Kinds of things that have no converter, each with the names of the user's own."""

    def __init__(self, format_name: str) -> None:
        self.format_name = format_name
        self._found: dict[str, list[str]] = {}

    def add(self, what: str, name: str) -> None:
        """Note a thing of the model that cannot be imported."""
        names = self._found.setdefault(what, [])
        if name not in names:
            names.append(name)

    def expect_none(self) -> None:
        """Refuse the model, with everything that was noted, if there was anything."""
        if self._found:
            lines = [f"  {what}: {_some(names)}" for what, names in sorted(self._found.items())]
            raise OpNotImplemented(
                f"these parts of the {self.format_name} model have no converter:\n"
                + "\n".join(lines)
            )


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:SHOWN])
    return shown if len(names) <= SHOWN else f"{shown} and {len(names) - SHOWN} more"
