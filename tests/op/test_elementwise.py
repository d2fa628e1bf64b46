"""Elementwise operators: references against PyTorch's, types, compiled accuracy, messages."""

import math
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna
from sterna import relay, te
from sterna.relay.op import find
from tests.op.harness import compiled, kind, reference

RNG = np.random.default_rng(7)
WIDE = np.concatenate([RNG.standard_normal(200) * 10.0 ** RNG.integers(-3, 3, 200),
                       [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan]]).astype("float32")


@pytest.mark.parametrize("name", [
    "abs", "ceil", "floor", "trunc", "negative", "exp", "expm1", "log", "log2", "log10",
    "log1p", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh", "sigmoid", "erf", "isnan", "isfinite", "isinf",
])
def test_unary_reference(torch: Any, name: str) -> None:
    wanted = getattr(torch, name)(torch.from_numpy(WIDE.astype("float64"))).numpy()
    got = reference(name, WIDE.astype("float64"))
    np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-300)


def test_round_even_is_the_one_of_onnx_and_round_the_one_of_c(torch: Any) -> None:
    halves = np.array([-2.5, -1.5, -0.5, 0.5, 1.5, 2.5], "float32")
    np.testing.assert_array_equal(reference("round_even", halves), torch.round(
        torch.from_numpy(halves)).numpy())
    np.testing.assert_array_equal(reference("round", halves), [-3, -2, -1, 1, 2, 3])


@pytest.mark.parametrize(("name", "attrs", "function"), [
    ("nn.relu", {}, lambda f, x: f.relu(x)),
    ("nn.leaky_relu", {"alpha": 0.2}, lambda f, x: f.leaky_relu(x, 0.2)),
    ("nn.gelu", {}, lambda f, x: f.gelu(x)),
    ("nn.gelu", {"approximate": "tanh"}, lambda f, x: f.gelu(x, approximate="tanh")),
    ("nn.swish", {}, lambda f, x: f.silu(x)),
    ("nn.hard_sigmoid", {"alpha": 1 / 6}, lambda f, x: f.hardsigmoid(x)),
    ("nn.hard_swish", {}, lambda f, x: f.hardswish(x)),
    ("nn.softplus", {}, lambda f, x: f.softplus(x)),
    ("nn.mish", {}, lambda f, x: f.mish(x)),
    ("nn.softsign", {}, lambda f, x: f.softsign(x)),
    ("nn.elu", {"alpha": 0.7}, lambda f, x: f.elu(x, 0.7)),
    ("nn.selu", {}, lambda f, x: f.selu(x)),
    ("nn.celu", {"alpha": 0.7}, lambda f, x: f.celu(x, 0.7)),
    ("nn.thresholded_relu", {"alpha": 1.5}, lambda f, x: f.threshold(x, 1.5, 0.0)),
    ("clip", {"a_min": -1.5, "a_max": 2}, lambda f, x: f.hardtanh(x, -1.5, 2.0)),
])
def test_activation_reference(
    torch: Any, name: str, attrs: dict[str, Any], function: Any
) -> None:
    x = WIDE[np.isfinite(WIDE)].astype("float64")
    wanted = function(torch.nn.functional, torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(reference(name, x, **attrs), wanted, rtol=1e-6, atol=1e-8)


def _pairs(kind: str) -> tuple[Any, Any]:
    if kind.startswith("float"):
        return WIDE[:, None].astype(kind), WIDE[::3].astype(kind)
    info = np.iinfo(kind)
    numbers = [info.min, info.max, 0, 1, 2, 7, 100]
    values = np.array(numbers + ([-1, -2, -9] if info.min < 0 else []), kind)
    return values[:, None], values


@pytest.mark.parametrize("kind", ["float64", "int32", "int64", "uint8"])
@pytest.mark.parametrize(("name", "function"), [
    ("add", lambda t, a, b: a + b), ("subtract", lambda t, a, b: a - b),
    ("multiply", lambda t, a, b: a * b), ("equal", lambda t, a, b: a == b),
    ("not_equal", lambda t, a, b: a != b), ("less", lambda t, a, b: a < b),
    ("less_equal", lambda t, a, b: a <= b), ("greater", lambda t, a, b: a > b),
    ("greater_equal", lambda t, a, b: a >= b), ("maximum", lambda t, a, b: t.maximum(a, b)),
    ("minimum", lambda t, a, b: t.minimum(a, b)), ("mod", lambda t, a, b: t.fmod(a, b)),
    ("trunc_mod", lambda t, a, b: t.fmod(a, b)), ("floor_mod", lambda t, a, b: t.remainder(a, b)),
    ("divide", lambda t, a, b: t.div(
        a, b, rounding_mode=None if a.dtype.is_floating_point else "trunc")),
    ("floor_divide", lambda t, a, b: t.div(a, b, rounding_mode="floor")),
    ("trunc_divide", lambda t, a, b: t.div(a, b, rounding_mode="trunc")),
])
def test_binary_reference(torch: Any, name: str, function: Any, kind: str) -> None:
    a, b = _pairs(kind)
    division = "mod" in name or "divide" in name
    if division and not kind.startswith("float"):  # torch refuses what is no number
        b = b[b != 0]
        b = b[b != -1] if kind.startswith("int") else b
    if name == "floor_divide" and kind == "float64":
        with np.errstate(all="ignore"):
            wanted = np.floor(a / b)
    elif name == "floor_mod" and kind == "float64":
        with np.errstate(all="ignore"):
            wanted = np.mod(a, b)
    else:
        wanted = function(torch, torch.from_numpy(a), torch.from_numpy(b)).numpy()
    np.testing.assert_array_equal(reference(name, a, b), wanted)


def test_integers_divided_by_zero_and_minus_one() -> None:
    least = np.array([-(2**31)], "int32")
    for name in ("divide", "floor_divide", "trunc_divide"):
        assert reference(name, least, np.array([-1], "int32")) == least
        assert reference(name, least, np.array([0], "int32")) == 0
    for name in ("mod", "floor_mod", "trunc_mod"):
        assert reference(name, least, np.array([-1], "int32")) == 0
        assert reference(name, least, np.array([0], "int32")) == 0


@settings(max_examples=200)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(-40, 2**31 - 1))
def test_powers_of_integers(base: int, exponent: int) -> None:
    if exponent >= 0:
        wanted = pow(base, exponent, 2**32)
        wanted -= 2**32 if wanted >= 2**31 else 0
    else:
        wanted = {1: 1, -1: -1 if exponent % 2 else 1}.get(base, 0)
    assert reference("power", np.array(base, "int32"), np.array(exponent, "int32")) == wanted


