"""Files that are wrong: every one is refused by a ValueError that names what is wrong in it."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from sterna import relay
from sterna.frontend import limits
from sterna.relay.frontend import from_onnx
from sterna.support.errors import OpNotImplemented
from tests.frontend.support import bare_model, compare, run_imported

X = np.arange(6, dtype="float32").reshape(2, 3)
W = np.ones((3, 4), "float32")
IMAGE = np.zeros((1, 2, 5, 5), "float32")


def ints(values: Any) -> Any:
    """An array of int64."""
    return np.array(values, "int64")


def node(kind: str, *names: str, **attrs: Any) -> NodeProto:
    """A node with one result y, called 'it'."""
    return helper.make_node(kind, list(names), ["y"], name="it", **attrs)


def one(kind: str, *arrays: Any, opset: int = 17, **attrs: Any) -> ModelProto:
    """A model of one node; its first operand is the input x, the others are weights."""
    names = ["x", *(f"w{i}" for i in range(len(arrays) - 1))]
    weights = {name: np.asarray(value) for name, value in zip(names, arrays, strict=True)}
    feeds = {"x": weights.pop("x")}
    return bare_model([node(kind, *names, **attrs)], feeds, weights, ["y"], opset)


def product() -> ModelProto:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], name="first"),
        helper.make_node("Relu", ["p"], ["y"], name="last"),
    ]
    return bare_model(nodes, {"x": X}, {"w": W}, ["y"], 17)


def function(name: str, *body: NodeProto, attributes: Any = (), defaults: Any = ()) -> Any:
    return helper.make_function(
        "own", name, ["a"], ["b"], list(body),
        [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)],
        attributes=list(attributes), attribute_protos=list(defaults),
    )


def reference(attribute: str, to: str, kind: Any) -> AttributeProto:
    return AttributeProto(name=attribute, ref_attr_name=to, type=kind)


def calling(*functions: Any, **attrs: Any) -> ModelProto:
    """A model that calls the first function."""
    graph = helper.make_graph(
        [helper.make_node(functions[0].name, ["x"], ["y"], name="it", domain="own", **attrs)], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(
        graph, functions=list(functions), opset_imports=imports, ir_version=10
    )


def leaky(slope: str = "slope") -> Any:
    inner = helper.make_node("LeakyRelu", ["a"], ["b"])
    inner.attribute.append(reference("alpha", slope, AttributeProto.FLOAT))
    return function("Leaky", inner, defaults=[helper.make_attribute("slope", 0.5)])


def choice(condition: Any) -> ModelProto:
    def branch(kind: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info("r", TensorProto.FLOAT, (2, 3))
        inner = helper.make_node(kind, ["x", "k"], ["r"], name=f"in_{kind}")
        weight = numpy_helper.from_array(np.full(3, len(kind), "float32"), "k")
        return helper.make_graph([inner], kind, [], [out], [weight])

    it = helper.make_node(
        "If", ["c"], ["y"], name="it", then_branch=branch("Add"), else_branch=branch("Sub")
    )
    feeds = {"x": X} if condition is not None else {"x": X, "c": np.array(True)}
    held = {} if condition is None else {"c": np.array(condition)}
    return bare_model([it], feeds, held, ["y"], 17)


def models() -> dict[str, ModelProto]:
    """Sound models of many kinds, which fuzzing breaks."""
    rnn = [np.zeros(shape, "float32") for shape in ((4, 1, 3), (1, 2, 3), (1, 2, 2))]
    made = {
        "product": product(), "function": calling(leaky()), "choice": choice(None),
        "taken": choice(True),
        "conv": one("Conv", IMAGE, np.ones((4, 1, 3, 3), "float32"), group=2, pads=[1, 1, 1, 1]),
        "transposed": one("ConvTranspose", IMAGE, np.ones((2, 3, 3, 3), "float32")),
        "pool": one("AveragePool", IMAGE, kernel_shape=[3, 2], strides=[2, 1], ceil_mode=1),
        "resize": one("Upsample", IMAGE, np.array([1, 1, 2, 2], "float32"), opset=9),
        "pad": one("Pad", X, ints([0, 1, 1, 0]), mode="reflect"),
        "slice": one("Slice", X, ints([0, 2]), ints([2, 0]), ints([0, 1]),
                     ints([1, -1])),
        "gather": one("Gather", X, ints([1, 2]), axis=1), "tile": one("Tile", X, ints([1, 2])),
        "expand": one("Expand", X, ints([2, 2, 3])), "reshape": one("Reshape", X, [3, 2]),
        "split": one("Split", X, ints([1, 2]), axis=1), "topk": one("TopK", X, ints([2])),
        "reduce": one("ReduceSum", X, ints([1])),
        "einsum": one("Einsum", X, W, equation="ab,bc->ac"),
        "recurrent": one("RNN", *rnn, hidden_size=2),
        "quantized": one("QuantizeLinear", X, np.float32(0.5), np.uint8(3)),
        "norm": one("LayerNormalization", X, np.ones(3, "float32")), "cast": one("Cast", X, to=7),
        "scatter": one("ScatterND", X, ints([[1]]), X[:1]),
        "spectrum": one("DFT", X.reshape(1, 6, 1), axis=1),
    }
    for name in ("split", "topk"):
        made[name].graph.node[0].output.append("z")
    return made


# ---- sound ones ----


@pytest.mark.parametrize("name", models())
def test_the_models_to_break_are_sound(name: str) -> None:
    from_onnx(models()[name])


def test_models_of_every_version() -> None:
    for opset in range(7, 29):
        model = product()
        model.opset_import[0].version = opset
        compare(run_imported(model, {"x": X}), [X @ W])


def test_functions_have_attributes_with_defaults_and_call_functions() -> None:
    outer = function(
        "Outer", helper.make_node("Leaky", ["a"], ["b"], domain="own"), attributes=["slope"]
    )
    outer.node[0].attribute.append(reference("slope", "slope", AttributeProto.FLOAT))
    for given, slope in (({}, 0.5), ({"slope": 0.25}, 0.25)):
        found = run_imported(calling(outer, leaky(), **given), {"x": -X})
        compare(found, [-X * np.float32(slope)])


def test_weights_of_branches_may_have_one_name() -> None:
    for value in (True, False):
        feeds = {"x": X, "c": np.array(value)}
        wanted = X + 3 if value else X - 3
        compare(run_imported(choice(None), feeds, freeze_params=False), [wanted])
    _, params = from_onnx(choice(None), freeze_params=False)
    assert sorted(params) == ["k", "k_1"]


def test_extents_are_given_by_the_names_of_dimensions() -> None:
    model = product()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    mod, _ = from_onnx(model, shape={"batch": 5})
    assert tuple(mod["main"].params[0].checked_type.shape) == (5, 3)
    with pytest.raises(ValueError, match="dimensions' names are batch, its inputs x"):
        from_onnx(model, shape={"size": 5})
    with pytest.raises(ValueError, match="'batch' the extent -5"):
        from_onnx(model, shape={"batch": -5})
    with pytest.raises(TypeError, match="'x' 'wide', which is no shape and no extent"):
        from_onnx(model, shape={"x": "wide"})
    assert relay.frontend.from_onnx is from_onnx


def test_constants_that_would_grow_are_left_to_the_run() -> None:
    many = ints([1 << 20, 1 << 12])
    for model in (
        one("Expand", X[:1, :1], many), one("Tile", X[:1, :1], many),
        bare_model([node("ConstantOfShape", "s")], {}, {"s": many}, ["y"], 17),
        bare_model([node("Range", "a", "b", "c")], {},
                 {"a": ints(0), "b": ints(1 << 32), "c": ints(1)}, ["y"], 17),
    ):
        for entry in list(model.graph.input):
            model.graph.initializer.append(numpy_helper.from_array(X[:1, :1], entry.name))
        mod, _ = from_onnx(model)
        assert not isinstance(mod["main"].body, relay.Constant)


def test_what_constants_may_take_in_all_is_limited() -> None:
    nodes = [helper.make_node("Expand", ["x", "s"], [f"y{i}"]) for i in range(600)]
    nodes.append(helper.make_node("Sum", [f"y{i}" for i in range(600)], ["y"]))
    weights = {"x": np.ones((1, 1), "float32"), "s": ints([512, 512])}
    mod, _ = from_onnx(bare_model(nodes, {}, weights, ["y"], 17))
    assert isinstance(mod["main"].body, relay.Call)


# ---- broken ones ----


def refused(model: ModelProto | bytes | Path, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        from_onnx(model)


@pytest.mark.parametrize("cut", [1, 10, 50, 100])
def test_cut_off(cut: int) -> None:
    data = product().SerializeToString()
    refused(data[:-cut], "no ONNX model|no graph|the model's output|no output|reads|has no")


Change = Callable[[ModelProto], Any]

CHANGES: dict[str, tuple[Change, str]] = {
    "operands": (lambda m: m.graph.node[0].input.append("x"),
                 r"node 'first' \(MatMul\) has 3 operands; in opset 17 it has 2"),
    "results": (lambda m: m.graph.node[0].output.append("z"),
                r"node 'first' \(MatMul\) has 2 results; in opset 17 it has 1"),
    "left out": (lambda m: m.graph.node[0].input.__setitem__(1, ""),
                 r"node 'first' \(MatMul\): operand 1 \(B\) is missing"),
    "attribute": (lambda m: m.graph.node[1].attribute.append(helper.make_attribute("slope", 1.0)),
                  r"node 'last' \(Relu\) has the attribute 'slope'"),
    "weights of one name": (lambda m: m.graph.initializer.append(m.graph.initializer[0]),
                            "weight 'w' is there twice"),
    "inputs of one name": (lambda m: m.graph.input.append(m.graph.input[0]),
                           "two inputs of the name 'x'"),
    "results of one name": (lambda m: m.graph.node[1].output.__setitem__(0, "p"),
                            "tensor 'p' is made by node 'first' and by 'last'"),
    "circle": (lambda m: m.graph.node[0].input.__setitem__(0, "y"), "depends on itself"),
    "extent": (lambda m: m.graph.initializer[0].dims.__setitem__(0, 4),
               r"weight 'w' has the shape \[4, 4\] and type float32, 64 bytes; its data has 48"),
    "negative extent": (lambda m: m.graph.initializer[0].dims.__setitem__(0, -3),
                        r"weight 'w' has the shape \[-3, 4\], of which an extent is negative"),
    "overflowing extents": (lambda m: m.graph.initializer[0].dims.extend([1 << 62, 1 << 62]),
                            "weight 'w' has the shape .* which no memory holds"),
    "without data": (lambda m: (m.graph.initializer[0].ClearField("raw_data"),
                                m.graph.initializer[0].dims.__setitem__(0, 1 << 40)),
                     "weight 'w' has the shape .* where there are 0"),
    "element type": (lambda m: setattr(m.graph.initializer[0], "data_type", 99),
                     "weight 'w' has the element type 99"),
    "twice the data": (lambda m: m.graph.initializer[0].float_data.append(1),
                       "weight 'w' is of type float32 and has its data in float_data, raw_data"),
    "input's type": (lambda m: setattr(m.graph.input[0].type.tensor_type, "elem_type", 0),
                     "input 'x' has the element type 0"),
    "input's extent": (
        lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", 1 << 62),
        "input 'x' has the shape .* which no memory holds"),
    "negative input": (
        lambda m: setattr(m.graph.input[0].type.tensor_type.shape.dim[0], "dim_value", -7),
        "input 'x' has a dimension of the extent -7"),
    "output's type": (lambda m: setattr(m.graph.output[0].type.tensor_type, "elem_type", 7),
                      "output 'y' is declared as int64; the model computes float32"),
    "opset": (lambda m: setattr(m.opset_import[0], "version", -1), "version -1"),
    "no output": (lambda m: m.graph.ClearField("output"), "has no output"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_found(what: str) -> None:
    change, text = CHANGES[what]
    model = product()
    change(model)
    refused(model, text)


ABSURD: dict[str, tuple[ModelProto, str]] = {
    "kernel": (one("MaxPool", IMAGE, kernel_shape=[1 << 60, 1]), "kernel_shape is"),
    "no kernel": (one("MaxPool", IMAGE, kernel_shape=[0, 1]), "kernel_shape is"),
    "kernel of weights": (one("Conv", IMAGE, np.ones((1, 2, 3, 3), "float32"), kernel_shape=[2, 2]),
                          "kernel_shape is .*; the weights are"),
    "pads": (one("MaxPool", IMAGE, kernel_shape=[2, 2], pads=[2, 2, 2, 2]), "not smaller"),
    "large pads": (one("Conv", IMAGE, np.ones((1, 2, 3, 3), "float32"), pads=[1 << 40] * 4),
                   "too large"),
    "strides": (one("Conv", IMAGE, np.ones((1, 2, 3, 3), "float32"), strides=[0, 1]), "strides is"),
    "groups": (one("Conv", IMAGE, np.ones((1, 2, 3, 3), "float32"), group=0), "groups"),
    "axis": (one("ReduceMax", X, opset=13, axes=[7]), "axis 7 is none of 2"),
    "axes": (one("ReduceMax", X, opset=13, axes=[0, -2]), "two are the same"),
    "softmax": (one("Softmax", X, axis=-3), "axis"),
    "norm": (one("LayerNormalization", X, np.ones(3, "float32"), axis=2), "axis 2 is none of 2"),
    "flatten": (one("Flatten", X, axis=9), "axis 9 is none of 2"),
    "perm": (one("Transpose", X, perm=[0, 0]), "it"),
    "codes of Relay": (one("Reshape", X, ints([-2])), "below -1"),
    "elements": (one("Reshape", X, ints([7])), "it"),
    "step": (one("Slice", X, [0], [2], [0], [0]), "it"),
    "zero step": (bare_model([node("Range", "a", "b", "c")], {}, dict.fromkeys(
        "abc", np.array(0)), ["y"], 17), "a step that is not 0, not from 0 to 0 by 0"),
    "endless range": (bare_model([node("Range", "a", "b", "c")], {}, {
        "a": np.array(0.0), "b": np.array(np.inf), "c": np.array(1.0)}, ["y"], 17), "to inf by"),
    "index": (one("Gather", X, ints([5])), "an index is not one of the 2"),
    "index of an element": (
        one("GatherElements", X, ints([[0, 3]]), axis=1), "an index is not one of the 3"),
    "tuple of indices": (
        one("GatherND", X, ints([[1, 0], [0, -4]])), "not one of the 3 elements of axis 1"),
    "index behind the batch": (
        one("GatherND", X, ints([[0], [3]]), batch_dims=1), "not one of the 3 elements of axis 1"),
    "index to write to": (
        one("ScatterElements", X, ints([[-3]]), X[:1, :1]), "an index is not one of the 2"),
    "tuple to write to": (
        one("ScatterND", X, ints([[2]]), X[:1]), "not one of the 2 elements of axis 0"),
    "divisor": (one("Div", ints([4, 2]), ints([1, 0])), "integers are divided by zero"),
    "divisor of a rest": (one("Mod", ints([4, 2]), ints([1, 0])), "integers are divided by zero"),
    "direction": (one("BitShift", *[np.ones(1, "uint8")] * 2, direction="UP"), "LEFT or RIGHT"),
    "tile": (one("Tile", X, ints([1 << 40, 1 << 40])), "which no memory holds"),
    "expand": (one("Expand", X, ints([1 << 62, 2, 3])), "which no memory holds"),
    "equation": (one("Einsum", X, W, equation="ab,bc->"[:3]), "it"),
}


@pytest.mark.parametrize("what", ABSURD)
def test_absurd_numbers_are_refused(what: str) -> None:
    model, text = ABSURD[what]
    with pytest.raises(ValueError, match=text) as raised:
        from_onnx(model)
    assert str(raised.value).startswith("node 'it' (")


def test_attributes_are_of_their_type() -> None:
    model = one("LeakyRelu", X, alpha=0.5)
    model.graph.node[0].attribute[0].CopyFrom(helper.make_attribute("alpha", 3))
    refused(model, r"node 'it' \(LeakyRelu\): its attribute 'alpha' is not of the type FLOAT")
    model = one("LeakyRelu", X, alpha=0.5)
    model.graph.node[0].attribute[0].i = 3
    refused(model, "the type of its attribute 'alpha' is not its value's")
    model = one("LeakyRelu", X, alpha=0.5)
    model.graph.node[0].attribute.append(model.graph.node[0].attribute[0])
    refused(model, "has the attribute 'alpha' twice")
    refused(one("Cast", X, to=99), r"node 'it' \(Cast\): its result has the element type 99")
    model = one("Concat", X, axis=0)
    del model.graph.node[0].attribute[:]
    refused(model, r"node 'it' \(Concat\) lacks the attribute 'axis'")


def test_names_are_text() -> None:
    data = product().SerializeToString().replace(b"first", b"f\xff\xffst")
    refused(data, "which is no text")


def test_functions_that_go_round_or_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    again = function("Again", helper.make_node("Again", ["a"], ["b"], domain="own"))
    refused(calling(again), "'Again' calls itself")
    levels = [function("F0", helper.make_node("Add", ["a", "a"], ["b"]))]
    for i in range(1, 40):
        twice = [
            helper.make_node(f"F{i - 1}", ["a"], ["m"], domain="own"),
            helper.make_node(f"F{i - 1}", ["m"], ["b"], domain="own"),
        ]
        levels.insert(0, function(f"F{i}", *twice))
    refused(calling(*levels[-16:]), r"make more than 13\d00 nodes")
    monkeypatch.setattr(limits, "MOST_NODES", 2000)
    refused(calling(*levels), "make more than 2000 nodes")
    deep = [function("F0", helper.make_node("Neg", ["a"], ["b"]))]
    for i in range(1, 200):
        deep.insert(0, function(f"F{i}", helper.make_node(f"F{i - 1}", ["a"], ["b"], domain="own")))
    refused(calling(*deep), "more than 64 functions and graphs deep")
    refused(calling(leaky(), speed=1.0), "its function has no attribute 'speed'")
    refused(calling(leaky(), slope=1), "refers to 'slope', which is of another type")


def test_graphs_in_graphs_thousands_deep() -> None:
    model = choice(True)
    inside = model.graph.node[0]
    for _ in range(3000):
        inside = inside.attribute.add(name="g", type=AttributeProto.GRAPH).g.node.add()
        inside.op_type = "If"
    refused(model, "graphs deep, more than 64")


# ---- data in files ----


def beside(folder: Path, **entries: Any) -> Path:
    """A model whose weight lies in the file data.bin, with other entries where some are given."""
    folder.mkdir(exist_ok=True)
    (folder / "data.bin").write_bytes(b"\0" * 16 + W.tobytes())
    model = product()
    weight = model.graph.initializer[0]
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    given = {"location": "data.bin", "offset": 16, "length": W.nbytes, **entries}
    for key, value in given.items():
        weight.external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_data_beside_the_model(tmp_path: Path) -> None:
    path = beside(tmp_path / "m")
    _, params = from_onnx(path, freeze_params=False)
    np.testing.assert_array_equal(params["w"].numpy(), W)
    refused(path.read_bytes(), "weight 'w' has its data in the file 'data.bin'")


BAD_ENTRIES = [
    ({"location": "../data.bin"}, "'../data.bin' lies outside the model's folder"),
    ({"location": "sub/../../data.bin"}, "lies outside the model's folder"),
    ({"location": "/etc/passwd"}, "'/etc/passwd' lies outside the model's folder"),
    ({"location": "C:\\data.bin"}, "lies outside the model's folder"),
    ({"location": ""}, "a file without a name"),
    ({"location": "absent.bin"}, "'absent.bin' cannot be read"),
    ({"location": "."}, "cannot be read|is a link or no plain file"),
    ({"offset": -1}, "the offset of its data is '-1'"),
    ({"length": -48}, "the length of its data is '-48'"),
    ({"length": "many"}, "the length of its data is 'many'"),
    ({"length": 1 << 50}, "48 bytes; its length in the file is"),
    ({"offset": 1 << 50}, "ends at byte .* of 'data.bin', which has 64"),
    ({"offset": 17}, "ends at byte 65 of 'data.bin', which has 64"),
]


@pytest.mark.parametrize("entries, text", BAD_ENTRIES)
def test_data_that_lies_elsewhere(tmp_path: Path, entries: Any, text: str) -> None:
    (tmp_path / "data.bin").write_bytes(bytes(64))
    refused(beside(tmp_path / "m", **entries), f"weight 'w'.*{text}")


def test_data_behind_links(tmp_path: Path) -> None:
    secret = tmp_path / "secret.bin"
    secret.write_bytes(bytes(64))
    for name, link in (("soft", os.symlink), ("hard", os.link)):
        path = beside(tmp_path / name, location="link.bin")
        link(secret, tmp_path / name / "link.bin")
        refused(path, "weight 'w': 'link.bin' is .*link")
    path = beside(tmp_path / "folder", location="sub/secret.bin")
    os.symlink(tmp_path, tmp_path / "folder" / "sub")
    refused(path, "is reached by a link")
    path = beside(tmp_path / "pipe", location="pipe.bin")
    os.mkfifo(tmp_path / "pipe" / "pipe.bin")
    refused(path, "is a link or no plain file")


# ---- what is not supported ----


def test_everything_unsupported_is_listed_at_once() -> None:
    nodes = [
        helper.make_node("Nowhere", ["x"], ["a"], name="one", domain="com.microsoft"),
        helper.make_node("StringNormalizer", ["a"], ["y"], name="three"),
    ]
    model = bare_model(nodes, {"x": X}, {}, ["y"], 17)
    model.graph.input.append(helper.make_tensor_value_info("s", TensorProto.STRING, (1,)))
    with pytest.raises(OpNotImplemented) as raised:
        from_onnx(model)
    text = str(raised.value)
    for part in (
        "com.microsoft.Nowhere (opset 1): one", "StringNormalizer (opset 17): three",
        "input 's' holds elements of type string",
    ):
        assert part in text


def test_operator_sets_of_the_future_are_not_guessed() -> None:
    model = product()
    model.opset_import[0].version = 1000
    with pytest.raises(OpNotImplemented, match="opset 1000; the newest that is known is"):
        from_onnx(model)


def test_sequences_without_end() -> None:
    model = one("SplitToSequence", X)
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 1 << 40
    refused(model, r"node 'it' \(SplitToSequence\): it makes .* parts, more than")


@pytest.mark.parametrize("scale", [float("nan"), float("inf"), -1.0])
def test_scales_that_are_no_sizes(scale: float) -> None:
    none = np.empty((0,), "float32")
    model = one("Resize", IMAGE, none, np.array([1, 1, 2, scale], "float32"))
    with pytest.raises(ValueError, match="scales are positive numbers, and one of them is"):
        from_onnx(model)
