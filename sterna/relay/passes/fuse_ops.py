"""Operator fusion: which operators become one kernel.

    %1 = nn.conv2d(%x, %w)               %1 = fn (%p0, %p1, %p2, Primitive=1) {
    %2 = add(%1, %b)              ->            nn.relu(add(nn.conv2d(%p0, %p1), %p2)) }
    nn.relu(%2)                          %1(%x, %w, %b)

Every call is in exactly one group, and a group becomes a primitive function. Groups grow along the
post-dominator tree: a call may join what it ends up in if everything on the way there can join too.
Three rounds, as patterns need: kernels with epilogues and elementwise chains; injective operators;
injective operators that end in a tuple. Then kernels that a processor runs better as one, as their
operators' records say; and where memory is scarce, what a kernel widens at its end moves into the
one that reads it, so that what lies between them is narrow.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from sterna.ir.module import IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.transform import Pass, function_pass
from sterna.ir.types import TensorType, TupleType, Type, same_dim
from sterna.relay.arrays import same_elements
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.op import (
    BROADCAST,
    COMM_REDUCE,
    ELEMWISE,
    INJECTIVE,
    OPAQUE,
    OUT_ELEMWISE_FUSABLE,
    TUPLE,
    is_call_of,
    record_of,
)
from sterna.relay.passes.fused_copies import has_at_most
from sterna.relay.traverse import not_primitive, post_order, rebuild

FEW_CHANNELS = 8
"""Images of fewer channels are read by whole windows on GPUs."""
MOST_COPIES = 64
"""Of the operators of one kernel, that are read in several places: more take longer to compile."""
FIXED = "Fixed"
"""What a kernel's parameters that are constants are noted by: their places."""


def FuseOps(fuse_opt_level: int = -1, processor: Any = None, notes_fixed: bool = False) -> Pass:
    """Make kernels of operators; level 0 makes one of each, -1 takes the context's level.

    notes_fixed: whether kernels are told which of their parameters are constants.
    """

    def change(func: Function, mod: IRModule, context: PassContext) -> Function:
        level = context.opt_level if fuse_opt_level < 0 else fuse_opt_level
        deepest = context.config.get("relay.FuseOps.max_depth", 256)
        return func if func.is_primitive else fuse_ops(
            func, level, deepest, processor, notes_fixed
        )

    made: Pass = function_pass(change, opt_level=0, name="FuseOps", kind=Function)
    return made


def fuse_ops(
    func: Function, level: int = 2, max_depth: int = 256, processor: Any = None,
    notes_fixed: bool = False,
) -> Function:
    """The function with its operators in primitive functions."""
    func.checked_type  # noqa: B018  (patterns depend on shapes)
    order = post_order(func, not_primitive)
    graph = _Graph(order, func, processor)
    if level >= 1:
        for phase in range(3):
            _grow(graph, phase, max_depth)
        if processor is not None:
            _chain(graph, processor, max_depth)
            if not processor.has_spare_memory:
                _narrow(graph)
        if notes_fixed:
            _take_movements(graph, max_depth)
            _take_stores(graph, max_depth)
            _take_rounding(graph, max_depth)
            _take_images(graph, max_depth)
    return _Outliner(graph, notes_fixed).run(order)


@dataclass(eq=False, slots=True)
class _Group:
    """A set of calls that may become one kernel, as a tree of merged sets."""

    pattern: int
    members: "list[_Node]"
    parent: "_Group | None" = None
    anchor: int | None = None
    """The pattern of the one call that is more than injective."""

    def root(self) -> "_Group":
        found = self
        while found.parent is not None:
            found = found.parent
        while self is not found:
            assert self.parent is not None
            self.parent, self = found, self.parent
        return found

    @property
    def size(self) -> int:
        """How many calls it has."""
        return len(self.members)

    def take(self, other: "_Group") -> None:
        """Take in what another one has."""
        other.parent = self
        self.members += other.members


@dataclass(eq=False, slots=True)
class _Node:
    expr: RelayExpr
    pattern: int
    index: int
    consumers: list[tuple["_Node", int]] = field(default_factory=list)
    escapes: bool = False
    dominator: "_Node | None" = None
    path: int = OPAQUE
    """The highest pattern of the edges on the way to the dominator."""
    depth: int = 0
    group: _Group = field(init=False)

    def __post_init__(self) -> None:
        anchor = self.pattern if COMM_REDUCE <= self.pattern < TUPLE else None
        self.group = _Group(self.pattern, [self], anchor=anchor)


