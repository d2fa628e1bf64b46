"""sterna.compile: from a model to something that can be called."""

from collections.abc import Callable, Mapping
from typing import Any

from sterna.driver import relay_build
from sterna.driver.build import runs_here
from sterna.ir.module import IRModule
from sterna.ir.transform import PassContext
from sterna.model import kept_models
from sterna.model.build import Build
from sterna.model.compiled_model import CompiledModel
from sterna.model.import_model import Shapes, import_model
from sterna.relay.passes.bind_params import bind_params
from sterna.relay.passes.to_mixed_precision import ToMixedPrecision
from sterna.runtime import Device
from sterna.support.progress import StageTimes, stage, watching
from sterna.target import Target

__all__ = ["compile", "runs_here", "target_of"]

NATIVE = "llvm -mcpu=native"
LEVELS = range(5)
PRECISIONS = ("float32", "float16", "bfloat16")


def compile(
    model: Any,
    target: str | Target = "native",
    shapes: Shapes | None = None,
    opt_level: int = 3,
    params: Mapping[str, Any] | None = None,
    precision: str = "float32",
) -> CompiledModel:
    """A model that can be called, written to a file, timed and explained.

    model: the path, the bytes or the ModelProto of an ONNX model, or a graph of Relay (an IRModule
    or a Function, with its weights in params, or a pair of both).
    target: "native" is this machine; anything that Target takes names another.
    shapes: where the model leaves dimensions open, the inputs' shapes by name, or the extents of
    dimensions that an ONNX model names: shapes={"batch": 1}.
    precision: float16 or bfloat16 keeps float32's weights and what flows between products in that
    type, in half the memory; results stay float32, and so do sums, but for short runs of products
    where a processor computes with float16.
    opt_level: 0 to 4, as in PassContext; the other settings of a PassContext around hold as well.

    A model from a file is kept on disk as it was compiled, and found there the next time, as long
    as its file, the settings, the machine and Sterna are the same.
    """
    if opt_level not in LEVELS:
        raise ValueError(f"opt_level is 0 to {LEVELS[-1]}, not {opt_level!r}")
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {', '.join(PRECISIONS)}, not {precision!r}")
    wanted = target_of(target)
    around = PassContext.current()
    context = PassContext(
        opt_level, around.required_pass, around.disabled_pass, config=around.config
    )

    def anew() -> Build:
        times = StageTimes()
        with watching(times), context:
            with stage("import the model"):
                module, weights = import_model(model, shapes, params)
            if precision != PRECISIONS[0]:
                with stage("narrow the numbers"):
                    module = narrowed(module, weights, precision)
                    weights = {}
            factory = relay_build.build(module, target=wanted, params=weights)
        return Build(factory, opt_level, times.seconds)

    build = _kept(model, wanted, context, {"shapes": shapes, "precision": precision}, anew)
    return CompiledModel(build.factory.module, Device(wanted.kind.device_type, 0), build)


def _kept(
    model: Any, target: Target, context: PassContext, settings: Mapping[str, Any],
    anew: Callable[[], Build],
) -> Build:  # fmt: skip
    """The model as it was kept; else it is compiled anew, and kept."""
    recipe = kept_models.Recipe.of(model, target, context, settings)
    if recipe is None:
        return anew()
    if (found := kept_models.find(recipe, anew)) is not None:
        return found
    build = anew()
    kept_models.keep(recipe, build)
    return build


def narrowed(module: IRModule, weights: Mapping[str, Any], precision: str) -> IRModule:
    """The graph with its weights in place and its products in a narrow type of floats."""
    bound = module.shallow_copy()
    bound["main"] = bind_params(bound["main"], weights)
    with PassContext(config={"relay.ToMixedPrecision.keep_orig_output_dtype": True}):
        return ToMixedPrecision(precision)(bound)


def target_of(target: str | Target) -> Target:
    """A target; native is this machine's processor."""
    return Target(NATIVE if target == "native" else target)
