"""Models of several open dimensions, one program for all extents, beside ONNX Runtime."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

import sterna
from sterna import relay
from sterna.model.open_model import OpenModel
from sterna.relay.arrays import Array
from tests.frontend.support import compare, run_evaluator, run_imported, run_reference

DRAWN = np.random.default_rng(3)
EXTENTS = ({"N": 2, "S": 3, "P": 0}, {"N": 3, "S": 6, "P": 4})


@dataclass(frozen=True)
class Case:
    """A graph, and inputs whose shapes have names; a number behind is how many integers exist."""

    name: str
    nodes: list[NodeProto]
    inputs: dict[str, tuple[Any, ...]]
    weights: dict[str, Array] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("y",)
    opset: int = 18
    below: int = 0
    is_in_runtime: bool = True

    def model(self) -> ModelProto:
        """Its model; inputs that are named in capitals are integers."""
        entries = [
            helper.make_tensor_value_info(
                name, TensorProto.INT64 if name.isupper() else TensorProto.FLOAT, shape
            )
            for name, shape in self.inputs.items()
        ]
        graph = helper.make_graph(
            self.nodes, "open", entries, [ValueInfoProto(name=name) for name in self.outputs],
            [numpy_helper.from_array(np.asarray(v), name) for name, v in self.weights.items()],
        )
        version = 9 if self.opset < 21 else 11
        opsets = [helper.make_opsetid("", self.opset)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=version)

    def draw(self, extents: dict[str, int]) -> dict[str, Array]:
        """Inputs of some extents."""
        shapes = {n: [extents.get(d, d) for d in shape] for n, shape in self.inputs.items()}
        return {
            name: DRAWN.integers(0, self.below, shape) if name.isupper()
            else DRAWN.standard_normal(shape).astype("float32")
            for name, shape in shapes.items()
        }


def n(kind: str, inputs: str, outputs: str = "y", **attrs: Any) -> NodeProto:
    """A node; - stands for an operand that is left out."""
    given = ["" if name == "-" else name for name in inputs.split()]
    return helper.make_node(kind, given, outputs.split(), **attrs)


def drawn(*shape: int) -> Array:
    return DRAWN.standard_normal(shape).astype("float32")


def _scanned() -> Any:
    kinds = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "hxgo"]
    nodes = [n("Add", "h x", "g"), n("Tanh", "g", "o")]
    return helper.make_graph(nodes, "step", kinds[:2], kinds[2:])


def _counted() -> Any:
    def value(name: str, kind: int) -> Any:
        return helper.make_tensor_value_info(name, kind, None)

    floats = [value(name, TensorProto.FLOAT) for name in "hgo"]
    kinds = {"i": TensorProto.INT64, "c": TensorProto.BOOL}
    first = [helper.make_tensor_value_info(name, kind, ()) for name, kind in kinds.items()]
    nodes = [n("Identity", "c", "d"), n("Cast", "i", "f", to=1), n("Sin", "h", "t"),
             n("Add", "t f", "g"), n("Tanh", "g", "o")]
    return helper.make_graph(nodes, "round", [*first, floats[0]],
                             [value("d", TensorProto.BOOL), *floats[1:]])


BATCH = [n("Shape", "x", "s", start=0, end=1), n("Concat", "s k", "z", axis=0)]
IMAGE = {"x": ("N", 3, 8, 6)}
QUERIES = {"q": ("N", 4, "S", 8), "k": ("N", 2, "S", 8), "v": ("N", 2, "S", 8)}
ROWS = {"x": ("N", 5)}
ANGLES = {"c": drawn(9, 4), "s": drawn(9, 4)}
CASES = [
    Case("reshape", [*BATCH, n("Reshape", "x z")], {"x": ("N", 4, 6)}, {"k": np.array([-1])}),
    Case("resize to sizes", [*BATCH, n("Resize", "x - - z", mode="linear")], IMAGE,
         {"k": np.array([3, 5, 9])}),
    Case("resize smoothly", [n("Resize", "x - s", mode="linear", antialias=1)], IMAGE,
         {"s": np.array([1, 1, 0.5, 0.6], "float32")}),
    Case("attention", [n("Attention", "q k v", is_causal=1)], QUERIES, opset=23),
    Case("attention with a mask", [n("Attention", "q k v m")],
         {**QUERIES, "m": ("S", "S")}, opset=23),
    Case("attention of rows", [n("Attention", "q k v", q_num_heads=4, kv_num_heads=4)],
         {"q": ("N", 5, 32), "k": ("N", 7, 32), "v": ("N", 7, 32)}, opset=23),
    Case("attention with a past", [n("Attention", "q k v - a b", "y c d", is_causal=1)],
         {"q": ("N", 4, 1, 8), "k": ("N", 4, 1, 8), "v": ("N", 4, 1, 8),
          "a": ("N", 4, "P", 8), "b": ("N", 4, "P", 8)}, outputs=("y", "c", "d"), opset=23),
    Case("rotary embedding", [n("RotaryEmbedding", "x c s I", num_heads=4)],
         {"x": ("N", "S", 32), "I": ("N", "S")}, ANGLES, opset=23, below=9),
    Case("expand", [n("Expand", "x z")], {"x": ("N", 1, 4)}, {"z": np.array([2, 1, 3, 1])}),
    Case("expand to a batch", [*BATCH, n("Expand", "w z", "t"), n("Add", "t x")],
         {"x": ("N", 5, 4)}, {"w": drawn(1, 1, 4), "k": np.array([5, 1])}),
    Case("cross entropy", [n("SoftmaxCrossEntropyLoss", "x T w", "y l", ignore_index=2)],
         {**ROWS, "T": ("N",)}, {"w": abs(drawn(5))}, ("y", "l"), below=4),
    Case("likelihood", [n("NegativeLogLikelihoodLoss", "x T", reduction="none")],
         {"x": ("N", 5, 3), "T": ("N", 3)}, below=5),
    Case("scan", [n("Scan", "h x", "g y", num_scan_inputs=1, body=_scanned(),
                    scan_input_axes=[1], scan_output_axes=[1])],
         {"h": ("N", 4), "x": ("N", 6, 4)}, outputs=("g", "y")),
    Case("slice backwards", [n("Slice", "x b e a s")], ROWS,
         {"b": np.array([-2, 9]), "e": np.array([-(2**62), -4]), "a": np.array([0, 1]),
          "s": np.array([-1, -2])}),
    Case("slice to an extent", [n("Shape", "x", "e", start=1, end=2), n("Slice", "w b e a", "t"),
                                n("Add", "x t")], {"x": ("N", "S", 4)},
         {"w": drawn(1, 9, 4), "b": np.array([0]), "a": np.array([1])}),
    Case("crop and pad", [n("CenterCropPad", "x z")], {"x": ("N", 5, 6)},
         {"z": np.array([3, 4, 9])}),
    Case("tensor scatter", [n("TensorScatter", "c u I", mode="circular")],
         {"c": ("N", 6, 4), "u": ("N", 3, 4), "I": ("N",)}, opset=24, below=6,
         is_in_runtime=False),
    Case("split", [n("Split", "x", "y z", axis=0, num_outputs=2)], ROWS, outputs=("y", "z")),
    Case("split of the last axis", [n("Split", "x", "y z", axis=-1, num_outputs=2)],
         {"x": (5, "N")}, outputs=("y", "z")),
    Case("gather of the last axis", [n("Gather", "x I", axis=-1)],
         {"x": (1, "N"), "I": (4,)}, below=2),
    Case("range", [n("Shape", "x", "s", start=0, end=1), n("Squeeze", "s", "e"),
                   n("Range", "a e b", "r"), n("Cast", "r", "f", to=1), n("Mul", "f f")],
         ROWS, {"a": np.array(0), "b": np.array(1)}),
    Case("constant", [*BATCH, n("ConstantOfShape", "z", "t"), n("Concat", "x t", axis=1)],
         ROWS, {"k": np.array([3])}),
    Case("scan of any length", [n("Scan", "h x", "g y", num_scan_inputs=1, body=_scanned(),
                                  scan_input_directions=[1])],
         {"h": ("N", 4), "x": ("S", "N", 4)}, outputs=("g", "y")),
    Case("loop of so many rounds", [n("Shape", "x", "s", start=1, end=2), n("Squeeze", "s a", "e"),
                                    n("Loop", "e - h", "g y", body=_counted())],
         {"h": ("N", 4), "x": ("N", "S")}, {"a": np.array([0])}, outputs=("g", "y")),
    Case("convolution that halves", [n("Conv", "x w", auto_pad="SAME_UPPER", strides=[2, 2])],
         {"x": ("N", 3, "S", 5)}, {"w": drawn(4, 3, 3, 3)}),
    Case("pad to a length", [n("Shape", "x", "s", start=1, end=2), n("Sub", "k s", "e"),
                             n("Concat", "z e", "p", axis=0), n("Pad", "x p - a")],
         {"x": ("N", "S")}, {"k": np.array([5]), "z": np.array([1]), "a": np.array([1])}),
    Case("resize of open pixels", [n("Resize", "x - s", mode="linear")], {"x": ("N", 2, "S", 4)},
         {"s": np.array([1, 1, 2, 0.5], "float32")}),
    Case("resize to open pixels", [n("Shape", "z", "s", start=1), n("Concat", "k s", "t", axis=0),
                                   n("Resize", "x - - t", mode="cubic")],
         {"x": (1, 2, "S", 4), "z": ("P", "S", 7)}, {"k": np.array([1, 2])}),
    Case("softmax of all", [n("Softmax", "x", axis=0)], ROWS, opset=11),
    Case("flatten", [n("Flatten", "x", axis=1)], {"x": ("N", "S", 3)}),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_one_program_serves_all_extents(case: Case) -> None:
    model = case.model()
    compiled = sterna.compile(model)
    assert isinstance(compiled, OpenModel)
    assert compiled.is_symbolic, compiled.why_not_symbolic
    for extents in EXTENTS:
        feeds = case.draw(extents)
        made = compiled(**feeds)
        results = made if isinstance(made, list | tuple) else [made]
        wanted = (run_reference if case.is_in_runtime else run_evaluator)(model, feeds)
        compare([np.asarray(each) for each in results], wanted, 1e-4)
    assert compiled.compiled == 1


@pytest.mark.parametrize("name", ["resize to sizes", "crop and pad", "expand", "split", "scan"])
def test_graphs_of_relay_keep_a_batch_open(name: str) -> None:
    (case,) = (each for each in CASES if each.name == name)
    model = case.model()
    for extents in EXTENTS:
        feeds = case.draw(extents)
        compare(run_imported(model, feeds), run_reference(model, feeds), 1e-4)


def test_machines_compute_shapes_of_open_graphs() -> None:
    case = next(each for each in CASES if each.name == "expand to a batch")
    model = case.model()
    module, params = relay.frontend.from_onnx(model)
    run = relay.create_executor("vm", module, sterna.cpu(), "llvm", params).evaluate()
    for extents in EXTENTS:
        feeds = case.draw(extents)
        compare([run(feeds["x"]).numpy()], run_reference(model, feeds), 1e-4)
