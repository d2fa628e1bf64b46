"""Regions of a graph whose calls have devices: functions of one device each, joined by copies.

Calls of one device that no other device comes between are one region. A region is a step later than
the regions of other devices that it reads, so regions never wait for each other in a circle.
"""

from collections.abc import Mapping
from typing import Any

from sterna.ir.types import TupleType
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.op import call
from sterna.relay.placed import DEVICE, behind, is_annotation, leaves, source
from sterna.relay.traverse import not_primitive, post_order

Region = tuple[int, int]
"""A step, and a device."""
Value = tuple[int, tuple[int, ...]]
"""What gives a value, by its identity, and the places of the item that it is."""


def cut_into_regions(
    func: Function, body: RelayExpr, places: Mapping[int, int], homes: Mapping[int, int]
) -> Function:
    """A function's body as calls of regions; places: devices of calls, homes: of parameters."""
    return _Cutter(body, places, homes).run(func)


def _key(leaf: RelayExpr) -> Value:
    path: list[int] = []
    while isinstance(leaf, TupleGetItem):
        path.append(leaf.index)
        leaf = leaf.tuple_value
    return id(leaf), tuple(path)


def _items(arg: RelayExpr) -> RelayExpr:
    """An operand by its tensors: a tuple that a call or a parameter gives is taken apart."""
    kind = arg.checked_type
    if isinstance(arg, Tuple):
        return Tuple(tuple(_items(part) for part in arg.fields))
    if isinstance(kind, TupleType):
        return Tuple(tuple(_items(TupleGetItem(arg, i)) for i in range(len(kind.fields))))
    return arg


class _Cutter:
    def __init__(
        self, body: RelayExpr, places: Mapping[int, int], homes: Mapping[int, int]
    ) -> None:
        self.body, self.places, self.homes = body, places, homes
        self.regions: dict[int, Region] = {}
        self.calls: dict[Region, list[Call]] = {}
        self.given: dict[Region, dict[Value, RelayExpr]] = {}
        """What regions compute for others."""
        self.outer: dict[Value, RelayExpr] = {}
        self.copies: dict[tuple[Value, int], RelayExpr] = {}

    def run(self, func: Function) -> Function:
        order = post_order(self.body, not_primitive)
        calls = [each for each in order if isinstance(each, Call) and not is_annotation(each)]
        for each in calls:
            self._place(each)
        for each in calls:
            for arg in each.args:
                self._read(arg, self.regions[id(each)])
        self._read(self.body, None)
        for region in sorted(self.calls):
            self._make(region)
        body = self._head(self.body)
        return Function(func.params, body, None, func.type_params, func.attrs)

    # ---- which region ----

    def _place(self, each: Call) -> None:
        device = self.places[id(each)]
        step = 0
        for arg in each.args:
            for leaf in leaves(arg):
                if (found := self.regions.get(id(source(behind(leaf))))) is not None:
                    step = max(step, found[0] + (found[1] != device))
        region = step, device
        self.regions[id(each)] = region
        self.calls.setdefault(region, []).append(each)

    def _read(self, arg: RelayExpr, reader: Region | None) -> None:
        """Note what a region gives to others."""
        for part in leaves(arg):
            for leaf in leaves(_items(behind(part))):
                region = self.regions.get(id(source(leaf)))
                if region is not None and region != reader:
                    self.given.setdefault(region, {}).setdefault(_key(leaf), leaf)

    # ---- its function ----

    def _make(self, region: Region) -> None:
        inside = _Inside(self, region)
        for each in self.calls[region]:
            inside.add(each)
        results = self.given[region]
        parts = tuple(inside.value(leaf) for leaf in results.values())
        body = parts[0] if len(parts) == 1 else Tuple(parts)
        function = Function(tuple(inside.params), body, attrs={DEVICE: region[1]})
        made = Call(function, tuple(inside.arguments))
        for place, key in enumerate(results):
            self.outer[key] = made if len(parts) == 1 else TupleGetItem(made, place)

    # ---- what lies between regions ----

    def home(self, leaf: RelayExpr) -> int:
        """The device that a value lies on."""
        root = source(leaf)
        return self.homes[id(root)] if isinstance(root, Var) else self.places[id(root)]

    def on(self, leaf: RelayExpr, device: int) -> RelayExpr:
        """A value as a device has it: one copy for all that read it there."""
        key, home = _key(leaf), self.home(leaf)
        made = self.outer.get(key, leaf)
        if home == device:
            return made
        if (key, device) not in self.copies:
            copied = call("device_copy", made, src_device=home, dst_device=device)
            copied.span = source(leaf).span
            self.copies[key, device] = copied
        return self.copies[key, device]

    def _head(self, arg: RelayExpr) -> RelayExpr:
        """A result: where an annotation wants it, else where it is computed."""
        if isinstance(arg, Tuple):
            return Tuple(tuple(self._head(part) for part in arg.fields))
        value = behind(arg)
        if isinstance(value, Constant):
            return value
        parts = _items(value)
        if isinstance(parts, Tuple):
            return self._head(parts)
        return self.on(value, self._wanted(arg) or self.home(value))

    def _wanted(self, arg: RelayExpr) -> int | None:
        if not is_annotation(arg):
            return None
        assert isinstance(arg, Call)
        attrs: Any = arg.attrs
        constrains = getattr(attrs, "constrain_result", True)
        return self.places[id(arg)] if constrains else self._wanted(arg.args[0])


class _Inside:
    """The inside of one region while it is put together."""

    def __init__(self, cutter: _Cutter, region: Region) -> None:
        self.cutter, self.region = cutter, region
        self.made: dict[int, RelayExpr] = {}
        self.taken: dict[Value, Var] = {}
        self.params: list[Var] = []
        self.arguments: list[RelayExpr] = []

    def add(self, each: Call) -> None:
        """Take a call in."""
        made = Call(each.op, tuple(self._operand(arg) for arg in each.args), each.attrs)
        made.span = each.span
        self.made[id(each)] = made

    def _operand(self, arg: RelayExpr) -> RelayExpr:
        if isinstance(arg, Tuple):
            return Tuple(tuple(self._operand(part) for part in arg.fields))
        value = behind(arg)
        if self._is_own(value):
            return self.value(value)
        parts = _items(value)
        return self._operand(parts) if isinstance(parts, Tuple) else self._taken(value)

    def _is_own(self, leaf: RelayExpr) -> bool:
        return id(source(leaf)) in self.made

    def value(self, leaf: RelayExpr) -> RelayExpr:
        """One of the region's own values, inside."""
        if isinstance(leaf, TupleGetItem):
            return TupleGetItem(self.value(leaf.tuple_value), leaf.index)
        return self.made[id(leaf)]

    def _taken(self, leaf: RelayExpr) -> RelayExpr:
        """A value from outside, as a parameter; constants need none."""
        if isinstance(leaf, Constant):
            return leaf
        key = _key(leaf)
        if key not in self.taken:
            param = Var(f"p{len(self.params)}", leaf.checked_type)
            self.taken[key] = param
            self.params.append(param)
            self.arguments.append(self.cutter.on(leaf, self.region[1]))
        return self.taken[key]
