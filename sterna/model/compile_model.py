"""sterna.compile: from a model to something that can be called."""

import os
import reprlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from sterna import model as models
from sterna.frontend.open_shapes import OpenShapeError, UndecidedError
from sterna.ir.pass_context import PassContext
from sterna.model.cached_model import CachedModel, Recipe
from sterna.model.compiled_model import CompiledModel
from sterna.model.sizes import SIZES
from sterna.runtime import Device, num_threads
from sterna.schedule.config import ANSWERS
from sterna.support.errors import OpNotImplemented
from sterna.target import Target, machine_of

if TYPE_CHECKING:
    from sterna.frontend.inputs import Shapes
    from sterna.model.build_record import BuildRecord
    from sterna.model.tuned_answers import TunedAnswers

# Records that lie beside a model's file have its name and this suffix.
BESIDE = ".tuned.db"
NATIVE = "llvm -mcpu=native"
LEVELS = range(5)
PRECISIONS = ("float32", "float16", "bfloat16")


def compile(
    model: Any,
    *about: str | Target | Sequence[Any],
    target: str | Target | None = None,
    shapes: "Shapes | None" = None,
    opt_level: int = 3,
    params: Mapping[str, Any] | None = None,
    precision: str = "float32",
    tuned: "str | os.PathLike[str] | None" = None,
    example_inputs: Sequence[Any] | None = None,
    size: str = "fast",
    fixed: Mapping[str, Any] | None = None,
) -> CompiledModel:
    """A model that can be called, written to a file, timed and explained.

    Where dimensions stay open, or values decide on branches, loops or shapes, it is an OpenModel:
    one object for all shapes, which compiles what a call brings that is new (docs/vm.md).

    model: the path or the bytes of a file in any format that can be imported, such as ONNX, or what
    a framework holds in memory (a ModelProto); or a graph of Relay (an IRModule or a Function, with
    its weights in params, or a pair of both).
    about: a target, example inputs or both, as in sterna.compile(module, (x,), "cuda").
    target: "native" is this machine, which is meant where none is told; anything that Target takes
    names another. Example inputs on a GPU mean "cuda".
    shapes: where the model leaves dimensions open, the inputs' shapes by name, or the extents of
    dimensions that the model names: shapes={"batch": 1}. A pair is a range, in which the dimension
    stays open: shapes={"batch": (1, 64)}.
    precision: float16 or bfloat16 keeps float32's weights and what flows between products in that
    type, in half the memory; results stay float32, and so do sums, but for short runs of products
    where a processor computes with float16.
    tuned: the records that `sterna tune` wrote; MODEL.tuned.db beside the model if not given.
    example_inputs: what a module of PyTorch is recorded with.
    size: what weights may become: "small" keeps them as large as the model's, "balanced" lets them
    grow by half where that saves most time, "fast" as much as saves time at all.
    fixed: values of inputs that become constants, so that branches on them fold: {"rate": 16000}.
    opt_level: 0 to 4, as in PassContext; the other settings of a PassContext around hold as well.

    A model from a file is kept on disk as it was compiled, and found there the next time, as long
    as its file, the settings, the machine and Sterna are the same.
    """
    target, example_inputs = _told(about, target, example_inputs)
    job = _job(
        model, target, shapes, opt_level, params, precision, tuned, example_inputs, size, fixed
    )
    try:
        return _closed(job)
    except (OpenShapeError, UndecidedError, OpNotImplemented) as error:
        if job.fixed:
            raise
        opened = models.build_open(
            job.model, job.target, job.shapes, job.params, job.narrow, job.context,
            job.example_inputs,
        )
        if opened is None or (isinstance(error, OpNotImplemented) and opened.takes_tensors):
            raise
        return opened


def compile_closed(
    model: Any,
    *about: str | Target | Sequence[Any],
    target: str | Target | None = None,
    shapes: "Shapes | None" = None,
    opt_level: int = 3,
    params: Mapping[str, Any] | None = None,
    precision: str = "float32",
    tuned: "str | os.PathLike[str] | None" = None,
    example_inputs: Sequence[Any] | None = None,
    size: str = "fast",
    fixed: Mapping[str, Any] | None = None,
) -> CompiledModel:
    """A model all of whose shapes are known, as one program; see compile."""
    target, example_inputs = _told(about, target, example_inputs)
    return _closed(
        _job(
            model, target, shapes, opt_level, params, precision, tuned, example_inputs, size, fixed
        )
    )


