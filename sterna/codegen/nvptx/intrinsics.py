"""What a Call in a kernel may name beside the functions that all machines have.

A row is a function from the emitter and the call to the operand that holds the result ("0" where
there is none), and what the instruction needs. Other files add rows to the table.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.codegen.llvm import convert
from sterna.codegen.nvptx.architecture import NOTHING, Needs
from sterna.ir.expr import Call, StringImm

if TYPE_CHECKING:
    from sterna.codegen.nvptx.kernel import KernelEmitter

Write = Callable[["KernelEmitter", Call], str]


@dataclass(frozen=True, slots=True)
class DeviceIntrinsic:
    """How a GPU does what a Call names."""

    write: Write
    needs: Needs = NOTHING


def _storage_sync(emitter: "KernelEmitter", call: Call) -> str:
    scope = call.args[0]
    if isinstance(scope, StringImm) and scope.value == "warp":
        emitter.need(Needs(30, 60), "storage_sync of a warp")
        return emitter.instruction("llvm.nvvm.bar.warp.sync", "void", ("i32", "-1"))
    return emitter.instruction("llvm.nvvm.barrier.cta.sync.aligned.all", "void", ("i32", "0"))


def _nothing(emitter: "KernelEmitter", call: Call) -> str:
    return convert.zero(call.dtype)


DEVICE_INTRINSICS: dict[str, DeviceIntrinsic] = {
    "storage_sync": DeviceIntrinsic(_storage_sync),
    "prefetch": DeviceIntrinsic(_nothing),
}