@settings(max_examples=200)
@given(st.integers(-(2**31), 2**31 - 1), st.integers(0, 2**31 - 1), st.integers(-31, 0))
def test_fixed_point_products(x: int, multiplier: int, shift: int) -> None:
    exact = math.floor(x * multiplier / 2.0 ** (31 - shift) + 0.5) if abs(x) < 2**20 else (
        x * multiplier + (1 << (30 - shift)) >> (31 - shift))
    got = reference("fixed_point_multiply", np.array(x, "int32"), multiplier=multiplier,
                    shift=shift)
    assert got == exact


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_references_know_small_floats(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = np.array([-1.5, 0.0, 0.5, 2.0]).astype(kind)
    for name in ("exp", "abs", "floor", "negative", "nn.relu", "sign", "nn.gelu", "sqrt"):
        assert reference(name, x).dtype == kind
    for name in ("add", "divide", "maximum", "power", "floor_mod"):
        assert reference(name, x, x).dtype == kind
    assert reference("where", x > kind.type(0), x, x).dtype == kind
    np.testing.assert_array_equal(reference("cast", x, dtype="int8"), [-1, 0, 0, 2])


def test_references_know_int4() -> None:
    x = np.array([-8, -1, 0, 7]).astype(ml_dtypes.int4)
    np.testing.assert_array_equal(reference("cast", x, dtype="int32"), [-8, -1, 0, 7])
    np.testing.assert_array_equal(reference("abs", x).astype(int), [-8, 1, 0, 7])
    np.testing.assert_array_equal(reference("divide", x, x).astype(int), [1, 1, 0, 1])
    np.testing.assert_array_equal(reference("clip", x, a_min=-2, a_max=99).astype(int),
                                  [-2, -1, 0, 7])


@pytest.mark.parametrize(("name", "bound"), [
    ("fast_exp", 1e-5), ("fast_tanh", 1e-5), ("fast_erf", 1e-5), ("expm1", 5e-7)])
def test_compiled_accuracy(name: str, bound: float) -> None:
    x = np.concatenate([np.linspace(-80, 80, 4001), np.linspace(-1, 1, 4001)]).astype("float32")
    got, wanted = compiled(find(name), None, [x])[0], reference(name, x.astype("float64"))
    against = np.abs(wanted) if "exp" in name else 1.0
    error = np.abs(got - wanted) / np.maximum(against, 1e-30)
    assert error.max() < bound


# ---- types and messages ----


def test_unknown_and_symbolic_dimensions_pass_through() -> None:
    n = te.size_var("n")
    x = relay.var("x", shape=(relay.Any(), 3, n))
    assert relay.exp(x).checked_type == kind((relay.Any(), 3, n))
    assert relay.isnan(x).checked_type == kind((relay.Any(), 3, n), "bool")
    y = relay.where(relay.greater(x, relay.const(0.0)), x, relay.const(1.0))
    assert y.checked_type == kind((relay.Any(), 3, n))
    assert relay.shape_of(x).checked_type == kind((3,), "int32")
    assert relay.zeros_like(x).checked_type == x.checked_type


def test_scalars_take_the_type_of_what_they_meet() -> None:
    x = relay.var("x", shape=(2,), dtype="float16")
    assert (x * 2 + 1.5).checked_type == kind((2,), "float16")
    assert (-x).checked_type == kind((2,), "float16")
    assert (x < 3).checked_type == kind((2,), "bool")
    assert x.astype("int8").checked_type == kind((2,), "int8")


def test_untyped_slopes_get_their_type() -> None:
    alpha = relay.var("alpha")
    y = relay.nn.prelu(relay.var("x", shape=(1, 4, 2)), alpha)
    assert y.checked_type == kind((1, 4, 2))
    assert alpha.checked_type == kind((4,))


def test_dropout_gives_the_data() -> None:
    y = relay.nn.dropout(relay.var("x", shape=(2, 3)), 0.3)
    assert y.checked_type == kind((2, 3))


def test_shapes_that_are_expressions() -> None:
    shape = relay.var("shape", shape=(2,), dtype="int64")
    assert relay.zeros(shape, "int8").checked_type == kind((relay.Any(),) * 2, "int8")
    assert relay.full(1.5, shape).checked_type == kind((relay.Any(),) * 2)
    fixed = relay.const(np.array([2, 3]))
    assert relay.ones(fixed, "bool").checked_type == kind((2, 3), "bool")
    assert relay.full(relay.const(1), (4,), "int64").checked_type == kind((4,), "int64")
    assert relay.zeros(5, "float32").checked_type == kind((5,))


@pytest.mark.parametrize(("build", "text"), [
    (lambda x, i: relay.exp(i), "data has elements of type float, not int32; cast it"),
    (lambda x, i: relay.logical_not(x), "data has elements of type bool, not float32"),
    (lambda x, i: relay.add(x, i), "rhs has the element type int32, lhs has float32; cast one"),
    (lambda x, i: relay.bitwise_and(x, x), "lhs has elements of type int or uint or bool, not"),
    (lambda x, i: relay.add(x, relay.var("y", shape=(4,))), r"do not broadcast: 3 against 4"),
    (lambda x, i: relay.reinterpret(x, "int8"), "float32; their bits cannot be read as int8"),
    (lambda x, i: relay.clip(i, 0.5, 3), "a_min of a tensor of int32 is a whole number, not 0.5"),
    (lambda x, i: relay.nn.gelu(x, "sin"), "approximate is 'none' or 'tanh', not 'sin'"),
    (lambda x, i: relay.nn.prelu(x, relay.var("a", shape=(2,)), axis=2),
     "axis 2 is not one of the 2 dimensions"),
    (lambda x, i: relay.nn.prelu(x, relay.var("a", shape=(2,))),
     "the number of slopes in alpha is 3, not 2"),
    (lambda x, i: relay.fixed_point_multiply(x, 1, 0), "data has elements of type int32, not"),
    (lambda x, i: relay.fixed_point_multiply(i, 1 << 40, 0), "is no number of 32 bits"),
    (lambda x, i: relay.full(x, (2,)), r"fill_value has 0 dimensions, not shape \(2, 3\)"),
])
def test_messages(build: Any, text: str) -> None:
    x, i = relay.var("x", shape=(2, 3)), relay.var("i", shape=(2, 3), dtype="int32")
    with pytest.raises(ValueError, match=text):
        build(x, i)


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 2e-6), ("float16", 2e-3)])
def test_tanh_of_softplus_needs_no_logarithm(dtype: str, tolerance: float) -> None:
    """As exporters write Mish."""
    points = np.linspace(-30, 30, 121).astype(dtype)
    x = relay.var("x", shape=points.shape, dtype=dtype)
    model = sterna.compile(relay.Function((x,), relay.tanh(relay.nn.softplus(x))))
    wanted = np.tanh(np.logaddexp(points.astype("float64"), 0))
    np.testing.assert_allclose(model(points), wanted, rtol=tolerance, atol=1e-7)
    (kernel,) = model.report().kernels
    assert "log1p" not in kernel.operators and "tanh" not in kernel.operators


@pytest.mark.parametrize("condition, wanted", [(True, "x"), (False, "y"), (None, "where")])
def test_known_conditions_pick_an_operand(condition: bool | None, wanted: str) -> None:
    """Unless that has yet to be repeated along an axis."""
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3))
    test = np.full((2, 1), bool(condition))
    test[0] = condition is not False
    for other, is_small in ((y, False), (relay.var("y", shape=()), True)):
        body = relay.where(relay.const(test), x, other)
        made = relay.transform.Legalize()(relay.transform.InferType()(
            sterna.IRModule.from_expr(relay.Function((x, other), body))))["main"].body
        is_repeated = condition is False and is_small
        picked = getattr(made, "name_hint", None)
        assert (picked or "where") == ("where" if is_repeated else wanted)
