"""An intrinsic's statements on the buffers that a schedule has."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd

from sterna.arith import Analyzer, substitute
from sterna.ir import build
from sterna.ir.expr import HANDLE, Call, Expr, Ramp, Var
from sterna.ir.node import Node
from sterna.ir.visitor import Rewriter
from sterna.te.intrin_match import Dims
from sterna.tir.copy import copy_stmt
from sterna.tir.external import explicit_view, view_at
from sterna.tir.stmt import Buffer, BufferLoad, BufferStore, Stmt


@dataclass
class View:
    """Where the elements of a declared buffer are in another."""

    buffer: Buffer
    first: tuple[Expr, ...]
    dims: Dims
    is_ours: bool
    """Whether the buffer can be as aligned as it should be."""


class Binding:
    """What an intrinsic's buffers and variables stand for."""

    def __init__(self, intrinsic: str, values: dict[Var, Expr], analyzer: Analyzer) -> None:
        self.intrinsic = intrinsic
        self.values = values
        self.analyzer = analyzer
        self.views: dict[Buffer, View] = {}

    def statement(self, stmt: Stmt) -> Stmt:
        """A copy of one of the intrinsic's statements on the real buffers."""
        return copy_stmt(substitute(_Mover(self).rewrite(stmt), self.values), {})

    def bind(self, declared: Buffer, view: View) -> None:
        """Let a declared buffer be a part of another one, if it can be."""
        self.views[declared] = view
        first = BufferLoad(view.buffer, view.first)
        self.values[declared.data] = Call(HANDLE, "address_of", (first,))
        if declared.scope != view.buffer.scope:
            raise ValueError(
                f"{self.about(declared, view)} lies in {view.buffer.scope} memory, not in "
                f'{declared.scope}; declare it with scope="{view.buffer.scope}"'
            )
        self.bind_strides(declared, view)
        self.check_alignment(declared, view)

    def about(self, declared: Buffer, view: View) -> str:
        place = BufferLoad(view.buffer, view.first)
        return f"the intrinsic {self.intrinsic}: its buffer {declared.name}, which is at {place},"

    def bind_strides(self, declared: Buffer, view: View) -> None:
        shape = tuple(substitute(extent, self.values) for extent in declared.shape)
        compact = compact_strides(shape)
        real = strides_of(view.buffer)
        steps = [
            compact[dim] if place is None else real[place] for dim, place in enumerate(view.dims)
        ]
        for dim, wanted in enumerate(declared.strides or compact):
            if isinstance(wanted, Var) and wanted not in self.values:
                self.values[wanted] = build.cast(wanted.dtype, steps[dim])
                continue
            wanted = substitute(wanted, self.values)
            alone = build.is_const(shape[dim], 1)
            if not alone and not self.analyzer.can_prove_equal(wanted, steps[dim]):
                variables = [f'te.var("s{i}")' for i in range(len(shape) - 1)]
                raise ValueError(
                    f"{self.about(declared, view)} has a stride of {steps[dim]} in dimension "
                    f"{dim}, not {wanted}; declare it with strides=[{', '.join([*variables, '1'])}]"
                )

    def check_alignment(self, declared: Buffer, view: View) -> None:
        if declared.alignment <= declared.dtype.bytes:
            return
        if view.is_ours:
            view.buffer.alignment = max(view.buffer.alignment, declared.alignment)
        size = declared.dtype.bytes
        step, rest = self.analyzer.modular(view.buffer.offset_of(view.first))
        known = gcd(view.buffer.alignment or size, step * size, rest * size)
        if known % declared.alignment:
            raise ValueError(
                f"{self.about(declared, view)} is only known to be at a multiple of {known} bytes, "
                f"not of {declared.alignment}; leave data_alignment out"
            )


def compact_strides(shape: Sequence[Expr]) -> list[Expr]:
    """The strides of a buffer without gaps."""
    strides: list[Expr] = []
    stride: Expr = build.const(1)
    for extent in reversed(shape):
        strides.insert(0, stride)
        stride = build.mul(stride, extent)
    return strides


def strides_of(buffer: Buffer) -> Sequence[Expr]:
    """The strides of a buffer, whether it says them or not."""
    return buffer.strides or compact_strides(buffer.shape)


class _Mover(Rewriter):
    """Puts the real buffers in the place of the declared ones."""

    def __init__(self, binding: Binding) -> None:
        self.views = binding.views
        self.values = binding.values
        self.analyzer = binding.analyzer

    def visit_Buffer(self, buffer: Buffer) -> Node:
        view = self.views.get(buffer)
        return buffer if view is None else view.buffer

    def visit_Call(self, call: Call) -> Node:
        """A packed function gets the part that the declared buffer stands for, not the whole."""
        shown = view_at(*explicit_view(call)) if call.op == "view_of" else call
        made: Node = self.rewrite_children(shown)
        return made

    def visit_BufferLoad(self, load: BufferLoad) -> Node:
        return BufferLoad(*self.moved(load.buffer, load.indices))

    def visit_BufferStore(self, store: BufferStore) -> Node:
        buffer, indices = self.moved(store.buffer, store.indices)
        predicate = None if store.predicate is None else self.rewrite(store.predicate)
        return BufferStore(buffer, self.rewrite(store.value), indices, predicate)

    def moved(
        self, buffer: Buffer, indices: tuple[Expr, ...]
    ) -> tuple[Buffer, tuple[Expr, ...]]:
        own = [self.rewrite(index) for index in indices]
        view = self.views.get(buffer)
        if view is None:
            return buffer, tuple(own)
        own = self.carried(buffer, own)
        found = [
            low if place not in view.dims else build.add(low, own[view.dims.index(place)])
            for place, low in enumerate(view.first)
        ]
        return view.buffer, tuple(self.analyzer.simplify(index) for index in found)

    def carried(self, buffer: Buffer, indices: list[Expr]) -> list[Expr]:
        """Indices inside the shape, where a vector goes on from the end of one row to the next."""
        if len(indices) < 2 or not isinstance(indices[-1], Ramp):
            return indices
        last = indices[-1]
        end = last.base + last.stride * (last.lanes - 1)
        shape = [substitute(extent, self.values) for extent in buffer.shape]
        if self.analyzer.can_prove(end < shape[-1]):
            return indices
        carried: list[Expr] = []
        over: Expr = build.const(0)
        for index, extent in zip(reversed(indices[1:]), reversed(shape[1:]), strict=True):
            total = build.add(index, over)
            carried.insert(0, build.floormod(total, extent))
            over = build.floordiv(total, extent)
        return [build.add(indices[0], over), *carried]