class _Graph:
    """Who uses what and how, and the post-dominator tree."""

    def __init__(self, order: list[RelayExpr], func: Function, processor: Any) -> None:
        self.nodes: dict[int, _Node] = {}
        self.list: list[_Node] = []
        by_columns = processor is not None and processor.whole_vectors
        for expr in order:
            pattern = ELEMWISE if by_columns and _takes_first_columns(expr) else _pattern(expr)
            node = _Node(expr, pattern, len(self.list))
            self.nodes[id(expr)] = node
            self.list.append(node)
            for operand in expr.operands() if not_primitive(expr) else ():  # type: ignore[attr-defined]
                self._use(self.nodes[id(operand)], node)
        self.nodes[id(func.body)].escapes = True
        for node in reversed(self.list):
            self._dominate(node)

    def _use(self, operand: _Node, user: _Node) -> None:
        if not isinstance(user.expr, Call | Tuple | TupleGetItem):
            operand.escapes = True
        pattern = user.pattern
        if pattern == BROADCAST and _same_shape(operand.expr._type, user.expr._type):
            pattern = ELEMWISE
        elif isinstance(user.expr, TupleGetItem):
            pattern = INJECTIVE
        operand.consumers.append((user, pattern))

    def _dominate(self, node: _Node) -> None:
        """Find the closest node through which everything made from this one goes."""
        if node.escapes or not node.consumers:
            return
        (first, pattern), *rest = node.consumers
        meeting: _Node | None = first
        for user, edge in rest:
            meeting, passed = _meet(meeting, user)
            pattern = max(pattern, edge, passed)
        node.dominator, node.path = meeting, pattern
        node.depth = 0 if meeting is None else meeting.depth + 1


def _same_shape(a: Type | None, b: Type | None) -> bool:
    """Whether two tensors have equal shapes; a cast or a quantisation may lie between them."""
    if not isinstance(a, TensorType) or not isinstance(b, TensorType) or a.ndim != b.ndim:
        return False
    return all(map(same_dim, a.shape, b.shape))


def _meet(a: _Node | None, b: _Node | None) -> tuple[_Node | None, int]:
    """The closest common dominator of two nodes, and the highest pattern on the ways there."""
    pattern = ELEMWISE
    while a is not b:
        if a is None or b is None:
            return None, OPAQUE
        if a.index < b.index:
            pattern, a = max(pattern, a.path), a.dominator
        else:
            pattern, b = max(pattern, b.path), b.dominator
    return a, pattern


def _pattern(expr: RelayExpr) -> int:
    record = record_of(expr)
    if record is not None:
        assert isinstance(expr, Call)
        known = isinstance(expr.checked_type, TensorType) and expr.checked_type.is_symbolic
        # a shape that only the run tells: its kernel stands alone
        return record.pattern if known or record.gives_tuple else OPAQUE
    if isinstance(expr, Tuple):
        return TUPLE
    if isinstance(expr, TupleGetItem):
        return INJECTIVE
    return OPAQUE


def _takes_first_columns(expr: RelayExpr) -> bool:
    """Whether a call takes most columns of a product, which then makes no others."""
    if not is_call_of(expr, "strided_slice"):
        return False
    assert isinstance(expr, Call)
    (product,), own = expr.args, expr.checked_type
    record, wide = record_of(product), product.checked_type
    if record is None or record.contraction.gives_first_columns is None:
        return False
    assert isinstance(product, Call) and isinstance(own, TensorType)
    assert isinstance(wide, TensorType)
    if not record.contraction.gives_first_columns(product.attrs):
        return False
    attrs: Any = expr.attrs
    steps = {*attrs.begin} | {step - 1 for step in attrs.strides}
    if own.dtype != "float32" or not (own.is_static and wide.is_static) or steps != {0}:
        return False
    taken, every = own.concrete_shape, wide.concrete_shape
    return taken[:-1] == every[:-1] and 2 * taken[-1] > every[-1]


def _grow(graph: _Graph, phase: int, max_depth: int) -> None:
    for node in graph.list:
        group, sink = node.group.root(), node.dominator
        if group.pattern == OPAQUE or sink is None:
            continue
        target = sink.group.root()
        if target is group:
            continue
        if sink.pattern == TUPLE:
            # only a tuple that an injective operator has taken in
            if phase == 2 and group.pattern <= INJECTIVE and target.pattern <= INJECTIVE:
                _join(node, sink, max_depth, lambda kind, last: kind <= INJECTIVE)
        elif group.pattern == OUT_ELEMWISE_FUSABLE:
            if phase == 0 and node.path == ELEMWISE:
                _join(node, sink, max_depth, lambda kind, last: kind <= BROADCAST)
        elif group.pattern <= BROADCAST:
            if phase < 2 and (node.path <= INJECTIVE or node.path == COMM_REDUCE):
                _join(node, sink, max_depth, _broadcast_may_pass)
        elif phase == 1 and group.pattern in (INJECTIVE, TUPLE):
            _join(node, sink, max_depth, lambda kind, last: kind <= INJECTIVE)


