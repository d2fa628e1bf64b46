"""Blocks that compute each image of an open batch by itself, as the block of one image.

    fn (%x: Tensor[(n, 3, 224, 224)]) { nn.relu(nn.conv2d(%x, %w)) }
        -> fn (%x: Tensor[(1, 3, 224, 224)]) { nn.relu(nn.conv2d(%x, %w)) }, for one image after
           the other

All extents of the block of one image are known: it has the layouts, transforms and tiles of closed
networks, and its memory is that of one image. That every image is computed from itself alone is
proved by the indices of the operators' own computations. An operator may see a few rows for each
image, as a product of matrices sees its heads: a leading extent is a multiple of the batch.
"""

from dataclasses import dataclass
from typing import Any

from sterna.arith import Analyzer
from sterna.arith import substitute as with_values
from sterna.ir import build
from sterna.ir.expr import Expr, Var, variables_in
from sterna.ir.node import post_order
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import Dim, TensorType, TupleType, Type, flatten_type, same_dim
from sterna.lowering.kernel_scalars import leaves_of
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem
from sterna.relay.expr import Var as RelayVar
from sterna.relay.infer import infer
from sterna.relay.op import AnyOp, Op, record_of
from sterna.relay.requirements import collecting
from sterna.relay.symbols import map_dims_of, simplified_dim, symbols_in
from sterna.relay.traverse import post_order as parts_of
from sterna.relay.traverse import rebuild, substitute
from sterna.te import ComputeOp, PlaceholderOp, Tensor, placeholder
from sterna.te.tensor import ProducerLoad, Reduce, axis_range

FEW_ROWS = 8
"""Of a contraction: so few wait for its weights, which come again for every image."""
FEW_PART = 100
"""How many times as many multiply-adds must be in contractions of many rows of an image."""


@dataclass(frozen=True, slots=True)
class OneImage:
    """The block of one image, and the symbol that counts images."""

    block: Function
    count: Var


class _Mixed(Exception):
    """An image may be computed from others."""


def one_image(block: Function) -> OneImage | None:
    """The block of one image; None where images hang together, or run better side by side.

    What the whole block takes for granted of its extents is noted, for runs to check.
    """
    symbols = symbols_in([leaf for p in block.params for leaf in flatten_type(p.checked_type)])
    if len(symbols) != 1:
        return None
    (count,) = symbols
    parts = parts_of(block.body)
    if not any(_is_contraction(part) for part in parts):
        return None
    try:
        if any(_rows(kind, count) == 0 for kind in flatten_type(block.body.checked_type)):
            return None
        made = _of_one(block, count)
        if not _pays(made):
            return None
        proof = _Proof(count)
        for part in parts:
            proof.hold(part)
    except _Mixed:
        return None
    fresh: dict[RelayVar, RelayExpr] = {
        p: RelayVar(p.name_hint, p.checked_type) for p in block.params
    }
    infer(substitute(block.body, fresh))
    return OneImage(made, count)


def images_of(kind: TensorType, count: Var) -> int:
    """The rows of each image in a tensor of a block of whom one image is made; 0: it has none."""
    return _rows(kind, count)


# ---- the proof ----


def _rows(kind: TensorType | Tensor, count: Var) -> int:
    """How many rows of a tensor are of one image; 0 if it is the same for all of them."""
    first, *rest = [*kind.shape, None]
    if any(_names(dim, count) for dim in rest):
        raise _Mixed
    if not _names(first, count):
        return 0
    rows = simplified_dim(with_values(first, {count: build.const(1)}))  # type: ignore[type-var]
    if type(rows) is not int or rows < 1 or not _is_multiple(first, rows, count):
        raise _Mixed
    return rows


def _is_multiple(dim: object, rows: int, count: Var) -> bool:
    return same_dim(simplified_dim(dim), simplified_dim(count * rows))  # type: ignore[arg-type]


def _names(dim: object, count: Var) -> bool:
    if not isinstance(dim, Expr):
        return False
    if isinstance(dim, AnyDim):
        raise _Mixed
    found = variables_in(dim)
    return count in found


