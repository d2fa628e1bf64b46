"""Expressions, builders and types: what users write and what they are told."""

# mypy: disable-error-code="arg-type, attr-defined, no-any-return, operator, unused-ignore"

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.ir import load_json, save_json, structural_equal, structural_hash
from sterna.relay.arrays import to_numpy
from sterna.relay.op import records


def test_a_call_has_its_type_at_once() -> None:
    x = relay.var("x", shape=(2, 3))
    y = relay.add(x, relay.const(1.0))
    assert y.checked_type == relay.TensorType((2, 3), "float32")
    assert isinstance(y, relay.Call) and str(y.op) == "add" and y.args[0] is x


def test_python_operators_build_calls() -> None:
    x = relay.var("x", shape=(2,), dtype="int32")
    y = 1 - -x * 2 + x
    names: list[str] = []
    relay.analysis.post_order_visit(
        y, lambda e: names.append(str(e.op)) if isinstance(e, relay.Call) else None
    )
    assert names == ["negative", "multiply", "subtract", "add"]
    assert y.checked_type.dtype == "int32"
    assert (x < 3).checked_type.dtype == "bool"


def test_a_mismatch_names_the_call_and_the_operands() -> None:
    x, w = relay.var("x", shape=(1, 64)), relay.var("w", shape=(10, 32))
    with pytest.raises(relay.TypeInferenceError) as failure:
        relay.nn.dense(x, w)
    text = str(failure.value)
    assert "inner dimension of weight is 64, not 32" in text
    assert "nn.dense(data=%x: float32(1, 64), weight=%w: float32(10, 32)" in text


def test_a_span_is_part_of_the_message() -> None:
    x, y = relay.var("x"), relay.var("y", shape=(3,))
    call = relay.add(x, y)
    call.span = "Add_12"
    x._type = relay.TensorType((4,), "float32")
    with pytest.raises(relay.TypeInferenceError, match="at Add_12"):
        call.checked_type  # noqa: B018


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: relay.add(x), "missing a required argument: 'rhs'"),
        (lambda x: relay.add(x, "text"), "rhs is an expression of a graph, not 'text'"),
        (lambda x: relay.nn.softmax(x, axes=1), "unexpected keyword argument 'axes'"),
        (lambda x: relay.nn.softmax(x, axis="last"), "the attribute axis is int, not 'last'"),
    ],
)
def test_wrong_arguments_of_builders(make: object, message: str) -> None:
    with pytest.raises(TypeError, match=message.replace("(", r"\(")):
        make(relay.var("x", shape=(2, 3)))  # type: ignore[operator]


def test_unknown_operators_are_named_with_near_ones() -> None:
    with pytest.raises(AttributeError, match="softmaxx"):
        relay.nn.softmaxx  # noqa: B018
    with pytest.raises(ValueError, match=r"there is no operator 'nn.softmxa'; did you mean"):
        relay.Op.get("nn.softmxa")


def test_weights_without_a_type_get_one() -> None:
    y = relay.nn.dense(relay.var("x", shape=(4, 8)), relay.var("w"), units=3)
    mod = tvm.IRModule.from_expr(y)
    assert relay.infer(mod["main"]).ret_type == relay.TensorType((4, 3), "float32")
    assert mod["main"].params[1].checked_type == relay.TensorType((3, 8), "float32")


def test_a_variable_that_nothing_types_is_an_error() -> None:
    y = relay.add(relay.var("x"), relay.var("y", shape=(2,)))
    with pytest.raises(relay.TypeInferenceError, match=r'relay.var\("x", shape='):
        y.checked_type  # noqa: B018


def test_unknown_dimensions_pass_through() -> None:
    x = relay.var("x", shape=(relay.Any(), 3))
    assert repr(relay.add(x, relay.const(1.0)).checked_type) == "Tensor[(?, 3), float32]"


