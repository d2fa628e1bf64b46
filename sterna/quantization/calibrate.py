"""The calibrating run: the float model runs on samples and shows all tensors to be quantised."""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from sterna.quantization.histogram import Histogram
from sterna.quantization.onnx_graph import OnnxGraph
from sterna.quantization.plan import Plan
from sterna.quantization.runner import Runner, Sample, expect_finite
from sterna.relay.arrays import Array
from sterna.support.progress import stage


@dataclass(slots=True)
class Calibration:
    """What the run has shown: histograms of tensors, and how many samples there were."""

    seen: dict[str, Histogram]
    samples: int


def calibrate(graph: OnnxGraph, plan: Plan, samples: Iterable[Sample]) -> Calibration:
    """Count the numbers of all quantised tensors, and give the layers patches of their inputs."""
    seen = {name: Histogram() for name in plan.tensors}
    inside = [name for name in plan.tensors if name not in graph.inputs]
    generators = {id(layer): np.random.default_rng(zlib.crc32(layer.name.encode()))
                  for layer in plan.layers}
    runner, count = None, 0
    with stage("run the float model on samples"):
        for sample in samples:
            if runner is None:
                runner = Runner(graph.to_model(inside or graph.outputs), sample)
            tensors: dict[str, Array] = {**sample, **runner(sample)}
            expect_finite(tensors)
            for name, histogram in seen.items():
                histogram.add(tensors[name])
            for layer in plan.layers:
                patches = layer.patches(tensors[layer.data], generators[id(layer)])
                if patches is not None:
                    layer.products.offer(patches)
            count += 1
    return Calibration(seen, count)
