"""Device planning: on which device each call of a graph runs, and what is copied between them.

    %0 = add(%a, %b)                          %0 = fn (%p0, %p1, device_type=1) { add(%p0, %p1) }
    %1 = on_device(%0, device_type=1)   ->    %1 = device_copy(%0(%a, %b), src=1, dst=4)
    subtract(%1, %c)                          fn (%p0, %p1, device_type=4) { ... }(%1, %c)

A call runs where its operands lie and where its readers read it, so calls that are joined by
values are on one device. on_device and device_copy say which one, and part what is before them
from what is behind them; what nothing is said of is on the fallback device. A parameter lies where
it is read, on the processor if it is read on several devices; constants lie on each device that
reads them. Each value is copied once to each other device that reads it.
"""

from collections.abc import Sequence
from typing import Any, Protocol

from sterna.ir.module import IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.transform import Pass, function_pass
from sterna.ir.types import TupleType
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.op import is_call_of, record_of
from sterna.relay.passes.device_regions import cut_into_regions
from sterna.relay.placed import behind, is_annotation, leaves, source
from sterna.relay.traverse import not_primitive, post_order, rewrite
from sterna.runtime.device import device_kind

CPU = 1


class Devices(Protocol):
    """The devices that a graph may use, as a build for several targets knows them."""

    @property
    def device_types(self) -> Sequence[int]:
        """DLPack's numbers of the kinds of devices that there are targets for."""

    @property
    def fallback(self) -> int:
        """That of the device for what no annotation says."""


def PlanDevices(config: Devices) -> Pass:
    """Cut functions into parts that run on one device each; copies stand where values cross.

    config: what make_compilation_config gives.
    """

    def change(func: Function, mod: IRModule, context: PassContext) -> Function:
        return func if func.is_primitive else plan_devices(func, config)

    made: Pass = function_pass(change, opt_level=0, name="PlanDevices", kind=Function)
    return made


def has_annotations(func: Function) -> bool:
    """Whether a function says where values lie."""
    return any(is_annotation(expr) for expr in post_order(func.body, not_primitive))


def plan_devices(func: Function, config: Devices) -> Function:
    """The function as calls of functions of one device each, and copies between them."""
    func.checked_type  # noqa: B018  (tuples are taken apart by their types)
    body = _with_plain_tuples(func.body)
    calls = [expr for expr in post_order(body, not_primitive) if _is_placed(expr)]
    places = _Places(calls, config)
    homes = _homes(func, calls, places, config)
    return cut_into_regions(func, body, places.of, homes)


def _is_placed(expr: RelayExpr) -> bool:
    if isinstance(expr, Var | Constant | Tuple | TupleGetItem):
        return False
    if record_of(expr) is None:
        raise ValueError(
            f"devices are planned for graphs of operators; the graph holds {type(expr).__name__}"
        )
    return True


def _with_plain_tuples(body: RelayExpr) -> RelayExpr:
    """The graph with annotations on tensors alone, and no item taken of a tuple that is there."""

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        if isinstance(new, TupleGetItem) and isinstance(new.tuple_value, Tuple):
            return new.tuple_value.fields[new.index]
        kind = new.checked_type
        if isinstance(new, Call) and isinstance(kind, TupleType) and is_annotation(new):
            (data,) = new.args
            whole = data.fields if isinstance(data, Tuple) else [
                TupleGetItem(data, place) for place in range(len(kind.fields))
            ]
            return Tuple(tuple(change(_again(new, part), part) for part in whole))
        return new

    return rewrite(body, change, not_primitive)


def _again(annotation: Call, data: RelayExpr) -> Call:
    return Call(annotation.op, (data,), annotation.attrs)


def _words(expr: Call) -> str:
    return f"{expr.op}{f' at {expr.span}' if expr.span else ''}"


