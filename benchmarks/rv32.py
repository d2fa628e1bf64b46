"""Instructions of a network on RV32IM, with vectors or without, in QEMU's user mode.

There is no board and no start-up code: the network in C, a first function that runs it, and QEMU's
log of translated blocks. Each block's instructions are listed once, each run of it in a line.
"""

import re
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import sterna.micro
from sterna import micro, relay
from sterna.ir.transform import PassContext
from sterna.micro.elf import read_program
from sterna.model.import_model import import_model
from sterna.relay.backend import Executor, Runtime

START = """\
#include "model.h"

void _start(void) {
  register int32_t status __asm__("a0") = model_run();
  register int32_t call __asm__("a7") = 93; /* exit */
  __asm__ volatile("ecall" : : "r"(status), "r"(call));
  for (;;) {
  }
}
"""
COMPILE = ("-target", "riscv32-freestanding", "-O2", "-static", "-ffreestanding",
           "-fno-sanitize=all")
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
    micro.generate_project("crt", program, folder, {"project_type": "example_project"}).close()
    (folder / "src" / "start.c").write_text(START)
    sources = [str(folder / "src" / name) for name in ("default_lib0.c", "model.c", "start.c")]
    subprocess.run(
        [sys.executable, "-m", "ziglang", "cc", *COMPILE, f"-mcpu={processor}", f"-isystem{LIBC}",
         f"-I{folder / 'src'}", *sources, "-o", str(folder / "program")], check=True,
    )
    report = program.memory_report()
    stored = read_program(folder / "program").stored_bytes
    code = stored - report.constant_bytes - report.input_bytes
    return Counted(count_instructions(folder / "program", emulated), report.workspace_bytes, code)


def count_instructions(program: Path, processor: str) -> int:
    """What all blocks have together that ran."""
    lengths: dict[str, int] = {}
    runs: Counter[str] = Counter()
    first = ""
    command = ["qemu-riscv32", "-cpu", processor, "-d", "exec,nochain,in_asm", "-D", "/dev/stdout",
               str(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
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
    if process.returncode:
        raise RuntimeError(f"{program} ended with status {process.returncode}")
    return sum(count * lengths[block] for block, count in runs.items())
