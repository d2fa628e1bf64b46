"""A fused graph as boxes to draw: one per kernel, with a line for each operator in it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sterna.ir.types import flatten_type, show_shape
from sterna.lowering.graph import is_view
from sterna.lowering.work import work_of
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem
from sterna.relay.op import COMM_REDUCE, OPAQUE, OUT_ELEMWISE_FUSABLE, record_of
from sterna.relay.traverse import not_primitive, post_order


@dataclass(frozen=True, slots=True)
class Box:
    """Something to draw."""

    kind: str
    """input, output, product, reduction, elements, view or other."""
    lines: tuple[str, ...]
    result: str
    """The type of what it gives."""
    details: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Boxes:
    """Boxes in order of execution, and which reads which."""

    boxes: list[Box]
    edges: list[tuple[int, int]]


def graph_boxes(main: Function, output_names: Sequence[str] = ()) -> Boxes:
    """The boxes of a fused function; weights are not drawn."""
    made = Boxes([], [])
    sources: dict[int, list[int]] = {}
    for param in main.params:
        sources[id(param)] = [len(made.boxes)]
        made.boxes.append(Box("input", (param.name_hint,), _type_of(param)))
    for expr in post_order(main.body, not_primitive):
        if id(expr) in sources:
            continue
        if isinstance(expr, Call) and isinstance(expr.op, Function):
            _connect(made, [s for arg in expr.args for s in sources[id(arg)]])
            sources[id(expr)] = [len(made.boxes)]
            made.boxes.append(_kernel(expr, expr.op))
        else:
            sources[id(expr)] = _passed_on(expr, sources)
    parts = main.body.fields if isinstance(main.body, Tuple) else (main.body,)
    for place, part in enumerate(parts):
        named = len(output_names) == len(parts)
        name = output_names[place] if named else f"output{place}"
        _connect(made, sources[id(part)])
        made.boxes.append(Box("output", (name,), _type_of(part)))
    return made


def _connect(made: Boxes, readers: Sequence[int]) -> None:
    made.edges.extend((source, len(made.boxes)) for source in dict.fromkeys(readers))


def _passed_on(expr: RelayExpr, sources: Mapping[int, list[int]]) -> list[int]:
    """Tuples and their items come from where their parts come from."""
    if isinstance(expr, Tuple):
        return [s for part in expr.fields for s in sources[id(part)]]
    if isinstance(expr, TupleGetItem):
        return sources[id(expr.tuple_value)]
    return []


def _type_of(expr: RelayExpr) -> str:
    return ", ".join(
        f"{kind.dtype}{show_shape(kind.shape)}" for kind in flatten_type(expr.checked_type)
    )


def _kernel(call: Call, function: Function) -> Box:
    parts = [part for part in post_order(function.body) if record_of(part) is not None]
    names = [record.name for part in parts if (record := record_of(part)) is not None]
    work = work_of(function)
    weights = [arg for arg in call.args if isinstance(arg, Constant)]
    spans = list(dict.fromkeys(part.span for part in parts if part.span))
    details = [
        f"{work.flops * 1e-6:.2f} MFLOP, {work.bytes / 1024:.1f} KiB moved",
        *(f"weight {_type_of(weight)}" for weight in weights),
        *(f"from {', '.join(spans)}" for _ in spans[:1]),
    ]
    return Box(_kind(function, parts), tuple(names), _type_of(call), tuple(details))


def _kind(function: Function, parts: Sequence[RelayExpr]) -> str:
    if is_view(function):
        return "view"
    pattern = max((r.pattern for r in map(record_of, parts) if r is not None), default=OPAQUE)
    if pattern < COMM_REDUCE:
        return "elements"
    return {COMM_REDUCE: "reduction", OUT_ELEMWISE_FUSABLE: "product"}.get(pattern, "other")
