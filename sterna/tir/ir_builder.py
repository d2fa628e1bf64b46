"""Statements written one after the other, as a program.

    ib = ir_builder.create()
    a, b = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
    with ib.for_range(0, n, name="i") as i:
        with ib.if_scope(a[i] > 0):
            b[i] = a[i]
        with ib.else_scope():
            b[i] = 0.0
    body = ib.get()
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from sterna.ir import build
from sterna.ir.expr import INT32, Call, Expr, ExprLike, StringImm, Var
from sterna.ir.node import Node
from sterna.support.dtype import DataType
from sterna.tir.buffer import decl_buffer
from sterna.tir.stmt import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferLoad,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    LoopKind,
    Stmt,
    nothing,
    seq,
)

_KINDS: dict[str, LoopKind] = {
    "serial": "serial", "parallel": "parallel", "unroll": "unrolled", "unrolled": "unrolled",
    "vectorize": "vectorized", "vectorized": "vectorized",
}

# What is around everything that follows it in its scope: a buffer, a variable, an attribute.
Opening = Callable[[Stmt], Stmt]


def create() -> "IRBuilder":
    """A builder of one statement."""
    return IRBuilder()


class BufferVar:
    """A buffer whose elements are read and, by assignment, written."""

    def __init__(
        self, builder: "IRBuilder", buffer: Buffer, shape: Sequence[ExprLike] | None = None
    ) -> None:
        self.builder = builder
        self.buffer = buffer
        self.shape = buffer.shape if shape is None else tuple(build.as_expr(e) for e in shape)

    @property
    def dtype(self) -> DataType:
        """The type of its elements."""
        return self.buffer.dtype

    def asobject(self) -> Var:
        """The buffer's address."""
        return self.buffer.data

    __sterna_expr__ = asobject

    __iter__ = None

    def _indices(self, index: Any) -> tuple[Any, ...]:
        """One index counts through all elements, the last dimension running fastest."""
        given = tuple(index) if isinstance(index, tuple | list) else (index,)
        if len(given) not in (1, len(self.shape)):
            raise ValueError(
                f"{self.buffer.name} is indexed by {len(self.shape)} numbers, not {len(given)}"
            )
        if self.shape is not self.buffer.shape and len(given) > 1:
            offset = build.as_expr(given[0])
            for extent, one in zip(self.shape[1:], given[1:], strict=True):
                offset = offset * extent + one
            given = (offset,)
        if len(given) == 1 and len(self.buffer.shape) != 1:
            return self.buffer.indices_of(given[0])
        return given

    def __getitem__(self, index: Any) -> BufferLoad:
        return self.buffer[self._indices(index)]

    def __setitem__(self, index: Any, value: Any) -> None:
        self.builder.emit(self.buffer.vstore(self._indices(index), value))

    def vload(self, index: Any, lanes: int) -> BufferLoad:
        """So many elements from a place on, as a vector; what is assigned may be one too."""
        return self.buffer.vload(self._indices(index), f"{self.dtype}x{lanes}")