def _broadcast_may_pass(kind: int, last: bool) -> bool:
    return kind <= (OUT_ELEMWISE_FUSABLE if last else INJECTIVE)


def _join(
    node: _Node, sink: _Node, most: int, allowed: Callable[[int, bool], bool]
) -> None:
    """Merge everything between a node and its dominator, if all of it may be in one kernel."""
    between: list[_Node] = []
    seen: set[_Node] = {node}
    stack = [node]
    while stack:
        current = stack.pop()
        if current is sink:
            continue
        for user, _ in current.consumers:
            if user in seen:
                continue
            seen.add(user)
            if not allowed(user.group.root().pattern, user is sink) or len(seen) > most:
                return
            between.append(user)
            stack.append(user)
    groups = {n.group.root() for n in (node, *between)}
    anchors = [g.anchor for g in groups if g.anchor is not None]
    if len(anchors) > 1 or sum(group.size for group in groups) > most:
        return
    if not has_at_most(MOST_COPIES, [member for group in groups for member in group.members]):
        return
    into = sink.group.root()
    for group in groups:
        if group is not into:
            into.take(group)
            into.anchor = into.anchor or group.anchor
            if group.pattern > into.pattern and group.pattern != TUPLE:
                into.pattern = group.pattern


def _chain(graph: _Graph, processor: Any, most: int) -> None:
    """Join kernels to those that alone read their results, where a processor runs both better."""
    anchors = {n.group.root(): n for n in graph.list if COMM_REDUCE <= n.pattern < TUPLE}
    for node in graph.list:
        record = record_of(node.expr)
        if record is None or record.contraction.chain is None:
            continue
        assert isinstance(node.expr, Call)
        data = graph.nodes[id(node.expr.args[0])]
        first, second = data.group.root(), node.group.root()
        before = anchors.get(first)
        if data.escapes or len(data.consumers) > 1 or first is second or before is None:
            continue
        if first.size + second.size > most or not isinstance(before.expr, Call):
            continue
        if record.contraction.chain(node.expr, before.expr, processor):
            second.take(first)


def _take_movements(graph: _Graph, most: int) -> None:
    """Join what only moves elements to the call that alone reads them, if it does so itself."""
    for node in graph.list:
        record = record_of(node.expr)
        if record is None or not record.contraction.reads_moved:
            continue
        assert isinstance(node.expr, Call)
        for arg in node.expr.args[: record.contraction.reads_moved]:
            data, into = graph.nodes[id(arg)], node.group.root()
            group = data.group.root()
            if data.escapes or any(user is not node for user, _ in data.consumers):
                continue
            calls = [each.expr for each in group.members]
            moves = all(
                _rounds(each) or (r is not None and r.pattern == INJECTIVE)
                for each, r in zip(calls, map(record_of, calls), strict=True)
            )
            if group is not into and moves and group.size + into.size <= most:
                into.take(group)


def _take_stores(graph: _Graph, most: int) -> None:
    """Join a transpose and a cast to the call whose result they alone read, if it stores so."""
    for node in graph.list:
        record = record_of(node.expr)
        if record is None or not record.contraction.gives_moved or node.escapes:
            continue
        if len(node.consumers) != 1:
            continue
        group, into = node.group.root(), node.consumers[0][0].group.root()
        moves = all(_stores(each.expr) for each in into.members)
        if group is not into and moves and into.size <= 2 and group.size + into.size <= most:
            into.take(group)
            into.anchor, into.pattern = group.anchor, group.pattern


def _stores(expr: RelayExpr) -> bool:
    """Whether a call exchanges axes but the last, or makes float32."""
    if is_call_of(expr, "transpose"):
        assert isinstance(expr, Call)
        axes: Any = expr.attrs.axes  # type: ignore[union-attr]
        return bool(axes) and axes[-1] in (-1, len(axes) - 1)
    kind = expr.checked_type
    return is_call_of(expr, "cast") and isinstance(kind, TensorType) and kind.dtype == "float32"


