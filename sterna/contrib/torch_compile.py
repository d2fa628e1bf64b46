"""The backend `sterna` of torch.compile.

    torch.compile(model, backend="sterna")
    torch.compile(model, backend="sterna", options={"opt_level": 3, "freeze": False})

Weights are constants of the compiled code, packed as its kernels read them; when one was changed in
place, the code is made anew. With freeze=False they are inputs.
Graphs that gradients are asked of are compiled too, and their backward graphs. Operators that have
no converter run as PyTorch runs them, with a warning that names them, and the parts of the graph
around them are compiled; with fallback=False it is an error.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any

import numpy as np
import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.schemas import OutputType
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import tracing
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    free_unbacked_symbols,
)
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from sterna.contrib.torch_aliases import (
    Aliases,
    aliases_of,
    laid_out,
    no_view,
    unless_written_memory_is_shared,
    with_aliases,
    with_open_aliases,
)
from sterna.contrib.torch_attributes import (
    changing_attributes,
    with_inputs_for,
    written_inputs,
)
from sterna.contrib.torch_devices import (
    DEVICES,
    HOST,
    THERE,
    array_of,
    attention_by_products,
    brought,
    device_at,
    gpus_of,
    home_of,
    in_stream_of,
    number_of,
    target_at,
    tensor_of,
)
from sterna.contrib.torch_numbers import for_numbers, numbers_of_modules
from sterna.contrib.torch_open import export_open
from sterna.contrib.torch_parts import FunctionalGraph, compile_parts, graph_of_exported
from sterna.contrib.torch_random import with_draws
from sterna.contrib.torch_record import (
    NotRecorded,
    Recorded,
    by_torch,
    read_drawless,
    record,
    with_autocast,
)
from sterna.contrib.torch_shapes import Compiled
from sterna.contrib.torch_transforms import ended_transforms, has_transforms
from sterna.frontend.format import ImportOptions
from sterna.frontend.torch.load_model import import_program
from sterna.frontend.torch.program import Program, ProgramOutput, Ref, Weight
from sterna.frontend.torch.read_exported import read_fx, read_recorded, target_name
from sterna.frontend.torch.table import converter_of
from sterna.frontend.torch.tensors import array_of_tensor
from sterna.model import CompiledModel
from sterna.model import compile as compile_model
from sterna.relay.arrays import Array
from sterna.support.errors import OpNotImplemented

Tensors = Sequence[Any]
Graph = Callable[..., Any]

# Results that PyTorch makes anew out of what they share memory with.
VIEWS = (
    OutputType.alias_of_input, OutputType.alias_of_intermediate_save_as_output,
    OutputType.alias_of_intermediate, OutputType.alias_of_intermediate_base_is_user_output,
)


@dataclass(frozen=True, slots=True)
class Options:
    """What a user may say: options= of torch.compile."""

    opt_level: int = 3
    target: str = THERE
    precision: str = "float32"
    freeze: bool = True
    fallback: bool = True

    @classmethod
    def of(cls, given: Mapping[str, Any] | None) -> "Options":
        """Options by name; those that are unknown are named."""
        known = cls.__dataclass_fields__
        for name in given or {}:
            if name not in known:
                raise ValueError(
                    f"the backend sterna has the options {', '.join(known)}, not '{name}'"
                )
        return cls(**dict(given or {}))


def sterna(
    gm: Any, example_inputs: Tensors, *, options: Mapping[str, Any] | None = None
) -> Graph:
    """What torch.compile calls: a graph of PyTorch's functions, as a function of its inputs."""
    chosen = Options.of(options)
    homes = {each.device.type for each in example_inputs if isinstance(each, torch.Tensor)}
    if not homes <= DEVICES:
        others = ", ".join(sorted(homes - DEVICES))
        return _eager(gm, f"its tensors are on the device {others}", chosen)
    asks_gradients = torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in example_inputs
    )
    numbers = numbers_of_modules(gm)
    if numbers:
        refused = "a number of a module has changed since its gradients were compiled"
        other = partial(_eager, gm, refused, chosen) if asks_gradients else None
        compile_graph = partial(sterna, options=options)
        return for_numbers(gm, numbers, example_inputs, compile_graph, other)
    if asks_gradients:
        forward = partial(_compile_forward, options=chosen)
        with attention_by_products(example_inputs):
            made: Graph = aot_autograd(
                fw_compiler=forward, bw_compiler=partial(_compile_functional, options=chosen),
                inference_compiler=forward, decompositions=_training_decompositions(),
            )(gm, example_inputs)
        return made
    return _inference(gm, example_inputs, chosen)


