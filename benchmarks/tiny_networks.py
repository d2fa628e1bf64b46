"""Instructions and memory of quantised networks on a Cortex-M4, counted by QEMU.

    python benchmarks/tiny_networks.py MODEL.tflite [...] [--markdown]

A network becomes firmware by `sterna micro`, and runs once under `-icount shift=0`: one instruction
takes a nanosecond of QEMU's time, of which SysTick counts 40 a tick. Instructions, not cycles: QEMU
knows no wait states and no stalls. Needs qemu-system-arm and arm-none-eabi-gcc.
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

from sterna.frontend.tflite.schema import Subgraph, read_model

BOARD, MACHINE = "mps2_an386", "mps2-an386"
INSTRUCTIONS_A_TICK = 40

COUNTING = """\
/* Counts what one run of the network takes. */
#include "model.h"
#include "platform.h"
#include "project.h"

#define SYST_CSR (*(volatile uint32_t *)0xE000E010u)
#define SYST_RVR (*(volatile uint32_t *)0xE000E014u)
#define SYST_CVR (*(volatile uint32_t *)0xE000E018u)

int32_t project_run(void) {
  char text[16] = "ticks ........\\n";
  SYST_RVR = 0xffffff;
  SYST_CVR = 0;
  SYST_CSR = 5;
  uint32_t start = SYST_CVR;
  int32_t status = model_run();
  uint32_t ticks = (start - SYST_CVR) & 0xffffff;
  for (uint32_t at = 0; at < 8; at++) {
    text[6 + at] = "0123456789abcdef"[ticks >> (28 - 4 * at) & 15];
  }
  platform_print(text);
  return status;
}
"""


@dataclass(frozen=True)
class Bound:
    """What a network may take."""

    name: str
    arena: float
    """Its largest set of live tensors."""
    per_product: float
    """Instructions: a 1.4th of what CMSIS-NN takes on its layers, by gcc -O3."""


BOUNDS = [
    Bound("kws", 16_000, 2.4), Bound("resnet8", 49_152, 1.26), Bound("vww", 55_296, 2.0),
    Bound("ad01", 768, 1.62),
]
FREE = Bound("", float("inf"), float("inf"))


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


def measure(path: Path, folder: Path) -> list[Row]:
    """What one network takes."""
    project = folder / path.stem
    made = subprocess.run(
        [sys.executable, "-m", "sterna", "micro", str(path), "--board", BOARD, "-o", str(project),
         "--json"], check=True, capture_output=True, text=True,
    )
    memory = json.loads(made.stdout)
    (project / "src" / "example.c").write_text(COUNTING)
    subprocess.run(["make", "-s", "-C", str(project)], check=True)
    run = subprocess.run(
        ["qemu-system-arm", "-M", MACHINE, "-icount", "shift=0", "-display", "none", "-monitor",
         "none", "-serial", "null", "-semihosting-config", "enable=on,target=native", "-kernel",
         str(project / "build" / "program.elf")], capture_output=True, text=True, timeout=600,
    )
    ticks = re.search(r"ticks ([0-9a-f]{8})", run.stdout + run.stderr)
    if ticks is None:
        raise RuntimeError(f"{path.name} gave no count: {run.stdout}{run.stderr}")
    instructions = int(ticks[1], 16) * INSTRUCTIONS_A_TICK
    count = products(read_model(path.read_bytes()).subgraphs[0])
    bound = next((one for one in BOUNDS if one.name in path.stem), FREE)
    return [
        Row(f"{path.stem}: instructions", instructions / 1e6, "million", float("inf"), True),
        Row(f"{path.stem}: per product", instructions / max(count, 1), "instructions",
            bound.per_product, True, f"{count} products"),
        Row(f"{path.stem}: arena", memory["arena"], "bytes", bound.arena, True),
    ]


def main(words: list[str]) -> int:
    """Measure the networks that are named."""
    paths = [Path(word) for word in words if not word.startswith("--")]
    if not paths:
        print(__doc__)
        return 2
    with tempfile.TemporaryDirectory() as folder:
        rows = [row for path in paths for row in measure(path, Path(folder))]
    return show_rows("Quantised networks on a Cortex-M4", rows, "--markdown" in words)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
