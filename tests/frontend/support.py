"""Small ONNX models, imported and held against ONNX Runtime."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import ModelProto, NodeProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from sterna.frontend import from_onnx
from sterna.relay.arrays import Array
from sterna.relay.interpreter import interpret
from tests.support import require_module


def model_of(
    nodes: Sequence[NodeProto], feeds: dict[str, Array], weights: dict[str, Array],
    outputs: Sequence[str], opset: int,
) -> ModelProto:
    """A model of these nodes with inputs like the arrays, and what ONNX finds out of shapes."""
    return onnx.shape_inference.infer_shapes(bare_model(nodes, feeds, weights, outputs, opset))


def bare_model(
    nodes: Sequence[NodeProto], feeds: dict[str, Array], weights: dict[str, Array],
    outputs: Sequence[str], opset: int,
) -> ModelProto:
    """A model of these nodes with inputs like the arrays."""
    inputs = [
        helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )
        for name, array in feeds.items()
    ]
    graph = helper.make_graph(
        list(nodes), "test", inputs,
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    domains = {"com.microsoft": 1, "ai.onnx.preview": 1, "ai.onnx.preview.training": 1}
    imports = [helper.make_opsetid(*pair) for pair in [("", opset), *domains.items()]]
    return helper.make_model(graph, opset_imports=imports, ir_version=9)


def run_reference(model: ModelProto, feeds: dict[str, Array], fuses: bool = True) -> list[Array]:
    """What ONNX Runtime computes; unless it fuses, node by node."""
    require_module("onnxruntime")
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    if not fuses:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found: list[Array] = session.run(None, feeds)
    return found


def run_evaluator(model: ModelProto, feeds: dict[str, Array]) -> list[Array]:
    """What ONNX's own evaluator computes, which knows every operator."""
    return list(ReferenceEvaluator(model).run(None, feeds))


def run_imported(model: ModelProto, feeds: dict[str, Array], **options: Any) -> list[Array]:
    """What the imported graph computes by the operators' references."""
    mod, params = from_onnx(model, **options)
    main = mod["main"]
    given = {**feeds, **{name: value.numpy() for name, value in params.items()}}
    found = interpret(main, *[given[param.name_hint] for param in main.params], mod=mod)
    return list(found) if isinstance(found, tuple) else [found]


def compare(got: Sequence[Array], want: Sequence[Array], tolerance: float = 1e-5) -> None:
    """The same shapes, types and numbers."""
    assert len(got) == len(want)
    for mine, theirs in zip(got, want, strict=True):
        assert mine.shape == theirs.shape
        assert mine.dtype == theirs.dtype
        np.testing.assert_allclose(mine, theirs, rtol=tolerance, atol=tolerance)


def check(
    kind: str, *inputs: Any, opset: int = 17, weights: Sequence[int] = (), outputs: int = 1,
    tolerance: float = 1e-5, domain: str = "", reference: Any = run_reference, **attrs: Any,
) -> None:
    """One node for these arrays (None: left out), of which those at weights belong to the model."""
    names = ["" if value is None else f"x{place}" for place, value in enumerate(inputs)]
    results = [f"y{place}" for place in range(outputs)]
    node = helper.make_node(kind, names, results, name="tested", domain=domain, **attrs)
    arrays = {f"x{i}": np.asarray(v) for i, v in enumerate(inputs) if v is not None}
    held = {name: v for name, v in arrays.items() if int(name[1:]) in weights}
    feeds = {name: v for name, v in arrays.items() if name not in held}
    model = model_of([node], feeds, held, results, opset)
    want = reference(model, feeds)
    compare(run_imported(model, feeds), want, tolerance)
    compare(run_imported(model, feeds, freeze_params=False), want, tolerance)
