"""Programs with open dimensions: imported anew for the shapes that a call brings."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sterna.frontend.format import ImportOptions
from sterna.frontend.open_inputs import Given, OpenInput, tensors_of
from sterna.frontend.stages import Decide
from sterna.frontend.torch.load_model import import_program, read
from sterna.relay.expr import Function, RelayExpr, Tuple


class ProgramTrace:
    """An exported program, as often as inputs bring new shapes."""

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
            for place in range(len(results))
        ]

    def symbolic(self) -> Function:
        """Refused: its converters ask for known shapes."""
        raise ValueError("programs of PyTorch are imported for known shapes")

    def run(self, inputs: Mapping[str, Given], decide: Decide) -> list[RelayExpr]:
        """The outputs for inputs of these shapes, over variables by the inputs' names."""
        shapes = {name: np.shape(each) for name, each in tensors_of(inputs).items()}
        module, _ = import_program(self.program, ImportOptions(shapes=shapes))
        body = module["main"].body
        found = list(body.fields) if isinstance(body, Tuple) else [body]
        return found[: len(self.outputs)]
