"""Reads a hybrid script: its statements, one by one, as the loops of an opaque operation."""

import ast
import inspect
import math
import operator
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NoReturn

from sterna.arith.bounds import IntBound, type_bound
from sterna.ir import build
from sterna.ir.expr import Expr, StringImm
from sterna.ir.node import nodes_of
from sterna.support.dtype import DataType
from sterna.te.extern import ExternOp
from sterna.te.hybrid.words import LOOPS, WORDS, HybridFunction
from sterna.te.operation import thread_axis
from sterna.te.tag import tag_in_scope
from sterna.te.tensor import Tensor
from sterna.tir import ir_builder
from sterna.tir.buffer import decl_buffer
from sterna.tir.ir_builder import BufferVar, IRBuilder
from sterna.tir.stmt import AssertStmt, BufferLoad

_OPERATORS: Mapping[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: build.div,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.Pow: WORDS["power"],
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor,
    ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.Lt: build.less, ast.LtE: build.less_equal, ast.Gt: build.greater,
    ast.GtE: build.greater_equal, ast.Eq: build.equal, ast.NotEq: build.not_equal,
    ast.And: build.logical_and, ast.Or: build.logical_or, ast.Not: build.logical_not,
    ast.USub: operator.neg, ast.UAdd: lambda value: value, ast.Invert: operator.invert,
}
# The same of numbers of Python's, which are computed while the script is read.
_OF_NUMBERS: Mapping[type[ast.AST], Callable[..., Any]] = {
    **_OPERATORS, ast.Div: operator.truediv, ast.Pow: operator.pow, ast.Lt: operator.lt,
    ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge, ast.Eq: operator.eq,
    ast.NotEq: operator.ne, ast.Not: operator.not_,
}
_MAKERS = ("output_tensor", "allocate")


@dataclass(slots=True)
class _Array:
    """A buffer that a name of the script stands for; is_number: it is a variable's only element."""

    buffer: BufferVar
    tensor: Tensor | None = None
    is_number: bool = False

    @property
    def shape(self) -> tuple[Expr, ...]:
        return self.buffer.shape

    @property
    def dtype(self) -> DataType:
        return self.buffer.dtype


def read(function: FunctionType, args: Sequence[Any]) -> Any:
    """What a function returns of tensors and numbers, as tensors."""
    return _Reader(function).run(args)


