"""Deduplication of kernels: functions that say the same (structural equality) are compiled once.

Those of open extents say the same whatever expressions of symbols their extents are.
"""

from dataclasses import dataclass, field

from sterna.ir.structural import structural_equal, structural_hash
from sterna.lowering.kernel_extents import KernelExtents
from sterna.lowering.names import kernel_name
from sterna.relay.expr import Call, Function
from sterna.relay.traverse import not_primitive, post_order


@dataclass(slots=True)
class Kernels:
    """The distinct kernels of a graph, and which one each call uses."""

    functions: dict[str, Function] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    """The kernel's name by the identity of the function that a call has."""


def unique_kernels(main: Function, prefix: str) -> Kernels:
    """Every primitive function that a graph calls, by a name of its own."""
    kernels = Kernels()
    known: dict[int, list[str]] = {}
    used: dict[str, int] = {}
    extents = KernelExtents()
    for expr in post_order(main, not_primitive):
        if not isinstance(expr, Call) or not isinstance(expr.op, Function):
            continue
        if id(expr.op) in kernels.names:
            continue
        function = extents.of(expr.op)
        same = known.setdefault(structural_hash(function), [])
        found = next((n for n in same if structural_equal(kernels.functions[n], function)), None)
        if found is None:
            found = _fresh(kernel_name(function, prefix), used)
            kernels.functions[found] = function
            same.append(found)
        kernels.names[id(expr.op)] = found
    return kernels


def _fresh(name: str, used: dict[str, int]) -> str:
    count = used.get(name, 0)
    used[name] = count + 1
    return name if count == 0 else _fresh(f"{name}_{count}", used)
