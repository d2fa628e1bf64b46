"""Writes docs/operators.md: the operators that graphs are made of, from the operators' records.

    python -m sterna.relay.describe_operators > docs/operators.md
"""

import inspect
import sys
from collections.abc import Callable, Iterator
from typing import Any

from sterna.relay.builders import builder
from sterna.relay.describe_passes import first_sentence
from sterna.relay.op import AnyOp, records

HEAD = """\
# Operators

The operators of graphs, with the builders' arguments: `relay.nn.conv2d(data, weight, ...)`. Inputs
come first, then attributes with their defaults; an input with a `*` is a tuple of tensors. `help()`
of a builder tells more. `python -m sterna.relay.describe_operators` writes this page from the
records in `sterna/op/`; [graphs.md](graphs.md) says what a record holds.
"""


def describe() -> str:
    """The page."""
    by_family: dict[str, list[AnyOp]] = {}
    for name, record in sorted(records().items()):
        if not record.contraction.is_packed:
            by_family.setdefault(name.rpartition(".")[0], []).append(record)
    parts = [HEAD]
    for family, members in sorted(by_family.items()):
        prefix = f"relay.{family}" if family else "relay"
        parts += [f"## `{prefix}`\n", "| operator | what it gives |", "|---|---|"]
        parts += [*map(_row, members), ""]
    return "\n".join(parts)


def _row(record: AnyOp) -> str:
    name = record.name.rpartition(".")[2]
    arguments = ", ".join(_arguments(record, builder(record.name)))
    return f"| `{name}({arguments})` | {_cell(first_sentence(record.doc))} |"


def _arguments(record: AnyOp, build: Callable[..., Any]) -> Iterator[str]:
    """What a builder takes, as it would be written, without types."""
    tuples = {name[1:] for name in record.inputs if name.startswith("*")}
    for parameter in inspect.signature(build).parameters.values():
        star = "*" if parameter.name in tuples or parameter.kind is parameter.VAR_POSITIONAL else ""
        default = "" if parameter.default is parameter.empty else f"={parameter.default!r}"
        yield f"{star}{parameter.name}{default}"


def _cell(text: str) -> str:
    """Text that ends no cell of a table."""
    return text.replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(describe())