class IRBuilder:
    """Collects statements; scopes are entered by `with`."""

    def __init__(self) -> None:
        self._scopes: list[list[Stmt | Opening]] = [[]]
        self._loops = 0

    # ---- collecting ----

    def emit(self, stmt: Stmt | Expr | Opening) -> None:
        """Add a statement, an expression for its effect, or what goes around all that follows."""
        if isinstance(stmt, Expr):
            stmt = Evaluate(stmt)
        if not isinstance(stmt, Stmt) and not callable(stmt):
            raise TypeError(f"emit takes a statement or an expression, not {stmt!r}")
        self._scopes[-1].append(stmt)

    def get(self) -> Stmt:
        """What was built."""
        if len(self._scopes) != 1:
            raise RuntimeError("get() is called inside a scope that is still open")
        body = _closed(self._scopes[0])
        self._scopes = [[]]
        return body

    @contextmanager
    def _scope(self, finish: Opening) -> Iterator[None]:
        self._scopes.append([])
        try:
            yield
        except BaseException:
            self._scopes.pop()
            raise
        self.emit(finish(_closed(self._scopes.pop())))

    # ---- scopes ----

    @contextmanager
    def for_range(
        self,
        begin: ExprLike,
        end: ExprLike,
        name: str = "i",
        dtype: str | None = None,
        kind: str = "serial",
        annotations: dict[str, Any] | None = None,
    ) -> Iterator[Var]:
        """A loop over begin, begin + 1, ..., end - 1."""
        if kind not in _KINDS:
            raise ValueError(f"for_range: a loop is {', '.join(_KINDS)}, not {kind!r}")
        low, high = build.match_types(begin, end)
        if dtype is not None:
            low, high = build.cast(dtype, low), build.cast(dtype, high)
        if not low.dtype.is_integer:
            raise TypeError(f"for_range: a loop runs over integers, not {low.dtype}")
        if name == "i":
            name = "ijk"[self._loops] if self._loops < 3 else f"i_{self._loops - 3}"
        var = Var(name, low.dtype)
        self._loops += 1
        extent, notes = build.sub(high, low), annotations or {}
        with self._scope(lambda body: For(var, low, extent, _KINDS[kind], body, "", notes)):
            yield var
        self._loops -= 1

    @contextmanager
    def if_scope(self, cond: ExprLike) -> Iterator[None]:
        """What is done where a condition holds."""
        condition = build.logical_and(cond, True)
        with self._scope(lambda body: IfThenElse(condition, body)):
            yield

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """What is done otherwise; it follows an if_scope."""
        before = self._scopes[-1][-1] if self._scopes[-1] else None
        if not isinstance(before, IfThenElse) or before.otherwise is not None:
            raise RuntimeError("else_scope can only follow an if_scope")
        self._scopes[-1].pop()
        with self._scope(lambda body: IfThenElse(before.condition, before.then, body)):
            yield

    @contextmanager
    def new_scope(self) -> Iterator[None]:
        """Where what is opened inside (allocate, let, scope_attr) ends."""
        with self._scope(lambda body: body):
            yield

    # ---- what lasts to the end of the scope ----

    def scope_attr(self, node: Any, attr_key: str, value: Any) -> None:
        """Say something about all that follows. A thread axis makes it the body of its threads."""
        said = build.as_expr(value)
        thread = getattr(node, "thread_tag", "")
        if attr_key in ("thread_extent", "virtual_thread") and thread:
            axis, zero = node.var, build.const(0, said.dtype)
            if axis.dtype != said.dtype:
                said, zero = build.cast(axis.dtype, said), build.const(0, axis.dtype)
            tag = "vthread" if attr_key == "virtual_thread" else thread
            self.emit(lambda body: For(axis, zero, said, "thread", body, tag))
            return
        about: Node | None = StringImm(node) if isinstance(node, str) else node
        if isinstance(node, BufferVar):
            about = node.buffer
        elif about is not None and not isinstance(about, Node):
            about = build.as_expr(about)
        self.emit(lambda body: AttrStmt(attr_key, about, said, body))

    def allocate(
        self,
        dtype: str,
        shape: Sequence[ExprLike] | ExprLike,
        name: str = "buf",
        axis_separators: Any = None,
        scope: str = "",
    ) -> BufferVar:
        """A buffer that lives to the end of the scope."""
        buffer = decl_buffer(shape, dtype, name, scope=scope, axis_separators=axis_separators)
        self.emit(lambda body: Allocate(buffer, body))
        return BufferVar(self, buffer)

    def pointer(
        self, content_type: str, name: str = "ptr", scope: str = "global"
    ) -> BufferVar:
        """Memory of so many elements as a caller gives, to read and write by an index."""
        size = Var(f"{name}.size", INT32)
        return BufferVar(self, decl_buffer((size,), content_type, name, scope=scope))

    def let(self, var_name: str, value: Any) -> Var:
        """A name for a value."""
        expr = build.as_expr(value)
        var = Var(var_name, expr.dtype)
        self.emit(lambda body: LetStmt(var, expr, body))
        return var

    # ---- expressions ----

    def buffer_ptr(self, buf: Buffer, shape: Sequence[ExprLike] | None = None) -> BufferVar:
        """A buffer to read and write by indices, those of another shape if one is given."""
        if not isinstance(buf, Buffer):
            raise TypeError(f"buffer_ptr takes a buffer, not {buf!r}")
        return BufferVar(self, buf, shape)

    def likely(self, expr: ExprLike) -> Expr:
        """A condition that nearly always holds."""
        condition = build.as_expr(expr)
        return Call(condition.dtype, "likely", (condition,))


def _closed(items: Sequence[Stmt | Opening]) -> Stmt:
    """The statements of a scope in order, each opening around those after it."""
    body: Stmt = nothing()
    for item in reversed(items):
        body = seq(item, body) if isinstance(item, Stmt) else item(body)
    return body
