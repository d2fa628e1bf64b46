"""Graphs are deep: a chain of 20,000 calls goes through everything."""

# mypy: disable-error-code="arg-type, attr-defined, no-any-return, operator, unused-ignore"

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.ir import load_json, save_json, structural_equal, structural_hash
from sterna.relay import pipeline, transform
from sterna.relay.interpreter import interpret
from sterna.relay.traverse import post_order, rewrite
from sterna.schedule.kernel import Processor

DEPTH = 20_000


@pytest.fixture(scope="module")
def chain() -> tvm.IRModule:
    """x + x + x + ..., from a file of as many nodes."""
    value = helper.make_tensor_value_info
    names = ["x", *(f"t{number}" for number in range(DEPTH))]
    nodes = [helper.make_node("Add", [a, "x"], [b]) for a, b in pairwise(names)]
    ends = [value(name, TensorProto.FLOAT, [4]) for name in ("x", names[-1])]
    graph = helper.make_graph(nodes, "chain", ends[:1], ends[1:])
    return relay.frontend.from_onnx(helper.make_model(graph))[0]


def test_walks(chain: tvm.IRModule) -> None:
    main = chain["main"]
    assert len(post_order(main)) == DEPTH + 2
    assert rewrite(main, lambda new, old: new) is main
    assert relay.analysis.free_vars(main.body) == list(main.params)


def test_users_visitors(chain: tvm.IRModule) -> None:
    class Count(relay.ExprVisitor):
        calls = 0

        def visit_call(self, call: relay.Call) -> None:
            super().visit_call(call)
            self.calls += 1

    class Subtract(relay.ExprMutator):
        def visit_call(self, call: relay.Call) -> relay.Expr:
            made = super().visit_call(call)
            assert isinstance(made, relay.Call)
            return relay.subtract(*made.args)

    count = Count()
    count.visit(chain["main"])
    assert count.calls == DEPTH
    changed = Subtract().visit(chain["main"])
    assert str(changed.body.op) == "subtract" and len(post_order(changed)) == DEPTH + 2


def test_saving_and_comparing(chain: tvm.IRModule) -> None:
    again = load_json(save_json(chain["main"]))
    assert structural_equal(chain["main"], again)
    assert structural_hash(chain["main"]) == structural_hash(again)


def test_interpreter(chain: tvm.IRModule) -> None:
    result = interpret(chain["main"], np.ones(4, "float32"))
    assert result.tolist() == [DEPTH + 1] * 4


# The passes that no build runs.
CHANGES = [
    transform.ConvertLayout({"nn.conv2d": ["NHWC", "default"]}), transform.DynamicToStatic(),
    transform.ToBasicBlockNormalForm(),
    transform.ToMixedPrecision(), transform.FuseOps(0),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda one: one.info.name)
def test_pass(chain: tvm.IRModule, change: Any) -> None:
    change(chain)


def test_build(chain: tvm.IRModule) -> None:
    with tvm.transform.PassContext(opt_level=4, config={"relay.FuseOps.max_depth": 32}):
        lib = relay.build(chain, "llvm")
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(x=np.ones(4, "float32"))
    assert m.get_output(0).numpy().tolist() == [DEPTH + 1] * 4
    kernels = [e for e in post_order(lib.ir_mod["main"]) if isinstance(e, relay.Function)]
    assert len(kernels) > DEPTH // 33
    defused = transform.DefuseOps()(lib.ir_mod)
    assert len(post_order(defused["main"])) == DEPTH + 2


def test_lets(chain: tvm.IRModule) -> None:
    named = transform.ToANormalForm()(chain)
    assert structural_equal(transform.ToGraphNormalForm()(named)["main"], chain["main"])
    assert transform.DeadCodeElimination()(named) is named
    unread = relay.Let(relay.var("y", shape=(4,)), named["main"].body, relay.const(1.0))
    dead = relay.Function(named["main"].params, unread)
    made = transform.DeadCodeElimination()(tvm.IRModule({"main": dead}))["main"]
    assert isinstance(made.body, relay.Constant)


def test_what_rules_take_away(chain: tvm.IRModule) -> None:
    x = relay.var("x", shape=(2, 3))
    body: Any = x
    for place in range(DEPTH // 2):
        body = (relay.transpose(body), relay.nn.relu(body), relay.add(body, relay.const(1.0)),
                relay.reshape(body, (-1,) if place % 8 < 4 else (2, 3)))[place % 4]
    mod = tvm.IRModule.from_expr(body)
    for change in (transform.SimplifyExpr(), transform.FoldScaleAxis(), transform.FuseOps(2)):
        change(mod)


def test_products() -> None:
    x, w = relay.var("x", shape=(1, 4)), relay.const(np.eye(4, dtype="float32"))
    body: Any = x
    for _ in range(DEPTH // 25):
        body = relay.nn.bias_add(relay.nn.dense(body, w), relay.const(np.ones(4, "float32")))
        body = relay.nn.relu(relay.multiply(body, relay.const(np.ones((1, 4), "float32"))))
    mod = tvm.IRModule.from_expr(body)
    transform.ToMixedPrecision()(mod)
    with tvm.transform.PassContext(opt_level=4):
        tvm.transform.Sequential(pipeline.passes(Processor()))(mod)
