"""sterna.compile: from a model to something that can be called."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from sterna import model as models
from sterna.frontend.node import UndecidedError
from sterna.frontend.open_shapes import OpenShapeError
from sterna.ir.pass_context import PassContext
from sterna.model.cached_model import CachedModel, Recipe
from sterna.model.compiled_model import CompiledModel
from sterna.runtime import Device
from sterna.support.errors import OpNotImplemented
from sterna.target import Target

if TYPE_CHECKING:
    from sterna.frontend.inputs import Shapes
    from sterna.model.build_record import BuildRecord

NATIVE = "llvm -mcpu=native"
LEVELS = range(5)
PRECISIONS = ("float32", "float16", "bfloat16")


def compile(
    model: Any,
    target: str | Target = "native",
    shapes: "Shapes | None" = None,
    opt_level: int = 3,
    params: Mapping[str, Any] | None = None,
    precision: str = "float32",
) -> CompiledModel:
    """A model that can be called, written to a file, timed and explained.

    Where dimensions stay open, or values decide on branches, loops or shapes, it is an OpenModel:
    one object for all shapes, which compiles what a call brings that is new (docs/vm.md).

    model: the path or the bytes of a file in any format that can be imported, such as ONNX, or what
    a framework holds in memory (a ModelProto); or a graph of Relay (an IRModule or a Function, with
    its weights in params, or a pair of both).
    target: "native" is this machine; anything that Target takes names another.
    shapes: where the model leaves dimensions open, the inputs' shapes by name, or the extents of
    dimensions that the model names: shapes={"batch": 1}. A pair is a range, in which the dimension
    stays open: shapes={"batch": (1, 64)}.
    precision: float16 or bfloat16 keeps float32's weights and what flows between products in that
    type, in half the memory; results stay float32, and so do sums, but for short runs of products
    where a processor computes with float16.
    opt_level: 0 to 4, as in PassContext; the other settings of a PassContext around hold as well.

    A model from a file is kept on disk as it was compiled, and found there the next time, as long
    as its file, the settings, the machine and Sterna are the same.
    """
    try:
        return compile_closed(model, target, shapes, opt_level, params, precision)
    except (OpenShapeError, UndecidedError, OpNotImplemented) as error:
        context = PassContext.current().at_level(opt_level)
        opened = models.build_open(
            model, target_of(target), shapes, params, _narrow(precision), context
        )
        if opened is None or (isinstance(error, OpNotImplemented) and opened.takes_tensors):
            raise
        return opened


def compile_closed(
    model: Any,
    target: str | Target = "native",
    shapes: "Shapes | None" = None,
    opt_level: int = 3,
    params: Mapping[str, Any] | None = None,
    precision: str = "float32",
) -> CompiledModel:
    """A model all of whose shapes are known, as one program; see compile."""
    if opt_level not in LEVELS:
        raise ValueError(f"opt_level is 0 to {LEVELS[-1]}, not {opt_level!r}")
    narrow = _narrow(precision)
    wanted = target_of(target)
    context = PassContext.current().at_level(opt_level)

    def anew() -> "BuildRecord":
        with context:
            return models.build_model(model, wanted, shapes, params, narrow)

    device = Device(wanted.kind.device_type, 0)
    recipe = Recipe.of(model, wanted, context, {"shapes": shapes, "narrow": narrow})
    cached = None if recipe is None else CachedModel.find(recipe)
    if cached is not None:
        known = partial(_known, cached, wanted, anew)
        return CompiledModel(cached.module, device, known)
    build = anew()
    if recipe is not None:
        models.write_to_cache(recipe, build)
    return CompiledModel(build.factory.module, device, build)


def _narrow(precision: str) -> str | None:
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {', '.join(PRECISIONS)}, not {precision!r}")
    return None if precision == PRECISIONS[0] else precision


def _known(cached: CachedModel, target: Target, anew: "Callable[[], BuildRecord]") -> "BuildRecord":
    """How a cached model was compiled, which loads the compiler."""
    return models.build_of_cached(cached, target, anew)


def target_of(target: str | Target) -> Target:
    """A target; native is this machine's processor."""
    return Target(NATIVE if target == "native" else target)
