"""Writes docs/passes.md: which passes a build runs at each level, from the pipeline itself.

    python -m sterna.relay.describe_passes > docs/passes.md
"""

import inspect
import re
import sys
from collections.abc import Iterator

from sterna.ir.transform import Pass, Sequential
from sterna.relay import pipeline, transform

LEVELS = range(5)

HEAD = """\
# Passes over graphs

What a build does between a user's graph and its kernels, in this order. A pass runs from the level
of its column on: `PassContext(opt_level=3)`. One that is named in `required_pass` runs at every
level, one in `disabled_pass` at none. This page is written by
`python -m sterna.relay.describe_passes` from `sterna/relay/pipeline.py`.
"""

OTHERS = """
## Passes that users call

These are not part of a build; `relay.transform` has them.
"""


def describe() -> str:
    """The page."""
    steps = list(_steps(pipeline.passes()))
    rows = ["| | " + " | ".join(map(str, LEVELS)) + " | what it does |", "|---|" + "---|" * 6]
    for one, name in steps:
        marks = ["x" if one.info.opt_level <= level else " " for level in LEVELS]
        rows.append(f"| `{name}` | {' | '.join(marks)} | {_summary(name)} |")
    used = {name for _, name in steps} | {"FoldScaleAxis", "InlineGlobals"}
    others = [f"- `{name}`: {_summary(name)}" for name in _names() if name not in used]
    return "\n".join([HEAD, *rows, OTHERS, *others, ""])


def _steps(passes: list[Pass]) -> Iterator[tuple[Pass, str]]:
    """The passes with the names by which relay.transform has them."""
    known = {name.lower(): name for name in _names()}
    known["inlineglobals"] = "Inline"
    for one in passes:
        if isinstance(one, Sequential):
            yield from _steps(one.passes)
        else:
            yield one, known[one.info.name.lower()]


def _names() -> list[str]:
    """The names of the passes over graphs."""
    return [
        name for name in transform.__all__
        if getattr(transform, name).__module__.startswith("sterna.relay.passes.")
    ]


def _summary(name: str) -> str:
    """The first sentence of a pass's docstring."""
    return first_sentence(inspect.getdoc(getattr(transform, name)) or "")


def first_sentence(doc: str) -> str:
    """A docstring's first sentence, in one line."""
    first = re.split(r"\n\n|(?<=\.)\s", doc, maxsplit=1)[0]
    return " ".join(first.split())


if __name__ == "__main__":
    sys.stdout.write(describe())
