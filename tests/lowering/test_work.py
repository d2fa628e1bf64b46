"""The bytes that a kernel has to move."""

from typing import Any

import pytest

import sterna
from sterna import relay
from sterna.lowering.work import work_of
from sterna.relay.expr import Function


def _bytes(made: Any) -> int:
    module = sterna.IRModule.from_expr(Function(tuple(relay.analysis.free_vars(made)), made))
    function = relay.transform.InferType()(module)["main"]
    assert isinstance(function, Function)
    return work_of(function).bytes


TABLE = relay.var("table", shape=(1000, 8))
INDICES = relay.var("indices", shape=(5,), dtype="int32")
PICKED = 5 * 8 * 4


@pytest.mark.parametrize("made, moved", [
    (relay.take(TABLE, INDICES, axis=0), PICKED + 5 * 4 + PICKED),
    (relay.add(relay.take(TABLE, INDICES, axis=0), relay.const(1.0)), PICKED + 5 * 4 + PICKED),
    (relay.strided_slice(TABLE, begin=[0, 0], end=[5, 8]), 2 * PICKED),
    (relay.sum(TABLE, axis=0), 1000 * 8 * 4 + 8 * 4),
    (relay.negative(TABLE), 2 * 1000 * 8 * 4),
])  # fmt: skip
def test_of_a_table_only_what_is_picked_is_moved(made: Any, moved: int) -> None:
    assert _bytes(made) == moved
