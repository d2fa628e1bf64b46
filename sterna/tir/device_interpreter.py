"""Runs kernels as a device may: threads in any order, between barriers.

What a function does on a device is run from its two parts: the host's, by the interpreter, and the
kernels that it launches, here. Blocks run in an order that a seed picks, and so do the threads of a
block between any two barriers. What goes wrong on some device in some order is an error in all: two
threads that touch an element between barriers, one of them writing; a barrier that only some
threads come to; an index outside its buffer. Lanes of a warp that hand values on wait for each
other there, which orders nothing that they do to memory.
"""

import functools
import itertools
from collections.abc import Callable, Generator, Iterable
from typing import Any

import numpy as np

from sterna.ir import expr as E
from sterna.ir.node import Node, post_order
from sterna.tir import interpreter
from sterna.tir import stmt as S
from sterna.tir.device_blocks import Block
from sterna.tir.device_calls import CALLS, COLLECTIVES, WAITS, cluster_of
from sterna.tir.device_threads import (
    DataRaceError,
    Given,
    Meeting,
    Steps,
    Stop,
    Thread,
    Threads,
)
from sterna.tir.fragments import WARP, fragments_in
from sterna.tir.interpreter import _Interpreter, _lane
from sterna.tir.memory import Pointer, garbage
from sterna.tir.passes.split_host_device import (
    GIVE_WORKSPACE_BACK,
    TAKE_WORKSPACE,
    TENSOR_MAPS,
    launch_of,
    split_host_device,
)
from sterna.tir.stmt import Buffer, PrimFunc, Stmt
from sterna.tir.tensor_maps import TensorMap
from sterna.tir.threads import BLOCKS, LAUNCHED, THREADS, is_barrier, is_shared, rank_of_scope

_BARRIER, _SHUFFLE = "a barrier", "a shuffle"
_APART = 1024
"""Arrays in shared memory begin at multiples of so many bytes."""


def run_on_device(func: PrimFunc, *args: Any, seed: int = 0) -> None:
    """Run a function whose loops are bound to threads as host and device do it."""
    host, kernels = split_host_device(func)
    externs: dict[str, Callable[..., Any]] = {
        kernel.name: _launcher(kernel, seed + place) for place, kernel in enumerate(kernels)
    }
    externs[TAKE_WORKSPACE] = lambda near, size: Pointer(np.full(size, 0xCD, np.uint8))
    externs[GIVE_WORKSPACE_BACK] = lambda block: None
    interpreter.run(host, *args, externs=externs, seed=seed)


def _launcher(kernel: PrimFunc, seed: int) -> Callable[..., None]:
    def launch(*args: Any) -> None:
        _Grid(kernel, seed).launch(args[: len(kernel.params)])

    return launch


