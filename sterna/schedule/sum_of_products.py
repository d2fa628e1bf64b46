"""The stages of a contraction, described once by the operator that makes them.

An operator says which axes of its sum are channels and which are taps of a window, and which
contraction it computes; how its operands are read is found here, when the sum is made. Schedules,
costs and packers read the description, which stays with the stage whatever becomes of it.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sterna.ir import build
from sterna.ir.expr import Add, Expr, FloorDiv, FloorMod, IntImm, Var, variables_in
from sterna.ir.node import Node, post_order
from sterna.schedule.contraction import Contraction
from sterna.support.dtype import DataType
from sterna.te import ComputeOp, IterVar, Operation, Tensor
from sterna.te.tensor import ProducerLoad, Reduce

CHANNEL, TAP = "channel", "tap"
"""What an axis of a sum runs over."""

# The implementation that suits all sums.
DIRECT = "direct"

# What an extent counts as that only the run knows.
UNKNOWN = 1024

_KEY, _CHUNK = "sum_of_products", "chunk_of_sum"


@dataclass(frozen=True, slots=True, eq=False)
class Access:
    """How one operand of the products is read, by the places of axes."""

    tensor: Tensor
    axes: frozenset[int]
    """The axes of the result that it depends on."""
    beside: int | None
    """The axis of the sum along which neighbours lie side by side in every row."""
    pitches: dict[int, int]
    """Of axes of the result that are indices themselves: the bytes between neighbours."""
    block: int | None
    """How many columns, along the last axis of the result, lie together."""
    alike: int
    """How many neighbouring columns read the same: those of a group of channels; 0: all do."""
    group: int
    """How many elements of the sum lie together behind each column: four bytes of a dot product."""
    order: tuple[int, ...] | None
    """Which axis each index is, first the result's, then the sum's; None if one is none."""

    @property
    def dtype(self) -> DataType:
        """Its element type."""
        kind: DataType = self.tensor.dtype
        return kind


@dataclass(frozen=True, slots=True, eq=False)
class SumOfProducts:
    """A sum of products of two operands, in one stage or in chunks that a second one adds."""

    accesses: tuple[Access, ...]
    extents: tuple[int | None, ...]
    """Of the axes of the result."""
    roles: tuple[str, ...]
    """What the axes of the sum of products run over."""
    steps: tuple[int | None, ...]
    """The extents of these."""
    chunk_roles: tuple[str, ...]
    """The same of the sum over chunks; none if there are no chunks."""
    dtype: DataType
    """In which products are added."""
    contraction: Contraction | None
    implementation: str
    """The one whose schedule places the loops."""

    @property
    def sizes(self) -> list[int]:
        """The extents of the result's axes; an unknown one counts as many."""
        return [UNKNOWN if size is None else size for size in self.extents]

    @property
    def depths(self) -> list[int]:
        """The same of the axes of the sum."""
        return [UNKNOWN if size is None else size for size in self.steps]

    @property
    def products(self) -> int:
        """How many products there are; an unknown extent counts as many."""
        return math.prod(self.sizes) * math.prod(self.depths)

    def elements_of(self, access: Access) -> int:
        """How many numbers an operand has whose indices are axes themselves."""
        assert access.order is not None
        sizes = [*self.sizes, *self.depths]
        return math.prod(sizes[axis] for axis in access.order)

    @property
    def columns(self) -> int:
        """The place of the last axis of the result, which runs as vectors."""
        return len(self.extents) - 1

    @property
    def by_rows(self) -> Access | None:
        """The operand that is read number by number; None unless both are of the sum's own type."""
        single = [access for access in self.accesses if access.alike != 1]
        same = all(access.dtype == self.dtype for access in self.accesses)
        return single[0] if len(self.accesses) == 2 and len(single) == 1 and same else None

    @property
    def is_dot(self) -> bool:
        """Whether four bytes lie together that one lane of a dot product adds."""
        bytes_ = [a.dtype.is_integer and a.dtype.bits == 8 for a in self.accesses]
        return bytes_ == [True, True] and self.dtype == "int32" and self.accesses[1].group == 4

    @property
    def block(self) -> int | None:
        """The extent of the blocks in which an operand keeps what runs as vectors."""
        if self.is_dot:
            return build.int_value(self.accesses[1].tensor.shape[-2]) or 1
        found = [access.block for access in self.accesses if access.block is not None]
        return min(found, default=None)

    def beside(self, step: int, in_groups: bool = False) -> int:
        """How many numbers an axis of the sum reads that lie side by side in every row, at least 1.

        They are of the sum's own type. in_groups: only the columns of a group read the same.
        """
        rows = self.by_rows
        if rows is None or rows.beside != step or (rows.alike and not in_groups):
            return 1
        return self.depths[step]

    @property
    def row_axes(self) -> list[int]:
        """Axes that what is read as vectors does not depend on: its vectors serve many rows.

        First the one of which most are computed at once; the last axis itself where there is none.
        """
        last, sizes = self.columns, self.sizes
        used = [access.axes for access in self.accesses if last in access.axes]
        free = [
            place
            for place in range(last)
            if sizes[place] > 1 and any(place not in axes for axes in used)
        ]
        free.sort(key=lambda place: (min(sizes[place], 4), place), reverse=True)
        return free or [last]

    @property
    def has_open_columns(self) -> bool:
        """Whether only the run knows how many columns there are."""
        return self.extents[-1] is None

    def pitch(self, axis: int) -> int:
        """The bytes between neighbours along an axis in the first operand that it indexes; or 0."""
        found = [access.pitches[axis] for access in self.accesses if axis in access.pitches]
        return found[0] if found else 0

    @property
    def innermost(self) -> int:
        """The axis of the sum that runs innermost: channels, which lie closest in memory."""
        return order_of(self.roles)[-1]


