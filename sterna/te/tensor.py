"""Tensor expressions: tensors, the operations that make them, and their axes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sterna.ir import build
from sterna.ir.expr import INT32, Expr, ExprLike, Var
from sterna.ir.node import node, post_order
from sterna.ir.printer import LEVEL_ATOM, Printed, Printer, prints
from sterna.ir.visitor import Rewriter
from sterna.support.dtype import DataType

# The kinds of axis, by the numbers that the classic API gives them.
DATA_PAR, THREAD_INDEX, COMM_REDUCE, ORDERED, OPAQUE = 0, 1, 2, 3, 4
UNROLLED, VECTORIZED, PARALLELIZED, TENSORIZED = 5, 6, 7, 8


@dataclass(frozen=True, slots=True, init=False)
class Range:
    """The numbers from min on, extent of them."""

    min: Expr
    extent: Expr

    def __init__(self, begin: ExprLike, end: ExprLike | None = None) -> None:
        """From begin up to end, without end; from 0 up to begin if there is no end."""
        first, last = (0, begin) if end is None else (begin, end)
        low, high = build.match_types(first, last)
        object.__setattr__(self, "min", low)
        object.__setattr__(self, "extent", build.sub(high, low))

    @staticmethod
    def from_min_extent(min: ExprLike, extent: ExprLike) -> "Range":
        """The numbers from min on, so many."""
        made = object.__new__(Range)
        object.__setattr__(made, "min", build.as_expr(min))
        object.__setattr__(made, "extent", build.as_expr(extent))
        return made

    def __repr__(self) -> str:
        return f"range(min={self.min}, extent={self.extent})"


class IterVar:
    """An axis: a variable that runs over a range. In an expression it stands for the variable."""

    def __init__(
        self,
        dom: Range | None,
        name: str,
        iter_type: int = DATA_PAR,
        thread_tag: str = "",
        dtype: DataType = INT32,
    ) -> None:
        """An axis whose range is not yet known says its variable's type itself."""
        self.dom = dom
        self.var = Var(name, dtype if dom is None else dom.extent.dtype)
        self.iter_type = iter_type
        self.thread_tag = thread_tag

    @property
    def name(self) -> str:
        """The variable's name."""
        return self.var.name

    def __sterna_expr__(self) -> Expr:
        return self.var

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        return f"iter_var({self.name}, {self.dom})"


build.install_operators(IterVar)


class Operation:
    """What makes one or more tensors."""

    def __init__(self, name: str, tag: str = "", attrs: dict[str, Any] | None = None) -> None:
        self.name = name
        self.tag = tag
        self.attrs = attrs or {}
        self.axis: list[IterVar] = []
        self.reduce_axis: list[IterVar] = []
        self.outputs: list[Tensor] = []

    @property
    def num_outputs(self) -> int:
        """How many tensors it makes."""
        return len(self.outputs)

    @property
    def input_tensors(self) -> list["Tensor"]:
        """The tensors it reads, in order of first use."""
        return []

    def rewritten(self, change: Callable[[Expr], Expr]) -> "Operation":
        """The same operation with what it reads changed."""
        raise ValueError(f"what {self.name} reads cannot be replaced")

    def output(self, index: int) -> "Tensor":
        """One of its tensors."""
        return self.outputs[index]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name})"


class Tensor:
    """A multi-dimensional array of expressions."""

    def __init__(
        self, op: Operation, value_index: int, shape: Sequence[Expr], dtype: DataType
    ) -> None:
        self.op = op
        self.value_index = value_index
        self.shape = tuple(shape)
        self.dtype = dtype

    @property
    def name(self) -> str:
        """Its operation's name, with a number if that makes several."""
        if self.op.num_outputs == 1:
            return self.op.name
        return f"{self.op.name}.v{self.value_index}"

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def axis(self) -> list[IterVar]:
        """The axes of the computation that makes it."""
        return self.op.axis

    if TYPE_CHECKING:  # operation.py defines them: they make computations

        def _combined(self, other: Any) -> Any: ...

        __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _combined
        __truediv__ = __rtruediv__ = __floordiv__ = __rfloordiv__ = _combined
        __mod__ = __rmod__ = _combined

        def __neg__(self) -> Any: ...

    def __call__(self, *indices: ExprLike | IterVar) -> Expr:
        if len(indices) != self.ndim:
            raise ValueError(
                f"Need to provide {self.ndim} index in tensor {self.name}, got {len(indices)}"
            )
        return ProducerLoad(self, tuple(_as_index(index, self) for index in indices))

    def __getitem__(self, indices: Any) -> Any:
        given = indices if isinstance(indices, tuple) else (indices,)
        return self(*given) if len(given) == self.ndim else TensorSlice(self, given)

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        extents = ", ".join(map(str, self.shape))
        return f"Tensor(shape=[{extents}], op.name={self.op.name})"


def _as_index(index: Any, tensor: Tensor) -> Expr:
    expr = build.as_expr(index)
    if not expr.dtype.is_integer:
        raise TypeError(f"tensor {tensor.name} is indexed by integers, not by {expr.dtype}")
    return expr


class TensorSlice:
    """A tensor with some of its first indices; it takes the others one by one."""

    def __init__(self, tensor: Tensor, indices: tuple[Any, ...]) -> None:
        self.tensor = tensor
        self.indices = indices

    def __getitem__(self, more: Any) -> Any:
        given = more if isinstance(more, tuple) else (more,)
        return self.tensor[self.indices + given]

    def __sterna_expr__(self) -> Expr:
        return self.tensor(*self.indices)  # says how many indices are missing


