"""Private arrays that fit into registers, and the loops that must be written out for that.

Registers have no addresses: an array of a thread becomes registers where every index into it is a
number, as it is once the loops over its indices are written out.
"""

from collections.abc import Iterable

from sterna.ir import build
from sterna.ir.expr import Call, Expr, Let, Var
from sterna.ir.node import Node
from sterna.tir.fragments import NUMBERED, bytes_of_a_thread, element_of
from sterna.tir.stmt import Allocate, Buffer, BufferLoad, BufferStore, For, LetStmt, Stmt
from sterna.tir.threads import is_shared

_MOST_BYTES = 800
"""What arrays may take together of a thread's 255 registers of four bytes."""
_MOST_STEPS = 256
"""How often what is inside a nest of loops may be written out."""
_MOST_NODES = 30_000
"""How large it may be then, in nodes; a function takes as much as several."""
_NODES_OF_A_CALL = 20


def written_out(body: Stmt) -> set[int]:
    """The identities of the variables of loops to write out."""
    search = _Search()
    search.visit(body)
    found: set[int] = set()
    left = _MOST_BYTES
    smallest_first = sorted(
        search.loops.items(), key=lambda entry: bytes_of_a_thread(entry[0]) or 0
    )
    for buffer, loops in smallest_first:
        left -= 0 if buffer in search.in_memory else bytes_of_a_thread(buffer) or 0
        if left >= 0 and buffer not in search.in_memory:
            found |= {id(var) for var in loops}
    return found


class _Search:
    """Finds the loops whose variables index each private array."""

    def __init__(self) -> None:
        self.private: set[Buffer] = set()
        self.loops: dict[Buffer, set[Var]] = {}
        self.in_memory: set[Buffer] = set()
        """Arrays with an index that only the run tells."""
        self.known: dict[Var, frozenset[Var] | None] = {}
        """By variable: the loops that it depends on; None: on something else too."""
        self.steps = 1

    def visit(self, node: Node) -> None:
        """Look at all that is inside."""
        if isinstance(node, Allocate):
            self.allocate(node.buffer)
        elif isinstance(node, For):
            self.loop(node)
            return
        elif isinstance(node, LetStmt | Let):
            self.visit(node.value)
            self.known[node.var] = self.depends_on(node.value)
            self.visit(node.body)
            return
        elif isinstance(node, BufferLoad | BufferStore):
            self.access(node.buffer, node.indices)
        elif isinstance(node, Call) and node.op in NUMBERED:
            for place, behind in NUMBERED[node.op]:
                self.access(element_of(node.args[place]).buffer, (node.args[behind],))
        for child in node.children():
            self.visit(child)

    def allocate(self, buffer: Buffer) -> None:
        size = bytes_of_a_thread(buffer)
        if not is_shared(buffer.scope) and size is not None and size <= _MOST_BYTES:
            self.private.add(buffer)

    def loop(self, loop: For) -> None:
        count = build.int_value(loop.extent)
        start = self.depends_on(loop.min)
        before = self.steps
        fits = loop.kind != "thread" and count is not None and self.steps * count <= _MOST_STEPS
        fits = fits and self.steps * (count or 1) * _nodes(loop.body) <= _MOST_NODES
        if fits and start is not None:
            self.steps *= max(count or 1, 1)
            self.known[loop.var] = start | {loop.var}
        else:
            self.known[loop.var] = None
        self.visit(loop.body)
        self.steps = before

    def access(self, buffer: Buffer, indices: Iterable[Expr]) -> None:
        if buffer not in self.private:
            return
        for index in indices:
            found = self.depends_on(index)
            if found is None:
                self.in_memory.add(buffer)
            else:
                self.loops.setdefault(buffer, set()).update(found)

    def depends_on(self, expr: Expr) -> frozenset[Var] | None:
        """The loops that say what an expression is; None if they do not say it alone."""
        if isinstance(expr, Var):
            return self.known.get(expr)
        if isinstance(expr, BufferLoad | Call):
            return None
        found: frozenset[Var] = frozenset()
        for child in expr.children():
            more = self.depends_on(child) if isinstance(child, Expr) else frozenset()
            if more is None:
                return None
            found |= more
        return found


def _nodes(node: Node) -> int:
    own = _NODES_OF_A_CALL if isinstance(node, Call) else 1
    return own + sum(map(_nodes, node.children()))
