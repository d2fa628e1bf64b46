"""Tensor intrinsics: a computation, and the statements that do it in a machine's own way."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sterna.arith import Analyzer, interval
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Var
from sterna.ir.node import Node, post_order
from sterna.support.errors import InternalError
from sterna.te.tensor import (
    ComputeOp,
    Operation,
    PlaceholderOp,
    ProducerLoad,
    Reduce,
    Tensor,
    axis_range,
)
from sterna.tir.buffer import decl_buffer
from sterna.tir.stmt import Buffer, Evaluate, PrimFunc, Stmt
from sterna.tir.verify import verify

_PARTS = ("body", "reduce_init", "reduce_update")

# The intrinsic whose axes have these extents.
Smaller = Callable[[tuple[int, ...]], "TensorIntrin"]


class TensorIntrin:
    """What decl_tensor_intrin declares."""

    def __init__(
        self,
        name: str,
        op: ComputeOp,
        buffers: Sequence[Buffer],
        scalar_params: Sequence[Var],
        statements: Sequence[Stmt | None],
        smaller: "Smaller | None" = None,
    ) -> None:
        self.name = name
        self.op = op
        self.inputs = op.input_tensors
        self.buffers = list(buffers)
        """One for each input, then one for each output."""
        self.scalar_params = list(scalar_params)
        self.body, self.reduce_init, self.reduce_update = statements
        self.smaller = smaller
        """The same of fewer iterations of its loops, for tiles that stick out."""

    @property
    def reads_under_conditions(self) -> bool:
        """Whether the computation may leave out some elements of its inputs."""
        found: list[Node] = []

        def look(node: Node) -> None:
            lazy = isinstance(node, Call) and node.op == "if_then_else"
            if lazy or (isinstance(node, Reduce) and not build.is_const(node.condition, 1)):
                found.append(node)

        for expr in self.op.body:
            post_order(expr, look)
        return bool(found)

    def __repr__(self) -> str:
        return f"TensorIntrin({self.name})"


def decl_tensor_intrin(
    op: Operation,
    fcompute: Callable[..., Any],
    name: str = "tensor_intrin",
    binds: Mapping[Tensor, Buffer] | None = None,
    scalar_params: Sequence[Var] | Var | None = None,
    default_buffer_params: Mapping[str, Any] | None = None,
    smaller: Smaller | None = None,
) -> TensorIntrin:
    """An intrinsic that computes what op does, on buffers whose strides may be variables.

    fcompute gets a buffer for each input (in the order in which op reads them), one for each
    output, and the scalar parameters if there are some. It gives a statement that does the whole
    computation; for a reduction a tuple of three, of which some may be None: that statement, one
    that sets the outputs to the result of nothing, and one that adds a part of the reduction to
    them. binds says what a tensor's buffer looks like, default_buffer_params what the others do.
    smaller, given the extents of the axes of op, gives the intrinsic for the tiles that stick out
    where splits do not divide; without it plain loops compute those.
    """
    if not isinstance(op, ComputeOp):
        raise TypeError(f"the intrinsic {name} needs the operation of a compute, not {op!r}")
    for tensor in op.input_tensors:
        if not isinstance(tensor.op, PlaceholderOp):
            raise ValueError(
                f"Do not yet support composition op: {tensor.name}, an input of the intrinsic "
                f"{name}, must be a placeholder"
            )
    _check_reads(op, name)
    inputs = _buffers(op.input_tensors, name, binds or {}, default_buffer_params or {})
    outputs = _buffers(op.outputs, name, binds or {}, default_buffer_params or {})
    for tensor in binds or ():
        if not any(tensor is known for known in (*op.input_tensors, *op.outputs)):
            raise ValueError(f"the intrinsic {name} binds {tensor}, which is no part of it")
    given = [scalar_params] if isinstance(scalar_params, Var) else list(scalar_params or ())
    made = fcompute(inputs, outputs, given) if given else fcompute(inputs, outputs)
    statements = _statements(made, name, bool(op.reduce_axis))
    for part, stmt in zip(_PARTS, statements, strict=True):
        _check_statement(f"{part} of the intrinsic {name}", stmt, [*inputs, *outputs], given)
    return TensorIntrin(name, op, [*inputs, *outputs], given, statements, smaller)


def _buffers(
    tensors: Sequence[Tensor], name: str, binds: Mapping[Tensor, Buffer], others: Mapping[str, Any]
) -> list[Buffer]:
    found = []
    for tensor in tensors:
        buffer = binds.get(tensor)
        if buffer is None:
            buffer = decl_buffer(tensor.shape, tensor.dtype, tensor.name, **others)
        same = len(buffer.shape) == tensor.ndim and all(
            Analyzer().can_prove_equal(a, b)
            for a, b in zip(buffer.shape, tensor.shape, strict=True)
        )
        if not same or buffer.dtype != tensor.dtype:
            raise ValueError(
                f"the intrinsic {name} binds {tensor.name}, {tensor.dtype}{list(tensor.shape)}, to "
                f"the buffer {buffer}"
            )
        found.append(buffer)
    return found


def _statements(made: Any, name: str, reduces: bool) -> list[Stmt | None]:
    parts = list(made) if isinstance(made, tuple | list) else [made]
    parts += [None] * (len(_PARTS) - len(parts))
    if len(parts) > len(_PARTS):
        raise ValueError(f"the intrinsic {name} gives {len(parts)} statements, not 3 at most")
    if not reduces and any(part is not None for part in parts[1:]):
        raise ValueError(f"the intrinsic {name} reduces nothing: it gives one statement alone")
    if parts[0] is None and parts[2] is None:
        raise ValueError(f"the intrinsic {name} gives no statement that computes something")
    done: list[Stmt | None] = []
    for part, stmt in zip(_PARTS, parts, strict=True):
        if isinstance(stmt, Expr):
            stmt = Evaluate(stmt)
        if stmt is not None and not isinstance(stmt, Stmt):
            raise TypeError(f"the {part} of the intrinsic {name} is no statement: {stmt!r}")
        done.append(stmt)
    return done


def _check_statement(
    what: str, stmt: Stmt | None, buffers: Sequence[Buffer], scalars: Sequence[Var]
) -> None:
    """It may use the buffers, variables of their shapes and strides, and the scalar parameters."""
    if stmt is None:
        return
    params = [*[b.data for b in buffers], *scalars]
    places = [*buffers, *[None] * len(scalars)]
    try:
        verify(PrimFunc("intrinsic", tuple(params), tuple(places), stmt))
    except InternalError as error:
        reason = str(error).partition(": ")[2]
        raise ValueError(f"the {what} is wrong: {reason}") from None


def _check_reads(op: ComputeOp, name: str) -> None:
    """Each input must be read from its first element to its last, for statements may do that."""
    analyzer = Analyzer()
    domains: dict[Var, tuple[Expr, Expr]] = {}
    for axis in (*op.axis, *op.reduce_axis):
        extent = axis_range(axis).extent
        if not build.is_const(axis_range(axis).min, 0):
            raise ValueError(f"the axis {axis.name} of the intrinsic {name} must start at 0")
        domains[axis.var] = (build.const(0, extent.dtype), build.sub(extent, 1))
        analyzer.bind(axis.var, 0, extent)
    lows: dict[tuple[Tensor, int], list[Expr | None]] = {}
    highs: dict[tuple[Tensor, int], list[Expr | None]] = {}

    def look(node: Node) -> None:
        if isinstance(node, ProducerLoad):
            for dim, index in enumerate(node.indices):
                low, high = interval(index, domains)
                lows.setdefault((node.tensor, dim), []).append(low)
                highs.setdefault((node.tensor, dim), []).append(high)

    for expr in op.body:
        post_order(expr, look)
    for (tensor, dim), ends in lows.items():
        last = build.sub(tensor.shape[dim], 1)
        whole = _extreme(ends, build.minimum), _extreme(highs[tensor, dim], build.maximum)
        for end, wanted in zip(whole, (build.const(0, last.dtype), last), strict=True):
            if end is None or not analyzer.can_prove_equal(end, wanted):
                raise ValueError(
                    f"the intrinsic {name} does not read the whole of its input {tensor.name}: its "
                    f"index {dim} goes from {whole[0]} to {whole[1]}, the shape is "
                    f"{list(tensor.shape)}"
                )


def _extreme(ends: list[Expr | None], choose: Callable[[Expr, Expr], Expr]) -> Expr | None:
    found = ends[0]
    for end in ends[1:]:
        found = None if found is None or end is None else choose(found, end)
    return found