# ---- inference: the whole graph, weights as constants ----


def _inference(gm: Any, example_inputs: Tensors, options: Options) -> Graph:
    attributes = changing_attributes(gm)
    if attributes:
        held = [value for _, value in attributes]
        lifted = with_inputs_for(gm, [name for name, _ in attributes])
        inner = _inference(lifted, [*example_inputs, *held], options)
        return lambda *inputs: inner(*inputs, *held)
    written = written_inputs(gm)
    static = [
        place for place, each in enumerate(example_inputs)
        if options.freeze and place not in written
        and getattr(each, "_dynamo_static_input_type", None) is not None
    ]

    def compile_for(inputs: Tensors) -> Graph:
        if has_transforms(gm) or any(map(is_traceable_wrapper_subclass, inputs)):
            return _traced_by_autograd(gm, inputs, options)
        exported = lru_cache(partial(_exported, gm, inputs))
        try:
            found = record(gm, inputs)
            if found is not None and found.drawn.draws:
                return with_draws_before(found, inputs)
            made = _or_parts(
                lambda: found.program if found else by_torch(lambda: read_drawless(exported())),
                inputs, static, gm, options,
                lambda: by_torch(lambda: graph_of_exported(exported(), inputs, static)),
            )
        except NotRecorded:
            return _traced_by_autograd(gm, inputs, options)
        return with_aliases(alone(made), found.aliases if found else aliases_of(gm, inputs))

    def with_draws_before(found: Recorded, inputs: Tensors) -> Graph:
        examples = found.drawn.examples(inputs)
        try:
            made = _runner(found.program, examples, static, _build, options)
        except OpNotImplemented as error:
            raise NotRecorded(str(error)) from error
        run = found.drawn.before(made)
        whole = unless_written_memory_is_shared(run, made.written, gm, options.fallback)
        return with_aliases(whole, found.aliases)

    def alone(made: Graph) -> Graph:
        written = made.written if isinstance(made, _Runner) else ()
        return unless_written_memory_is_shared(made, written, gm, options.fallback)

    def compile_open(inputs: Tensors) -> Graph | None:
        exported = None if has_transforms(gm) else export_open(gm, inputs)
        if exported is None:
            return None
        program = _open_program(read_recorded(exported), inputs, static, options)
        return None if program is None else with_open_aliases(alone(program), gm, inputs)

    made = Compiled(compile_for, static, example_inputs, compile_open)
    if not made.is_open:
        made.find(example_inputs)
    return made


def _exported(gm: Any, inputs: Tensors) -> Any:
    with tracing(None), torch.no_grad():  # Dynamo guards no symbols but its own
        return torch.export.export(with_autocast(gm), tuple(inputs))


def _traced_by_autograd(gm: Any, inputs: Tensors, options: Options) -> Graph:
    """The code of a graph that torch.export does not record, by way of AOTAutograd.

    That takes transforms of torch.func, checkpoints and subclasses of tensors apart. Weights are
    inputs of what it gives. Where it fails too, PyTorch runs the graph.
    """
    compile_graph = partial(_compile_forward, options=options)
    try:
        with torch.no_grad(), ended_transforms(), attention_by_products(inputs):
            made: Graph = aot_autograd(
                fw_compiler=compile_graph, inference_compiler=compile_graph,
                decompositions=_training_decompositions(),
            )(gm, list(inputs))
    except Exception as error:
        return _eager(gm, f"it cannot be traced: {str(error).partition(chr(10))[0]}", options)
    return made


def _open_program(
    program: Program, inputs: Tensors, static: Sequence[int], options: Options
) -> Graph | None:
    """The code of a program over symbols; None where something in it needs known extents."""
    if any(gpu.index for gpu in gpus_of(inputs)):
        return None  # a machine of open extents has its blocks on the first GPU
    made = _runner(program, inputs, static, _build_open, options, is_open=True)
    return made if made.model is None or getattr(made.model, "is_symbolic", False) else None


