"""Integer-only inference from QDQ graphs: quantised numbers computed as the integers they are.

    qnn.quantize(nn.conv2d(qnn.dequantize(%x), qnn.dequantize(const)))
        -> qnn.requantize(qnn.conv2d(%x, const))

What is dequantised stays integers as far as the rules of the operators (`integer` in their records)
carry it: to where it is quantised again, or to an operator that has no rule and gets floats.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Call, Function, RelayExpr, Tuple
from sterna.relay.op import AnyOp, rules_of
from sterna.relay.passes.fold_constant import fold_one
from sterna.relay.passes.rewrite_calls import name_parts
from sterna.relay.quantized import Quantized, QuantizedLike, QuantizedPair
from sterna.relay.traverse import not_primitive, post_order, rebuild

# Parameters of quantisation may be made of constants by calls; so small ones are computed here.
SMALL_BYTES = 1 << 16


def IntegerArithmetic() -> Pass:
    """Integer-only inference: compute quantised numbers as the integers that they are."""
    made: Pass = function_pass(
        lambda func, mod, context: integer_arithmetic(func),
        opt_level=2, name="IntegerArithmetic", kind=Function,
    )
    return made


def FakeQuantizationToInteger(
    hard_fail: bool = False, use_qat: bool = False, optional_qnn_ops: Any = None
) -> Pass:
    """The same by its classic name: what has no integers stays in floats.

    A build at level 2 and above does it by itself; the arguments, which steer how much is tried,
    have nothing to steer.
    """
    if hard_fail:
        raise ValueError(
            "FakeQuantizationToInteger knows no hard_fail: what has no integers stays in floats"
        )
    return IntegerArithmetic()


def integer_arithmetic(func: Function) -> Function:
    """The function with integers where floats stood between quantised tensors."""
    made = _Rewriter().run(func)
    assert isinstance(made, Function)
    return made


@dataclass(slots=True)
class _Held:
    """What stands for an expression: itself, integers, or both."""

    expr: RelayExpr | None
    integers: Quantized | QuantizedPair | None = None

    def plain(self) -> RelayExpr:
        """It as the user's graph has it."""
        if self.expr is None:
            assert self.integers is not None
            self.expr = self.integers.real()
        return self.expr


class _Rewriter:
    def __init__(self) -> None:
        self.held: dict[int, _Held] = {}

    def run(self, root: RelayExpr) -> RelayExpr:
        for expr in post_order(root, not_primitive):
            self.held[id(expr)] = self._rewrite(expr)
        return self.held[id(root)].plain()

    def _rewrite(self, expr: RelayExpr) -> _Held:
        if not not_primitive(expr):
            return _Held(expr)
        record = rules_of(expr)
        if record is not None and record.integer is not None:
            assert isinstance(expr, Call)
            operands = [self._operand(arg) for arg in expr.args]
            made = record.integer(expr.attrs, operands)
            name_parts(_expressions_in([made]), expr, _expressions_in(operands))
            if isinstance(made, RelayExpr):
                return _Held(made)
            if made is not None:
                return _Held(None, made)
        inner = expr.operands()  # type: ignore[attr-defined]
        plain = rebuild(expr, {id(part): self.held[id(part)].plain() for part in inner})
        return _Held(fold_one(plain, _is_small))

    def _operand(self, arg: RelayExpr) -> QuantizedLike:
        if isinstance(arg, Tuple):
            return [self._operand(part) for part in arg.fields]
        held = self.held[id(arg)]
        return held.plain() if held.integers is None else held.integers


def _expressions_in(values: Sequence[QuantizedLike | None]) -> list[RelayExpr]:
    """What quantised numbers are in a graph."""
    found: list[RelayExpr] = []
    for value in values:
        match value:
            case RelayExpr():
                found.append(value)
            case Quantized():
                found.append(value.data)
            case QuantizedPair():
                found += [value.a.data, value.b.data]
            case list():
                found += _expressions_in(value)
    return found


def _is_small(record: AnyOp, call: Call, size: int) -> bool:
    return size <= SMALL_BYTES
