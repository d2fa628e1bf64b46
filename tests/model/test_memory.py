"""Reports tell what a process takes: weights are in memory once, however they were packed."""

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import sterna
from sterna import relay
from sterna.testing import require
from tests.model.networks import made

MEGABYTE = 1 << 20
# What Python and the C library take for themselves while a model is loaded and called.
SLACK = 10 * MEGABYTE

# Loads a model and calls it, and prints how much larger that made the process.
MEASURE = """
import sys
import numpy as np
import sterna

def resident():
    text = open("/proc/self/status").read()
    return 1024 * int(text.split("VmRSS:")[1].split()[0])

image = np.ones((1, 64, 28, 28), "float32")
sterna.load(sys.argv[1])(image)  # whatever is imported and started by the first call
before = resident()
model = sterna.load(sys.argv[2])
for _ in range(2):
    model(image)
print(resident() - before, model.report().memory.total)
"""


# Compiles a model from a file, and prints how much larger that made the process's own memory.
COMPILE = """
import sys
import sterna

def own():
    text = open("/proc/self/status").read()
    return 1024 * int(text.split("RssAnon:")[1].split()[0])

sterna.compile(sys.argv[1])  # the compiler is loaded
before = own()
model = sterna.compile(sys.argv[2])
print(own() - before, model.report().memory.weights)
"""


def printed_by(program: str, *paths: Path) -> list[int]:
    """The numbers that a process of its own prints."""
    require(None if Path("/proc/self/status").is_file() else "there is no /proc to read")
    command = [sys.executable, "-c", program, *map(str, paths)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(word) for word in done.stdout.split()]


def network(inner: int, layers: int = 1) -> Any:
    """Convolutions from 64 channels to more, and back."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return relay.const(rng.standard_normal(shape).astype("float32"))

    x = relay.var("x", shape=(1, 64, 28, 28))
    made: Any = x
    for _ in range(layers):
        made = relay.nn.relu(relay.nn.conv2d(made, weight(inner, 64, 3, 3), padding=1))
        made = relay.nn.conv2d(made, weight(64, inner, 3, 3), padding=1)
    return sterna.IRModule.from_expr(relay.Function((x,), made))


@pytest.fixture(scope="module")
def model() -> sterna.CompiledModel:
    return sterna.compile(network(64))


@pytest.mark.parametrize("way", ["im2col", "polyphase"])
def test_weights_of_channels_that_lie_first_are_no_larger(way: str) -> None:
    x = relay.var("x", shape=(1, 8, 9, 9))
    weight = relay.const(np.ones((8, 1, 3, 3), "float32"))
    answers = {"layouts": "NCHW -> NCHW", "implementation": way}
    with sterna.transform.PassContext(opt_level=3, config={"schedule.answers": answers}):
        made = sterna.compile(sterna.IRModule.from_expr(relay.nn.conv2d(x, weight, groups=8)))
    assert made.report().memory.packing_overhead == 0


def test_the_growth_of_weights_is_told(model: sterna.CompiledModel) -> None:
    memory = model.report().memory
    plain = sterna.compile(network(64), size="small").report().memory
    assert plain.packing_overhead == 0 and plain.weights == 2 * 64 * 64 * 9 * 4
    assert memory.packing_overhead == memory.weights - plain.weights > 0
    told = str(model.report())
    assert re.search(r"Weights grew from 288\.0 KiB to .* by Winograd's transform", told)
    report = model.report()
    little = replace(memory, packing_overhead=memory.weights // 4)
    for own, names in ((memory, "balanced or small"), (little, "small")):
        assert f"; --size {names} keeps" in replace(report, memory=own).growth[0]
    with pytest.raises(ValueError, match="size is small, balanced, fast, not 'tiny'"):
        sterna.compile(network(64), size="tiny")


def test_a_loaded_model_tells_the_same(model: sterna.CompiledModel, tmp_path: Path) -> None:
    memory = model.report().memory
    assert memory.workspace > 0
    model.export(tmp_path / "model.so")
    assert sterna.load(tmp_path / "model.so").report().memory == memory


def test_a_process_takes_what_the_report_tells(
    model: sterna.CompiledModel, tmp_path: Path
) -> None:
    """Weights are the pages of the file: neither read into other memory nor packed again."""
    large = sterna.compile(network(1024, layers=4))
    assert large.report().memory.weights > 4 * SLACK
    model.export(tmp_path / "small.so")
    large.export(tmp_path / "large.so")
    taken, told = printed_by(MEASURE, tmp_path / "small.so", tmp_path / "large.so")
    assert told == large.report().memory.total
    assert 0.9 * told - SLACK < taken < told + SLACK


def test_compiling_leaves_the_weights_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither those of the file nor what they were on the way to their last form."""
    monkeypatch.setenv("STERNA_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    for name, width in ("small", 64), ("large", 2048):
        weights = {
            f"w{n}": rng.standard_normal((width, width)).astype("float32") for n in range(4)
        }
        nodes = [
            helper.make_node("MatMul", [f"x{n}", f"w{n}"], [f"x{n + 1}"]) for n in range(4)
        ]
        graph = made(nodes, {"x0": [1, width]}, {"x4": [1, width]}, weights)
        (tmp_path / name).with_suffix(".onnx").write_bytes(graph.SerializeToString())
    taken, weights_told = printed_by(COMPILE, tmp_path / "small.onnx", tmp_path / "large.onnx")
    assert weights_told > 4 * SLACK
    assert taken < weights_told + 2 * SLACK