class _Proof:
    """That the first index of whatever is read is of the image that is written."""

    def __init__(self, count: Var) -> None:
        self.count = count
        self.seen: set[object] = set()

    def hold(self, part: RelayExpr) -> None:
        """Raise unless a part of the block computes images by themselves."""
        if isinstance(part, Constant | RelayVar | Tuple | TupleGetItem | Op):
            return
        record = record_of(part)
        if record is None or not isinstance(part, Call):
            raise _Mixed
        kinds = [leaf for arg in part.args for leaf in flatten_type(arg.checked_type)]
        own = flatten_type(part.checked_type)
        rows = [_rows(kind, self.count) for kind in (*kinds, *own)]
        if not any(rows) and not _numbers(part, self.count):
            return
        if record.is_view and rows and all(rows):
            return  # what lies behind each other stays there
        self._computed(part, record)

    def _computed(self, call: Call, record: AnyOp) -> None:
        key = (record.name, repr(call.attrs), repr([a.checked_type for a in call.args]))
        if key in self.seen:
            return
        if record.compute is None:
            raise _Mixed
        operands = [_placeholders(arg.checked_type) for arg in call.args]
        try:
            made = record.compute(call.attrs, call.checked_type, *operands)
        except (TypeError, ValueError):  # it needs to know more
            raise _Mixed from None
        stack = [each.op for each in (made if isinstance(made, list | tuple) else [made])]
        done: set[object] = set()
        while stack:
            op = stack.pop()
            if op in done or isinstance(op, PlaceholderOp):
                continue
            done.add(op)
            if not isinstance(op, ComputeOp):
                raise _Mixed
            self._stage(op)
            stack += [tensor.op for tensor in op.input_tensors]
        self.seen.add(key)

    def _stage(self, op: ComputeOp) -> None:
        rows = {_rows(tensor, self.count) for tensor in op.outputs}
        if len(rows) != 1:
            raise _Mixed
        (own,) = rows
        analyzer, image = Analyzer(), Var("image", self.count.dtype)
        analyzer.bind(image, 0, self.count)
        for axis in [*op.axis[1:], *op.reduce_axis] if own else [*op.axis, *op.reduce_axis]:
            extents = axis_range(axis)
            if {self.count} & {*variables_in(extents.min), *variables_in(extents.extent)}:
                raise _Mixed
            analyzer.bind(axis.var, extents)
        values: dict[Var, Expr] = {}
        if own:
            first = op.axis[0].var
            row = Var("row", first.dtype)
            analyzer.bind(row, 0, own)
            number = build.cast(first.dtype, image)
            values[first] = number if own == 1 else number * own + row
        for body in op.body:
            self._reads(with_values(body, values), image, analyzer)

    def _reads(self, body: Expr, image: Var, analyzer: Analyzer) -> None:
        """Raise unless the image's number is in the first indices alone, and adds nothing else."""
        for load in _loads(body):
            rows = _rows(load.tensor, self.count)
            if not rows:
                continue
            place = load.indices[0] - build.cast(load.indices[0].dtype, image) * rows
            within = analyzer.simplify(place)
            if {image, self.count} & {*variables_in(within)}:
                raise _Mixed
            if not analyzer.can_prove(within >= 0) or not analyzer.can_prove(within < rows):
                raise _Mixed
        for expr in _without_first(body, self.count):
            found = variables_in(analyzer.simplify(expr)) if expr.dtype.is_integer else (
                variables_in(expr))
            if {image, self.count} & {*found}:
                raise _Mixed


def _without_first(body: Expr, count: Var) -> list[Expr]:
    """The parts of an expression in which an image's number may not be."""
    found: list[Expr] = []
    stack: list[Expr] = [body]
    while stack:
        expr = stack.pop()
        if isinstance(expr, ProducerLoad):
            own = _rows(expr.tensor, count)
            for index in expr.indices[1:] if own else expr.indices:
                found.append(index)
                stack += _loads(index)
        elif isinstance(expr, Reduce):
            stack += [*expr.source, expr.condition, *expr.init]
        elif _loads(expr):
            stack += [child for child in expr.children() if isinstance(child, Expr)]
        else:
            found.append(expr)
    return found


def _loads(expr: Expr) -> list[ProducerLoad]:
    loads: dict[int, ProducerLoad] = {}

    def visit(found: object) -> None:
        if isinstance(found, ProducerLoad):
            loads[id(found)] = found

    post_order(expr, visit)
    return list(loads.values())


def _placeholders(kind: Type) -> object:
    if isinstance(kind, TupleType):
        return [_placeholders(part) for part in kind.fields]
    if not isinstance(kind, TensorType) or not kind.is_symbolic:
        raise _Mixed
    return placeholder(kind.shape, kind.dtype)


def _numbers(call: Call, count: Var) -> bool:
    """Whether an attribute names the count of images."""
    if call.attrs is None:
        return False
    return any(_names(leaf, count) for _, value in call.attrs.items() for leaf in leaves_of(value))


# ---- the block of one image ----


def _of_one(block: Function, count: Var) -> Function:
    one = {count: build.const(1)}

    def closed(dim: Dim) -> Dim:
        return simplified_dim(with_values(dim, one)) if isinstance(dim, Expr) else dim

    def value(given: object) -> object:
        if isinstance(given, tuple):
            return tuple(map(value, given))
        return closed(given) if isinstance(given, Expr) else given

    memo: dict[int, RelayExpr] = {
        id(p): RelayVar(p.name_hint, map_dims_of(p.checked_type, closed)) for p in block.params
    }
    try:
        with collecting():
            for part in parts_of(block.body):
                if id(part) in memo:
                    continue
                if isinstance(part, Call) and part.attrs is not None and _numbers(part, count):
                    given = {name: value(each) for name, each in part.attrs.items()}
                    args = tuple([memo[id(arg)] for arg in part.args])
                    made: RelayExpr = Call(part.op, args, part.attrs.replace(**given))
                    made.span = part.span
                else:
                    made = rebuild(part, memo)
                memo[id(part)] = made
            params: Any = tuple(memo[id(p)] for p in block.params)
            found = Function(params, memo[id(block.body)], None, block.type_params, block.attrs)
            infer(found)
    except (TypeError, ValueError):
        raise _Mixed from None
    return found


def _pays(made: Function) -> bool:
    """Whether nearly all products are in contractions that have enough rows in one image."""
    many = few = 0
    for part in parts_of(made.body):
        if not _is_contraction(part):
            continue
        record = record_of(part)
        assert record is not None and isinstance(part, Call)
        kinds = [arg.checked_type for arg in part.args]
        describe = record.contraction.describe
        found = describe(part.attrs, *kinds) if describe is not None else None
        if found is None:
            return False
        if found.own_weights or found.pixels >= FEW_ROWS:
            many += found.macs
        else:
            few += found.macs
    return many > FEW_PART * few


def _is_contraction(part: RelayExpr) -> bool:
    record = record_of(part)
    return record is not None and record.contraction.describe is not None
