"""The passes over loops under the names that users know: objects that take and give IRModules."""

from collections.abc import Callable, Collection, Sequence
from typing import Any, overload

from sterna.ir.instrument import PassInfo
from sterna.ir.module import IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.transform import FunctionPass, ModulePass, Pass, function_pass, register_pass
from sterna.support.errors import InternalError
from sterna.support.options import options
from sterna.tir.passes.common_subexpr_elim_tir import common_subexpr_elim_tir
from sterna.tir.passes.flatten_buffer import flatten_buffer
from sterna.tir.passes.hoist_if_then_else import hoist_if_then_else
from sterna.tir.passes.inject_double_buffer import inject_double_buffer
from sterna.tir.passes.inject_prefetch import inject_prefetch
from sterna.tir.passes.inline_calls import inline_calls
from sterna.tir.passes.inline_lets import inline_lets
from sterna.tir.passes.instrument_bound_checkers import instrument_bound_checkers
from sterna.tir.passes.load_ahead import load_ahead
from sterna.tir.passes.loop_partition import loop_partition
from sterna.tir.passes.lower_intrin import lower_intrin
from sterna.tir.passes.narrow_data_type import narrow_data_type
from sterna.tir.passes.pack_elements import pack_elements
from sterna.tir.passes.remove_no_op import remove_no_op
from sterna.tir.passes.simplify import simplify
from sterna.tir.passes.skip_assert import skip_assert
from sterna.tir.passes.storage_rewrite import storage_rewrite
from sterna.tir.passes.unroll_loop import unroll_loop
from sterna.tir.passes.unswitch_border import unswitch_border
from sterna.tir.passes.vectorize_loop import vectorize_loop
from sterna.tir.stmt import PrimFunc
from sterna.tir.verify import verify

__all__ = [
    "CommonSubexprElimTIR", "FlattenBuffer", "HoistIfThenElse", "InjectDoubleBuffer",
    "InjectPrefetch", "InlineCalls", "InlineLets", "InstrumentBoundCheckers", "LoadAhead",
    "LoopPartition", "LowerIntrin", "NarrowDataType", "PackElements", "PrimFuncPass", "RemoveNoOp",
    "Simplify", "SkipAssert", "StorageRewrite", "UnrollLoop", "UnswitchBorder",
    "VectorizeLoop", "prim_func_pass",
]


class PrimFuncPass(FunctionPass):
    """A pass over each function of loops."""

    def transform(self, mod: IRModule, context: PassContext) -> IRModule:
        made = super().transform(mod, context)
        for name, function in made.functions.items():
            if made is not mod and isinstance(function, PrimFunc) and not function.name:
                made.functions[name] = function.with_attr("global_symbol", str(name))
        if options.verify_passes and made is not mod:
            self._verify(mod, made)
        return made

    def _verify(self, before: IRModule, after: IRModule) -> None:
        for name, function in after.functions.items():
            if isinstance(function, PrimFunc) and function is not before.functions.get(name):
                try:
                    verify(function)
                except InternalError as error:
                    raise InternalError(f"the pass {self.info.name}: {error}") from error


@overload
def prim_func_pass(
    pass_func: None = None,
    opt_level: int | None = ...,
    name: str | None = ...,
    required: Sequence[str] | None = ...,
) -> Callable[[Any], Any]: ...
@overload
def prim_func_pass(
    pass_func: Callable[..., Any],
    opt_level: int | None = ...,
    name: str | None = ...,
    required: Sequence[str] | None = ...,
) -> Any: ...


def prim_func_pass(
    pass_func: Any = None,
    opt_level: int | None = None,
    name: str | None = None,
    required: Sequence[str] | None = None,
) -> Any:
    """A pass from a function (func, mod, ctx) -> func of loops; see function_pass."""
    return function_pass(pass_func, opt_level, name, required, PrimFunc, PrimFuncPass)


def _plain(name: str, change: Callable[[PrimFunc], PrimFunc]) -> Pass:
    """A pass that needs to know nothing but the function."""
    return PrimFuncPass(lambda func, mod, context: change(func), _info(name), PrimFunc)


def _info(name: str) -> PassInfo:
    return PassInfo(0, f"tir.{name}")


def InjectPrefetch() -> Pass:
    """Turn rectangles to prefetch into prefetches of cache lines."""
    return _plain("InjectPrefetch", inject_prefetch)


