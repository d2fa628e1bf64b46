"""Imports broken .pt2 files: an import succeeds, or raises ValueError or OpNotImplemented."""

import base64
import copy
import random
from pathlib import Path
from typing import Any

from sterna.frontend.format import ImportOptions
from sterna.frontend.torch.load_model import load
from sterna.support.errors import OpNotImplemented
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.fuzzers._exported_program import (
    CONTROL,
    archive,
    control_program,
    program,
    weights_config,
)
from sterna.testing.fuzz.mutate import INTERESTING, mutate
from sterna.testing.fuzz.tape import Tape

TARGETS = (
    "view.default", "expand.default", "arange.default", "split.Tensor", "unbind.int",
    "chunk.default", "cat.default", "unfold.default", "as_strided.default", "repeat.default",
    "conv2d.default", "permute.default", "zeros.default", "add_.Tensor", "select.int",
    "slice.Tensor", "matmul.default", "index.Tensor", "lstm.input", "nope.default",
    "item.default", "_assert_scalar.default", "repeat_interleave.Tensor",
)
TAKING_GRAPHS = ("cond", "while_loop", "while_loop_stack_output", "scan", "map_impl", "nope")


def places_in(root: Any) -> list[tuple[Any, Any]]:
    """Every value in a JSON object, as its owner and its key."""
    found, stack = [], [root]
    while stack:
        part = stack.pop()
        keys = list(part) if isinstance(part, dict) else range(len(part))
        for key in keys:
            found.append((part, key))
            if isinstance(part[key], dict | list):
                stack.append(part[key])
    return found


def break_value(root: Any, rng: random.Random) -> None:
    """One value changed, left out, or put where another was."""
    places = places_in(root)
    if not places:
        return
    owner, key = rng.choice(places)
    kind = rng.randrange(6)
    value = owner[key]
    if kind == 0:
        del owner[key]
    elif kind == 1:
        other, place = rng.choice(places)
        owner[key] = copy.deepcopy(other[place])
    elif isinstance(value, str):
        names = [str(o[k]) for o, k in places if isinstance(o[k], str)]
        aten = [f"torch.ops.aten.{target}" for target in TARGETS]
        graphs = [f"torch.ops.higher_order.{target}" for target in TAKING_GRAPHS]
        owner[key] = rng.choice([*names, *aten, *graphs, "", "../x", "Infinity"])
    elif isinstance(value, list) and value and kind == 2:
        value.append(copy.deepcopy(rng.choice(value)))
    else:
        owner[key] = rng.choice([*INTERESTING, 1.5, -0.0, 1e300, True, None, [], {}, "x"])


def broken(rng: random.Random) -> bytes:
    """A file with something wrong."""
    model, config = program(), weights_config()
    if rng.random() < 0.6:
        deep = rng.choice((0, 0, 1, 2, 5, 12))
        model = control_program(rng.randrange(len(CONTROL)), deep)
    weight = None
    for _ in range(rng.choice((1, 1, 2, 4))):
        break_value(config if rng.random() < 0.25 else model, rng)
    if rng.random() < 0.1:
        weight = bytes(rng.choice((0, 1, 47, 49, 4096)))
    made = archive(model, config, weight)
    return mutate(made, rng) if rng.random() < 0.2 else made


class ExportedPrograms(Fuzzer):
    """Broken .pt2 files are imported or refused, and nothing else happens."""

    name = "exported-programs"
    about = ".pt2 files with values and bytes changed"
    seconds = 20.0
    memory = 3 << 30

    def prepare(self, folder: Path, corpus: Path | None) -> None:
        """A file of its own to write to."""
        self._path = folder / "broken.pt2"

    def check(self, tape: Tape) -> str:
        """Import a broken file."""
        self._path.write_bytes(broken(tape))
        try:
            load(self._path, ImportOptions())
        except (ValueError, OpNotImplemented) as error:
            assert not isinstance(error.__cause__, MemoryError), "it took too much memory"
            return type(error).__name__
        return "imported"

    def program(self, values: list[int], error: str) -> str:
        """The file itself."""
        data = base64.b64encode(broken(Tape(values=values))).decode()
        return (
            "import base64\nfrom sterna.relay.frontend import from_pytorch\n\n"
            f"from_pytorch(base64.b64decode({data!r}))\n"
        )


FUZZER = ExportedPrograms()
