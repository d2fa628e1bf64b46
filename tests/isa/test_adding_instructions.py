"""What it takes to add an instruction: a row in the file of its instruction set."""

from dataclasses import replace

import pytest

import sterna as tvm
from sterna.ir.build import const
from sterna.ir.expr import Ramp
from sterna.isa import Instructions, instruction_sets
from sterna.isa.aarch64 import AARCH64
from sterna.isa.capability import Dot4
from sterna.isa.x86 import X86
from sterna.target import Target, machine_of, processor_of
from sterna.tir import dot4
from sterna.tir.stmt import BufferLoad, BufferStore
from tests.codegen.test_llvm_common import kernel, make_buffer

# A processor with AVX-VNNI-INT8, of which the records of Sterna know no instruction.
MACHINE = "llvm -mtriple=x86_64-linux-gnu -mcpu=sierraforest"
ROW = Dot4(("avxvnniint8",), intrinsics={
    ("int", "int"): {8: "llvm.x86.avx2.vpdpbssd.256", 4: "llvm.x86.avx2.vpdpbssd.128"},
    ("uint", "int"): {8: "llvm.x86.avx512.vpdpbusd.256", 4: "llvm.x86.avx512.vpdpbusd.128"},
})


def machine_code(data: str, weight: str) -> str:
    """Of one dot4 of vectors as long as the machine's registers."""
    lanes = machine_of(Target(MACHINE)).lanes(32)
    a, b = (make_buffer(name, dtype, 4 * lanes) for name, dtype in (("a", data), ("b", weight)))
    sums = make_buffer("sums", "int32", lanes)
    whole, every = (Ramp(const(0), const(1), count) for count in (lanes, 4 * lanes))
    operands = (BufferLoad(buffer, (every,)) for buffer in (a, b))
    added = BufferStore(sums, dot4(BufferLoad(sums, (whole,)), *operands), (whole,))
    return str(tvm.build(kernel("f", [a, b, sums], added), target=MACHINE).get_source("asm"))


def test_a_dot_product_is_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Schedules, operators and the code generator use it: nothing else has to know."""
    before = machine_code("int8", "int8")
    assert "vpdpbusd" in before and "vpdpbssd" not in before
    monkeypatch.setitem(instruction_sets(), X86.name, replace(X86, dot4=(ROW, *X86.dot4)))
    after = machine_code("int8", "int8")
    assert "vpdpbssd" in after and "vpdpbusd" not in after
    assert "vpdpbusd" in machine_code("uint8", "int8")
    assert machine_of(Target(MACHINE)).instructions.dot4 is ROW
    assert processor_of(Target(MACHINE)).has_dot4


def test_signs_that_a_dot_product_takes() -> None:
    """Operators move bytes to the other sign where only one is multiplied by int8 at once."""
    assert [row.data_types for row in X86.dot4] == [("uint8",), ("uint8",)]
    assert [row.data_types for row in AARCH64.dot4] == [("int8", "uint8"), ("int8",)]
    assert ROW.data_types == ("int8", "uint8")


def test_capabilities_are_asked_by_name() -> None:
    has = Instructions("x86", frozenset({"avx2", "avx", "sse2", "sse"}))
    assert has.provides("dot2") and not has.provides("dot4")
    assert has.dot2 is X86.dot2[1] and has.vector_registers.bits == 256
    assert not Instructions().provides("dot2") and Instructions().vector_registers.bits == 0
    with pytest.raises(ValueError, match=r"no capability 'dot5'; there are .*dot4"):
        has.provides("dot5")


def test_instruction_sets_are_found_by_listing() -> None:
    found = instruction_sets()
    assert found["x86"] is X86 and {"aarch64", "arm", "riscv64", "riscv32", "wasm"} <= found.keys()
    assert all(name == isa.name and isa.spellings for name, isa in found.items())
