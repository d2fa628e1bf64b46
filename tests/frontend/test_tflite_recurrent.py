"""Layers that keep a state from call to call, beside what LiteRT computes in several calls."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from ai_edge_litert.interpreter import Interpreter

from sterna.frontend.tflite.state import initial_state
from sterna.relay.arrays import Array
from sterna.support.errors import OpNotImplemented
from tests.frontend.test_tflite_quantized import HAS_MICRO
from tests.frontend.tflite_models import (
    Graph,
    Op,
    T,
    constant,
    model,
    one_operator,
    run_imported,
    run_litert,
    run_micro,
)

BATCH, STEPS, DEPTH, UNITS, OUT = 2, 3, 5, 7, 4
TANH, RELU = 4, 1


def calls_of_litert(data: bytes, inputs: Sequence[Array]) -> list[Array]:
    interpreter = Interpreter(model_content=data)
    interpreter.allocate_tensors()
    made = []
    for array in inputs:
        interpreter.set_tensor(interpreter.get_input_details()[0]["index"], array)
        interpreter.invoke()
        made.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    return made


def calls_of_imported(data: bytes, inputs: Sequence[Array], **more: Any) -> list[Array]:
    """States are handed back as they come."""
    states, made = list(initial_state(data).values()), []
    for array in inputs:
        result, *states = run_imported(data, array, *states, **more)
        made.append(result)
    return made


def expect_near(data: bytes, inputs: Sequence[Array]) -> None:
    for mine, theirs in zip(calls_of_imported(data, inputs), calls_of_litert(data, inputs),
                            strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def floats(seed: int, *shape: int) -> Array:
    return (np.random.default_rng(seed).standard_normal(shape) * 0.7).astype(np.float32)


def lstm(
    additions: Sequence[str], options: Mapping[str, float], time_major: bool = False,
    is_whole: bool = False,
) -> bytes:
    out = OUT if "projection" in additions else UNITS
    first = 1 if "coupled" in additions else 0

    def weights(seed: int, *shape: int) -> T:
        return whole(seed, *shape) if is_whole else constant(floats(seed, *shape))

    def gates(seed: int, used: bool, *shape: int) -> list[T | None]:
        kind = weights if seed <= 30 else lambda *each: constant(floats(*each))
        return [kind(seed + gate, *shape) if used and gate >= first else None
                for gate in range(4)]

    peepholes = gates(30, "peepholes" in additions, UNITS)
    projection = "projection" in additions
    operands: list[T | None] = [
        T((BATCH, STEPS, DEPTH) if not time_major else (STEPS, BATCH, DEPTH)),
        *gates(10, True, UNITS, DEPTH), *gates(20, True, UNITS, out),
        peepholes[0], peepholes[1], peepholes[3], *gates(40, True, UNITS),
        weights(50, OUT, UNITS) if projection else None,
        constant(floats(51, OUT)) if projection else None,
        T((BATCH, out), is_variable=True), T((BATCH, UNITS), is_variable=True),
        *gates(60, "norms" in additions, UNITS),
    ]
    shape = (BATCH, STEPS, out) if not time_major else (STEPS, BATCH, out)
    return one_operator("UNIDIRECTIONAL_SEQUENCE_LSTM", operands, [T(shape)], (
        "UnidirectionalSequenceLSTMOptions",
        {"fusedActivationFunction": TANH, "timeMajor": time_major, **options}))


@pytest.mark.parametrize("additions", [
    (), ("coupled",), ("peepholes",), ("projection",), ("norms",),
    ("coupled", "peepholes", "projection", "norms"),
], ids=lambda names: "_".join(names) or "plain")
@pytest.mark.parametrize("clips", [{}, {"cellClip": 0.4, "projClip": 0.3}], ids=["free", "clipped"])
def test_an_lstm_of_floats(additions: tuple[str, ...], clips: dict[str, float]) -> None:
    expect_near(lstm(additions, clips), [floats(seed, BATCH, STEPS, DEPTH) for seed in (1, 2)])


def test_an_lstm_whose_steps_are_first() -> None:
    inputs = [floats(seed, STEPS, BATCH, DEPTH) for seed in (1, 2)]
    expect_near(lstm(("peepholes",), {}, time_major=True), inputs)


@pytest.mark.parametrize("kind", ["RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"])
@pytest.mark.parametrize("activation", [TANH, RELU])
def test_a_plain_recurrent_layer(kind: str, activation: int) -> None:
    is_single = kind == "RNN"
    shape = (BATCH, DEPTH) if is_single else (BATCH, STEPS, DEPTH)
    data = one_operator(kind, [
        T(shape), constant(floats(3, UNITS, DEPTH)), constant(floats(4, UNITS, UNITS)),
        constant(floats(5, UNITS)), T((BATCH, UNITS), is_variable=True),
    ], [T((*shape[:-1], UNITS))], (
        "RNNOptions" if is_single else "SequenceRNNOptions",
        {"fusedActivationFunction": activation}))
    expect_near(data, [floats(seed, *shape) for seed in (1, 2, 3)])


@pytest.mark.parametrize("time_major", [False, True])
@pytest.mark.parametrize("merged", [False, True])
@pytest.mark.parametrize("kind", ["LSTM", "RNN"])
def test_layers_in_both_directions(kind: str, merged: bool, time_major: bool) -> None:
    shape = (STEPS, BATCH) if time_major else (BATCH, STEPS)
    operands: list[T | None] = [T((*shape, DEPTH))]
    states: list[T | None] = []
    for way in (100, 200):  # where seeds begin
        if kind == "RNN":
            operands += [
                constant(floats(way, UNITS, DEPTH)), constant(floats(way + 1, UNITS, UNITS)),
                constant(floats(way + 2, UNITS)), T((BATCH, UNITS), is_variable=True)]
            continue
        extents = ((UNITS, DEPTH),) * 4 + ((UNITS, UNITS),) * 4 + ((UNITS,),) * 7
        operands += [constant(floats(way + n, *extent)) for n, extent in enumerate(extents)]
        operands += [None, None]
        states += [T((BATCH, UNITS), is_variable=True)] * 2
    operands += [*states, *[None] * (9 if kind == "LSTM" else 3)]
    results = [T((*shape, 2 * UNITS))] if merged else [T((*shape, UNITS))] * 2
    data = one_operator(f"BIDIRECTIONAL_SEQUENCE_{kind}", operands, results, (
        f"BidirectionalSequence{kind}Options",
        {"fusedActivationFunction": TANH, "timeMajor": time_major, "mergeOutputs": merged}))
    x = floats(1, *shape, DEPTH)
    made = run_imported(data, x, *initial_state(data).values())
    # where it joins results, LiteRT looks for the states of all but the first sequence elsewhere
    known = slice(1 if merged and kind == "LSTM" and not time_major else None)
    for mine, theirs in zip(made, run_litert(data, x), strict=False):
        np.testing.assert_allclose(mine[known], theirs[known], rtol=1e-5, atol=1e-5)


def whole(seed: int, *shape: int, dtype: str = "int8") -> T:
    """Weights of bytes with one scale."""
    made = np.random.default_rng(seed).integers(-127, 128, shape).astype("int8")
    return T(shape, dtype, made.view(dtype), scale=0.006 + seed / 9000)


@pytest.mark.parametrize("is_whole", [False, True], ids=["magnitude", "range"])
@pytest.mark.parametrize("kind", ["RNN", "UNIDIRECTIONAL_SEQUENCE_RNN"])
def test_a_plain_recurrent_layer_of_whole_weights(kind: str, is_whole: bool) -> None:
    is_single = kind == "RNN"
    shape = (BATCH, DEPTH) if is_single else (BATCH, STEPS, DEPTH)
    data = one_operator(kind, [
        T(shape), whole(3, UNITS, DEPTH), whole(4, UNITS, UNITS),
        constant(floats(5, UNITS)), T((BATCH, UNITS), is_variable=True),
    ], [T((*shape[:-1], UNITS))], (
        "RNNOptions" if is_single else "SequenceRNNOptions",
        {"fusedActivationFunction": TANH, "asymmetricQuantizeInputs": is_whole}))
    expect_near(data, [floats(seed, *shape) for seed in (1, 2, 3)])


@pytest.mark.parametrize("is_whole", [False, True], ids=["magnitude", "range"])
@pytest.mark.parametrize("additions", [
    (), ("coupled",), ("peepholes",), ("projection",), ("norms",),
], ids=lambda names: "_".join(names) or "plain")
def test_an_lstm_of_whole_weights(additions: tuple[str, ...], is_whole: bool) -> None:
    data = lstm(additions, {"asymmetricQuantizeInputs": is_whole}, is_whole=True)
    expect_near(data, [floats(seed, BATCH, STEPS, DEPTH) for seed in (1, 2)])


def test_weights_of_other_whole_numbers_are_refused() -> None:
    short = T((UNITS, DEPTH), "int16", np.ones((UNITS, DEPTH), "int16"), scale=0.1)
    data = one_operator("RNN", [
        T((BATCH, DEPTH)), short, constant(floats(4, UNITS, UNITS)), constant(floats(5, UNITS)),
        T((BATCH, UNITS), is_variable=True),
    ], [T((BATCH, UNITS))], ("RNNOptions", {"fusedActivationFunction": TANH}))
    with pytest.raises(OpNotImplemented, match="floats by weights of int16"):
        run_imported(data, floats(1, BATCH, DEPTH))


RANK, MEMORY = 2, 6


@pytest.mark.parametrize("activation", [0, RELU])
def test_svdf_of_floats(activation: int) -> None:
    filters = UNITS * RANK
    data = one_operator("SVDF", [
        T((BATCH, DEPTH)), constant(floats(3, filters, DEPTH)),
        constant(floats(4, filters, MEMORY)), constant(floats(5, UNITS)),
        T((BATCH, filters * MEMORY), is_variable=True),
    ], [T((BATCH, UNITS))], ("SVDFOptions", {"rank": RANK, "fusedActivationFunction": activation}))
    expect_near(data, [floats(seed, BATCH, DEPTH) for seed in range(8)])


@pytest.mark.parametrize("is_whole", [False, True], ids=["magnitude", "range"])
def test_svdf_of_whole_weights(is_whole: bool) -> None:
    filters = UNITS * RANK
    data = one_operator("SVDF", [
        T((BATCH, DEPTH)), whole(3, filters, DEPTH), whole(4, filters, MEMORY),
        constant(floats(5, UNITS)), T((BATCH, filters * MEMORY), is_variable=True),
    ], [T((BATCH, UNITS))], ("SVDFOptions", {
        "rank": RANK, "fusedActivationFunction": RELU, "asymmetricQuantizeInputs": is_whole}))
    expect_near(data, [floats(seed, BATCH, DEPTH) for seed in range(8)])


def test_svdf_of_bytes() -> None:
    """LiteRT has no kernel for a state of 8 bits."""
    rng = np.random.default_rng(2)
    state, filters, scales = "int16", UNITS * RANK, (0.05, 0.01, 0.02, 0.0004)
    weights = [rng.integers(-127, 128, shape).astype(dtype) for shape, dtype in (
        ((filters, DEPTH), "int8"), ((filters, MEMORY), state))]
    data = one_operator("SVDF", [
        T((BATCH, DEPTH), "int8", scale=scales[0], zero=4),
        T(weights[0].shape, "int8", weights[0], scale=scales[1]),
        T(weights[1].shape, state, weights[1], scale=scales[2]),
        T((UNITS,), "int32", rng.integers(-500, 500, UNITS).astype("int32"),
          scale=scales[2] * scales[3]),
        T((BATCH, filters * MEMORY), state, scale=scales[3], is_variable=True),
    ], [T((BATCH, UNITS), "int8", scale=0.05, zero=-9)],
        ("SVDFOptions", {"rank": RANK, "fusedActivationFunction": RELU}))
    inputs = [rng.integers(-128, 128, (BATCH, DEPTH)).astype("int8") for _ in range(8)]
    for rounding in ("xnnpack", "tflm"):
        for mine, theirs in zip(calls_of_imported(data, inputs, rounding=rounding),
                                calls_of_litert(data, inputs), strict=True):
            np.testing.assert_array_equal(mine, theirs)


def lstm_of_bytes(steps: int) -> bytes:
    """A layer of random weights over bytes, whose cell has 16 bits of which 4 are whole."""
    rng = np.random.default_rng(0)
    scale, hidden, weight, cell = 0.05, 1 / 128, 0.01, 2.0**-11
    tensors = [T((BATCH, steps, DEPTH), "int8", scale=scale, zero=3)]
    for depth in [DEPTH] * 4 + [UNITS] * 4:
        whole = rng.integers(-127, 128, (UNITS, depth)).astype("int8")
        tensors.append(T(whole.shape, "int8", whole, scale=weight))
    for _ in range(4):
        bias = rng.integers(-2000, 2000, UNITS).astype("int32")
        tensors.append(T((UNITS,), "int32", bias, scale=scale * weight))
    tensors += [
        T((BATCH, UNITS), "int8", scale=hidden, zero=-5, is_variable=True),
        T((BATCH, UNITS), "int16", scale=cell, is_variable=True),
        T((BATCH, steps, UNITS), "int8", scale=hidden, zero=-5),
        *(T((0,), "int16", scale=2.0**-12) for _ in range(4)),
        T((0,), "int8", scale=hidden, zero=-5),
    ]
    none = [-1]
    op = Op("UNIDIRECTIONAL_SEQUENCE_LSTM",
            [*range(9), *none * 3, *range(9, 13), *none * 2, 13, 14, *none * 4], [15],
            ("UnidirectionalSequenceLSTMOptions", {"fusedActivationFunction": TANH}),
            intermediates=range(16, 21))
    return model(Graph(tensors, [op], [0], [15]))


@pytest.mark.skipif(not HAS_MICRO, reason="TFLite Micro is there for x86-64 alone")
@pytest.mark.parametrize("seed", range(3))
def test_lstm_of_bytes_by_the_rule_of_microcontrollers(seed: int) -> None:
    steps = 20
    data = lstm_of_bytes(steps)
    x = np.random.default_rng(seed).integers(-128, 128, (BATCH, steps, DEPTH)).astype("int8")
    states = [np.full((BATCH, UNITS), -5, "int8"), np.zeros((BATCH, UNITS), "int16")]
    wanted = run_micro(data, x)
    assert wanted is not None
    made = run_imported(data, x, *states, rounding="tflm")
    np.testing.assert_array_equal(made[0], wanted[0])
