"""The passes over loops, in order."""

from sterna.ir.module import IRModule
from sterna.ir.transform import Pass, PassContext, Sequential
from sterna.tir import transform as T
from sterna.tir.stmt import PrimFunc


def passes(simple: bool = False) -> list[Pass]:
    """What happens between a schedule's loops and code, as the current PassContext wants it.

    simple leaves guards where they are.
    """
    setting = PassContext.current().get_config
    order = [
        *_added(0),
        T.InjectPrefetch(),  # first: the other passes know elements, no rectangles
        T.InjectDoubleBuffer(),  # before simplifying: a loop of one iteration is still a loop
        T.InlineLets(),
    ]
    if setting("tir.instrument_bound_checkers"):
        # while indices are the user's own; simplifying removes what is certain
        order += [T.InstrumentBoundCheckers()]
    order += [T.Simplify()]
    if not simple:
        # before vectors: a vector has no room for a guard
        order += [T.UnswitchBorder(), T.LoopPartition(), T.HoistIfThenElse()]
    order += [
        T.FlattenBuffer(),  # before vectors: one index to widen, not several
        T.NarrowDataType(32),  # after flattening: an index is as large as it gets
        *_added(1),
    ]
    if not setting("tir.disable_storage_rewrite"):
        order += [T.StorageRewrite()]  # after flattening: memory has a size, no longer a shape
    order += [
        T.VectorizeLoop(not setting("tir.disable_vectorize")),
        T.UnrollLoop(),  # after vectors: an unrolled body may hold a vectorized loop
        T.PackElements(),  # after vectors: those that fill whole bytes are quick
        *_added(2),
        T.Simplify(),
        T.RemoveNoOp(),
        T.LoadAhead(),  # on lines of statements: loops inside are written out by now
        # last: names hide from the other passes what they stand for
        T.CommonSubexprElimTIR(not setting("tir.disable_cse_tir")),
        *_added(3),
    ]
    return order


def _added(phase: int) -> list[Pass]:
    """The user's own passes of a phase."""
    added: list[Pass] = []
    for pair in PassContext.current().get_config("tir.add_lower_pass"):
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[1], Pass):
            raise TypeError(f"tir.add_lower_pass holds pairs (phase, pass), not {pair!r}")
        if pair[0] not in (0, 1, 2, 3):
            raise ValueError(f"tir.add_lower_pass has the phases 0, 1, 2 and 3, not {pair[0]!r}")
        if pair[0] == phase:
            added.append(pair[1])
    return added


def run_module(mod: IRModule, simple: bool = False) -> IRModule:
    """Run all passes over the functions of a module."""
    return Sequential(passes(simple), name="tir.lower")(mod)


def run(func: PrimFunc, simple: bool = False) -> PrimFunc:
    """Run all passes over a function."""
    made = run_module(IRModule({func.name: func}), simple)[func.name]
    assert isinstance(made, PrimFunc)
    return made
