"""relay.vm.compile: from a module with control flow to a program of the virtual machine.

Control flow becomes code of the virtual machine. What lies between two steps of it is a block that
goes the way of any network: the same passes, kernels and memory plan, as one compiled function.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np

from sterna.driver.external_compilers import refuse_other_parts
from sterna.driver.kernel_code import make_kernels
from sterna.driver.operator_module import OperatorModule
from sterna.driver.relay_build import find_target, optimize
from sterna.ir.module import IRModule
from sterna.lowering.entry import EntryFunction, make_entry
from sterna.lowering.graph import Graph, is_view, make_graph
from sterna.lowering.image_entry import make_image_entry
from sterna.lowering.one_image import OneImage, one_image
from sterna.lowering.open_entry import OpenEntry, is_open, make_open_entry
from sterna.lowering.order import order_steps
from sterna.lowering.storage import Layout, in_place_candidates
from sterna.lowering.unique_kernels import Kernels, unique_kernels
from sterna.lowering.vm_code import Instruction, VMBlock, VMFunction, VMProgram
from sterna.lowering.vm_compile import compile_functions
from sterna.relay.expr import Call, Function, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.op import call
from sterna.relay.passes.bind_params import bind_params
from sterna.relay.passes.infer_type import infer_type
from sterna.relay.passes.measure_results import measure_results
from sterna.relay.passes.remove_unused_functions import remove_unused_functions
from sterna.relay.requirements import collecting
from sterna.runtime.ndarray import array
from sterna.runtime.vm import Executable
from sterna.support.progress import stage
from sterna.target import Target, is_gpu, processor_of
from sterna.tir.passes.make_packed import make_packed
from sterna.tir.stmt import PrimFunc


def compile(
    mod: IRModule | Function,
    target: Any = None,
    target_host: Any = None,
    params: Mapping[str, Any] | None = None,
    mod_name: str = "default",
    about: str = "",
) -> Executable:
    """Compile a module with control flow, whose function main is run first, for a target.

    about: text that the program's function "about" gives, for whoever loads it.
    """
    wanted = find_target(target, target_host)
    on_gpu = is_gpu(wanted)
    module = prepared(mod, params)
    refuse_other_parts(module, "the virtual machine")
    with stage("take control flow apart"):
        compiled = compile_functions(module)
    with stage("optimize the blocks"):
        blocks, requirements = [], []
        images: list[OneImage | None] = []
        for block in compiled.blocks:
            with collecting() as needs:
                image = None if on_gpu else one_image(block)
                made_block = _optimized(block if image is None else image.block, wanted)
                images.append(image)
                blocks.append(with_own_results(made_block) if on_gpu else made_block)
            requirements.append(needs)
    prefix = f"tvmgen_{mod_name}"
    kernels = _kernels_of(blocks, prefix)
    graphs = [_ordered(make_graph(block, kernels, symbolic=True)) for block in blocks]
    needed = {n: f for n, f in kernels.functions.items() if not is_view(f)}
    shares: dict[str, Any] = {}
    for graph in () if on_gpu else graphs:
        for name, pairs in in_place_candidates(graph).items():
            shares[name] = list(dict.fromkeys([*shares.get(name, ()), *pairs]))
    made = make_kernels(needed, wanted, False, shares)
    take_over = {name: note.take_over for name, note in made.notes.items()}
    layout = Layout(take_over=take_over, threads=processor_of(wanted).threads)
    constants = _Constants(list(compiled.constants))
    parts: list[VMBlock] = []
    mains: list[PrimFunc] = []
    for place, (graph, needs) in enumerate(zip(graphs, requirements, strict=True)):
        name, image = f"{prefix}_block{place}", images[place]
        if image is not None:
            entry = make_entry(graph, f"{name}_image", layout)
            opened = make_image_entry(compiled.blocks[place], image, entry, name, needs)
            parts.append(_open_block(opened, graph, constants))
            mains += [entry.function, *_open_mains(opened)]
        elif is_open(graph):
            opened = make_open_entry(graph, name, kernels.functions, take_over, needs)
            parts.append(_open_block(opened, graph, constants))
            mains += _open_mains(opened)
        else:
            entry = make_entry(graph, name, layout)
            parts.append(_block(entry, graph, constants))
            mains += _mains(entry)
    code = made.code(prefix, mains) if mains else None
    lib = None if code is None else OperatorModule.make(code, mod_name, {wanted: module})
    if about:
        compiled.functions.append(_about(constants.number(array(_bytes_of(about)))))
    program = VMProgram(compiled.functions, parts, constants.arrays)
    return Executable(program.to_bytes(), lib, constants.arrays)


class VMCompiler:
    """The steps of compile one by one, as classic programs take them."""

    def __init__(self) -> None:
        self._params: dict[str, Any] = {}
        self._made: Executable | None = None

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Parameters that are bound when the module is lowered."""
        self._params.update(params)

    def get_params(self) -> dict[str, Any]:
        """The parameters that were set."""
        return dict(self._params)

    def lower(self, mod: IRModule, target: Any = None, target_host: Any = None) -> None:
        """Compile the module; codegen and get_exec follow."""
        self._made = compile(mod, target, target_host, self._params)

    def codegen(self) -> None:
        """Nothing is left to do: lowering has compiled the blocks."""

    def optimize(
        self, mod: IRModule, target: Any = None, target_host: Any = None,
        params: Mapping[str, Any] | None = None,
    ) -> tuple[IRModule, dict[str, Any]]:
        """The module as it is taken apart: with parameters bound and types everywhere."""
        return prepared(mod, {**self._params, **(params or {})}), {}

    def get_exec(self) -> Executable:
        """What lower has made."""
        if self._made is None:
            raise ValueError("lower a module first")
        return self._made


