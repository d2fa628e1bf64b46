"""Recurrent networks: nn.lstm, nn.gru, nn.rnn.

The gates stand under each other in this order: LSTM input, output, forget, cell; GRU update, reset,
hidden.
"""

from functools import partial
from typing import Any

import numpy as np

from sterna.ir.expr import Expr
from sterna.op.elementwise import quiet
from sterna.op.gates import Gate
from sterna.op.packed_recurrence import in_steps, record_of_steps
from sterna.op.recurrence import OPTIONAL, Network, RecurrentAttrs, schedule_recurrent
from sterna.op.recurrent_steps import Steps
from sterna.relay.arrays import Array
from sterna.relay.attributes import attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExprLike, Tuple, as_expr
from sterna.relay.op import OPAQUE, Case, OpRecord, register


@attributes
class RNNAttrs(RecurrentAttrs):
    """Of nn.rnn."""

    direction: str = "forward"
    activations: tuple[str, ...] = ()
    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    clip: float | None = None
    layout: int = 0
    given: tuple[str, ...] = ()


@attributes
class GRUAttrs(RecurrentAttrs):
    """Of nn.gru."""

    direction: str = "forward"
    activations: tuple[str, ...] = ()
    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    clip: float | None = None
    layout: int = 0
    linear_before_reset: bool = False
    given: tuple[str, ...] = ()


@attributes
class LSTMAttrs(RecurrentAttrs):
    """Of nn.lstm."""

    direction: str = "forward"
    activations: tuple[str, ...] = ()
    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    clip: float | None = None
    layout: int = 0
    input_forget: bool = False
    given: tuple[str, ...] = ()


def _rnn_step(steps: Steps, now: Expr) -> None:
    (f,) = steps.functions
    with steps.each_block() as block:
        (h,) = steps.states
        gates = steps.gates_of(block, range(1), partial(steps.input, now, block), h)
        with steps.each_unit() as (row, unit):
            steps.next[steps.place(row, block, unit)] = f.expr(gates[row, 0, unit])


def _rnn_array(
    attrs: RNNAttrs, functions: list[Gate], x: Array, h: Array, c: Array, own: dict[str, Array]
) -> list[Array]:
    wb, rb = _biases(own)
    return [functions[0].array(own["weight"] @ x + wb + own["recurrence"] @ h + rb), c]


def _biases(own: dict[str, Array]) -> Any:
    rows = len(own["weight"])
    both = own.get("bias", np.zeros(2 * rows, own["weight"].dtype))
    return both[:rows], both[rows:]


def _gru_step(steps: Steps, now: Expr) -> None:
    if steps.attrs.linear_before_reset:  # type: ignore[attr-defined]
        _reset_products(steps, now)
    else:
        _reset_states(steps, now)


def _reset_products(steps: Steps, now: Expr) -> None:
    (f, g), hidden = steps.functions, 2
    with steps.each_block() as block:
        (h,) = steps.states

        def start(row: Expr, gate: int, unit: Expr) -> Expr:
            if gate == hidden:
                return steps.part("late_bias", block, 0, unit)
            return steps.input(now, block, row, gate, unit)

        gates = steps.gates_of(block, range(3), start, h)
        with steps.each_unit() as (row, unit):
            place = steps.place(row, block, unit)
            gates[row, 0, unit] = f.expr(gates[row, 0, unit])
            product = f.expr(gates[row, 1, unit]) * gates[row, hidden, unit]
            made = g.expr(steps.input(now, block, row, hidden, unit) + product)
            steps.next[place] = (1.0 - gates[row, 0, unit]) * made + gates[row, 0, unit] * h[place]


def _reset_states(steps: Steps, now: Expr) -> None:
    f, g = steps.functions
    update, reset = steps.scratch("update"), steps.scratch("reset")
    with steps.each_block() as block:
        (h,) = steps.states
        gates = steps.gates_of(block, range(2), partial(steps.input, now, block), h)
        with steps.each_unit() as (row, unit):
            place = steps.place(row, block, unit)
            update[place] = f.expr(gates[row, 0, unit])
            reset[place] = f.expr(gates[row, 1, unit]) * h[place]
    with steps.each_block() as block:
        (h,) = steps.states
        gates = steps.gates_of(block, range(2, 3), partial(steps.input, now, block), reset)
        with steps.each_unit() as (row, unit):
            place = steps.place(row, block, unit)
            made = g.expr(gates[row, 0, unit])
            steps.next[place] = (1.0 - update[place]) * made + update[place] * h[place]


