"""Float ONNX models become QDQ models that ONNX Runtime reads, and that stay close to them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import sterna
from sterna.quantization import products
from sterna.quantization.equalise import equalise, find_links
from sterna.quantization.prepare import prepare
from sterna.quantization.quantize_model import QuantizedModel, _Work
from sterna.quantization.report import Agreement, LayerReport
from sterna.quantization.runner import Runner
from tests.quantization.networks import dense, network, samples
from tests.support import require_module


@pytest.fixture(scope="module")
def quantized() -> QuantizedModel:
    """The small network in integers."""
    return sterna.quantize(network(), samples())


def outputs(model: ModelProto) -> np.ndarray[Any, Any]:
    """What ONNX Runtime makes of the samples, node by node.

    Fused, it multiplies bytes by instructions that saturate where a processor has no others.
    """
    require_module("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    return np.concatenate([session.run(None, {"x": sample})[0] for sample in samples()])


def decibels(expected: np.ndarray[Any, Any], found: np.ndarray[Any, Any]) -> float:
    noise = ((expected - found).astype("float64") ** 2).sum()
    return float(10 * np.log10((expected.astype("float64") ** 2).sum() / noise))


def test_the_result_is_close_and_other_engines_read_it(quantized: QuantizedModel) -> None:
    onnx.checker.check_model(quantized.model, full_check=True)
    expected = outputs(network())
    assert decibels(expected, outputs(quantized.model)) > 30
    report = quantized.report
    assert report.agreement.top_class == 1.0 and report.agreement.error < 1e-3
    assert [row.name for row in report.layers] == ["first", "second", "depthwise", "dense"]
    assert all(row.in_integers and row.sqnr > 30 for row in report.layers)


def test_sterna_and_onnx_runtime_give_the_same(quantized: QuantizedModel) -> None:
    model = sterna.compile(quantized.model, shapes={"x": (1, 3, 8, 8)})
    own = np.concatenate([model(sample) for sample in samples()])
    expected = outputs(quantized.model)
    assert np.abs(own - expected).max() < 2e-2 * np.abs(expected).max()


def test_norms_are_folded_and_rectifiers_are_not_rounded_twice(quantized: QuantizedModel) -> None:
    graph = quantized.model.graph
    kinds = Counter(node.op_type for node in graph.node)
    assert "BatchNormalization" not in kinds
    read = {name for node in graph.node for name in node.input
            if node.op_type == "QuantizeLinear" and node.input[0] == name}
    # The result, which floats read, and what a rectifier or a pair ends are not rounded.
    assert read == {"x", "r0", "c1", "r1", "r2", "p", "f"}
    weights = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    assert weights["w1_quantized"].dtype == np.int8
    assert weights["w1_scale"].shape == (8,)
    assert weights["r2_scale"] == weights["p_scale"] == weights["f_scale"]


def test_the_same_samples_give_the_same_bytes(quantized: QuantizedModel) -> None:
    again = sterna.quantize(network(), iter(samples()))
    assert again.model.SerializeToString() == quantized.model.SerializeToString()


def test_layers_stay_in_float_when_asked() -> None:
    made = sterna.quantize(network(), samples(4), keep_float=["first", "dense"], activations="int8")
    assert [row.name for row in made.report.layers] == ["second", "depthwise"]
    assert {"w0", "w3"} < {t.name.removesuffix("_1") for t in made.model.graph.initializer}
    zeros = {node.input[2] for node in made.model.graph.node if node.op_type == "QuantizeLinear"}
    kinds = {t.data_type for t in made.model.graph.initializer if t.name in zeros}
    assert kinds == {TensorProto.INT8}


def test_accuracy_is_kept_by_leaving_layers_in_float() -> None:
    """One channel of the input is a thousand times the others, which alone decide."""
    model, rng = dense(), np.random.default_rng(2)
    weight = rng.normal(0, 1, (4, 3)).astype("float32")
    weight[0] = 0
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    second = np.float32(100) * np.eye(3, dtype="float32")
    model.graph.initializer.append(numpy_helper.from_array(second, "v"))
    model.graph.node[0].output[0] = "h"
    model.graph.node.append(helper.make_node("MatMul", ["h", "v"], ["y"], "scaled"))
    data = [(rng.normal(0, 1, (1, 4)) * [1000, 1, 1, 1]).astype("float32") for _ in range(40)]
    # Ranges by the error of outputs: the large channel is cut off, as its weights are 0.
    assert sterna.quantize(model, data).report.agreement.top_class == 1.0
    weight[0] = [0.001, -0.001, 0.0005]  # now it matters as much as the others
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    plain = sterna.quantize(model, data)
    assert plain.report.agreement.loss > 0.02
    kept = sterna.quantize(model, data, keep_accuracy=0.02)
    assert kept.report.agreement.loss <= 0.02
    assert [row.in_integers for row in kept.report.layers] == [False, True]


class OneThatHurts(_Work):
    """Layers of which a single one changes results, though eleven have larger errors."""

    def __init__(self) -> None:
        self.tries = 0

    def quantized(self, keep_float: frozenset[str]) -> Any:
        return sorted(keep_float), {}

    def compare(self, made: Any, reference: Sequence[Mapping[str, Any]]) -> Agreement:
        self.tries += 1
        return Agreement(1.0 if "layer11" in made else 0.5, 0.0)


def test_layers_that_need_not_stay_in_float_do_not() -> None:
    work = OneThatHurts()
    layers = [
        LayerReport(f"layer{n:02}", "Conv", 9, 1 / (n + 1), (0, 1), (0, 1)) for n in range(16)
    ]
    best = work.fewest_in_float(0.01, frozenset({"asked"}), {row.name: row for row in layers}, [])
    assert best is not None and best[2].loss == 0.0
    left: Any = best[0]
    assert {"asked", "layer11"} < set(left) and len(left) == 3 and work.tries < 16


def test_what_no_patch_has_may_decide_a_range(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row of 200 is much larger, and the maximum over all rows is that row's."""
    monkeypatch.setattr(products, "MOST_PATCHES", 16)
    rng = np.random.default_rng(3)
    model = dense()
    model.graph.node[0].output[0] = "h"
    model.graph.node.append(helper.make_node("ReduceMax", ["h"], ["y"], "most", axes=[1]))
    data = [rng.normal(0, 1, (1, 200, 4)).astype("float32") for _ in range(8)]
    for sample in data:
        sample[0, rng.integers(200)] *= 12
    for entry, rank in ((model.graph.input[0], 3), (model.graph.output[0], 3)):
        entry.type.tensor_type.ClearField("shape")
        for _ in range(rank):
            entry.type.tensor_type.shape.dim.add()
    report = sterna.quantize(model, data).report
    (low, high), (first, last) = report.layers[0].kept, report.layers[0].seen
    assert high - low > 0.5 * (last - first)
    assert report.agreement.error < 0.01


