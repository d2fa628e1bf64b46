"""Runs kernels as a device may: threads in any order, between barriers.

What a function does on a device is run from its two parts: the host's, by the interpreter, and the
kernels that it launches, here. Blocks run in an order that a seed picks, and so do the threads of a
block between any two barriers. What goes wrong on some device in some order is an error in all: two
threads that touch an element between barriers, one of them writing; a barrier that only some
threads come to; an index outside its buffer. Lanes of a warp that hand values on wait for each
other there, which orders nothing that they do to memory.
"""

import itertools
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np

from sterna.ir import expr as E
from sterna.tir import interpreter
from sterna.tir import stmt as S
from sterna.tir.interpreter import _Interpreter, _lane
from sterna.tir.memory import Pointer, garbage
from sterna.tir.passes.split_host_device import (
    GIVE_WORKSPACE_BACK,
    TAKE_WORKSPACE,
    launch_of,
    split_host_device,
)
from sterna.tir.stmt import Buffer, PrimFunc, Stmt
from sterna.tir.threads import BLOCKS, LAUNCHED, THREADS, is_barrier, is_shared, rank_of_scope

WARP = 32
"""Lanes of a warp."""
_BARRIER, _SHUFFLE = "a barrier", "a shuffle"
"""Where a thread stops until others have come there too."""


