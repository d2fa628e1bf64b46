"""The record of a format that models come in: how it is recognised, and how it is loaded."""

import importlib.util
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sterna.frontend.inputs import Inputs, Shapes
from sterna.ir.module import IRModule
from sterna.runtime import NDArray
from sterna.support.discovery import load_name
from sterna.support.errors import MissingPackageError, TVMError


class FormatNotImportable(TVMError, NotImplementedError):
    """A model is in a format that is known, but has no importer yet."""


@dataclass(frozen=True, slots=True)
class ImportOptions:
    """What the user says about how to import a model."""

    shapes: Shapes = field(default_factory=dict)
    dtypes: Mapping[str, str] = field(default_factory=dict)
    freeze_params: bool = True
    """Whether weights become constants; if not they are parameters and come back."""
    all_known: bool = False
    """Whether every dimension must be known; if not, open ones may stay open."""
    argument: str = "shape"
    """Where the user says shapes, for messages."""
    for_microcontroller: bool = False
    """Whether quantised numbers are rounded as kernels for microcontrollers do it."""
    example_inputs: Sequence[Any] | None = None
    """What a model that is a program is recorded with."""
    fixed: Mapping[str, Any] = field(default_factory=dict)
    """Values of inputs, which become constants."""

    def inputs(self) -> Inputs:
        """What the user says about inputs."""
        return Inputs(
            self.shapes, self.dtypes, self.argument, self.all_known, self.fixed
        )


Graph = tuple[IRModule, dict[str, NDArray]]
"""A module whose function main is the model, and the weights that are no constants in it."""

Loader = Callable[[Any, ImportOptions], Graph]


@dataclass(frozen=True, slots=True)
class Format:
    """A format of models.

    Functions may be given as "module:function", which is loaded when it is first needed.
    """

    name: str
    """As messages say it: ONNX, TensorFlow Lite."""
    suffixes: tuple[str, ...]
    """How names of such files end, in lower case, dots included."""
    sniff: Callable[[bytes], bool]
    """Whether a file that begins with these bytes is one; it gets 4096, or all if there are less.
    """
    load: Loader | str | None = None
    """The graph and the weights of a model that is given as a path, as bytes or as an object;
    None for a format that is known, but cannot be imported."""
    takes: Callable[[object], bool] = lambda model: False
    """Whether an object in memory is such a model."""
    folder_with: str = ""
    """The file by which a folder is such a model."""
    functions: Mapping[str, str] = field(default_factory=dict)
    """Functions of relay.frontend that users know, and where they are."""
    needs: str = ""
    """The package that loading takes and that is not always installed."""
    in_one_file: Callable[[Path], bool] | str | None = None
    """Whether a file holds all of its model. Only where a format can tell are models kept on disk
    as they were compiled, to be found there the next time."""
    trace: Callable[..., Any] | str | None = None
    """Makes of a model what is imported when inputs come, for shapes and values that decide about
    the graph; see sterna/frontend/stages.py."""
    instead: str = ""
    """For a format that cannot be imported: how to get a model that can."""

    def __post_init__(self) -> None:
        for suffix in self.suffixes:
            if not suffix.startswith(".") or suffix != suffix.lower():
                raise ValueError(
                    f"the format {self.name}: the suffix '{suffix}' is not like '.onnx'"
                )

    @property
    def called(self) -> str:
        """How a sentence names one: an ONNX model."""
        return f"{'an' if self.name[0] in 'AEIOU' else 'a'} {self.name} model"

    def load_model(self, model: object, options: ImportOptions) -> Graph:
        """The graph and the weights of a model of this format."""
        if self.load is None:
            raise FormatNotImportable(f"{_shown(model)} is {self.called}; {self.instead}")
        if self.needs and importlib.util.find_spec(self.needs) is None:
            raise MissingPackageError(self.needs, f"importing a model of {self.name}")
        load: Loader = load_name(self.load) if isinstance(self.load, str) else self.load
        return load(model, options)

    def trace_model(self, model: object, example_inputs: Sequence[Any] | None = None) -> Any:
        """A model of this format that is imported when inputs come; None if it cannot be.

        One that is recorded while it runs takes example inputs.
        """
        make = load_name(self.trace) if isinstance(self.trace, str) else self.trace
        if make is None:
            return None
        return make(model) if example_inputs is None else make(model, example_inputs)

    def holds_all(self, path: Path) -> bool:
        """Whether it is certain that a file holds all of its model."""
        tell = self.in_one_file
        tell = load_name(tell) if isinstance(tell, str) else tell
        return tell is not None and bool(tell(path))


def _shown(model: object) -> str:
    """A model in a message: a file by its path."""
    if isinstance(model, str | os.PathLike):
        return f"'{os.fspath(model)}'"
    return "this"
