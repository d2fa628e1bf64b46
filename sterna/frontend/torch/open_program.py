"""Programs with open dimensions: over symbols, or anew for the shapes that a call brings."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sterna.frontend.format import ImportOptions
from sterna.frontend.open_inputs import Given, OpenInput, tensors_of
from sterna.frontend.open_shapes import open_dim
from sterna.frontend.stages import Decide
from sterna.frontend.torch.load_model import import_program, read
from sterna.frontend.torch.program import Program
from sterna.ir.types import Dim
from sterna.relay.expr import Function, RelayExpr, Tuple
from sterna.relay.symbols import Symbols


def symbolic_shapes(program: Program) -> dict[str, list[Dim]]:
    """By input of a program, its shape over symbols: equal names are one."""
    symbols = Symbols()
    return {
        one.name: [symbols.of_dim(open_dim(dim)) for dim in one.shape]
        for one in program.inputs if not one.is_number and one.shape is not None
    }


class ProgramTrace:
    """An exported program, over symbols, or as often as inputs bring new shapes."""

    needs_host = False

    def __init__(self, model: Any, example_inputs: Sequence[Any] | None = None) -> None:
        self.program = read(model, ImportOptions(example_inputs=example_inputs))
        self.inputs = [
            OpenInput(one.name, one.shape, one.dtype, ranges=self.program.ranges)
            for one in self.program.inputs
            if not one.is_number
        ]
        results = [out for out in self.program.outputs if out.kind == "result"]
        named = self.program.output_names
        self.outputs = [
            named[place] if place < len(named) else f"output_{place}"
            for place, out in enumerate(results) if out.value is not None
        ]
        changed = [out.target for out in self.program.outputs if out.kind == "buffer"]
        self.state = {
            one.name: one.read(f"buffer '{one.name}'")
            for one in self.program.weights if one.name in changed
        }
        self.inputs += [
            OpenInput(name, each.shape, str(each.dtype)) for name, each in self.state.items()
        ]
        self.outputs += [f"new {name}" for name in changed]

    def symbolic(self) -> Function:
        """The whole program over symbols for its open dimensions; a ValueError says why not."""
        return self._imported(symbolic_shapes(self.program))

    def _imported(self, shapes: Mapping[str, Sequence[Dim]]) -> Function:
        module, _ = import_program(self.program, ImportOptions(shapes=shapes))
        main: Function = module["main"]
        return main

    def run(self, inputs: Mapping[str, Given], decide: Decide) -> list[RelayExpr]:
        """The outputs for inputs of these shapes, over variables by the inputs' names."""
        shapes = {
            name: np.shape(each) for name, each in tensors_of(inputs).items()
            if name not in self.state
        }
        body = self._imported(shapes).body
        found = list(body.fields) if isinstance(body, Tuple) else [body]
        return found[: len(self.outputs)]
