"""Recurrent networks: their references against torch's, their types and mistakes."""

import importlib
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.ir.types import TensorType, TupleType
from sterna.op.gates import ACTIVATIONS, gates_of
from sterna.op.recurrence import schedule_recurrent
from sterna.relay.op import find
from sterna.schedule.kernel import Kernel, Processor
from sterna.te import create_schedule, placeholder
from tests.support import require_module

TIME, BATCH, FEATURES, SIZE = 6, 4, 3, 5
# Where torch keeps each of our gates.
ORDERS = {"rnn": [0], "gru": [1, 0, 2], "lstm": [0, 3, 1, 2]}
OPTIONS: dict[str, dict[str, Any]] = {"rnn": {}, "gru": {"linear_before_reset": True}, "lstm": {}}


def stacked(module: Any, kind: str, name: str) -> np.ndarray:
    """torch's weights of both directions, gates in our order."""
    parts = []
    for suffix in ("", "_reverse"):
        array = getattr(module, f"{name}_l0{suffix}").detach().numpy()
        blocks = np.split(array, len(ORDERS[kind]))
        parts.append(np.concatenate([blocks[place] for place in ORDERS[kind]]))
    return np.stack(parts)


@pytest.mark.parametrize("kind", ["rnn", "gru", "lstm"])
@pytest.mark.parametrize("layout", [0, 1])
def test_references_are_torchs(kind: str, layout: int) -> None:
    require_module("torch")
    torch = importlib.import_module("torch")
    torch.manual_seed(3)
    module = getattr(torch.nn, kind.upper())(FEATURES, SIZE, bidirectional=True)
    x = torch.randn(TIME, BATCH, FEATURES)
    lengths = np.array([6, 4, 3, 1], "int64")
    states = [torch.randn(2, BATCH, SIZE) for _ in range(2 if kind == "lstm" else 1)]
    packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.from_numpy(lengths))
    made, last = module(packed, tuple(states) if kind == "lstm" else states[0])
    padded = torch.nn.utils.rnn.pad_packed_sequence(made, total_length=TIME)[0].detach().numpy()
    want = [padded.reshape(TIME, BATCH, 2, SIZE).swapaxes(1, 2)]
    want += [one.detach().numpy() for one in (last if kind == "lstm" else [last])]

    record = find(f"nn.{kind}")
    assert record.attrs is not None and record.reference is not None
    weights = [stacked(module, kind, name) for name in ("weight_ih", "weight_hh")]
    biases = [stacked(module, kind, name) for name in ("bias_ih", "bias_hh")]
    starts = [state.numpy() for state in states]
    data = x.numpy()
    if layout:
        data, want[0] = data.swapaxes(0, 1), want[0].transpose(2, 0, 1, 3)
        starts = [start.swapaxes(0, 1) for start in starts]
        want[1:] = [one.swapaxes(0, 1) for one in want[1:]]
    given = ("bias", "sequence_lens", "initial_h", "initial_c")[: 2 + len(states)]
    options = {"direction": "bidirectional", "layout": layout, "given": given, **OPTIONS[kind]}
    attrs = record.attrs(**options)
    got = record.reference(attrs, data, [*weights, np.concatenate(biases, 1), lengths, *starts])
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_functions_of_gates() -> None:
    x = np.linspace(-3, 3, 13)
    want = {
        "affine": 1.5 * x + 0.25,
        "hardsigmoid": np.minimum(1, np.maximum(0, 1.5 * x + 0.25)),
        "scaledtanh": 1.5 * np.tanh(0.25 * x),
        "elu": np.array([v if v > 0 else 1.5 * (np.exp(v) - 1) for v in x]),
        "leakyrelu": np.array([v if v > 0 else 1.5 * v for v in x]),
        "thresholdedrelu": np.array([v if v > 1.5 else 0 for v in x]),
        "softplus": np.log(1 + np.exp(x)),
        "softsign": x / (1 + np.abs(x)),
        "relu": np.maximum(x, 0),
        "sigmoid": 1 / (1 + np.exp(-x)),
        "tanh": np.tanh(x),
    }
    assert set(want) == set(ACTIVATIONS)
    for name, values in want.items():
        (gate,) = gates_of([name], [1.5], [0.25], None)
        np.testing.assert_allclose(gate.array(x), values)


def test_constants_go_to_the_functions_that_have_them() -> None:
    first, second, third = gates_of(["Sigmoid", "LeakyRelu", "HardSigmoid"], [0.3], [], None)
    assert (first.alpha, second.alpha, third.alpha, third.beta) == (None, 0.3, 0.2, 0.5)


def test_types_and_mistakes() -> None:
    x = relay.var("x", shape=(7, 2, 3))
    w, r = relay.var("w", shape=(1, 16, 3)), relay.var("r", shape=(1, 16, 4))
    b = relay.var("b", shape=(1, 16))
    states, last, cells = relay.nn.lstm(x, w, r)
    assert str(infer(states).body.checked_type) == "Tensor[(7, 1, 2, 4), float32]"
    assert infer(last).body.checked_type == infer(cells).body.checked_type
    with pytest.raises(ValueError, match=r"an extent of bias, which has shape \(1, 32\), is 32"):
        infer(relay.nn.lstm(x, w, r, b)[0])
    with pytest.raises(ValueError, match="direction is forward, reverse or bidirectional"):
        relay.nn.gru(x, w, r, direction="up")
    with pytest.raises(ValueError, match="activations are 3 for each direction, not 2"):
        infer(relay.nn.lstm(x, w, r, activations=("tanh", "relu"))[0])
    with pytest.raises(ValueError, match=r"activations are affine, .*, not swish"):
        relay.nn.lstm(x, w, r, activations=("swish",))


def infer(expr: Any) -> Any:
    params = tuple(relay.analysis.free_vars(expr))
    return relay.transform.InferType()(
        tvm.IRModule.from_expr(relay.Function(params, expr))
    )["main"]


def test_its_schedule_changes_nothing() -> None:
    record = find("nn.lstm")
    assert record.attrs is not None and record.compute is not None and record.reference is not None
    rng = np.random.default_rng(0)
    shapes = [(40, 30, 7), (1, 20, 7), (1, 20, 5)]
    x, w, r = (rng.standard_normal(shape).astype("float32") for shape in shapes)
    holders = [placeholder(shape, name=f"p{i}") for i, shape in enumerate(shapes)]
    attrs = record.attrs()
    kind = record.infer(attrs, TensorType(shapes[0]), TupleType(tuple(map(TensorType, shapes[1:]))))
    made = record.compute(attrs, kind, holders[0], holders[1:])
    schedule = create_schedule(made[0].op)
    schedule_recurrent(Kernel(schedule, made, made, Processor()))
    want = record.reference(attrs, x, [w, r])
    got = [np.empty_like(part) for part in want]
    tvm.build(schedule, [*holders, *made], "llvm")(x, w, r, *got)
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
