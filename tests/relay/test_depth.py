"""Graphs are deep: a chain of 50,000 calls goes through everything."""

# mypy: disable-error-code="arg-type, attr-defined, no-any-return, operator, unused-ignore"

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.ir import load_json, save_json, structural_equal, structural_hash
from sterna.relay import pipeline
from sterna.relay.interpreter import interpret
from sterna.relay.traverse import post_order, rewrite

DEPTH = 50_000


@pytest.fixture(scope="module")
def chain() -> tvm.IRModule:
    x = relay.var("x", shape=(4,))
    body = x
    for _ in range(DEPTH):
        body = relay.add(body, x)
    return tvm.IRModule.from_expr(body)


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


def test_all_passes(chain: tvm.IRModule) -> None:
    with tvm.transform.PassContext(opt_level=3):
        fused = tvm.transform.Sequential(pipeline.passes())(chain)
    kernels = [e for e in post_order(fused["main"]) if isinstance(e, relay.Function)]
    assert len(kernels) > DEPTH // 257
