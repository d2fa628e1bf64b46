"""SimplifyExpr: each rule with its text before and after, and where it must not apply."""

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.op.tensor.join import MOST_PARTS
from sterna.relay import transform
from sterna.relay.arrays import to_numpy
from sterna.relay.interpreter import interpret
from sterna.relay.op import is_call_of
from sterna.relay.traverse import post_order
from tests.relay.support import apply, check, text_of

X = "fn (%x: Tensor[(2, 3), float32])"
I8 = "fn (%x: Tensor[(2, 3), int8])"
I32 = "fn (%x: Tensor[(2, 3), int32])"
ONE = "fn (%x: Tensor[(1, 3, 1), float32])"


@pytest.mark.parametrize(
    ("head", "before", "after"),
    [
        (X, "add(%x, 0f)", "%x"),
        (X, "add(0f, %x)", "%x"),
        (X, "subtract(%x, 0f)", "%x"),
        (X, "multiply(1f, %x)", "%x"),
        (X, "divide(%x, 1f)", "%x"),
        (X, "reshape(reshape(%x, newshape=[6]), newshape=[3, 2])",
         "reshape(%x, newshape=[3, 2], allowzero=True)"),
        (X, "reshape(reshape(%x, newshape=[6]), newshape=[2, 3])", "%x"),
        (X, "reshape(%x, newshape=[0, -1])", "%x"),
        (X, "transpose(%x, axes=[0, 1])", "%x"),
        (X, "transpose(transpose(%x))", "%x"),
        (X, "layout_transform(%x, src_layout=\"NC\", dst_layout=\"NC\")", "%x"),
        (X, "cast(%x, dtype=\"float32\")", "%x"),
        (X, "cast(cast(%x, dtype=\"float64\"), dtype=\"int8\")", "cast(%x, dtype=\"int8\")"),
        (X, "cast(cast(%x, dtype=\"float64\"), dtype=\"float32\")", "%x"),
        (I8, "cast(cast(%x, dtype=\"int32\"), dtype=\"float32\")", "cast(%x, dtype=\"float32\")"),
        (X, "squeeze(expand_dims(%x, axis=1), axis=[1])", "%x"),
        (ONE, "expand_dims(squeeze(%x, axis=[0]), axis=0)", "%x"),
        (ONE, "squeeze(squeeze(%x, axis=[0]), axis=[1])",
         "reshape(%x, newshape=[3], allowzero=True)"),
        (X, "concatenate((%x,), axis=1)", "%x"),
        (X, "concatenate((concatenate((%x, %x), axis=-1), %x), axis=1)",
         "concatenate((%x, %x, %x), axis=1)"),
        (X, "strided_slice(%x, begin=[0, -9], end=[2, 9])", "%x"),
        (X, "nn.pad(%x, 0f, pad_width=[[0, 0], [0, 0]])", "%x"),
        (X, "nn.relu(nn.relu(%x))", "nn.relu(%x)"),
        (X, "nn.relu(clip(%x, a_min=0f, a_max=6f))", "clip(%x, a_min=0f, a_max=6f)"),
        (X, "clip(clip(%x, a_min=-1f, a_max=2f), a_min=0f, a_max=6f)",
         "clip(%x, a_min=0f, a_max=2f)"),
        (X, "clip(nn.relu(%x), a_min=-1f, a_max=6f)", "clip(%x, a_min=0, a_max=6f)"),
        (X, "add(add(%x, 1f), 2f)", "add(%x, 3f)"),
        (I32, "add(subtract(%x, 7), 3)", "add(%x, -4)"),
        (X, "multiply(3f, multiply(%x, 2f))", "multiply(%x, 6f)"),
        (X, "multiply(add(multiply(%x, 2f), 1f), 3f)", "add(multiply(%x, 6f), 3f)"),
        (X, "erf(divide(%x, 4f))", "erf(multiply(%x, 0.25f))"),
        (X, "tanh(divide(%x, 0.5f))", "tanh(multiply(%x, 2f))"),
        (X, "broadcast_to(%x, shape=[2, 3])", "%x"),
        (X, "add(multiply(nn.relu(nn.relu(%x)), 1f), 0f)", "nn.relu(%x)"),
    ],
)
def test_rule(head: str, before: str, after: str) -> None:
    check(transform.SimplifyExpr(), f"{head} {{ {before} }}", f"{head} {{ {after} }}")


@pytest.mark.parametrize(
    ("head", "body"),
    [
        (X, "subtract(0f, %x)"),
        (X, "concatenate((concatenate((%x, %x), axis=0), concatenate((%x, %x), axis=0)), axis=1)"),
        (X, "divide(1f, %x)"),
        (X, "divide(%x, 3f)"),  # its rounding may be what is asked for
        (X, "erf(divide(%x, 0f))"),
        (X, "add(subtract(%x, 1f), 2f)"),
        (X, "add(add(%x, 12582912f), -12582912f)"),  # rounds to whole numbers
        (X, "multiply(multiply(%x, 1e-30f), 1e-30f)"),  # the product of both has no digits left
        (X, "multiply(multiply(%x, 1e30f), 1e-30f)"),
        (X, "cast(cast(%x, dtype=\"float16\"), dtype=\"float32\")"),
        (X, "cast(cast(%x, dtype=\"int32\"), dtype=\"float32\")"),
        (I8, "cast(cast(%x, dtype=\"uint8\"), dtype=\"int32\")"),
        (I8, "cast(cast(%x, dtype=\"float32\"), dtype=\"uint8\")"),  # held, not wrapped
        (X, "strided_slice(%x, begin=[1, 2], end=[-9, -9], strides=[-1, -1])"),
        (X, "nn.relu(clip(%x, a_min=-1f, a_max=6f))"),
        (X, "clip(clip(%x, a_min=-1f, a_max=0f), a_min=1f, a_max=6f)"),
        (X, "multiply(add(%x, 1f), 3f)"),  # no fewer calls, and less exact
    ],
)
def test_what_stays(head: str, body: str) -> None:
    check(transform.SimplifyExpr(), f"{head} {{ {body} }}", None)


