"""Rows that are made where rows of the result read them, and as a whole where others do."""

from collections.abc import Callable

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.relay.expr import RelayExpr
from sterna.relay.op import find

SIZE = {"size": (11, 23), "layout": "NCHW"}
AFTER: dict[str, tuple[Callable[[RelayExpr], RelayExpr], Callable[[np.ndarray], np.ndarray]]] = {
    "alone": (lambda x: x, lambda x: x),
    "relu": (relay.nn.relu, lambda x: np.maximum(x, 0)),
    "turned": (lambda x: relay.transpose(x, (0, 2, 3, 1)), lambda x: x.transpose(0, 2, 3, 1)),
    "rows turned": (lambda x: relay.reverse(x, axis=2), lambda x: x[:, :, ::-1]),
    "twice": (lambda x: x * relay.nn.relu(x), lambda x: x * np.maximum(x, 0)),
}


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("method", ["linear", "cubic"])
def test_resized_rows_are_what_the_reference_says(after: str, method: str) -> None:
    data = np.random.default_rng(0).standard_normal((2, 3, 6, 9)).astype("float32")
    x = relay.var("x", shape=data.shape)
    on_graph, on_array = AFTER[after]
    body = on_graph(relay.image.resize2d(x, SIZE["size"], method=method))
    mod = tvm.IRModule.from_expr(relay.Function((x,), body))
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(mod, target="llvm -mcpu=native")
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(x=data)
    record = find("image.resize2d")
    assert record.attrs is not None and record.reference is not None
    want = on_array(record.reference(record.attrs(**SIZE, method=method), data))
    np.testing.assert_allclose(m.get_output(0).numpy(), want, rtol=1e-4, atol=1e-5)
