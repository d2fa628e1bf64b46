"""Recurrent networks by a dense layer and their steps, held against their definition."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.isa.processor import Processor
from sterna.op.recurrent_steps import (
    SEQUENCES,
    UNITS,
    RegisterTiles,
    shared_by_threads,
    units_of_block,
)
from sterna.relay.infer import TypeInferenceError
from sterna.relay.op import find
from sterna.schedule.config import ANSWERS
from sterna.support.dtype import DataType

GATES = {"rnn": 1, "gru": 3, "lstm": 4}


def operands_of(
    kind: str, given: tuple[str, ...], time: int, batch: int, size: int, both: bool, turned: bool
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Data and weights of a network of three features."""
    rng = np.random.default_rng(size + batch)
    rows, count, features = GATES[kind] * size, 1 + both, 3
    state = (batch, count, size) if turned else (count, batch, size)
    shapes = {
        "weight": (count, rows, features), "recurrence": (count, rows, size),
        "bias": (count, 2 * rows), "initial_h": state, "initial_c": state,
        "peepholes": (count, 3 * size),
    }
    made: dict[str, np.ndarray] = {
        name: rng.uniform(-0.4, 0.4, shapes[name]).astype("float32")
        for name in ("weight", "recurrence", *given) if name != "sequence_lens"
    }
    if "sequence_lens" in given:
        made["sequence_lens"] = rng.integers(0, time + 1, batch).astype("int32")
    data = (batch, time, features) if turned else (time, batch, features)
    return rng.standard_normal(data).astype("float32"), made


def run(
    kind: str, data: np.ndarray, parts: dict[str, np.ndarray], attrs: dict[str, Any],
    share: str = SEQUENCES,
) -> Any:
    x = relay.var("x", shape=data.shape)
    constants = {name: relay.const(part) for name, part in parts.items()}
    results = getattr(relay.nn, kind)(x, **constants, **attrs)
    count = 3 if kind == "lstm" else 2
    body = relay.Tuple(tuple(results[i] for i in range(count)))
    mod = tvm.IRModule.from_expr(relay.Function((x,), body))
    answers = {"what threads share of a recurrence": share}
    with tvm.transform.PassContext(opt_level=3, config={ANSWERS: answers}):
        lib = relay.build(mod, target="llvm -mcpu=native -num-cores=4")
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(x=data)
    return lib, [m.get_output(i).numpy() for i in range(count)]


@pytest.mark.parametrize(
    ("kind", "given", "batch", "size", "attrs"),
    [
        ("rnn", ("bias",), 2, 65, {"direction": "reverse"}),
        ("gru", ("bias", "initial_h"), 6, 17,
         {"direction": "bidirectional", "linear_before_reset": True, "layout": 1}),
        ("gru", ("bias", "sequence_lens"), 3, 32, {"clip": 0.5}),
        ("lstm", ("bias", "initial_h", "initial_c", "peepholes"), 3, 24,
         {"direction": "bidirectional", "layout": 1}),
        ("lstm", ("sequence_lens",), 4, 5, {"input_forget": True}),
        ("lstm", (), 1, 96, {"direction": "bidirectional"}),
    ],
)
def test_networks_compute_what_they_are(
    kind: str, given: tuple[str, ...], batch: int, size: int, attrs: dict[str, Any]
) -> None:
    both = attrs.get("direction") == "bidirectional"
    data, parts = operands_of(kind, given, 7, batch, size, both, attrs.get("layout", 0) == 1)
    record = find(f"nn.{kind}")
    assert record.attrs is not None and record.reference is not None
    options: dict[str, Any] = {**attrs, "given": given}
    want = record.reference(record.attrs(**options), data, list(parts.values()))
    for share in (SEQUENCES, UNITS):
        lib, got = run(kind, data, parts, attrs, share)
        assert f"nn_{kind}_steps" in lib.get_graph_json()
        for mine, theirs in zip(got, want, strict=True):
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-5)


def test_threads_share_units_where_sequences_are_few() -> None:
    assert shared_by_threads(8, 1, 35, 4 * 650 * 650 / 16) == UNITS
    assert shared_by_threads(8, 8, 35, 4 * 650 * 650 / 16) == SEQUENCES
    assert shared_by_threads(8, 1, 35, 4 * 32 * 32 / 16) == SEQUENCES


def test_a_register_tile_holds_as_many_sequences_as_registers_allow() -> None:
    kind = DataType("float32")
    narrow = Processor(vector_registers=32)
    wide = Processor(vector_bits=512, vector_registers=32)
    few = Processor(vector_bits=256, vector_registers=16)
    for processor in (narrow, wide, few):
        lanes = processor.lanes(kind)
        for gates in (1, 3, 4):
            for sequences in (1, 2, 7, 8):
                tiles = RegisterTiles(gates, 250, sequences, sequences, processor, kind)
                rows, units = tiles.choose()
                assert sequences % rows == 0 and (rows > 1 or sequences in (1, 7))
                assert rows * gates * -(-units // lanes) < processor.vector_registers
    assert RegisterTiles(4, 250, 8, 8, narrow, kind).choose() == (4, 4)
    assert RegisterTiles(4, 250, 8, 8, wide, kind).choose() == (4, 16)


def test_weights_are_packed_once() -> None:
    data, parts = operands_of("lstm", ("bias",), 2, 1, 8, False, False)
    x = relay.var("x", shape=data.shape)
    constants = {name: relay.const(part) for name, part in parts.items()}
    mod = tvm.IRModule.from_expr(relay.Function((x,), relay.nn.lstm(x, **constants)[0]))
    with tvm.transform.PassContext(opt_level=3):
        made, _ = relay.optimize(mod, "llvm -mcpu=native")
    assert "transpose" not in str(made)
    assert "nn.lstm_steps" in str(made) and "nn.dense" in str(made)


def test_blocks_are_powers_of_two_and_hold_few_numbers() -> None:
    assert [units_of_block(4, size) for size in (1, 3, 16, 100)] == [1, 4, 16, 16]
    assert [units_of_block(gates, 128) for gates in (1, 3, 4)] == [64, 16, 16]


def test_steps_refuse_what_is_not_packed() -> None:
    projected = relay.var("p", shape=(3, 1, 1, 2, 4, 16))
    columns = relay.var("c", shape=(1, 2, 20, 3, 16))
    with pytest.raises(TypeInferenceError, match=r"columns has shape \(1, 2, 20, 4, 16\), not"):
        relay.nn.lstm_steps(projected, relay.Tuple((columns,)))
