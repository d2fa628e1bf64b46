"""Random networks of bytes as firmware: the numbers of TFLite Micro, to the last bit.

That runs on x86-64 alone; elsewhere firmware is held against the graph that was imported.
"""

from pathlib import Path

import numpy as np
import pytest

from sterna import micro
from sterna.micro.example import run_example
from sterna.micro.firmware import compile_small
from sterna.relay.frontend import from_tflite
from sterna.target import Target
from tests.frontend.test_tflite_quantized import HAS_MICRO
from tests.frontend.tflite_models import run_imported, run_micro
from tests.micro.random_tflite import random_network
from tests.support import require_program

BOARDS = {
    "cortex-m0": "mps2_an382", "cortex-m4": "mps2_an386", "cortex-m55": "mps3_an547",
}


@pytest.mark.parametrize(("seed", "cpu"), [
    # gcc moved a read of a byte past vectors that are stored over it
    (1023, "cortex-m55"),
    # a value in two branches, which are both named before the same statement
    (1082, "cortex-m4"),
    # vectors leave functions of single numbers unused
    (7, "cortex-m55"), (1005, "cortex-m0"),
    # a sum beside a layer of 19 channels, which are no whole words
    (70016, "cortex-m55"),
    # a layer whose results are all one number
    (70057, "cortex-m4"),
])
def test_firmware_is_exact(seed: int, cpu: str, tmp_path: Path) -> None:
    require_program("qemu-system-arm")
    require_program("arm-none-eabi-gcc")
    data, x = random_network(seed)
    wanted = run_imported(data, x, rounding="tflm")
    if HAS_MICRO:
        theirs = run_micro(data, x)
        assert theirs is not None
        for mine, other in zip(wanted, theirs, strict=True):
            np.testing.assert_array_equal(mine, other)
    mod, params = from_tflite(data, rounding="tflm")
    program = compile_small(mod, params, Target(f"c -mcpu={cpu}"))
    np.savez(tmp_path / "inputs.npz", **{program.inputs[0].name: x})
    project = micro.generate_project("baremetal", program, tmp_path / "project", {
        "board": BOARDS[cpu], "project_type": "example_project", "toolchain": "gcc",
        "sample_inputs": tmp_path / "inputs.npz", "warning_as_error": True,
    })
    project.build()
    found = run_example(project).outputs.values()
    project.close()
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)
