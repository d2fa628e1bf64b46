"""Models whose shapes, loops or branches only calls decide: compiled for what they are called with.

One object serves all shapes. Where its kernels can be compiled with symbolic extents, one program
runs them all, and shapes that are called often get programs of their own in the background. Else
what a call brings (shapes, and values that decide about the graph) selects a specialisation, a
chain of compiled programs; the first call that brings something new compiles what is new about it.
Specialisations are kept, the ones that were used last.
"""

import os
import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sterna.frontend.graph_importer import ABSENT
from sterna.frontend.open_inputs import Given, OpenInput, tensors_of
from sterna.frontend.open_shapes import OpenShapeError
from sterna.frontend.stages import Decide, Stage, function_of
from sterna.ir.types import TensorType, TupleType, Type
from sterna.model.arguments import InputError
from sterna.model.background import Background
from sterna.model.compiled_model import CompiledModel
from sterna.model.open_arguments import Ranges, arranged, check_inputs
from sterna.model.programs import LoopLimits, Program, SymbolicRun, with_host
from sterna.model.report import Report
from sterna.model.session import Session
from sterna.relay.arrays import Array, on_host, to_numpy
from sterna.relay.expr import Function, RelayExpr, Tuple, TupleGetItem
from sterna.runtime import NDArray
from sterna.runtime.node_times import NodeTimes
from sterna.runtime.vm import DEEPEST_RECURSION
from sterna.support.errors import BranchNotCompiled

# Shapes that are kept, and ways to go on from each value that decides.
MOST_KEPT = 64

# Files that hold a program for all shapes.
OPEN_FORMS = (".so", ".tar")

Build = Callable[[Function, bool], Program]
"""Compiles a function; the flag says that it only decides how to go on."""


class OnlyAProgram(ValueError):
    """A model that was loaded from a file: nothing but its program is there."""


class Trace(Protocol):
    """A model that is imported when inputs come."""

    inputs: Sequence[OpenInput]
    outputs: Sequence[str]
    needs_host: bool
    """Whether parts of it are run by the host, between programs."""

    def run(self, inputs: Mapping[str, Given], decide: Decide) -> list[RelayExpr]:
        """The outputs for inputs of these shapes; decide runs what decides about the graph."""
        ...

    def symbolic(self) -> Function:
        """The whole model over symbols for its open dimensions; a ValueError says why not."""
        ...


@dataclass(slots=True)
class _Step:
    """A place in a chain of programs: what runs there, and how it goes on."""

    program: Program | None = None
    results: list[str] = field(default_factory=list)
    """What later programs know its results by, but for the first, which decides."""
    following: "OrderedDict[Any, _Step]" = field(default_factory=OrderedDict)
    outputs: list[Type | None] | None = None
    """Of the last step: what the model's outputs are; None: an optional one that is not there."""


