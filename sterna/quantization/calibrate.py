"""The calibrating run: the float model runs on samples and shows all tensors to be quantised."""

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sterna.quantization.histogram import Histogram
from sterna.quantization.onnx_graph import OnnxGraph
from sterna.quantization.plan import Plan
from sterna.quantization.runner import Runner, Sample, expect_finite
from sterna.relay.arrays import Array
from sterna.support.progress import stage

# Samples that are enough for means of channels.
MOST_MEANS = 24


@dataclass(slots=True)
class Calibration:
    """What the run has shown: histograms of tensors, and how many samples there were."""

    seen: dict[str, Histogram]
    samples: int
    means: Sequence[Mapping[str, Array]]
    """Of the first samples, the mean of each channel that a layer makes."""
    spaces: Mapping[str, int]
    """How many axes are behind the channels of what layers make."""


def calibrate(graph: OnnxGraph, plan: Plan, samples: Iterable[Sample]) -> Calibration:
    """Count the numbers of all quantised tensors, and give the layers patches of their inputs."""
    seen = {name: Histogram() for name in plan.tensors}
    inside = [name for name in plan.tensors if name not in graph.inputs]
    generators = {id(layer): np.random.default_rng(zlib.crc32(layer.name.encode()))
                  for layer in plan.layers}
    spaces = {layer.result: layer.space for layer in plan.layers}
    wanted = list(dict.fromkeys([*inside, *spaces]))
    runner, count = None, 0
    means: list[Mapping[str, Array]] = []
    with stage("look at tensors"):
        for sample in samples:
            if runner is None:
                runner = Runner(graph.to_model(wanted), sample)
            tensors: dict[str, Array] = {**sample, **runner(sample)}
            expect_finite(tensors)
            for name, histogram in seen.items():
                histogram.add(tensors[name])
            for layer in plan.layers:
                patches = layer.patches(tensors[layer.data], generators[id(layer)])
                if patches is not None:
                    layer.products.offer(patches)
            if count < MOST_MEANS:
                means.append(channel_means(tensors, spaces))
            count += 1
    return Calibration(seen, count, means, spaces)


def channel_means(made: Mapping[str, Array], spaces: Mapping[str, int]) -> dict[str, Array]:
    """The mean of each channel of some results, behind which there are so many axes of space."""
    found = {}
    for name, space in spaces.items():
        value = np.moveaxis(made[name], -1 - space, -1)
        found[name] = value.reshape(-1, value.shape[-1]).mean(0, dtype=np.float64)
    return found