def _or_parts(
    read: Callable[[], Program], inputs: Tensors, static: Sequence[int], eager: Graph,
    options: Options, graph: Callable[[], FunctionalGraph | None],
) -> Graph:
    """A program's code; where something has no converter, that of the parts around it."""
    try:
        try:
            return _runner(read(), inputs, static, _build, options)
        except GuardOnDataDependentSymNode as error:
            raise OpNotImplemented(f"an extent of a part is data: {error.cond}") from None
    except OpNotImplemented as error:
        if not options.fallback:
            raise
        warnings.warn(f"parts of a graph run as PyTorch runs them: {error}", stacklevel=2)
    try:
        found = graph()
    except GuardOnDataDependentSymNode:
        found = None  # no graph of operators can be had
    made = None if found is None else compile_parts(found, partial(_part, options=options))
    return made or eager


def _part(module: Any, inputs: Tensors, constants: Sequence[int], *, options: Options) -> Graph:
    """A part's code; one that a converter refuses runs as PyTorch runs it."""
    return _or_parts(
        partial(read_fx, module), inputs, constants, module.forward, options, lambda: None
    )


def _runner(
    program: Program, inputs: Tensors, static: Sequence[int],
    build: Callable[[Program, Options], CompiledModel | None], options: Options,
    is_open: bool = False,
) -> "_Runner":
    """A program's code over tensors; those at static places become constants, as numbers do.

    Numbers of an open program are extents of its tensors.
    """
    home = home_of(inputs, [each.device for each in program.outputs], options.target)
    changed = {output.target for output in program.outputs if output.kind == "input"}
    places = _places(program, inputs)
    frozen = [
        one.name for one in program.inputs
        if (one.is_number and not is_open)
        or (places.get(one.name) in static and one.name not in changed)
    ]
    weights = [Weight(name, name, partial(_held, inputs[places[name]])) for name in frozen]
    plain = replace(
        program,
        inputs=[
            one if is_open else replace(one, shape=tuple(inputs[places[one.name]].shape))
            for one in program.inputs if one.name not in frozen
        ],
        weights=[*program.weights, *weights],
        outputs=[replace(output, kind="result") for output in program.outputs],
    )
    tensors = [places[one.name] for one in plain.inputs if not one.is_number]
    model = build(plain, replace(options, target=target_at(home, options.target)))
    if model is not None and home != HOST and not is_open:
        model.device = device_at(home)
    return _Runner(model, tensors, program.outputs, places, home)


def _places(program: Program, inputs: Tensors) -> dict[str, int]:
    """Where a program's inputs stand among those of its graph; numbers may be missing."""
    found: dict[str, int] = {}
    for is_number in (False, True):
        names = [one.name for one in program.inputs if one.is_number == is_number]
        own = [
            place for place, each in enumerate(inputs)
            if isinstance(each, torch.Tensor) != is_number
        ]
        found.update(zip(names, own, strict=False))
    return found


def _held(value: Any, what: str) -> Array:
    if isinstance(value, torch.Tensor):
        return array_of_tensor(value, what)
    return np.asarray(value)


def _build(program: Program, options: Options) -> CompiledModel | None:
    """The compiled program; None for one that computes nothing."""
    if not any(output.value is not None for output in program.outputs):
        return None
    module, _ = import_program(program, ImportOptions())
    made: CompiledModel = compile_model(
        module, options.target, opt_level=options.opt_level, precision=options.precision
    )
    return made


def _build_open(program: Program, options: Options) -> CompiledModel | None:
    """The program over symbols; None for one that computes nothing."""
    if not any(output.value is not None for output in program.outputs):
        return None
    return compile_model(
        program, options.target, opt_level=options.opt_level, precision=options.precision
    )


class _Runner:
    """Compiled code as a function of tensors, which are read and made without copies."""

    def __init__(
        self, model: CompiledModel | None, places: Sequence[int],
        outputs: Sequence[ProgramOutput], inputs: Mapping[str, int], home: torch.device,
    ) -> None:
        self.model, self.places, self.outputs, self.inputs = model, places, outputs, inputs
        self.home = home
        self.written = [inputs[each.target] for each in outputs if each.kind == "input"]

    def __call__(self, *given: Any) -> list[Any]:
        arrays = iter(self._run(given))
        results: list[Any] = []
        for output in self.outputs:
            made = None if output.value is None else _result(output, next(arrays))
            if output.kind == "input":
                given[self.inputs[output.target]].copy_(made)
            else:
                results.append(made)
        return results

    def _run(self, given: Tensors) -> Sequence[Array]:
        if self.model is None:
            return ()
        tensors = [given[place] for place in self.places]
        if self.home == HOST:
            made = self.model(*map(array_of, tensors))
        else:
            with in_stream_of(self.home):
                made = self.model(*[brought(tensor, self.home) for tensor in tensors])
        return made if isinstance(made, tuple | list) else (made,)