build.install_operators(TensorSlice)


@node
class ProducerLoad(Expr):
    """An element of a tensor."""

    tensor: Tensor
    indices: tuple[Expr, ...]
    dtype: DataType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.tensor.dtype


@dataclass(frozen=True, slots=True, eq=False)
class CommReducer:
    """How two partial results become one, and what the result of nothing is."""

    left: tuple[Var, ...]
    right: tuple[Var, ...]
    result: tuple[Expr, ...]
    identity: tuple[Expr, ...]


@node
class Reduce(Expr):
    """Partial results over some axes, combined in any order."""

    combiner: CommReducer
    source: tuple[Expr, ...]
    axis: tuple[IterVar, ...]
    condition: Expr
    value_index: int
    init: tuple[Expr, ...] = ()
    dtype: DataType = field(init=False)

    def __post_init__(self) -> None:
        self.dtype = self.source[self.value_index].dtype


@prints(ProducerLoad)
def _print_load(printer: Printer, load: ProducerLoad) -> Printed:
    return f"{load.tensor.name}[{printer.args(load.indices)}]", LEVEL_ATOM


@prints(Reduce)
def _print_reduce(printer: Printer, reduce: Reduce) -> Printed:
    axes = ", ".join(printer.expr(axis.var) for axis in reduce.axis)
    parts = [printer.args(reduce.combiner.result), printer.args(reduce.source), f"axis=[{axes}]"]
    if not build.is_const(reduce.condition, 1):
        parts.append(f"where={printer.expr(reduce.condition)}")
    if reduce.init:
        parts.append(f"init={printer.args(reduce.init)}")
    return f"reduce({', '.join(parts)})", LEVEL_ATOM


class PlaceholderOp(Operation):
    """An input."""

    def __init__(self, name: str, shape: Sequence[Expr], dtype: DataType) -> None:
        super().__init__(name)
        self.shape = tuple(shape)
        self.dtype = dtype
        self.outputs = [Tensor(self, 0, shape, dtype)]


class ComputeOp(Operation):
    """Every element by an expression of its indices."""

    def __init__(
        self,
        name: str,
        axis: Sequence[IterVar],
        body: Sequence[Expr],
        tag: str = "",
        attrs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(name, tag, attrs)
        self.axis = list(axis)
        self.body = tuple(body)
        first = self.body[0]
        self.reduce_axis = list(first.axis) if isinstance(first, Reduce) else []
        shape = [axis_range(iv).extent for iv in self.axis]
        self.outputs = [Tensor(self, i, shape, e.dtype) for i, e in enumerate(self.body)]
        self._check()

    def _check(self) -> None:
        for position, expr in enumerate(self.body):
            inner = expr.children() if isinstance(expr, Reduce) else [expr]
            for root in inner:
                post_order(root, self._refuse_nested_reduce)
            if isinstance(expr, Reduce) != bool(self.reduce_axis):
                raise ValueError(
                    f"compute {self.name}: all outputs must be reductions over the same axes, "
                    f"or none; output {position} differs"
                )

    def _refuse_nested_reduce(self, found: object) -> None:
        if isinstance(found, Reduce):
            raise ValueError(
                f"compute {self.name}: Reductions are only allowed at the top level of compute. "
                "Please create another tensor for further composition."
            )

    @property
    def input_tensors(self) -> list[Tensor]:
        return tensors_in(self.body)

    def rewritten(self, change: Callable[[Expr], Expr]) -> Operation:
        body = rewrite_body(self.body, change)
        return ComputeOp(self.name, self.axis, body, self.tag, self.attrs)


def axis_range(axis: IterVar) -> Range:
    """An axis's range, which must be known."""
    if axis.dom is None:
        raise ValueError(f"the axis {axis.name} has no range")
    return axis.dom


def tensors_in(exprs: Sequence[Expr]) -> list[Tensor]:
    """The tensors that expressions read, in order of first use."""
    found: dict[Tensor, None] = {}

    def visit(item: object) -> None:
        if isinstance(item, ProducerLoad):
            found.setdefault(item.tensor)

    for expr in exprs:
        post_order(expr, visit)
    return list(found)


class LoadReplacer(Rewriter):
    """Puts in place of loads what a function of tensor and indices gives."""

    def __init__(self, replacement: Callable[[Tensor, tuple[Expr, ...]], Expr | None]) -> None:
        self.replacement = replacement

    def visit_ProducerLoad(self, load: ProducerLoad) -> Expr:
        indices = tuple(self.rewrite(index) for index in load.indices)
        replaced = self.replacement(load.tensor, indices)
        if replaced is not None:
            return replaced
        same = all(a is b for a, b in zip(indices, load.indices, strict=True))
        return load if same else ProducerLoad(load.tensor, indices)


def replace_loads(
    expr: Expr, replacement: Callable[[Tensor, tuple[Expr, ...]], Expr | None]
) -> Expr:
    """The expression with loads replaced by what a function of tensor and indices gives."""
    replaced: Expr = LoadReplacer(replacement).rewrite(expr)
    return replaced


def rewrite_body(body: Sequence[Expr], change: Callable[[Expr], Expr]) -> list[Expr]:
    """A computation's expressions, changed; outputs of one reduction go on sharing its parts."""
    first = body[0]
    if not isinstance(first, Reduce):
        return [change(expr) for expr in body]
    source = tuple(change(s) for s in first.source)
    condition = change(first.condition)
    init = tuple(change(s) for s in first.init)
    return [
        Reduce(first.combiner, source, first.axis, condition, i, init) for i in range(len(body))
    ]
