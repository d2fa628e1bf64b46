"""Tensors of text as values of a run, held against ONNX's reference."""

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import sterna

FLOAT, INT, BOOL, TEXT = (
    TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING)
A = np.array(["a", "b", "é"], dtype=object)
B = np.array(["x", "", "é"], dtype=object)


def info(name: str, shape: Any, kind: int = TEXT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes: Any, inputs: Any, outputs: Any, weights: Any = ()) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "text", inputs, outputs, list(weights))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])


def texts(name: str, *values: bytes) -> onnx.TensorProto:
    made = onnx.TensorProto(name=name, data_type=TEXT, dims=[len(values)])
    made.string_data.extend(values)
    return made


def numbers(name: str, *values: int) -> onnx.TensorProto:
    return helper.make_tensor(name, INT, [len(values)], values)


TWO = [info("a", ["n"]), info("b", ["n"])]
# Operators in a row, from a and b to y.
MOVED: dict[str, tuple[Any, ...]] = {
    "Reshape": (["a", "to"], {}, [numbers("to", 3, 1)]),
    "Gather": (["a", "at"], {}, [numbers("at", 2, 0, 2)]),
    "Concat": (["a", "b"], {"axis": 0}, []),
    "Slice": (["a", "from", "to"], {}, [numbers("from", 1), numbers("to", 3)]),
    "Slice of a step": (["a", "from", "to", "", "by"], {}, [
        numbers("from", 0), numbers("to", 3), numbers("by", 2)]),
    "Expand": (["a", "to"], {}, [numbers("to", 2, 3)]),
    "Tile": (["a", "by"], {}, [numbers("by", 2)]),
    "Unsqueeze": (["a", "at"], {}, [numbers("at", 0)]),
    "Unique": (["a"], {}, []),
    "StringConcat": (["a", "mark"], {}, [texts("mark", b"!")]),
}


@pytest.mark.parametrize("name", MOVED)
def test_text_is_moved(name: str) -> None:
    reads, attributes, weights = MOVED[name]
    node = helper.make_node(name.partition(" ")[0], reads, ["y"], **attributes)
    model = model_of([node], TWO, [info("y", None)], weights)
    compiled: Any = sterna.compile(model)
    for a, b in ((A, B), (B, A)):
        reference: Any = ReferenceEvaluator(model)
        wanted = reference.run(None, {"a": a, "b": b})[0]
        found = compiled(a, b)
        assert found.shape == wanted.shape and found.tolist() == wanted.tolist()


def test_text_is_compared_and_chosen() -> None:
    model = model_of(
        [helper.make_node("Equal", ["a", "b"], ["same"]),
         helper.make_node("Constant", [], ["other"], value_strings=["?"]),
         helper.make_node("Where", ["same", "a", "other"], ["y"])], TWO, [info("y", ["n"])])
    assert sterna.compile(model)(A, B).tolist() == ["?", "?", "é"]


def test_text_becomes_numbers_and_numbers_become_text() -> None:
    model = model_of(
        [helper.make_node("Cast", ["a"], ["number"], to=FLOAT),
         helper.make_node("Mul", ["number", "number"], ["square"]),
         helper.make_node("Cast", ["square"], ["y"], to=TEXT)], [info("a", [3])],
        [info("square", [3], FLOAT), info("y", [3])])
    square, y = sterna.compile(model)(np.array(["1.5", "-2", "0"], dtype=object))
    np.testing.assert_array_equal(square, np.array([2.25, 4, 0], "float32"))
    assert [float(each) for each in y] == [2.25, 4, 0]


def test_text_in_branches_and_loops() -> None:
    def graph(node: Any, inputs: Any, outputs: Any) -> Any:
        more = [helper.make_node("Identity", ["c"], ["on"])] if inputs else []
        return helper.make_graph([node, *more], "inner", inputs, outputs)

    joined = helper.make_node("StringConcat", ["a", "b"], ["t"])
    branches = {
        "then_branch": graph(joined, [], [info("t", ["n"])]),
        "else_branch": graph(helper.make_node("Identity", ["b"], ["e"]), [], [info("e", ["n"])]),
    }
    body = graph(
        helper.make_node("StringConcat", ["s", "b"], ["next"]),
        [info("i", [], INT), info("c", [], BOOL), info("s", ["n"])],
        [info("on", [], BOOL), info("next", ["n"])])
    model = model_of(
        [helper.make_node("If", ["flag"], ["chosen"], **branches),
         helper.make_node("Loop", ["times", "", "chosen"], ["y"], body=body)],
        [info("flag", [], BOOL), info("times", [], INT), *TWO], [info("y", ["n"])])
    compiled: Any = sterna.compile(model)
    for flag in (True, False):
        for times in (0, 3):
            first = A + B if flag else B
            found = compiled(np.array(flag), np.array(times), A, B)
            assert found.tolist() == (first + B * times).tolist()


def test_what_does_not_take_text_says_so() -> None:
    model = model_of([helper.make_node("Neg", ["a"], ["y"])], [info("a", ["n"])],
                     [info("y", ["n"])])
    with pytest.raises((ValueError, NotImplementedError), match=r"text|string"):
        sterna.compile(model)(A)
    lying = texts("mark", b"\xff")
    model = model_of([helper.make_node("StringConcat", ["a", "mark"], ["y"])],
                     [info("a", ["n"])], [info("y", ["n"])], [lying])
    with pytest.raises(ValueError, match="weight 'mark' holds what is no text in UTF-8"):
        sterna.compile(model)(A)
    lying.string_data[:] = [b"a", b"b"]
    model.graph.initializer[0].CopyFrom(lying)
    with pytest.raises(ValueError, match=r"shape \[1\], of 1 texts, where there are 2"):
        sterna.compile(model)(A)
