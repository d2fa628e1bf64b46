"""Running commands in this process, in a folder of their own with models in it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnx
import pytest

from sterna import cli
from sterna.runtime import set_num_threads
from tests.model.networks import dense, two_inputs, unsupported


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a command left."""

    status: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        """The standard output as JSON."""
        return json.loads(self.out)


Sterna = Callable[..., Outcome]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder: dense.onnx, open.onnx, pair.onnx, unsupported.onnx and broken.onnx."""
    onnx.save(dense(), tmp_path / "dense.onnx")
    onnx.save(dense("batch"), tmp_path / "open.onnx")
    onnx.save(two_inputs(), tmp_path / "pair.onnx")
    onnx.save(unsupported(), tmp_path / "unsupported.onnx")
    (tmp_path / "broken.onnx").write_bytes(b"\x08tern")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def sterna(folder: Path, capsys: pytest.CaptureFixture[str]) -> Sterna:
    """Runs a command in that folder: sterna("run", "dense.onnx")."""

    def run(*words: str) -> Outcome:
        try:
            status = cli.main(words)
        except SystemExit as left:
            status = left.code if isinstance(left.code, int) else 1
        set_num_threads(0)
        said = capsys.readouterr()
        assert "\x1b" not in said.out + said.err
        return Outcome(status, said.out, said.err)

    return run
