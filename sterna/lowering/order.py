"""Memory-aware operator ordering (beam search): the order of a graph's steps for least memory.

Orders grow a step at a time, several at once: of those that did the same steps the one that needed
least stays, and of the others the few that needed least so far. What it finds is taken only if it
needs less than the order that the graph came in.
"""

from dataclasses import dataclass

from sterna.lowering.graph import Entry, Graph, Node
from sterna.lowering.storage import owners_of
from sterna.lowering.work import bytes_of

WIDTH = 24
"""How many orders are kept at a time."""
BRANCHES = 6
"""How many next steps are tried for each, those that leave the least memory in use."""
READY = 64
"""How many of the steps that can come next are looked at, the first and the last to be ready."""
MOST_STEPS = 2000
"""Graphs with more steps keep their order."""


def order_steps(graph: Graph) -> Graph:
    """The graph with its steps in an order that needs as little memory as can be found."""
    steps = [number for number, node in enumerate(graph.nodes) if node.op != "null"]
    if not 2 < len(steps) <= MOST_STEPS:
        return graph
    memory = _Memory(graph, steps)
    found = _search(memory)
    if memory.peak(found) >= memory.peak(list(range(len(steps)))):
        return graph
    inputs = [number for number, node in enumerate(graph.nodes) if node.op == "null"]
    return _reordered(graph, [*inputs, *(steps[place] for place in found)])


class _Memory:
    """What each step of a graph takes and gives back. Steps are known by their places."""

    def __init__(self, graph: Graph, steps: list[int]) -> None:
        place = {number: i for i, number in enumerate(steps)}
        owners = owners_of(graph)
        readers: dict[Entry, int] = {}
        self.needs = [0] * len(steps)
        """Per step, as bits, the steps that must come before it."""
        self.takes = [0] * len(steps)
        self.reads: list[set[Entry]] = [set() for _ in steps]
        self.bytes: dict[Entry, int] = {}
        for i, number in enumerate(steps):
            node = graph.nodes[number]
            for entry in node.inputs:
                owner = owners[entry]
                self.reads[i].add(owner)
                readers[owner] = readers.get(owner, 0) | 1 << i
                if entry[0] in place:
                    self.needs[i] |= 1 << place[entry[0]]
            for index, kind in enumerate(node.types):
                if owners[number, index] == (number, index):
                    self.bytes[number, index] = bytes_of(kind)
                    self.takes[i] += bytes_of(kind)
                    self.reads[i].add((number, index))
                    readers[number, index] = readers.get((number, index), 0) | 1 << i
        kept = {owners[head] for head in graph.heads}
        self.ends = {o: bits for o, bits in readers.items() if o in self.bytes and o not in kept}
        """Per memory that ends before the graph does, as bits, the steps that use it."""
        self.followers: list[list[int]] = [[] for _ in steps]
        for i, number in enumerate(steps):
            for before in {place[n] for n, _ in graph.nodes[number].inputs if n in place}:
                self.followers[before].append(i)

    def freed(self, step: int, done: int) -> int:
        """The bytes that nobody needs any more once a step, the last one done, is over."""
        return sum(
            self.bytes[owner]
            for owner in self.reads[step]
            if owner in self.ends and not self.ends[owner] & ~done
        )

    def peak(self, order: list[int]) -> int:
        """The most memory that is in use at once."""
        live = most = done = 0
        for step in order:
            done |= 1 << step
            live += self.takes[step]
            most = max(most, live)
            live -= self.freed(step, done)
        return most


@dataclass(slots=True)
class _Start:
    """How an order begins: with another beginning and one step more."""

    before: "_Start | None"
    step: int
    done: int
    ready: list[int]
    live: int
    peak: int


def _search(memory: _Memory) -> list[int]:
    count = len(memory.needs)
    first = [step for step in range(count) if not memory.needs[step]]
    beam = [_Start(None, -1, 0, first, 0, 0)]
    for _ in range(count):
        extended: dict[int, _Start] = {}
        for begun in beam:
            for step in _promising(memory, begun):
                made = _with(memory, begun, step)
                known = extended.get(made.done)
                if known is None or made.peak < known.peak:
                    extended[made.done] = made
        best = sorted(extended.values(), key=lambda start: (start.peak, start.live))
        beam = best[:WIDTH]
    order: list[int] = []
    start: _Start | None = beam[0]
    while start is not None and start.before is not None:
        order.append(start.step)
        start = start.before
    return order[::-1]


def _promising(memory: _Memory, start: _Start) -> list[int]:
    def left(step: int) -> tuple[int, int]:
        return memory.takes[step] - memory.freed(step, start.done | 1 << step), step

    ready = start.ready
    if len(ready) > READY:
        ready = ready[: READY // 2] + ready[-READY // 2 :]
    return sorted(ready, key=left)[:BRANCHES]


def _with(memory: _Memory, start: _Start, step: int) -> _Start:
    done = start.done | 1 << step
    live = start.live + memory.takes[step]
    ready = [other for other in start.ready if other != step]
    ready += [other for other in memory.followers[step] if not memory.needs[other] & ~done]
    after = live - memory.freed(step, done)
    return _Start(start, step, done, ready, after, max(start.peak, live))


def _reordered(graph: Graph, order: list[int]) -> Graph:
    place = {number: i for i, number in enumerate(order)}

    def moved(node: Node) -> Node:
        inputs = [(place[number], index) for number, index in node.inputs]
        return Node(node.name, node.op, inputs, node.types, node.attrs, node.device)

    return Graph(
        [moved(graph.nodes[number]) for number in order],
        [place[number] for number in graph.inputs],
        [(place[number], index) for number, index in graph.heads],
        graph.params,
        graph.output_names,
    )