class OpenModel(CompiledModel):
    """A model that takes any shapes that it declares. `m(x)` runs it; threads may share it.

    What tells about one compiled program (report, profile, export) asks for shapes.
    """

    inputs: tuple[OpenInput, ...]  # type: ignore[assignment]
    outputs: tuple[str, ...]  # type: ignore[assignment]

    def __init__(
        self, trace: Trace, build: Build, ranges: Ranges, symbolic: SymbolicRun | None = None,
        why_not_symbolic: str = "", often: int = 0, limits: LoopLimits | None = None,
    ) -> None:
        """often: how many calls of one shape let a program for it be compiled meanwhile.

        limits: those of the machines that build makes.
        """
        self._symbolic, self.why_not_symbolic = symbolic, why_not_symbolic
        self._background = Background(often)
        self._limits = LoopLimits() if limits is None else limits
        if symbolic is not None:
            self._limits.hold(symbolic.machine)
        self.trace, self._make, self.ranges = trace, build, dict(ranges)
        self._build = None  # there is no one build to tell about
        self.inputs = tuple(trace.inputs)
        self.outputs = tuple(trace.outputs)
        self._roots: OrderedDict[Any, _Step] = OrderedDict()
        self._lock = threading.RLock()
        self._names = dict.fromkeys(each.name for each in self.inputs).keys()
        self._takes_arrays = all(e.dtype is not None and not e.is_sequence for e in self.inputs)
        self._checked: set[Any] = set()
        """Shapes and types that fit."""
        self._any_shape = any(_is_open(each) for each in self.inputs)
        self.compiled = 0 if symbolic is None else 1
        """How many programs have been compiled."""

    @property
    def takes_tensors(self) -> bool:
        """Whether all inputs are tensors of numbers that must be there, and kernels do all."""
        others = (e.is_sequence or e.is_optional or e.dtype is None for e in self.inputs)
        return not any(others) and not self.trace.needs_host

    @property
    def is_symbolic(self) -> bool:
        """Whether one program runs all shapes; why_not_symbolic says what stood against it."""
        return self._symbolic is not None

    @property
    def takes_any_shape(self) -> bool:
        """Whether inputs have open dimensions; else choices and loops alone made it open."""
        return self._any_shape

    def cancel_specialising(self) -> None:
        """Compile no more programs for shapes that are called often; those that are stay."""
        self._background.cancel()

    def wait_for_specialising(self) -> None:
        """Wait until the programs are ready that are compiled in the background now."""
        self._background.wait()

    def set_limits(self, calls: int = 0, depth: int = DEEPEST_RECURSION) -> None:
        """Let runs end with an error after so many rounds of loops and other calls, or nested ones.

        0 is any number; what is compiled later is held to them too.
        """
        self._limits.set(calls, depth)

    def cancel(self, stop: bool = True) -> None:
        """Let all runs end with an error, from another thread; False lets new ones run again."""
        self._limits.cancel(stop)

    # ---- running ----

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Run it on inputs by place or by name; gives one result, or a tuple of several."""
        results = self._called(self._given(args, named))
        return results[0] if len(results) == 1 else tuple(results)

    def run(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """Run it on inputs by name; gives the outputs by name."""
        results = self._called(self._given((), inputs))
        return dict(zip(self.outputs, results, strict=True))

    def _given(self, args: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Given]:
        """What it is called with, by input; where these are arrays, nothing is to be arranged."""
        is_whole = self._takes_arrays and not named and len(args) == len(self._names)
        if is_whole and all(type(value) is np.ndarray for value in args):
            return dict(zip(self._names, args, strict=True))
        values = {**dict(zip(self._names, args, strict=False)), **named}
        is_whole = self._takes_arrays and len(args) + len(named) == len(values)
        if is_whole and values.keys() == self._names and _are_arrays(values):
            return values
        return arranged(self.inputs, args, named)

    def _called(self, given: dict[str, Given]) -> list[Any]:
        key = _shapes(given)
        if key not in self._checked:
            check_inputs(self.inputs, given, self.ranges)
            if len(self._checked) < MOST_KEPT:
                self._checked.add(key)
        values = tensors_of(given)
        if self._symbolic is not None and self._roots.get(key) is None:
            if self._any_shape:
                self._background.met(key, lambda: self._prepare(key, given))
            made = self._by_symbols(values)
            if made is not None:
                return made
        with self._lock:
            root = _kept(self._roots, key)
        step: _Step | None = root
        while step is not None and step.program is not None:
            self._limits.expect_running()
            results = step.program(values)
            if step.outputs is not None:
                return _grouped(step.outputs, results)
            values.update(zip(step.results, results[1:], strict=True))
            step = step.following.get(_key(results[0]))
        made = self._by_symbols(tensors_of(given))  # the specialisation holds for other values
        if made is not None:
            return made
        with self._lock:
            try:
                return self._specialise(root, given)
            except OnlyAProgram:
                assert self._symbolic is not None
                return self._symbolic(tensors_of(given))  # what it lacks is an error

    def _by_symbols(self, values: Mapping[str, Any]) -> list[Any] | None:
        """What the program for all shapes gives; None if there is none, or it lacks a branch."""
        if self._symbolic is None:
            return None
        try:
            return self._symbolic(values)
        except BranchNotCompiled:
            return None

    def _specialise(self, root: _Step, given: dict[str, Given]) -> list[Any]:
        """Import the model for these inputs; what is compiled on the way is kept."""
        values = tensors_of(given)
        at = root

        def decide(stage: Stage) -> list[Array]:
            nonlocal at
            self._limits.expect_running()
            if at.program is None:
                at.program = with_host(self._compiled(stage.function, True), stage.host)
                at.results = list(stage.results)
            made = [on_host(each) for each in at.program(values)]
            values.update(zip(at.results, made[1:], strict=True))
            at = _kept(at.following, _key(made[0]))
            return made

        outputs = self.trace.run(given, decide)
        leaves = [leaf for output in outputs for leaf in _leaves(output)]
        if at.program is None:
            at.outputs = [None if out is ABSENT else out.checked_type for out in outputs]
            body = leaves[0] if len(leaves) == 1 else Tuple(tuple(leaves))
            at.program = self._compiled(function_of(body), False) if leaves else _nothing
        assert at.outputs is not None
        return _grouped(at.outputs, at.program(values))

    def _prepare(self, key: Any, given: dict[str, Given]) -> None:
        """A specialisation for shapes that are called often, put in place when it is whole."""
        if self._background.is_cancelled:
            return
        root = _Step()
        try:
            self._specialise(root, given)
        except (ValueError, NotImplementedError):
            return  # the symbolic program goes on serving these shapes
        with self._lock:
            _kept(self._roots, key)
            self._roots[key] = root

    def _compiled(self, function: Function, decides: bool) -> Program:
        self.compiled += 1
        return self._make(function, decides)

    def session(self, carried: Mapping[str, str], initial: Mapping[str, Any]) -> Session:
        """A run step by step whose state stays inside: by output, the input that it is next.

        initial: the first values of these inputs, such as an empty KV cache.
        """
        names = [each.name for each in self.inputs]
        if self._symbolic is None:
            def run(values: Mapping[str, Any]) -> list[Any]:
                return self._called(arranged(self.inputs, (), values))

            return Session(run, names, self.outputs, carried, initial, np.asarray)
        return Session(self._symbolic.run, names, self.outputs, carried, initial, to_numpy)

    # ---- what needs one shape ----

    def open_shapes(self) -> OpenShapeError:
        """What says how to ask for one specialisation."""
        listed = {each.name: ["?"] if each.shape is None else each.shape
                  for each in self.inputs if not each.is_sequence}
        return OpenShapeError(listed)

    def export(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the program for all shapes to a file, .so or .tar; shapes come with the inputs.

        Without such a program it is refused: a file holds one specialisation.
        """
        if self._symbolic is None:
            raise self.open_shapes()
        if Path(path).suffix not in OPEN_FORMS:
            raise ValueError(
                f"'{path}': a model with open shapes is written as {' or '.join(OPEN_FORMS)}; for "
                "other files say the shapes"
            )
        self._symbolic.module.export_library(path, **options)

    def report(self) -> Report:
        """Refused: it is about one specialisation."""
        raise self.open_shapes()

    def profile(self, *args: Any, **options: Any) -> NodeTimes:
        """Refused: it is about one specialisation."""
        raise self.open_shapes()

    def __repr__(self) -> str:
        takes = ", ".join(map(str, self.inputs))
        return f"OpenModel({takes}) -> ({', '.join(self.outputs)})"


