"""Layers of int8 by the instructions of processors, run by QEMU and held against NumPy."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import micro, relay
from sterna.micro.example import run_example
from tests.micro.networks import build
from tests.schedule.test_halves import WINDOWS, layer
from tests.support import require_module, require_program


@pytest.mark.parametrize(("board", "cpu", "toolchain", "named"), [
    ("mps2_an386", "cortex-m4", "gcc", "smlad"), ("mps3_an547", "cortex-m55", "gcc", "vmladava"),
    ("mps3_an547", "cortex-m55", "zig", "vmladava"),
])
def test_layers_are_exact(
    board: str, cpu: str, toolchain: str, named: str, tmp_path: Path
) -> None:
    require_program("qemu-system-arm")
    if toolchain == "gcc":
        require_program("arm-none-eabi-gcc")
    else:
        require_module("ziglang")
    feeds: dict[str, Any] = {}
    outputs, wanted = [], []
    for number, name in enumerate(WINDOWS):
        made, given, want = layer(name, f"x{number}")
        outputs.append(made)
        wanted.append(want)
        feeds |= given
    np.savez(tmp_path / "inputs.npz", **feeds)
    program = build(tvm.IRModule.from_expr(relay.Tuple(tuple(outputs))), f"c -mcpu={cpu}")
    assert named in program.lib.get_source()
    project = micro.generate_project("baremetal", program, tmp_path / "project", {
        "board": board, "project_type": "example_project", "toolchain": toolchain,
        "sample_inputs": tmp_path / "inputs.npz", "warning_as_error": True,
    })
    project.build()
    found = run_example(project).outputs.values()
    project.close()
    for name, got, want in zip(WINDOWS, found, wanted, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=name)
