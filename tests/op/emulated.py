"""Layers in programs for processors with instructions that this one may lack."""

import os
import subprocess
from pathlib import Path
from typing import Any

import sterna as tvm
from sterna import relay
from sterna.contrib import cc
from sterna.relay.arrays import Array
from sterna.support.cross import Machine
from sterna.target import Target, machine_of
from tests.support import ROOT, require_module, require_program

EXAMPLE = ROOT / "examples" / "c" / "run_model.c"

# What LLVM gives to any processor of AArch64 and no code uses.
TRACING = {"ete", "trbe"}


def is_here(target: str) -> bool:
    """Whether this processor has the instructions of a target."""
    there, here = machine_of(Target(target)), machine_of(Target("llvm -mcpu=native"))
    missing = there.feature_set - here.feature_set - TRACING
    return there.architecture == here.architecture and not missing


def run_there(made: Any, target: str, x: Array, folder: Path) -> bytes:
    """What a function of one input gives, in a program that this processor or an emulator runs."""
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(made), target=target)
    return run_library(lib, target, x, folder)


def run_library(lib: Any, target: str, x: Array, folder: Path) -> bytes:
    """What a compiled network of one input gives, in such a program."""
    require_module("ziglang")
    lib.export_library(folder / "model.a")
    program = str(folder / "program")
    cc.cross_compile([EXAMPLE, folder / "model.a"], program, target=target, static=True)
    machine = Machine.of(machine_of(Target(target)).triple)
    assert machine is not None
    words = [] if is_here(target) else [require_program(f"qemu-{machine.processor}")]
    done = subprocess.run(
        [*words, program], input=x.tobytes(), env={**os.environ, "QEMU_CPU": "max"},
        capture_output=True, timeout=120, check=False,
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout
