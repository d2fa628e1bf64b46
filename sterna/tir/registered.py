"""Intrinsics by users' rules: names of their own that call_intrin knows, and known ones as well.

    tvm.ir.register_op_attr("tir.mylog", "TCallEffectKind", tvm.tir.CallEffectKind.Pure)

    @tvm.ir.register_intrin_lowering("tir.mylog", target="llvm")
    def by_logarithm(call):
        return tvm.tir.log(call.args[0])

A rule for an intrinsic that is known, such as tir.exp, holds instead of what a target has for it in
loops that tvm.build compiles; kernels of graphs stay as they are.
"""

from collections.abc import Callable
from typing import Any

from sterna.ir.expr import Call, Expr
from sterna.ir.external_compilers import PREFIX, register_check
from sterna.tir.intrinsics import INTRINSICS, Intrinsic, register_intrinsic

Rule = Callable[[Call], Expr]

# The target of rules that serve all targets which have none of their own.
DEFAULT = "default"


class CallEffectKind:
    """What a call does beside giving a value, by the classic numbers."""

    ExprAnnotation, Pure, ReadState, UpdateState, SpecialCallArg, EmbedInfo, ControlJump = range(7)


_rules: dict[str, dict[str, tuple[int, Rule]]] = {}
# Those of them that targets know without a rule.
_known: set[str] = set()


class _Named(str):
    """The name of an intrinsic, as rules ask for it."""

    __slots__ = ()

    @property
    def name(self) -> str:
        """With the classic prefix."""
        return f"tir.{self}"


def register_op_attr(op_name: str, attr_key: str, value: Any = None, level: int = 10) -> Any:
    """Say of an intrinsic of one's own whether its calls have an effect (TCallEffectKind).

    Of an operator of graphs, which of its calls another compiler takes: register_op_attr("add",
    "target.own", check), where check(call) is true of those.
    """
    if attr_key.startswith(PREFIX) and not op_name.startswith("tir."):
        if value is None:
            return lambda decorated: register_op_attr(op_name, attr_key, decorated, level)
        register_check(op_name, attr_key.removeprefix(PREFIX), value)
        return value
    if not op_name.startswith("tir.") or attr_key not in ("TCallEffectKind", "TVectorizable"):
        raise ValueError(
            f"register_op_attr takes TCallEffectKind of an intrinsic, tir.name, not {attr_key} of "
            f"{op_name}; what is known about an operator of graphs is its record, relay.op.OpRecord"
        )
    if value is None:
        return lambda decorated: register_op_attr(op_name, attr_key, decorated, level)
    if attr_key == "TCallEffectKind":
        _declare(op_name, int(value) not in (CallEffectKind.Pure, CallEffectKind.ExprAnnotation))
    return value


def register_intrin_lowering(
    op_name: str, target: str, *, f: Rule | None = None, level: int = 10
) -> Any:
    """A rule that says calls of an intrinsic by others, for targets of a kind.

    target: the kind, or "default". Of two rules the one of the higher level holds.
    """
    if f is None:
        return lambda decorated: register_intrin_lowering(
            op_name, target, f=decorated, level=level
        )
    name = op_name.removeprefix("tir.")
    if name in INTRINSICS and name not in _rules:
        _known.add(name)
    elif name not in _rules:
        _declare(op_name, False)
    known = _rules.setdefault(name, {})
    if target not in known or level >= known[target][0]:
        known[target] = level, f
    return f


def _declare(op_name: str, has_effect: bool) -> None:
    name = op_name.removeprefix("tir.")
    if name in INTRINSICS and (name not in _rules or name in _known):
        raise ValueError(f"'{op_name}' is an intrinsic already; take another name")
    _rules.setdefault(name, {})
    INTRINSICS.pop(name, None)
    register_intrinsic(Intrinsic(name, -1, None, has_effect=has_effect))


def is_registered(name: str) -> bool:
    """Whether there are rules of users for an intrinsic."""
    return name in _rules


def by_rule(call: Call, kind: str) -> Expr:
    """What a rule for targets of a kind makes of a call; of one that is known, it may be itself."""
    rules = _rules[call.op]
    rule = rules.get(kind, rules.get(DEFAULT))
    if rule is None and call.op in _known:
        return call
    if rule is None:
        known = ", ".join(sorted(rules)) or "no target"
        raise ValueError(
            f"the intrinsic tir.{call.op} has rules for {known}, not for {kind}: "
            f'register_intrin_lowering("tir.{call.op}", target="{kind}", f=...)'
        )
    given = Call(call.dtype, _Named(call.op), call.args)
    made = rule[1](given)
    if made is given and call.op in _known:
        return call
    if not isinstance(made, Expr) or made is given or made.dtype != call.dtype:
        raise ValueError(
            f"the rule of tir.{call.op} for {kind} gave {made} for {call}: it must give another "
            f"expression of {call.dtype}"
        )
    return made
