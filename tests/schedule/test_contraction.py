"""Operators that multiply and add describe the contraction that they are."""

from typing import Any

import pytest

from sterna import relay, te
from sterna.schedule.packed import contraction_of_call
from sterna.schedule.sum_of_products import CHANNEL, TAP, description_of


def image(*shape: int) -> Any:
    return relay.var("x", shape=shape)


CALLS = {
    "conv2d": lambda: relay.nn.conv2d(image(1, 4, 6, 7), image(8, 4, 3, 3), padding=1),
    "conv2d_transpose": lambda: relay.nn.conv2d_transpose(
        image(1, 3, 4, 5), image(3, 2, 3, 3), strides=(2, 2), padding=1
    ),
    "conv3d_transpose": lambda: relay.nn.conv3d_transpose(
        image(1, 4, 2, 2, 2), image(4, 1, 2, 2, 2), groups=4, strides=2
    ),
    "dense": lambda: relay.nn.dense(image(2, 5, 7), image(4, 7)),
    "matmul": lambda: relay.nn.matmul(image(2, 7, 5), image(7, 4), transpose_a=True),
    "batch_matmul": lambda: relay.nn.batch_matmul(image(3, 2, 5, 7), image(2, 4, 7)),
    "packed": lambda: relay.nn.batch_matmul(
        relay.var("x", shape=(2, 9, 20), dtype="int8"),
        relay.var("w", shape=(2, 3, 5, 8, 4), dtype="int8"),
        out_dtype="int32", implementation="direct(weights=OI8o4i)",
    ),
    "steps": lambda: relay.nn.gru_steps(
        image(3, 2, 1, 1, 3, 16), relay.Tuple((image(1, 1, 16, 3, 16),))
    )[0].tuple_value,
}
PRODUCTS = {
    "conv2d": 42 * 8 * 36, "conv2d_transpose": 20 * 3 * 2 * 9, "conv3d_transpose": 8 * 4 * 8,
    "dense": 10 * 28, "matmul": 10 * 28, "batch_matmul": 30 * 28, "packed": 18 * 24 * 20,
    "steps": 6 * 16 * 48,
}


# How operands lie: the axes of the result by their numbers, and behind them that of the sum.
ORDERS: dict[str, list[tuple[int, ...] | None]] = {
    "matmul": [(0, 3, 1), (3, 2)], "batch_matmul": [(0, 1, 2, 4), (1, 3, 4)],
    "packed": [(0, 1, 3), None],
}

# Products of transposed convolutions that fall on no result, which records do not count.
CUT_OFF = {"conv2d_transpose": 300}


@pytest.mark.parametrize("name", CALLS)
def test_descriptions_count_what_the_records_count(name: str) -> None:
    call = CALLS[name]()
    kind, record = call.checked_type, call.op.record
    made = contraction_of_call(call)
    assert made is not None and made.macs == PRODUCTS[name]
    types = [arg.checked_type for arg in call.args]
    assert record.macs(call.attrs, kind, *types) == made.macs - CUT_OFF.get(name, 0)


def test_products_of_batches_say_how_their_operands_lie() -> None:
    a, b = image(3, 2, 5, 7), image(2, 7, 4)
    made = contraction_of_call(relay.nn.batch_matmul(a, b, transpose_b=False))
    assert made is not None and made.own_weights and (made.matrices, made.rows) == (6, 5)
    assert str(made) == "6 of 1x1x5x7 * 4x1x1x7 -> 1x1x5x4 float32 IO"
    assert made.of_one_matrix.macs * 6 == made.macs
    made = contraction_of_call(relay.nn.matmul(image(7, 5), image(7, 4), transpose_a=True))
    assert str(made) == "1x1x5x7 * 4x1x1x7 -> 1x1x5x4 float32 CN IO"
    assert made is not None and made.is_matrix and not made.channels_last


@pytest.mark.parametrize("name", ["dense", "matmul", "batch_matmul", "packed"])
def test_products_carry_their_description(name: str) -> None:
    call: Any = CALLS[name]()
    types = [arg.checked_type for arg in call.args]
    total = call.op.record.compute(
        call.attrs, call.checked_type, *[te.placeholder(kind.shape, kind.dtype) for kind in types]
    )
    found = description_of(total.op)
    assert found is not None and found.contraction == contraction_of_call(call)
    assert [access.order for access in found.accesses] == ORDERS.get(name, [(0, 1, 3), (2, 3)])


def test_attention_by_a_state_is_described() -> None:
    query, key, value = image(2, 4, 3, 8), image(2, 2, 3, 8), image(2, 2, 3, 5)
    made = relay.nn.linear_attention(query, key, value, update_rule="linear")
    described = contraction_of_call(made[0].tuple_value)
    assert described is not None and described.macs == 2 * 4 * 3 * 8 * 5


def test_transposed_sums_carry_their_description() -> None:
    call: Any = CALLS["conv2d_transpose"]()
    operands = [te.placeholder(arg.checked_type.shape, "float32") for arg in call.args]
    total = call.op.record.compute(call.attrs, call.checked_type, *operands)
    found = description_of(total.op)
    assert found is not None and found.contraction == contraction_of_call(call)
    assert found.roles == (CHANNEL, TAP, TAP)
