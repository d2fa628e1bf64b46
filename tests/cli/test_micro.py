"""sterna micro: a model becomes a program for a board."""

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from sterna.cli.micro_memory import map_rows, map_text
from sterna.tir.usmp import BufferInfo, MemoryPlan
from tests.cli.conftest import Sterna
from tests.support import require_module, require_program


def wide(columns: int) -> Any:
    """A product with so many columns of weights: 4 * 64 * columns bytes."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, size])
            for name, size in (("x", 64), ("y", columns))]
    weight = numpy_helper.from_array(np.ones((64, columns), "float32"), "w")
    node = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([node], "wide", ends[:1], ends[1:], [weight])
    return helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)])


def require_board() -> None:
    require_program("qemu-system-arm")
    require_program("arm-none-eabi-gcc")


def test_one_command(sterna: Sterna, folder: Path) -> None:
    require_board()
    done = sterna("micro", "dense.onnx", "--board", "mps2_an386", "-o", "made", "--run", "--map",
                  "--option", "toolchain=gcc", "--option", "warning_as_error=true",
                  "--draw", "map.svg")
    assert done.status == 0 and done.err == "sterna: wrote map.svg\n", done.err
    assert done.out.startswith("mps2_an386 (cortex-m4, baremetal)\n")
    for word in ("flash ", "arena ", "stack ", "painted", "the project is in made", "scores"):
        assert word in done.out
    assert (folder / "made" / "build" / "program.elf").is_file()
    assert "0 .. " in done.out and "written over what is read" in done.out
    drawing = ElementTree.fromstring((folder / "map.svg").read_text("utf-8"))
    notes = [text for text in drawing.itertext() if "of 4,194,304 bytes" in text]
    assert [note.partition(":")[0] for note in notes] == ["flash", "RAM"]
    refused = sterna("micro", "dense.onnx", "--board", "mps2_an386", "--draw", "map.png")
    assert refused.status == 2 and "the name must end in .svg" in refused.err


def test_the_map_shows_what_lies_where() -> None:
    buffers = (BufferInfo("'a'", 480, 0, 2), BufferInfo("'b'", 960, 1, 3),
               BufferInfo("that 'b' works in (0)", 240, 1, 2))
    plan = MemoryPlan(buffers, {"'a'": 480, "'b'": 0, "that 'b' works in (0)": 960}, 1200, 1200)
    kernels = [("k_fused_one", ()), ("k_fused_two", ("conv", "relu")), ("k_fused_three", ())]
    heads = [line.split() for line in map_text(plan, kernels).splitlines()[2:5]]
    assert heads[0] == ["one", "480", "·" * 19 + "█" * 20 + "·" * 9]
    assert heads[1] == ["conv,", "relu", "1,200", "█" * 19 + "▓" * 20 + "░" * 9]
    assert heads[2] == ["three", "960", "▒" * 39 + "·" * 9]
    rows = map_rows(plan, kernels)
    assert [row["works"] for row in rows] == [False, False, True]
    assert [rows[1][key] for key in ("offset", "bytes", "first", "last")] == [0, 960, 1, 2]


def test_instructions_of_layers(sterna: Sterna) -> None:
    require_board()
    done = sterna("micro", "dense.onnx", "--board", "mps2_an386", "--layers", "--json",
                  "--option", "toolchain=gcc", "--size")
    assert done.status == 0 and not done.err, done.err
    counts = [row["instructions"] for row in done.data["layers"]]
    assert counts and all(0 <= count < 100_000 for count in counts) and sum(counts) > 100
    refused = sterna("micro", "dense.onnx", "--board", "microbit", "--layers")
    assert refused.status == 2 and "SysTick that it knows" in refused.err
    refused = sterna("micro", "dense.onnx", "--board", "nucleo_f746zg", "--size")
    assert refused.status == 2 and "--size: zephyr has settings of its own" in refused.err


def test_numbers_for_programs(sterna: Sterna, folder: Path) -> None:
    require_board()
    require_module("ziglang")
    np.save(folder / "image.npy", np.ones((2, 6), "float32"))
    done = sterna("micro", "dense.onnx", "--board", "microbit", "-i", "image.npy", "--json",
                  "--option", "toolchain=zig", "--run")
    assert done.status == 0 and not done.err, done.err
    data = done.data
    assert data["board"] == "microbit" and data["ram_of_board"] == 16384 and not data["project"]
    assert 1000 < data["flash"] < 20000 and 0 < data["ram"] < 1000 and 100 < data["stack"] < 2000
    assert data["largest_difference"] < 1e-6 and list(data["outputs"]) == ["scores"]
    assert not (folder / "build").exists()


def test_without_an_emulator_the_stack_is_not_known(
    sterna: Sterna, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_board()
    monkeypatch.setattr("sterna.cli.micro.can_emulate", lambda: False)
    done = sterna("micro", "dense.onnx", "--board", "mps2_an386", "--json")
    assert done.status == 0 and done.data["stack"] is None
    assert done.data["note"] == "not measured: qemu-system-arm is not installed"


def test_a_board_that_is_too_small(sterna: Sterna, folder: Path) -> None:
    onnx.save(wide(1100), folder / "wide.onnx")
    done = sterna("micro", "wide.onnx", "--board", "microbit", "--json")
    assert done.status == 4 and done.data["exit_status"] == 4
    assert done.data["error"] == (
        "microbit is too small: the network alone needs 281600 bytes of flash, and it has 262144"
    )
    onnx.save(wide(1022), folder / "wide.onnx")
    require_board()
    done = sterna("micro", "wide.onnx", "--board", "microbit", "-o", "made")
    assert done.status == 4, done.out
    assert "microbit is too small: the program at least needs 26" in done.err
    assert "bytes of flash, and it has 262144" in done.err


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        (["--board", "microbt"], 3, "no board 'microbt'; did you mean microbit?"),
        (["--board", "microbit", "--platform", "zephyr"], 3, "there are, zephyr: mimxrt1050_evk"),
        (["--board", "microbit", "-o", "no/where"], 2, "no folder 'no'"),
        (["--board", "microbit", "--run", "--project-type", "host_driven"], 2, "--run is for"),
        (["--board", "microbit", "--option", "toolchain"], 2, "no NAME=VALUE"),
        (["--board", "microbit", "--option", "verbose=1"], 2, "true or false"),
        (["--board", "mps2_an386", "--platform", "zephyr", "--option",
          "config_main_stack_size=big"], 2, "it is a number"),
        (["--board", "microbit", "--option", "tool=zig"], 3, "there is no option 'tool'"),
        (["--board", "microbit", "--option", "toolchain=tcc"], 3, "it is one of gcc, zig"),
    ],
)
def test_mistakes_are_one_message_and_leave_nothing(
    sterna: Sterna, folder: Path, words: list[str], status: int, message: str
) -> None:
    before = sorted(folder.iterdir())
    done = sterna("micro", "dense.onnx", *words)
    assert (done.status, done.out) == (status, ""), done.err
    assert message in done.err and "Traceback" not in done.err
    assert sorted(folder.iterdir()) == before


def test_a_missing_tool(sterna: Sterna, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder))
    done = sterna("micro", "dense.onnx", "--board", "nano33ble", "-o", "made")
    assert done.status == 5 and "arduino-cli was not found; get it" in done.err
    assert (folder / "made" / "made.ino").is_file()
