"""Instructions and memory of quantised networks on microcontrollers, counted by QEMU.

    python benchmarks/tiny_networks.py MODEL.tflite [...] [--board=mps3_an547] [--markdown]

A network becomes firmware by `sterna micro`, and runs once under `-icount shift=0`: one instruction
takes a nanosecond of QEMU's time, of which a timer counts so many a tick as its clock says.
Instructions, not cycles: QEMU knows no wait states and no stalls. Needs qemu-system-arm and
arm-none-eabi-gcc. Boards are mps2_an386 (Cortex-M4), mps3_an547 (M55), mps2_an385 (M3), mps2_an382
(M0), microbit (M0, 16 KB of RAM), and rv32 and rv32v (with vectors), which are none: there the
network runs in QEMU's user mode, built by ziglang. Networks that a board refuses are named with
the reason.
"""

import json
import math
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from rows import Row, show_rows
from rv32 import Counted, count_network

from sterna.frontend.tflite.schema import Subgraph, read_model
from sterna.micro.elf import read_program


@dataclass(frozen=True)
class Meter:
    """A board whose clock counts instructions."""

    processor: str
    machine: str
    tick: float
    """Instructions between two ticks."""
    bounds: dict[str, float]
    """By a network's name: the instructions for a product that it may take."""
    timer: str = "systick"


# A 1.4th of what CMSIS-NN takes on the layers of each network, by gcc -O3; on a Cortex-M55 all.
METERS = {
    "microbit": Meter("Cortex-M0", "microbit", 62.5, {}, "timer0"),
    # QEMU has no such machine; a Cortex-M3 takes a Cortex-M0's instructions one for one.
    "mps2_an382": Meter("Cortex-M0", "mps2-an385", 40, {}),
    "mps2_an385": Meter("Cortex-M3", "mps2-an385", 40, {}),
    "mps2_an386": Meter("Cortex-M4", "mps2-an386", 40,
                        {"kws": 2.4, "resnet8": 1.26, "vww": 2.0, "ad01": 1.62}),
    "mps3_an547": Meter("Cortex-M55", "mps3-an547", 31.25,
                        {"kws": 0.84, "resnet8": 0.36, "vww": 0.72, "ad01": 0.58}),
}
RV32 = {"rv32": "RV32IM", "rv32v": "RV32IM with vectors of 128 bits"}
MOST_CODE = 16 * 1024
# Below the largest set of live tensors (16,000, 49,152 and 55,296 bytes): results lie over data.
ARENAS = {"kws": 8_800, "resnet8": 34_000, "vww": 38_400, "ad01": 768}

TIMERS = {
    "systick": """\
#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)

static void start(void) {
  SYST_RVR = 0xffffff;
  SYST_CVR = 0;
  SYST_CSR = 5;
}

static uint32_t now(void) { return 0xffffff - SYST_CVR; }
#define MOST_TICKS 0xffffff
""",
    # of the nRF51: 32 bits, 16 MHz
    "timer0": """\
#define TIMER0(at) (*(volatile uint32_t *)(0x40008000u + (at)))

static void start(void) {
  TIMER0(0x508) = 3;
  TIMER0(0x510) = 0;
  TIMER0(0x00c) = 1;
  TIMER0(0x000) = 1;
}

static uint32_t now(void) {
  TIMER0(0x040) = 1;
  return TIMER0(0x540);
}
#define MOST_TICKS 0xffffffff
""",
}

COUNTING = """\
/* Counts what one run of the network takes. */
#include "model.h"
#include "platform.h"
#include "project.h"

@TIMER@
int32_t project_run(void) {
  char text[16] = "ticks ........\\n";
  start();
  uint32_t begin = now();
  int32_t status = model_run();
  uint32_t ticks = (now() - begin) & MOST_TICKS;
  for (uint32_t at = 0; at < 8; at++) {
    text[6 + at] = "0123456789abcdef"[ticks >> (28 - 4 * at) & 15];
  }
  platform_print(text);
  return status;
}
"""