class _Reader:
    """The function's text, what its names stand for, and the statements so far."""

    def __init__(self, function: FunctionType) -> None:
        try:
            lines, self.first_line = inspect.getsourcelines(function)
        except OSError:
            raise ValueError(
                f"hybrid script {function.__name__}: its text cannot be found; define it in a file"
            ) from None
        self.function = function
        self.text = textwrap.dedent("".join(lines))
        (self.tree,) = ast.parse(self.text).body
        assert isinstance(self.tree, ast.FunctionDef)
        self.builder: IRBuilder = ir_builder.create()
        self.names: dict[str, Any] = {}
        self.inputs: list[tuple[Tensor, BufferVar]] = []
        self.outputs: list[BufferVar] = []
        self.returned: list[BufferVar] | None = None
        self.assigned = Counter(
            node.id for node in ast.walk(self.tree)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        )

    def refuse(self, node: ast.AST, why: str) -> NoReturn:
        number = getattr(node, "lineno", 1)
        line = self.text.splitlines()[number - 1].strip()
        raise ValueError(
            f"hybrid script {self.function.__name__}, line {self.first_line + number - 1} "
            f"({line}): {why}"
        )

    def run(self, args: Sequence[Any]) -> Any:
        assert isinstance(self.tree, ast.FunctionDef)
        names = [each.arg for each in self.tree.args.args]
        if len(names) != len(args):
            self.refuse(self.tree, f"it takes {len(names)} arguments, not {len(args)}")
        for name, given in zip(names, args, strict=True):
            self.names[name] = self.given(given)
        self.block(self.tree.body)
        if self.returned is None:
            self.refuse(self.tree, "it returns nothing: return what output_tensor made")
        left = [one.buffer.name for one in self.outputs if one not in self.returned]
        if left:
            self.refuse(self.tree, f"the output_tensor {left[0]} is not returned")
        made = ExternOp(
            self.function.__name__, [tensor for tensor, _ in self.inputs],
            [each.buffer.shape for each in self.returned],
            [each.buffer for _, each in self.inputs], [each.buffer for each in self.returned],
            self.builder.get(), tag_in_scope("hybrid"), None,
        )
        return made.output(0) if len(made.outputs) == 1 else list(made.outputs)

    def given(self, value: Any) -> Any:
        """An argument, or a tensor that another script returned, as what its name stands for."""
        if isinstance(value, list | tuple):
            return tuple(self.given(each) for each in value)
        if not isinstance(value, Tensor):
            return value
        for tensor, known in self.inputs:
            if tensor is value:
                return _Array(known, tensor)
        buffer = self.builder.buffer_ptr(decl_buffer(value.shape, value.dtype, value.op.name))
        self.inputs.append((value, buffer))
        return _Array(buffer, value)

    # ---- statements ----

    def block(self, body: Sequence[ast.stmt]) -> None:
        for stmt in body:
            if self.returned is not None:
                self.refuse(stmt, "what follows return is never done")
            reader = getattr(self, f"read_{type(stmt).__name__}", None)
            if reader is None:
                self.refuse(stmt, f"a script has loops, ifs and assignments, no {_kind(stmt)}")
            reader(stmt)

    @contextmanager
    def inner(self) -> Iterator[None]:
        """A loop or branch: the names that it brings end with it."""
        before = dict(self.names)
        yield
        if self.returned is not None:
            self.refuse(self.tree, "it returns at its end only, not out of loops and branches")
        self.names = before

    def read_Pass(self, stmt: ast.Pass) -> None:
        return

    def read_Expr(self, stmt: ast.Expr) -> None:
        if not isinstance(stmt.value, ast.Constant):  # a text there is a comment
            value = self.value(stmt.value)
            if not isinstance(value, Expr):
                self.refuse(stmt, "this does nothing")
            self.builder.emit(value)

    def read_Return(self, stmt: ast.Return) -> None:
        given = [] if stmt.value is None else self.value(stmt.value)
        listed = given if isinstance(given, tuple) else (given,)
        for each in listed:
            if not isinstance(each, _Array) or each.buffer not in self.outputs:
                self.refuse(stmt, "it returns what output_tensor made, and nothing else")
        self.returned = [each.buffer for each in listed]

    def read_Assert(self, stmt: ast.Assert) -> None:
        condition = build.as_expr(self.value(stmt.test))
        text = self.value(stmt.msg) if stmt.msg is not None else ast.unparse(stmt.test)
        self.builder.emit(AssertStmt(condition, "ValueError", str(text)))

    def read_If(self, stmt: ast.If) -> None:
        condition = self.value(stmt.test)
        if not isinstance(condition, Expr):
            self.block(stmt.body if condition else stmt.orelse)
            return
        with self.builder.if_scope(condition), self.inner():
            self.block(stmt.body)
        if stmt.orelse:
            with self.builder.else_scope(), self.inner():
                self.block(stmt.orelse)

    def read_For(self, stmt: ast.For) -> None:
        if not isinstance(stmt.target, ast.Name) or stmt.orelse:
            self.refuse(stmt, "a loop has one variable, and no else")
        name, around = stmt.target.id, stmt.iter
        word = getattr(getattr(around, "func", None), "id", "")
        if not isinstance(around, ast.Call) or word not in (*LOOPS, "const_range", "bind"):
            values = self.value(around)
            if not isinstance(values, tuple):
                self.refuse(stmt, f"a loop runs over {', '.join(LOOPS)}, const_range or bind")
            self.written_out(stmt, name, values)
            return
        given = [self.value(each) for each in around.args]
        if word == "bind":
            self.over_threads(stmt, name, given)
            return
        begin, end, step = {1: (0, *given, 1), 2: (*given, 1), 3: tuple(given)}.get(
            len(given), (0, 0, 0)
        )
        if not isinstance(step, int) or step < 1:
            self.refuse(stmt, f"{word} takes (end), (begin, end) or (begin, end, step)")
        if word == "const_range":
            if not all(isinstance(build.int_value(each), int) for each in (begin, end)):
                self.refuse(stmt, "const_range takes numbers that are known here")
            known = range(build.int_value(begin) or 0, build.int_value(end) or 0, step)
            self.written_out(stmt, name, tuple(known))
            return
        count = -((begin - end) // step) if step > 1 else end - begin
        kind = LOOPS[word]
        with self.builder.for_range(0, count, name, kind=kind) as var, self.inner():
            self.names[name] = build.add(begin, build.mul(var, step))
            self.block(stmt.body)

    def written_out(self, stmt: ast.For, name: str, values: tuple[Any, ...]) -> None:
        for value in self.kept(name, values):
            with self.inner(), self.builder.new_scope():
                self.names[name] = value
                self.block(stmt.body)

    def over_threads(self, stmt: ast.For, name: str, given: Sequence[Any]) -> None:
        if len(given) != 2 or not isinstance(given[0], str):
            self.refuse(stmt, 'bind takes the name of threads and how many: bind("threadIdx.x", 8)')
        with self.inner(), self.builder.new_scope():
            axis = thread_axis((0, given[1]), given[0], name)
            self.builder.scope_attr(axis, "thread_extent", given[1])
            self.names[name] = axis.var
            self.block(stmt.body)

    def read_Assign(self, stmt: ast.Assign) -> None:
        if len(stmt.targets) != 1:
            self.refuse(stmt, "one name is assigned at a time")
        (target,) = stmt.targets
        value = stmt.value
        if isinstance(value, ast.Call) and getattr(value.func, "id", "") in _MAKERS:
            self.declare(stmt, target, value)
        elif isinstance(target, ast.Tuple):
            found = self.value(value)
            if not isinstance(found, tuple) or len(found) != len(target.elts):
                self.refuse(stmt, f"{len(target.elts)} names are given something else")
            for each, one in zip(target.elts, self.kept("one", found), strict=True):
                self.assign(stmt, each, one)
        else:
            self.assign(stmt, target, self.value(value))

    def read_AugAssign(self, stmt: ast.AugAssign) -> None:
        before = self.value(ast.copy_location(_loaded(stmt.target), stmt))
        self.assign(stmt, stmt.target, self.operate(stmt, type(stmt.op), before, stmt.value))

    def declare(self, stmt: ast.Assign, target: ast.expr, call: ast.Call) -> None:
        if not isinstance(target, ast.Name) or target.id in self.names:
            self.refuse(stmt, "a tensor is given a name of its own")
        word = getattr(call.func, "id", "")
        args = dict(zip(("shape", "dtype", "scope"), map(self.value, call.args), strict=False))
        args |= {each.arg or "": self.value(each.value) for each in call.keywords}
        shape, dtype = args.get("shape"), str(args.get("dtype", "float32"))
        if not isinstance(shape, tuple):
            self.refuse(stmt, f"{word} takes a shape, (4, 4), and a type")
        if word == "allocate":
            scope = str(args.get("scope", "global"))
            made = self.builder.allocate(dtype, shape, target.id, scope=scope)
        else:
            made = self.builder.buffer_ptr(decl_buffer(shape, dtype, target.id))
            self.outputs.append(made)
        self.names[target.id] = _Array(made)

    def assign(self, stmt: ast.stmt, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Subscript):
            array = self.value(target.value)
            if not isinstance(array, _Array):
                self.refuse(stmt, f"{ast.unparse(target.value)} is no tensor")
            if array.tensor is not None:
                self.refuse(stmt, f"{ast.unparse(target.value)} is an input, which is only read")
            indices = self.indices(target, array)
            array.buffer[indices] = build.cast(array.dtype, self.number(stmt, value))
            return
        if not isinstance(target, ast.Name):
            self.refuse(stmt, "names and elements of tensors are assigned")
        known = self.names.get(target.id)
        if isinstance(known, _Array) and known.is_number:
            number = self.number(stmt, value)
            if not _has_room(known.dtype, number):
                self.refuse(
                    stmt, f"{target.id} is {known.dtype}, as what it was given first, and has no "
                    f"room for {number.dtype}: begin with {number.dtype}(...), or convert this"
                )
            known.buffer[0] = build.cast(known.dtype, number)
        elif known is not None:
            self.refuse(stmt, f"{target.id} is something else already; take another name")
        elif self.assigned[target.id] == 1 and (_stays(value) or isinstance(value, tuple)):
            self.names[target.id] = self.kept(target.id, value)
        else:
            expr = self.number(stmt, value)
            made = self.builder.allocate(str(expr.dtype), (1,), target.id, scope="local")
            self.names[target.id] = _Array(made, is_number=True)
            made[0] = expr

    # ---- values ----

    def kept(self, name: str, value: Any) -> Any:
        """A value as it is now, whatever is written to what it was read from."""
        if isinstance(value, tuple):
            return tuple(self.kept(name, each) for each in value)
        is_read = isinstance(value, Expr) and not _stays(value)
        return self.builder.let(name, value) if is_read else value

    def number(self, node: ast.AST, value: Any) -> Expr:
        if isinstance(value, bool | int | float | Expr) and not isinstance(value, StringImm):
            return build.as_expr(value)
        self.refuse(node, "a number was expected")

    def value(self, node: ast.expr) -> Any:
        reader = getattr(self, f"value_{type(node).__name__}", None)
        if reader is None:
            self.refuse(node, f"a script has no {_kind(node)}")
        return reader(node)

    def value_Constant(self, node: ast.Constant) -> Any:
        return node.value

    def value_Tuple(self, node: ast.Tuple | ast.List) -> Any:
        return tuple(self.value(each) for each in node.elts)

    value_List = value_Tuple

    def value_Name(self, node: ast.Name) -> Any:
        found = self.names.get(node.id)
        if isinstance(found, _Array) and found.is_number:
            return found.buffer[0]
        if found is not None or node.id in self.names:
            return found
        around = inspect.getclosurevars(self.function)
        for known in (around.nonlocals, around.globals):
            if node.id in known:
                return self.captured(node, known[node.id])
        if node.id in WORDS:
            return WORDS[node.id]
        self.refuse(node, f"{node.id} is not defined here")

    def captured(self, node: ast.expr, value: Any) -> Any:
        if isinstance(value, list):
            return tuple(value)
        if isinstance(value, Tensor):
            self.refuse(node, "tensors are arguments: give it as one")
        return value

    def value_Attribute(self, node: ast.Attribute) -> Any:
        return getattr(self.value(node.value), node.attr)

    def indices(self, node: ast.Subscript, array: _Array) -> tuple[Any, ...]:
        """The places of an element, which have no meaning from the end or for whole rows."""
        given = self.value(node.slice)
        listed = given if isinstance(given, tuple) else (given,)
        if len(listed) != len(array.shape):
            self.refuse(node, f"an element of {ast.unparse(node.value)} has {len(array.shape)} "
                              f"indices, not {len(listed)}")
        for index, extent in zip(listed, array.shape, strict=True):
            place, size = build.int_value(build.as_expr(index)), build.int_value(extent)
            if place is not None and (place < 0 or (size is not None and place >= size)):
                self.refuse(node, f"the index {place} is none of 0 to {extent} - 1")
        return listed

    def value_Subscript(self, node: ast.Subscript) -> Any:
        whole = self.value(node.value)
        if isinstance(whole, _Array):
            return whole.buffer[self.indices(node, whole)]
        index = self.value(node.slice)
        known = index if isinstance(index, int) else build.int_value(index)
        if not isinstance(whole, Sequence) or known is None:
            self.refuse(node, "an element is one of a tensor, or has a number that is known here")
        if not -len(whole) <= known < len(whole):
            self.refuse(node, f"there are {len(whole)} of them")
        return whole[known]

    def operate(self, node: ast.AST, kind: type[ast.AST], left: Any, right: ast.expr) -> Any:
        """An operation; of numbers of Python's it is computed here."""
        b = self.value(right)
        table = _OPERATORS if isinstance(left, Expr) or isinstance(b, Expr) else _OF_NUMBERS
        if kind not in table:
            self.refuse(node, f"a script has no {kind.__name__}")
        if table is _OPERATORS and not isinstance(left, Expr):
            left = build.as_expr(left, b)
        if table is _OPERATORS and kind is ast.Div and not any(
            build.as_expr(each).dtype.is_float for each in (left, b)
        ):
            self.refuse(node, "/ of integers is a float in Python: take //, or convert one")
        return table[kind](left, b)

    def value_BinOp(self, node: ast.BinOp) -> Any:
        return self.operate(node, type(node.op), self.value(node.left), node.right)

    def value_BoolOp(self, node: ast.BoolOp) -> Any:
        made, stops_at = self.value(node.values[0]), isinstance(node.op, ast.Or)
        for each in node.values[1:]:
            if isinstance(made, Expr):
                made = self.operate(node, type(node.op), made, each)
            elif bool(made) == stops_at:
                break
            else:
                made = self.value(each)
        return made

    def value_Compare(self, node: ast.Compare) -> Any:
        made, left = None, node.left
        for kind, right in zip(node.ops, node.comparators, strict=True):
            one = self.operate(node, type(kind), self.value(left), right)
            is_known = not isinstance(one, Expr) and not isinstance(made, Expr)
            both = (lambda a, b: a and b) if is_known else build.logical_and
            made, left = one if made is None else both(made, one), right
        return made

    def value_UnaryOp(self, node: ast.UnaryOp) -> Any:
        operand = self.value(node.operand)
        table = _OPERATORS if isinstance(operand, Expr) else _OF_NUMBERS
        return table[type(node.op)](operand)

    def value_IfExp(self, node: ast.IfExp) -> Any:
        condition = self.value(node.test)
        if not isinstance(condition, Expr):
            return self.value(node.body if condition else node.orelse)
        return build.if_then_else(condition, self.value(node.body), self.value(node.orelse))

    def value_Call(self, node: ast.Call) -> Any:
        function = self.value(node.func)
        args = [self.value(each) for each in node.args]
        named = {each.arg or "": self.value(each.value) for each in node.keywords}
        if isinstance(function, HybridFunction):
            tensors = [self.as_argument(node, each) for each in args]
            return self.given(function(*tensors))
        if not callable(function):
            self.refuse(node, f"{ast.unparse(node.func)} is no function")
        numbers = (isinstance(each, int | float) for each in args)
        if all(numbers) and getattr(math, getattr(node.func, "id", ""), None) is not None:
            args = [build.as_expr(float(each)) for each in args]
        return function(*args, **named)

    def as_argument(self, node: ast.AST, value: Any) -> Any:
        if isinstance(value, _Array) and value.tensor is None:
            self.refuse(node, "another script takes inputs of this one, not what it has made")
        return value.tensor if isinstance(value, _Array) else value


def _has_room(dtype: DataType, number: Expr) -> bool:
    """Whether a variable of a type takes a number as it is."""
    given, value, bound = number.dtype, build.int_value(number), type_bound(dtype)
    if dtype == given or (dtype.is_float and not given.is_float):
        return True
    if dtype.is_float or given.is_float or dtype.is_bool:
        return dtype.is_float and dtype.bits > given.bits
    least = type_bound(given) if value is None else IntBound(value, value)
    return given.is_bool or bound.low <= least.low <= least.high <= bound.high


def _stays(value: Any) -> bool:
    """Whether a value is the same wherever its name is used."""
    if isinstance(value, _Array):
        return value.tensor is not None
    return not isinstance(value, Expr) or next(nodes_of(value, BufferLoad), None) is None


def _loaded(target: ast.expr) -> ast.expr:
    """A target as a value."""
    read_again = ast.parse(ast.unparse(target), mode="eval").body
    assert isinstance(read_again, ast.expr)
    return read_again


def _kind(node: ast.AST) -> str:
    return type(node).__name__.lower()
