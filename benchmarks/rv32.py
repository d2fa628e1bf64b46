"""Instructions of a network on RV32IM, with vectors or without, in QEMU's user mode.

There is no board and no start-up code: the network in C, a first function that runs it, and QEMU's
log of translated blocks. Each block's instructions are listed once, each run of it in a line. What
the network gives is held against what this machine computes of the graph.
"""

import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import sterna.micro
from sterna import micro, relay
from sterna.ir.transform import PassContext
from sterna.ir.types import TensorType
from sterna.micro.elf import read_program
from sterna.model.import_model import import_model
from sterna.relay.arrays import Array
from sterna.relay.backend import Executor, Runtime
from sterna.relay.interpreter import interpret

START = """\
#include "model.h"

static int32_t ask(int32_t number, int32_t first, const void *second, uint32_t third) {
  register int32_t a0 __asm__("a0") = first;
  register const void *a1 __asm__("a1") = second;
  register uint32_t a2 __asm__("a2") = third;
  register int32_t a7 __asm__("a7") = number;
  __asm__ volatile("ecall" : "+r"(a0) : "r"(a1), "r"(a2), "r"(a7) : "memory");
  return a0;
}

void _start(void) {
  int32_t status = model_run();
  for (uint32_t n = 0; n < model_output_count; n++) {
    const struct model_tensor *made = &model_outputs[n];
    ask(64, 2, made->data, made->count * made->element_bytes); /* write, to the errors */
  }
  ask(93, status, 0, 0); /* exit */
  for (;;) {
  }
}
"""
# Nothing is unwound: as in firmware, there are no tables for it.
COMPILE = ("-target", "riscv32-freestanding", "-O2", "-static", "-ffreestanding",
           "-fno-sanitize=all", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables")
# What compilers and QEMU call it: vectors of 128 bits, of integers.
PLAIN, VECTORS = ("generic_rv32+m", "rv32"), ("generic_rv32+m+zve32x+zvl128b", "rv32,v=true")
LIBC = Path(sterna.micro.__file__).parent / "templates" / "baremetal" / "libc"
INSTRUCTION = re.compile(r"0x([0-9a-f]{8}):  ")
RUN = re.compile(r"Trace .*? \[[0-9a-f]+/([0-9a-f]{8})/")


@dataclass(frozen=True)
class Counted:
    """What a network takes."""

    instructions: int
    arena: int
    code: int


def count_network(path: Path, folder: Path, has_vectors: bool = False) -> Counted:
    """Build a network for RV32IM, run it once and count."""
    processor, emulated = VECTORS if has_vectors else PLAIN
    mod, params = import_model(str(path), {}, None, for_microcontroller=True)
    with PassContext(opt_level=3, config={"relay.Winograd.max_growth": 0}):
        program = relay.build(
            mod, target="c -mtriple=riscv32-unknown-elf", params=params, runtime=Runtime("crt"),
            executor=Executor("aot", {"unpacked-api": True, "interface-api": "c"}),
        )
    rng = np.random.default_rng(0)
    given: dict[str, Any] = {
        var.name_hint: drawn(rng, var.checked_type) for var in mod["main"].params}
    folder.parent.mkdir(parents=True, exist_ok=True)
    inputs = folder.with_suffix(".npz")
    np.savez(inputs, **given)
    micro.generate_project("crt", program, folder, {
        "project_type": "example_project", "sample_inputs": inputs}).close()
    (folder / "src" / "start.c").write_text(START)
    sources = [str(folder / "src" / name) for name in ("default_lib0.c", "model.c", "start.c")]
    subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", *COMPILE, f"-mcpu={processor}", f"-isystem{LIBC}",
         f"-I{folder / 'src'}", *sources, "-o", str(folder / "program")], check=True,
    )
    report = program.memory_report()
    stored = read_program(folder / "program").stored_bytes
    code = stored - report.constant_bytes - report.input_bytes
    count, made = count_instructions(folder / "program", emulated)
    wanted = interpret(mod["main"], *given.values())
    results = wanted if isinstance(wanted, tuple | list) else [wanted]
    if made != b"".join(np.asarray(one).tobytes() for one in results):
        raise RuntimeError(f"{path.name} gives other numbers on {emulated}")
    return Counted(count, report.workspace_bytes, code)


def drawn(rng: np.random.Generator, kind: TensorType) -> Array:
    """Whole numbers of all sizes, or floats."""
    shape, dtype = kind.concrete_shape, str(kind.dtype)
    if dtype.startswith("float"):
        return np.asarray(rng.standard_normal(shape).astype(dtype))
    ends = np.iinfo(dtype)
    return np.asarray(rng.integers(ends.min, ends.max, shape, dtype, endpoint=True))


def count_instructions(program: Path, processor: str) -> tuple[int, bytes]:
    """What all blocks have together that ran, and what the program wrote."""
    lengths: dict[str, int] = {}
    runs: Counter[str] = Counter()
    first = ""
    command = ["qemu-riscv32", "-cpu", processor, "-d", "exec,nochain,in_asm", "-D", "/dev/stdout",
               str(program)]
    with (
        tempfile.TemporaryFile() as written,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=written, text=True) as process,
    ):
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("IN:"):
                first = ""
            elif line.startswith("0x") and (found := INSTRUCTION.match(line)):
                if not first:
                    first = found[1]
                    lengths[first] = 0
                lengths[first] += 1
            elif line.startswith("Trace") and (found := RUN.match(line)):
                runs[found[1]] += 1
        process.wait()
        written.seek(0)
        made = written.read()
    if process.returncode:
        raise RuntimeError(f"{program} ended with status {process.returncode}")
    return sum(count * lengths[block] for block, count in runs.items()), made
