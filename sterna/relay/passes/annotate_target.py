"""Annotation of what external compilers take (BYOC): calls between two marks.

    add(%x, %y)   ->   compiler_end(add(compiler_begin(%x), compiler_begin(%y)))

A compiler takes the operators that register_op_attr("add", "target.own", check) names, and the
functions of MergeComposite whose names begin with its own and a point.
"""

from collections.abc import Sequence

from sterna.ir.external_compilers import is_taken
from sterna.ir.module import IRModule
from sterna.ir.node import Node
from sterna.ir.transform import Pass, module_pass
from sterna.relay.builders import make
from sterna.relay.expr import Call, Function, RelayExpr, Tuple
from sterna.relay.op import record_of
from sterna.relay.traverse import rewrite

BEGIN, END = "annotation.compiler_begin", "annotation.compiler_end"


def AnnotateTarget(targets: str | Sequence[str], include_non_call_ops: bool = True) -> Pass:
    """Mark the calls that compilers take; of several that take a call the first of the list does.

    include_non_call_ops: accepted; tuples and their fields go with the calls that read them.
    """
    names = [targets] if isinstance(targets, str) else list(targets)
    made: Pass = module_pass(
        lambda mod, context: annotate_target(mod, names), opt_level=0, name="AnnotateTarget",
        required=["InferType"],
    )
    return made


def annotate_target(mod: IRModule, compilers: Sequence[str]) -> IRModule:
    """The module with marks around calls."""
    made = mod.shallow_copy()
    for name, function in mod.functions.items():
        if isinstance(function, Function) and compiler_of(function) is None:
            made[name] = _annotated(function, compilers)
    return made


def compiler_of(function: Node) -> str | None:
    """The other compiler that a function is for, if it is for one."""
    attrs = function.attrs if isinstance(function, Function) else None
    found = (attrs or {}).get("Compiler")
    return None if found is None else str(found)


def outside_composites(expr: RelayExpr) -> bool:
    """Enters everything but kernels, and functions that patterns have made."""
    return not isinstance(expr, Function) or not (
        expr.is_primitive or "Composite" in (expr.attrs or {})
    )


def _annotated(function: Function, compilers: Sequence[str]) -> Function:
    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        taker = next((name for name in compilers if _takes(name, old)), None)
        if taker is None:
            return new
        assert isinstance(new, Call)
        begun = [_begun(arg, taker) for arg in new.args]
        ended: RelayExpr = make(END, Call(new.op, tuple(begun), new.attrs), compiler=taker)
        return ended

    made = rewrite(function, change, outside_composites)
    assert isinstance(made, Function)
    return made


def _takes(compiler: str, expr: RelayExpr) -> bool:
    if not isinstance(expr, Call):
        return False
    if isinstance(expr.op, Function):
        name = str((expr.op.attrs or {}).get("Composite", ""))
        return name.startswith(f"{compiler}.")
    record = record_of(expr)
    return record is not None and is_taken(record.name, compiler, expr)


def _begun(arg: RelayExpr, compiler: str) -> RelayExpr:
    if isinstance(arg, Tuple):
        return Tuple(tuple(_begun(field, compiler) for field in arg.fields))
    made: RelayExpr = make(BEGIN, arg, compiler=compiler)
    return made
