"""Open models in files: what is written about them beside their program, and read again."""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from sterna.frontend.open_inputs import Given, OpenInput
from sterna.frontend.stages import Decide
from sterna.model.open_arguments import Ranges
from sterna.model.open_model import OnlyAProgram, OpenModel, Trace
from sterna.model.programs import Program, SymbolicRun, home_of
from sterna.relay.expr import Function, RelayExpr
from sterna.runtime import Module
from sterna.runtime.vm import VirtualMachine, parameters_of


def told(trace: Trace, ranges: Ranges) -> str:
    """The inputs and outputs of an open model as text."""
    inputs = [
        {"name": each.name, "shape": each.shape, "dtype": each.dtype} for each in trace.inputs
    ]
    return json.dumps({"inputs": inputs, "outputs": list(trace.outputs), "ranges": dict(ranges)})


def read_open(module: Module, path: str) -> OpenModel:
    """The open model whose program a module is."""
    if not {"about", "main"} <= parameters_of(module).keys():
        raise ValueError(
            f"'{path}' holds a program, but no model; runtime.vm.VirtualMachine runs what "
            "runtime.load_module gives"
        )
    try:
        text = bytes(VirtualMachine(module, home_of(module)).invoke("about").numpy()).decode()
        about: Any = json.loads(text)
        inputs = [
            OpenInput(each["name"], each["shape"], each["dtype"]) for each in about["inputs"]
        ]
        outputs = [str(name) for name in about["outputs"]]
        ranges = {str(n): (int(low), int(high)) for n, (low, high) in about["ranges"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"'{path}' tells nothing sensible about its model: {error}") from None
    run = SymbolicRun(module, parameters_of(module)["main"])
    return OpenModel(_Loaded(inputs, outputs), _refused, ranges, run)


def _refused(function: Function, decides: bool) -> Program:
    raise ValueError("a model that was loaded from a file is not compiled anew")


class _Loaded:
    """What stands in the place of a model that only its program is left of."""

    needs_host = False

    def __init__(self, inputs: Sequence[OpenInput], outputs: Sequence[str]) -> None:
        self.inputs, self.outputs = inputs, outputs

    def run(self, inputs: Mapping[str, Given], decide: Decide) -> list[RelayExpr]:
        """Refused."""
        self._refuse()

    def symbolic(self) -> Function:
        """Refused."""
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise OnlyAProgram("a model that was loaded from a file is not imported anew")
