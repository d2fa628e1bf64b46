"""Graphs as text and back."""

# mypy: disable-error-code="arg-type, attr-defined"

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.ir import explain_difference

CONSTANT = np.arange(24.0, dtype="float32").reshape(2, 3, 2, 2)


def network() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 3, 8, 8))
    y = relay.nn.conv2d(x, relay.const(CONSTANT), padding=(1, 0, 1, 0), kernel_size=(2, 2))
    y = relay.nn.relu(y * relay.const(0.5) + 1.0)
    left, right = relay.split(y, 2, axis=1)
    return tvm.IRModule.from_expr(relay.Tuple([relay.concatenate([left, right], axis=-1), y]))


def check(mod: tvm.IRModule) -> None:
    again = relay.parse(mod.astext())
    assert explain_difference(mod, again) is None
    assert again.astext() == mod.astext()


def test_a_network_is_read_back() -> None:
    check(network())
    fused = relay.transform.FuseOps(2)(network())
    assert "Primitive=1" in str(fused["main"])
    check(fused)


def test_lets_choices_and_functions() -> None:
    x, flag = relay.var("x", shape=(2,)), relay.var("flag", shape=(), dtype="bool")
    v, own = relay.var("v"), relay.var("x", shape=(2,))
    inner = relay.Let(v, relay.add(x, x), relay.multiply(v, v))
    twice = relay.GlobalVar("twice")
    mod = tvm.IRModule(
        {
            "twice": relay.Function([own], relay.add(own, own)),
            "main": relay.Function(
                [x, flag], relay.If(flag, inner, twice(x)), relay.TensorType((2,), "float32")
            ),
        }
    )
    check(mod)


def test_unknown_dimensions_and_scalars() -> None:
    x = relay.var("x", relay.TensorType((relay.Any(), 3), "int8"))
    pair = relay.var("pair", relay.TupleType([x.checked_type, relay.TensorType((), "bool")]))
    body = relay.Tuple(
        [x + relay.const(np.int8(-3)), relay.TupleGetItem(pair, 1), relay.const(True)]
    )
    mod = tvm.IRModule.from_expr(body)
    assert "Tensor[(?, 3), int8]" in str(mod) and "-3i8" in str(mod)
    check(mod)


def test_printing_leaves_large_constants_out() -> None:
    assert "meta[relay.Constant][0]" in str(network())
    assert "#[metadata]" not in str(network()) and "#[metadata]" in network().astext()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @main(%x) { add(%x, %y) }", "line 1, column 25: %y is not defined"),
        ("def @main(%x: Tensor[(2), float32]) { add(%x %x) }", "expected ',', found '%x'"),
        ("def @main() { nn.sofmax(1f) }", "there is no operator 'nn.sofmax'; did you mean"),
        ("def @main() { meta[relay.Constant][3] }", "constant 3 is missing"),
        ("def @main() { nn.relu(1f, axis=2) }", "nn.relu has no attributes"),
        ("def @main() { $ }", "is no part of a graph"),
        ("def @main() { 1f", "expected '}', found 'the end'"),
        ("def @main() { 1f } def @main() { 1f }", "@main is defined twice"),
        ("", "expected an expression"),
    ],
)
def test_what_is_wrong_is_shown_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        relay.fromtext(text)