def prepared(mod: IRModule | Function, params: Mapping[str, Any] | None) -> IRModule:
    """The module with its parameters bound, types everywhere, and only functions in use."""
    module = IRModule.from_expr(mod) if isinstance(mod, Function) else mod
    if not isinstance(module, IRModule):
        raise TypeError(f"a program is an IRModule, not {type(module).__name__}")
    if "main" not in module:
        raise ValueError(f"the module has no function main; it has {', '.join(module) or 'none'}")
    if params:
        module = module.shallow_copy()
        module["main"] = bind_params(module["main"], params)
    return infer_type(measure_results(remove_unused_functions(module, ["main"])))


def _optimized(block: Function, target: Target) -> Function:
    with target:
        module, _ = optimize(IRModule.from_expr(block), target)
    main: Function = module["main"]
    return main


def with_own_results(block: Function) -> Function:
    """A block of kernels, each of whose results is memory that a kernel of its own writes.

    On a device the host can copy nothing by itself: what is an input, a constant or another result
    is copied by a kernel.
    """
    parts = block.body.fields if isinstance(block.body, Tuple) else (block.body,)
    seen: set[tuple[int, int]] = set()
    made: list[RelayExpr] = []
    for part in parts:
        owner: RelayExpr = part
        index = -1
        while True:
            if isinstance(owner, TupleGetItem):
                index, owner = owner.index, owner.tuple_value
            elif isinstance(owner, Call) and isinstance(owner.op, Function) and is_view(owner.op):
                (owner,) = owner.args
            else:
                break
        is_own = isinstance(owner, Call) and (id(owner), index) not in seen
        seen.add((id(owner), index))
        made.append(part if is_own else _copied(part))
    body = Tuple(tuple(made)) if isinstance(block.body, Tuple) else made[0]
    return Function(block.params, body, None, block.type_params, block.attrs)


def _copied(part: RelayExpr) -> RelayExpr:
    param = Var("p0", part.checked_type)
    return Call(Function((param,), call("copy", param), attrs={"Primitive": 1}), (part,))


def _kernels_of(blocks: list[Function], prefix: str) -> Kernels:
    """The distinct kernels of all blocks together."""
    every = tuple(param for block in blocks for param in block.params)
    whole = Function(every, Tuple(tuple(block.body for block in blocks)))
    return unique_kernels(whole, prefix)


def _bytes_of(text: str) -> Any:
    return np.frombuffer(text.encode(), np.uint8)


def _about(constant: int) -> VMFunction:
    """A function that gives a constant."""
    code = [Instruction("constant", (0, constant)), Instruction("return", (0,))]
    return VMFunction("about", [], [*code], 1)


def _ordered(graph: Graph) -> Graph:
    return graph if is_open(graph) else order_steps(graph)


def _mains(entry: EntryFunction) -> list[PrimFunc]:
    function = entry.function
    return [function, make_packed(function, len(function.params))]


def _open_mains(entry: OpenEntry) -> list[PrimFunc]:
    """Both functions of a block; callers say no symbols, which the arrays' shapes tell."""
    return [
        each for function in (entry.function, entry.extents)
        for each in (function, make_packed(function, sum(b is not None for b in function.buffers)))
    ]


class _Constants:
    """The constants of a program, each once."""

    def __init__(self, arrays: list[Any]) -> None:
        self.arrays = arrays
        self.numbers = {id(array): place for place, array in enumerate(arrays)}

    def number(self, array: Any) -> int:
        if id(array) not in self.numbers:
            self.numbers[id(array)] = len(self.arrays)
            self.arrays.append(array)
        return self.numbers[id(array)]


def _block(entry: EntryFunction, graph: Graph, constants: _Constants) -> VMBlock:
    """A block as the virtual machine calls it; its constants join those of the program."""
    used = [constants.number(graph.params[tensor.name]) for tensor in entry.constants]
    (workspace,) = entry.pool_bytes
    kinds = [tensor.type for tensor in entry.outputs]
    return VMBlock(entry.function.name, len(entry.inputs), used, kinds, max(1, workspace))


def _open_block(entry: OpenEntry, graph: Graph, constants: _Constants) -> VMBlock:
    used = [constants.number(graph.params[name]) for name in entry.constants]
    return VMBlock(entry.function.name, entry.inputs, used, entry.outputs, 0, True)