class DataRaceError(RuntimeError):
    """Two threads touch an element, and nothing says in which order."""


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
        self.block = self.thread = -1
        self.open: dict[int, tuple[int, bool]] = {}
        """Addresses that threads of the block have touched since the last barrier: who, and
        whether it was written. -1: several have read it."""
        self.grid: dict[int, tuple[int, bool]] = {}
        """The same of blocks, since the launch."""
        self.given: dict[int, Any] = {}
        """By the lanes of a warp: what they hand on, and what they did when all had come."""
        self.handed: dict[int, Any] = {}

    def launch(self, args: tuple[Any, ...]) -> None:
        self.caller = self.kernel.name
        for var, buffer, arg in zip(self.kernel.params, self.kernel.buffers, args, strict=True):
            self.values[id(var)] = arg
            if buffer is not None:
                self.values[id(buffer.data)] = arg
        body, threads = self.kernel.body, {}
        while isinstance(body, S.For) and body.kind == "thread":
            threads[body.thread] = body.var
            body = body.body
        extents = dict(zip(LAUNCHED, (*launch_of(self.kernel).grid, *launch_of(self.kernel).block),
                           strict=True))
        sizes = {tag: self.expr(extent) for tag, extent in extents.items()}
        blocks = list(itertools.product(*[range(sizes[tag]) for tag in BLOCKS]))
        self.random.shuffle(blocks)
        whole = dict(self.values)
        for self.block, place in enumerate(blocks):
            values = dict(whole)
            self._enter(values, threads, BLOCKS, place)
            self._share(values, body)
            own = []
            for at in itertools.product(*[range(sizes[tag]) for tag in THREADS]):
                mine = dict(values)
                self._enter(mine, threads, THREADS, at)
                own.append((mine, self.steps(body)))
            self._run_block(own)

    def _enter(
        self, values: dict[int, Any], threads: dict[str, E.Var], tags: tuple[str, ...],
        at: tuple[int, ...],
    ) -> None:
        for tag, number in zip(tags, at, strict=True):
            if tag in threads:
                values[id(threads[tag])] = number

    def _share(self, values: dict[int, Any], body: Stmt) -> None:
        """Memory that the threads of a block have in common."""
        stack: list[Any] = [body]
        while stack:
            node = stack.pop()
            if isinstance(node, S.Allocate) and is_shared(node.buffer.scope):
                self.values = values
                count = 1
                for extent in node.buffer.shape:
                    count *= self.expr(extent)
                values[id(node.buffer.data)] = garbage(count, node.buffer.dtype)
            stack.extend(node.children())

    def _run_block(self, threads: list[tuple[dict[int, Any], Iterator[str]]]) -> None:
        """Every thread up to the next barrier, until all have ended."""
        while threads:
            warps = [range(n, min(n + WARP, len(threads))) for n in range(0, len(threads), WARP)]
            self.random.shuffle(warps)
            self.open.clear()
            waiting = sum(self._run_warp(threads, warp) for warp in warps)
            self._check_all(waiting, len(threads), _BARRIER, "block")
            threads = threads if waiting else []

    def _run_warp(
        self, threads: list[tuple[dict[int, Any], Iterator[str]]], warp: range
    ) -> int:
        """Every lane up to the next barrier; how many wait there."""
        while True:
            order = list(warp)
            self.random.shuffle(order)
            self.handed, self.given = self.given, {}
            stops = []
            for number in order:
                self.values, steps = threads[number]
                self.thread = number
                stops.append(next(steps, ""))
            self._check_all(stops.count(_SHUFFLE), len(warp), _SHUFFLE, "warp")
            if _SHUFFLE not in stops:
                self.given = {}
                return stops.count(_BARRIER)

    def _check_all(self, waiting: int, count: int, what: str, whose: str) -> None:
        if waiting and waiting < count:
            raise DataRaceError(
                f"{self.kernel.name}: {waiting} of {count} threads of a {whose} wait at {what} "
                "that the others do not come to"
            )

    # ---- statements, which may stop at barriers ----

    def steps(self, stmt: Stmt) -> Iterator[str]:
        """Do a statement; stops at each barrier, and where lanes hand values on."""
        if is_barrier(stmt):
            yield _BARRIER
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
            if isinstance(stmt.value, E.Call) and stmt.value.op in _LANES:
                self.values[id(stmt.var)] = yield from self._shuffle(stmt.value)
            else:
                self.values[id(stmt.var)] = self.expr(stmt.value)
            yield from self.steps(stmt.body)
        elif isinstance(stmt, S.Allocate):
            if not is_shared(stmt.buffer.scope):
                count = 1
                for extent in stmt.buffer.shape:
                    count *= self.expr(extent)
                self.values[id(stmt.buffer.data)] = garbage(count, stmt.buffer.dtype)
            yield from self.steps(stmt.body)
        elif isinstance(stmt, S.AttrStmt):
            yield from self.steps(stmt.body)
        elif not isinstance(stmt, S.AssertStmt):
            self.stmt(stmt)

    def _shuffle(self, call: E.Call) -> Generator[str, None, Any]:
        """What another lane has; one's own where there is no such lane."""
        _, value, other, width, _ = (self.expr(arg) for arg in call.args)
        lane = self.thread % WARP
        self.given[lane] = value
        yield _SHUFFLE
        first = lane - lane % width
        found = _LANES[call.op](lane, other, width)
        return self.handed[found if first <= found < first + width else lane]

    # ---- memory, with who has touched it ----

    def expr(self, expr: E.Expr) -> Any:
        return self.load(expr) if isinstance(expr, S.BufferLoad) else super().expr(expr)

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
            address = at.memory.ctypes.data + at.offset * at.memory.itemsize
            self._touch(self.open, address, self.thread, writes, buffer, "threads of a block")
            if not is_shared(buffer.scope):
                self._touch(self.grid, address, self.block, writes, buffer, "blocks")

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


# Whose value a lane takes: by its own number, the one it names, and the lanes of a group.
_LANES: dict[str, Callable[[int, int, int], int]] = {
    "tvm_warp_shuffle": lambda lane, other, width: lane - lane % width + other % width,
    "tvm_warp_shuffle_up": lambda lane, other, width: lane - other,
    "tvm_warp_shuffle_down": lambda lane, other, width: lane + other,
    "tvm_warp_shuffle_xor": lambda lane, other, width: lane ^ other,
}

__all__ = ["DataRaceError", "run_on_device"]
