"""Loops and sequences of ONNX."""

import itertools
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sterna
from sterna.frontend import from_onnx
from sterna.frontend.onnx.model import inner_graphs
from sterna.frontend.open_shapes import UndecidedError
from sterna.ir.module import OUTPUT_NAMES
from sterna.support.errors import OpNotImplemented
from tests.frontend.support import compare, model_of, run_imported, run_reference

RNG = np.random.default_rng(23)
FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def graph(nodes: Any, inputs: Any, outputs: Any, weights: Any = None) -> Any:
    """A graph of a node; inputs and outputs are names with types and shapes."""
    first, last = ([helper.make_tensor_value_info(*one) for one in side]
                   for side in (inputs, outputs))
    held = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    return helper.make_graph(nodes, "body", first, last, held)


def check(nodes: Any, feeds: Any, outputs: Any, weights: Any = None, opset: int = 17) -> None:
    model = model_of(nodes, feeds, weights or {}, outputs, opset)
    want = run_reference(model, feeds)
    compare(run_imported(model, feeds), want)
    compare(run_imported(model, feeds, freeze_params=False), want)


def step() -> Any:
    """total + x * w, and twice that."""
    nodes = [
        helper.make_node("Mul", ["x", "w"], ["scaled"]),
        helper.make_node("Add", ["total", "scaled"], ["next"]),
        helper.make_node("Add", ["next", "next"], ["twice"]),
    ]
    shaped = [("total", FLOAT, (3,)), ("x", FLOAT, (3,))]
    ends = [("next", FLOAT, (3,)), ("twice", FLOAT, (3,))]
    return graph(nodes, shaped, ends, {"w": np.array([1, 2, 3], "float32")})


@pytest.mark.parametrize("back", [0, 1])
def test_scan(back: int) -> None:
    how = {"body": step(), "num_scan_inputs": 1, "scan_output_axes": [1]}
    node = helper.make_node("Scan", ["first", "data"], ["last", "all"], scan_input_axes=[1],
                            scan_input_directions=[back], scan_output_directions=[back], **how)
    check([node], {"first": floats(3), "data": floats(3, 4)}, ["last", "all"])


def test_scan_of_batches() -> None:
    node = helper.make_node("Scan", ["", "first", "data"], ["last", "all"], body=step(),
                            num_scan_inputs=1)
    check([node], {"first": floats(2, 3), "data": floats(2, 4, 3)}, ["last", "all"], opset=8)


def body_of_loop(condition: str) -> Any:
    """Adds the number of the iteration, while a condition holds that one operator makes of it."""
    nodes = [
        helper.make_node("Cast", ["i"], ["number"], to=FLOAT),
        helper.make_node("Add", ["total", "number"], ["next"]),
        helper.make_node("Mul", ["next", "outer"], ["seen"]),
        helper.make_node(condition, ["i", "limit"], ["more"]),
    ]
    inputs = [("i", INT, ()), ("go", BOOL, ()), ("total", FLOAT, (2,))]
    outputs = [("more", BOOL, ()), ("next", FLOAT, (2,)), ("seen", FLOAT, (2,))]
    return graph(nodes, inputs, outputs, {"limit": np.int64(2)})


@pytest.mark.parametrize("given", [["most", ""], ["", "go"], ["most", "go"]])
def test_loop(given: list[str]) -> None:
    node = helper.make_node("Loop", [*given, "first"], ["last", "all"], body=body_of_loop("Less"))
    weights = {"most": np.int64(5), "go": np.array(True)}
    feeds = {"first": floats(2), "outer": floats(2)}
    check([node], feeds, ["last", "all"], {name: weights[name] for name in given if name})


def test_loops_without_a_near_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.frontend.onnx.convert_loops.MOST_ITERATIONS", 2)

    def fail(kind: type[Exception], message: str, condition: str, *given: str) -> None:
        node = helper.make_node("Loop", [*given, "first"], ["last"], "round",
                                body=body_of_loop(condition))
        feeds = {"first": floats(2), "outer": floats(2), "go": np.array(True)}
        with pytest.raises(kind, match=message):
            from_onnx(model_of([node], feeds, {}, ["last"], 17))

    fail(ValueError, r"node 'round'.*more than 2 iterations", "Less", "", "")
    fail(ValueError, r"node 'round' .*whether it goes on depends on the model's inputs", "Less", "",
         "go")


