"""Passes one by one: the text before and after, and equal values."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay import transform
from sterna.relay.passes.fold_constant import SMALL_BYTES
from sterna.relay.passes.share_joined_parts import GROUP
from sterna.relay.traverse import post_order
from tests.relay.support import apply, assert_same_values, check, function, run, text_of

X = "fn (%x: Tensor[(2, 3), float32])"


def ops(func: Any) -> dict[str, int]:
    return relay.analysis.list_op_freqs(tvm.IRModule({"main": func}))


def array(*shape: int, seed: int = 0) -> Any:
    return relay.const(np.random.default_rng(seed).standard_normal(shape).astype("float32"))


# ---- constants ----


def test_constants_are_computed() -> None:
    check(transform.FoldConstant(), f"{X} {{ add(%x, multiply(2f, exp(0f))) }}",
          f"{X} {{ add(%x, 2f) }}")
    check(transform.FoldConstant(), f"{X} {{ %0 = (%x, 1f); %0.0 }}", f"{X} {{ %x }}")


def test_constants_do_not_grow() -> None:
    side = int(np.sqrt(SMALL_BYTES // 4)) + 1
    x = relay.var("x", shape=(side, side))
    spread = relay.broadcast_to(relay.const(1.0), (side, side))
    check(transform.FoldConstant(), relay.Function((x,), relay.add(x, spread)), None)
    small = relay.broadcast_to(relay.const(1.0), (4, 4))
    y = relay.var("y", shape=(4, 4))
    made = apply(transform.FoldConstant(), relay.Function((y,), relay.add(y, small)))
    assert isinstance(made.body.args[1], relay.Constant)


# ---- equal calls ----


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("add(nn.relu(%x), nn.relu(%x))", "%0 = nn.relu(%x); add(%0, %0)"),
        ("add(concatenate((%x, %x), axis=0), concatenate((%x, %x), axis=0))",
         "%0 = (%x, %x); %1 = concatenate(%0, axis=0); add(%1, %1)"),
        ("multiply(add(%x, 1f), add(%x, 1f))", "%0 = add(%x, 1f); multiply(%0, %0)"),
        ("%0 = split(%x, indices_or_sections=3, axis=1); add(%0.1, %0.1)",
         "%0 = split(%x, indices_or_sections=3, axis=1); %1 = %0.1; add(%1, %1)"),
    ],
)
def test_equal_calls(before: str, after: str) -> None:
    check(transform.EliminateCommonSubexpr(), f"{X} {{ {before} }}", f"{X} {{ {after} }}")


def test_calls_that_differ_stay() -> None:
    for body in ("add(sum(%x, axis=[0], keepdims=True), sum(%x, axis=[1], keepdims=True))",
                 "multiply(add(%x, 1f), add(%x, 2f))"):
        check(transform.EliminateCommonSubexpr(), f"{X} {{ {body} }}", None)
    skip = transform.EliminateCommonSubexpr(lambda e: str(e.op) == "nn.relu")  # type: ignore[attr-defined]
    check(skip, f"{X} {{ add(nn.relu(%x), nn.relu(%x)) }}", None)


@pytest.mark.parametrize("axis", [1, -1])
def test_parts_that_are_joined_again_and_again_are_joined_once(axis: int) -> None:
    """A layer that joins all results before it reads a few tensors, not all of them."""
    joined = [relay.var("x", shape=(2, 3))]
    for _ in range(3 * GROUP):
        whole = relay.concatenate(list(joined), axis=axis)
        joined.append(relay.tanh(relay.sum(whole, axis=axis, keepdims=True)))
    before = relay.Function((joined[0],), relay.concatenate(joined, axis=axis))
    made = apply(transform.ShareJoinedParts(), before)
    parts = [len(e.fields) for e in post_order(made) if isinstance(e, relay.Tuple)]
    assert max(parts) < GROUP + 3
    assert len(parts) == 3 * GROUP + 1 + 3
    assert_same_values(run(made), run(before))
    check(transform.ShareJoinedParts(), made, None)


def test_parts_that_are_joined_once_stay_together() -> None:
    """Only a concatenation that others share parts with is a kernel of its own."""
    x = relay.var("x", shape=(2, 3))
    parts = [relay.multiply(x, relay.const(float(i))) for i in range(3 * GROUP)]
    check(transform.ShareJoinedParts(), relay.Function((x,), relay.concatenate(parts, 0)), None)


# ---- names ----


def test_normal_forms() -> None:
    graph = f"{X} {{ %0 = add(%x, %x); multiply(%0, %0) }}"
    kind = "Tensor[(2, 3), float32]"
    named = check(transform.ToANormalForm(), graph, f"{X} {{ let %x_0: {kind} = add(%x, %x); "
                  f"let %x_1: {kind} = multiply(%x_0, %x_0); %x_1 }}")
    check(transform.ToGraphNormalForm(), named, graph)


def test_choices_in_normal_form() -> None:
    text = (
        "fn (%x: Tensor[(2), float32], %c: Tensor[(), bool]) { %0 = exp(%x); "
        "if (%c) { add(%0, %0) } else { nn.relu(%0) } }"
    )
    before = function(text)
    made = apply(transform.ToANormalForm(), before)
    back = apply(transform.ToGraphNormalForm(), made)
    for seed in range(4):
        assert_same_values(run(made, seed), run(before, seed))
        assert_same_values(run(back, seed), run(before, seed))
    assert relay.analysis.well_formed(made)


@pytest.mark.parametrize(
    ("body", "lets"),
    [
        ("%0 = exp(%x); if (%c) { add(%0, %0) } else { nn.relu(%0) }", 1),
        ("%0 = exp(%x); %1 = tanh(%0); add(%1, if (%c) { %1 } else { nn.relu(%0) })", 2),
        ("%0 = exp(%x); if (%c) { if (%c) { %0 } else { tanh(%0) } } else { %x }", 1),
        ("%0 = exp(%x); if (%c) { add(%0, %0) } else { %x }", 0),
        ("%0 = exp(%x); %1 = fn (%y: Tensor[(2), float32]) { add(%y, %0) }; %1(%0)", 1),
    ],
)
def test_what_blocks_share_has_a_name(body: str, lets: int) -> None:
    before = function(f"fn (%x: Tensor[(2), float32], %c: Tensor[(), bool]) {{ {body} }}")
    made = apply(transform.ToBasicBlockNormalForm(), before)
    found: list[Any] = []
    relay.analysis.post_order_visit(
        made, lambda e: found.append(e) if isinstance(e, relay.Let) else None
    )
    assert len(found) == lets
    assert relay.analysis.check_basic_block_normal_form(made) and relay.analysis.well_formed(made)
    for seed in range(4):
        assert_same_values(run(made, seed), run(before, seed), 0)


def test_unread_lets() -> None:
    before = (
        f"{X} {{ let %a = exp(%x); let %b = add(%a, %a); let %c = nn.relu(%x); "
        "let %d = multiply(%b, %b); %c }"
    )
    check(transform.DeadCodeElimination(), before, f"{X} {{ let %c = nn.relu(%x); %c }}")
    check(transform.DeadCodeElimination(inline_once=True), before, f"{X} {{ nn.relu(%x) }}")


def test_marked_functions_are_inlined() -> None:
    mod = relay.fromtext("""#[version = "0.0.5"]
