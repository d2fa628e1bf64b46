"""Two folders of records side by side: which kernels stayed, changed, came and went."""

from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass

from kernel_replay.records import CallRecord, Folder, KernelRecord


@dataclass(frozen=True)
class Kernel:
    """A call of a kernel, with where it stands."""

    machine: str
    network: str
    place: int
    """Among the calls of its network."""
    call: CallRecord
    record: KernelRecord

    @property
    def key(self) -> str:
        """What names it: MACHINE/NETWORK/PLACE."""
        return f"{self.machine}/{self.network}/{self.place}"


@dataclass(frozen=True)
class Pair:
    """A kernel before and after."""

    before: Kernel | None
    after: Kernel | None

    @property
    def known(self) -> Kernel:
        """The kernel before, or after where there was none."""
        known = self.before or self.after
        assert known is not None
        return known

    @property
    def status(self) -> str:
        """unchanged, rewritten (other loops, the same code), changed, appeared or vanished."""
        if self.before is None or self.after is None:
            return "appeared" if self.before is None else "vanished"
        old, new = self.before.record, self.after.record
        if old.error != new.error:
            return "changed"
        if old.code and new.code and old.code != new.code:
            return "changed"
        if old.loops == new.loops:
            return "unchanged"
        return "rewritten" if old.code and new.code else "changed"

    @property
    def other_constants(self) -> bool:
        """Whether it is called with other constants than before."""
        if self.before is None or self.after is None:
            return False
        return self.before.call.constants != self.after.call.constants


def kernels_of(folder: Folder, machine: str, network: str) -> list[Kernel]:
    """The kernels of a network for a machine, in the order of their calls."""
    record = folder.network(machine, network)
    if record is None:
        return []
    found = []
    for place, call in enumerate(record.calls):
        kernel = folder.kernel(machine, call.function)
        assert kernel is not None, f"{folder.path} lacks {machine}/{network}/{place}"
        found.append(Kernel(machine, network, place, call, kernel))
    return found


def aligned(before: Sequence[Kernel], after: Sequence[Kernel]) -> list[Pair]:
    """Kernels that belong together: by their loops, else by what they compute, else by results."""
    ways: list[Callable[[Kernel], Hashable]] = [
        lambda kernel: (kernel.record.loops, kernel.record.error, kernel.call.result),
        lambda kernel: (kernel.call.result, kernel.call.flops),
        lambda kernel: kernel.call.result,
    ]
    pairs: list[Pair] = []
    old, new = list(before), list(after)
    for way in ways:
        waiting: dict[Hashable, deque[Kernel]] = defaultdict(deque)
        for kernel in old:
            waiting[way(kernel)].append(kernel)
        rest = []
        for kernel in new:
            same = waiting[way(kernel)]
            if same:
                pairs.append(Pair(same.popleft(), kernel))
            else:
                rest.append(kernel)
        found = {id(pair.before) for pair in pairs}
        old, new = [kernel for kernel in old if id(kernel) not in found], rest
    pairs += [Pair(kernel, None) for kernel in old] + [Pair(None, kernel) for kernel in new]
    return sorted(pairs, key=lambda pair: pair.known.place)


@dataclass(frozen=True)
class Comparison:
    """A network for a machine, before and after."""

    machine: str
    network: str
    pairs: Sequence[Pair]
    error: tuple[str, str]
    """Why it did not compile, before and after."""


def compare(
    before: Folder, after: Folder, machines: Sequence[str], networks: Sequence[str]
) -> Iterator[Comparison]:
    """Every network and machine that both folders have."""
    for machine in before.machines():
        if machine not in after.machines() or (machines and machine not in machines):
            continue
        both = set(before.networks(machine)) & set(after.networks(machine))
        for network in sorted(both):
            if networks and network not in networks:
                continue
            old, new = before.network(machine, network), after.network(machine, network)
            assert old is not None and new is not None
            pairs = aligned(*(kernels_of(f, machine, network) for f in (before, after)))
            yield Comparison(machine, network, pairs, (old.error, new.error))


def find(folder: Folder, key: str) -> Kernel:
    """A kernel by its key."""
    parts = key.split("/")
    if len(parts) != 3 or not parts[2].isdigit():
        raise ValueError(f"a key is MACHINE/NETWORK/PLACE, not '{key}'")
    kernels = kernels_of(folder, parts[0], parts[1])
    if int(parts[2]) >= len(kernels):
        raise ValueError(
            f"'{folder.path}' has {len(kernels)} kernels of {parts[1]} for {parts[0]}, "
            f"so there is no '{key}'"
        )
    return kernels[int(parts[2])]