def test_tuples_let_and_if() -> None:
    x = relay.var("x", shape=(2,))
    pair = relay.Tuple((x, relay.add(x, x)))
    assert relay.TupleGetItem(pair, 1).checked_type == x.checked_type
    with pytest.raises(relay.TypeInferenceError, match="item 2 of a tuple of 2"):
        relay.TupleGetItem(pair, 2)
    v = relay.var("v")
    assert relay.Let(v, relay.add(x, x), relay.multiply(v, v)).checked_type == x.checked_type
    flag = relay.var("flag", shape=(), dtype="bool")
    assert relay.If(flag, x, relay.add(x, x)).checked_type == x.checked_type
    with pytest.raises(relay.TypeInferenceError, match="condition of if is a bool scalar"):
        relay.If(x, x, x).checked_type  # noqa: B018


def test_json_and_structural_equality_with_constants() -> None:
    x = relay.var("x", shape=(2, 3))
    main = relay.Function([x], relay.add(x, relay.const(np.arange(6.0, dtype="f").reshape(2, 3))))
    again = load_json(save_json(main))
    assert structural_equal(main, again)
    assert structural_hash(main) == structural_hash(again)
    other = relay.Function([x], relay.add(x, relay.const(np.ones((2, 3), "f"))))
    assert not structural_equal(main, other)


def test_attributes_of_every_operator_come_back_from_json_and_are_checked() -> None:
    for name, record in records().items():
        for case in record.cases:
            attrs = record.attrs(**case.attrs) if record.attrs is not None else ()
            assert structural_equal(attrs, load_json(save_json(attrs))), name
    softmax = relay.nn.softmax(relay.var("x", shape=(2,)), axis=-1)
    broken = save_json(softmax.attrs).replace("-1", '"last"')
    with pytest.raises(ValueError, match=r"SoftmaxAttrs.*the attribute axis is"):
        load_json(broken)


@pytest.mark.parametrize(
    "dtype", ["float32", "float16", "bfloat16", "int8", "uint8", "bool", "float8_e4m3fn"]
)
def test_constants_of_every_type(dtype: str) -> None:
    numbers = np.array([0, 1, 1, 0])
    constant = relay.const(numbers, dtype)
    assert isinstance(constant, relay.Constant)
    assert constant.checked_type == relay.TensorType((4,), tvm.DataType(dtype))
    again = load_json(save_json(constant))
    assert structural_equal(constant, again)
    assert to_numpy(again.data).astype("int32").tolist() == [0, 1, 1, 0]


def test_modules_by_name_and_global_variable() -> None:
    x = relay.var("x", shape=(2,))
    mod = tvm.IRModule.from_expr(relay.add(x, x))
    main = relay.GlobalVar("main")
    assert mod[main] is mod["main"] and "main" in mod and len(mod) == 1
    assert [name.name_hint for name in mod.functions] == ["main"]  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="no function 'other'; it has main"):
        mod["other"]
    mod[relay.GlobalVar("twice")] = relay.Function([x], relay.add(x, x))
    call = relay.GlobalVar("twice")(x)
    mod["main"] = relay.Function([x], call)
    assert relay.transform.InferType()(mod)["main"].checked_type.ret_type == x.checked_type


def test_free_and_bound_variables() -> None:
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    body = relay.add(y, x)
    assert relay.analysis.free_vars(body) == [y, x]
    function = relay.Function([x], body)
    assert relay.analysis.free_vars(function) == [y]
    assert relay.analysis.bound_vars(function) == [x]


@pytest.mark.parametrize(("value", "dtype", "message"), [
    (300, "int8", "300 does not fit in int8, which holds -128 to 127"),
    ([1, -1], "uint8", "-1 does not fit in uint8, which holds 0 to 255"),
    (np.int64(2**31), "int32", "2147483648 does not fit in int32"),
    (2**40, None, "1099511627776 does not fit in int32"),
    (float("nan"), "int8", "nan does not fit in int8"),
])
def test_constants_do_not_wrap_around(value: Any, dtype: str | None, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        relay.const(value, dtype)
    for fits, kind in ((-128, "int8"), (np.array([2**40]), None)):
        made = relay.const(fits, kind)
        assert isinstance(made, relay.Constant)
        np.testing.assert_array_equal(made.data.numpy(), fits)
