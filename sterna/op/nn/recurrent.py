"""Recurrent networks: nn.lstm, nn.gru, nn.rnn.

The gates stand under each other in this order: LSTM input, output, forget, cell; GRU update, reset,
hidden.
"""

from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr
from sterna.op.elementwise import quiet
from sterna.op.gates import Gate
from sterna.op.recurrence import OPTIONAL, Line, Network, RecurrentAttrs, schedule_recurrent
from sterna.relay.arrays import Array
from sterna.relay.attributes import attributes
from sterna.relay.builders import make
from sterna.relay.expr import Tuple, as_expr
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


def _rnn_step(line: Line, now: Expr) -> None:
    ib, (h,), (f,) = line.ib, line.states, line.functions
    with ib.for_range(0, line.rows, name="g") as g:
        line.gates[g] = line.input(now, g) + line.bias(g, recurrent=True)
    line.add_recurrence(0, line.rows, lambda k: h[k])
    with ib.for_range(0, line.size, name="j") as j:
        h[j] = f.expr(line.gates[j])


def _rnn_array(
    attrs: Any, functions: list[Gate], x: Array, h: Array, c: Array, own: dict[str, Array]
) -> list[Array]:
    wb, rb = _biases(own)
    return [functions[0].array(own["weight"] @ x + wb + own["recurrence"] @ h + rb), c]


def _biases(own: dict[str, Array]) -> Any:
    rows = len(own["weight"])
    both = own.get("bias", np.zeros(2 * rows, own["weight"].dtype))
    return both[:rows], both[rows:]


def _gru_step(line: Line, now: Expr) -> None:
    ib, (h,), (f, g_function), size = line.ib, line.states, line.functions, line.size
    gates, hidden = line.gates, size * 2
    before_reset = line.attrs.linear_before_reset  # type: ignore[attr-defined]
    with ib.for_range(0, hidden, name="g") as g:
        gates[g] = line.input(now, g) + line.bias(g, recurrent=True)
    with ib.for_range(hidden, line.rows, name="g") as g:
        start = build.const(0, line.kind) if before_reset else line.input(now, g)
        gates[g] = start + line.bias(g, recurrent=True)
    line.add_recurrence(0, line.rows if before_reset else hidden, lambda k: h[k])
    with ib.for_range(0, hidden, name="g") as g:
        gates[g] = f.expr(gates[g])
    if before_reset:
        with ib.for_range(0, size, name="j") as j:
            gates[hidden + j] = gates[size + j] * gates[hidden + j] + line.input(now, hidden + j)
    else:
        line.add_recurrence(hidden, line.rows, lambda k: gates[size + k] * h[k])
    with ib.for_range(0, size, name="j") as j:
        update = ib.let("update", gates[j])
        h[j] = (1.0 - update) * g_function.expr(gates[hidden + j]) + update * h[j]


def _gru_array(
    attrs: Any, functions: list[Gate], x: Array, h: Array, c: Array, own: dict[str, Array]
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


def _lstm_step(line: Line, now: Expr) -> None:
    ib, (h, c), (f, g_function, h_function) = line.ib, line.states, line.functions
    size, gates, d = line.size, line.gates, line.direction
    with ib.for_range(0, line.rows, name="g") as g:
        gates[g] = line.input(now, g) + line.bias(g, recurrent=True)
    line.add_recurrence(0, line.rows, lambda k: h[k])
    with ib.for_range(0, size, name="j") as j:

        def peep(place: int, cell: Expr) -> Expr:
            if "peepholes" not in line.given:
                return build.const(0, line.kind)
            return line.part("peepholes", d, size * place + j) * cell

        old = ib.let("old", c[j])
        opened = ib.let("opened", f.expr(gates[j] + peep(0, old)))
        kept = f.expr(gates[size * 2 + j] + peep(2, old))
        if line.attrs.input_forget:  # type: ignore[attr-defined]
            kept = 1.0 - opened
        cell = ib.let("cell", kept * old + opened * g_function.expr(gates[size * 3 + j]))
        c[j] = cell
        h[j] = f.expr(gates[size + j] + peep(1, cell)) * h_function.expr(cell)


def _lstm_array(
    attrs: Any, functions: list[Gate], x: Array, h: Array, c: Array, own: dict[str, Array]
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


RNN = Network("rnn", 1, 1, ("tanh",), _rnn_step, _rnn_array)
GRU = Network("gru", 3, 1, ("sigmoid", "tanh"), _gru_step, _gru_array)
LSTM = Network("lstm", 4, 2, ("sigmoid", "tanh", "tanh"), _lstm_step, _lstm_array)


# ---- operators ----


def _made(name: str, data: Any, weights: list[Any], optional: list[Any], attrs: Any) -> Any:
    """A call with the optional operands that there are."""
    given = {n: part for n, part in zip(OPTIONAL, optional, strict=True) if part is not None}
    operands = [as_expr(part) for part in (*weights, *given.values())]
    return make(name, data, Tuple(tuple(operands)), given=tuple(given), **attrs)


def _rnn(
    data: Any, weight: Any, recurrence: Any, bias: Any = None, sequence_lens: Any = None,
    initial_h: Any = None, **attrs: Any,
) -> Any:  # fmt: skip
    """A network whose state is f(input + state): the states of all steps, and the last one."""
    optional = [bias, sequence_lens, initial_h, None, None]
    return _made("nn.rnn", data, [weight, recurrence], optional, attrs)


def _gru(
    data: Any, weight: Any, recurrence: Any, bias: Any = None, sequence_lens: Any = None,
    initial_h: Any = None, **attrs: Any,
) -> Any:  # fmt: skip
    """A network of gated recurrent units: the states of all steps, and the last one.

    linear_before_reset: the reset gate goes on the product with the state, not on the state.
    """
    optional = [bias, sequence_lens, initial_h, None, None]
    return _made("nn.gru", data, [weight, recurrence], optional, attrs)


def _lstm(
    data: Any, weight: Any, recurrence: Any, bias: Any = None, sequence_lens: Any = None,
    initial_h: Any = None, initial_c: Any = None, peepholes: Any = None, **attrs: Any,
) -> Any:  # fmt: skip
    """A network of long short-term memory: the states of all steps, the last one, the last cells.

    peepholes: weights of the cells in the gates input, output, forget. input_forget: what a cell
    takes in and what it keeps add up to 1.
    """
    optional = [bias, sequence_lens, initial_h, initial_c, peepholes]
    return _made("nn.lstm", data, [weight, recurrence], optional, attrs)


def _case(
    gates: int, directions: int = 1, given: tuple[str, ...] = (), dtype: str = "float32",
    tolerance: float = 1e-5, **attrs: Any,
) -> Case:  # fmt: skip
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

    def typed(shape: Any) -> Any:
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
):  # fmt: skip
    register(OpRecord(
        f"nn.{_network.name}",
        inputs=("data", "*weights"),
        attrs=_attrs,
        infer=_network.infer,
        compute=_network.compute,
        reference=quiet(_network.reference),
        num_outputs=1 + _network.states,
        schedule=schedule_recurrent,
        builder=_builder,
        pattern=OPAQUE,
        mixed_precision="never",
        cases=_cases,
        doc=_builder.__doc__ or "",
    ))  # fmt: skip
