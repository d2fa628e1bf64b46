"""What runs on the machines of a Ray cluster: one actor that builds, and one that times.

Ray starts each actor in a process of its own. What goes between them are plain values and bytes.
"""

import tempfile
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from sterna.target import Target
from sterna.target.here import runs_here
from sterna.tune.database import fingerprint
from sterna.tune.measure import KEPT, Measured, ResultCheck, in_turns, set_up_anew
from sterna.tune.network import PackedNetwork, RunningNetwork, answers_text
from sterna.tune.worker import answer_of, read_inputs, read_network, read_target

Packed = PackedNetwork | str
"""A network that was built, or why it could not be."""


class Builder:
    """Builds the network that files describe."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        with tempfile.TemporaryDirectory() as name:
            self._bench = read_network(unpacked(files, Path(name)))

    def build(self, answers: dict[str, str]) -> tuple[str, Packed]:
        """The network under answers, and what it is called."""
        try:
            return answers_text(answers), self._bench.built(answers).packed()
        except Exception as error:
            return answers_text(answers), f"{type(error).__name__}: {error}"


class Runner:
    """Times networks that were built."""

    def __init__(self, files: Mapping[str, bytes]) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = unpacked(files, Path(name))
            self._target = read_target(folder)
            self._check = ResultCheck(read_inputs(folder))
        self._known: OrderedDict[str, Callable[[], RunningNetwork]] = OrderedDict()

    def kind(self) -> tuple[str, str, bool]:
        """What the target and its own processor are here, and whether it runs the target's code."""
        own = fingerprint(Target("llvm -mcpu=native"))
        return fingerprint(self._target), own, runs_here(self._target)

    def compare(
        self, default: tuple[str, Packed], incumbent: tuple[str, Packed],
        challenger: tuple[str, Packed], seconds: float,
    ) -> dict[str, Any]:
        """Two networks in turns, after their results were held against the default's."""
        return answer_of(lambda: self._compare(default, incumbent, challenger, seconds))

    def _compare(
        self, default: tuple[str, Packed], incumbent: tuple[str, Packed],
        challenger: tuple[str, Packed], seconds: float,
    ) -> Measured:
        if not self._check.is_known:
            self._check.know(_expect_built(default[1]).here())
        ours, theirs = self._loaded(*incumbent), self._loaded(*challenger)
        return in_turns(set_up_anew(ours, theirs, self._check), seconds)

    def _loaded(self, name: str, packed: Packed) -> Callable[[], RunningNetwork]:
        if name not in self._known:
            self._known[name] = _expect_built(packed).loaded()
        self._known.move_to_end(name)
        while len(self._known) > KEPT:
            self._known.popitem(last=False)
        return self._known[name]


class BuildRefusedError(RuntimeError):
    """A network could not be built."""


def _expect_built(packed: Packed) -> PackedNetwork:
    if isinstance(packed, str):
        raise BuildRefusedError(packed)
    return packed


def packed_files(folder: Path) -> dict[str, bytes]:
    """The files of a folder, as what is sent."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def unpacked(files: Mapping[str, bytes], folder: Path) -> Path:
    """A folder with the files."""
    for name, content in files.items():
        (folder / name).write_bytes(content)
    return folder
