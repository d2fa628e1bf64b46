"""Inner loops of int8 layers by RISC-V's vectors and in plain C, run by QEMU."""

import subprocess
import sys
from pathlib import Path

import pytest

from sterna.schedule.across_steps import COPY, DOTS, FILL, few_dots, quad_dots
from tests.support import require_module, require_program

# Sums as the loops that define them give them; the status says which step is wrong.
CHECK = """
#if defined(WITH_VECTORS) != (__riscv_v_intrinsic >= 11000 && __riscv_v_min_vlen >= 128)
#error "other instructions than asked for"
#endif
#define DEPTH 77
#define ROWS 3
#define PITCH 64
static int8_t weights[8 * DEPTH], data[ROWS * PITCH + DEPTH], copied[200];
static int32_t sums[64];

static int32_t check(void) {
  uint32_t seed = 1;
  for (uint32_t at = 0; at < sizeof weights; at++) {
    seed = seed * 1664525u + 1013904223u;
    weights[at] = (int8_t)(seed >> 24);
  }
  for (uint32_t at = 0; at < sizeof data; at++) {
    seed = seed * 1664525u + 1013904223u;
    data[at] = (int8_t)(seed >> 24);
  }
  for (int32_t depth = 1; depth <= DEPTH; depth += 4) {
    sterna_dots_across(sums, weights, data, depth, 2);
    for (int32_t unit = 0; unit < 8; unit++) {
      int32_t sum = 0;
      for (int32_t at = 0; at < depth; at++) sum += data[at] * weights[unit * depth + at];
      if (sum != sums[unit]) return 1;
    }
  }
  for (int32_t depth = 1; depth <= DEPTH; depth += 19) {
    sterna_dots_across_1(sums, weights, data, depth);
    sterna_dots_across_3(sums + 1, weights, data, depth);
    for (int32_t place = 0; place < 4; place++) {
      int32_t unit = place ? place - 1 : 0, sum = 0;
      for (int32_t at = 0; at < depth; at++) sum += data[at] * weights[unit * depth + at];
      if (sum != sums[place]) return 4;
    }
  }
  sterna_quad_dots_3_2_4(sums, weights, data, PITCH, ROWS, 1);
  for (int32_t n = 0; n < 4; n++) {
    for (int32_t lane = 0; lane < 4; lane++) {
      int32_t sum = 0;
      for (int32_t row = 0; row < ROWS; row++) {
        for (int32_t tap = 0; tap < 3; tap++) {
          sum += data[row * PITCH + (2 * n + tap) * 4 + lane] * weights[(row * 3 + tap) * 4 + lane];
        }
      }
      if (sum != sums[4 * n + lane]) return 2;
    }
  }
  for (int32_t count = 0; count < 180; count += 19) {
    for (uint32_t at = 0; at < sizeof copied; at++) copied[at] = 5;
    int8_t *end = sterna_fill_bytes(sterna_copy_bytes(copied, weights, count), -9, 7);
    for (int32_t at = 0; at < 200; at++) {
      int8_t want = at < count ? weights[at] : at < count + 7 ? -9 : 5;
      if (copied[at] != want || end != copied + count + 7) return 3;
    }
  }
  return 0;
}

void _start(void) {
  register int32_t status __asm__("a0") = check();
  register int32_t call __asm__("a7") = 93; /* exit */
  __asm__ volatile("ecall" : : "r"(status), "r"(call));
  for (;;) {
  }
}
"""


@pytest.mark.parametrize(("features", "length"), [("m", 0), ("m+zve32x+zvl128b", 128),
                                                  ("m+zve32x+zvl128b", 256)])
def test_steps_give_the_sums_of_plain_loops(features: str, length: int, tmp_path: Path) -> None:
    require_program("qemu-riscv32")
    require_module("ziglang")
    used = (DOTS, few_dots(1), few_dots(3), COPY, FILL, quad_dots(3, 1, 2, 4))
    steps = "\n".join(step.definition for step in used)
    (tmp_path / "steps.c").write_text(f"#include <stdint.h>\n{steps}\n{CHECK}")
    command = [sys.executable, "-m", "ziglang", "cc", "-target", "riscv32-freestanding",
               f"-mcpu=generic_rv32+{features}", "-O2", "-static", "-ffreestanding",
               "-fno-sanitize=all", "-Wall", "-Werror", *["-DWITH_VECTORS"] * bool(length)]
    subprocess.run([*command, "steps.c", "-o", "program"], check=True, cwd=tmp_path)
    vectors = f",v=true,vlen={length}" if length else ""
    ran = subprocess.run(["qemu-riscv32", "-cpu", f"rv32{vectors}", "program"], cwd=tmp_path)
    assert ran.returncode == 0
