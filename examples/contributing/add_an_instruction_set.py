"""Compiles a kernel for a processor whose instruction set lies in a folder of its own."""

from pathlib import Path

import sterna
from sterna import isa, te
from sterna.target import machine_of, processors

# In the tree both files lie in these folders themselves, and nothing else has to know them.
here = Path(__file__).parent
isa.__path__.append(str(here / "instruction_sets"))
processors.__path__.append(str(here / "processors"))

target = sterna.target.Target("llvm -mcpu=niagara4")
machine = machine_of(target)
print(machine.triple, machine.instructions.provides("fused_multiply_add"))

A = te.placeholder((64,), name="A")
B = te.compute((64,), lambda i: A[i] * 2.0 + 1.0, name="B")
kernel = sterna.build(te.create_schedule(B.op), [A, B], target)
lines = kernel.get_source("asm").splitlines()
print(any("fmadds" in line for line in lines))
