"""Graphs drawn at random, compiled and run, give what the operators' references give."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.ir.types import flatten_type
from sterna.relay.arrays import from_numpy, to_numpy
from sterna.relay.op import record_of
from tests.relay.agreement import flat, hold, tolerance_of, value
from tests.relay.random_graphs import Drawn, draw_cases, draw_network, draw_shapes

LEVELS = (3, 0, 2, 1)
TARGETS = ("llvm", "llvm -mcpu=native")


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_CACHE", "off")


def run(drawn: Drawn, level: int, target: str) -> list[Any]:
    """The results of a compiled graph."""
    with tvm.transform.PassContext(opt_level=level):
        lib = relay.build(tvm.IRModule({"main": drawn.function}), target=target)
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    for param, array in zip(drawn.function.params, drawn.values, strict=True):
        m.set_input(param.name_hint, from_numpy(np.asarray(array, order="C")))
    m.run()
    return [to_numpy(m.get_output(place)) for place in range(m.get_num_outputs())]


def is_static_and_certain(function: relay.Function) -> bool:
    """Whether all shapes are known, and equal calls give equal results."""
    found: list[bool] = []

    def see(expr: Any) -> None:
        record = record_of(expr)
        if record is not None:
            known = all(kind.is_static for kind in flatten_type(expr.checked_type))
            found.append(record.foldable and known)

    relay.analysis.post_order_visit(function, see)
    return all(found)


def check(draw: Callable[[int, int], Drawn], seed: int, size: int) -> None:
    drawn = draw(seed, size)
    if not is_static_and_certain(drawn.function):
        return
    want, near = value(drawn, drawn.function), value(drawn, drawn.function, 1e-5)
    level, target = LEVELS[seed % 4], TARGETS[seed // 4 % 2]
    try:
        hold(tuple(run(drawn, level, target)), tuple(flat(want)), near, tolerance_of(drawn))
    except Exception as error:
        error.add_note(f"level {level} for {target} of\n{drawn.function}")
        raise


@pytest.mark.parametrize("seed", range(6))
def test_shapes(seed: int) -> None:
    check(draw_shapes, seed, 6)


@pytest.mark.parametrize("seed", range(100, 102))
def test_cases(seed: int) -> None:
    check(draw_cases, seed, 4)


@pytest.mark.parametrize("seed", range(100, 102))
def test_networks(seed: int) -> None:
    check(draw_network, seed, 6)