def _take_rounding(graph: _Graph, most: int) -> None:
    """Join a cast to 16 bits to the product that alone reads it, if it rounds its data itself."""
    for node in graph.list:
        record = record_of(node.expr)
        if record is None or not record.contraction.rounds_data:
            continue
        assert isinstance(node.expr, Call)
        data, into = graph.nodes[id(node.expr.args[0])], node.group.root()
        group = data.group.root()
        alone = group.size == 1 and not data.escapes and len(data.consumers) == 1
        if alone and _rounds(data.expr) and into.size < most:
            into.take(group)


def _take_images(graph: _Graph, most: int) -> None:
    """Join what moves or rounds an image of few channels to the convolution that alone reads it."""
    for node in graph.list:
        record = record_of(node.expr)
        if record is None or not record.contraction.reads_images:
            continue
        assert isinstance(node.expr, Call)
        data, into = graph.nodes[id(node.expr.args[0])], node.group.root()
        group, kind = data.group.root(), data.expr.checked_type
        if data.escapes or len(data.consumers) != 1 or not isinstance(kind, TensorType):
            continue
        last = kind.shape[-1]
        few = isinstance(last, int) and last < FEW_CHANNELS
        moves = all(
            is_call_of(each.expr, "layout_transform") or _rounds(each.expr)
            for each in group.members
        )
        if few and moves and group is not into and group.size + into.size <= most:
            into.take(group)


def _rounds(expr: RelayExpr) -> bool:
    """Whether a call rounds float32 to a float of 16 bits."""
    if not is_call_of(expr, "cast"):
        return False
    assert isinstance(expr, Call)
    before, after = expr.args[0].checked_type, expr.checked_type
    if not isinstance(before, TensorType) or not isinstance(after, TensorType):
        return False
    return before.dtype == "float32" and after.dtype.is_float and after.dtype.bits == 16


def _narrow(graph: _Graph) -> None:
    """Move what widens numbers from the end of a kernel to the kernel that alone reads them."""
    for node in graph.list:
        readers = {user.group.root() for user, _ in node.consumers}
        if node.escapes or len(readers) != 1 or node.group.root() in readers:
            continue
        (reader,) = readers
        follows = all(user.pattern <= BROADCAST and edge == ELEMWISE and _follows(graph, user)
                      for user, edge in node.consumers)
        for moved in _widening(graph, node) if follows else []:
            moved.group.root().members.remove(moved)
            reader.members.append(moved)
            moved.group = reader


def _widening(graph: _Graph, last: _Node) -> list[_Node]:
    """The elementwise calls at the end of a kernel behind its narrowest result, if that is less."""
    group = last.group.root()
    chain: list[_Node] = []
    least, found = _bytes(last.expr), 0
    node: _Node | None = last
    while node is not None and node.pattern <= BROADCAST and isinstance(node.expr, Call):
        if node is not last and len(node.consumers) > 1:
            break
        chain.append(node)
        inside = [own for arg in node.expr.args
                  if (own := graph.nodes[id(arg)]).group.root() is group]
        node = inside[0] if len(inside) == 1 and _same_shape(
            inside[0].expr._type, last.expr._type) else None
        if node is not None and _bytes(node.expr) < least:
            least, found = _bytes(node.expr), len(chain)
    return chain[:found]


def _follows(graph: _Graph, node: _Node) -> bool:
    """Whether a call comes behind the anchor of its kernel, if that has one."""
    group = node.group.root()
    if group.anchor is None:
        return True
    stack, seen = [node], {node}
    while stack:
        current = stack.pop()
        if COMM_REDUCE <= current.pattern < TUPLE:
            return True
        for operand in current.expr.operands():  # type: ignore[attr-defined]
            own = graph.nodes[id(operand)]
            if own not in seen and own.group.root() is group:
                seen.add(own)
                stack.append(own)
    return False


def _bytes(expr: RelayExpr) -> int:
    kind = expr._type
    return kind.dtype.bytes if isinstance(kind, TensorType) else 0


