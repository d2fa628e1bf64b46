"""Scalar expressions, and what they mean.

Grammar
    e := Var | IntImm | FloatImm | StringImm
       | Add | Sub | Mul | Div | TruncDiv | TruncMod | FloorDiv | FloorMod | Min | Max      (a, b)
       | EQ | NE | LT | LE | GT | GE | And | Or | Not | Select(condition, then, otherwise)
       | Cast(dtype, value) | Call(dtype, op, args) | Let(var, value, body)
       | Ramp(base, stride, lanes) | Broadcast(value, lanes) | Shuffle(vectors, indices)

Meaning
    Types      Every expression has a DataType. Both sides of an operator have the same one; the
               functions of build.py (`add`, ..., Python's operators) convert: an int beside a float
               becomes that float, the smaller beside the larger of a kind becomes the larger, an
               unsigned beside a signed of at most its size becomes unsigned. A Python number takes
               the type of what it meets. Vectors work lane by lane; a scalar beside a vector is
               broadcast.
    Integers   int and uint of N bits are numbers modulo 2**N. Additions and multiplications wrap;
               but an expression that indexes a buffer or bounds a loop must not: there the
               compiler may assume the mathematical value.
    Division   FloorDiv rounds down and FloorMod has the divisor's sign: a == b*(a//b) + a%b.
               TruncDiv rounds to zero and TruncMod has the dividend's sign. Div is for floats. For
               both kinds minimum // -1 wraps to itself. Division by zero has no meaning: code that
               may divide by zero must not run.
    Floats     IEEE 754, round to nearest even. Nothing is reassociated; a*b + c may be fused. Min
               and Max are (a < b ? a : b) and (a > b ? a : b): a NaN in b comes out, one in a does
               not; of two zeros either may. Comparisons with NaN are false, except NE.
    Truth      bool is 0 or 1. And, Or and Select evaluate their operands as they please, in any
               order: an operand must have a meaning even when it is not needed. if_then_else (a
               Call) evaluates only the branch that is taken.
    Cast       int to int keeps the low bits; to bool is != 0; float to int rounds to zero and has
               no meaning outside the target's range (call("saturate", ...) for that); int to
               float and float to float round to nearest, once. What is too large for a float
               becomes infinity; what that is in types without one: support/float_format.py.
    Shifts     left fills with zeros; right fills with the sign for int, zeros for uint; the
               distance must be at least 0 and less than the bits.

`a == b` and `a != b` build EQ and NE; asked for their truth (by `if`, `in`, a dict) they say
whether both sides are the same object. Any other expression has no truth while it is not constant.
"""

from dataclasses import field
from typing import TYPE_CHECKING, ClassVar, Union

from sterna.ir.node import Node, node, post_order
from sterna.support.dtype import DataType

BOOL = DataType("bool")
INT32 = DataType("int32")
FLOAT32 = DataType("float32")
HANDLE = DataType("handle")

# What users may write where an expression is wanted.
ExprLike = Union["Expr", int, float, bool]


class Expr(Node):
    """A scalar or vector value. Python's operators on it are defined in build.py."""

    __slots__ = ()

    dtype: DataType

    if TYPE_CHECKING:

        def _binary(self, other: ExprLike) -> "Expr": ...

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _binary
        __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = _binary
        __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _binary
        __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = _binary
        __lt__ = __le__ = __gt__ = __ge__ = _binary

        def __eq__(self, other: object) -> "Expr": ...  # type: ignore[override]
        def __ne__(self, other: object) -> "Expr": ...  # type: ignore[override]
        def __neg__(self) -> "Expr": ...
        def __invert__(self) -> "Expr": ...
        def astype(self, dtype: str) -> "Expr": ...
        def equal(self, other: ExprLike) -> "Expr": ...

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise ValueError(
            f"the expression {self!r} has no truth while the program is being built; for 'if' "
            "write if_then_else or select, for 'and', 'or', 'not' write all, any, logical_not"
        )


# ---- leaves ----


@node
class Var(Expr):
    """A value with a name. Each object is a variable of its own, whatever its name."""

    name: str
    dtype: DataType = INT32
    is_size: bool = False
    """Whether it is at least 0, as shapes are."""

    def __post_init__(self) -> None:
        if type(self.dtype) is str:  # as users write it
            self.dtype = DataType(self.dtype)

    @property
    def name_hint(self) -> str:
        """The name, as the classic API calls it."""
        return self.name


@node
class IntImm(Expr):
    """An integer or bool constant."""

    dtype: DataType
    value: int

    def __post_init__(self) -> None:
        if type(self.dtype) is str:  # as users write it
            self.dtype = DataType(self.dtype)

    def __bool__(self) -> bool:
        return self.value != 0

    def __int__(self) -> int:
        return self.value

    def __index__(self) -> int:
        return self.value

    def __float__(self) -> float:
        return float(self.value)


