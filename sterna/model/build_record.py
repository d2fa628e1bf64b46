"""How a model was compiled, for its report."""

from collections.abc import Mapping
from dataclasses import dataclass

from sterna.driver import GraphExecutorFactoryModule
from sterna.lowering.unique_kernels import unique_kernels
from sterna.model.report import KernelFacts
from sterna.relay.expr import Function
from sterna.relay.op import record_of
from sterna.relay.traverse import post_order


@dataclass(frozen=True, slots=True)
class BuildRecord:
    """What compiling a model gave, and how long its stages took."""

    factory: GraphExecutorFactoryModule
    opt_level: int
    stages: Mapping[str, float]
    """Seconds by stage."""
    facts: Mapping[str, KernelFacts] | None = None
    """What is known about each kernel, where the graph is not at hand."""

    @property
    def target(self) -> str:
        """What it was compiled for."""
        return str(self.factory.target)

    def kernels(self) -> Mapping[str, KernelFacts]:
        """What is known about each kernel by its name."""
        if self.facts is not None:
            return self.facts
        prefix = f"tvmgen_{self.factory.libmod_name}"
        kernels = unique_kernels(self.factory.ir_mod["main"], prefix).functions
        notes = self.factory.kernel_notes
        return {n: KernelFacts(operators_of(f), notes.get(n)) for n, f in kernels.items()}


def operators_of(kernel: Function) -> tuple[str, ...]:
    """The operators that were fused into a kernel, in the order in which they run."""
    return tuple(r.name for r in map(record_of, post_order(kernel.body)) if r is not None)
