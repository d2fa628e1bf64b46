"""Layers compiled for AArch64, and run there or by an emulator."""

from pathlib import Path
from typing import Any

import numpy as np

from sterna.relay.arrays import Array
from tests.op.emulated import run_there

TRIPLE = "aarch64-linux-gnu"


def run_on_aarch64(made: Any, options: str, x: Array, tmp_path: Path) -> Array:
    """What a function of one input gives, as floats; options: of the target, as -mcpu."""
    target = f"llvm -mtriple={TRIPLE} {options}"
    return np.frombuffer(run_there(made, target, x.astype("float32"), tmp_path), "float32")