@node
class FloatImm(Expr):
    """A floating-point constant."""

    dtype: DataType
    value: float

    def __post_init__(self) -> None:
        if type(self.dtype) is str:  # as users write it
            self.dtype = DataType(self.dtype)

    def __bool__(self) -> bool:
        return self.value != 0

    def __float__(self) -> float:
        return self.value


@node
class StringImm(Expr):
    """Text, as an argument of a call."""

    value: str
    dtype: DataType = field(default=HANDLE, init=False)


# ---- operators ----


@node
class BinaryExpr(Expr):
    """An operator with two operands of one type."""

    a: Expr
    b: Expr
    dtype: DataType = field(init=False)

    SYMBOL: ClassVar[str] = ""

    def __post_init__(self) -> None:
        self.dtype = self.a.dtype


@node
class Add(BinaryExpr):
    """a + b"""

    SYMBOL: ClassVar[str] = "+"


@node
class Sub(BinaryExpr):
    """a - b"""

    SYMBOL: ClassVar[str] = "-"


@node
class Mul(BinaryExpr):
    """a * b"""

    SYMBOL: ClassVar[str] = "*"


@node
class Div(BinaryExpr):
    """The quotient of floats."""

    SYMBOL: ClassVar[str] = "/"


@node
class TruncDiv(BinaryExpr):
    """The quotient of integers, rounded to zero."""

    SYMBOL: ClassVar[str] = "truncdiv"


@node
class TruncMod(BinaryExpr):
    """The remainder with the dividend's sign."""

    SYMBOL: ClassVar[str] = "truncmod"


@node
class FloorDiv(BinaryExpr):
    """The quotient of integers, rounded down."""

    SYMBOL: ClassVar[str] = "//"


@node
class FloorMod(BinaryExpr):
    """The remainder with the divisor's sign."""

    SYMBOL: ClassVar[str] = "%"


@node
class Min(BinaryExpr):
    """The smaller one."""

    SYMBOL: ClassVar[str] = "min"


@node
class Max(BinaryExpr):
    """The larger one."""

    SYMBOL: ClassVar[str] = "max"


@node
class CompareExpr(BinaryExpr):
    """A comparison; it gives bool."""

    def __post_init__(self) -> None:
        self.dtype = BOOL.with_lanes(self.a.dtype.lanes)


@node
class LT(CompareExpr):
    """a < b"""

    SYMBOL: ClassVar[str] = "<"


@node
class LE(CompareExpr):
    """a <= b"""

    SYMBOL: ClassVar[str] = "<="


@node
class GT(CompareExpr):
    """a > b"""

    SYMBOL: ClassVar[str] = ">"


@node
class GE(CompareExpr):
    """a >= b"""

    SYMBOL: ClassVar[str] = ">="


@node
class EQ(CompareExpr):
    """a == b; its truth in Python is `a is b`."""

    SYMBOL: ClassVar[str] = "=="

    def __bool__(self) -> bool:
        return self.a is self.b


@node
class NE(CompareExpr):
    """a != b; its truth in Python is `a is not b`."""

    SYMBOL: ClassVar[str] = "!="

    def __bool__(self) -> bool:
        return self.a is not self.b


@node
class And(CompareExpr):
    """a and b, of bools."""

    SYMBOL: ClassVar[str] = "and"


@node
class Or(CompareExpr):
    """a or b, of bools."""

    SYMBOL: ClassVar[str] = "or"


@node
class Not(Expr):
    """The opposite of a bool."""

    a: Expr
    dtype: DataType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.a.dtype


@node
class Select(Expr):
    """then where the condition holds, otherwise elsewhere; both may be evaluated."""

    condition: Expr
    then: Expr
    otherwise: Expr
    dtype: DataType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.then.dtype


@node
class Cast(Expr):
    """A value as another type."""

    dtype: DataType
    value: Expr

    def __post_init__(self) -> None:
        if type(self.dtype) is str:  # as users write it
            self.dtype = DataType(self.dtype)


@node
class Call(Expr):
    """An intrinsic or external function of some arguments."""

    dtype: DataType
    op: str
    args: tuple[Expr, ...]


@node
class Let(Expr):
    """body, where var stands for value."""

    var: Var
    value: Expr
    body: Expr
    dtype: DataType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.body.dtype


# ---- vectors ----


@node
class Ramp(Expr):
    """base, base + stride, base + 2*stride, ..."""

    base: Expr
    stride: Expr
    lanes: int
    dtype: DataType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.base.dtype.with_lanes(self.lanes)


@node
class Broadcast(Expr):
    """One value in every lane."""

    value: Expr
    lanes: int
    dtype: DataType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.value.dtype.with_lanes(self.lanes)


@node
class Shuffle(Expr):
    """Lanes picked by number from several vectors laid end to end."""

    vectors: tuple[Expr, ...]
    indices: tuple[int, ...]
    dtype: DataType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.vectors[0].dtype.with_lanes(len(self.indices))


def variables_in(expr: Expr) -> list[Var]:
    """The variables that an expression uses, each once, in order."""
    found: list[Var] = []
    post_order(expr, lambda n: found.append(n) if isinstance(n, Var) else None)
    return found