def order_of(roles: Sequence[str]) -> list[int]:
    """The places of a sum's axes in the order of its loops: the window outside, channels inside."""
    places = list(range(len(roles)))
    if len(places) > 1 and roles[0] == CHANNEL:
        return [*places[1:], 0]
    return places


def describe_sum(
    total: Tensor, roles: Sequence[str], contraction: Contraction | None = None,
    chunk_roles: Sequence[str] = (), implementation: str = DIRECT,
) -> Tensor:
    """Attach to a sum what it is; chunk_roles: those of a sum over chunks, which is given then."""
    op = total.op
    assert isinstance(op, ComputeOp)
    products = op.input_tensors[0].op if chunk_roles else op
    assert isinstance(products, ComputeOp)
    made = SumOfProducts(
        accesses=_accesses(products, len(op.axis)),
        extents=tuple(map(_extent, op.axis)),
        roles=tuple(roles),
        steps=tuple(map(_extent, products.reduce_axis)),
        chunk_roles=tuple(chunk_roles),
        dtype=products.output(0).dtype,
        contraction=contraction,
        implementation=implementation,
    )
    op.attrs[_KEY] = made
    if products is not op:
        products.attrs[_CHUNK] = made
    return total


def description_of(op: Operation) -> SumOfProducts | None:
    """What an operator said about a sum of products; None if it is no such."""
    is_sum = isinstance(op, ComputeOp) and bool(op.reduce_axis)
    found: SumOfProducts | None = op.attrs.get(_KEY) if is_sum else None
    return found


def is_chunk(op: Operation) -> bool:
    """Whether a stage makes the chunks that another one adds."""
    return _CHUNK in op.attrs


def chunks_of(total: ComputeOp) -> ComputeOp | None:
    """What makes the chunks that a sum adds; None if it adds products itself."""
    found = description_of(total)
    if found is None or not found.chunk_roles:
        return None
    op = total.input_tensors[0].op
    assert isinstance(op, ComputeOp)
    return op


def _extent(axis: IterVar) -> int | None:
    return None if axis.dom is None else build.int_value(axis.dom.extent)


def _accesses(products: ComputeOp, rank: int) -> tuple[Access, ...]:
    body = products.body[0]
    assert isinstance(body, Reduce)
    loads: list[ProducerLoad] = []
    post_order(body.source[0], lambda n: loads.append(n) if isinstance(n, ProducerLoad) else None)
    axes = [axis.var for axis in products.axis[-rank:]] if rank else []
    steps = [axis.var for axis in products.reduce_axis]
    return tuple(_access(load, axes, steps) for load in loads)


def _access(load: ProducerLoad, axes: list[Var], steps: list[Var]) -> Access:
    used = {var for index in load.indices for var in variables_in(index)}
    pitches: dict[int, int] = {}
    for place, index in enumerate(load.indices):
        behind = [build.int_value(extent) for extent in load.tensor.shape[place + 1 :]]
        if None not in behind:
            pitch = math.prod(n or 0 for n in behind) * load.dtype.bytes
            for axis, var in enumerate(axes):
                if index is var:
                    pitches.setdefault(axis, pitch)
    numbers = {var: place for place, var in enumerate((*axes, *steps))}
    order = [numbers.get(n) if isinstance(n, Var) else None for n in load.indices]
    *before, last = load.indices or (build.const(0),)
    group = _divisor(last, steps)
    lane = before[-1] if before else last
    return Access(
        tensor=load.tensor,
        axes=frozenset(place for place, var in enumerate(axes) if var in used),
        beside=next((n for n, step in enumerate(steps) if _is_alone(step, last)), None),
        pitches=pitches,
        block=_block(load, axes[-1]) if axes else None,
        alike=math.gcd(*(_alike(n, axes[-1]) for n in load.indices)) if axes else 0,
        group=group if group > 1 and axes[-1] in variables_in(lane) else 1,
        order=None if None in order else tuple(place for place in order if place is not None),
    )


def _divisor(index: Expr, vars: list[Var]) -> int:
    """What an index is the remainder of a variable by; 1 if it is none."""
    if not isinstance(index, FloorMod) or not isinstance(index.b, IntImm):
        return 1
    return index.b.value if any(index.a is var for var in vars) else 1


def _is_alone(step: Var, index: Expr) -> bool:
    """Whether an index moves with an axis of the sum by one, whatever else it is the sum of."""
    parts = (index.a, index.b) if isinstance(index, Add) else (index,)
    return any(part is step for part in parts) and sum(step in variables_in(p) for p in parts) == 1


def _alike(index: Node, column: Var) -> int:
    """How many neighbouring columns have the same index; 0 if all have."""
    if isinstance(index, FloorDiv) and index.a is column and isinstance(index.b, IntImm):
        return index.b.value
    if index is column:
        return 1
    return math.gcd(*(_alike(part, column) for part in index.children()))


def _block(load: ProducerLoad, column: Var) -> int | None:
    found: set[int] = set()

    def visit(item: object) -> None:
        if isinstance(item, FloorMod) and item.a is column and isinstance(item.b, IntImm):
            found.add(item.b.value)

    for index in load.indices:
        post_order(index, visit)
    return min(found, default=None)
