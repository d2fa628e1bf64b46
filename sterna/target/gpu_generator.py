"""What code generators of all GPU languages share: kernels apart from the host, and limits."""

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from sterna.codegen.code import SUPPORT, Code, KernelsCode
from sterna.codegen.device import (
    DeviceCode,
    DeviceModule,
    DeviceProgram,
    LaunchedKernel,
    LaunchedKernels,
)
from sterna.codegen.nvptx.architecture import Architecture
from sterna.ir import build
from sterna.ir.expr import Call, Expr
from sterna.ir.node import Node, post_order
from sterna.ir.visitor import Rewriter
from sterna.runtime import Module
from sterna.support.dtype import DataType
from sterna.support.errors import HostOnlyError
from sterna.target.code_generator import KernelCodeGenerator
from sterna.target.for_schedules import host_of, plain_of
from sterna.target.target import Target
from sterna.tir.effects import calls
from sterna.tir.passes.split_host_device import dynamic_bytes, launch_of, split_host_device
from sterna.tir.stmt import Allocate, AssertStmt, LetStmt, PrimFunc, Stmt, seq
from sterna.tir.threads import DYNAMIC, ON_HOST, PLAIN, is_shared
from sterna.tir.wanted_array import WantedArray


class GPUGenerator(KernelCodeGenerator):
    """One that makes a program of kernels for each function, and lets LLVM make the host's code."""

    device: ClassVar[str]
    """The kind of device that runs the kernels, which is what their module is called by."""
    alignment: ClassVar[int] = 1
    """Bytes that divide the address of every array: kernels may take so many at once."""

    @abstractmethod
    def program(self, kernels: Sequence[PrimFunc], target: Target) -> str:
        """The text of a program of kernels, for the device's driver."""

    def prepared(self, kernel: PrimFunc, target: Target) -> PrimFunc:
        """A kernel with what the device's launches are to know of it."""
        return kernel

    def compile(
        self, functions: Sequence[PrimFunc], target: Target, name: str,
        targets: Sequence[Target] = (),
    ) -> Code:
        on_host, programs = self._split(functions, target)
        host = host_of(target)
        code = host.kind.code_generator().compile(on_host, host, name, [host])
        return DeviceCode(code, DeviceModule.make(self.device, programs))

    def compile_kernel(self, functions: Sequence[PrimFunc], target: Target, name: str) -> bytes:
        on_host, programs = self._split(functions, target)
        host = host_of(target)
        code = _kernel_generator(host).compile_kernel(on_host, host, name)
        return LaunchedKernel(code, tuple(programs)).to_bytes()

    def link(
        self, kernels: Mapping[str, bytes], target: Target, text: Callable[[str], str]
    ) -> KernelsCode:
        made = {name: LaunchedKernel.from_bytes(content) for name, content in kernels.items()}
        host = host_of(target)
        objects = {name: kernel.host for name, kernel in made.items()}
        linked = _kernel_generator(host).link(objects, host, text)
        if SUPPORT not in kernels:  # which the host's code has, and a cached model needs
            shared = LaunchedKernel(linked.kernels[SUPPORT], ())
            kernels = {SUPPORT: shared.to_bytes(), **kernels}
        programs = [program for kernel in made.values() for program in kernel.programs]
        return LaunchedKernels(kernels, text, linked, DeviceModule.make(self.device, programs))

    def load(self, kernels: Sequence[bytes]) -> Callable[[str], int | None]:
        objects = [LaunchedKernel.from_bytes(content).host for content in kernels]
        return _kernel_generator(Target("llvm")).load(objects)

    def device_modules(self, kernels: Sequence[bytes]) -> list[Module]:
        made = [LaunchedKernel.from_bytes(content) for content in kernels]
        programs = [program for kernel in made for program in kernel.programs]
        return [DeviceModule.make(self.device, programs)]

    def _split(
        self, functions: Sequence[PrimFunc], target: Target
    ) -> tuple[list[PrimFunc], list[DeviceProgram]]:
        """The host's functions, and a program of the kernels of each."""
        on_host: list[PrimFunc] = []
        programs: list[DeviceProgram] = []
        wanted = [b.alignment for function in functions for b in function.buffers if b is not None]
        alignment = max([self.alignment, *wanted])
        for function in functions:
            if function.attrs.get("packed"):
                on_cpu = function.attrs.get(ON_HOST, ())
                checks = _DeviceChecks(target.kind.device_type, alignment, on_cpu)
                on_host.append(function.with_body(checks.rewrite(function.body)))
                continue
            only_calls = function.attrs.get("external") or calls(function.body, "try_call")
            if only_calls or ON_HOST in function.attrs:
                on_host.append(function)  # it launches no kernel itself
                continue
            own, made = self._split_one(function, target)
            plain, other = function.attrs.get(PLAIN), plain_of(target)
            if made and plain is not None and other is not None:
                host, more = self._split_one(plain, other)
                on_host.append(host)
                made += more
                own = self.chosen(own, host, target)
            on_host.append(own)
            programs += made
        return on_host, programs

    def _split_one(
        self, function: PrimFunc, target: Target
    ) -> tuple[PrimFunc, list[DeviceProgram]]:
        own, parts = split_host_device(function)
        kernels = [self.prepared(kernel, target) for kernel in parts]
        for kernel in kernels:
            check_calls(kernel)
            check_limits(kernel, target)
        if not kernels:
            return own, []
        return own, [DeviceProgram.of(kernels, self.program(kernels, target))]

    def chosen(self, own: PrimFunc, plain: PrimFunc, target: Target) -> PrimFunc:
        """The host's part that launches its own kernels where a device runs them, else others."""
        raise ValueError(f"{target.kind.name} has one code for all of its devices")

    def triple(self, target: Target) -> str:
        """That of the host."""
        host = host_of(target)
        return host.kind.code_generator().triple(host)