class Refused(Exception):
    """A network that a board is too small for, or that has parts without a converter."""


def sterna_micro(path: Path, board: str, *words: str) -> str:
    """What `sterna micro` says of a network, as JSON."""
    made = subprocess.run(
        [sys.executable, "-m", "sterna", "micro", str(path), "--board", board, "--json", *words],
        capture_output=True, text=True)
    if made.returncode:
        raise Refused(f"{path.stem} is refused: {made.stderr.strip().splitlines()[-1]}")
    return made.stdout


def products(graph: Subgraph) -> int:
    """The multiplications of a network's layers."""
    total = 0
    for operator in graph.operators:
        out = math.prod(graph.tensors[operator.outputs[0]].shape) if operator.outputs else 0
        if operator.kind in ("CONV_2D", "FULLY_CONNECTED"):
            total += out * math.prod(graph.tensors[operator.inputs[1]].shape[1:])
        elif operator.kind == "DEPTHWISE_CONV_2D":
            total += out * math.prod(graph.tensors[operator.inputs[1]].shape[1:3])
    return total


def count_on_board(path: Path, board: str, folder: Path) -> Counted:
    """What one network takes on a board."""
    meter, project = METERS[board], folder / path.stem
    memory = json.loads(sterna_micro(path, board, "-o", str(project)))
    (project / "src" / "example.c").write_text(
        COUNTING.replace("@TIMER@", TIMERS[meter.timer]))
    subprocess.run(["make", "-s", "-C", str(project)], check=True)
    run = subprocess.run(
        ["qemu-system-arm", "-M", meter.machine, "-icount", "shift=0", "-display", "none",
         "-monitor", "none", "-serial", "null", "-semihosting-config", "enable=on,target=native",
         "-kernel", str(project / "build" / "program.elf")],
        capture_output=True, text=True, timeout=600,
    )
    ticks = re.search(r"ticks ([0-9a-f]{8})", run.stdout + run.stderr)
    if ticks is None:
        raise RuntimeError(f"{path.name} gave no count: {run.stdout}{run.stderr}")
    stored = read_program(project / "build" / "program.elf").stored_bytes
    code = stored - memory["constants"] - memory["input_bytes"]
    return Counted(round(int(ticks[1], 16) * meter.tick), memory["arena"], code)


def rows_of(path: Path, found: Counted, bounds: dict[str, float]) -> list[Row]:
    """What one network takes, beside what it may."""
    count = products(read_model(path.read_bytes()).subgraphs[0])
    known = next((name for name in ARENAS if name in path.stem), "")
    free = float("inf")
    return [
        Row(f"{path.stem}: instructions", found.instructions / 1e6, "million", free, True),
        Row(f"{path.stem}: per product", found.instructions / max(count, 1), "instructions",
            bounds.get(known, free), True, f"{count} products"),
        Row(f"{path.stem}: code", found.code, "bytes", MOST_CODE, True, "with start-up"),
        Row(f"{path.stem}: arena", found.arena, "bytes", ARENAS.get(known, free), True),
    ]


def main(words: list[str]) -> int:
    """Measure the networks that are named."""
    paths = [Path(word) for word in words if not word.startswith("--")]
    if not paths:
        print(__doc__)
        return 2
    board = next((word.partition("=")[2] for word in words if word.startswith("--board=")),
                 "mps2_an386")
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            if board in RV32:
                made = count_network(path, Path(folder) / path.stem, board == "rv32v")
                rows += rows_of(path, made, {})
            else:
                try:
                    found = count_on_board(path, board, Path(folder))
                except Refused as refused:
                    print(refused)
                else:
                    rows += rows_of(path, found, METERS[board].bounds)
    processor = RV32[board] if board in RV32 else METERS[board].processor
    return show_rows(f"Quantised networks on {processor}", rows, "--markdown" in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
