"""Reductions whose axes threads share: each thread reduces its part, then they join their results.

    for t in 4:  # thread threadIdx.x                 for t in 4:  # thread threadIdx.x
        for i in n: b += a[i*4 + t]            ->         own = 0
                                                          for i in n: own += a[i*4 + t]
                                                          parts[t] = own
                                                      for t in 4: if t < 2: parts[t] += parts[t + 2]
                                                      for t in 4: if t < 1: parts[t] += parts[t + 1]
                                                      b = parts[0]

Run in any order of the threads these loops give what the plain ones do; on a GPU the parts are in
memory that the threads share, with barriers between the steps. Threads along other dimensions of
the block reduce at the same time, so that each row of them has parts of its own.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sterna.arith import substitute
from sterna.ir import build
from sterna.ir.expr import Expr, Var
from sterna.te.bounds import scope_of, threads_around
from sterna.te.tensor import COMM_REDUCE, IterVar, Reduce
from sterna.tir.stmt import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    seq,
)
from sterna.tir.threads import THREAD, THREADS, rank_of_scope

if TYPE_CHECKING:
    from sterna.te.nest import Nest

Indices = tuple[Expr, ...]


def shared_axes(nest: "Nest", leaves: Sequence[IterVar]) -> list[IterVar]:
    """Those of the loops that reduce and are bound to threads."""
    bound = nest.stage.iter_var_attrs
    return [
        leaf for leaf in leaves
        if leaf.iter_type == COMM_REDUCE
        and leaf in bound and bound[leaf].is_launched
    ]


def reduce_across_threads(nest: "Nest", leaves: Sequence[IterVar]) -> Stmt:
    """The loops from the first that reduces on, where threads share some of them."""
    return _Reduction(nest, leaves).make()


class _Reduction:
    def __init__(self, nest: "Nest", leaves: Sequence[IterVar]) -> None:
        self.nest = nest
        self.leaves = list(leaves)
        self.threads = shared_axes(nest, leaves)
        self.inner = [leaf for leaf in leaves if leaf.iter_type != COMM_REDUCE]
        outputs = nest.op.outputs
        sizes = [nest.ranges[leaf].extent for leaf in self.inner]
        counts = [nest.ranges[leaf].extent for leaf in self.threads]
        for leaf, count in zip(self.threads, counts, strict=True):
            if build.int_value(count) is None:
                raise ValueError(
                    f"the axis {leaf.name} of {nest.op.name} is reduced by threads, so its extent "
                    f"must be a number, not {count}; split it by one"
                )
        self.sizes = [build.int_value(count) or 0 for count in counts]
        self.beside = self.threads_beside()
        """Loops over other threads of the block, which reduce at the same time: where in the
        shared memory theirs is, and how many there are."""
        rest = self.beside.values()
        self.parts = [
            Buffer(f"{t.name}.parts", t.dtype, (*rest, *counts, *sizes), "shared") for t in outputs
        ]
        self.own = [Buffer(f"{t.name}.own", t.dtype, tuple(sizes), "local") for t in outputs]

    def make(self) -> Stmt:
        nest, first = self.nest, self.leaves[: len(self.threads)]
        if all(a is b for a, b in zip(first, self.threads, strict=True)):
            made = self.in_registers()
        else:
            made = self.in_parts()
        joined = seq(made, *self.join(), self.result())
        for buffer in reversed(self.parts):
            joined = Allocate(buffer, joined)
        nest.partial = None
        around = [leaf for leaf in nest.stage.leaf_iter_vars if leaf not in self.leaves]
        bound = [x for leaf in around if (x := nest.stage.iter_var_attrs.get(leaf))]
        if threads_around(nest.stage) or any(x.bind_thread is not None for x in bound):
            return joined
        # All steps are one block's, even if there is but one.
        zero, one = build.const(0), build.const(1)
        return For(Var("block", zero.dtype), zero, one, "thread", joined, "blockIdx.x")

    def threads_beside(self) -> dict[Var, Expr]:
        """The loops over threads around whose iterations have each a result of their own."""
        nest, stage = self.nest, self.nest.stage
        found: dict[str, Var] = {}
        if rank_of_scope(scope_of(stage)) == THREAD:
            found.update(threads_around(stage))
        reducing = [stage.iter_var_attrs[leaf].bind_thread for leaf in self.threads]
        for thread in reducing:
            if thread is not None and thread.thread_tag in found:
                raise ValueError(
                    f"{nest.op.name} is reduced by {thread.thread_tag}, each of which is to have a "
                    f"result of its own: schedule[{nest.op.name}].set_scope(\"shared\") lets them "
                    "have one in common"
                )
        for leaf in stage.leaf_iter_vars:
            attributes = stage.iter_var_attrs.get(leaf)
            if leaf not in self.leaves and attributes and attributes.bind_thread is not None:
                found[attributes.bind_thread.thread_tag] = leaf.var
        domains, simplify = nest.lowering.bounds.domains, nest.analyzer.simplify
        return {
            var: simplify(domains[var][1] - domains[var][0] + 1)
            for tag, var in found.items() if tag in THREADS
        }

    # ---- each thread's share ----

    def in_registers(self) -> Stmt:
        """Shares that each thread keeps to itself until the end."""
        nest, rest = self.nest, self.leaves[len(self.threads) :]
        at = tuple(leaf.var for leaf in self.inner)
        nest.partial = [(buffer, at) for buffer in self.own]
        steps = seq(
            nest.init_loops(rest, nest.start()),
            nest.loops(rest, nest.guarded(nest.update(), True)),
            self.over_inner(lambda inner: seq(*[
                BufferStore(part, BufferLoad(own, inner), self.at(self.thread_vars(), inner))
                for part, own in zip(self.parts, self.own, strict=True)
            ])),
        )
        for buffer in reversed(self.own):
            steps = Allocate(buffer, steps)
        return nest.loops(self.threads, steps)

    def in_parts(self) -> Stmt:
        """Shares in the memory of all, where other loops run around those of the threads."""
        nest = self.nest
        at = self.at(self.thread_vars(), tuple(leaf.var for leaf in self.inner))
        nest.partial = [(buffer, at) for buffer in self.parts]
        started = nest.init_loops(self.inner, nest.start())
        begin = self.over_threads(lambda threads: substitute(
            started, dict(zip(self.thread_vars(), threads, strict=True))
        ))
        return seq(begin, nest.loops(self.leaves, nest.guarded(nest.update(), True)))

    def at(self, threads: Indices, inner: Indices) -> Indices:
        """Where the share of some threads is."""
        return (*self.beside, *threads, *inner)

    def thread_vars(self) -> tuple[Var, ...]:
        return tuple(leaf.var for leaf in self.threads)

    # ---- all shares as one ----

    def join(self) -> list[Stmt]:
        """Halve the number of shares until one is left, along one kind of threads after another."""
        steps: list[Stmt] = []
        for place in reversed(range(len(self.threads))):
            left = self.sizes[place]
            while left > 1:
                half = (left + 1) // 2
                steps.append(self.halve(place, left, half))
                left = half
        return steps

    def halve(self, place: int, left: int, half: int) -> Stmt:
        def at_threads(threads: Indices) -> Stmt:
            mine = threads[place]
            other = (*threads[:place], mine + half, *threads[place + 1 :])
            # All threads run the loops, and wait for each other in them.
            return self.over_inner(lambda inner: IfThenElse(
                mine + half < left, self.combine(self.at(threads, inner), self.at(other, inner))
            ))

        return self.over_threads(at_threads)

    def combine(self, mine: Indices, other: Indices) -> Stmt:
        reduce = self.nest.op.body[0]
        assert isinstance(reduce, Reduce)
        combiner = reduce.combiner
        values: dict[Var, Expr] = {}
        for i, part in enumerate(self.parts):
            values[combiner.left[i]] = BufferLoad(part, mine)
            values[combiner.right[i]] = BufferLoad(part, other)
        results = [substitute(result, values) for result in combiner.result]
        if len(results) == 1:
            return BufferStore(self.parts[0], results[0], mine)
        names = [Var(f"{self.nest.op.name}.joined{i}", r.dtype) for i, r in enumerate(results)]
        made = seq(*[BufferStore(p, v, mine) for p, v in zip(self.parts, names, strict=True)])
        for var, result in reversed(list(zip(names, results, strict=True))):
            made = LetStmt(var, result, made)
        return made

    def result(self) -> Stmt:
        """What is left, where others read it."""
        nest = self.nest
        nest.partial = None
        zeros = tuple(build.const(0, var.dtype) for var in self.thread_vars())
        at = self.at(zeros, tuple(leaf.var for leaf in self.inner))
        stores = [nest.store_at(i, BufferLoad(p, at)) for i, p in enumerate(self.parts)]
        reduced = {leaf.var for leaf in self.leaves if leaf.iter_type == COMM_REDUCE}
        body = nest.guarded(nest.predicated(seq(*stores), reduced), False)
        return nest.init_loops(self.inner, body)

    # ---- loops ----

    def over_threads(self, body: Callable[[Indices], Stmt]) -> Stmt:
        """Loops over the threads that share the work."""
        fresh = tuple(Var(leaf.name, leaf.var.dtype) for leaf in self.threads)
        made = body(fresh)
        for leaf, var in reversed(list(zip(self.threads, fresh, strict=True))):
            made = self.nest.loop(leaf, var, made)
        return made

    def over_inner(self, body: Callable[[Indices], Stmt]) -> Stmt:
        """Plain loops over the results that a thread makes side by side."""
        fresh = tuple(Var(leaf.name, leaf.var.dtype) for leaf in self.inner)
        made = body(fresh)
        for leaf, var in reversed(list(zip(self.inner, fresh, strict=True))):
            extent = self.nest.ranges[leaf].extent
            self.nest.analyzer.bind(var, 0, extent)
            made = For(var, build.const(0, extent.dtype), extent, "serial", made)
        return made
