"""How a model was compiled, kept for its report."""

from collections.abc import Mapping
from dataclasses import dataclass

from sterna.driver import GraphExecutorFactoryModule
from sterna.lowering.unique_kernels import unique_kernels
from sterna.model.report import KernelFacts
from sterna.relay.expr import Call, Function
from sterna.relay.op import record_of
from sterna.relay.traverse import not_primitive, post_order


@dataclass(frozen=True, slots=True)
class Build:
    """What compiling a model gave, and how long its stages took."""

    factory: GraphExecutorFactoryModule
    opt_level: int
    stages: Mapping[str, float]
    """Seconds by stage."""

    @property
    def target(self) -> str:
        """What it was compiled for."""
        return str(self.factory.target)

    def kernels(self) -> dict[str, KernelFacts]:
        """What is known about each kernel by its name."""
        main = self.factory.ir_mod["main"]
        kernels = unique_kernels(main, f"tvmgen_{self.factory.libmod_name}")
        sources = _sources(main, kernels.names)
        return {
            name: KernelFacts(
                operators=operators_of(function),
                sources=tuple(sources.get(name, ())),
                notes=self.factory.kernel_notes.get(name),
            )
            for name, function in kernels.functions.items()
        }


def operators_of(kernel: Function) -> tuple[str, ...]:
    """The operators that were fused into a kernel, in the order in which they run."""
    return tuple(r.name for r in map(record_of, post_order(kernel.body)) if r is not None)


def _sources(main: Function, names: Mapping[int, str]) -> dict[str, list[str]]:
    """By kernel the names, in the model that was imported, of what it computes."""
    found: dict[str, dict[str, None]] = {}
    for call in post_order(main, not_primitive):
        if isinstance(call, Call) and isinstance(call.op, Function) and id(call.op) in names:
            held = found.setdefault(names[id(call.op)], {})
            held.update({part.span: None for part in post_order(call.op.body) if part.span})
    return {name: list(spans) for name, spans in found.items()}
