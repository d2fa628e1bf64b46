"""Random numbers of graphs of torch.compile: PyTorch draws them before the graph runs.

    def f(x):                               def f(x, kept, noise):
        y = dropout(x.relu(), 0.1)              y = x.relu() * kept * (1 / 0.9)
        return y + randn_like(y)                return y + noise

Its generators are asked in the order of the graph: a seed gives what it gives in eager mode. Where
a checkpoint keeps the state of a generator, that is drawn too, and the backward graph draws from it
once more.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from sterna.frontend.torch.read_exported import target_name
from sterna.support.errors import OpNotImplemented

Graph = Callable[..., Any]
Given = Sequence[Any]
# What open extents are in a call, by their symbols.
Numbers = Mapping[Any, Any]

# Operators that read of their first operand nothing but how it lies, beside all that read none.
_FILLING = frozenset({
    "aten.rand_like", "aten.randn_like", "aten.randint_like", "aten.bernoulli.p", "aten.uniform",
    "aten.normal_functional", "aten.exponential", "aten.random", "aten.cauchy", "aten.geometric",
    "aten.log_normal",
})
_DROPOUT = frozenset({"aten.dropout.default", "aten.native_dropout.default"})
# Parameters of operators that draw in training alone, and only where a share is dropped: layers of
# attention and recurrent ones, too.
_IN_TRAINING = ("train", "training")
_SHARES = ("p", "dropout", "dropout_p")
_SAVE, _WITH = "ops.higher_order.run_and_save_rng_state", "ops.higher_order.run_with_rng_state"

# How a generator's state is told and set, by the kind of its device.
_STATES: Mapping[str, tuple[Callable[[], Any], Callable[[Any], None]]] = {
    "cpu": (torch.get_rng_state, torch.set_rng_state),
    "cuda": (torch.cuda.get_rng_state, torch.cuda.set_rng_state),
}


def is_random(node: Any) -> bool:
    """Whether an operator of a graph asks a generator of random numbers."""
    if node.op != "call_function":
        return False
    if target_name(node.target) in (_SAVE, _WITH):
        return True
    tags = getattr(node.target, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags and _asks(node.target, node.args, node.kwargs)


def _asks(target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether an operator that may be random is so with these arguments."""
    names = [each.name for each in target._schema.arguments]
    defaults = {
        each.name: each.default_value for each in target._schema.arguments
        if each.has_default_value()
    }
    given = {**defaults, **dict(zip(names, args, strict=False)), **kwargs}
    flags = [given[name] for name in _IN_TRAINING if name in given]
    if any(flag is False for flag in flags):
        return False
    shares = _SHARES if flags else _SHARES[1:]  # p of others is what they draw by
    return all(given[name] != 0 for name in shares if name in given)


@dataclass(frozen=True, slots=True)
class _Like:
    """How a tensor lies; extents and strides may be symbols."""

    size: Sequence[Any]
    stride: Sequence[Any]
    dtype: torch.dtype
    device: torch.device

    @classmethod
    def of(cls, value: Any) -> "_Like":
        return cls(list(value.shape), list(value.stride()), value.dtype, value.device)

    def empty(self, numbers: Numbers, device: str = "", dtype: Any = None) -> Any:
        size, stride = (_known(each, numbers) for each in (self.size, self.stride))
        return torch.empty_strided(
            size, stride, dtype=dtype or self.dtype, device=device or self.device
        )


@dataclass(frozen=True, slots=True)
class Drawn:
    """A graph with inputs, behind its own, in place of what it draws."""

    module: Any
    draws: Sequence[Callable[[Given, Numbers], Any]]
    likes: Sequence[_Like]
    """How the drawn tensors lie."""
    symbols: Mapping[Any, tuple[int, int | None]]
    """The input, and its axis if that is a tensor, which a symbol is the extent of."""

    def examples(self, given: Given) -> list[Any]:
        """The inputs and, without their numbers, the drawn tensors behind them."""
        numbers = self._numbers(given)
        return [*given, *(like.empty(numbers, "meta") for like in self.likes)]

    def before(self, graph: Graph) -> Graph:
        """A graph of the module's inputs as one of those that a call gives."""
        if not self.draws:
            return graph

        def run(*given: Any) -> Any:
            numbers = self._numbers(given)
            return graph(*given, *[draw(given, numbers) for draw in self.draws])

        return run

    def _numbers(self, given: Given) -> Numbers:
        return {
            symbol: given[place] if axis is None else given[place].shape[axis]
            for symbol, (place, axis) in self.symbols.items()
        }


