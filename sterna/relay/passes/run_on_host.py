"""Kernels that a device cannot run, run by the processor, with copies of what they read and give.

The graph consists of kernels already. Each value is copied once to each device that reads it where
it does not lie; parameters that the processor alone reads lie there, and constants wherever they
are read.
"""

from collections.abc import Collection

from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.op import call, is_call_of
from sterna.relay.placed import DEVICE, source
from sterna.relay.traverse import not_primitive, post_order

CPU = 1


def run_on_host(main: Function, kernels: Collection[int], device: int) -> Function:
    """The graph with some kernels, known by their identities, on the processor.

    device: where kernels run that are not marked.
    """
    return _Mover(kernels, device).run(main)


class _Mover:
    def __init__(self, kernels: Collection[int], device: int) -> None:
        self.kernels, self.device = kernels, device
        self.marked: dict[int, Function] = {}
        self.made: dict[int, RelayExpr] = {}
        self.homes: dict[int, int] = {}
        self.copies: dict[tuple[int, tuple[int, ...], int], RelayExpr] = {}

    def run(self, main: Function) -> Function:
        order = post_order(main.body, not_primitive)
        calls = [each for each in order if isinstance(each, Call) and _is_kernel(each)]
        for each in reversed(calls):  # the first reader's device, and the processor before others
            for arg in each.args:
                read, place = source(_value(arg)), self._place(each)
                if isinstance(read, Var) and self.homes.get(id(read)) != CPU:
                    self.homes[id(read)] = place
        for each in calls:
            place = self._place(each)
            args = tuple(self._on(arg, place) for arg in each.args)
            made = Call(self._function(each), args, each.attrs)
            made.span = each.span
            self.made[id(each)], self.homes[id(each)] = made, place
        return Function(main.params, self._head(main.body), None, main.type_params, main.attrs)

    def _place(self, each: Call) -> int:
        assert isinstance(each.op, Function)
        if id(each.op) in self.kernels:
            return CPU
        return int((each.op.attrs or {}).get(DEVICE, self.device))

    def _function(self, each: Call) -> Function:
        function = each.op
        assert isinstance(function, Function)
        if id(function) not in self.kernels:
            return function
        return self.marked.setdefault(id(function), function.with_attr(DEVICE, CPU))

    def _on(self, arg: RelayExpr, place: int) -> RelayExpr:
        """A value as a device has it."""
        value = _value(arg)
        root, path = source(value), _path(value)
        key = id(root.data) if isinstance(root, Constant) else id(root), path, place
        if key not in self.copies:
            self.copies[key] = self._brought(value, root, place)
        return self.copies[key]

    def _brought(self, value: RelayExpr, root: RelayExpr, place: int) -> RelayExpr:
        if isinstance(root, Constant):
            made = Constant(root.data)
            made.span = root.span
            return made
        here = self.made.get(id(root), root)
        for index in reversed(_path(value)):
            here = TupleGetItem(here, index)
        home = self.homes.get(id(root), self.device)
        if home == place:
            return here
        copied = call("device_copy", here, src_device=home, dst_device=place)
        copied.span = root.span
        return copied

    def _head(self, arg: RelayExpr) -> RelayExpr:
        if isinstance(arg, Tuple):
            return Tuple(tuple(self._head(part) for part in arg.fields))
        if is_call_of(arg, "device_copy"):
            assert isinstance(arg, Call)
            return self._on(arg, arg.attrs.dst_device)  # type: ignore[union-attr]
        value = _value(arg)
        if isinstance(value, Tuple):
            return self._head(value)
        root = source(value)
        return self._on(value, self.homes.get(id(root), self.device))


def _is_kernel(each: Call) -> bool:
    return isinstance(each.op, Function)


def _value(arg: RelayExpr) -> RelayExpr:
    """What a value is before it is copied, as an item of what gives it."""
    while True:
        if is_call_of(arg, "device_copy"):
            assert isinstance(arg, Call)
            (arg,) = arg.args
        elif isinstance(arg, TupleGetItem) and isinstance(arg.tuple_value, Tuple):
            arg = arg.tuple_value.fields[arg.index]
        elif isinstance(arg, TupleGetItem) and _value(arg.tuple_value) is not arg.tuple_value:
            arg = TupleGetItem(_value(arg.tuple_value), arg.index)
        else:
            return arg


def _path(value: RelayExpr) -> tuple[int, ...]:
    path: list[int] = []
    while isinstance(value, TupleGetItem):
        path.append(value.index)
        value = value.tuple_value
    return tuple(path)
