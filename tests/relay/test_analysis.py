"""Questions about graphs, and programs written line by line."""

import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.testing import mlp
from tests.relay.support import function, run


def test_well_formed() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    inner = relay.Let(y, relay.exp(x), relay.add(y, y))
    assert relay.analysis.well_formed(relay.Function((x,), inner))
    assert relay.analysis.well_formed(relay.add(x, x)), "free variables are no mistake"
    twice = relay.add(inner, relay.Let(y, relay.log(x), y))
    assert not relay.analysis.well_formed(twice), "y has two values"
    outside = relay.add(inner, y)
    assert not relay.analysis.well_formed(outside), "y is read where it is not bound"
    shared = relay.exp(y)
    assert not relay.analysis.well_formed(relay.add(relay.Let(y, x, shared), shared))
    helper = relay.Function((y,), relay.exp(y))
    assert relay.analysis.well_formed(relay.add(helper(x), helper(relay.exp(x))))
    assert not relay.analysis.well_formed(relay.Let(y, relay.exp(y), y))


def test_constants() -> None:
    one = relay.const(1.0)
    assert relay.analysis.check_constant(relay.Tuple((one, relay.exp(one))))
    assert not relay.analysis.check_constant(relay.exp(relay.var("x", shape=())))


def test_basic_blocks() -> None:
    x, c = relay.var("x", shape=(2,)), relay.var("c", shape=(), dtype="bool")
    common = relay.exp(x)
    choice = relay.If(c, relay.add(common, x), relay.add(common, common))
    assert not relay.analysis.check_basic_block_normal_form(choice)
    name = relay.var("name", shape=(2,))
    named = relay.Let(name, common, relay.If(c, relay.add(name, x), relay.add(name, name)))
    assert relay.analysis.check_basic_block_normal_form(named)


def test_types_and_counts() -> None:
    mod, _ = mlp.get_workload(image_shape=(1, 4, 4))
    counts = relay.analysis.list_op_freqs(mod)
    assert counts["nn.dense"] == 3 and counts["nn.relu"] == 2
    assert relay.analysis.get_total_mac_number(mod["main"]) == 16 * 128 + 128 * 64 + 64 * 10
    text = 'fn (%x: Tensor[(2), int8]) { cast(cast(%x, dtype="float16"), dtype="int32") }'
    assert relay.analysis.all_dtypes(function(text)) == {"int8", "float16", "int32"}


def test_parts() -> None:
    x = relay.var("x", shape=(2, 3))
    body = relay.nn.softmax(relay.nn.relu(relay.exp(x)))
    mod = tvm.IRModule.from_expr(body)
    with tvm.transform.PassContext(opt_level=2):
        kernels = relay.analysis.extract_fused_functions(mod)
    assert set(kernels) == {"fused_exp_nn_relu", "fused_nn_softmax"}
    assert kernels["fused_exp_nn_relu"].is_primitive
    part = relay.analysis.extract_intermdeiate_expr(mod, 1)["main"]
    assert str(part.body.op) == "nn.relu"
    with pytest.raises(ValueError, match="main has 3 calls; there is none with the number 3"):
        relay.analysis.extract_intermdeiate_expr(mod, 3)


def test_bind() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    f = relay.Function((x, y), relay.add(x, y))
    bound = relay.bind(f, {y: relay.const([1.0, 2.0])})
    assert isinstance(bound, relay.Function) and bound.params == (x,)
    assert relay.analysis.check_constant(relay.bind(relay.exp(x), {x: relay.const([1.0, 2.0])}))


def test_scopes() -> None:
    x, c = relay.var("x", shape=(2,)), relay.var("c", shape=(), dtype="bool")
    sb = relay.ScopeBuilder()
    y = sb.let("y", relay.exp(x))
    with sb.if_scope(c):
        z = sb.let(("z", relay.TensorType((2,))), relay.add(y, y))
        sb.ret(z)
    with pytest.raises(ValueError, match="the whole ends after an if_scope; else_scope must"):
        sb.get()
    with sb.else_scope():
        sb.ret(y)
    made = relay.Function((x, c), sb.get())
    assert relay.analysis.well_formed(made) and run(made).shape == (2,)
    with pytest.raises(ValueError, match="the scope has its result already"):
        sb.ret(x)
    with pytest.raises(ValueError, match="else_scope follows an if_scope"), sb.else_scope():
        pass
    with pytest.raises(ValueError, match="the whole has no result; say it by ret"):
        relay.ScopeBuilder().get()
