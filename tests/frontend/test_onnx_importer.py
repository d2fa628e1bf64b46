"""The importer itself: names, order, weights, shapes, functions, errors."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from tests.frontend.support import compare, model_of, run_imported, run_reference

# Shape inference gives up on nodes in the wrong order, which the checker remarks.
pytestmark = pytest.mark.filterwarnings("ignore:the ONNX checker")

X = np.random.default_rng(3).standard_normal((2, 3)).astype("float32")
W = np.random.default_rng(4).standard_normal((3, 4)).astype("float32")


def small_model() -> onnx.ModelProto:
    nodes = [
        helper.make_node("Relu", ["product"], ["y"], name="last"),
        helper.make_node("MatMul", ["x", "w"], ["product"], name="first"),
    ]
    return model_of(nodes, {"x": X}, {"w": W}, ["y"], 17)


def calls_of(mod: tvm.IRModule) -> list[Any]:
    found: list[Any] = []
    relay.analysis.post_order_visit(mod["main"], found.append)
    return [expr for expr in found if isinstance(expr, relay.Call)]


def test_nodes_may_come_in_any_order_and_name_what_they_become() -> None:
    mod, params = relay.frontend.from_onnx(small_model())
    assert params == {}
    assert [(str(call.op), call.span) for call in calls_of(mod)] == [
        ("nn.dense", "first"), ("nn.relu", "last"),
    ]
    compare(run_imported(small_model(), {"x": X}), [np.maximum(X @ W, 0)])


def test_weights_that_stay_parameters() -> None:
    mod, params = relay.frontend.from_onnx(small_model(), freeze_params=False)
    assert [param.name_hint for param in mod["main"].params] == ["x", "w"]
    np.testing.assert_array_equal(params["w"].numpy(), W)


def test_a_path_bytes_or_a_model(tmp_path: Path) -> None:
    model = small_model()
    path = tmp_path / "small.onnx"
    onnx.save(model, path)
    wanted = relay.frontend.from_onnx(model)[0]
    for given in (path, str(path), model.SerializeToString()):
        assert tvm.ir.structural_equal(relay.frontend.from_onnx(given)[0], wanted)


def test_it_compiles() -> None:
    model = small_model()
    mod, params = relay.frontend.from_onnx(model, {"x": (2, 3)})
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm", params=params)
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(x=X)
    compare([m.get_output(0).numpy()], run_reference(model, {"x": X}))


def test_shapes_that_a_model_computes_become_numbers() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "axes"], ["n1"]),
        helper.make_node("Concat", ["n1", "rest"], ["target"], axis=0),
        helper.make_node("Reshape", ["x", "target"], ["y"]),
    ]
    weights = {"zero": np.int64(0), "axes": np.array([0]), "rest": np.array([-1, 1])}
    model = model_of(nodes, {"x": X}, {k: np.asarray(v) for k, v in weights.items()}, ["y"], 17)
    mod, _ = relay.frontend.from_onnx(model)
    assert [str(call.op) for call in calls_of(mod)] == ["reshape"]
    compare(run_imported(model, {"x": X}, freeze_params=False), run_reference(model, {"x": X}))


def test_open_dimensions_are_given_by_name() -> None:
    model = small_model()
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    mod, _ = relay.frontend.from_onnx(model, shape={"x": (5, 3)})
    assert tuple(mod["main"].params[0].checked_type.shape) == (5, 3)
    model.graph.node.append(helper.make_node("SplitToSequence", ["y"], ["z"]))
    model.graph.output[0].name = "z"
    with pytest.raises(ValueError, match=r"node 'z' \(SplitToSequence\).*shape="):
        relay.frontend.from_onnx(model)


def test_functions_of_the_model_are_inlined() -> None:
    body = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Relu", ["sum"], ["c"]),
    ]
    function = helper.make_function(
        "own", "AddRelu", ["a", "b"], ["c"], body, [helper.make_opsetid("", 17)]
    )
    graph = helper.make_graph(
        [helper.make_node("AddRelu", ["x", "x"], ["y"], domain="own")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (2, 3))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 3))],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    model = helper.make_model(graph, functions=[function], opset_imports=imports, ir_version=9)
    compare(run_imported(model, {"x": X}), [np.maximum(2 * X, 0)])


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("value", [True, False])
def test_a_choice(known: bool, value: bool) -> None:
    def branch(kind: str) -> onnx.GraphProto:
        out = helper.make_tensor_value_info("r", TensorProto.FLOAT, (2, 3))
        return helper.make_graph([helper.make_node(kind, ["x"], ["r"])], kind, [], [out])

    node = helper.make_node(
        "If", ["c"], ["y"], then_branch=branch("Relu"), else_branch=branch("Neg")
    )
    flag = {"c": np.array(value)}
    feeds = {"x": X} if known else {"x": X, **flag}
    model = model_of([node], feeds, flag if known else {}, ["y"], 17)
    compare(run_imported(model, feeds), [np.maximum(X, 0) if value else -X])


def test_all_unknown_operators_are_named_at_once() -> None:
    nodes = [
        helper.make_node("Nowhere", ["x"], ["a"], name="one", domain="com.microsoft"),
        helper.make_node("Elsewhere", ["a"], ["b"], name="two", domain="com.microsoft"),
        helper.make_node("Nowhere", ["b"], ["y"], name="three", domain="com.microsoft"),
    ]
    model = model_of(nodes, {"x": X}, {}, ["y"], 17)
    with pytest.raises(tvm.error.OpNotImplemented) as raised:
        relay.frontend.from_onnx(model)
    text = str(raised.value)
    assert "com.microsoft.Nowhere (opset 1): one, three" in text
    assert "com.microsoft.Elsewhere (opset 1): two" in text


def test_mistakes_are_named() -> None:
    with pytest.raises(ValueError, match="these bytes are no ONNX model"):
        relay.frontend.from_onnx(b"\xff\xfe not a model")
    with pytest.raises(TypeError, match="a model, the path of one or its bytes, not int"):
        relay.frontend.from_onnx(3)
    with pytest.raises(ValueError, match=r"shape names 'image'.*its inputs are x"):
        relay.frontend.from_onnx(small_model(), {"image": (2, 3)})
    with pytest.raises(ValueError, match="'x' has 2 dimensions in the model; shape= gives it 3"):
        relay.frontend.from_onnx(small_model(), {"x": (2, 3, 4)})
    with pytest.raises(ValueError, match="convert_config knows"):
        relay.frontend.from_onnx(small_model(), convert_config={"fast": True})


def test_broken_graphs_are_named() -> None:
    model = small_model()
    model.graph.node[1].input[1] = "missing"
    with pytest.raises(ValueError, match=r"node 'first' \(MatMul\) reads 'missing'"):
        relay.frontend.from_onnx(model)
    model = small_model()
    model.graph.node[1].input[0] = "y"
    with pytest.raises(ValueError, match="depends on itself"):
        relay.frontend.from_onnx(model)
    model = small_model()
    model.graph.output[0].name = "nothing"
    with pytest.raises(ValueError, match="output 'nothing' is the result of no node"):
        relay.frontend.from_onnx(model)
    model = small_model()
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(W.T.copy(), "w"))
    with pytest.raises(ValueError, match=r"node 'first' \(MatMul\)"):
        relay.frontend.from_onnx(model)


def test_a_name_for_every_node_can_be_written(tmp_path: Path) -> None:
    model = small_model()
    del model.graph.node[0]
    model.graph.node[0].name = ""
    model.graph.output[0].name = "product"
    path = tmp_path / "named.onnx"
    relay.frontend.from_onnx(model, export_node_renamed_model_path=str(path))
    assert [node.name for node in onnx.load(path).graph.node] == ["product"]


def test_onnx_is_loaded_when_a_model_is_imported() -> None:
    code = "import sys; from sterna import relay; relay.frontend; assert 'onnx' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
