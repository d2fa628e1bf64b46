"""Post-training quantisation of a float model by samples: ONNX in, QDQ ONNX out."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import ModelProto

from sterna.frontend.onnx.model import Source
from sterna.quantization.affine import Affine
from sterna.quantization.bias_correction import correct_biases
from sterna.quantization.calibrate import calibrate
from sterna.quantization.equalise import equalise
from sterna.quantization.onnx_graph import OnnxGraph
from sterna.quantization.onnx_layers import Layer, find_layers, is_narrow_first
from sterna.quantization.plan import Plan, make_plan
from sterna.quantization.prepare import prepare
from sterna.quantization.products import Products
from sterna.quantization.ranges import OWN_SHARES, choose_scheme
from sterna.quantization.report import Agreement, LayerReport, QuantizationReport
from sterna.quantization.rounding import REACH, rounded
from sterna.quantization.runner import Runner
from sterna.quantization.samples import Samples
from sterna.quantization.write_qdq import LARGEST_BIAS, LayerWeights, write_qdq
from sterna.support.progress import stage

ACTIVATIONS = ("uint8", "int8")
# Ranges that are less than so many times as wide as others are taken for the same.
MUCH = 1.1


# Into how many parts what was left in float is divided, of which each is tried in integers.
PARTS = (2, 4, 8)


@dataclass(frozen=True, slots=True)
class QuantizedModel:
    """A model in QDQ form, and what quantising it has cost."""

    model: ModelProto
    report: QuantizationReport


def quantize(
    model: Source,
    data: Iterable[Any],
    *,
    keep_accuracy: float | None = None,
    keep_float: Sequence[str] = (),
    activations: str = "uint8",
    bias_correction: bool = True,
    sample_names: Sequence[str] = (),
) -> QuantizedModel:
    """Quantise a float ONNX model: weights to int8 for each channel, activations to 8 bits.

    data: samples, each a dictionary of inputs by name, or an array where there is one input.
    keep_accuracy: the share of results that may change, such as 0.01; the layers that hurt most
        stay in float until no more do.
    keep_float: names of nodes that stay in float.
    activations: uint8 or int8.
    sample_names: what messages call the samples, such as names of files.
    """
    if activations not in ACTIVATIONS:
        raise ValueError(f"activations are uint8 or int8, not {activations!r}")
    if keep_accuracy is not None and not 0 <= keep_accuracy < 1:
        raise ValueError(f"keep_accuracy is a share from 0 to below 1, not {keep_accuracy!r}")
    graph = prepare(model)
    samples = Samples(graph, data, sample_names)
    _expect_nodes(graph, keep_float)
    if not find_layers(graph):
        raise ValueError(
            "the model has no Conv, ConvTranspose, Gemm or MatMul with constant float32 weights; "
            "there is nothing to quantise"
        )
    reference = equalise(graph, samples)
    work = _Work(graph, samples, activations, bias_correction, reference)
    return work.run(keep_accuracy, frozenset(keep_float))


def _expect_nodes(graph: OnnxGraph, names: Sequence[str]) -> None:
    known = {node.name for node in graph.nodes}
    for name in names:
        if name not in known:
            raise ValueError(f"keep_float names '{name}', which is no node of the model")


class _Work:
    def __init__(
        self, graph: OnnxGraph, samples: Samples, dtype: str, bias_correction: bool,
        reference: Sequence[Mapping[str, Any]],
    ) -> None:
        self.graph, self.samples, self.dtype = graph, samples, dtype
        self.bias_correction, self.reference = bias_correction, reference
        self.float_model = graph.to_model()
        layers = find_layers(graph)
        self.narrow = [layer for layer in layers if is_narrow_first(graph, layer, dtype)]
        if len(self.narrow) == len(layers):
            self.narrow = []
        layers = [layer for layer in layers if layer not in self.narrow]
        for layer in layers:
            layer.products.takes_means = bias_correction and layer.can_add
        self.seen = calibrate(graph, make_plan(graph, layers, self.narrow), samples)
        self.products = {layer.name: layer.products for layer in layers}
        self.own_share = OWN_SHARES[0]
        self.schemes: dict[str, Affine] = {}

    def run(self, keep_accuracy: float | None, keep_float: frozenset[str]) -> QuantizedModel:
        kept = [LayerReport.of_float(layer.name, layer.node.op_type, layer.products.weights.size)
                for layer in self.narrow]
        keep_float |= {row.name for row in kept}
        reference = self.reference
        made, errors, agreement = self.best_of_shares(keep_float, reference)
        made, agreement = self.without_drift(made, agreement, reference)
        if keep_accuracy is not None and agreement.loss > keep_accuracy:
            best = self.fewest_in_float(keep_accuracy, keep_float, errors, reference)
            if best is None:
                raise ValueError(
                    f"no layer can be quantised so that at most {keep_accuracy:.2%} of the results "
                    "change"
                )
            made, found, agreement = best
            made, agreement = self.without_drift(made, agreement, reference)
            errors = {**{n: e.left_in_float() for n, e in errors.items()}, **found}
        return QuantizedModel(made, QuantizationReport(
            [*kept, *errors.values()], agreement, self.seen.samples,
            list(self.samples.far_out.values())))

    def fewest_in_float(
        self, loss: float, keep_float: frozenset[str], errors: Mapping[str, LayerReport],
        reference: Sequence[Mapping[str, Any]],
    ) -> tuple[ModelProto, dict[str, LayerReport], Agreement] | None:
        """The model with as many of the worst layers in float as it takes, but those that need not.

        A layer's own error does not say what it does to the outputs: parts of what was left in
        float, the best layers first, become integers again where that loses no more.
        """
        ranked = sorted(errors, key=lambda name: -errors[name].error)
        best = None

        def does(names: Sequence[str]) -> bool:
            nonlocal best
            made, found = self.quantized(keep_float | frozenset(names))
            outcome = self.compare(made, reference)
            if outcome.loss <= loss:
                best = made, found, outcome
            return outcome.loss <= loss

        low, high = 0, len(ranked)  # low layers in float do not do, high do
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (low, middle) if does(ranked[:middle]) else (middle, high)
        left = ranked[:high] if best is not None else []
        for parts in PARTS:
            size = -(-len(left) // parts)
            for end in range(len(left), 0, -size) if len(left) > parts else ():
                fewer = left[: max(end - size, 0)] + left[end:]
                left = fewer if does(fewer) else left
        return best

    def best_of_shares(
        self, keep_float: frozenset[str], reference: Sequence[Mapping[str, Any]]
    ) -> tuple[ModelProto, dict[str, LayerReport], Agreement]:
        """The model by the share of tensors' own errors under which its outputs are nearest."""
        best = None
        for share in OWN_SHARES:
            before, self.own_share = self.schemes, share
            made, errors = self.quantized(keep_float)
            if best is not None and not _differ(before, self.schemes):
                continue
            agreement = self.compare(made, reference)
            if best is None or agreement.error < best[2].error:
                best, chosen = (made, errors, agreement), share
        self.own_share = chosen
        assert best is not None
        return best

    def without_drift(
        self, made: ModelProto, agreement: Agreement, reference: Sequence[Mapping[str, Any]]
    ) -> tuple[ModelProto, Agreement]:
        """The model with biases by the whole network, if that is nearer and loses no more."""
        if not self.bias_correction or len(self.seen.spaces) < 2:
            return made, agreement
        corrected, outputs = correct_biases(
            made, self.seen.means, self.seen.spaces, self.samples)
        found = Agreement.of(reference, outputs)
        is_better = found.error < agreement.error and found.loss <= agreement.loss
        return (corrected, found) if is_better else (made, agreement)

    def compare(self, made: ModelProto, reference: Sequence[Mapping[str, Any]]) -> Agreement:
        """How far the quantised model's outputs are from the float model's."""
        with stage("run the quantised model on samples"):
            runner = Runner(made, next(iter(self.samples)))
            return Agreement.of(reference, runner.over(self.samples))

    def quantized(self, keep_float: frozenset[str]) -> tuple[ModelProto, dict[str, LayerReport]]:
        """The model with all layers quantised but some, and the errors of the layers."""
        graph = OnnxGraph(self.float_model)
        found = find_layers(graph)
        layers = [layer for layer in found if layer.name not in keep_float]
        for layer in layers:
            layer.products = self.products[layer.name]
        plan = make_plan(graph, layers, [layer for layer in found if layer.name in keep_float])
        with stage("choose ranges"):
            self.schemes = schemes = self._schemes(plan)
            made, reports = {}, {}
            for layer in layers:
                made[layer.name], reports[layer.name] = self._layer(
                    graph, layer, schemes[layer.data])
        return write_qdq(graph, plan, schemes, made), reports

    def _schemes(self, plan: Plan) -> dict[str, Affine]:
        found: dict[str, Affine] = {}
        for tensors in plan.groups().values():
            readers = [layer.products for layer in plan.layers if layer.data in tensors]
            seen = [self.seen.seen[name] for name in tensors]
            scheme = choose_scheme(seen, readers, self.dtype, self.own_share)
            found.update(dict.fromkeys(tensors, scheme))
        return found

    def _layer(
        self, graph: OnnxGraph, layer: Layer, data: Affine
    ) -> tuple[LayerWeights, LayerReport]:
        """A layer's weights in integers, and what they and its input cost its outputs."""
        products = layer.products
        whole, scales = products.quantized_weights()
        bias = graph.constants[layer.bias].reshape(-1) if layer.bias else None
        if layer.axis < 0:
            whole, scales = _one_scale(products)
        if bias is not None:
            least = np.abs(bias).reshape(scales.shape) / (data.scale * LARGEST_BIAS)
            if np.any(least > scales):
                scales = np.maximum(scales, least).astype(np.float32)
                whole = rounded(products.weights, scales).astype(np.int8)
        share, means = products.total_error(data, whole * scales[..., None])
        if products.takes_means and np.any(means):
            bias = (np.zeros(means.size, np.float32) if bias is None else bias) - means.reshape(-1)
        histogram = self.seen.seen[layer.data]
        return LayerWeights(whole, scales, bias), LayerReport(
            layer.name, layer.node.op_type, products.weights.size, share,
            (histogram.low, histogram.high), data.ends)


def _differ(some: Mapping[str, Affine], others: Mapping[str, Affine]) -> bool:
    """Whether schemes of the same tensors are so far apart that outputs tell which are better."""
    ratios = [some[name].scale / scheme.scale for name, scheme in others.items()]
    return any(not 1 / MUCH <= ratio <= MUCH for ratio in ratios)


def _one_scale(products: Products) -> tuple[Any, Any]:
    """Weights by one scale for all outputs."""
    reach = np.abs(products.weights).max()
    scales = np.full(products.weights.shape[:2], max(reach / REACH, 2.0**-60), np.float32)
    return rounded(products.weights, scales).astype(np.int8), scales