class _Grid(_Interpreter):
    """All blocks of one launch."""

    def __init__(self, kernel: PrimFunc, seed: int) -> None:
        super().__init__({}, {}, seed)
        self.kernel = kernel
        self.threads = Threads(kernel.name, self.random, self._enter)
        self.thread = self._nobody = Thread(-1, None, {})
        self.fragments = fragments_in(kernel.body)
        self.grid: dict[int, tuple[int, bool]] = {}
        """Addresses that blocks have touched since the launch: who, and whether it was written.
        -1: several have read it."""
        self.stops: dict[int, tuple[Stmt, bool]] = {}
        """By the identities of statements: whether threads may wait inside."""
        self.asked: dict[int, tuple[Node, list[E.Call]]] = {}
        """By those of nodes: what threads wait at inside, in order."""

    def launch(self, args: tuple[Any, ...]) -> None:
        self.caller = self.kernel.name
        maps = self.kernel.attrs.get(TENSOR_MAPS, {})
        pairs = zip(self.kernel.params, self.kernel.buffers, args, strict=True)
        for place, (var, buffer, arg) in enumerate(pairs):
            self.values[id(var)] = TensorMap.of(arg, maps[place]) if place in maps else arg
            if buffer is not None:
                self.values[id(buffer.data)] = arg
        body, threads = self.kernel.body, {}
        while isinstance(body, S.For) and body.kind == "thread":
            threads[body.thread] = body.var
            body = body.body
        extents = dict(zip(LAUNCHED, (*launch_of(self.kernel).grid, *launch_of(self.kernel).block),
                           strict=True))
        sizes = {tag: self.expr(extent) for tag, extent in extents.items()}
        clusters = self._clusters([sizes[tag] for tag in BLOCKS], cluster_of(body))
        self.random.shuffle(clusters)
        whole = dict(self.values)
        # Numbers of threads count along x first.
        inside = [at[::-1] for at in itertools.product(
            *[range(sizes[tag]) for tag in reversed(THREADS)])]

        def begin() -> list[Thread]:
            return [] if not clusters else [
                thread for block in clusters.pop()
                for thread in self._begin(block, whole, body, threads, inside)
            ]

        blocks = [block for cluster in clusters for block in cluster]
        self.threads.run(begin)
        for block in blocks:
            block.finish()

    def _clusters(self, sizes: list[int], together: int) -> list[list[Block]]:
        """The blocks of the grid, those that run together beside each other."""
        places = [at[::-1] for at in itertools.product(*[range(n) for n in reversed(sizes)])]
        found = []
        for first in range(0, len(places), together):
            cluster: list[Block] = []
            for place in range(first, min(first + together, len(places))):
                cluster.append(Block(place, places[place], cluster))
            found.append(cluster)
        return found

    def _begin(
        self, block: Block, whole: dict[int, Any], body: Stmt, threads: dict[str, E.Var],
        inside: list[tuple[int, ...]],
    ) -> list[Thread]:
        values = dict(whole)
        _bind(values, threads, BLOCKS, block.place)
        self._share(block, values, body)
        block.threads = len(inside)
        made = []
        for number, at in enumerate(inside):
            mine = Thread(number, block, dict(values))
            _bind(mine.values, threads, THREADS, at)
            mine.steps = self.steps(body)
            made.append(mine)
        return made

    def _enter(self, thread: Thread) -> None:
        self.thread, self.values = thread, thread.values

    def _share(self, block: Block, values: dict[int, Any], body: Stmt) -> None:
        """Memory that the threads of a block have in common: one piece, which arrays are in."""
        self.values = values
        stack: list[Any] = [body]
        arrays: list[tuple[Buffer, int, Any]] = []
        size = 0
        while stack:
            node = stack.pop()
            if isinstance(node, S.Allocate) and is_shared(node.buffer.scope):
                count = 1
                for extent in node.buffer.shape:
                    count *= self.expr(extent)
                made = garbage(count, node.buffer.dtype)
                size += -size % _APART
                arrays.append((node.buffer, size, made))
                size += made.memory.nbytes
            stack.extend(node.children())
        block.shared = np.full(size, 0xCD, np.uint8)
        for buffer, start, made in arrays:
            piece = block.shared[start : start + made.memory.nbytes].view(made.memory.dtype)
            piece[:] = made.memory
            values[id(buffer.data)] = Pointer(piece, 0, made.packed)

    # ---- statements, which may stop at barriers ----

    def steps(self, stmt: Stmt) -> Steps:
        """Do a statement; stops where threads wait."""
        if not self._may_stop(stmt):
            self.stmt(stmt)
        elif is_barrier(stmt):
            block = self.thread.block
            yield Meeting(("barrier", block.number), block.threads, _BARRIER, "block",
                          finish=lambda _: block.open.clear())
        elif isinstance(stmt, S.SeqStmt):
            for part in stmt.stmts:
                yield from self.steps(part)
        elif isinstance(stmt, S.For):
            start, extent = self.expr(stmt.min), self.expr(stmt.extent)
            for number in range(start, start + extent):
                self.values[id(stmt.var)] = number
                yield from self.steps(stmt.body)
        elif isinstance(stmt, S.IfThenElse):
            taken = stmt.then if self.expr(stmt.condition) else stmt.otherwise
            if taken is not None:
                yield from self.steps(taken)
        elif isinstance(stmt, S.LetStmt):
            self.values[id(stmt.var)] = yield from self._value(stmt.value)
            yield from self.steps(stmt.body)
        elif isinstance(stmt, S.Evaluate | S.BufferStore):
            self.current = stmt
            yield from self._ask(stmt)
            self.stmt(stmt)
        elif isinstance(stmt, S.Allocate):
            if not is_shared(stmt.buffer.scope):
                count = 1
                for extent in stmt.buffer.shape:
                    count *= self.expr(extent)
                self.values[id(stmt.buffer.data)] = garbage(count, stmt.buffer.dtype)
            yield from self.steps(stmt.body)
        elif isinstance(stmt, S.AttrStmt):
            yield from self.steps(stmt.body)
        elif isinstance(stmt, S.Tensorized):
            yield from self.steps(stmt.meaning)

    def _may_stop(self, stmt: Stmt) -> bool:
        """Whether a statement must be taken apart: threads wait inside, or it is not run at all."""
        known = self.stops.get(id(stmt))
        if known is None:
            stack: list[Any] = [stmt]
            found = False
            while stack and not found:
                node = stack.pop()
                found = isinstance(node, S.AssertStmt | S.Allocate | S.Tensorized) or (
                    isinstance(node, E.Call) and node.op in _STOPS
                )
                stack.extend(node.children())
            known = self.stops[id(stmt)] = stmt, found
        return known[1]

    def _value(self, expr: E.Expr) -> Generator[Stop, Any, Any]:
        """What an expression is, of which others may have a part."""
        yield from self._ask(expr)
        return self.expr(expr)

    def _ask(self, node: Node) -> Generator[Stop, Any, None]:
        """Wait for all that others have a part in, the inner ones first."""
        for call in self._stops_in(node):
            self.values[id(call)] = yield from self._answer(call)

    def _stops_in(self, node: Node) -> list[E.Call]:
        known = self.asked.get(id(node))
        if known is None:
            found: list[E.Call] = []
            post_order(node, lambda each: found.append(each) if (
                isinstance(each, E.Call) and each.op in _STOPS) else None)
            known = self.asked[id(node)] = node, found
        return known[1]

    def _answer(self, expr: E.Call) -> Generator[Stop, Any, Any]:
        if expr.op in _LANES:
            return (yield self._meeting(expr, WARP, _SHUFFLE, "warp", _shuffled(expr.op)))
        if expr.op in COLLECTIVES:
            row = COLLECTIVES[expr.op]
            name = {WARP: "warp"}.get(row.threads, "group of warps")
            perform: Callable[[Given], list[Any] | None] = functools.partial(
                row.perform, self, expr
            )
            return (yield self._meeting(expr, row.threads, expr.op, name, perform))
        return (yield from WAITS[expr.op](self, expr))

    def _meeting(
        self, expr: E.Call, threads: int, what: str, whose: str,
        finish: Callable[[Given], list[Any] | None],
    ) -> Meeting:
        """Where neighbouring threads do something together, each with its own arguments."""
        first = self.thread.number // threads * threads
        count = min(threads, self.thread.block.threads - first)
        given = [self.expr(arg) for arg in expr.args]
        key = (self.thread.block.number, threads, first, expr.op)
        return Meeting(key, count, what, whose, given, finish)

    # ---- memory, with who has touched it ----

    def expr(self, expr: E.Expr) -> Any:
        if isinstance(expr, S.BufferLoad):
            return self.load(expr)
        if isinstance(expr, E.Call):
            if expr.op in CALLS:
                return CALLS[expr.op](self, expr)
            if expr.op in _STOPS:
                return self.values[id(expr)]
        return super().expr(expr)

    def stmt(self, stmt: Stmt) -> None:
        if not isinstance(stmt, S.BufferStore):
            super().stmt(stmt)
            return
        self.current = stmt
        self.store(stmt)

    def load(self, expr: S.BufferLoad) -> Any:
        self._note(expr.buffer, expr.indices, False)
        return super().load(expr)

    def store(self, stmt: S.BufferStore) -> None:
        holds = True if stmt.predicate is None else self.expr(stmt.predicate)
        if holds is not False and holds != 0:
            self._note(stmt.buffer, stmt.indices, True)
        super().store(stmt)

    def _note(self, buffer: Buffer, indices: tuple[E.Expr, ...], writes: bool) -> None:
        if rank_of_scope(buffer.scope) > 1:
            return
        values = [self.expr(index) for index in indices]
        for lane in range(max((index.dtype.lanes for index in indices), default=1)):
            at = self.element(buffer, [_lane(value, lane) for value in values])
            self.touch(at.memory, (at.offset,), buffer, self.thread.number, writes)

    def touch(
        self, memory: Any, places: Iterable[int], buffer: Buffer, who: int, writes: bool
    ) -> None:
        """Note that a thread, or below -1 a warp, reads or writes elements."""
        start, size, block = memory.ctypes.data, memory.itemsize, self.thread.block
        for place in places:
            address = start + place * size
            self._touch(block.open, address, who, writes, buffer, "threads of a block")
            if not is_shared(buffer.scope):
                self._touch(self.grid, address, block.number, writes, buffer, "blocks")

    def _touch(
        self, known: dict[int, tuple[int, bool]], address: int, who: int, writes: bool,
        buffer: Buffer, whose: str,
    ) -> None:
        before = known.get(address)
        if before is None:
            known[address] = who, writes
            return
        other, written = before
        if other != who and (written or writes):
            text = str(self.current).splitlines()[0] if self.current is not None else "?"
            raise DataRaceError(
                f"{self.kernel.name}: two {whose} touch one element of {buffer.name}, and no "
                f"barrier is between them, in: {text}"
            )
        known[address] = (who if other == who else -1), written or writes


