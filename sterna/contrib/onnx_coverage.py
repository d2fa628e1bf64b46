"""Writes docs/onnx_coverage.md: which of ONNX's own tests of operators pass, and how exactly.

    python -m sterna.contrib.onnx_coverage > docs/onnx_coverage.md
"""

import sys
import textwrap
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
from onnx import GraphProto, NodeProto, TensorProto, TypeProto, numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from sterna.contrib.onnx_backend import SternaBackend
from sterna.relay.arrays import Array, float_info
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented

# LLVM's passes change no result and would take most of the time.
TARGET = "llvm -mcpu=native -opt-level=0"

HEAD = """\
# ONNX's tests of operators

The package `onnx` {version} has {all} tests of single operators; {good} pass here. Each model is
compiled once by `sterna.compile`, at level 3 for `{target}`, and then
called with all of the test's inputs: nothing is folded in from them. Where axes, sizes, counts or
conditions are inputs, the model is open, and a call selects its specialisation (`docs/vm.md`).
Results are held against the expected ones with the tolerances of the test
(`tests/contrib/test_onnx_nodes.py`). This page is written by
`python -m sterna.contrib.onnx_coverage`.
"""

PASSING = """
## Tests that pass

By operator. The number behind a test is the largest error of its results in units of the last place
of the expected number; where that is near 0 by cancellation, units are small and many.
"""

FAILING = """
## Tests that do not pass
"""

# What graphs of tensors with known shapes cannot hold: the reasons, and the operators by which they
# are recognised when types do not tell.
TEXT = "text: graphs compute with numbers"
SEQUENCE = "sequences of tensors"
OPTIONAL = "optional values"
OUT_OF_SCOPE = {
    "control flow": ("Loop", "Scan", "If"),
    SEQUENCE: ("SequenceConstruct", "SplitToSequence", "SequenceMap"),
    OPTIONAL: ("Optional", "OptionalHasElement", "OptionalGetElement"),
    "pictures in files": ("ImageDecoder",),
    "random numbers: another generator gives others": ("Bernoulli", "RandomUniformLike"),
}
FOURIER = {"DFT", "STFT"}
CONVERTER = "no converter"
DYNAMIC = "shapes that depend on data"
INEXACT = "results that differ by more than the tolerance"
TRAINING = "training"
OTHER = "other errors"


@cache
def node_tests() -> dict[str, Any]:
    """ONNX's tests of operators by name."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return {case.name: case for case in load_model_tests(kind="node")}


# ---- running ----


def run_test(case: Any, target: str = TARGET) -> float:
    """The largest error in units of the last place; an exception if the test does not pass."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prepared = SternaBackend.prepare(case.model, target=target)
        worst = 0.0
        for inputs, expected in case.data_sets:
            wanted = [_array(value) for value in expected]
            found = prepared.run([_array(value) for value in inputs])
            assert [isinstance(v, list) for v in found] == [isinstance(v, list) for v in wanted]
            close = tolerance(case, _flat(wanted))
            Runner.assert_similar_outputs(_flat(wanted), _flat(found), case.rtol, close)
            worst = max([worst, *map(error_in_ulp, _flat(found), _flat(wanted))])
        return worst


def tolerance(case: Any, wanted: list[Any]) -> float:
    """How far results may be from the expected ones, whatever their size.

    NumPy computes those of Fourier transforms in float32, by other sums on other processors: what
    cancels out leaves as much as the last place of the largest number holds.
    """
    atol = float(case.atol)
    if not {node.op_type for node in _nodes(case.model.graph)} & FOURIER:
        return atol
    return max([atol, *(float(np.spacing(np.abs(array).max())) for array in wanted)])


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def _flat(values: Iterable[Any]) -> list[Array]:
    """Arrays, those of sequences one by one."""
    return [each for value in values for each in (value if isinstance(value, list) else [value])]


def error_in_ulp(found: Array, wanted: Array) -> float:
    """The largest distance in steps from one number of the type to the next."""
    if not wanted.size or wanted.dtype.kind in "OU":  # text is equal, or the test has failed
        return 0.0
    kind = DataType(str(wanted.dtype))
    with np.errstate(all="ignore"):
        a, b = found.astype(np.float64), wanted.astype(np.float64)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        steps = np.where(same, 0, np.abs(a - b) / _step(b, kind))
    return float(steps.max())


