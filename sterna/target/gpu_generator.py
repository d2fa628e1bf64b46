"""What code generators of all GPU languages share: kernels apart from the host, and limits."""

import math
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from sterna.codegen.code import Code
from sterna.codegen.device import DeviceCode, DeviceModule, DeviceProgram
from sterna.ir import build
from sterna.ir.expr import Call, Expr
from sterna.ir.node import Node, post_order
from sterna.ir.visitor import Rewriter
from sterna.target.code_generator import CodeGenerator
from sterna.target.target import Target
from sterna.tir.passes.split_host_device import launch_of, split_host_device
from sterna.tir.stmt import Allocate, PrimFunc
from sterna.tir.threads import is_shared
from sterna.tir.wanted_array import WantedArray


class GPUGenerator(CodeGenerator):
    """One that makes a program of kernels for each function, and lets LLVM make the host's code."""

    device: ClassVar[str]
    """The kind of device that runs the kernels, which is what their module is called by."""

    @abstractmethod
    def program(self, kernels: Sequence[PrimFunc], target: Target) -> str:
        """The text of a program of kernels, for the device's driver."""

    def compile(
        self, functions: Sequence[PrimFunc], target: Target, name: str,
        targets: Sequence[Target] = (),
    ) -> Code:
        on_host: list[PrimFunc] = []
        programs: list[DeviceProgram] = []
        for function in functions:
            if function.attrs.get("packed"):
                on_host.append(_on_device(function, target.kind.device_type))
                continue
            own, kernels = split_host_device(function)
            on_host.append(own)
            for kernel in kernels:
                check_limits(kernel, target)
            if kernels:
                programs.append(DeviceProgram.of(kernels, self.program(kernels, target)))
        host = host_of(target)
        code = host.kind.code_generator().compile(on_host, host, name, [host])
        return DeviceCode(code, DeviceModule.make(self.device, programs))

    def triple(self, target: Target) -> str:
        """That of the host."""
        host = host_of(target)
        return host.kind.code_generator().triple(host)


def host_of(target: Target) -> Target:
    """The target of what launches a target's kernels."""
    return target.host or Target("llvm")


class _DeviceChecks(Rewriter):
    def __init__(self, device_type: int) -> None:
        self.device_type = device_type

    def visit_Call(self, call: Call) -> Expr:
        if call.op != "check_array":
            kept: Expr = self.rewrite_children(call)
            return kept
        wanted = replace(WantedArray.of(call), device_type=self.device_type)
        number = build.int_value(call.args[1])
        assert number is not None, "arguments are checked by their numbers"
        return wanted.check(call.args[0], number)


def _on_device(packed: PrimFunc, device_type: int) -> PrimFunc:
    """A packed function that takes arrays of a device."""
    return packed.with_body(_DeviceChecks(device_type).rewrite(packed.body))


def check_limits(kernel: PrimFunc, target: Target) -> None:
    """Refuse a kernel that a target has no room for, before its code is made."""
    threads = launch_of(kernel).block_size
    limits = target.attrs
    most = limits.get("max_threads_per_block") or limits.get("max_num_threads")
    if threads is not None and isinstance(most, int) and threads > most:
        raise ValueError(
            f"{kernel.name} has blocks of {threads} threads, and the target {target.kind.name} "
            f"allows {most}; bind smaller loops to threadIdx, or say what the device has: "
            f'"{target.kind.name} -max_threads_per_block={threads}"'
        )
    shared = shared_bytes(kernel)
    room = limits.get("max_shared_memory_per_block")
    if isinstance(room, int) and shared > room:
        raise ValueError(
            f"{kernel.name} takes {shared} bytes of shared memory, and the target "
            f"{target.kind.name} has {room}; use smaller tiles, or say what the device has: "
            f'"{target.kind.name} -max_shared_memory_per_block={shared}"'
        )
    most = limits.get("max_function_args")
    if isinstance(most, int) and len(kernel.params) > most:
        raise ValueError(
            f"{kernel.name} takes {len(kernel.params)} arguments, and the target "
            f"{target.kind.name} allows {most}; fuse fewer operators into it"
        )


def shared_bytes(kernel: PrimFunc) -> int:
    """The memory that the threads of a block of a kernel share."""
    found: list[int] = []

    def look(node: Node) -> None:
        if isinstance(node, Allocate) and is_shared(node.buffer.scope):
            extents = [build.int_value(extent) or 0 for extent in node.buffer.shape]
            found.append(node.buffer.dtype.bytes_of(math.prod(extents)))

    post_order(kernel, look)
    return sum(found)
