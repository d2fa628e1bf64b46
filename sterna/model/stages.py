"""A model at each stage on its way to code, as text, and what it consists of."""

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from sterna.driver import relay_build
from sterna.driver.kernel import kernel_functions
from sterna.ir.module import OUTPUT_NAMES, IRModule
from sterna.ir.transform import PassContext
from sterna.ir.types import flatten_type, show_shape
from sterna.lowering.graph import is_view
from sterna.lowering.unique_kernels import unique_kernels
from sterna.lowering.work import bytes_of
from sterna.model.graph_boxes import Boxes, graph_boxes
from sterna.relay.analysis import get_total_mac_number, list_op_freqs
from sterna.relay.expr import Constant, Function
from sterna.relay.passes.bind_params import bind_params
from sterna.relay.traverse import post_order
from sterna.target import Target
from sterna.target.code_generator import CodeGenerator
from sterna.target.code_generators import c, llvm
from sterna.tir.stmt import PrimFunc

PREFIX = "tvmgen_default"


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a graph consists of."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operators: dict[str, int]
    """How often each is called, the most frequent first."""
    macs: int
    parameters: int
    parameter_bytes: int

    def to_dict(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)


def statistics_of(module: IRModule) -> Statistics:
    """What a model's graph consists of, before any pass."""
    main = module["main"]
    kinds = flatten_type(main.body.checked_type)
    names = module.attrs.get(OUTPUT_NAMES) or [f"output{i}" for i in range(len(kinds))]
    arrays = {id(e.data): e.checked_type for e in post_order(main) if isinstance(e, Constant)}
    tensors = [kind for held in arrays.values() for kind in flatten_type(held)]
    counts = sorted(list_op_freqs(module).items(), key=lambda item: (-item[1], item[0]))
    return Statistics(
        inputs=tuple(f"{p.name_hint}: {_shown(p.checked_type)}" for p in main.params),
        outputs=tuple(f"{n}: {_shown(kind)}" for n, kind in zip(names, kinds, strict=True)),
        operators=dict(counts),
        macs=get_total_mac_number(main),
        parameters=sum(math.prod(kind.concrete_shape) for kind in tensors),
        parameter_bytes=sum(map(bytes_of, tensors)),
    )


def _shown(kind: Any) -> str:
    return ", ".join(f"{t.dtype}{show_shape(t.shape)}" for t in flatten_type(kind))


@dataclass(frozen=True, slots=True)
class Stages:
    """A model, and what it becomes under a target and a level."""

    module: IRModule
    target: Target
    opt_level: int = 3

    @classmethod
    def of(
        cls, module: IRModule, params: Mapping[str, Any], target: Target, opt_level: int
    ) -> "Stages":
        """The stages of a graph whose weights are made constants of it."""
        if params:
            module = module.shallow_copy()
            module["main"] = bind_params(module["main"], params)
        return cls(module, target, opt_level)

    def optimized(self) -> IRModule:
        """The graph after all passes of the level, its operators fused into kernels."""
        with PassContext(self.opt_level):
            return relay_build.optimize(self.module, self.target)[0]

    def boxes(self) -> Boxes:
        """The fused graph, to be drawn."""
        done = self.optimized()
        return graph_boxes(done["main"], self.module.attrs.get(OUTPUT_NAMES, ()))

    def kernels(self, chosen: str = "") -> dict[str, Function]:
        """The kernels whose names contain a text."""
        functions = unique_kernels(self.optimized()["main"], PREFIX).functions
        found = {n: f for n, f in functions.items() if not is_view(f)}
        matching = {name: f for name, f in found.items() if chosen in name}
        if not matching and chosen:
            raise ValueError(f"no kernel's name has '{chosen}' in it; they are {', '.join(found)}")
        return matching

    def text(self, stage: str, chosen: str = "") -> str:
        """The model at a stage: one of STAGES; chosen picks kernels, where there are kernels."""
        if stage not in STAGES:
            raise ValueError(f"there is no stage '{stage}'; they are {', '.join(STAGES)}")
        return STAGES[stage](self, chosen)

    def _loops(self, chosen: str) -> dict[str, list[PrimFunc]]:
        with PassContext(self.opt_level):
            return {
                name: kernel_functions(name, function, self.target)
                for name, function in self.kernels(chosen).items()
            }

    def _tir(self, chosen: str) -> str:
        return "\n\n".join(str(loops[0]) for loops in self._loops(chosen).values())

    def _code(self, generator: CodeGenerator, form: str, chosen: str) -> str:
        loops = [each for both in self._loops(chosen).values() for each in both]
        return generator.compile(loops, self.target, PREFIX).source(form)


STAGES: dict[str, Callable[[Stages, str], str]] = {
    "relay": lambda model, chosen: str(model.module),
    "optimized": lambda model, chosen: str(model.optimized()),
    "tir": lambda model, chosen: model._tir(chosen),
    "llvm": lambda model, chosen: model._code(llvm.GENERATOR, "ll", chosen),
    "asm": lambda model, chosen: model._code(llvm.GENERATOR, "asm", chosen),
    "c": lambda model, chosen: model._code(c.GENERATOR, "c", chosen),
}
