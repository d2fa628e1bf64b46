"""From any model to compiled code, under the settings around."""

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.driver import relay_build
from sterna.frontend.inputs import Shapes
from sterna.frontend.open_shapes import UndecidedError
from sterna.ir.module import IRModule
from sterna.ir.transform import PassContext, Sequential
from sterna.ir.types import TensorType, TupleType
from sterna.model.build_record import BuildRecord
from sterna.model.import_model import import_model
from sterna.relay.expr import Function, If, Let
from sterna.relay.passes.bind_params import bind_params
from sterna.relay.passes.integer_arithmetic import IntegerArithmetic
from sterna.relay.passes.legalize import Legalize
from sterna.relay.passes.to_mixed_precision import ToMixedPrecision
from sterna.relay.steps import Expect, Step
from sterna.relay.traverse import not_primitive, post_order
from sterna.support.memory import give_back_memory
from sterna.support.progress import StageTimes, stage, watching
from sterna.target import Target, is_gpu, is_microcontroller


def build_model(
    model: Any,
    target: Target,
    shapes: Shapes | None,
    params: Mapping[str, Any] | None,
    narrow: str | None,
    example_inputs: Sequence[Any] | None = None,
    fixed: Mapping[str, Any] | None = None,
    name: str = "default",
) -> BuildRecord:
    """Import and compile a model; narrow: the type of floats that it is told to keep.

    name: what the code is called, among that of others in one file.
    """
    times = StageTimes()
    with watching(times):
        with stage("import the model"):
            module, weights = import_model(
                model, shapes, params, example_inputs, is_microcontroller(target), fixed
            )
            expect_straight(module)
        if narrow is not None:
            with stage("narrow the numbers"):
                module = narrowed(module, weights, narrow, target)
                weights = {}
        factory = relay_build.build(module, target=target, params=weights, mod_name=name)
    give_back_memory()
    return BuildRecord(factory, PassContext.current().opt_level, times.seconds)


def expect_straight(module: IRModule) -> None:
    """Refuse what the graph executor cannot run: control flow, and shapes that runs decide."""
    main = module["main"]
    for part in post_order(main.body):
        is_step = isinstance(part, If | Let | Function | Step) and not_primitive(part)
        kinds = part._type.fields if isinstance(part._type, TupleType) else (part._type,)
        if is_step or any(isinstance(k, TensorType) and not k.is_static for k in kinds):
            at = f" at {part.span}" if part.span else ""
            if isinstance(part, Expect):
                raise UndecidedError(_check_refused(part, at))
            what = type(part).__name__ if is_step else repr(part._type)
            raise UndecidedError(f"only a run can decide about a part of the model{at}: {what}")


def _check_refused(check: Expect, at: str) -> str:
    """Why a model with a check of its own has no code without a virtual machine."""
    return (
        f"the model checks its numbers in each run{at} ('{check.reason}'), and code without the "
        "virtual machine cannot end a run with such an error: leave the check (torch._check, "
        "torch._assert_async, assert, output_size) out of the model before it is exported"
    )


def narrowed(
    module: IRModule, weights: Mapping[str, Any], precision: str, target: Target
) -> IRModule:
    """The graph with its weights in place and its products in a narrow type of floats.

    Before that, operators that stand for several are found: casts would lie between their parts.
    """
    bound = module.shallow_copy()
    bound["main"] = bind_params(bound["main"], weights)
    bound = Sequential([IntegerArithmetic(), Legalize(target)])(bound)
    config = {
        "relay.ToMixedPrecision.keep_orig_output_dtype": True,
        "relay.ToMixedPrecision.follow_weights": is_gpu(target),
    }
    with PassContext(config=config), target:
        return ToMixedPrecision(precision)(bound)
