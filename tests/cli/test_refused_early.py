"""What commands refuse before they compile: nobody waits a minute for a word that is wrong."""

from pathlib import Path
from typing import NoReturn

import onnx
import pytest
from onnx import TensorProto, helper

from sterna.driver import relay_build
from sterna.model import open_build
from tests.cli.conftest import Sterna

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
WASM = ["--target", "llvm -mtriple=wasm32-wasi"]


@pytest.fixture(autouse=True)
def _nothing_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    def compiled(*args: object, **options: object) -> NoReturn:
        pytest.fail("the model was compiled first")

    monkeypatch.setattr(relay_build, "build", compiled)
    monkeypatch.setattr(open_build, "symbolic_program", compiled)


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["compile", "open.onnx", "-o", "a.o"], 3, "say the shapes, such as --shape image:1,6"),
        (["compile", "open.onnx", "-o", "a.c", "--target", "c"], 3, "written as .so or .tar"),
        (["compile", "open.onnx", "-o", "a.so", "--portable"], 3, "--shape image:1,6"),
        (["compile", "dense.onnx", "-o", "a.tar", "--portable"], 3, "let the name end in .so"),
        (["compile", "dense.onnx", "-o", "a.wasm"], 3, "llvm -mtriple=wasm32-wasi"),
        (["compile", "dense.onnx", "-o", "a.so", *WASM], 3, "no shared libraries"),
        (["compile", "dense.onnx", "-o", "taken.so"], 2, "-o 'taken.so' is a folder"),
        (["compile", "dense.onnx", "-o", "/proc/a.so"], 2, "written in the folder '/proc'"),
        (["inspect", "dense.onnx", "--draw", "/proc/a.svg"], 2, "written in the folder '/proc'"),
        (["profile", "open.onnx"], 3, "say which sizes to compile for"),
        (["profile", "dense.onnx", "--trace", "taken.so"], 2, "is a folder"),
        (["profile", "dense.onnx", "-i", "missing.npy"], 3, "directory: 'missing.npy'"),
        (["run", "dense.onnx", "-i", "image=missing.npy"], 3, "directory: 'missing.npy'"),
        (["run", "dense.onnx", "-i", "image=broken.onnx"], 2, "an .npy, an .npz or a picture"),
        (["bench", "dense.onnx", "--beside", "dense.pt"], 2, "ONNX Runtime reads .onnx"),
        (["micro", "dense.onnx", "--board", "mps2_an386", "-o", "full"], 2, "exists already"),
        (["micro", "dense.onnx", "--board", "mps2_an386", "--option", "wings=2"], 3,
         "there is no option 'wings'"),
    ],
)
def test_nothing_is_compiled_for_what_cannot_be_done(
    sterna: Sterna, folder: Path, words: list[str], status: int, message: str
) -> None:
    (folder / "taken.so").mkdir()
    (folder / "full" / "inside").mkdir(parents=True)
    done = sterna(*words)
    assert (done.status, done.out) == (status, "")
    assert message in done.err and "Traceback" not in done.err


def test_c_is_not_signed(sterna: Sterna, folder: Path) -> None:
    assert sterna("key", "secret.key").status == 0
    done = sterna("compile", "dense.onnx", "-o", "a.c", "--target", "c", "--sign", "secret.key")
    assert done.status == 3 and "C has no seal" in done.err


def _value(name: str, kind: int, shape: list[int | str]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _save(folder: Path, node: onnx.NodeProto, inputs: list[onnx.ValueInfoProto]) -> None:
    output = _value("y", FLOAT if node.op_type == "Loop" else INT64, [])
    graph = helper.make_graph([node], "graph", inputs, [output])
    graph.output[0].type.tensor_type.ClearField("shape")
    sets = [helper.make_opsetid("", 17), helper.make_opsetid("birds", 1)]
    onnx.save(helper.make_model(graph, opset_imports=sets), folder / "undecided.onnx")


@pytest.mark.parametrize("words", [["tune"], ["micro", "--board", "mps2_an386"], ["profile"],
                                   ["compile", "-o", "a.o"]])
def test_shapes_that_values_decide_are_refused_by_node(
    sterna: Sterna, folder: Path, words: list[str]
) -> None:
    find = helper.make_node("NonZero", ["x"], ["y"], name="find_food")
    _save(folder, find, [_value("x", FLOAT, [4])])
    before = sorted(folder.iterdir())
    done = sterna(*words, "undecided.onnx")
    assert done.status == 4 and "at find_food" in done.err
    assert sorted(folder.iterdir()) == before


def test_a_loop_over_an_unknown_operator_is_refused_by_node(sterna: Sterna, folder: Path) -> None:
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["goes"]),
         helper.make_node("Flutter", ["bird"], ["flown"], name="wing", domain="birds")],
        "body", [_value("i", INT64, []), _value("go", BOOL, []), _value("bird", FLOAT, [2])],
        [_value("goes", BOOL, []), _value("flown", FLOAT, [2])],
    )
    _save(folder, helper.make_node("Loop", ["n", "on", "x"], ["y"], name="fly", body=body),
          [_value("n", INT64, []), _value("on", BOOL, []), _value("x", FLOAT, [2])])
    done = sterna("compile", "undecided.onnx", "-o", "a.so")
    assert done.status == 4 and "birds.Flutter (opset 1): wing" in done.err
