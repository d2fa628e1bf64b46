"""Memory that a network may use: pools for intermediate results and for constants.

Pools are preferred in the order in which they are given. Where every one of them says how fast it
is, the fast ones come first.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

P = TypeVar("P", bound="PoolInfo")

UNKNOWN = -1
LINE_BYTES = 32
"""What one access is taken to move where a pool does not say how long its bursts are."""


@dataclass(frozen=True, slots=True)
class PoolInfoProperties:
    """How large a pool is and how fast; -1 where that is not known, or has no limit."""

    size_hint_bytes: int = UNKNOWN
    clock_frequency_hz: int = UNKNOWN
    read_bandwidth_bytes_per_cycle: int = UNKNOWN
    write_bandwidth_bytes_per_cycle: int = UNKNOWN
    read_latency_cycles: int = 0
    write_latency_cycles: int = 0
    target_burst_bytes: Any = None
    """By target, how many bytes one access moves; or one number for all of them."""

    def __post_init__(self) -> None:
        for name in ("size_hint_bytes", "clock_frequency_hz", "read_bandwidth_bytes_per_cycle",
                     "write_bandwidth_bytes_per_cycle"):
            value = getattr(self, name)
            if value != UNKNOWN and value <= 0:
                raise ValueError(f"{name} must be positive, or -1 for unknown; it is {value}")
        for name in ("read_latency_cycles", "write_latency_cycles"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative; it is {getattr(self, name)}")

    @property
    def burst_bytes(self) -> int:
        """The bytes of the shortest burst."""
        given = self.target_burst_bytes
        if not given:
            return LINE_BYTES
        return int(min(given.values()) if hasattr(given, "values") else given)


class PoolInfo:
    """A piece of memory: its name, the targets that can use it, and what is known about it."""

    def __init__(
        self, pool_name: str, targets: Sequence[Any],
        pool_info_properties: PoolInfoProperties | None = None,
    ) -> None:
        if not isinstance(pool_name, str) or not pool_name:
            raise ValueError(f"a memory pool has a name; {pool_name!r} is none")
        if isinstance(targets, str) or not isinstance(targets, Sequence):
            raise TypeError(
                f"the targets of the memory pool {pool_name} are a list, not {targets!r}"
            )
        self.pool_name = pool_name
        self.targets = list(targets)
        self.properties = pool_info_properties or PoolInfoProperties()

    @property
    def size_hint_bytes(self) -> int:
        """How large it is; -1 if it has no limit."""
        return self.properties.size_hint_bytes

    @property
    def limit(self) -> int | None:
        """How large it is; None if it has no limit."""
        size = self.properties.size_hint_bytes
        return None if size == UNKNOWN else size

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name not in PoolInfoProperties.__slots__:
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return getattr(self.properties, name)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.pool_name!r}, {self.targets}, {self.properties})"


class WorkspacePoolInfo(PoolInfo):
    """A pool for intermediate results."""


class ConstantPoolInfo(PoolInfo):
    """A pool for constants, which nothing writes to while the network runs."""

    def __init__(
        self, pool_name: str, targets: Sequence[Any],
        constant_info_arr: Sequence[Any] | None = None,
        pool_info_properties: PoolInfoProperties | None = None,
    ) -> None:
        if constant_info_arr:
            raise ValueError(
                f"the build fills the memory pool {pool_name} with constants: leave "
                "constant_info_arr out, and give pool_info_properties by name"
            )
        super().__init__(pool_name, targets, pool_info_properties)


class _Pools(Generic[P]):
    """Several pools."""

    KIND: ClassVar[type[PoolInfo]] = PoolInfo

    def __init__(self, pools: Sequence[P] = ()) -> None:
        names: set[str] = set()
        for pool in pools:
            if not isinstance(pool, self.KIND):
                raise TypeError(
                    f"{type(self).__name__} holds {self.KIND.__name__}s; {pool!r} is none"
                )
            if pool.pool_name in names:
                raise ValueError(f"two memory pools are named {pool.pool_name}: rename one of them")
            names.add(pool.pool_name)
        self.pools = list(pools)


class WorkspaceMemoryPools(_Pools[WorkspacePoolInfo]):
    """The pools for a network's intermediate results."""

    KIND = WorkspacePoolInfo


class ConstantMemoryPools(_Pools[ConstantPoolInfo]):
    """The pools for a network's constants."""

    KIND = ConstantPoolInfo


def in_order_of_preference(pools: Sequence[P]) -> list[P]:
    """The pools, the fastest first as far as all of them say what makes them fast."""
    known = [pool.properties for pool in pools]

    def given(field: str) -> Callable[[PoolInfoProperties], int]:
        values = [getattr(one, field) for one in known]
        every = all(value != UNKNOWN for value in values)
        return (lambda one: int(getattr(one, field))) if every else (lambda one: 0)

    read, write = given("read_bandwidth_bytes_per_cycle"), given("write_bandwidth_bytes_per_cycle")
    clock = given("clock_frequency_hz")

    def time_of_a_byte(pool: P) -> float:
        own = pool.properties
        cycles = sum(1 / width for width in (read(own), write(own)) if width)
        cycles += (own.read_latency_cycles + own.write_latency_cycles) / own.burst_bytes
        return cycles / (clock(own) or 1)

    costs = {id(pool): time_of_a_byte(pool) for pool in pools}
    if not any(costs.values()) and pools and clock(pools[0].properties):
        return sorted(pools, key=lambda pool: -clock(pool.properties))
    return sorted(pools, key=lambda pool: costs[id(pool)])
