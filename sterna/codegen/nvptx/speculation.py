"""What a thread may compute where nobody wants it: loads of a border before it is known.

A branch around a load makes a thread wait for each load before it begins the next. Computed
without a branch, from an element that is certainly there where the wanted one is not, all loads
are under way at once, and a select drops what was not wanted.
"""

from sterna.ir import build
from sterna.ir.expr import (
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
    Div,
    Expr,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Or,
    Ramp,
    Select,
    Shuffle,
    Sub,
    Var,
)
from sterna.ir.node import Node
from sterna.tir.stmt import Buffer, BufferLoad, BufferStore, IfThenElse, SeqStmt, Stmt

_MOST_NODES = 64
"""How much is computed in vain at most."""
_PLAIN = (
    Add, Sub, Mul, Div, Min, Max, CompareExpr, And, Or, Not, Select, Cast, Broadcast, Ramp,
    Shuffle, Var, IntImm, FloatImm,
)
_CALLS = frozenset({
    "likely", "exact", "abs", "reinterpret", "bitwise_and", "bitwise_or", "bitwise_xor",
    "shift_left", "shift_right", "round_bfloat16",
})


def stores_to_speculate(branch: IfThenElse) -> list[BufferStore] | None:
    """The stores of a branch if they may be done as selects: to private memory, of plain values."""
    if branch.otherwise is not None or branch.condition.dtype.lanes != 1:
        return None
    found = _stores(branch.then)
    if found is None or not all(_is_private_and_plain(store) for store in found):
        return None
    return found if _loads_memory(branch.then) else None


def may_speculate(value: Expr) -> bool:
    """Whether a value can be computed where it is not wanted, and loads something."""
    return _is_plain(value) and _size(value) <= _MOST_NODES and _loads_memory(value)


def is_private(buffer: Buffer) -> bool:
    """Whether a thread has a buffer for itself."""
    return buffer.scope == "local"


def elements_of(buffer: Buffer) -> int:
    """How many elements a buffer has; 0 if only the run tells."""
    count = 1
    for extent in buffer.shape:
        count *= build.int_value(extent) or 0
    return 0 if buffer.strides else count


def _stores(stmt: Stmt) -> list[BufferStore] | None:
    if isinstance(stmt, BufferStore):
        return [stmt]
    if not isinstance(stmt, SeqStmt):
        return None
    found: list[BufferStore] = []
    for part in stmt.stmts:
        more = _stores(part)
        if more is None:
            return None
        found += more
    return found


def _is_private_and_plain(store: BufferStore) -> bool:
    plain = all(_is_plain(each) for each in (store.value, *store.indices))
    small = _size(store.value) <= _MOST_NODES
    kept = BufferLoad(store.buffer, store.indices)
    whole = store.predicate is None and store.value.dtype == kept.dtype
    return is_private(store.buffer) and whole and plain and small


def _is_plain(expr: Expr) -> bool:
    if isinstance(expr, BufferLoad):
        lanes = expr.dtype.lanes
        # Lanes that are apart may come from rows of twice as many elements.
        least = 1 if lanes == 1 else 2 * lanes
        known = is_private(expr.buffer) or elements_of(expr.buffer) >= least
        if not known or expr.buffer.dtype.is_packed:
            return False
    elif isinstance(expr, Call):
        if expr.op not in _CALLS:
            return False
    elif isinstance(expr, FloorDiv | FloorMod):
        if not isinstance(expr.b, IntImm) or expr.b.value <= 0:
            return False
    elif not isinstance(expr, _PLAIN) or (isinstance(expr, Div) and not expr.dtype.is_float):
        return False
    return all(_is_plain(child) for child in expr.children() if isinstance(child, Expr))


def _loads_memory(node: Node) -> bool:
    if isinstance(node, BufferLoad) and not is_private(node.buffer):
        return True
    return any(_loads_memory(child) for child in node.children())


def _size(node: Node) -> int:
    return 1 + sum(map(_size, node.children()))