class _Places:
    """The device of each call: sets of calls that share one, and what is said of each set."""

    def __init__(self, calls: Sequence[RelayExpr], config: Devices) -> None:
        self.config = config
        self.above: dict[int, int] = {id(expr): id(expr) for expr in calls}
        self.said: dict[int, tuple[int, str]] = {}
        self.of_inputs: dict[int, int] = {}
        """The devices of parameters and constants that annotations name."""
        self.bound: set[int] = set()
        """The annotations whose readers are on the device that they name."""
        for expr in calls:
            assert isinstance(expr, Call)
            if is_annotation(expr):
                self._annotated(expr)
                continue
            for arg in expr.args:
                for leaf in leaves(arg):
                    self._join(expr, source(leaf))
        root = {id(expr): self._root(id(expr)) for expr in calls}
        self.of = {
            key: self.said.get(top, (config.fallback, ""))[0] for key, top in root.items()
        }

    def _annotated(self, note: Call) -> None:
        attrs: Any = note.attrs
        data = source(note.args[0])
        if is_call_of(note, "device_copy"):
            before, after = attrs.src_device, attrs.dst_device
        else:
            before = attrs.device_type if attrs.constrain_body else None
            after = attrs.device_type if attrs.constrain_result else None
        words = f"{_words(note)} of {_words(data) if isinstance(data, Call) else _name(data)}"
        if before is not None and isinstance(data, Call):
            self._say(id(data), before, words)
        elif before is not None:
            self._known(before, words)
            self.of_inputs.setdefault(id(data), before)
        if after is not None:
            self.bound.add(id(note))
            self._say(id(note), after, words)

    def _known(self, device: int, words: str) -> None:
        if device not in self.config.device_types:
            kinds = ", ".join(device_kind(kind) for kind in self.config.device_types)
            raise ValueError(
                f"{words} wants the device {device_kind(device) or device}, and the build has "
                f"targets for {kinds}; give one for each device: "
                'target={"cpu": "llvm", "gpu": ...}'
            )

    def _say(self, key: int, device: int, words: str) -> None:
        self._known(device, words)
        top = self._root(key)
        self._agree(self.said.setdefault(top, (device, words)), (device, words))

    def _agree(self, one: tuple[int, str], other: tuple[int, str]) -> None:
        if one[0] != other[0]:
            raise ValueError(
                f"a part of the graph cannot be on two devices: {one[1]} wants "
                f"{device_kind(one[0])} and {other[1]} {device_kind(other[0])}; let the value "
                "between them cross, by on_device without constrain_result or by device_copy"
            )

    def _join(self, reader: Call, read: RelayExpr) -> None:
        """Let two calls share a device, unless a value may cross between them."""
        if not isinstance(read, Call) or (is_annotation(read) and id(read) not in self.bound):
            return
        one, other = self._root(id(reader)), self._root(id(read))
        if one == other:
            return
        self.above[one] = other
        if (said := self.said.pop(one, None)) is not None:
            self._agree(self.said.setdefault(other, said), said)

    def _root(self, key: int) -> int:
        top = key
        while self.above[top] != top:
            top = self.above[top]
        while self.above[key] != top:
            self.above[key], key = top, self.above[key]
        return top


def _name(expr: RelayExpr) -> str:
    return expr.name_hint if isinstance(expr, Var) else "a constant"


def _homes(
    func: Function, calls: Sequence[RelayExpr], places: _Places, config: Devices
) -> dict[int, int]:
    """The devices that parameters lie on."""
    readers: dict[int, set[int]] = {}
    for expr in calls:
        assert isinstance(expr, Call)
        for arg in expr.args if not is_annotation(expr) else ():
            for leaf in leaves(arg):
                readers.setdefault(id(source(behind(leaf))), set()).add(places.of[id(expr)])
    homes: dict[int, int] = {}
    for param in func.params:
        found = readers.get(id(param), {config.fallback})
        shared = CPU if CPU in found else config.fallback
        one = next(iter(found)) if len(found) == 1 else shared
        homes[id(param)] = places.of_inputs.get(id(param), one)
    return homes
