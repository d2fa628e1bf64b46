"""Scripts that cannot be run on shapes are refused by node and line, and always end."""

import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest

from sterna.frontend.format import ImportOptions
from sterna.frontend.torch import read_script
from sterna.frontend.torch.archive import Archive
from sterna.frontend.torch.load_model import load
from sterna.frontend.torch.source_records import WITH_TABLE, check_source_records
from sterna.testing.fuzz.fuzzers.script_files import FUZZER, archived, entries_of, script_file
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


def with_records(records: Any) -> bytes:
    """A script file whose records of source lines are these."""
    entries = entries_of(script_file())
    name, = (each for each in entries if each.endswith(".debug_pkl"))
    return archived({**entries, name: pickle.dumps(records, 2)})


GOOD: Any = ((0, (([], 0, 0), 0, 0), 0), (3, (([1, 1], 0, 7), 2, 6), 1))


@pytest.mark.parametrize("records", [
    (WITH_TABLE, ("a.py", "xyz"), GOOD),
    ((0, (("abc", None, 0), 0, 3)), (5, (("abc", "a.py", 4), 1, 2))),
])
def test_whole_records_of_lines_are_taken(records: Any) -> None:
    check_source_records(Archive(with_records(records)))


@pytest.mark.parametrize("records", [
    (WITH_TABLE, ("a.py",), GOOD),
    (WITH_TABLE, ("a.py", "xy"), GOOD),
    (WITH_TABLE, ("a.py", 3), GOOD),
    (WITH_TABLE, ("a.py", "xyz"), ((3, (([1, -1], 0, 7), 0, 0), 1),)),
    (WITH_TABLE, ("a.py", "xyz"), ((3, (([1], 2, 7), 0, 0), 1),)),
    (WITH_TABLE, ("a.py", "xyz"), ((3, (([1], 0, 7), 2, 1), 1),)),
    (WITH_TABLE, ("a.py", "xyz"), ((3, (([1], 0), 2, 1), 1),)),
    ((0, (("abc", None, 0), 0, 4)),),
    ((0, (("abc", None, 1 << 70), 0, 3)),),
    b"text",
    Path("/"),
])
def test_records_that_point_elsewhere_are_refused(records: Any) -> None:
    with pytest.raises(ValueError, match=r"debug_pkl' of the PyTorch model is broken: "):
        check_source_records(Archive(with_records(records)))


def test_records_that_are_no_text_are_refused() -> None:
    entries = entries_of(script_file())
    name, = (each for each in entries if each.endswith(".debug_pkl"))
    text = b"\x80\x02X\x02\0\0\0\xff\xff."
    with pytest.raises(ValueError, match=r"debug_pkl' of the PyTorch model is broken: .*utf-8"):
        check_source_records(Archive(archived({**entries, name: text})))


@pytest.mark.parametrize("code", [
    b"(" * 5000 + b"x" + b")" * 5000,
    b"annotate(" + b"List[" * 5000 + b"int" + b"]" * 5000 + b", [])",
    b"""'''a'))))''', """ + b"[" * 5000,
    b"x  # type: " + b"Tuple[" * 5000,
    b"x" + b"".join(b"\n" + b" " * depth + b"if a:" for depth in range(300)),
])
def test_code_that_nests_too_deep_is_refused_before_pytorch_parses_it(code: bytes) -> None:
    entries = entries_of(script_file())
    name = next(each for each in entries if each.endswith(".py"))
    deep = archived({**entries, name: entries[name] + b"\n    a = " + code + b"\n"})
    with pytest.raises(ValueError, match="nests brackets or blocks deeper than 200"):
        load(deep, ImportOptions(example_inputs=(torch.zeros(2, 4),)))


def test_broken_files_are_imported_or_refused(tmp_path: Path) -> None:
    FUZZER.prepare(tmp_path, None)
    endings = [FUZZER.check(Tape(seed=seed)) for seed in range(30)]
    assert "ValueError" in endings
    assert "sterna.compile" in FUZZER.program(Tape(seed=1).values, "")