def _gru_array(
    attrs: GRUAttrs, functions: list[Gate], x: Array, h: Array, c: Array, own: dict[str, Array]
) -> list[Array]:
    f, g = functions
    size = len(h)
    wb, rb = _biases(own)
    from_x = own["weight"] @ x + wb
    r_gates, r_hidden = own["recurrence"][: 2 * size], own["recurrence"][2 * size :]
    both = f.array(from_x[: 2 * size] + r_gates @ h + rb[: 2 * size])
    update, reset = both[:size], both[size:]
    if attrs.linear_before_reset:
        hidden = g.array(from_x[2 * size :] + reset * (r_hidden @ h + rb[2 * size :]))
    else:
        hidden = g.array(from_x[2 * size :] + r_hidden @ (reset * h) + rb[2 * size :])
    return [(1 - update) * hidden + update * h, c]


def _lstm_step(steps: Steps, now: Expr) -> None:
    f, g, h_function = steps.functions
    opened, out, kept, taken = range(4)
    with steps.each_block() as block:
        h, c = steps.states
        gates = steps.gates_of(block, range(4), partial(steps.input, now, block), h)

        with steps.each_unit() as (row, unit):
            place = steps.place(row, block, unit)

            def gate(number: int, hole: int) -> Expr:
                """What goes into a gate that sees the cell."""
                if "peepholes" not in steps.operands:
                    return gates[row, number, unit]
                return gates[row, number, unit] + (
                    steps.part("peepholes", block, hole, unit) * c[place]
                )

            gates[row, opened, unit] = f.expr(gate(opened, 0))
            if steps.attrs.input_forget:  # type: ignore[attr-defined]
                keeps: Expr = 1.0 - gates[row, opened, unit]
            else:
                keeps = f.expr(gate(kept, 2))
            takes = gates[row, opened, unit] * g.expr(gates[row, taken, unit])
            c[place] = keeps * c[place] + takes
            steps.next[place] = f.expr(gate(out, 1)) * h_function.expr(c[place])


def _lstm_array(
    attrs: LSTMAttrs, functions: list[Gate], x: Array, h: Array, c: Array, own: dict[str, Array]
) -> list[Array]:
    f, g, h_function = functions
    wb, rb = _biases(own)
    i_gate, o_gate, f_gate, c_gate = np.split(
        own["weight"] @ x + wb + own["recurrence"] @ h + rb, 4
    )
    pi, po, pf = np.split(own.get("peepholes", np.zeros(3 * len(h), x.dtype)), 3)
    opened = f.array(i_gate + pi * c)
    kept = 1 - opened if attrs.input_forget else f.array(f_gate + pf * c)
    cell = kept * c + opened * g.array(c_gate)
    return [f.array(o_gate + po * cell) * h_function.array(cell), cell]


RNN = Network("rnn", 1, 1, ("tanh",), _rnn_step, _rnn_array, lambda attrs: 0)
GRU = Network("gru", 3, 1, ("sigmoid", "tanh"), _gru_step, _gru_array,
              lambda attrs: int(attrs.linear_before_reset),
              lambda attrs: 2 - int(attrs.linear_before_reset))
LSTM = Network("lstm", 4, 2, ("sigmoid", "tanh", "tanh"), _lstm_step, _lstm_array, lambda attrs: 0)


# ---- operators ----


def _made(
    name: str, data: RelayExprLike, weights: list[RelayExprLike],
    optional: list[RelayExprLike | None], attrs: Any,
) -> Any:
    """A call with the optional operands that there are."""
    given = {n: part for n, part in zip(OPTIONAL, optional, strict=True) if part is not None}
    operands = [as_expr(part) for part in (*weights, *given.values())]
    return make(name, data, Tuple(tuple(operands)), given=tuple(given), **attrs)


def _rnn(
    data: RelayExprLike, weight: RelayExprLike, recurrence: RelayExprLike,
    bias: RelayExprLike | None = None, sequence_lens: RelayExprLike | None = None,
    initial_h: RelayExprLike | None = None, **attrs: Any,
) -> Any:
    """A network whose state is f(input + state): the states of all steps, and the last one."""
    optional = [bias, sequence_lens, initial_h, None, None]
    return _made("nn.rnn", data, [weight, recurrence], optional, attrs)


def _gru(
    data: RelayExprLike, weight: RelayExprLike, recurrence: RelayExprLike,
    bias: RelayExprLike | None = None, sequence_lens: RelayExprLike | None = None,
    initial_h: RelayExprLike | None = None, **attrs: Any,
) -> Any:
    """A network of gated recurrent units: the states of all steps, and the last one.

    linear_before_reset: the reset gate goes on the product with the state, not on the state.
    """
    optional = [bias, sequence_lens, initial_h, None, None]
    return _made("nn.gru", data, [weight, recurrence], optional, attrs)


def _lstm(
    data: RelayExprLike, weight: RelayExprLike, recurrence: RelayExprLike,
    bias: RelayExprLike | None = None, sequence_lens: RelayExprLike | None = None,
    initial_h: RelayExprLike | None = None, initial_c: RelayExprLike | None = None,
    peepholes: RelayExprLike | None = None, **attrs: Any,
) -> Any:
    """A network of long short-term memory: the states of all steps, the last one, the last cells.

    peepholes: weights of the cells in the gates input, output, forget. input_forget: what a cell
    takes in and what it keeps add up to 1.
    """
    optional = [bias, sequence_lens, initial_h, initial_c, peepholes]
    return _made("nn.lstm", data, [weight, recurrence], optional, attrs)


