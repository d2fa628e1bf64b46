"""The support object: what the kernels of a program share, compiled once beside them.

Each kernel checks its arguments and hands out its loops. The functions that do so are the same for
all of them, so a kernel that is compiled by itself only calls them, which is less for LLVM to do
than the loops of most kernels.
"""

import functools

import llvmlite.binding as llvm

from sterna.codegen.llvm import host
from sterna.codegen.llvm.check_array import check_arrays
from sterna.codegen.llvm.emitter import ModuleWriter, Support
from sterna.codegen.llvm.machine import LOCK, LLVMOptions, create_machine, optimize


@functools.cache
def support_object(options: LLVMOptions) -> bytes:
    """An object file with the functions that kernels share; several in a program are as one."""
    module = ModuleWriter(options, "support", Support.DEFINED)
    host.define_host(module)
    for write in (host.fail, host.parallel, host.allocate, host.release, check_arrays):
        write(module)
    with LOCK:
        machine = create_machine(options)
        made = llvm.parse_assembly(module.text(), llvm.create_context())
        optimize(made, machine, options.opt_level)
        content: bytes = machine.emit_object(made)
        return content