def test_a_constant_that_makes_the_result_larger_stays() -> None:
    x = relay.var("x", shape=(3,))
    for constant in (np.zeros((2, 1), "float32"), np.zeros((1, 3), "float32")):
        check(transform.SimplifyExpr(), relay.Function((x,), relay.add(x, relay.const(constant))),
              None)


def test_constants_whose_sum_would_be_larger_than_both_stay() -> None:
    x = relay.var("x", shape=(3, 4))
    rows, columns = np.ones((3, 1), "float32"), np.ones((1, 4), "float32")
    body = relay.add(relay.add(x, relay.const(rows)), relay.const(columns))
    check(transform.SimplifyExpr(), relay.Function((x,), body), None)


def test_layouts_through_a_third() -> None:
    text = (
        "fn (%x: Tensor[(1, {c}, 2, 2), float32]) {{ layout_transform(layout_transform(%x, "
        'src_layout="NCHW", dst_layout="NCHW4c"), src_layout="NCHW4c", dst_layout="NHWC") }}'
    )
    after = (
        'fn (%x: Tensor[(1, 8, 2, 2), float32]) { layout_transform(%x, src_layout="NCHW", '
        'dst_layout="NHWC") }'
    )
    check(transform.SimplifyExpr(), text.format(c=8), after)
    check(transform.SimplifyExpr(), text.format(c=6), None)  # padded on the way


def test_integers_wrap_as_before() -> None:
    x = relay.var("x", shape=(4,), dtype="int8")
    body = relay.add(relay.add(x, relay.const(100, "int8")), relay.const(100, "int8"))
    made = check(transform.SimplifyExpr(), relay.Function((x,), body), "fn (%x: Tensor[(4), int8]) "
                 "{ add(%x, -56i8) }")
    assert text_of(made) == text_of(apply(transform.SimplifyExprPostAlterOp(), made))


def test_a_chain_of_joined_parts_is_one_kernel_each() -> None:
    """Every part is copied once for each reader, with the reader's own operators in the kernel."""
    x = relay.var("x", shape=(1, 4, 4, 16))
    joined, read = x, []
    for _ in range(3):
        joined = relay.concatenate([joined, relay.nn.max_pool2d(x, (1, 1), layout="NHWC")], axis=3)
        read.append(relay.mean(relay.nn.relu(relay.multiply(joined, relay.const(2.0)))))
    module = tvm.IRModule.from_expr(relay.Function((x,), relay.Tuple(tuple(read))))
    passes = [transform.InferType(), transform.SimplifyExpr(), transform.FuseOps(2)]
    text = str(tvm.transform.Sequential(passes)(module))
    assert text.count("Primitive=1") == 9  # a pool, a joined chain and a mean for each


def test_a_long_chain_of_joined_parts_is_copied_together_now_and_then() -> None:
    """Else a network of n such layers would have kernels of n parts each."""
    x = relay.var("x", shape=(1, 4))
    joined = x
    for _ in range(3 * MOST_PARTS):
        made = relay.nn.relu(relay.strided_slice(joined, [0, 0], [1, 4]))
        joined = relay.concatenate([joined, made], axis=1)
    function = apply(transform.SimplifyExpr(), relay.Function((x,), joined))
    joined_calls = [
        call for call in post_order(function)
        if isinstance(call, relay.Call) and str(call.op) == "concatenate"
    ]
    counts = [
        len(parts.fields) for call in joined_calls if isinstance(parts := call.args[0], relay.Tuple)
    ]
    assert max(counts) == MOST_PARTS
    assert len(counts) == 3 * MOST_PARTS


@pytest.mark.parametrize("shape", [(1,), (1, 1), (1, 1, 1)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("is_first", [False, True])
def test_a_constant_of_one_element_is_a_number(
    shape: tuple[int, ...], dtype: str, is_first: bool
) -> None:
    x = relay.var("x", shape=(2, 3), dtype=dtype)
    lone = relay.const(np.full(shape, 2), dtype)
    body = relay.subtract(lone, x) if is_first else relay.subtract(x, lone)
    made = apply(transform.SimplifyExpr(), relay.Function((x,), body)).body
    (constant,) = [each for each in made.args if isinstance(each, relay.Constant)]
    is_number = len(shape) <= 2  # a third axis would be one of the result
    assert constant.data.shape == (() if is_number else shape)
    assert constant.data.dtype == dtype and float(to_numpy(constant.data).reshape(())) == 2
    assert made.args.index(constant) == (0 if is_first else 1)


def test_known_columns_follow_the_order_of_data() -> None:
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 4, 5)).astype("float32")
    weight = relay.const(rng.standard_normal((6, 60)).astype("float32"))
    data = relay.var("x", shape=x.shape)
    for axes, is_moved in (((0, 3, 1, 2), True), ((1, 0, 2, 3), False)):
        rows = relay.reshape(relay.transpose(data, axes), (2, 60))
        func = relay.Function((data,), relay.nn.dense(rows, weight))
        made = apply(transform.SimplifyExpr(), func)
        is_left = any(is_call_of(part, "transpose") for part in post_order(made))
        assert is_left is not is_moved
        np.testing.assert_allclose(interpret(made, x), interpret(func, x), rtol=1e-5, atol=1e-5)
