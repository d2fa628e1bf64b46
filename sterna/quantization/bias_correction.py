"""Bias correction by the whole network: what rounding adds up to, layer after layer.

The mean of each layer's outputs in the quantised network is brought back to what it is in the float
one, from the first layer to the last, so that each sees what those before it have become.
"""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice

import numpy as np
from onnx import ModelProto, NodeProto, TensorProto, helper

from sterna.quantization.calibrate import channel_means
from sterna.quantization.onnx_graph import OnnxGraph
from sterna.quantization.runner import Runner, Sample
from sterna.quantization.write_qdq import LARGEST_BIAS
from sterna.relay.arrays import Array
from sterna.support.progress import stage


def correct_biases(
    quantized: ModelProto, means: Sequence[Mapping[str, Array]], spaces: Mapping[str, int],
    samples: Iterable[Sample],
) -> tuple[ModelProto, list[dict[str, Array]]]:
    """The quantised model with other biases, and its outputs for the samples.

    means: of each channel that layers make in float, for each of the first samples.
    spaces: how many axes are behind the channels of what layers make.
    """
    graph = OnnxGraph(quantized)
    makers = graph.makers()
    biases = {name: node for name in spaces
              if (node := _bias_of(graph, makers, name)) is not None}
    few = list(islice(samples, len(means)))
    with stage("correct biases"):
        model, probes = _with_probes(graph, biases, spaces)
        runner = Runner(model, {**few[0], **probes})
        for name, node in biases.items():
            made = [channel_means(runner({**sample, **probes}), {name: spaces[name]})
                    for sample in few]
            drift = np.stack([w[name] - m[name] for w, m in zip(means, made, strict=True)])
            units = graph.constants[node.input[1]].astype(np.float64)
            steps = np.rint(_certain(drift) / units)
            bias = np.clip(graph.constants[node.input[0]] + steps, -LARGEST_BIAS, LARGEST_BIAS)
            steps = bias - graph.constants[node.input[0]]
            graph.constants[node.input[0]] = bias.astype(np.int32)
            probe = f"{name}_probe"
            probes[probe] = (steps * units).astype(np.float32).reshape(probes[probe].shape)
        outputs = [{name: made[name] for name in graph.outputs}
                   for made in runner.over({**sample, **probes} for sample in samples)]
    return graph.to_model(), outputs


def _bias_of(
    graph: OnnxGraph, makers: Mapping[str, NodeProto], result: str
) -> NodeProto | None:
    """The node that makes floats of the integers of a layer's bias."""
    for name in makers[result].input[-2:]:
        node = makers.get(name)
        whole = graph.constants.get(node.input[0]) if node is not None else None
        if node is not None and whole is not None and whole.dtype == np.int32:
            return node
    return None


def _with_probes(
    graph: OnnxGraph, biases: Mapping[str, NodeProto], spaces: Mapping[str, int]
) -> tuple[ModelProto, dict[str, Array]]:
    """The model with an input for each layer that is added to its outputs, and what to give it."""
    probed = OnnxGraph(graph.to_model())
    makers, probes = probed.makers(), {}
    for name, node in biases.items():
        channels = graph.constants[node.input[0]].size
        shape = (channels, *(1,) * spaces[name])
        probe, plain = f"{name}_probe", probed.names.unique(f"{name}_plain")
        maker = makers[name]
        maker.output[0] = plain
        probed.nodes.append(helper.make_node("Add", [plain, probe], [name], f"{name}_probed"))
        probed.inputs.append(probe)
        probed.model.graph.input.append(
            helper.make_tensor_value_info(probe, TensorProto.FLOAT, shape))
        probes[probe] = np.zeros(shape, np.float32)
    return probed.to_model(list(dict.fromkeys([*graph.outputs, *biases]))), probes


def _certain(drift: Array) -> Array:
    """What of the mean over samples is no chance: (samples, channels) to (channels)."""
    mean = drift.mean(0)
    chance = drift.var(0) / max(len(drift) - 1, 1)
    made: Array = mean * np.clip(1 - chance / np.maximum(mean * mean, 1e-60), 0, 1)
    return made
