"""Graphs on several devices: each part goes the way of a graph that is on its device alone."""

from sterna.ir.module import IRModule
from sterna.ir.transform import Sequential
from sterna.relay import pipeline
from sterna.relay import transform as T
from sterna.relay.expr import Call, Constant, Function, RelayExpr
from sterna.relay.passes.plan_devices import has_annotations
from sterna.relay.placed import DEVICE
from sterna.relay.traverse import not_primitive, rewrite
from sterna.schedule.caches import with_caches
from sterna.target import Target, is_gpu, processor_of
from sterna.target.compilation_config import CompilationConfig


def passes_for(target: Target) -> Sequential:
    """What happens between a user's graph and its kernels on one target."""
    # What processors like is no concern of other devices: weights stay the model's.
    on_cpu = "cpu" in target.kind.default_keys
    processor = with_caches(processor_of(target)) if on_cpu else None
    order = pipeline.passes(processor, target, is_gpu(target))
    return Sequential(order, name="relay.build")


def is_planned(mod: IRModule, config: CompilationConfig) -> bool:
    """Whether a graph has parts on several devices, or says where its values lie."""
    functions = [each for each in mod.functions.values() if isinstance(each, Function)]
    return not config.is_one or any(map(has_annotations, functions))


def optimize_parts(mod: IRModule, config: CompilationConfig) -> IRModule:
    """The graph after all passes: kernels, marked by their devices, and copies between them."""
    order = [
        T.RemoveUnusedFunctions(), T.InferType(), T.Inline(), T.ToGraphNormalForm(),
        T.PlanDevices(config), T.InferType(),
    ]
    planned = Sequential(order, name="relay.plan")(mod)

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        if not isinstance(new, Call) or not isinstance(new.op, Function):
            return new
        return _inlined(*_optimized(new.op, config), new.args, config.fallback)

    made = planned.shallow_copy()
    main = made["main"]
    body = rewrite(main.body, change, lambda expr: not isinstance(expr, Function))
    made["main"] = Function(main.params, body, None, main.type_params, main.attrs)
    return T.InferType()(made)


def _optimized(region: Function, config: CompilationConfig) -> tuple[Function, int]:
    """A region with its operators in kernels, and its device."""
    device = int((region.attrs or {})[DEVICE])
    target = config.by_device[device]
    with target:
        module = passes_for(target)(IRModule.from_expr(Function(region.params, region.body)))
    made: Function = module["main"]
    return made, device


def _inlined(
    region: Function, device: int, args: tuple[RelayExpr, ...], main: int
) -> RelayExpr:
    """A region's body for its arguments, with kernels that know their device if it is another.

    Its constants are its own: each device has its copy.
    """
    values = {id(param): arg for param, arg in zip(region.params, args, strict=True)}

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        if isinstance(new, Function) and device != main:
            return new.with_attr(DEVICE, device)
        if isinstance(new, Constant):
            return _copy_of(new)
        return values.get(id(old), new)

    return rewrite(region.body, change, not_primitive)


def _copy_of(constant: Constant) -> Constant:
    made = Constant(constant.data)
    made.span = constant.span
    return made
