"""The kernels of a graph as code: each by itself, or all together, as their code generator can."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from types import MappingProxyType

from sterna.codegen.code import Code
from sterna.codegen.device import LaunchedKernel
from sterna.driver.compile_kernels import compile_kernels
from sterna.driver.kernel import KernelNotes, Pairs, annotated_functions, kernel_functions
from sterna.lowering.entry import declare
from sterna.relay.expr import Function
from sterna.support.progress import stage
from sterna.support.recursion import deep_recursion
from sterna.target import Target, is_gpu
from sterna.target.code_generator import KernelCodeGenerator
from sterna.tir.stmt import COMPUTES, PrimFunc


@dataclass(frozen=True, slots=True)
class KernelSet:
    """The kernels of a graph, and how they were asked for."""

    functions: Mapping[str, Function]
    target: Target
    packed: bool
    """Whether each has a packed function around it; else other functions call it."""
    shares: Mapping[str, Pairs]
    """Operands that may be given the same memory; see kernel.py."""


@dataclass(frozen=True, slots=True)
class Kernels:
    """Kernels before they become the code of one module."""

    made_from: KernelSet
    notes: dict[str, KernelNotes]
    compiled: dict[str, bytes]
    """Those that were compiled by themselves."""
    loops: list[PrimFunc]
    """Those that are compiled together."""
    refused: dict[str, str]
    """Those that the device cannot run, and why; the host's processor is left to run them."""

    def code(self, name: str, main: Sequence[PrimFunc] = ()) -> Code:
        """The code of all; main: functions that call them, and the packed ones around these."""
        target = self.made_from.target
        generator = target.kind.code_generator()
        if not isinstance(generator, KernelCodeGenerator):
            with deep_recursion():
                return generator.compile([*self.loops, *main], target, name)
        compiled = dict(self.compiled)
        if main:
            with deep_recursion():
                own_names = {each.name for each in main}
                called = [each for one in main for each in declare(one)]
                declared = {each.name: each for each in called if each.name not in own_names}
                functions = [*declared.values(), *main]
                own = main[0].name
                compiled[own] = generator.compile_kernel(functions, target, own)

        return generator.link(compiled, target, partial(self.text, name, main))

    def text(self, name: str, main: Sequence[PrimFunc], form: str) -> str:
        """All in one of the forms of their code generator."""
        target = self.made_from.target
        loops = [*_all_loops(self.made_from), *main]
        return target.kind.code_generator().compile(loops, target, name).source(form)


def make_kernels(
    functions: dict[str, Function], target: Target, packed: bool, shares: Mapping[str, Pairs],
    sources: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Kernels:
    """The kernels of a graph, compiled as far as each is by itself.

    sources: the nodes of the model that each computes, for code that people read.
    """
    asked = KernelSet(functions, target, packed, shares)
    if isinstance(target.kind.code_generator(), KernelCodeGenerator):
        refused: dict[str, str] = {}
        can_refuse = refused if packed and is_gpu(target) else None
        made = compile_kernels(functions, target, packed, shares, can_refuse)
        notes = {name: kernel.notes for name, kernel in made.items()}
        compiled = {name: kernel.content for name, kernel in made.items()}
        return Kernels(asked, notes, compiled, [], refused)
    loops, notes = [], {}
    with stage("compile kernels", len(functions)) as at:
        for name, function in functions.items():
            at.begin(name)
            pairs = shares.get(name, ())
            found, notes[name] = annotated_functions(name, function, target, packed, pairs)
            told = {COMPUTES: sources.get(name, ())}
            loops += [
                each if each.attrs.get("packed") else replace(each, attrs={**each.attrs, **told})
                for each in found
            ]
            at.end(name)
    return Kernels(asked, notes, {}, loops, {})


def joined_code(on_device: Kernels, on_host: Kernels, name: str) -> Code:
    """The code of kernels of a GPU and of the processor that launches them, as one module."""
    target, host = on_device.made_from.target, on_host.made_from.target
    generator, own = target.kind.code_generator(), host.kind.code_generator()
    if not isinstance(generator, KernelCodeGenerator) or not isinstance(own, KernelCodeGenerator):
        raise ValueError(
            f"the processor beside a GPU is compiled for llvm, not for {host.kind.name}"
        )
    if generator.triple(target) != own.triple(host):
        raise ValueError(
            f"the target {host} is for {own.triple(host)}, and {target} is launched by a host of "
            f"{generator.triple(target)}; give both the same"
        )
    hosted = {n: LaunchedKernel(code, ()).to_bytes() for n, code in on_host.compiled.items()}

    def text(form: str) -> str:
        return "\n".join(part.text(name, (), form) for part in (on_host, on_device))

    return generator.link({**on_device.compiled, **hosted}, target, text)


def _all_loops(kernels: KernelSet) -> list[PrimFunc]:
    return [
        loops
        for name, function in kernels.functions.items()
        for loops in kernel_functions(
            name, function, kernels.target, kernels.packed, kernels.shares.get(name, ())
        )
    ]
