"""Indices and divisors that data decides: what is outside is an error, wherever the model runs."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import ModelProto, helper

import sterna
from sterna import relay
from sterna.frontend import from_onnx
from sterna.relay.arrays import Array, from_numpy, to_numpy
from sterna.relay.backend import Executor
from sterna.runtime.executor import AotModule
from tests.frontend.support import check, model_of

TARGET = "llvm -mcpu=native -opt-level=0"
DATA = np.arange(12, dtype="float32").reshape(3, 4)
NEW = -1 - np.arange(8, dtype="float32").reshape(2, 4)


def _scattered(data: Array, at: Array, new: Array) -> Array:
    made = data.copy()
    made[tuple(np.moveaxis(at, -1, 0))] = new
    return made


def _put_along(data: Array, at: Array, new: Array) -> Array:
    made = data.copy()
    np.put_along_axis(made[: len(at)], np.where(at < 0, at + data.shape[1], at), new, 1)
    return made


# Of each operator: its attributes, the shape of the indices, the extents that they point into, what
# else it takes, and what it gives.
CASES: dict[str, tuple[dict[str, Any], tuple[int, ...], Any, list[Array], Callable[..., Array]]] = {
    "Gather": ({"axis": 1}, (2, 3), 4, [], lambda data, at: data[:, at]),
    "GatherElements": (
        {"axis": 0}, (2, 4), 3, [],
        lambda data, at: np.take_along_axis(data, np.where(at < 0, at + 3, at), 0)),
    "GatherND": ({}, (5, 2), (3, 4), [], lambda data, at: data[tuple(at.T)]),
    "ScatterElements": ({"axis": 1}, (2, 1), 4, [NEW[:, :1]], _put_along),
    "ScatterND": ({}, (1, 2), (3, 4), [NEW[0, :1]], _scattered),
}


def model(kind: str, is_open: bool = False) -> ModelProto:
    """A model of one node, whose extents may be open."""
    attrs, shape, _, more, _ = CASES[kind]
    feeds = {"data": DATA, "at": np.zeros(shape, "int64")}
    feeds.update({f"new{n}": each for n, each in enumerate(more)})
    node = helper.make_node(kind, list(feeds), ["y"], name="it", **attrs)
    made = model_of([node], feeds, {}, ["y"], 17)
    return opened(made, 1) if is_open else made


def opened(made: ModelProto, inputs: int) -> ModelProto:
    """The model, where the dimensions of its first inputs are open."""
    for name in made.graph.input[:inputs]:
        for n, dim in enumerate(name.type.tensor_type.shape.dim):
            dim.dim_param = f"{name.name}{n}"
    del made.graph.value_info[:]
    made.graph.output[0].CopyFrom(onnx.ValueInfoProto(name="y"))
    return made


@cache
def compiled(kind: str, is_open: bool) -> Any:
    return sterna.compile(model(kind, is_open), target=TARGET)


@cache
def by_aot(kind: str) -> AotModule:
    mod, params = from_onnx(model(kind))
    lib = relay.build(mod, target=TARGET, params=params, executor=Executor("aot"))
    return AotModule(lib["default"](sterna.cpu(0)))


def run_aot(kind: str, *arrays: Array) -> Array:
    module = by_aot(kind)
    for place, array in enumerate(arrays):
        module.set_input(module.get_input_name(place), from_numpy(array))
    module.run()
    return to_numpy(module.get_output(0))


FAR = [2**31, -(2**31) - 1, 2**62, -(2**63), 2**63 - 1]


@pytest.mark.parametrize("way", ["graph", "vm", "aot"])
@pytest.mark.parametrize("kind", CASES)
@settings(max_examples=25, deadline=None)
@given(draw=st.data())
def test_indices_are_on_their_axes(kind: str, way: str, draw: st.DataObject) -> None:
    _, shape, extents, more, wanted = CASES[kind]
    reach = st.integers(-6, 6) if draw.draw(st.booleans()) else st.integers(-3, 2)
    numbers = st.lists(
        reach | st.sampled_from(FAR), min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))
    at = np.array(draw.draw(numbers), "int64").reshape(shape)
    inside = ((at >= -np.array(extents)) & (at < extents)).all()

    def run() -> Array:
        if way == "aot":
            return run_aot(kind, DATA, at, *more)
        return np.asarray(compiled(kind, way == "vm")(DATA, at, *more))

    if inside:
        np.testing.assert_array_equal(run(), wanted(DATA, at, *more))
        return
    text = rf"node 'it' \({kind}\): index -?\d+ is not one of the [34] elements of axis [01]"
    with pytest.raises(IndexError, match=text):
        run()


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(("kind", "attrs"), [("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})])
@pytest.mark.parametrize("dtype", ["int64", "int8", "uint8"])
def test_integers_have_divisors(
    kind: str, attrs: dict[str, Any], dtype: str, is_open: bool
) -> None:
    least = np.iinfo(dtype).min
    x = np.array([least, 7, 100], dtype)
    feeds = {"x": x, "by": np.ones_like(x)}
    made = model_of([helper.make_node(kind, ["x", "by"], ["y"], name="it", **attrs)], feeds, {},
                    ["y"], 17)
    run = sterna.compile(opened(made, 2) if is_open else made, target=TARGET)
    minus = np.iinfo(dtype).max if least == 0 else -1
    want = [0, 1, 1] if kind == "Mod" else [least if least else 0, 3, 33]
    by = np.array([minus, 2, 3], dtype)
    np.testing.assert_array_equal(np.asarray(run(x, by)), np.array(want, dtype))
    with pytest.raises(ZeroDivisionError, match=rf"node 'it' \({kind}\): integers are divided"):
        run(x, np.array([1, 0, 3], dtype))


@pytest.mark.parametrize("kind", ["Gather", "GatherElements", "GatherND"])
def test_nothing_is_picked_from_an_axis_without_elements(kind: str) -> None:
    """Where indices are known, none of them tells before the run that the axis has no elements."""
    shape = CASES[kind][1]
    node = helper.make_node(kind, ["data", "at"], ["y"], name="it", **CASES[kind][0])
    made = model_of([node], {"data": DATA}, {"at": np.zeros(shape, "int64")}, ["y"], 17)
    run = sterna.compile(opened(made, 1), target=TARGET)
    want = CASES[kind][-1](DATA, np.zeros(shape, "int64"))
    np.testing.assert_array_equal(np.asarray(run(DATA)), want)
    with pytest.raises(ValueError, match=r"indices that pick from an axis.* must not be 0"):
        run(np.zeros((0, 4) if kind == "GatherElements" else (3, 0), "float32"))


def test_a_name_may_have_braces() -> None:
    made = model("Gather")
    made.graph.node[0].name = "{}a%s"
    with pytest.raises(IndexError, match=r"node '\(\)a%s' \(Gather\): index 9 is not"):
        sterna.compile(made, target=TARGET)(DATA, np.full((2, 3), 9))


def refused(model: ModelProto, text: str, *arrays: Array) -> None:
    with pytest.raises(IndexError, match=text):
        sterna.compile(model, target=TARGET)(*arrays)


def test_other_operators_that_are_given_indices() -> None:
    cache, new = np.zeros((2, 4, 3), "float32"), np.ones((2, 2, 3), "float32")
    feeds: dict[str, Array] = {"x": cache, "new": new, "at": np.array([0, 3])}
    node = helper.make_node("TensorScatter", list(feeds), ["y"], name="it", axis=1)
    text = r"node 'it' \(TensorScatter\): index 4 is not one of the 4 elements of axis 1"
    refused(model_of([node], feeds, {}, ["y"], 24), text, *feeds.values())
    feeds = {"x": np.ones((1, 1, 4, 4), "float32"), "boxes": np.zeros((2, 4), "float32"),
             "at": np.array([0, -1])}
    node = helper.make_node("RoiAlign", list(feeds), ["y"], name="it")
    text = r"node 'it' \(RoiAlign\): index -1 is not one of the 1 elements of axis 0"
    refused(model_of([node], feeds, {}, ["y"], 17), text, *feeds.values())
    feeds = {"x": np.zeros((4, 16), "uint8"), "at": np.array([3, -5])}
    node = helper.make_node(
        "GatherBlockQuantized", [*feeds, "scale"], ["y"], name="it", domain="com.microsoft",
        block_size=16, bits=8, quantize_axis=1,
    )
    scale = np.arange(4, dtype="float32")[:, None]
    made = model_of([node], feeds, {"scale": scale}, ["y"], 17)
    text = r"node 'it' \(GatherBlockQuantized\): index -5 is not one of the 4 elements of axis 0"
    refused(made, text, *feeds.values())
    found = sterna.compile(made, target=TARGET)(feeds["x"], np.array([3, -1]))
    np.testing.assert_array_equal(np.asarray(found)[:, 0], [-384, -384])


@pytest.mark.parametrize("k", [-(2**40), -3, 4, 2**40])
def test_diagonals_outside_of_a_matrix(k: int) -> None:
    check("EyeLike", DATA, k=k)


@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize("kind", ["ReverseSequence", "RNN"])
def test_sequences_fit_their_axis(kind: str, is_open: bool) -> None:
    x = np.arange(1, 7, dtype="float32").reshape(3, 2, 1)
    weights = {"w": np.full((1, 2, 1), 0.5, "float32"), "r": np.zeros((1, 2, 2), "float32")}
    if kind == "RNN":
        given = {**weights, "b": np.zeros((1, 4), "float32")}
        node = helper.make_node("RNN", ["x", *given, "at"], ["y"], name="it", hidden_size=2)
    else:
        given, node = {}, helper.make_node("ReverseSequence", ["x", "at"], ["y"], name="it")
    feeds = {"x": x, "at": np.array([3, 0], "int32" if given else "int64")}
    made = model_of([node], feeds, given, ["y"], 17)
    run = sterna.compile(opened(made, 1) if is_open else made, target=TARGET)
    first = np.asarray(run(**feeds)).reshape(3, 2, -1)[:, :, 0]
    want = np.tanh(x[:, 0, 0] / 2) if given else x[::-1, 0, 0]
    np.testing.assert_allclose(first[:, 0], want, rtol=1e-6)
    text = rf"node 'it' \({kind}\): a sequence of (4|-1) is shorter than 0 or longer than axis 0"
    for far in (4, -1):
        with pytest.raises(ValueError, match=text):
            run(x, feeds["at"] * 0 + far)
    made = model_of([node], {"x": x}, {**given, "at": feeds["at"] + 1}, ["y"], 17)
    with pytest.raises(ValueError, match="a sequence is shorter than 0 or longer than the 3 elem"):
        sterna.compile(made, target=TARGET)


def test_places_of_unpooled_maxima() -> None:
    feeds = {"x": np.ones((1, 1, 1, 2), "float32"), "at": np.array([[[[0, 7]]]])}
    node = helper.make_node(
        "MaxUnpool", ["x", "at"], ["y"], name="it", kernel_shape=[2, 2], strides=[2, 2])
    made = model_of([node], feeds, {}, ["y"], 17)
    found = np.asarray(sterna.compile(made, target=TARGET)(**feeds))
    np.testing.assert_array_equal(found.ravel(), [1, 0, 0, 0, 0, 0, 0, 1])
    text = r"node 'it' \(MaxUnpool\): index (8|-1) is not one of the 8 elements of its result"
    for far in (8, -1):
        refused(made, text, feeds["x"], feeds["at"] * 0 + far)
    known = model_of([node], {"x": feeds["x"]}, {"at": feeds["at"] + 1}, ["y"], 17)
    with pytest.raises(ValueError, match="an index is not one of the 8 elements of its result"):
        sterna.compile(known, target=TARGET)
