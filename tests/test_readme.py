"""What the README says is true."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sterna
from tests.support import ROOT, clean_environment, require_module, require_program
from tests.test_layering import RANKS

README = (ROOT / "README.md").read_text("utf-8")


def blocks(language: str) -> list[str]:
    """The README's code blocks in a language."""
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_example_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    require_program("cc")
    (example,) = blocks("python")
    done = subprocess.run(
        [sys.executable, "-c", example], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    said = re.findall(r"print\(.*\) +# (.*)", example)
    assert done.stdout.splitlines() == said


@pytest.fixture
def stand_ins(tmp_path: Path) -> Path:
    """A folder with a small model under the name of the README's large one, a picture, labels."""
    require_program("cc")
    require_module("PIL")
    from PIL import Image

    sizes = [("input", [1, 3, 224, 224]), ("output", [1, 1000])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in sizes]
    nodes = [
        helper.make_node("GlobalAveragePool", ["input"], ["pool"]),
        helper.make_node("Flatten", ["pool"], ["flat"]),
        helper.make_node("Gemm", ["flat", "w"], ["output"]),
    ]
    weights = numpy_helper.from_array(np.ones((3, 1000), "float32"), "w")
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], [weights])
    model = helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])
    onnx.save(model, tmp_path / "resnet18.onnx")
    Image.new("RGB", (300, 260), "orange").save(tmp_path / "cat.jpg")
    (tmp_path / "imagenet.txt").write_text("\n".join(f"class {i}" for i in range(1000)))
    return tmp_path


def test_a_model_in_three_lines_of_python(
    stand_ins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(stand_ins)
    (lines,) = blocks("py")
    names: dict[str, Any] = {"sterna": sterna, "image": np.zeros((1, 3, 224, 224), "float32")}
    exec(lines, names)
    assert np.shape(names["scores"]) == (1, 1000)
    assert (stand_ins / "resnet18.so").is_file()


def test_a_model_in_three_commands(stand_ins: Path) -> None:
    (commands,) = blocks("sh")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-e", "-c", commands], cwd=stand_ins, capture_output=True, text=True,
        timeout=120, env=clean_environment(PATH=path),
    )
    assert done.returncode == 0, done.stderr
    assert "class " in done.stdout


def test_set_up_is_two_commands_and_continuous_integration_uses_the_second() -> None:
    commands = [block.strip() for block in blocks("bash")]
    assert commands == ["pip install . && sterna demo", "pip install -e '.[test]' && pytest"]
    assert commands[1] in (ROOT / ".ci" / "run").read_text()


def test_the_map_names_every_folder_with_its_rank_and_state() -> None:
    mapped: dict[str, tuple[int, bool]] = {}
    for rank, names, state in re.findall(r"\| (\d+) \| (.*?) \|.*\| ([\w ]+) \|", README):
        for name in re.findall(r"`(\w+)`", names):
            mapped[name] = (int(rank), state != "to come")
    assert {name: rank for name, (rank, _) in mapped.items()} == RANKS
    for name, (_, built) in mapped.items():
        assert (ROOT / "sterna" / name).is_dir() == built, name


def test_paths_in_the_map_exist() -> None:
    beside = README[README.index("Beside the package:") : README.index("## Adding")]
    for name in re.findall(r"`([\w./]+)`", beside):
        places = (ROOT / name, ROOT / "runtime" / name)
        assert any(place.exists() for place in places) or name in ("docs/", "sterna.c"), name
