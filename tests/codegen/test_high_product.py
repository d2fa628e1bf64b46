"""High words of products on processors that have none of more than 32 bits."""

import ctypes
from pathlib import Path

import numpy as np

from sterna.codegen.c.halves import HALVES
from sterna.support import toolchain
from tests.codegen.c_harness import STRICT


def test_halves_give_the_rounded_high_word(tmp_path: Path) -> None:
    source, library = tmp_path / "high.c", tmp_path / "high.so"
    source.write_text(f"""\
#include <stdint.h>
#define __ARM_ARCH_6M__ 1
{HALVES["high_product"]}
void products(const int32_t *a, const int32_t *b, int32_t *made, int32_t count);
void products(const int32_t *a, const int32_t *b, int32_t *made, int32_t count) {{
  for (int32_t n = 0; n < count; n++) made[n] = sterna_high_product(a[n], b[n]);
}}
""")
    command = [*(toolchain.find_c_compiler() or ()), *STRICT, "-shared", "-fPIC"]
    toolchain.run_compiler([*command, str(source), "-o", str(library)])
    rng = np.random.default_rng(0)
    ends = [-(1 << 31), -(1 << 31) + 1, -65537, -65536, -1, 0, 1, 65535, 65536, (1 << 31) - 1]
    a = np.concatenate([ends, rng.integers(-(1 << 31), 1 << 31, 20_000),
                        rng.integers(-2000, 2000, 20_000)])
    b = rng.integers(1 << 30, 1 << 31, len(a))
    b[: len(ends)] = [1 << 30, (1 << 31) - 1] * (len(ends) // 2)
    b[len(ends) : 2 * len(ends)] = (1 << 31) - 1
    given = [np.ascontiguousarray(each, "int32") for each in (a, b)]
    made = np.zeros(len(a), "int32")
    pointers = [each.ctypes.data_as(ctypes.c_void_p) for each in (*given, made)]
    ctypes.CDLL(str(library)).products(*pointers, ctypes.c_int32(len(a)))
    np.testing.assert_array_equal(made, (a * b + (1 << 30)) >> 31)
