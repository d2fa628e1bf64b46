"""The parser of the command line: it says what was meant, and shows the usage of the command."""

import argparse
import difflib
from collections.abc import Iterable
from typing import Any, NoReturn


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A question about the name that is nearest, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1)
    return f"; did you mean {near[0]}?" if near else ""


class Parser(argparse.ArgumentParser):
    """Words that a command does not know are its own error, with the nearest that it knows."""

    _given: tuple[str, ...] = ()

    def parse_known_args(  # type: ignore[override]
        self, args: Any = None, namespace: Any = None
    ) -> tuple[argparse.Namespace, list[str]]:
        """No word is left over: a command and its options are all there is."""
        self._given = tuple(args or ())
        found, rest = super().parse_known_args(args, namespace)
        if rest:
            self.error(f"{rest[0]} is one word too many")
        return found, rest

    def error(self, message: str) -> NoReturn:
        """Of all mistakes an option that does not exist is told first: others may come of it."""
        known = self._option_string_actions
        for word in self._given:
            name = word.partition("=")[0]
            if name == "--" or (self._subparsers is not None and not name.startswith("-")):
                break  # what follows is for others
            if name.startswith("--") and not any(option.startswith(name) for option in known):
                message = f"there is no option {name}{did_you_mean(name, known)}"
                break
        super().error(message)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            known = [str(choice) for choice in action.choices]
            what = "command" if isinstance(action, argparse._SubParsersAction) else "choice"
            hint = did_you_mean(str(value), known) or f"; there are {', '.join(known)}"
            raise argparse.ArgumentError(
                None if what == "command" else action, f"there is no {what} '{value}'{hint}"
            )
