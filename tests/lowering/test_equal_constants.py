"""Constants of the same elements lie in memory once."""

import numpy as np

import sterna as tvm
from sterna import relay
from sterna.driver import relay_build


def test_constants_of_the_same_elements_are_one() -> None:
    rng = np.random.default_rng(0)
    table = rng.standard_normal((300, 4)).astype("float32")
    other = table.copy()
    other[-1, -1] += 1
    x = relay.var("x", shape=(2, 300))
    parts = [relay.nn.dense(x, relay.const(one.T.copy())) for one in (table, table, other)]
    names = relay.nn.dense(x, relay.const(table.T.copy()))
    made = relay_build.build(
        tvm.IRModule.from_expr(relay.Tuple((*parts, relay.tanh(names)))), target="llvm")
    large = [value for value in made.get_params().values() if np.prod(value.shape) >= table.size]
    assert len(large) == 2
    module = tvm.contrib.graph_executor.GraphModule(made["default"](tvm.cpu(0)))
    data = rng.standard_normal((2, 300)).astype("float32")
    module.run(x=data)
    for place, want in enumerate((data @ table, data @ table, data @ other, np.tanh(data @ table))):
        np.testing.assert_allclose(module.get_output(place).numpy(), want, rtol=1e-4, atol=1e-5)
