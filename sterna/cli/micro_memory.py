"""The memory of a network on a board as a picture: what lies where while which kernel runs."""

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.support.table import lay_out
from sterna.tir.usmp import BufferInfo, MemoryPlan, draw_plan

WIDTH, NAME = 48, 36
READ, WRITTEN, OVER, WORKED, FREE = "▒", "█", "▓", "░", "·"
LEGEND = (f"{READ} kept or read, {WRITTEN} written, {OVER} written over what is read, "
          f"{WORKED} worked in, {FREE} free")

Kernels = Sequence[tuple[str, Sequence[str]]]


def names_of(kernels: Kernels) -> list[str]:
    """Kernels as their users know them: by the layers of the model, or by what was fused."""
    return [", ".join(layers) or name.partition("_fused_")[2] or name for name, layers in kernels]


def map_rows(plan: MemoryPlan, kernels: Kernels) -> list[dict[str, Any]]:
    """For programs: each buffer with its place and its life, by numbers of kernels."""
    names = names_of(kernels)
    return [
        {"kernel": names[min(b.first, len(names) - 1)], "works": is_work(b),
         "offset": plan.offsets[b.name], "bytes": b.size, "first": b.first, "last": b.last - 1}
        for b in plan.buffers
    ]


def is_work(buffer: BufferInfo) -> bool:
    """Whether it is memory that a kernel works in."""
    return buffer.name.startswith("that ")


def map_text(plan: MemoryPlan, kernels: Kernels) -> str:
    """A line per kernel: the arena from its first byte to its last."""
    names = names_of(kernels)
    live = [[b for b in plan.buffers if b.first <= step < b.last] for step in range(len(names))]
    table = lay_out([
        ("Kernel", [name if len(name) <= NAME else f"{name[: NAME - 3]}..." for name in names]),
        ("Live bytes", [f"{_covered(plan, each):,}" for each in live]),
        (f"0 .. {plan.size:,}", [
            "".join(_cell(plan, each, step, cell) for cell in range(WIDTH))
            for step, each in enumerate(live)
        ]),
    ])
    return f"{table}\n\n{LEGEND}"


def _cell(plan: MemoryPlan, live: Sequence[BufferInfo], step: int, cell: int) -> str:
    """What a part of the arena holds while a kernel runs."""
    low, high = cell * plan.size / WIDTH, (cell + 1) * plan.size / WIDTH
    held: dict[str, list[tuple[float, float]]] = {READ: [], WRITTEN: [], WORKED: []}
    for buffer in live:
        offset = plan.offsets[buffer.name]
        begin, end = max(offset, low), min(offset + buffer.size, high)
        mark = WORKED if is_work(buffer) else WRITTEN if buffer.first == step else READ
        if begin < end:
            held[mark].append((begin, end))
    meet = [1 for a, b in held[READ] for c, d in held[WRITTEN] if a < d and c < b]
    return OVER if meet else next((mark for mark in (WRITTEN, READ, WORKED) if held[mark]), FREE)


def _covered(plan: MemoryPlan, live: Sequence[BufferInfo]) -> int:
    """The bytes that hold something."""
    total = end = 0
    for begin, size in sorted((plan.offsets[b.name], b.size) for b in live):
        total += max(0, begin + size - max(begin, end))
        end = max(end, begin + size)
    return total


def map_svg(plan: MemoryPlan, kernels: Kernels, data: Mapping[str, Any]) -> str:
    """The same as a drawing, with what flash and RAM of the board are used."""
    notes = [f"arena of {data['board']} while kernels run, from left to right"]
    for memory, key in (("flash", "flash"), ("RAM", "ram")):
        used, there = data[key], data[f"{key}_of_board"]
        notes.append(f"{memory}: {used:,} of {there:,} bytes ({used / max(there, 1):.1%})")
    return draw_plan(plan, names_of(kernels), notes)
