"""Vector expressions: a lane number makes them scalar, and a linear result makes a ramp."""

from sterna.arith.bounds import IntBound, is_index
from sterna.arith.conditions import Conditions
from sterna.arith.linear import Sum, without
from sterna.arith.rules import apply_rules
from sterna.ir.expr import (
    Add,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    Expr,
    Mul,
    Not,
    Ramp,
    Select,
    Var,
)
from sterna.support.dtype import DataType


class Vectors(Conditions):
    """Simplifies vector expressions."""

    def __init__(self) -> None:
        super().__init__()
        self._lanes: dict[tuple[int, str], Var] = {}
        self._scalars: dict[int, tuple[Expr, Expr | None]] = {}

    def vector(self, expr: Expr) -> Expr:
        """A vector expression, simplified."""
        lanes = expr.dtype.lanes
        if isinstance(expr, Broadcast) and expr.value.dtype.lanes == 1:
            return self.rebuild(expr)
        if isinstance(expr, Call) and expr.op == "if_then_else":
            return self.other(expr)
        if isinstance(expr, Ramp) and is_index(expr.base.dtype) and expr.base.dtype.lanes == 1:
            return self._ramp(expr)
        scalar = None if not self._worth(expr) else self._scalar(expr)
        if scalar is not None:
            made = self._spread(self.simplify(scalar), lanes)
            if made is not None:
                return made
        made = self.rebuild(expr)
        ruled = apply_rules(made, self.equal)
        return made if ruled is None else self.simplify(ruled)

    def _worth(self, expr: Expr) -> bool:
        return isinstance(expr, (Ramp, BinaryExpr, Not, Select, Cast)) or (
            isinstance(expr, Call) and expr.op.startswith(("bitwise", "shift"))
        )

    def _ramp(self, ramp: Ramp) -> Expr:
        dtype = ramp.base.dtype
        base, stride = self.emit(self.sum_of(ramp.base), dtype), self.sum_of(ramp.stride)
        return Ramp(base, self.emit(stride, dtype), ramp.lanes) if stride else (
            Broadcast(base, ramp.lanes)
        )

    def _lane(self, lanes: int, dtype: DataType) -> Var:
        var = self._lanes.get((lanes, dtype))
        if var is None:
            var = self._lanes[lanes, dtype] = Var("lane", dtype)
        self.state.known.ranges[self.state.var_atom(var).index] = IntBound(0, lanes - 1)
        return var

    def _scalar(self, expr: Expr) -> Expr | None:
        """What one lane holds, in terms of the lane's number; None for what is not looked into."""
        if expr.dtype.lanes == 1:
            return expr
        found = self._scalars.get(id(expr))
        if found is None:
            found = self._scalars[id(expr)] = expr, self._read_lane(expr)
        return found[1]

    def _read_lane(self, expr: Expr) -> Expr | None:
        if isinstance(expr, Broadcast):
            return expr.value if expr.value.dtype.lanes == 1 else None
        if isinstance(expr, Ramp):
            dtype = expr.base.dtype
            if not is_index(dtype) or dtype.lanes != 1:
                return None
            return Add(expr.base, Mul(expr.stride, self._lane(expr.lanes, dtype)))
        if isinstance(expr, (BinaryExpr, Not, Select)):
            parts = [self._scalar(part) for part in expr.children() if isinstance(part, Expr)]
            if any(part is None for part in parts):
                return None
            return type(expr)(*parts)  # type: ignore[arg-type]
        if isinstance(expr, Cast):
            value = self._scalar(expr.value)
            return None if value is None else Cast(expr.dtype.element, value)
        if isinstance(expr, Call) and expr.op.startswith(("bitwise", "shift")):
            args = [self._scalar(arg) for arg in expr.args]
            if any(arg is None for arg in args):
                return None
            return Call(expr.dtype.element, expr.op, tuple(args))  # type: ignore[arg-type]
        return None

    def _spread(self, scalar: Expr, lanes: int) -> Expr | None:
        """The vector whose lanes a scalar gives; None when it is no ramp and no broadcast."""
        dtype = scalar.dtype
        if not is_index(dtype) or isinstance(scalar, CompareExpr):
            uses_lane = not self.free(scalar).isdisjoint(self._lanes.values())
            return None if uses_lane else Broadcast(scalar, lanes)
        total = self.sum_of(scalar)
        used = self.state.variables(total).intersection(self._lanes.values())
        if not used:
            return Broadcast(scalar, lanes)
        indices = {self.state.var_atom(var).index for var in used}
        base: Sum = {}
        stride: Sum = {}
        for mono, value in total.items():
            factors = indices.intersection(mono)
            if not factors:
                if any(self.state.atoms[i].variables & used for i in mono):
                    return None
                base[mono] = value
                continue
            rest = without(mono, (factors.pop(),))
            assert rest is not None
            if any(self.state.atoms[i].variables & used for i in rest):
                return None
            stride[rest] = stride.get(rest, 0) + value
        return Ramp(self.emit(base, dtype), self.emit(stride, dtype), lanes)
