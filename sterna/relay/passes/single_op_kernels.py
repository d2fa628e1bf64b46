"""Kernels of one operator each, where fusion was turned off.

    nn.relu(add(%x, %y))  ->  %1 = fn (%p0, %p1, Primitive=1) { add(%p0, %p1) }
                              %2 = fn (%p0, Primitive=1) { nn.relu(%p0) }
                              %2(%1(%x, %y))
"""

from sterna.ir.module import IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Function
from sterna.relay.passes.fuse_ops import fuse_ops


def SingleOpKernels() -> Pass:
    """Make each operator a kernel of its own where disabled_pass has FuseOps; else nothing."""

    def change(func: Function, mod: IRModule, context: PassContext) -> Function:
        return single_op_kernels(func) if "FuseOps" in context.disabled_pass else func

    made: Pass = function_pass(change, opt_level=0, name="SingleOpKernels", kind=Function)
    return made


def single_op_kernels(func: Function) -> Function:
    """The function with its operators in primitive functions of their own."""
    return func if func.is_primitive else fuse_ops(func, level=0)
