"""sterna inspect."""

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from tests.cli.conftest import Sterna
from tests.support import require_program


def test_a_model_in_numbers(sterna: Sterna) -> None:
    done = sterna("inspect", "dense.onnx")
    assert done.status == 0 and not done.err
    assert "takes image: float32(2, 6)" in done.out and "48 multiply-adds, 28 param" in done.out
    data = sterna("inspect", "open.onnx", "--shape", "image:4,6", "--json").data
    assert (data["macs"], data["parameters"], data["parameter_bytes"]) == (96, 28, 112)
    assert data["outputs"] == ["scores: float32(4, 4)"] and data["operators"]["nn.dense"] == 1


@pytest.mark.parametrize(
    ("stage", "mark"),
    [
        ("relay", "nn.bias_add(%0"),
        ("optimized", "Primitive=1"),
        ("tir", "def tvmgen_default_fused_nn_dense"),
        ("llvm", "define "),
        ("asm", ".text"),
        ("c", "#include"),
    ],
)
def test_a_model_at_every_stage(sterna: Sterna, folder: Path, stage: str, mark: str) -> None:
    assert mark in sterna("inspect", "dense.onnx", "--show", stage).out
    assert mark in sterna("inspect", "dense.onnx", "--show", stage, "--json").data["text"]
    done = sterna("inspect", "dense.onnx", "--show", stage, "-o", "text")
    assert done.out == "wrote text\n" and mark in (folder / "text").read_text()


def test_a_drawing(sterna: Sterna, folder: Path) -> None:
    assert sterna("inspect", "pair.onnx", "--draw", "pair.svg", "--json").data["drawing"]
    texts = [e.text for e in ElementTree.parse("pair.svg").iter() if e.tag.endswith("text")]
    assert {"left", "right", "sum", "difference", "add", "subtract"} <= set(texts)
    assert sterna("inspect", "pair.onnx", "--draw", "pair.html").status == 0
    assert "<script>" in (folder / "pair.html").read_text()


def test_a_compiled_model(sterna: Sterna) -> None:
    require_program("cc")
    assert sterna("compile", "dense.onnx", "-o", "dense.so").status == 0
    shown = sterna("inspect", "dense.so").out
    assert "Memory: " in shown and "Workspace" in shown and "Schedule" not in shown
    assert sterna("inspect", "dense.so", "--json").data["memory"]["weights"] == 112
    done = sterna("inspect", "dense.so", "--show", "tir")
    assert done.status == 2 and "need the model itself" in done.err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["dense.onnx", "--show", "wings"], 2, "there is no choice 'wings'"),
        (["dense.onnx", "--draw", "dense.png"], 2, "must end in .svg or .html"),
        (["dense.onnx", "-o", "text"], 2, "-o goes with --show"),
        (["dense.onnx", "--show", "tir", "--kernel", "wings"], 3, "no kernel's name has 'wings'"),
        (["broken.onnx"], 3, "is no ONNX model"),
        (["unsupported.onnx"], 4, "birds.Flutter"),
    ],
)
def test_mistakes_are_one_message(
    sterna: Sterna, words: list[str], status: int, message: str
) -> None:
    done = sterna("inspect", *words)
    assert (done.status, done.out) == (status, "")
    assert message in done.err and "Traceback" not in done.err
