"""Spectra, windows, and random numbers."""

import numpy as np

from sterna.frontend.calls import call, cast, dtype_of, rank_of
from sterna.frontend.onnx.convert_elementwise import element_type
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.expr import RelayExpr

_WINDOWS = {
    "HannWindow": "signal.hann_window", "HammingWindow": "signal.hamming_window",
    "BlackmanWindow": "signal.blackman_window",
}


@converter(*_WINDOWS)
def window(node: Node) -> RelayExpr:
    size, periodic = int(node.number(0, "size")), bool(node.attr("periodic", 1))
    dtype = element_type(node.attr("output_datatype", 1))
    return call(_WINDOWS[node.kind], size=size, periodic=periodic, dtype=dtype)


@converter("MelWeightMatrix")
def mel_weight_matrix(node: Node) -> RelayExpr:
    names = ("num_mel_bins", "dft_length", "sample_rate", "lower_edge_hertz", "upper_edge_hertz")
    given = {name: node.number(place, name) for place, name in enumerate(names)}
    dtype = element_type(node.attr("output_datatype", 1))
    return call("signal.mel_weight_matrix", dtype=dtype, **given)


@converter("DFT", since=17)
def dft(node: Node) -> RelayExpr:
    if node.opset < 20:
        axis = node.attr("axis", 1)
    else:
        axis = int(node.number(2, "axis")) if node.has(2) else -2
    length = int(node.number(1, "dft_length")) if node.has(1) else None
    inverse, half = bool(node.attr("inverse", 0)), bool(node.attr("onesided", 0))
    exact = cast(node[0], "float64")  # by definition sums of float64, rounded once
    made = call("signal.dft", exact, axis=axis, length=length, inverse=inverse, onesided=half)
    return cast(made, dtype_of(node[0]))


@converter("STFT", since=17)
def stft(node: Node) -> RelayExpr:
    data = node[0] if rank_of(node[0]) == 3 else call("expand_dims", node[0], 2)
    step = int(node.number(1, "frame_step"))
    if node.has(2):
        frame = node[2]
    else:
        frame = call("ones", (int(node.number(3, "frame_length")),), dtype_of(data))
    half = bool(node.attr("onesided", 1))
    return call("signal.stft", data, frame, frame_step=step, onesided=half)


# ---- random numbers ----


def _seed(node: Node) -> int:
    """A seed by the node's own, which ONNX writes as a float, so that runs repeat."""
    return int(np.float32(node.attr("seed", 0.0)).view("uint32"))


@converter("RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike")
def random(node: Node) -> RelayExpr:
    is_like = node.kind.endswith("Like")
    own = dtype_of(node[0]) if is_like else "float32"
    number = node.attr("dtype")
    dtype = own if number is None else element_type(number)
    shape = node.shape() if is_like else tuple(node.attr("shape"))
    if node.kind.startswith("RandomNormal"):
        mean, scale = node.attr("mean", 0.0), node.attr("scale", 1.0)
        return call("random.seeded_normal", shape=shape, mean=mean, scale=scale,
                    seed=_seed(node), dtype=dtype)
    low, high = node.attr("low", 0.0), node.attr("high", 1.0)
    return call("random.seeded_uniform", shape=shape, low=low, high=high, seed=_seed(node),
                dtype=dtype)


@converter("Bernoulli")
def bernoulli(node: Node) -> RelayExpr:
    number = node.attr("dtype")
    dtype = dtype_of(node[0]) if number is None else element_type(number)
    return call("random.bernoulli", node[0], seed=_seed(node), dtype=dtype)


@converter("Multinomial")
def multinomial(node: Node) -> RelayExpr:
    dtype = element_type(node.attr("dtype", 6))
    count = node.attr("sample_size", 1)
    return call("random.seeded_multinomial", node[0], num_samples=count, seed=_seed(node),
                dtype=dtype)