def _bind(
    values: dict[int, Any], threads: dict[str, E.Var], tags: tuple[str, ...], at: tuple[int, ...]
) -> None:
    for tag, number in zip(tags, at, strict=True):
        if tag in threads:
            values[id(threads[tag])] = number


# Whose value a lane takes: by its own number, the one it names, and the lanes of a group.
_LANES: dict[str, Callable[[int, int, int], int]] = {
    "tvm_warp_shuffle": lambda lane, other, width: lane - lane % width + other % width,
    "tvm_warp_shuffle_up": lambda lane, other, width: lane - other,
    "tvm_warp_shuffle_down": lambda lane, other, width: lane + other,
    "tvm_warp_shuffle_xor": lambda lane, other, width: lane ^ other,
}
_STOPS = frozenset({"storage_sync", *_LANES, *COLLECTIVES, *WAITS})
"""What threads may wait at."""


def _shuffled(op: str) -> Callable[[Given], list[Any] | None]:
    """What another lane has; one's own where there is no such lane."""

    def finish(lanes: Given) -> list[Any]:
        values = {thread.number % WARP: given[1] for thread, given in lanes}
        answers = []
        for thread, (_, _, other, width, _) in lanes:
            lane = thread.number % WARP
            first = lane - lane % width
            found = _LANES[op](lane, other, width)
            answers.append(values[found if first <= found < first + width else lane])
        return answers

    return finish


__all__ = ["DataRaceError", "run_on_device"]
