"""One kernel of a graph from its fused function to object code."""

from sterna.codegen import llvm
from sterna.driver.build import llvm_options
from sterna.lowering.lower_kernel import LoweredKernel, lower_kernel
from sterna.op.kernel import Processor
from sterna.relay.expr import Function
from sterna.support.recursion import deep_recursion
from sterna.target import Target, machine_of
from sterna.tir import pipeline
from sterna.tir.passes.make_packed import make_packed
from sterna.tir.stmt import PrimFunc

L1_BYTES, L2_BYTES = 32 * 1024, 512 * 1024


def processor_of(target: Target) -> Processor:
    """What schedules are told about a target."""
    machine = machine_of(target)
    return Processor(
        vector_bits=machine.vector_bits or 32,
        vector_registers=machine.vector_registers or 8,
        l1_bytes=machine.l1_bytes or L1_BYTES,
        l2_bytes=machine.l2_bytes or L2_BYTES,
        threads=machine.cores or 1,
    )


def kernel_functions(name: str, function: Function, target: Target) -> list[PrimFunc]:
    """The loops of a kernel after all passes, and the packed function around them."""
    with deep_recursion():
        lowered: LoweredKernel = lower_kernel(function, name, processor_of(target))
        loops = pipeline.run(lowered.function)
        return [loops, make_packed(loops, lowered.arguments)]


def compile_kernel(name: str, function: Function, target: Target) -> bytes:
    """The object file of a kernel."""
    functions = kernel_functions(name, function, target)
    with deep_recursion():
        return llvm.CompiledModule(functions, llvm_options(target), name).object_bytes()