@pytest.mark.parametrize("activations", ["int8", "uint8"])
def test_a_first_layer_of_one_channel_takes_rows_as_int8(activations: str) -> None:
    rng = np.random.default_rng(4)
    weights = {"v": rng.normal(0, 1, (4, 1, 3, 3)), "w": rng.normal(0, 1, (4, 4, 3, 3))}
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", [1, 1, 8, 8]), ("y", [1, 4, 4, 4]))]
    nodes = [helper.make_node("Conv", ["x", "v"], ["h"], "first"),
             helper.make_node("Conv", ["h", "w"], ["y"], "second")]
    constants = [numpy_helper.from_array(w.astype("float32"), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "net", ends[:1], ends[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    data = [rng.normal(0, 1, (1, 1, 8, 8)).astype("float32") for _ in range(4)]
    report = sterna.quantize(model, data, activations=activations).report
    assert [row.in_integers for row in report.layers] == [activations == "int8", True]
    assert report.agreement.error < 1e-3


def test_the_report_is_a_table_a_picture_and_a_dictionary(quantized: QuantizedModel) -> None:
    report = quantized.report
    assert "depthwise" in report.table() and "SQNR (dB)" in report.table()
    assert report.draw().startswith("<svg") and "depthwise" in report.draw()
    assert report.to_dict()["layers"][1]["operator"] == "Conv"
    assert "the top class agrees on 100.00% of 12 samples" in report.summary()


def test_old_operators_are_brought_to_a_version_with_channels() -> None:
    old = network()
    for node in old.graph.node:
        if node.op_type == "Clip":
            node.op_type = "Relu"
            del node.input[1:]
    old.opset_import[0].version = 9
    made = sterna.quantize(old, samples(2))
    assert made.model.opset_import[0].version == 13


# ---- the network as a whole ----


def separable(factors: np.ndarray[Any, Any]) -> ModelProto:
    """Conv and Clip, a depthwise Conv and Relu, Conv; channels before the second have factors."""
    rng = np.random.default_rng(6)
    shapes = {"u": (8, 3, 3, 3), "b": (8,), "v": (8, 1, 3, 3), "w": (5, 8, 1, 1)}
    weights: dict[str, Any] = {
        name: rng.normal(0, 0.5, shape).astype("float32") for name, shape in shapes.items()}
    weights["u"] *= factors.reshape(-1, 1, 1, 1).astype("float32")
    weights["b"] *= factors.astype("float32")
    weights["v"] /= factors.reshape(-1, 1, 1, 1).astype("float32")
    weights["zero"], weights["most"] = np.float32(0), np.float32(6)
    nodes = [
        helper.make_node("Conv", ["x", "u", "b"], ["c0"], "first", pads=[1] * 4),
        helper.make_node("Clip", ["c0", "zero", "most"], ["r0"], "clip"),
        helper.make_node("Conv", ["r0", "v"], ["c1"], "depthwise", group=8, pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], "relu"),
        helper.make_node("Conv", ["r1", "w"], ["y"], "pointwise"),
    ]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)
            for name, shape in (("x", [1, 3, 8, 8]), ("y", [1, 5, 8, 8]))]
    constants = [numpy_helper.from_array(np.asarray(w), n) for n, w in weights.items()]
    graph = helper.make_graph(nodes, "separable", ends[:1], ends[1:], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_channels_before_a_depthwise_layer_fill_one_range() -> None:
    model = separable(np.geomspace(0.01, 1, 8))
    graph = prepare(model)
    reference = equalise(graph, [{"x": sample} for sample in samples()])
    assert [link.tensor for link in find_links(graph)] == ["r0"]
    runner = Runner(graph.to_model(["y", "r0"]), {"x": samples()[0]})
    made = [runner({"x": sample}) for sample in samples()]
    for ours, theirs in zip(made, reference, strict=True):
        np.testing.assert_allclose(ours["y"], theirs["y"], rtol=1e-4, atol=1e-5)
    reach = np.max([each["r0"] for each in made], (0, 1, 3, 4))
    np.testing.assert_allclose(reach, reach[0], rtol=1e-5)
    report = sterna.quantize(model, samples()).report
    assert report.agreement.error < 1e-3 and report.layers[1].sqnr > 38


def test_biases_make_good_what_drifts() -> None:
    """Outputs are on average what they are in float, layer by layer."""
    model = network()
    plain, corrected = (
        sterna.quantize(model, samples(24), bias_correction=bias) for bias in (False, True))
    expected = outputs(model)
    drifts = [np.abs((outputs(made.model) - expected).mean(0)).max() for made in (plain, corrected)]
    assert drifts[1] < drifts[0]
    assert corrected.report.agreement.error < plain.report.agreement.error


def test_a_sample_that_is_far_out_decides_no_range() -> None:
    usual = sterna.quantize(network(), samples(), keep_float=["second"])
    strange = [*samples(), np.full((1, 3, 8, 8), 1e6, "float32")]
    made = sterna.quantize(network(), strange, keep_float=["second"], sample_names=[
        f"{place}.npy" for place in range(13)])
    assert made.model.SerializeToString() == usual.model.SerializeToString()
    (told,) = made.report.far_out
    assert told.startswith("sample 12 ('12.npy') reaches 1e+06 in input 'x', where half of")
    assert made.report.to_dict()["left_out"] == [told] and told in made.report.summary()
    assert not usual.report.far_out


# ---- bad input ----


@pytest.mark.parametrize(("data", "message"), [
    ([], "there are no samples"),
    ([np.zeros((1, 5), "float32")],
     r"sample 0 gives input 'x' the shape \(1, 5\); it takes \(1, 4\)"),
    ([{"z": np.zeros((1, 4), "float32")}], "sample 0 has 'z', which is no input"),
    ([{}], "sample 0 lacks input 'x'; the model's inputs are x"),
    ([np.array([["a"] * 4])], "numbers of <U1; it takes float32"),
    ([np.zeros((1, 4), "float32"), np.full((1, 4), np.nan, "float32")],
     "sample 1 has numbers that are not finite"),
])
def test_wrong_samples_are_named(data: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sterna.quantize(dense(), data)


def test_samples_have_one_shape() -> None:
    data = [np.zeros((1, 3, 8, 8), "float32"), np.zeros((2, 3, 8, 8), "float32")]
    with pytest.raises(ValueError, match="all samples have one shape"):
        sterna.quantize(network(), data)


def test_models_that_cannot_be_quantised_are_refused(quantized: QuantizedModel) -> None:
    one = [np.ones((1, 4), "float32")]
    with pytest.raises(ValueError, match="quantised already"):
        sterna.quantize(quantized.model, samples())
    with pytest.raises(ValueError, match="weight 'w' and 0 others are float16"):
        sterna.quantize(dense(TensorProto.FLOAT16), one)
    with pytest.raises(ValueError, match="there is nothing to quantise"):
        model = dense()
        model.graph.node[0].op_type = "Add"
        model.graph.initializer[0].CopyFrom(numpy_helper.from_array(np.ones(3, "float32"), "w"))
        sterna.quantize(model, one)
    with pytest.raises(ValueError, match="keep_float names 'nothing', which is no node"):
        sterna.quantize(dense(), one, keep_float=["nothing"])
    with pytest.raises(ValueError, match="activations are uint8 or int8"):
        sterna.quantize(dense(), one, activations="int4")
    with pytest.raises(ValueError, match="keep_accuracy is a share"):
        sterna.quantize(dense(), one, keep_accuracy=2.0)
    with pytest.raises(ValueError, match="no ONNX model"):
        sterna.quantize(b"\x08tern", one)


def test_weights_that_are_not_finite_are_named() -> None:
    model = dense()
    weight = np.full((4, 3), np.inf, "float32")
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    with pytest.raises(ValueError, match="weight 'w' of node 'product' is not finite"):
        sterna.quantize(model, [np.ones((1, 4), "float32")])


# ---- sizes of numbers ----


@pytest.mark.parametrize("size", [1e30, 1e-12])
@pytest.mark.filterwarnings("error")
def test_numbers_may_be_of_any_size(size: float) -> None:
    """Their squares may be more than float32 holds."""
    rng = np.random.default_rng(1)
    data = [(rng.normal(0, 1, (1, 4)) * size).astype("float32") for _ in range(12)]
    report = sterna.quantize(dense(), data).report
    assert report.agreement.top_class == 1.0 and report.layers[0].sqnr > 35


@pytest.mark.filterwarnings("error")
def test_a_layer_without_patches_takes_its_largest_weights() -> None:
    model, rng = dense(), np.random.default_rng(1)
    model.graph.node[0].CopyFrom(helper.make_node("ConvTranspose", ["x", "w"], ["y"], "up"))
    weight = rng.normal(0, 1, (3, 2, 2, 2)).astype("float32")
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))
    shapes = (1, 3, 4, 4), (1, 2, 5, 5)
    for entry, shape in zip((*model.graph.input, *model.graph.output), shapes, strict=True):
        entry.CopyFrom(helper.make_tensor_value_info(entry.name, TensorProto.FLOAT, shape))
    data = [rng.normal(0, 1, (1, 3, 4, 4)).astype("float32") for _ in range(4)]
    report = sterna.quantize(model, data).report
    assert report.layers[0].in_integers and report.agreement.error < 1e-3
