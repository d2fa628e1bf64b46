"""The questions of GPU schedules, answered and timed on an OpenCL device."""

import numpy as np

import sterna
from sterna import relay
from sterna.target import Target
from sterna.testing import requires_opencl
from sterna.tune.measure import Bench
from sterna.tune.statistics import LEAST_PAIRS

pytestmark = requires_opencl.marks()


def test_tiles_of_blocks_are_timed_on_the_device() -> None:
    x, w = relay.var("x", shape=(32, 48)), relay.var("w", shape=(64, 48))
    module = sterna.IRModule.from_expr(relay.Function((x, w), relay.nn.dense(x, w)))
    order = np.random.default_rng(0)
    given = {"x": order.random((32, 48), "float32"), "w": order.random((64, 48), "float32")}
    bench = Bench(module, {}, Target("opencl"), given)
    asked = bench.built({}).described.questions
    question, offered = next(iter(asked.kernels.items()))
    assert question.endswith("/tile of a block") and len(offered) > 2
    other = next(text for text in offered if text != asked.taken[question])
    found = bench.compare({}, {question: other}, 0.0)
    assert found.questions.taken[question] == other
    (times,) = found.layers.values()
    assert len(times.challenger) >= LEAST_PAIRS and min(times.challenger) > 0
