"""State that stays inside a model: outputs of one call that are inputs of the next, without copies.

    step = model.session({"present_k": "past_k", "present_v": "past_v"}, initial)
    logits = step(ids)

A decoder so keeps its KV cache, and a streaming model what it has heard.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sterna.model.arguments import InputError
from sterna.relay.arrays import Array

Run = Callable[[Mapping[str, Any]], list[Any]]
"""A model on inputs by name, as arrays of the runtime; gives its outputs as such."""


class Session:
    """A run of a model step by step, whose state it holds. One thread uses it at a time."""

    def __init__(
        self, run: Run, inputs: Sequence[str], outputs: Sequence[str], carried: Mapping[str, str],
        initial: Mapping[str, Any], read: Callable[[Any], Array],
    ) -> None:
        """carried: by output, the input that it is in the next step."""
        for output, into in carried.items():
            if output not in outputs or into not in inputs:
                raise InputError(
                    f"the state goes from '{output}' to '{into}'; the model's outputs are "
                    f"{', '.join(outputs)}, its inputs {', '.join(inputs)}"
                )
        missing = [name for name in carried.values() if name not in initial]
        if missing:
            raise InputError(f"initial says no first value of {', '.join(missing)}")
        self._run, self._read = run, read
        self._outputs, self._carried = tuple(outputs), dict(carried)
        self._free = [name for name in inputs if name not in set(carried.values())]
        self.state: dict[str, Any] = {name: initial[name] for name in carried.values()}
        self.steps = 0

    def __call__(self, *args: Any, **named: Any) -> Any:
        """One step on the inputs that are no state; gives the outputs that are none."""
        values = dict(zip(self._free, args, strict=False)) | named
        unknown = [name for name in values if name not in self._free]
        if len(args) > len(self._free) or unknown or len(values) < len(self._free):
            raise InputError(f"a step takes {', '.join(self._free)}; got {', '.join(values)}")
        results = dict(zip(self._outputs, self._run({**values, **self.state}), strict=True))
        self.state = {into: results[output] for output, into in self._carried.items()}
        self.steps += 1
        free = [self._read(each) for n, each in results.items() if n not in self._carried]
        return free[0] if len(free) == 1 else tuple(free)