def _result(output: ProgramOutput, array: Any) -> Any:
    if not isinstance(output.value, Ref):
        return number_of(array)
    made = tensor_of(array)
    if output.device and made.device != torch.device(output.device):
        made = made.to(output.device)
    return no_view(torch.view_as_complex(made)) if output.is_complex else made


# ---- training: functional graphs of ATen operators ----


def _training_decompositions() -> Mapping[Any, Any]:
    """Small operators for what has no converter; what has one stays whole."""
    found = torch._decomp.core_aten_decompositions()
    return {op: how for op, how in found.items() if converter_of(target_name(op)) is None}


def _compile_forward(gm: Any, example_inputs: Tensors, *, options: Options) -> Graph:
    """A forward graph. PyTorch makes views among its results anew by the memory of what is given.

    Where the places of these depend on numbers that only calls know, it takes them from the views
    themselves, which other memory does not tell: such a graph runs as PyTorch runs it.
    """
    if not _gives_open_views():
        return _compile_functional(gm, example_inputs, options=options, orders=_orders(gm))
    refused = "a result is a view of other tensors at places that only a call knows; clone it"
    return _as_pytorch_runs_it(gm, refused, options)


def _orders(gm: Any) -> Aliases:
    """How the results of a forward graph lie, but for those that the backward graph alone reads."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    (output,) = gm.graph.find_nodes(op="output")
    seen = output.args[0] if metadata is None else output.args[0][: metadata.num_forward]
    values = [each.meta.get("val") if isinstance(each, torch.fx.Node) else None for each in seen]
    return [laid_out(place, value) for place, value in enumerate(values)]


def _eager(gm: Any, refused: str, options: Options) -> Graph:
    _expect_fallback(refused, options)
    return gm.forward  # type: ignore[no-any-return]


def _as_pytorch_runs_it(gm: Any, refused: str, options: Options) -> Graph:
    _expect_fallback(refused, options)
    return make_boxed_func(gm.forward)  # type: ignore[no-any-return]


def _expect_fallback(refused: str, options: Options) -> None:
    """Tell that PyTorch runs a graph, and why; an error where the options forbid it."""
    if not options.fallback:
        raise OpNotImplemented(f"a graph cannot run compiled: {refused}")
    warnings.warn(f"a graph runs as PyTorch runs it: {refused}", stacklevel=4)


def _gives_open_views() -> bool:
    """Whether PyTorch cannot replay a view among the results of the graph that it compiles."""
    context = torch._guards.TracingContext.try_get()
    metadata = None if context is None else context.fw_metadata
    for result in () if metadata is None else metadata.output_info:
        if result.output_type not in VIEWS:
            continue
        views = result.view_meta_sequence
        if views is None or any(view.has_symbolic_inputs for view in views.sequence):
            return True
    return False


def _compile_functional(
    gm: Any, example_inputs: Tensors, *, options: Options, orders: Aliases = ()
) -> Graph:
    """A forward or backward graph; the inputs that it is made with have shapes and no data.

    orders: of those of its results that a user sees, how they lie.
    """

    drawn = with_draws(gm)

    def compile_for(inputs: Tensors) -> Graph:
        graph = drawn.module
        whole = FunctionalGraph(graph, {}, lambda given: given)
        made = _or_parts(
            partial(read_fx, graph), drawn.examples(inputs), (), graph.forward, options,
            lambda: whole,
        )
        return with_aliases(drawn.before(made), orders)

    def compile_open(inputs: Tensors) -> Graph | None:
        examples = drawn.examples(inputs)
        made = _open_program(read_fx(drawn.module), examples, (), options)
        return None if made is None else drawn.before(made)

    if any(map(free_unbacked_symbols, example_inputs)):
        refused = "an extent of what the forward graph keeps is data of it"
        return _as_pytorch_runs_it(gm, refused, options)
    made = Compiled(compile_for, (), example_inputs, compile_open)
    if not made.is_open:
        made.find(example_inputs)
    return make_boxed_func(made)  # type: ignore[no-any-return]
