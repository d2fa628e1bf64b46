"""Kernels over extents of their own: what differs in the names of open extents alone is one kernel.

    fn (%x: Tensor[(n, 64, (k + 64) // 256)]) { nn.relu(%x) }
        -> fn (%x: Tensor[(extent0, 64, extent1)]) { nn.relu(%x) }

Whoever calls the kernel passes the extents, which it finds in the shapes of the operands.
"""

from dataclasses import dataclass, field

from sterna.arith import Analyzer
from sterna.arith import substitute as with_values
from sterna.ir.expr import INT32, Expr
from sterna.ir.expr import Var as ShapeVar
from sterna.ir.types import Any, Dim, TensorType, Type, flatten_type, same_dim
from sterna.lowering.kernel_scalars import inner_scalars, leaves_of
from sterna.relay.expr import Call, Function, RelayExpr, Var
from sterna.relay.infer import infer
from sterna.relay.requirements import collecting
from sterna.relay.symbols import map_dims_of, simplified_dim
from sterna.relay.traverse import post_order, substitute


@dataclass(slots=True)
class KernelExtents:
    """The variables that stand for extents, one set for all kernels of a program."""

    variables: list[ShapeVar] = field(default_factory=list)

    def of(self, kernel: Function) -> Function:
        """The kernel over extents of its own; itself where all are known or more is said of them.

        More is said where an operator's attribute names a symbol, where an extent is a multiple of
        a number, which loops are glad of, and where results follow only from how extents hang
        together. A constraint between extents is one of the block, which checks it.
        """
        kinds = [param.checked_type for param in kernel.params]
        extents = _Extents(self.variables)
        own = [map_dims_of(kind, extents.of_dim) for kind in kinds]
        if not extents.values or not extents.are_free or _says_more(kernel):
            return kernel
        params = [
            Var(param.name_hint, kind) for param, kind in zip(kernel.params, own, strict=True)
        ]
        changed: dict[Var, RelayExpr] = dict(zip(kernel.params, params, strict=True))
        made = Function(
            tuple(params), substitute(kernel.body, changed), None, kernel.type_params, kernel.attrs
        )
        made.span = kernel.span
        try:
            with collecting():
                infer(made)
        except (TypeError, ValueError):
            return kernel
        given = flatten_type(made.body.checked_type)
        wanted = flatten_type(kernel.body.checked_type)
        return made if all(map(extents.give, given, wanted)) else kernel


class _Extents:
    """What the variables stand for in one kernel."""

    def __init__(self, variables: list[ShapeVar]) -> None:
        self.variables = variables
        self.values: list[Dim] = []
        self.are_free = True
        """Whether nothing is known of an extent but that it is one."""

    def of_dim(self, dim: Dim) -> Dim:
        """An extent's variable."""
        if type(dim) is int:
            return dim
        for place, value in enumerate(self.values):
            if same_dim(value, dim):
                return self.variables[place]
        self.are_free &= isinstance(dim, Expr) and not isinstance(dim, Any) and (
            dim.dtype is INT32 and Analyzer().modular(dim)[0] == 1
        )
        self.values.append(dim)
        if len(self.variables) < len(self.values):
            self.variables.append(ShapeVar(f"extent{len(self.variables)}", INT32))
        return self.variables[len(self.values) - 1]

    def give(self, found: TensorType, wanted: TensorType) -> bool:
        """Whether a type of a result is the wanted one once variables have their values."""
        meant: Type = map_dims_of(found, self._value)
        assert isinstance(meant, TensorType)
        return len(meant.shape) == len(wanted.shape) and all(
            map(same_dim, meant.shape, wanted.shape)
        )

    def _value(self, dim: Dim) -> Dim:
        if not isinstance(dim, Expr):
            return dim
        values = dict(zip(self.variables, self.values, strict=False))
        return simplified_dim(with_values(dim, values))  # type: ignore[arg-type]


def _says_more(kernel: Function) -> bool:
    """Whether symbols stand elsewhere than in the shapes of operands."""
    return bool(inner_scalars(kernel)) or any(
        isinstance(part, Call) and part.attrs is not None and any(
            isinstance(leaf, Expr)
            for leaf in leaves_of(tuple(value for _, value in part.attrs.items()))
        )
        for part in post_order(kernel.body)
    )
