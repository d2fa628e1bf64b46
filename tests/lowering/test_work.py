"""The bytes that a kernel has to move."""

import json
from typing import Any

import numpy as np
import pytest

import sterna
from sterna import relay
from sterna.lowering.work import work_of
from sterna.relay.expr import Function


def _inferred(made: Any) -> Function:
    module = sterna.IRModule.from_expr(Function(tuple(relay.analysis.free_vars(made)), made))
    function = relay.transform.InferType()(module)["main"]
    assert isinstance(function, Function)
    return function


def _bytes(made: Any) -> int:
    return work_of(_inferred(made)).bytes


TABLE = relay.var("table", shape=(1000, 8))
INDICES = relay.var("indices", shape=(5,), dtype="int32")
PICKED = 5 * 8 * 4
WEIGHTS = np.ones((1000, 8), "float32")


@pytest.mark.parametrize("made, moved", [
    (relay.take(TABLE, INDICES, axis=0), PICKED + 5 * 4 + PICKED),
    (relay.add(relay.take(TABLE, INDICES, axis=0), relay.const(1.0)), PICKED + 5 * 4 + PICKED),
    (relay.strided_slice(TABLE, begin=[0, 0], end=[5, 8]), 2 * PICKED),
    (relay.sum(TABLE, axis=0), 1000 * 8 * 4 + 8 * 4),
    (relay.negative(TABLE), 2 * 1000 * 8 * 4),
])  # fmt: skip
def test_of_a_table_only_what_is_picked_is_moved(made: Any, moved: int) -> None:
    assert _bytes(made) == moved


@pytest.mark.parametrize("made, least", [
    (relay.take(relay.const(WEIGHTS), INDICES, axis=0), None),
    (relay.nn.dense(relay.var("x", shape=(2, 8)), relay.const(WEIGHTS)), 1000 * 8 * 4),
], ids=["rows of a table", "a product"])
def test_only_parameters_that_are_read_whole_come_from_far_away(made: Any, least: Any) -> None:
    module = sterna.IRModule.from_expr(Function(tuple(relay.analysis.free_vars(made)), made))
    graph = json.loads(relay.build(module, "llvm").get_graph_json())
    counts = [n["attrs"].get("constant_bytes") for n in graph["nodes"] if n["op"] != "null"]
    assert len(counts) == 1 and (counts[0] is None if least is None else int(counts[0]) >= least)


def test_products_of_bytes_are_told_from_what_floats_are_made_of() -> None:
    x, w = (relay.var(name, shape=(4, 8), dtype="int8") for name in "xw")
    made = relay.cast(relay.nn.dense(x, w, out_dtype="int32"), "float32")
    work = work_of(_inferred(made))
    assert (work.product_flops, work.product_type) == (2 * 4 * 4 * 8, "int8")
    assert work.flops == work.product_flops + 4 * 4
