"""Scripts that cannot be run on shapes are refused by node and line, and always end."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from sterna.frontend.format import ImportOptions
from sterna.frontend.torch import read_script
from sterna.frontend.torch.load_model import load
from sterna.testing.fuzz.fuzzers.script_files import FUZZER
from sterna.testing.fuzz.tape import Tape
from tests.support import require_module

require_module("torch")
import torch  # noqa: E402


def script(body: str) -> Any:
    """A function with this body."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return torch.jit.CompilationUnit(f"def forward(x: Tensor):\n    {body}\n").forward


@pytest.mark.parametrize(("body", "said"), [
    ("return x.sum(11)", "aten::sum: Dimension out of range"),
    ("return x.sum() / (1 // (x.size(0) - 2))", "aten::floordiv: division by 0"),
    ("return {'a': x}['b']", "aten::__getitem__: 'b'"),
    ("raise RuntimeError('no')\n    return x", "the model raises"),
])
def test_a_node_that_fails_is_named(body: str, said: str) -> None:
    with pytest.raises(read_script.ScriptError, match=said):
        load(script(body), ImportOptions(example_inputs=(torch.zeros(2, 4),)))


def test_a_module_without_a_forward() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = torch.jit.ScriptModule()
    with pytest.raises(ValueError, match="cannot be run: Method 'forward' is not defined"):
        load(module, ImportOptions(example_inputs=(torch.zeros(2),)))


@pytest.mark.parametrize("body", [
    "n = 0\n    while n < 5:\n        n = n * 1\n    return x + n",
    "n = 0\n    for i in range(9000000000000000000):\n        n = n + 1\n    return x + n",
])
def test_a_loop_without_end_is_refused(body: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_script, "MOST_NODES", 2000)
    with pytest.raises(read_script.ScriptError, match="loops run more than 2,000 nodes"):
        load(script(body), ImportOptions(example_inputs=(torch.zeros(2, 4),)))


def test_broken_files_are_imported_or_refused(tmp_path: Path) -> None:
    FUZZER.prepare(tmp_path, None)
    endings = [FUZZER.check(Tape(seed=seed)) for seed in range(30)]
    assert "ValueError" in endings
    assert "sterna.compile" in FUZZER.program(Tape(seed=1).values, "")
