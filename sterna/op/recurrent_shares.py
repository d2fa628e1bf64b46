"""How blocks and threads of a GPU share the steps of recurrent networks."""

from dataclasses import dataclass

from sterna.schedule.choose import choose
from sterna.schedule.gpu.access import VECTOR_BYTES
from sterna.schedule.gpu.limits import Limits
from sterna.support.dtype import DataType

PROCESSORS, SCHEDULERS, WARP, LINE_BYTES = 132, 4, 32, 128
TILE_ROWS, TILE_COLUMNS, PRODUCT_CYCLES = 16, 8, 4.0
"""Of a product of a warp by Tensor Cores."""
PARTS, COUNTS = (8, 16, 32), (1, 2, 4, 8, 16)
MOST_SUMS = 32
"""Of a thread."""
MOST_THREADS = 512
"""Of a processor: each has 128 registers then."""
HELD_NUMBERS = 96
"""Of weights and states that a thread loads together."""
# What a step takes beside its sums, and a load that nothing hides, in cycles; and how many bytes a
# processor gets of the second cache in one.
STEP_CYCLES, LOAD_CYCLES, CACHE_BYTES = 2000.0, 600.0, 48.0
SEEN = 2.0
"""What sums were seen to take on an H200, beside what is counted."""


@dataclass(frozen=True, slots=True)
class Share:
    """What a block and a thread of it have of a step."""

    units: int
    """Of a block."""
    sequences: int
    """Of a block."""
    rows: int
    """Sequences of a thread."""
    parts: int
    """Threads that share a sum."""
    at_once: int = 0
    """Blocks of a processor, which registers are given by; 0 where a target is not told."""
    in_cluster: int = 0
    """Sequences of a cluster of blocks that keep the weights; 0 where each step is a kernel."""
    tiles: int = 0
    """Of 16 rows, for Tensor Cores: a warp has one, and part of its sums; 0 without these."""

    @property
    def threads(self) -> int:
        """Of a block."""
        if self.tiles:
            return self.tiles * self.parts * WARP
        return self.units * (self.sequences // self.rows) * self.parts

    def __str__(self) -> str:
        if self.tiles:
            return f"{self.units} units x {self.sequences} sequences, {self.tiles} x {self.parts}"
        return f"{self.units} units x {self.sequences} sequences, {self.rows} by {self.parts}"

    def joins(self, gates: int) -> int:
        """How many sums of each gate are left when most threads have added what others had."""
        wanted = self.units * self.sequences * gates
        most = min(self.parts, max(1, self.threads // wanted))
        return 1 << (most.bit_length() - 1)

    def shared_numbers(self, gates: int) -> int:
        """The room for sums that threads hand to others."""
        wanted = self.units * self.sequences * gates
        return wanted * (self.parts + 1 + self.joins(gates))


@dataclass(frozen=True, slots=True)
class Work:
    """What there is to do in a step."""

    gates: int
    size: int
    sequences: int
    directions: int
    weight: DataType
    sums: DataType
    has_products: bool = False
    """Whether Tensor Cores make them."""

    def choose(self, limits: Limits) -> Share:
        """How blocks and threads share it."""
        offered = [
            Share(units, rows * groups, rows, parts)
            for units in COUNTS for rows in COUNTS for groups in COUNTS for parts in PARTS
        ]
        most = min(limits.threads, 256)
        fitting = [
            each for each in offered
            if each.threads <= most and self.gates * each.rows <= MOST_SUMS
            and each.shared_numbers(self.gates) * self.sums.bytes <= limits.shared_bytes
            and (each.units == 1 or each.units < 2 * self.size)
            and (each.sequences == 1 or each.sequences < 2 * self.sequences)
        ]
        return choose("blocks of a recurrence", fitting + self._products(limits), self.cycles)

    def _products(self, limits: Limits) -> list[Share]:
        """Those of Tensor Cores, for whose columns there are sequences."""
        if not self.has_products or self.sequences < TILE_COLUMNS:
            return []
        offered = [
            Share(units, sequences, sequences, parts, tiles=units * self.gates // TILE_ROWS)
            for units in (4, 8, 16, 32) for sequences in (8, 16, 32) for parts in (2, 4, 8)
            if units * self.gates % TILE_ROWS == 0 and sequences < 2 * self.sequences
        ]
        return [
            each for each in offered
            if each.units * each.sequences <= each.threads <= MOST_THREADS
            and each.units < 2 * self.size
            and each.shared_numbers(self.gates) * self.sums.bytes <= limits.shared_bytes
        ]

    def at_once(self, share: Share) -> int:
        """How many blocks a processor of a large GPU has, each with registers enough."""
        return max(1, min(-(-self._blocks(share) // PROCESSORS), MOST_THREADS // share.threads))

    def _blocks(self, share: Share) -> int:
        return self.directions * -(-self.size // share.units) * -(
            -self.sequences // share.sequences)

    def cycles(self, share: Share) -> float:
        """What a step takes by launches."""
        if share.tiles:
            return self._product_cycles(share)
        vector = VECTOR_BYTES // self.weight.bytes
        turns = -(-self.size // (vector * share.parts))
        warps = max(SCHEDULERS, -(-share.threads // WARP))
        products = warps * turns * vector * self.gates * share.rows / SCHEDULERS
        across = min(WARP // share.parts, share.units * share.sequences // share.rows)
        own = -(-across // (share.sequences // share.rows))
        lines = VECTOR_BYTES * share.parts / LINE_BYTES
        states = vector * self.sums.bytes / VECTOR_BYTES
        loads = warps * turns * lines * (self.gates * own + share.rows * across * states)
        brought = (
            share.units * self.gates * self.size * self.weight.bytes
            + share.sequences * self.size * self.sums.bytes
        ) / CACHE_BYTES
        joined = share.threads * self.gates * share.rows / WARP * 2
        together = turns_together(share, self.gates, vector)
        waits = -(-turns // together) * LOAD_CYCLES / max(1, warps // (2 * SCHEDULERS))
        each = max(products, loads, brought) + joined
        blocks = max(1.0, self._blocks(share) / PROCESSORS)
        return STEP_CYCLES + SEEN * (waits + blocks * each)


    def _product_cycles(self, share: Share) -> float:
        """The same by Tensor Cores: two parts of each state, in steps of 16."""
        steps = -(-self.size // (2 * TILE_ROWS)) * 4
        products = share.tiles * steps * (share.sequences // TILE_COLUMNS) * PRODUCT_CYCLES
        brought = (
            share.units * self.gates * self.size * self.weight.bytes
            + share.sequences * self.size * self.sums.bytes
        ) / CACHE_BYTES
        turns = -(-self.size // (2 * TILE_ROWS * share.parts))
        waits = turns * LOAD_CYCLES / max(1, share.threads // (WARP * SCHEDULERS))
        joined = share.units * share.sequences * self.gates * share.parts / WARP * 2
        blocks = max(1.0, self._blocks(share) / PROCESSORS)
        return STEP_CYCLES + SEEN * (waits + blocks * (max(products, brought) + joined))


def turns_together(share: Share, gates: int, vector: int) -> int:
    """How many vectors of each row a thread loads at once."""
    most = max(1, HELD_NUMBERS // ((gates + share.rows) * vector))
    return int(1 << (most.bit_length() - 1))


def vectors_of(weight: DataType, size: int) -> int:
    """What a row of weights is filled up to: whole vectors of 16 bytes."""
    vector = VECTOR_BYTES // weight.bytes
    return -(-size // vector) * vector


# ---- clusters ----

CLUSTER, LANES = 8, 8
"""Blocks of a cluster, and lanes that share the sums of a unit."""
UNITS_OF_WARP = WARP // LANES
OF_CLUSTER = (1, 2, 4)
"""Sequences: a warp sends the states of four at once."""
CLUSTERS_AT_ONCE = 14
"""Of a large GPU, whose processors lie in groups that clusters do not quite fill."""
MEETING_CYCLES, PRODUCT_SHARE = 800.0, 2.1
"""What a step of a cluster takes beside its products; and these, with what lanes join, beside what
multiply-adds alone would take."""
REGISTERS, MOST_REGISTERS, OTHER_REGISTERS, MOST_OF_BLOCK = 65536, 255, 64, 1024


def cluster_units(size: int) -> int:
    """The units of a block, which fill its warps."""
    return -(-size // (CLUSTER * UNITS_OF_WARP)) * UNITS_OF_WARP


def sequences_of_cluster(work: Work, share: Share) -> int:
    """How many sequences a cluster has, all of whose weights are in registers; 0 where a kernel for
    each step, whose blocks have such a share, is as good."""
    threads, weights = cluster_units(work.size) * LANES, work.gates * cluster_units(work.size)

    def has_room(sequences: int) -> bool:
        beside = OTHER_REGISTERS + sequences * (2 * work.gates + 4)
        own = -(-(weights + beside) // 8) * 8
        return own <= MOST_REGISTERS and own * threads <= REGISTERS

    def cycles(sequences: int) -> float:
        if not sequences:
            return work.cycles(share)
        clusters = work.directions * -(-work.sequences // sequences)
        products = sequences * weights * -(-threads // (WARP * SCHEDULERS))
        return -(-clusters // CLUSTERS_AT_ONCE) * (MEETING_CYCLES + PRODUCT_SHARE * products)

    fits = work.sums == "float32" and threads <= MOST_OF_BLOCK
    offered = [0, *(n for n in OF_CLUSTER if fits and has_room(n) and n < 2 * work.sequences)]
    return choose("sequences of a cluster", offered, cycles)
