"""Element types of results as torch.result_type has them, and operands brought to one type."""

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar

from sterna.frontend.calls import cast, constant, dtype_of, rank_of
from sterna.frontend.torch.extents import as_tensor
from sterna.ir.expr import Expr
from sterna.relay.expr import RelayExpr
from sterna.support.dtype import DataType

Operand = RelayExpr | Expr | int | float | bool

DEFAULT_FLOAT = "float32"
_BOOL, _WHOLE, _FLOAT = range(3)


HALVES = ("float16", "bfloat16")

ConverterT = TypeVar("ConverterT", bound=Callable[..., Any])


def in_float32(convert: ConverterT) -> ConverterT:
    """A converter of several steps that are rounded once: PyTorch computes 16 bits in 32."""

    @wraps(convert)
    def widened(*args: Any, **kwargs: Any) -> Any:
        tensors = [each for each in (*args, *kwargs.values()) if isinstance(each, RelayExpr)]
        kinds = {dtype_of(each) for each in tensors if is_float(each)}
        own = next(iter(kinds), "")
        if len(kinds) != 1 or own not in HALVES or kwargs.get("dtype") is not None:
            return convert(*args, **kwargs)
        made = convert(*map(_wide, args), **{name: _wide(each) for name, each in kwargs.items()})
        parts = made if isinstance(made, list) else [made]
        found = [cast(each, own) if dtype_of(each) == "float32" else each for each in parts]
        return found if isinstance(made, list) else found[0]

    return widened  # type: ignore[return-value]


def _wide(value: Any) -> Any:
    is_half = isinstance(value, RelayExpr) and dtype_of(value) in HALVES
    return cast(value, "float32") if is_half else value


def category(dtype: str) -> int:
    """Truth values, whole numbers or floats."""
    if dtype == "bool":
        return _BOOL
    return _WHOLE if dtype.startswith(("int", "uint")) else _FLOAT


def is_float(operand: Operand) -> bool:
    """Whether an operand is of floats."""
    return category(_dtype(operand)) == _FLOAT


def _dtype(operand: Operand) -> str:
    if isinstance(operand, RelayExpr):
        return dtype_of(operand)
    if isinstance(operand, bool):
        return "bool"
    return "int64" if isinstance(operand, int | Expr) else DEFAULT_FLOAT


def result_type(*operands: Operand) -> str:
    """The type of a result: tensors count more than tensors of one number, and these than numbers.
    """
    groups: list[list[str]] = [[], [], []]
    for operand in operands:
        place = 2 if not isinstance(operand, RelayExpr) else 0 if rank_of(operand) else 1
        groups[place].append(_dtype(operand))
    found = ""
    for group in groups:
        for dtype in group[:1]:
            own = dtype
            for other in group[1:]:
                own = promoted(own, other)
            if not found or category(own) > category(found):
                found = own
    return found


def promoted(a: str, b: str) -> str:
    """The smallest type that holds the numbers of both."""
    if a == b:
        return a
    if category(a) != category(b):
        return a if category(a) > category(b) else b
    if category(a) == _FLOAT:
        bits = {DataType(a).bits, DataType(b).bits}
        return DEFAULT_FLOAT if len(bits) == 1 else a if DataType(a).bits == max(bits) else b
    signed = [kind for kind in (a, b) if kind.startswith("int")]
    widest = max((a, b), key=lambda kind: DataType(kind).bits)
    if len(signed) != 1 or widest.startswith("int"):
        if len(signed) == 1 and DataType(a).bits == DataType(b).bits:
            return f"int{min(64, 2 * DataType(a).bits)}"
        return widest
    return f"int{min(64, 2 * DataType(widest).bits)}"


def as_type(operand: Operand, dtype: str) -> RelayExpr:
    """An operand as a tensor of a type."""
    if isinstance(operand, RelayExpr):
        return cast(operand, dtype)
    if isinstance(operand, Expr):
        return cast(as_tensor(operand), dtype)
    return constant(operand, dtype)


def together(*operands: Operand) -> list[RelayExpr]:
    """Operands in the type of their result."""
    dtype = result_type(*operands)
    return [as_type(operand, dtype) for operand in operands]


def floats(*operands: Operand) -> list[RelayExpr]:
    """Operands in the type of their result, which is one of floats."""
    dtype = result_type(*operands)
    dtype = dtype if category(dtype) == _FLOAT else DEFAULT_FLOAT
    return [as_type(operand, dtype) for operand in operands]


def as_float(operand: Operand) -> RelayExpr:
    """An operand of floats; whole numbers become those of the default type."""
    return floats(operand)[0]


def scalar(value: Any, expr: RelayExpr) -> RelayExpr:
    """A number in the type of an expression."""
    return as_type(value, dtype_of(expr))
