"""Operators made of statements: what they read lies in memory, whatever it is."""

import numpy as np

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor


def test_statements_read_scalar_constants() -> None:
    places = relay.var("places", shape=(3,), dtype="int32")
    values = np.array([1.0, 2.0, 3.0], "float32")
    body = relay.sparse_to_dense(places, (6,), relay.const(values), relay.const(0.5))
    lib = relay.build(tvm.IRModule.from_expr(body), target="llvm")
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(places=np.array([4, 0, 1], "int32"))
    want = np.array([2.0, 3.0, 0.5, 0.5, 1.0, 0.5], "float32")
    np.testing.assert_array_equal(m.get_output(0).numpy(), want)
