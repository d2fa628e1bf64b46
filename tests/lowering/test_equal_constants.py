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


def test_a_kernel_is_given_equal_constants_once() -> None:
    """C's compilers warn of operands that are one array under two names."""
    table = np.arange(7, dtype="int32") * 3
    x = relay.var("x", shape=(8,), dtype="int32")
    made = relay.take(relay.const(table), x, mode="clip")
    for other in (table.copy(), table + 1):
        made = relay.add(made, relay.take(relay.const(other), x, mode="clip"))
    with tvm.transform.PassContext(opt_level=3):
        mod, _ = relay.optimize(tvm.IRModule.from_expr(made), target="c")
    kernel = mod["main"].body
    assert len(kernel.args) == 3, str(mod)
    ready = relay_build.build(tvm.IRModule.from_expr(made), target="llvm")
    module = tvm.contrib.graph_executor.GraphModule(ready["default"](tvm.cpu(0)))
    data = np.arange(8, dtype="int32") % 7
    module.run(x=data)
    np.testing.assert_array_equal(module.get_output(0).numpy(), 9 * data + 1)