class _Outliner:
    """Rebuilds the function with every group as a call of a primitive function."""

    def __init__(self, graph: _Graph, notes_fixed: bool) -> None:
        self.graph = graph
        self.notes_fixed = notes_fixed
        self.memo: dict[int, RelayExpr] = {}
        self.bodies: dict[_Group, _Body] = {}

    def run(self, order: list[RelayExpr]) -> Function:
        for expr in order:
            self.memo[id(expr)] = self._place(expr)
        made = self.memo[id(order[-1])]
        assert isinstance(made, Function)
        return made

    def _place(self, expr: RelayExpr) -> RelayExpr:
        node = self.graph.nodes[id(expr)]
        group = node.group.root()
        if record_of(expr) is None and group.size == 1:
            return rebuild(expr, self.memo) if not_primitive(expr) else expr
        if group not in self.bodies:
            self.bodies[group] = _Body(self.memo, self.notes_fixed)
        result = self.bodies[group].add(expr)
        inside = not node.escapes and all(u.group.root() is group for u, _ in node.consumers)
        return expr if inside else self.bodies[group].call(result)


class _Body:
    """The inside of one kernel while it is put together."""

    def __init__(self, outer: dict[int, RelayExpr], notes_fixed: bool) -> None:
        self.outer = outer
        self.notes_fixed = notes_fixed
        self.inner: dict[int, RelayExpr] = {}
        self.params: list[Var] = []
        self.arguments: list[RelayExpr] = []
        self.constants: list[tuple[Constant, RelayExpr]] = []

    def add(self, expr: RelayExpr) -> RelayExpr:
        """Take an expression in; operands from outside become parameters."""
        if isinstance(expr, TupleGetItem) and self._is_outside(expr.tuple_value):
            # A parameter for this field alone: others would be other kernels, and views copies.
            field = TupleGetItem(self.outer[id(expr.tuple_value)], expr.index)
            self.inner[id(expr)] = self._param(field, expr.checked_type)
            return self.inner[id(expr)]
        record = record_of(expr)
        is_anchor = record is not None and record.pattern >= OUT_ELEMWISE_FUSABLE
        for operand in expr.operands():  # type: ignore[attr-defined]
            self._operand(operand, is_anchor)
        made = rebuild(expr, self.inner)
        if isinstance(made, Call) and is_anchor:
            made = self._own_parameters(made)
        self.inner[id(expr)] = made
        return made

    def _is_outside(self, operand: RelayExpr) -> bool:
        """Whether an operand is what another kernel, or the caller, gives."""
        return id(operand) not in self.inner and not isinstance(operand, Tuple)

    def _own_parameters(self, call: Call) -> Call:
        """An anchor that reads one array twice has a parameter for each: it packs one of them."""
        args: list[RelayExpr] = []
        for arg in call.args:
            place = next((n for n, own in enumerate(self.params) if own is arg), None)
            if place is not None and any(arg is other for other in args):
                args.append(self._param(self.arguments[place], self.params[place].checked_type))
            else:
                args.append(arg)
        if all(new is old for new, old in zip(args, call.args, strict=True)):
            return call
        made = Call(call.op, tuple(args), call.attrs)
        made.span = call.span
        return made

    def _operand(self, operand: RelayExpr, of_anchor: bool) -> RelayExpr:
        found = self.inner.get(id(operand))
        if found is None:
            if isinstance(operand, Constant) and not operand.data.shape:
                found = operand
            elif isinstance(operand, Tuple):
                found = Tuple(tuple(self._operand(part, of_anchor) for part in operand.fields))
            elif isinstance(operand, Constant) and not of_anchor:
                found = self._constant(operand)
            else:
                found = self._param(self.outer[id(operand)], operand.checked_type)
            self.inner[id(operand)] = found
        return found

    def _constant(self, operand: Constant) -> RelayExpr:
        """One parameter for all equal constants but those of anchors, which pack them."""
        for known, param in self.constants:
            if known.span == operand.span and same_elements(known.data, operand.data):
                return param
        made = self._param(self.outer[id(operand)], operand.checked_type)
        self.constants.append((operand, made))
        return made

    def _param(self, argument: RelayExpr, kind: Type) -> RelayExpr:
        """A parameter for a tensor, one for each in a tuple."""
        if isinstance(kind, TupleType):
            parts = enumerate(kind.fields)
            return Tuple(tuple(self._param(TupleGetItem(argument, i), k) for i, k in parts))
        param = Var(f"p{len(self.params)}", kind)
        self.params.append(param)
        self.arguments.append(argument)
        return param

    def call(self, result: RelayExpr) -> Call:
        """The kernel that gives this result, called."""
        attrs: dict[str, Any] = {"Primitive": 1}
        fixed = [n for n, each in enumerate(self.arguments) if isinstance(each, Constant)]
        if self.notes_fixed and fixed:
            attrs[FIXED] = tuple(fixed)
        function = Function(tuple(self.params), result, attrs=attrs)
        return Call(function, tuple(self.arguments))