def with_draws(gm: Any) -> Drawn:
    """A graph of ATen operators without those that draw; as it is where one cannot be had before.

    What data decides of a draw (`multinomial`, `bernoulli` of a tensor) only the graph knows, and
    what follows would draw too early.
    """
    as_it_is = Drawn(gm, (), (), {})
    if not any(map(is_random, gm.graph.nodes)):
        return as_it_is
    try:
        return _Lifting(gm).drawn()
    except OpNotImplemented:
        return as_it_is


class _Lifting:
    """A graph on its way to one whose random numbers are inputs."""

    def __init__(self, gm: Any) -> None:
        self.gm, self.graph = gm, torch.fx.Graph()
        self.copies: dict[Any, Any] = {}
        self.draws: list[Callable[[Given, Numbers], Any]] = []
        self.likes: list[_Like] = []
        self.inputs = gm.graph.find_nodes(op="placeholder")
        self.places = {node: place for place, node in enumerate(self.inputs)}
        for node in self.inputs:
            self.copies[node] = self.graph.node_copy(node)
        values = map(_value, gm.graph.nodes)
        modes = [each.fake_mode for each in values if hasattr(each, "fake_mode")]
        if not modes:
            raise OpNotImplemented("a graph that tells no shapes")
        self.mode: Any = modes[0]

    def drawn(self) -> Drawn:
        """The graph, and what is drawn before it."""
        for node in self.gm.graph.nodes:
            if node in self.copies:
                continue
            if is_random(node):
                self._lift(node)
            else:
                self.copies[node] = self.graph.node_copy(node, self.copies.__getitem__)
        made = torch.fx.GraphModule(self.gm, self.graph)
        return Drawn(made, self.draws, self.likes, self._symbols())

    def _symbols(self) -> dict[Any, tuple[int, int | None]]:
        found: dict[Any, tuple[int, int | None]] = {}
        for place, node in enumerate(self.inputs):
            value = node.meta.get("val")
            every = enumerate(value.shape) if isinstance(value, torch.Tensor) else [(None, value)]
            for axis, extent in every:
                if isinstance(extent, torch.SymInt):
                    found.setdefault(extent.node.expr, (place, axis))
        return found

    def _lift(self, node: Any) -> None:
        name = target_name(node.target)
        self.copies[node] = None
        if name == _SAVE:
            # (state, results) is taken apart by its users.
            parts = {user.args[1]: user for user in node.users}
            if 0 in parts:
                self._place(parts[0], self._state(_device_of(node.args[1:], node.kwargs)))
            if 1 in parts:
                self._place(parts[1], self._made(*node.args, **node.kwargs))
        elif name == _WITH:
            state, *call = node.args
            if state not in self.places:
                raise OpNotImplemented("a state of a generator that the graph itself computes")
            self._place(node, self._made(*call, state=self.places[state], **node.kwargs))
        else:
            self._place(node, self._made(node.target, *node.args, **node.kwargs))

    def _place(self, node: Any, made: Any) -> None:
        """What stands for a node; of more results than one, for what is taken of it."""
        self.copies[node] = made
        if isinstance(made, list):
            self.copies.update({user: made[user.args[1]] for user in node.users})

    def _made(self, target: Any, *args: Any, state: int | None = None, **kwargs: Any) -> Any:
        """The results of an operator; what it draws is an input, from the state at a place."""
        if not _asks(target, args, kwargs):
            return self._called(target, args, kwargs)
        name = target_name(target)
        if name in _DROPOUT:
            return self._dropout(name, args[0], args[1], state)
        values = [_value(each) for each in (*args, *kwargs.values())]
        tensors = [each for each in values if isinstance(each, torch.Tensor)]
        is_filling = name in _FILLING or name.rpartition(".")[0] in _FILLING
        if target._schema.is_mutable or len(tensors) > is_filling:
            raise OpNotImplemented(f"{name} of data")
        given, named = _argument(args), {word: _argument(each) for word, each in kwargs.items()}

        def draw(numbers: Numbers) -> Any:
            known = {word: _known(each, numbers) for word, each in named.items()}
            return target(*_known(given, numbers), **known)

        return self._input(draw, _Like.of(self._like(target, args, kwargs)), state)

    def _like(self, target: Any, args: Any, kwargs: Any) -> Any:
        """What an operator gives, without data."""
        given, named = torch.fx.node.map_arg((tuple(args), dict(kwargs)), _value)
        with self.mode:
            return target(*given, **named)

    def _called(self, target: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """A call of an operator in the new graph."""
        given, named = torch.fx.node.map_arg((tuple(args), dict(kwargs)), self.copies.__getitem__)
        made = self.graph.call_function(target, given, named)
        made.meta["val"] = self._like(target, given, named)
        return made

    def _dropout(self, name: str, operand: Any, p: float, state: int | None) -> Any:
        """Dropout as products by what is kept, and what is kept."""
        like = _Like.of(_value(operand))
        kept = self._input(
            lambda numbers: _kept(like, p, numbers), replace(like, dtype=torch.bool), state
        )
        scale = 0.0 if p == 1 else 1 / (1 - p)
        product = torch.ops.aten.mul.Tensor
        self.copies[kept] = kept
        by_kept = self._called(product, (operand, kept), {})
        self.copies[by_kept] = by_kept
        made = self._called(product, (by_kept, scale), {})
        return made if name == "aten.dropout.default" else [made, kept]

    def _state(self, device: torch.device) -> Any:
        """The state of a generator as an input."""
        get, _ = _STATES[device.type]
        return self._input(lambda numbers: get(), _Like.of(get()), None)

    def _input(
        self, draw: Callable[[Numbers], Any], like: _Like, state: int | None
    ) -> Any:
        """A new input, behind those that are there."""
        before = self.graph.find_nodes(op="placeholder")
        with self.graph.inserting_after(before[-1] if before else None):
            made = self.graph.placeholder(f"drawn_{len(self.draws)}")
        with self.mode:
            made.meta["val"] = torch.empty_strided(
                list(like.size), list(like.stride), dtype=like.dtype, device=like.device
            )
        self.draws.append(_from_state(draw, state, like.device))
        self.likes.append(like)
        return made


def _from_state(
    draw: Callable[[Numbers], Any], state: int | None, device: torch.device
) -> Callable[[Given, Numbers], Any]:
    """A draw from the state that a call gives; the generator goes on from where it was."""
    if state is None:
        return lambda given, numbers: draw(numbers)
    get, put = _STATES[device.type]

    def run(given: Given, numbers: Numbers) -> Any:
        before = get()
        put(given[state].cpu())
        try:
            return draw(numbers)
        finally:
            put(before)

    return run


def _kept(like: _Like, p: float, numbers: Numbers) -> Any:
    """Which elements dropout keeps, as eager mode finds them on each device."""
    if p == 1:
        return like.empty(numbers, dtype=torch.bool).zero_()
    if like.device.type == "cpu":
        return like.empty(numbers, dtype=torch.bool).bernoulli_(1 - p)
    return torch.native_dropout(like.empty(numbers), p, True)[1]


def _device_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> torch.device:
    """Where an operator draws."""
    values = [_value(each) for each in args]
    found = [each.device for each in values if isinstance(each, torch.Tensor)]
    return torch.device(kwargs.get("device") or (found[0] if found else "cpu"))


def _value(argument: Any) -> Any:
    """What is known of an operand while nothing runs: a tensor without data, or a number."""
    return argument.meta.get("val") if isinstance(argument, torch.fx.Node) else argument


def _argument(argument: Any) -> Any:
    """An argument of a draw, for a call to complete."""
    if isinstance(argument, list | tuple):
        return [_argument(each) for each in argument]
    value = _value(argument)
    if isinstance(argument, torch.fx.Node) and value is None:
        raise OpNotImplemented("an operand that is not known before a run")
    return _Like.of(value) if isinstance(value, torch.Tensor) else value


def _known(argument: Any, numbers: Numbers) -> Any:
    """An argument with the numbers of a call."""
    if isinstance(argument, list):
        return [_known(each, numbers) for each in argument]
    if isinstance(argument, _Like):
        return argument.empty(numbers)
    if isinstance(argument, torch.SymInt):
        return int(argument.node.expr.xreplace(numbers))
    return argument