def _step(numbers: Array, kind: DataType) -> Array:
    """The distance from each number to the next one of a type."""
    if not kind.is_float:
        return np.ones_like(numbers)
    info = float_info(kind)
    exponent = np.floor(np.log2(np.abs(numbers)))
    return np.asarray(2.0 ** (np.maximum(exponent, info.minexp) - info.nmant))


# ---- reasons ----


def reason_for(case: Any, error: Exception) -> str:
    """Why a test does not pass, in a few words."""
    kinds = set(_kinds(case.model.graph))
    nodes = {node.op_type for node in _nodes(case.model.graph)}
    if "string" in kinds:
        return TEXT
    if "sequence" in kinds:
        return SEQUENCE
    if "optional" in kinds:
        return OPTIONAL
    for reason, operators in OUT_OF_SCOPE.items():
        if any(name in nodes or f" {name} (opset" in str(error) for name in operators):
            return reason
    if "training" in str(error):
        return TRAINING
    if isinstance(error, OpNotImplemented):
        return CONVERTER
    if isinstance(error, AssertionError):
        return INEXACT
    return DYNAMIC if "not known before the run" in str(error) else OTHER


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from _nodes(attribute.g)


def _kinds(graph: GraphProto) -> Iterator[str]:
    """What the inputs and outputs are, if they are no tensors of numbers."""
    for entry in (*graph.input, *graph.output):
        yield from _kinds_of(entry.type)


def _kinds_of(kind: TypeProto) -> Iterator[str]:
    if kind.HasField("sequence_type"):
        yield "sequence"
        yield from _kinds_of(kind.sequence_type.elem_type)
    if kind.HasField("optional_type"):
        yield "optional"
        yield from _kinds_of(kind.optional_type.elem_type)
    if kind.tensor_type.elem_type == TensorProto.STRING:
        yield "string"


# ---- the page ----


def describe(names: Iterable[str] | None = None) -> str:
    """The page about these tests, or about all."""
    passing: dict[str, list[str]] = {}
    failing: dict[str, list[str]] = {}
    tests = node_tests()
    for name in sorted(tests if names is None else names):
        short = name.removeprefix("test_")
        try:
            error = run_test(tests[name])
        except Exception as problem:
            failing.setdefault(reason_for(tests[name], problem), []).append(short)
        else:
            passing.setdefault(operator_of(name), []).append(f"{short} {error:.2g}")
    good = sum(map(len, passing.values()))
    total = good + sum(map(len, failing.values()))
    lines = [HEAD.format(target=TARGET, version=onnx.__version__, all=total, good=good), FAILING]
    lines += [_item(f"{why}** ({len(found)}):", found) for why, found in sorted(failing.items())]
    lines += [PASSING]
    lines += [_item(f"{kind}**:", found) for kind, found in sorted(passing.items())]
    return "\n".join([*lines, ""])


def operator_of(name: str) -> str:
    """The operator that a test is about; some are about how ONNX defines it by others."""
    tests = node_tests()
    plain = name.split("_expanded")[0]
    node: NodeProto = tests.get(plain, tests[name]).model.graph.node[0]
    return f"{node.domain}.{node.op_type}" if node.domain else node.op_type


def _item(title: str, entries: list[str]) -> str:
    text = f"- **{title} {', '.join(entry.replace(' ', '~') for entry in entries)}"
    lines = textwrap.fill(text, 100, subsequent_indent="  ", break_on_hyphens=False)
    return lines.replace("~", " ")


def listed(page: str) -> tuple[list[str], dict[str, str]]:
    """The tests that a page says pass, and those that it says do not with the reasons."""
    failing, passing = page.split(PASSING)
    good = [entry.split()[0] for _, entries in _items(passing) for entry in entries]
    bad = {entry: why for why, entries in _items(failing) for entry in entries}
    return [f"test_{name}" for name in good], {f"test_{name}": why for name, why in bad.items()}


def _items(text: str) -> Iterator[tuple[str, list[str]]]:
    for item in text.split("\n- **")[1:]:
        title, rest = " ".join(item.split()).split("**", 1)
        yield title, rest.split(": ", 1)[1].split(", ")


if __name__ == "__main__":
    sys.stdout.write(describe())