def InjectDoubleBuffer() -> Pass:
    """Software pipelining: make what is double buffered one iteration ahead; it has a config."""

    def change(func: PrimFunc, mod: IRModule, context: PassContext) -> PrimFunc:
        return inject_double_buffer(func, context.get_config("tir.InjectDoubleBuffer"))

    return PrimFuncPass(change, _info("InjectDoubleBuffer"), PrimFunc)


def PackElements() -> Pass:
    """Put elements of less than a byte into bytes."""
    return _plain("PackElements", pack_elements)


def InlineCalls() -> Pass:
    """Put the bodies of functions in the place of calls of them, within a module."""
    return ModulePass(lambda mod, context: inline_calls(mod), _info("InlineCalls"))


def InlineLets() -> Pass:
    """Put constants and variables in the place of the names that stand for them."""
    return _plain("InlineLets", inline_lets)


def InstrumentBoundCheckers() -> Pass:
    """Check every index before it is used."""
    return _plain("InstrumentBoundCheckers", instrument_bound_checkers)


def Simplify() -> Pass:
    """Simplify every expression under what is known where it stands."""

    def change(func: PrimFunc, mod: IRModule, context: PassContext) -> PrimFunc:
        return simplify(func, context.get_config("tir.debug_keep_trivial_loop"))

    return PrimFuncPass(change, _info("Simplify"), PrimFunc)


def SkipAssert() -> Pass:
    """Remove all checks."""
    return _plain("SkipAssert", skip_assert)


def RemoveNoOp() -> Pass:
    """Remove statements that do nothing."""
    return _plain("RemoveNoOp", remove_no_op)


def LoopPartition() -> Pass:
    """Peel the iterations for which a guard may fail; config: tir.LoopPartition."""

    def change(func: PrimFunc, mod: IRModule, context: PassContext) -> PrimFunc:
        return loop_partition(func, context.get_config("tir.LoopPartition"))

    return PrimFuncPass(change, _info("LoopPartition"), PrimFunc)


def UnswitchBorder() -> Pass:
    """Loop unswitching: give what no border touches of marked loops a body without questions."""
    return _plain("UnswitchBorder", unswitch_border)


def HoistIfThenElse() -> Pass:
    """Loop unswitching: ask what a loop cannot change before the loop."""
    return _plain("HoistIfThenElse", hoist_if_then_else)


def LoadAhead() -> Pass:
    """Software pipelining: load what an iteration of marked loops begins with one turn early."""
    return _plain("LoadAhead", load_ahead)


def FlattenBuffer() -> Pass:
    """Make every buffer one-dimensional."""
    return _plain("FlattenBuffer", flatten_buffer)


def StorageFlatten(cache_line_size: int = 64, create_bound_attribute: bool = False) -> Pass:
    """FlattenBuffer under its older name; padding of rows is the schedule's (storage_align)."""
    return FlattenBuffer()


def NarrowDataType(target_bits: int = 32) -> Pass:
    """Compute indices in so many bits where their bounds allow it."""
    return _plain("NarrowDataType", lambda func: narrow_data_type(func, target_bits))


def StorageRewrite() -> Pass:
    """Storage reuse: let buffers that are not needed at the same time share memory."""
    return _plain("StorageRewrite", storage_rewrite)


def VectorizeLoop(enable_vectorize: bool = True) -> Pass:
    """Turn loops that are marked vectorized into vectors, or only into serial loops."""
    return _plain("VectorizeLoop", lambda func: vectorize_loop(func, enable_vectorize))


def UnrollLoop() -> Pass:
    """Write out the loops that are marked unrolled, and others as config's tir.UnrollLoop says."""

    def change(func: PrimFunc, mod: IRModule, context: PassContext) -> PrimFunc:
        return unroll_loop(func, context.get_config("tir.UnrollLoop"))

    return PrimFuncPass(change, _info("UnrollLoop"), PrimFunc)


def CommonSubexprElimTIR(enable_cse_tir: bool = True) -> Pass:
    """Compute once what is needed several times."""
    change = common_subexpr_elim_tir if enable_cse_tir else lambda func: func
    return _plain("CommonSubexprElimTIR", change)


def LowerIntrin(implemented: Collection[str] = ()) -> Pass:
    """Say functions by simpler ones, except for those that are implemented."""
    return _plain("LowerIntrin", lambda func: lower_intrin(func, implemented))


# Other passes may require these by name.
for _name in __all__:
    if _name not in ("PrimFuncPass", "prim_func_pass"):
        register_pass(f"tir.{_name}", globals()[_name])
