"""Every question that a network's schedules and layout passes ask can be answered from outside."""

import random
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.arrays import Array
from sterna.schedule.choose import Scope, deciding
from tests.schedule.implemented import run_built

TARGET = "llvm -mcpu=native -num-cores=2"


def floats() -> tuple[Any, Array]:
    """Windows, odd channels, depthwise and pointwise ones, split-K, a dense layer and a softmax."""
    rng = np.random.default_rng(0)

    def weight(*shape: int) -> Any:
        return relay.const(rng.standard_normal(shape).astype("float32") / 8)

    x = relay.var("x", shape=(1, 16, 10, 9))
    y = relay.nn.relu(relay.nn.conv2d(x, weight(32, 16, 3, 3), padding=1))
    y = relay.nn.conv2d(y, weight(32, 1, 3, 3), padding=1, groups=32)
    y = relay.nn.relu(relay.nn.conv2d(y, weight(63, 32, 1, 1)))
    y = relay.nn.relu(relay.nn.conv2d(y, weight(64, 63, 1, 1)))
    y = relay.nn.conv2d(relay.nn.global_avg_pool2d(y), weight(8, 64, 1, 1))
    y = relay.nn.softmax(relay.nn.dense(relay.nn.batch_flatten(y), weight(40, 8)))
    return tvm.IRModule.from_expr(relay.Function((x,), y)), rng.standard_normal((1, 16, 10, 9))


def bytes_of_layers() -> tuple[Any, Array]:
    """Products of bytes: a window and a depthwise one."""
    rng = np.random.default_rng(1)

    def weight(*shape: int) -> Any:
        return relay.const(rng.integers(-100, 100, shape).astype("int8"))

    x = relay.var("x", shape=(1, 9, 10, 8), dtype="uint8")
    attrs = {"data_layout": "NHWC", "kernel_layout": "OHWI", "out_dtype": "int32", "padding": 1}
    y = relay.nn.conv2d(x, weight(16, 3, 3, 8), **attrs)
    y = relay.cast(relay.clip(relay.right_shift(y, relay.const(8)), 0, 255), "uint8")
    y = relay.nn.conv2d(y, weight(16, 3, 3, 1), groups=16, **attrs)
    return tvm.IRModule.from_expr(relay.Function((x,), y)), rng.integers(0, 256, (1, 9, 10, 8))


def recurrent() -> tuple[Any, Array]:
    """A network of gates: its blocks, and the sequences that run together."""
    rng = np.random.default_rng(2)
    weights = [relay.const(rng.standard_normal(shape).astype("float32") / 8)
               for shape in ((1, 60, 8), (1, 60, 20))]
    x = relay.var("x", shape=(4, 3, 8))
    y = relay.nn.gru(x, *weights)[0]
    return tvm.IRModule.from_expr(relay.Function((x,), y)), rng.standard_normal((4, 3, 8))


def chained() -> tuple[Any, Array]:
    """A pointwise convolution whose result leaves a small cache, and a depthwise one."""
    rng = np.random.default_rng(3)
    wide = relay.const(rng.standard_normal((32, 1, 1, 8)).astype("float32"))
    deep = relay.const(rng.standard_normal((32, 3, 3, 1)).astype("float32"))
    x = relay.var("x", shape=(1, 96, 96, 8))
    attrs = {"data_layout": "NHWC", "kernel_layout": "OHWI"}
    y = relay.nn.conv2d(x, wide, **attrs)
    y = relay.nn.conv2d(y, deep, padding=1, strides=2, groups=32, **attrs)
    return tvm.IRModule.from_expr(relay.Function((x,), y)), rng.standard_normal((1, 96, 96, 8))


# What each network asks; each of these is answered otherwise than the cheapest.
QUESTIONS = {
    floats: {"implementation", "tile", "share", "layouts", "padded channels", "chain"},
    bytes_of_layers: set[str](),
    recurrent: {"units of a block", "sequences together"},
    chained: {"chain"},
}


def run(mod: Any, x: Array, answers: dict[str, str]) -> tuple[Array, Scope]:
    """What it gives, and what was asked; a trace keeps all kernels in this process."""
    config = {"schedule.answers": answers}
    with (
        tvm.transform.PassContext(opt_level=3, config=config, trace=lambda *_: None),
        deciding("network") as scope,
    ):
        lib = relay.build(mod, target=TARGET)
    kind = mod["main"].params[0].checked_type.dtype
    return run_built(lib, x=x.astype(str(kind))), scope


def questions(scope: Scope) -> dict[str, list[str]]:
    """By scope and name, all that was offered."""
    found = {f"{scope.name}/{d.name}": [t for t, _ in d.offered] for d in scope.decisions.values()}
    for part in scope.inner:
        found |= questions(part)
    return found


@pytest.mark.parametrize("network", QUESTIONS)
def test_the_numbers_stay_right_whatever_the_answer(network: Any) -> None:
    mod, x = network()
    want, scope = run(mod, x, {})
    asked = {q: texts for q, texts in questions(scope).items() if len(texts) > 1}
    names = {question.rpartition("/")[2] for question in asked}
    assert QUESTIONS[network] <= names
    order = random.Random(0)
    own = [q for q in sorted(asked) if q.rpartition("/")[2] in QUESTIONS[network] - {"tile"}]
    for question in own[:6] + order.sample(sorted(asked), min(3, len(asked))):
        taken = next(d.taken for d in _all(scope) if question.endswith(f"/{d.name}"))
        answer = order.choice([text for text in asked[question] if text != taken])
        got, again = run(mod, x, {question: answer})
        assert any(decision.answered for part in again.inner for decision in _all(part)), question
        np.testing.assert_allclose(got, want, atol=2e-5 * np.abs(want).max(), err_msg=question)


def _all(scope: Scope) -> list[Any]:
    inner = [decision for part in scope.inner for decision in _all(part)]
    return [*scope.decisions.values(), *inner]