@dataclass(frozen=True, slots=True)
class _Job:
    """What is compiled, and how."""

    model: Any
    target: Target
    shapes: "Shapes | None"
    params: Mapping[str, Any] | None
    narrow: str | None
    """The type of floats that is told to be kept, if it is not the model's own."""
    example_inputs: Sequence[Any] | None
    context: PassContext
    tuned: "TunedAnswers | None"
    fixed: Mapping[str, Any]

    def build(self) -> "BuildRecord":
        """Import and compile the model."""
        with self.context:
            return models.build_model(
                self.model, self.target, self.shapes, self.params, self.narrow, self.example_inputs,
                self.fixed,
            )


def _told(
    about: Sequence[Any], target: str | Target | None, example_inputs: Sequence[Any] | None
) -> tuple[str | Target, Sequence[Any] | None]:
    """A target and example inputs, told by place or by name, each once."""
    for each in about:
        if isinstance(each, tuple | list) and example_inputs is None:
            example_inputs = each
        elif isinstance(each, str | Target) and target is None:
            target = each
        else:
            raise TypeError(
                "behind its model, sterna.compile takes a target and a tuple of example inputs, "
                "each once, and all else by name (shapes=, precision=); got a "
                f"{type(each).__name__}: {reprlib.repr(each)}"
            )
    if target is None:
        target = "cuda" if any(map(_is_on_gpu, example_inputs or ())) else "native"
    return target, example_inputs


def _is_on_gpu(value: Any) -> bool:
    """Whether a value is a tensor of PyTorch on a GPU of NVIDIA's."""
    return getattr(getattr(value, "device", None), "type", "") == "cuda"


def _job(
    model: Any, target: str | Target, shapes: "Shapes | None", opt_level: int,
    params: Mapping[str, Any] | None, precision: str, tuned: "str | os.PathLike[str] | None",
    example_inputs: Sequence[Any] | None, size: str, fixed: Mapping[str, Any] | None,
) -> _Job:
    if opt_level not in LEVELS:
        raise ValueError(f"opt_level is 0 to {LEVELS[-1]}, not {opt_level!r}")
    if precision not in PRECISIONS:
        raise ValueError(f"precision is {', '.join(PRECISIONS)}, not {precision!r}")
    if size not in SIZES:
        raise ValueError(f"size is {', '.join(SIZES)}, not {size!r}")
    wanted = target_of(target)
    context = PassContext.current().at_level(opt_level, SIZES[size])
    found = models.read_tuned(model, tuned, wanted) if is_tuned(model, tuned) else None
    if found is not None:
        context = context.with_config({ANSWERS: found.answers | context.config.get(ANSWERS, {})})
    narrow = None if precision == PRECISIONS[0] else precision
    return _Job(model, wanted, shapes, params, narrow, example_inputs, context, found, fixed or {})


def _closed(job: _Job) -> CompiledModel:
    device = Device(job.target.kind.device_type, 0)
    fixed = {name: _written(value) for name, value in job.fixed.items()}
    settings = {"shapes": job.shapes, "narrow": job.narrow, "fixed": fixed}
    # What a script records depends on the example inputs, which are no part of its file.
    recorded = job.example_inputs is not None
    recipe = None if recorded else Recipe.of(job.model, job.target, job.context, settings)
    cached = None if recipe is None else CachedModel.find(recipe)
    if cached is not None:
        known = partial(_known, cached, job.target, job.build)
        return CompiledModel(cached.module, device, known)
    build = job.build()
    fits = job.tuned is None or job.tuned.are_offered(build, job.target)
    if recipe is not None and fits:  # with records that do not fit it is told each time
        models.write_to_cache(recipe, build)
    return CompiledModel(build.factory.module, device, build)


def _written(value: Any) -> list[Any]:
    """A value in the words of JSON."""
    array = np.asarray(value)
    return [str(array.dtype), array.tolist()]


def is_tuned(model: Any, tuned: "str | os.PathLike[str] | None") -> bool:
    """Whether there are records to look into, which loads what reads them."""
    if tuned is not None or not isinstance(model, str | os.PathLike):
        return tuned is not None
    path = Path(model)
    return bool(path.name) and path.with_suffix(BESIDE).is_file()


def _known(cached: CachedModel, target: Target, anew: "Callable[[], BuildRecord]") -> "BuildRecord":
    """How a cached model was compiled, which loads the compiler."""
    return models.build_of_cached(cached, target, anew)


def target_of(target: str | Target) -> Target:
    """A target; native is this machine's processor, with as many cores as the runtime has threads.

    Kernels share their work for that many, and those for others are others to the caches.
    """
    if target != "native":
        return Target(target)
    threads = num_threads()
    own = "" if threads == machine_of(Target(NATIVE)).cores else f" -num-cores={threads}"
    return Target(f"{NATIVE}{own}")