def _kernel_generator(host: Target) -> KernelCodeGenerator:
    generator = host.kind.code_generator()
    if not isinstance(generator, KernelCodeGenerator):
        raise ValueError(
            f"the host of a GPU's kernels is compiled for llvm, not for {host.kind.name}"
        )
    return generator


class _DeviceChecks(Rewriter):
    """A packed function takes arrays of a device, whose addresses are as kernels need them."""

    def __init__(self, device_type: int, alignment: int, on_host: Sequence[str]) -> None:
        self.device_type = device_type
        self.alignment = alignment
        self.on_host = on_host
        self.signature = ""

    def visit_Call(self, call: Call) -> Expr:
        if call.op != "check_array":
            kept: Expr = self.rewrite_children(call)
            return kept
        wanted = WantedArray.of(call)
        if wanted.name in self.on_host:
            return call
        wanted = replace(wanted, device_type=self.device_type)
        self.signature = wanted.signature
        number = build.int_value(call.args[1])
        assert number is not None, "arguments are checked by their numbers"
        return wanted.check(call.args[0], number)

    def visit_LetStmt(self, let: LetStmt) -> Stmt:
        value = let.value
        is_address = isinstance(value, Call) and value.op == "tensor_data"
        name = let.var.name.removesuffix(".data")
        if not is_address or self.alignment == 1 or name in self.on_host:
            kept: Stmt = self.rewrite_children(let)
            return kept
        rest = Call(DataType("int64"), "reinterpret", (let.var,)) & (self.alignment - 1)
        check = AssertStmt(
            rest.equal(0), "ValueError", f"{self.signature}: the address of argument {name} must "
            f"be a multiple of {self.alignment} bytes, and the array is part of another one that "
            "begins elsewhere; copy it first",
        )
        return LetStmt(let.var, value, seq(check, self.rewrite(let.body)))


def check_calls(kernel: PrimFunc) -> None:
    """Refuse a kernel that calls functions of the host's process."""

    def look(node: Node) -> None:
        if isinstance(node, Call) and node.op in ("call_packed", "call_extern"):
            raise HostOnlyError(
                f"{kernel.name}: a kernel on a device cannot {node.op}: {str(node)[:200]}"
            )

    post_order(kernel, look)


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
    arch, launched = limits.get("arch"), dynamic_bytes(kernel)
    if isinstance(arch, str) and launched > Architecture.of(arch).most_shared:
        raise ValueError(
            f"{kernel.name} takes {launched} bytes of shared memory at its launch, and {arch} has "
            f"{Architecture.of(arch).most_shared}; use smaller tiles or fewer stages"
        )
    most = limits.get("max_function_args")
    if isinstance(most, int) and len(kernel.params) > most:
        raise ValueError(
            f"{kernel.name} takes {len(kernel.params)} arguments, and the target "
            f"{target.kind.name} allows {most}; fuse fewer operators into it"
        )


def shared_bytes(kernel: PrimFunc) -> int:
    """The memory that the threads of a block of a kernel share, without what a launch brings."""
    found: list[int] = []

    def look(node: Node) -> None:
        own = isinstance(node, Allocate) and node.buffer.scope != DYNAMIC
        if isinstance(node, Allocate) and own and is_shared(node.buffer.scope):
            extents = [build.int_value(extent) or 0 for extent in node.buffer.shape]
            found.append(node.buffer.dtype.bytes_of(math.prod(extents)))

    post_order(kernel, look)
    return sum(found)
