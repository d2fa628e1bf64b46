"""Models whose extents are values that a run computes: one program, beside ONNX Runtime."""

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

import sterna
from sterna.model.open_model import OpenModel
from sterna.relay.arrays import Array
from tests.frontend.support import compare, run_reference

DRAWN = np.random.default_rng(5)
Inputs = dict[str, tuple[Any, ...]]


def n(kind: str, inputs: str, outputs: str = "y", **attrs: Any) -> NodeProto:
    return helper.make_node(kind, inputs.split(), outputs.split(), **attrs)


def x(*shape: int) -> Array:
    return DRAWN.standard_normal(shape).astype("float32")


def i(*numbers: int) -> Array:
    return np.array(numbers)


def s(number: int) -> Array:
    return np.array(number)


def f(number: float) -> Array:
    return np.array(number, "float32")


def model_of(
    nodes: list[NodeProto], inputs: Inputs, feeds: dict[str, Array],
    weights: dict[str, Array], outputs: tuple[str, ...],
) -> ModelProto:
    kinds = {"f": TensorProto.FLOAT, "i": TensorProto.INT64}
    entries = [
        helper.make_tensor_value_info(name, kinds[feeds[name].dtype.kind], shape)
        for name, shape in inputs.items()
    ]
    graph = helper.make_graph(
        nodes, "computed", entries, [ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(v), name) for name, v in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


HALF = numpy_helper.from_array(np.array([0.5], "float32"))
SCALARS: Inputs = {"a": (), "b": (), "c": ()}
CASES: dict[str, tuple[list[NodeProto], Inputs, list[dict[str, Array]], dict[str, Array]]] = {
    "range": ([n("Range", "a b c")], SCALARS, [
        {"a": s(0), "b": s(5), "c": s(1)}, {"a": s(7), "b": s(-2), "c": s(-3)},
        {"a": s(3), "b": s(3), "c": s(1)}], {}),
    "range of floats": ([n("Range", "a b c")], SCALARS, [
        {"a": f(0.5), "b": f(3), "c": f(0.25)}, {"a": f(7), "b": f(-2.5), "c": f(-0.5)}], {}),
    "mask of lengths": (
        [n("Range", "zero n one", "r"), n("Unsqueeze", "r axis", "q"), n("Less", "q L", "m"),
         n("Cast", "m", to=1)], {"n": (), "L": ("N", 1)},
        [{"n": s(5), "L": i(2, 4)[:, None]}, {"n": s(1), "L": i(2, 4, 0)[:, None]}],
        {"zero": s(0), "one": s(1), "axis": i(0)}),
    "constant": ([n("ConstantOfShape", "s", "t", value=HALF), n("Mul", "t t")], {"s": (2,)},
                 [{"s": i(2, 3)}, {"s": i(0, 3)}], {}),
    "reshape": ([n("Relu", "x", "r"), n("Reshape", "r s", "t"), n("Exp", "t")],
                {"x": ("N", 4), "s": (3,)},
                [{"x": x(6, 4), "s": i(2, 3, -1)}, {"x": x(6, 4), "s": i(0, 2, 2)}], {}),
    "expand": ([n("Expand", "x s", "t"), n("Exp", "t")], {"x": ("N", 1), "s": (3,)},
               [{"x": x(6, 1), "s": i(2, 6, 3)}, {"x": x(6, 1), "s": i(1, 1, 5)}], {}),
    "tile": ([n("Tile", "x s", "t"), n("Exp", "t")], {"x": ("N", 2), "s": (2,)},
             [{"x": x(3, 2), "s": i(2, 3)}, {"x": x(3, 2), "s": i(0, 1)}], {}),
    "slice": ([n("Slice", "x b e a t", "z"), n("Exp", "z")],
              {"x": ("N", "M"), "b": (2,), "e": (2,), "t": (2,)},
              [{"x": x(7, 5), "b": i(1, -2), "e": i(100, 5), "t": i(2, 1)},
               {"x": x(7, 5), "b": i(-1, 4), "e": i(-100, 0), "t": i(-3, -2)},
               {"x": x(7, 5), "b": i(5, 0), "e": i(2, 9), "t": i(1, 1)}], {"a": i(0, 1)}),
    "found": ([n("NonZero", "x", "z"), n("Shape", "z", "s", start=1, end=2),
               n("ConstantOfShape", "s", "t", value=HALF), n("CumSum", "t a")], {"x": ("N",)},
              [{"x": f(1) * i(0, 1, 2, 0)}, {"x": f(1) * i(0, 0)}], {"a": s(0)}),
    "pad": ([n("Pad", "x p", "t", mode="reflect"), n("Exp", "t")], {"x": ("N", 5), "p": (4,)},
            [{"x": x(4, 5), "p": i(1, 2, 0, 3)}, {"x": x(3, 5), "p": i(2, -2, 0, -1)}], {}),
    "top": ([n("TopK", "x k", "y z")], {"x": ("N", 6), "k": (1,)},
            [{"x": x(3, 6), "k": i(2)}, {"x": x(1, 6), "k": i(6)}, {"x": x(2, 6), "k": i(0)}], {}),
}


@pytest.mark.parametrize("name", CASES)
def test_one_program_serves_all_values(name: str) -> None:
    nodes, inputs, feeds, weights = CASES[name]
    for each in feeds:
        each.update({k: v.astype("float32") for k, v in each.items() if v.dtype == "float64"})
    outputs = tuple(nodes[-1].output)
    model = model_of(nodes, inputs, feeds[0], weights, outputs)
    compiled = sterna.compile(model)
    assert isinstance(compiled, OpenModel)
    assert compiled.is_symbolic, compiled.why_not_symbolic
    for each in feeds:
        made = compiled(**each)
        results = made if isinstance(made, list | tuple) else [made]
        compare([np.asarray(one) for one in results], run_reference(model, each), 1e-5)
    assert compiled.compiled == 1


def test_extents_that_cannot_be_are_refused_and_the_model_goes_on() -> None:
    nodes, inputs, feeds, weights = CASES["reshape"]
    compiled = sterna.compile(model_of(nodes, inputs, feeds[0], weights, ("y",)))
    data = x(3, 4)
    for shape in (i(5, 2, 2), i(5, 2, -1), i(-3, 2, 2)):
        with pytest.raises(ValueError, match=r"extent|elements"):
            compiled(x=data, s=shape)
    wanted = np.exp(np.maximum(data, 0)).reshape(1, 2, 6)
    np.testing.assert_allclose(compiled(x=data, s=i(1, 2, -1)), wanted, rtol=1e-5)


def test_reshape_into_the_extents_of_another_is_checked() -> None:
    nodes = [n("Shape", "z", "s"), n("Reshape", "x s", "t"), n("Exp", "t")]
    inputs: Inputs = {"x": ("N", 4), "z": ("M", 2)}
    model = model_of(nodes, inputs, {"x": x(1), "z": x(1)}, {}, ("y",))
    compiled = sterna.compile(model)
    feeds = {"x": x(3, 4), "z": x(6, 2)}
    compare([compiled(**feeds)], run_reference(model, feeds), 1e-5)
    with pytest.raises(ValueError, match="elements of a tensor in another shape"):
        compiled(x=x(3, 4), z=x(7, 2))
