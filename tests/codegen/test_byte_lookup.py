"""Tables of 256 bytes that lie in registers."""

import re

import numpy as np
import pytest

from sterna.codegen.llvm import CompiledModule, LLVMOptions
from sterna.ir.build import cast, const
from sterna.ir.expr import Broadcast, Ramp
from sterna.target import Target
from sterna.target.code_generators.llvm import llvm_options
from sterna.testing import requires_x86
from sterna.tir.stmt import BufferLoad, BufferStore, PrimFunc
from tests.codegen.test_llvm_common import Loaded, kernel, make_buffer


def lookup(dtype: str, lanes: int, entries: int = 256) -> PrimFunc:
    """y = table[x], or table[x + 128] of signed bytes."""
    x, y = (make_buffer(name, dtype, lanes) for name in "xy")
    table = make_buffer("table", dtype, entries)
    every = Ramp(const(0), const(1), lanes)
    place = cast(f"int32x{lanes}", BufferLoad(x, (every,)))
    place = place + Broadcast(const(128), lanes) if dtype == "int8" else place
    return kernel("f", [x, table, y], BufferStore(y, BufferLoad(table, (place,)), (every,)))


def check(dtype: str, lanes: int, options: LLVMOptions | None) -> None:
    rng = np.random.default_rng(lanes)
    table = rng.permutation(256).astype("uint8").view(dtype)
    function = Loaded(lookup(dtype, lanes), options=options)
    least = np.iinfo(dtype).min
    for first in range(0, 256, lanes):
        x = (np.arange(first, first + lanes) % 256 + least).astype(dtype)
        found = np.zeros(lanes, dtype)
        assert function(x, table, found) == 0
        np.testing.assert_array_equal(found, table[x.astype(int) - least])


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("lanes", [4, 8, 16, 23, 64, 100])
def test_every_byte_finds_its_own(dtype: str, lanes: int) -> None:
    """Of this machine; vectors of any length, as the ends of rows are."""
    check(dtype, lanes, None)


@requires_x86
@pytest.mark.parametrize("lanes", [16, 23, 64])
def test_every_byte_of_short_registers(lanes: int) -> None:
    check("int8", lanes, llvm_options(Target("llvm -mcpu=haswell")))


@pytest.mark.parametrize("target, instruction, count", [
    ("x86_64-linux-gnu -mcpu=icelake-server", "vpermi2b|vpermt2b", 2),
    ("x86_64-linux-gnu -mcpu=cascadelake", "vpshufb", 16),
    ("aarch64-linux-gnu -mcpu=neoverse-n1", r"tbl\b", 4 * 4),
])
def test_lookups_are_shuffles(target: str, instruction: str, count: int) -> None:
    options = llvm_options(Target(f"llvm -mtriple={target}"))
    text = str(CompiledModule([lookup("uint8", 64)], options).assembly())
    assert len(re.findall(instruction, text)) == count


def test_other_tables_stay_in_memory() -> None:
    """One of fewer numbers may end where a register goes on."""
    options = llvm_options(Target("llvm -mtriple=x86_64-linux-gnu -mcpu=cascadelake"))
    assert "vpshufb" not in str(CompiledModule([lookup("uint8", 64, 255)], options).assembly())

