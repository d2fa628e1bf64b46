"""Kernels that start before the one in front of them has ended, and the marks of their loads.

Such a kernel lets the next one start at once and waits before it touches memory. The addresses of
its arrays pass through the wait, so that no load can move in front of it. That takes from LLVM what
it knows of parameters, that arrays do not overlap and which are only read: marks at the loads and
stores say it again.
"""

from collections.abc import Sequence

from sterna.codegen.llvm.emitter import FunctionWriter, ModuleWriter

_WAIT = "griddepcontrol.launch_dependents; griddepcontrol.wait;"


class MarkedWriter(FunctionWriter):
    """A function whose loads and stores carry the mark of the array that was addressed last."""

    mark = ""
    """Of loads and stores."""
    load_mark = ""
    """Of loads alone."""

    def value(self, instruction: str) -> str:
        if instruction.startswith("load "):
            instruction += self.mark + self.load_mark
        return super().value(instruction)

    def emit(self, instruction: str) -> None:
        super().emit(instruction + self.mark if instruction.startswith("store ") else instruction)


def wait(writer: FunctionWriter, addresses: Sequence[str]) -> list[str]:
    """Wait for the kernels before this one; the addresses as they are known from there on."""
    kinds = ["ptr addrspace(1)"] * len(addresses)
    places = [*["=l"] * len(addresses), *map(str, range(len(addresses))), "~{memory}"]
    result = "void" if not kinds else kinds[0] if len(kinds) == 1 else f"{{ {', '.join(kinds)} }}"
    given = ", ".join(f"ptr addrspace(1) {address}" for address in addresses)
    call = f'call {result} asm sideeffect "{_WAIT}", "{",".join(places)}"({given}) nounwind'
    if not kinds:
        writer.emit(call)
        return []
    whole = writer.value(call)
    if len(kinds) == 1:
        return [whole]
    return [writer.value(f"extractvalue {result} {whole}, {place}") for place in range(len(kinds))]


def marks(module: ModuleWriter, arrays: int) -> list[str]:
    """What says of each array that it overlaps with none of the others."""
    domain = module.distinct_loop()
    scopes = [module.distinct_loop(domain) for _ in range(arrays)]
    found = []
    for own in scopes:
        others = ", ".join(scope for scope in scopes if scope != own)
        mark = f", !alias.scope {module.metadata(f'!{{{own}}}')}"
        found.append(mark + (f", !noalias {module.metadata(f'!{{{others}}}')}" if others else ""))
    return found


def never_written(module: ModuleWriter) -> str:
    """What says of a load that nobody writes there while the kernel runs."""
    return f", !invariant.load {module.metadata('!{}')}"
