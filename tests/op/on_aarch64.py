"""Layers compiled for AArch64, and run there or by an emulator."""

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

import sterna as tvm
from sterna import relay
from sterna.contrib import cc
from sterna.support.emulators import runner_for
from sterna.support.toolchain import MissingToolError
from sterna.testing import require
from tests.support import ROOT, require_module

EXAMPLE = ROOT / "examples" / "c" / "run_model.c"
TRIPLE = "aarch64-linux-gnu"


def run_on_aarch64(made: Any, options: str, x: np.ndarray[Any, Any], tmp_path: Path) -> Any:
    """What a function of one input gives, as floats; options: of the target, as -mcpu."""
    emulator = ""
    try:
        emulator = runner_for(TRIPLE)
    except MissingToolError as error:
        require(str(error))
    require_module("ziglang")
    target = f"llvm -mtriple={TRIPLE} {options}"
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(made), target=target)
    lib.export_library(tmp_path / "model.a")
    program = tmp_path / "program"
    cc.cross_compile([EXAMPLE, tmp_path / "model.a"], program, target=target, static=True)
    done = subprocess.run(
        [*shlex.split(emulator), program], input=x.astype("float32").tobytes(),
        env={**os.environ, "QEMU_CPU": "max"}, capture_output=True, timeout=120, check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return np.frombuffer(done.stdout, "float32")
