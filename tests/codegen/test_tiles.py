"""Tiles: what the interpreter makes of them, their instructions, and both on the same programs."""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, tir
from sterna.contrib import cc
from sterna.relay.arrays import from_numpy, to_numpy
from sterna.target import Target, machine_of
from sterna.tir import PrimFunc, interpreter
from sterna.tir.memory import Pointer
from sterna.tir.tile_registers import TileRegisters
from sterna.tir.tiles import tile_configure, tile_dot, tile_load
from tests.codegen.test_llvm_common import Array
from tests.support import clean_environment

NATIVE = "llvm -mcpu=native"
SAPPHIRE = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"
WITHOUT = "llvm"
HAS_TILES = bool(machine_of(Target(NATIVE)).matrix_tiles)


def product(rows: int, columns: int, depth: int, a: str, b: str) -> PrimFunc:
    """c = x times y for matrices that fit one tile each; y has its rows in groups of 4 bytes."""
    size = tvm.DataType(a).bytes
    group = 4 // size
    kind = "float32" if a == "bfloat16" else "int32"
    x = te.placeholder((rows, depth), a, name="x")
    y = te.placeholder((depth // group, columns, group), b, name="y")

    def body(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        first, second, out = (ib.buffer_ptr(each) for each in (*ins, *outs))
        shapes = [(rows, columns * 4), (rows, depth * size), (depth // group, columns * 4)]
        with ib.for_range(0, 1, name="task", kind="parallel") as task:
            ib.emit(tir.tile_configure(shapes))
            ib.emit(tir.tile_zero(0))
            ib.emit(tir.tile_load(1, first[task, 0], depth))
            ib.emit(tir.tile_load(2, second[task, 0, 0], columns * group))
            ib.emit(tir.tile_dot(0, 1, 2, a, b))
            ib.emit(tir.tile_dot(0, 1, 2, a, b))
            ib.emit(tir.tile_store(0, out[task, 0], columns))
            ib.emit(tir.tile_release())
        return ib.get()

    c = te.extern((rows, columns), [x, y], body, name="c", dtype=kind)
    function = tvm.lower(te.create_schedule(c.op), [x, y, c], name="product")["product"]
    assert isinstance(function, PrimFunc)
    return function


def operands(rows: int, columns: int, depth: int, a: str, b: str) -> tuple[Array, Array, Array]:
    """x, y in groups, and twice their product."""
    rng = np.random.default_rng(rows * depth)

    def numbers(kind: str, shape: tuple[int, ...]) -> Array:
        if kind == "bfloat16":
            return to_numpy(from_numpy(rng.normal(size=shape).astype("float32"), kind))
        info = np.iinfo(kind)
        made: Array = rng.integers(info.min, info.max + 1, shape).astype(kind)
        return made

    x, y = numbers(a, (rows, depth)), numbers(b, (depth, columns))
    wide = "float64" if a == "bfloat16" else "int64"
    want = 2 * (x.astype(wide) @ y.astype(wide))
    group = 4 // x.itemsize
    return x, y.reshape(-1, group, columns).transpose(0, 2, 1).copy(), want


KINDS = [("bfloat16", "bfloat16"), *[(a, b) for a in ("int8", "uint8") for b in ("int8", "uint8")]]
SHAPES = [(16, 16, 32), (1, 1, 4), (7, 13, 12), (16, 3, 28)]


@pytest.mark.parametrize(("a", "b"), KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_product_is_that_of_numpy(shape: tuple[int, int, int], a: str, b: str) -> None:
    rows, columns, depth = shape
    x, y, want = operands(rows, columns, depth, a, b)
    function = product(rows, columns, depth, a, b)
    kind = np.float32 if a == "bfloat16" else np.int32
    made = [np.full((rows, columns), 99, kind)]
    interpreter.run(function, x.view("uint16") if a == "bfloat16" else x,
                    y.view("uint16") if b == "bfloat16" else y, made[0])
    for target in (NATIVE, WITHOUT, *(["c"] if shape == SHAPES[2] else [])):
        made.append(np.full((rows, columns), 99, kind))
        tvm.build(function, target=target)(*[tvm.nd.array(each) for each in (x, y)], made[-1])
    for found in made:
        np.testing.assert_allclose(found, want, atol=1e-5 * np.abs(want).max())


def test_instructions() -> None:
    """Also where this machine has none."""
    built = tvm.build(product(16, 16, 32, "bfloat16", "bfloat16"), target=SAPPHIRE)
    text = built.get_source("asm")
    for name in ("ldtilecfg", "tilezero", "tileloadd", "tdpbf16ps", "tilestored", "tilerelease"):
        assert name in text, name
    assert "syscall" in text
    elsewhere = tvm.build(product(16, 16, 32, "bfloat16", "bfloat16"), target=WITHOUT)
    assert "tdpbf16ps" not in elsewhere.get_source("asm")
    bytewise = tvm.build(product(4, 4, 8, "uint8", "int8"), target=SAPPHIRE)
    assert "tdpbusd" in bytewise.get_source("asm")


# A system that does not grant tiles.
REFUSE = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
long syscall(long n, long a, long b, long c, long d, long e, long f) {
  if (n == 158) {
    errno = EOPNOTSUPP;
    return -1;
  }
  return ((long (*)(long, ...))dlsym(RTLD_NEXT, "syscall"))(n, a, b, c, d, e, f);
}
"""

LOAD = """
import sys
import numpy as np
from sterna.runtime import load_module
x, y, c = np.ones((16, 32), "int8"), np.ones((8, 16, 4), "int8"), np.empty((16, 16), "int32")
load_module(sys.argv[1])["product"](x, y, c)
print(c.sum())
"""


def load_elsewhere(path: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", LOAD, str(path)], capture_output=True, text=True, check=False,
        env=clean_environment(**environment),
    )


def test_libraries_ask_for_tiles(tmp_path: Path) -> None:
    """Nothing but the code itself asks, and says so where there are none; loops need not ask."""
    asks = (sys.platform, platform.machine()) == ("linux", "x86_64")
    target = "llvm -mattr=+amx-int8" if asks else "llvm"
    built = tvm.build(product(16, 16, 32, "int8", "int8"), target=target)
    built.export_library(tmp_path / "product.so")
    if asks:
        (tmp_path / "refuse.c").write_text(REFUSE)
        cc.create_shared(tmp_path / "refuse.so", tmp_path / "refuse.c", ["-ldl"])
        refused = load_elsewhere(tmp_path / "product.so", LD_PRELOAD=str(tmp_path / "refuse.so"))
        assert "product was compiled for a processor with tiles (AMX)" in refused.stderr
    if HAS_TILES or not asks:
        assert load_elsewhere(tmp_path / "product.so").stdout == f"{16 * 16 * 64}\n"


def test_which_targets_have_tiles() -> None:
    expected = {
        "x86_64-linux-gnu -mcpu=sapphirerapids": ("bfloat16", "int8"),
        "x86_64-linux-gnu -mcpu=sapphirerapids -mattr=-amx-tile": (),
        "x86_64-linux-gnu -mcpu=haswell -mattr=+amx-int8": ("int8",),
        "x86_64-pc-windows-msvc -mcpu=sapphirerapids": (),
        "aarch64-linux-gnu": (),
    }
    found = {name: machine_of(Target(f"llvm -mtriple={name}")).matrix_tiles for name in expected}
    assert found == expected


def test_wrong_tiles() -> None:
    buffer = tir.decl_buffer((16, 32), "bfloat16", "x")
    with pytest.raises(ValueError, match=r"tile 1 has 1 to 16 rows .* not 17 of 64"):
        tile_configure([(16, 64), (17, 64)])
    with pytest.raises(ValueError, match="there are 8 tiles, not 9"):
        tile_configure([(1, 4)] * 9)
    with pytest.raises(ValueError, match="tiles are numbered from 0 to 7, not 8"):
        tile_load(8, buffer[0, 0], 32)
    with pytest.raises(TypeError, match="not float16 with float16"):
        tile_dot(0, 1, 2, "float16", "float16")


def test_the_interpreter_watches_tiles() -> None:
    tiles = TileRegisters()
    with pytest.raises(RuntimeError, match="tile 3 is used without a shape"):
        tiles.zero(3)
    tiles.configure(2, 8, 2, 8, 3, 8, *[0] * 10)
    with pytest.raises(ValueError, match="do not multiply"):
        tiles.dot(0, 1, 2, "int8 int8")
    row = Pointer(np.zeros(9, np.uint8))
    with pytest.raises(IndexError, match="a tile's row of 8 bytes begins at byte 8 of 9"):
        tiles.load(0, row, 8)


def test_printed_programs_are_read_again() -> None:
    function = product(16, 16, 32, "bfloat16", "bfloat16")
    text = tir.script(function)
    assert 'tile_dot(0, 1, 2, "bfloat16 bfloat16")' in text
    assert tir.script(tir.parse(text)) == text