def @main(%x: Tensor[(2), float32]) { add(@f(%x), @f(exp(%x))) }
def @f(%y: Tensor[(2), float32], Inline=1) -> Tensor[(2), float32] { let %z = @g(%y); add(%z, %z) }
def @g(%y: Tensor[(2), float32], Inline=1) -> Tensor[(2), float32] { nn.relu(%y) }
""")
    made = transform.InferType()(transform.Inline()(transform.InferType()(mod)))
    assert list(made.functions) == ["main"] and relay.analysis.well_formed(made["main"])
    assert ops(made["main"]) == {"nn.relu": 2, "add": 3, "exp": 1}
    assert_same_values(run(made["main"]), run(mod["main"], mod=mod))


def test_a_function_that_calls_itself_is_not_inlined() -> None:
    mod = relay.fromtext("""#[version = "0.0.5"]
def @main(%x: Tensor[(2), float32]) { @f(%x) }
def @f(%y: Tensor[(2), float32], Inline=1) -> Tensor[(2), float32] { @g(%y) }
def @g(%y: Tensor[(2), float32], Inline=1) -> Tensor[(2), float32] { @f(%y) }
""")
    with pytest.raises(ValueError, match=r"the function @f is to be inlined but calls itself"):
        transform.Inline()(mod)


# ---- casts and precision ----


def test_every_reader_has_its_cast() -> None:
    head = "fn (%x: Tensor[(2), int8], %y: Tensor[(2), int32])"
    before = f'{head} {{ %0 = cast(%x, dtype="int32"); add(multiply(%0, %y), subtract(%0, %y)) }}'
    made = check(transform.CanonicalizeCast(), before, f'{head} {{ %0 = cast(%x, dtype="int32"); '
                 '%1 = multiply(%0, %y); %2 = cast(%x, dtype="int32"); %3 = subtract(%2, %y); '
                 "add(%1, %3) }")
    assert ops(made)["cast"] == 2
    narrowing = before.replace("int8", "int64")
    check(transform.CanonicalizeCast(), narrowing, None)
    check(transform.CanonicalizeCast(), f'{head} {{ %0 = cast(%x, dtype="int32"); add(%0, %0) }}',
          None)


@pytest.mark.parametrize("narrow", ["float16", "bfloat16"])
def test_products_are_narrow(narrow: str) -> None:
    x = relay.var("x", shape=(2, 8))
    made = relay.nn.bias_add(relay.nn.dense(x, array(4, 8)), array(4))
    body = relay.nn.softmax(relay.nn.relu(made))
    before = relay.Function((x,), body)
    after = apply(transform.ToMixedPrecision(narrow), before)
    kinds = {str(e.op): str(e.checked_type.dtype) for e in _calls(after) if str(e.op) != "cast"}
    assert kinds == {"nn.dense": narrow, "nn.bias_add": narrow, "nn.relu": narrow,
                     "nn.softmax": "float32"}
    assert_same_values(run(after), run(before), 5e-2)


def _calls(func: Any) -> list[Any]:
    found: list[Any] = []
    relay.analysis.post_order_visit(
        func, lambda e: found.append(e) if isinstance(e, relay.Call) else None
    )
    return found


def test_results_get_their_types_back_on_demand() -> None:
    x = relay.var("x", shape=(2, 8))
    product = relay.nn.dense(x, array(4, 8))
    before = relay.Function((x,), relay.Tuple((product, x)))
    narrow = apply(transform.ToMixedPrecision(), before)
    assert [str(k.dtype) for k in narrow.body.checked_type.fields] == ["float16", "float32"]
    with tvm.transform.PassContext(
        config={"relay.ToMixedPrecision.keep_orig_output_dtype": True}
    ):
        kept = apply(transform.ToMixedPrecision(), before)
    assert kept.body.checked_type == before.body.checked_type
    assert_same_values(run(kept), run(before), 1e-2)


def test_what_has_no_place_in_the_narrow_type_stays_wide() -> None:
    x = relay.var("x", shape=(2, 8))
    body = relay.add(relay.nn.dense(x, array(4, 8)), relay.const(-1e9))
    made = apply(transform.ToMixedPrecision(), relay.Function((x,), body))
    assert str(made.body.checked_type.dtype) == "float32"
    assert str(apply(transform.ToMixedPrecision("bfloat16"), relay.Function((x,), body))
               .body.checked_type.dtype) == "bfloat16"


@pytest.mark.parametrize(("narrow", "groups", "wide"), [
    ("bfloat16", 1, False), ("bfloat16", 4, True), ("float16", 4, False),
])
def test_groups_of_channels_in_bfloat16_stay_wide(narrow: str, groups: int, wide: bool) -> None:
    x = relay.var("x", shape=(1, 4, 5, 5))
    made = relay.nn.conv2d(x, array(4, 4 // groups, 3, 3), padding=1, groups=groups)
    found = apply(transform.ToMixedPrecision(narrow), relay.Function((x,), made))
    assert (found.body.checked_type.dtype == "float32") == wide


def test_graphs_without_products_stay() -> None:
    check(transform.ToMixedPrecision(), f"{X} {{ nn.relu(exp(%x)) }}", None)
    with pytest.raises(ValueError, match="the narrow type is float16 or bfloat16, not 'int8'"):
        transform.ToMixedPrecision("int8")
    with pytest.raises(ValueError, match="missing_op_mode is 0, 1 or 2, not 3"):
        transform.ToMixedPrecision("float16", 3)


# ---- padding ----


def _padded(value: float, width: Any = ((0, 0), (0, 0), (1, 2), (0, 1))) -> Any:
    x = relay.var("x", shape=(1, 4, 5, 6))
    return x, relay.nn.pad(x, width, value)


@pytest.mark.parametrize(
    ("value", "call", "folds"),
    [
        (0.0, lambda x: relay.nn.conv2d(x, array(2, 4, 3, 3), padding=1), True),
        (1.0, lambda x: relay.nn.conv2d(x, array(2, 4, 3, 3)), True),
        (0.5, lambda x: relay.nn.conv2d(x, array(2, 4, 3, 3)), False),
        (1.0, lambda x: relay.nn.conv2d(x, array(2, 4, 3, 3), padding=1), False),
        (-np.inf, lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2)), True),
        (0.0, lambda x: relay.nn.max_pool2d(x, (2, 2), (2, 2)), False),
        (0.0, lambda x: relay.nn.avg_pool2d(x, (2, 2), (2, 2)), True),
        (0.0, lambda x: relay.nn.avg_pool2d(x, (2, 2), (2, 2), padding=1), False),
        (0.0, lambda x: relay.nn.avg_pool2d(x, (2, 2), padding=1, count_include_pad=True), True),
        (0.0, lambda x: relay.nn.avg_pool2d(x, (2, 2), (2, 2), ceil_mode=True), False),
    ],
)
def test_borders(value: float, call: Any, folds: bool) -> None:
    x, bordered = _padded(value)
    before = relay.Function((x,), call(bordered))
    made = apply(transform.FoldExplicitPadding(), before)
    assert ("nn.pad" not in ops(made)) == folds
    assert_same_values(run(made), run(before))


def test_borders_of_channels_and_negative_ones_stay() -> None:
    for width in (((0, 0), (0, 1), (1, 1), (0, 0)), ((0, 0), (0, 0), (-1, 1), (0, 0))):
        x, bordered = _padded(0.0, width)
        channels = 5 if width[1] == (0, 1) else 4
        body = relay.nn.conv2d(bordered, array(2, channels, 3, 3))
        check(transform.FoldExplicitPadding(), relay.Function((x,), body), None)


@pytest.mark.parametrize(
    ("paddings", "crops", "folds"),
    [
        (((2, 2), (2, 4)), ((0, 0), (0, 0)), True),
        (((2, 4), (2, 2)), ((1, 2), (0, 1)), True),
        (((0, 2), (0, 0)), ((1, 0), (0, 0)), False),
    ],
)
def test_dilated_convolutions(paddings: Any, crops: Any, folds: bool) -> None:
    x = relay.var("x", shape=(1, 8, 8 if paddings[1] != (2, 4) else 6, 3))
    apart = relay.nn.space_to_batch_nd(x, (2, 2), paddings)
    conv = relay.nn.conv2d(apart, array(3, 3, 3, 5), data_layout="NHWC", kernel_layout="HWIO")
    before = relay.Function((x,), relay.nn.batch_to_space_nd(conv, (2, 2), crops))
    made = apply(transform.FlattenAtrousConv(), before)
    assert (ops(made) == {"nn.conv2d": 1}) == folds
    assert_same_values(run(made), run(before))


# ---- factors ----


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("groups", [1, 2, 4])
def test_factors_go_into_weights(layout: str, groups: int) -> None:
    last = layout == "NHWC"
    x = relay.var("x", shape=(1, 5, 5, 4) if last else (1, 4, 5, 5))
    inner = 4 // groups
    weight = array(3, 3, inner, 8) if last else array(8, inner, 3, 3)
    shape, before_shape = ((8,), (4,)) if last else ((8, 1, 1), (4, 1, 1))
    scaled = relay.multiply(x, array(*before_shape, seed=3))
    conv = relay.nn.conv2d(scaled, weight, groups=groups, padding=1, data_layout=layout,
                           kernel_layout="HWIO" if last else "OIHW")
    biased = relay.nn.bias_add(conv, array(8, seed=1), axis=layout.index("C"))
    before = relay.Function((x,), relay.multiply(biased, array(*shape, seed=2)))
    made = apply(transform.FoldScaleAxis(), before)
    assert "multiply" not in ops(made)
    assert_same_values(run(made), run(before))


def test_factors_go_into_weights_per_input_channel() -> None:
    x = relay.var("x", shape=(1, 5, 5, 4))
    scaled = relay.multiply(x, array(4, seed=3))
    conv = relay.nn.conv2d(scaled, array(3, 3, 4, 2), groups=4, channels=8, data_layout="NHWC",
                           kernel_layout="HWOI")
    before = relay.Function((x,), relay.multiply(conv, array(8, seed=2)))
    made = apply(transform.FoldScaleAxis(), before)
    assert ops(made) == {"nn.conv2d": 1}
    assert_same_values(run(made), run(before))


def test_factors_of_matrices() -> None:
    x, t = relay.var("x", shape=(3, 4)), relay.var("t", shape=(4, 3))
    dense = relay.nn.dense(relay.multiply(x, array(4, seed=1)), array(5, 4))
    product = relay.nn.matmul(relay.multiply(t, array(4, 1, seed=3)), array(4, 5), transpose_a=True)
    for param, body in ((x, dense), (t, product)):
        before = relay.Function((param,), relay.multiply(body, array(5, seed=2)))
        made = apply(transform.FoldScaleAxis(), before)
        assert "multiply" not in ops(made)
        assert_same_values(run(made), run(before))


def test_factors_that_weights_cannot_take_stay() -> None:
    x = relay.var("x", shape=(2, 4), dtype="int8")
    weight = relay.const(np.ones((3, 4), "int8"))
    wide = relay.nn.dense(x, weight, out_dtype="int32")
    before = relay.Function((x,), relay.multiply(wide, relay.const(1000, "int32")))
    check(transform.FoldScaleAxis(), before, None)
    y = relay.var("y", shape=(2, 4))
    twice = relay.nn.dense(y, array(3, 4))
    shared = relay.Function((y,), relay.add(twice, relay.multiply(twice, array(3))))
    check(transform.FoldScaleAxis(), shared, None)


# ---- parallel branches ----


def test_parallel_convolutions_with_what_follows() -> None:
    x = relay.var("x", shape=(1, 4, 6, 6))
    branches = []
    for seed, channels in enumerate((2, 3, 5)):
        conv = relay.nn.conv2d(x, array(channels, 4, 3, 3, seed=seed), padding=1)
        biased = relay.nn.bias_add(conv, array(channels, seed=seed))
        branches.append(relay.nn.relu(biased))
    branches.append(relay.nn.conv2d(x, array(2, 4, 1, 1)))
    before = relay.Function((x,), relay.concatenate(branches, 1))
    made = apply(transform.CombineParallelConv2D(3), before)
    assert ops(made)["nn.conv2d"] == 2 and ops(made)["nn.relu"] == 1
    assert_same_values(run(made), run(before))
    assert apply(transform.CombineParallelConv2D(4), before) is before


def test_parallel_products() -> None:
    x = relay.var("x", shape=(3, 4))
    dense = [relay.nn.dense(x, array(units, 4, seed=units), units=units) for units in (2, 3, 2)]
    before = relay.Function((x,), relay.Tuple(tuple(dense)))
    made = apply(transform.CombineParallelDense(3), before)
    assert ops(made)["nn.dense"] == 1
    assert_same_values(run(made), run(before))
    y = relay.var("y", shape=(2, 3, 4))
    keys = [relay.var(f"k{i}", shape=(2, 5 + i, 4)) for i in range(3)]
    scores = [relay.nn.batch_matmul(y, relay.exp(key)) for key in keys]
    attention = relay.Function((y, *keys), relay.Tuple(tuple(scores)))
    joined = apply(transform.CombineParallelBatchMatmul(3), attention)
    assert ops(joined)["nn.batch_matmul"] == 1
    assert_same_values(run(joined), run(attention))


def test_products_that_need_one_another_are_not_joined() -> None:
    x = relay.var("x", shape=(1, 4, 4))
    first = relay.nn.batch_matmul(x, x)
    second = relay.nn.batch_matmul(x, relay.exp(first))
    check(transform.CombineParallelBatchMatmul(2), relay.Function((x,), second), None)
    with pytest.raises(ValueError, match="min_num_branches is at least 2, not 1"):
        transform.CombineParallelDense(1)


def test_passes_leave_what_they_do_not_change() -> None:
    before = function(f"{X} {{ nn.softmax(%x) }}")
    for change in (transform.FoldScaleAxis(), transform.CanonicalizeOps(), transform.FastMath(),
                   transform.DynamicToStatic(), transform.DefuseOps()):
        made = apply(change, before)
        assert made is before or "fast" in text_of(made)