def _case(
    gates: int, directions: int = 1, given: tuple[str, ...] = (), dtype: str = "float32",
    tolerance: float = 1e-5, **attrs: Any,
) -> Case:
    """Four steps of three sequences with five features into states of two numbers."""
    time, batch, features, size = 4, 3, 5, 2
    turned = attrs.get("layout", 0) == 1
    state = (batch, directions, size) if turned else (directions, batch, size)
    shapes: dict[str, Any] = {
        "bias": (directions, 2 * gates * size),
        "sequence_lens": np.array([2, 4, 1], "int32"),
        "initial_h": state,
        "initial_c": state,
        "peepholes": (directions, 3 * size),
    }

    def typed(shape: Array | tuple[int, ...]) -> Any:
        return shape if isinstance(shape, np.ndarray) else (shape, dtype)

    data = (batch, time, features) if turned else (time, batch, features)
    weights = [(directions, gates * size, features), (directions, gates * size, size)]
    operands = [typed(shape) for shape in (*weights, *(shapes[name] for name in given))]
    return Case((typed(data), operands), {"given": given, **attrs}, tolerance)


_PLAIN = ("bias", "sequence_lens", "initial_h")

for _network, _attrs, _builder, _cases in (
    (RNN, RNNAttrs, _rnn, [
        _case(1),
        _case(1, 2, _PLAIN, direction="bidirectional", activations=("Affine", "ScaledTanh"),
              activation_alpha=(0.5, 1.5), activation_beta=(0.1, 0.8)),
        _case(1, given=("bias",), direction="reverse", layout=1, activations=("relu",), clip=0.4),
    ]),
    (GRU, GRUAttrs, _gru, [
        _case(3),
        _case(3, 2, _PLAIN, direction="bidirectional", linear_before_reset=True, layout=1),
        _case(3, given=("bias", "initial_h"), direction="reverse", clip=0.3,
              activations=("HardSigmoid", "Softsign"), activation_alpha=(0.3,)),
    ]),
    (LSTM, LSTMAttrs, _lstm, [
        _case(4),
        _case(4, 2, OPTIONAL, direction="bidirectional"),
        _case(4, 2, OPTIONAL, direction="bidirectional", layout=1, input_forget=True, clip=0.5,
              activations=("Softplus", "Elu", "LeakyRelu", "Sigmoid", "ThresholdedRelu", "Tanh"),
              activation_alpha=(0.7, 0.2, 0.1)),
        _case(4, given=("bias",), direction="reverse", dtype="float16", tolerance=2e-3),
    ]),
):
    register(OpRecord(
        f"nn.{_network.name}",
        inputs=("data", "*weights"),
        attrs=_attrs,
        infer=_network.infer,
        compute=_network.compute,
        reference=quiet(_network.reference),
        num_outputs=1 + _network.states,
        schedules={"cpu": schedule_recurrent},
        builder=_builder,
        legalize=partial(in_steps, _network),
        pattern=OPAQUE,
        mixed_precision="never",
        cases=_cases,
        doc=_builder.__doc__ or "",
    ))


def _steps_case(
    gates: int, size: int, packed: tuple[int, int], directions: int = 1,
    given: tuple[str, ...] = (), batch: int = 4, **attrs: Any,
) -> Case:
    """Three steps; packed: how many blocks of how many units a state makes."""
    blocks, units = packed
    shapes: dict[str, Any] = {
        "late_bias": (directions, blocks, 1, units),
        "sequence_lens": np.arange(batch, dtype="int32"),
        "initial_h": (directions, batch, size),
        "initial_c": (directions, batch, size),
        "peepholes": (directions, blocks, 3, units),
    }
    projected = (3, batch, directions, blocks, gates, units)
    columns = (directions, blocks, size, gates, units)
    operands = [columns, *(shapes[name] for name in given)]
    return Case((projected, operands), {"given": given, **attrs}, 1e-4)


for _network, _cases in (
    (RNN, [_steps_case(1, 70, (2, 64), together=4, rows=2)]),
    (GRU, [
        _steps_case(3, 20, (2, 16), 2, ("late_bias", "initial_h"), direction="bidirectional",
                    linear_before_reset=True, together=4, rows=2),
        _steps_case(3, 16, (1, 16), given=("sequence_lens",), together=4, rows=2),
    ]),
    (LSTM, [
        _steps_case(4, 20, (2, 16), 2, OPTIONAL[1:], direction="bidirectional", together=2,
                    rows=2),
        _steps_case(4, 3, (1, 4), direction="reverse", input_forget=True, together=4, rows=4),
    ]),
):
    register(record_of_steps(_network, _cases))