def _are_arrays(values: Mapping[str, Any]) -> bool:
    return {*map(type, values.values())} == {np.ndarray}


def _is_open(declared: OpenInput) -> bool:
    """Whether an input takes more than one shape: only then is there one to specialise for."""
    return declared.shape is None or any(isinstance(extent, str) for extent in declared.shape)


def _nothing(values: Mapping[str, Any]) -> list[Array]:
    return []


def _kept(steps: "OrderedDict[Any, _Step]", key: Any) -> _Step:
    """The step of a key, which is made if there is none; the one unused for longest goes."""
    if key not in steps:
        if len(steps) >= MOST_KEPT:
            steps.popitem(last=False)
        steps[key] = _Step()
    steps.move_to_end(key)
    return steps[key]


def _shapes(given: Mapping[str, Given]) -> tuple[Any, ...]:
    """What specialisations are found by first: shapes and types, of sequences one by one."""
    return tuple(
        tuple((each.shape, each.dtype) for each in value) if isinstance(value, list)
        else None if value is None else (value.shape, value.dtype)
        for value in given.values()
    )


def _key(given: Any) -> tuple[Any, ...]:
    value = on_host(given)
    return value.shape, value.dtype, value.tobytes()


def _leaves(expr: RelayExpr) -> list[RelayExpr]:
    """The tensors of an output."""
    if expr is ABSENT:
        return []
    kind = expr.checked_type
    if isinstance(kind, TensorType):
        return [expr]
    if not isinstance(kind, TupleType):
        raise InputError(f"an output has the type {kind!r}, which is no tensor and no sequence")
    if isinstance(expr, Tuple):
        return [leaf for part in expr.fields for leaf in _leaves(part)]
    fields = range(len(kind.fields))
    return [leaf for place in fields for leaf in _leaves(TupleGetItem(expr, place))]


def _grouped(kinds: Sequence[Type | None], arrays: Sequence[Array]) -> list[Any]:
    """Arrays as the outputs that they belong to; those of a sequence are a list."""
    rest = iter(arrays)

    def take(kind: Type | None) -> Any:
        if kind is None:
            return None
        if isinstance(kind, TupleType):
            return [take(part) for part in kind.fields]
        made = next(rest)
        return made if isinstance(made, NDArray) else np.asarray(made)

    return [take(kind) for kind in kinds]