def test_a_loop_of_many_rounds_stays_a_loop() -> None:
    node = helper.make_node("Loop", ["most", "", "first"], ["last"], body=graph(
        [helper.make_node("Add", ["total", "one"], ["next"]),
         helper.make_node("Identity", ["go"], ["more"])],
        [("i", INT, ()), ("go", BOOL, ()), ("total", FLOAT, (2,))],
        [("more", BOOL, ()), ("next", FLOAT, (2,))], {"one": np.float32(1)},
    ))
    first = floats(2)
    model = model_of([node], {"first": first}, {"most": np.array(3000)}, ["last"], 17)
    with pytest.raises(UndecidedError, match=r"more than 1000 iterations.*sterna.compile"):
        from_onnx(model)
    np.testing.assert_allclose(sterna.compile(model)(first), first + 3000, rtol=1e-5)


def test_an_operator_without_converter_in_a_loop() -> None:
    inner = graph([helper.make_node("Unheard", ["total"], ["next"], domain="far.away")],
                  [("total", FLOAT, (3,)), ("x", FLOAT, (3,))], [("next", FLOAT, (3,))])
    node = helper.make_node("Scan", ["first", "data"], ["last"], body=inner, num_scan_inputs=1)
    feeds = {"first": floats(3), "data": floats(4, 3)}
    with pytest.raises(OpNotImplemented, match=r"far.away.Unheard"):
        from_onnx(model_of([node], feeds, {}, ["last"], 17))


def test_sequences() -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["data", "sizes"], ["parts"], axis=1),
        helper.make_node("SequenceAt", ["parts", "one"], ["second"]),
        helper.make_node("SequenceInsert", ["parts", "second", "zero"], ["more"]),
        helper.make_node("SequenceErase", ["more", "last"], ["fewer"]),
        helper.make_node("SequenceLength", ["fewer"], ["count"]),
        helper.make_node("ConcatFromSequence", ["fewer"], ["joined"], axis=1),
    ]
    weights = {"sizes": np.array([1, 3, 2]), "one": np.int64(1), "zero": np.int64(0),
               "last": np.int64(-1)}
    check(nodes, {"data": floats(2, 6)}, ["second", "count", "joined"], weights)


@pytest.mark.parametrize("keep", [0, 1])
def test_sequences_of_slices(keep: int) -> None:
    nodes = [
        helper.make_node("SplitToSequence", ["data"], ["parts"], axis=0, keepdims=keep),
        helper.make_node("ConcatFromSequence", ["parts"], ["joined"], axis=-1, new_axis=1),
        helper.make_node("SplitToSequence", ["data", "size"], ["pairs"], axis=1),
        helper.make_node("SequenceConstruct", ["data", "joined"], ["both"]),
        helper.make_node("SequenceAt", ["both", "place"], ["first"]),
        helper.make_node("SequenceLength", ["pairs"], ["count"]),
    ]
    weights = {"size": np.int64(2), "place": np.int64(-2)}
    check(nodes, {"data": floats(3, 5)}, ["joined", "count", "first"], weights)


def test_a_sequence_as_a_result() -> None:
    node = helper.make_node("SplitToSequence", ["data"], ["parts"], axis=0)
    data = floats(2, 3)
    model = model_of([node], {"data": data}, {}, ["parts"], 17)
    mod, _ = from_onnx(model)
    assert mod.attrs[OUTPUT_NAMES] == ("parts.0", "parts.1")
    compare(run_imported(model, {"data": data}), [data[:1], data[1:]])


def test_a_place_that_a_sequence_lacks() -> None:
    nodes = [helper.make_node("SequenceConstruct", ["x"], ["s"]),
             helper.make_node("SequenceAt", ["s", "place"], ["y"], "pick")]
    with pytest.raises(ValueError, match=r"node 'pick'.*position 1 is none of a sequence of 1"):
        from_onnx(model_of(nodes, {"x": floats(2)}, {"place": np.array(1)}, ["y"], 17))


def test_choices_in_choices_are_walked_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """However deep they lie: the work grows with the file, not with its depth as well."""
    count = 0

    def counted(node: onnx.NodeProto) -> list[onnx.GraphProto]:
        nonlocal count
        count += 1
        return inner_graphs(node)

    monkeypatch.setattr("sterna.frontend.onnx.model.inner_graphs", counted)
    names = (f"r{i}" for i in itertools.count())

    def branch(depth: int) -> onnx.GraphProto:
        name = next(names)
        node = helper.make_node("Neg", ["x"], [name]) if depth == 0 else helper.make_node(
            "If", ["c"], [name], then_branch=branch(depth - 1), else_branch=branch(depth - 1)
        )
        result = helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1])
        return helper.make_graph([node], name, [], [result])

    whole = branch(8)
    whole.input.extend([
        helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1]),
        helper.make_tensor_value_info("c", onnx.TensorProto.BOOL, []),
    ])
    from_onnx(helper.make_model(whole, opset_imports=[helper.make_opsetid("", 18)]))
    assert count < 10 * 511
