"""The functions of scalars, compiled, beside NumPy's."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from tests.support import require_program

WHOLE = np.linspace(-20, 20, 401).astype("float32")
POSITIVE = np.linspace(1e-3, 50, 401).astype("float32")
UNIT = np.linspace(-0.999, 0.999, 401).astype("float32")
ABOVE_ONE = np.linspace(1, 40, 401).astype("float32")

erf = np.vectorize(math.erf)

FUNCTIONS: dict[str, tuple[Any, Callable[[Any], Any], Any]] = {
    "exp": (te.exp, np.exp, WHOLE),
    "exp2": (te.exp2, np.exp2, WHOLE),
    "exp10": (te.exp10, lambda x: 10.0**x, WHOLE),
    "log": (te.log, np.log, POSITIVE),
    "log2": (te.log2, np.log2, POSITIVE),
    "log10": (te.log10, np.log10, POSITIVE),
    "log1p": (te.log1p, np.log1p, POSITIVE),
    "sqrt": (te.sqrt, np.sqrt, POSITIVE),
    "rsqrt": (te.rsqrt, lambda x: 1 / np.sqrt(x), POSITIVE),
    "sin": (te.sin, np.sin, WHOLE),
    "cos": (te.cos, np.cos, WHOLE),
    "tan": (te.tan, np.tan, UNIT),
    "asin": (te.asin, np.arcsin, UNIT),
    "acos": (te.acos, np.arccos, UNIT),
    "atan": (te.atan, np.arctan, WHOLE),
    "sinh": (te.sinh, np.sinh, UNIT),
    "cosh": (te.cosh, np.cosh, UNIT),
    "tanh": (te.tanh, np.tanh, WHOLE),
    "asinh": (te.asinh, np.arcsinh, WHOLE),
    "acosh": (te.acosh, np.arccosh, ABOVE_ONE),
    "atanh": (te.atanh, np.arctanh, UNIT),
    "erf": (te.erf, erf, UNIT),
    "sigmoid": (te.sigmoid, lambda x: 1 / (1 + np.exp(-x)), WHOLE),
    "floor": (te.floor, np.floor, WHOLE),
    "ceil": (te.ceil, np.ceil, WHOLE),
    "trunc": (te.trunc, np.trunc, WHOLE),
    "round": (te.round, lambda x: np.copysign(np.floor(np.abs(x) + 0.5), x), WHOLE),
    "nearbyint": (te.nearbyint, np.rint, WHOLE),
    "abs": (te.abs, np.abs, WHOLE),
    "power": (lambda x: te.power(x, 1.5), lambda x: x**1.5, POSITIVE),
    "atan2": (lambda x: te.atan2(x, 2.0), lambda x: np.arctan2(x, 2.0), WHOLE),
    "fmod": (lambda x: te.fmod(x, 3.0), lambda x: np.fmod(x, 3.0), WHOLE),
    "hypot": (lambda x: te.hypot(x, 2.0), lambda x: np.hypot(x, 2.0), WHOLE),
    "copysign": (lambda x: te.copysign(3.0, x), lambda x: np.copysign(3.0, x), WHOLE),
}


@pytest.mark.parametrize("target", ["llvm -mcpu=native", "c"])
def test_functions_agree_with_numpy(target: str) -> None:
    """All functions in one module: one compilation serves them all."""
    if target == "c":
        require_program("cc")
    n = WHOLE.size
    inputs, outputs = [], []
    for name, (function, _, _) in FUNCTIONS.items():
        x = te.placeholder((n,), name=f"{name}_in")
        inputs.append(x)
        outputs.append(_apply(function, x))
    schedule = te.create_schedule([y.op for y in outputs])
    for y in outputs:
        _, inner = schedule[y].split(y.op.axis[0], factor=16)
        schedule[y].vectorize(inner)
    module = tvm.build(schedule, [*inputs, *outputs], target=target, name="functions")
    values = [samples for _, _, samples in FUNCTIONS.values()]
    results = [np.zeros(n, "float32") for _ in outputs]
    module(*values, *results)
    for (name, (_, reference, samples)), result in zip(FUNCTIONS.items(), results, strict=True):
        expected = reference(samples.astype("float64"))
        np.testing.assert_allclose(result, expected, rtol=5e-7, atol=2e-7, err_msg=name)


def _apply(function: Any, x: te.Tensor) -> te.Tensor:
    made: te.Tensor = te.compute(x.shape, lambda i: function(x[i]), name=f"{x.name}_out")
    return made


def test_wrong_types_are_refused() -> None:
    with pytest.raises(TypeError, match="exp needs a floating-point argument, not int32"):
        te.exp(te.var("i"))
    assert te.floor(te.var("i")).dtype == "int32"


def test_questions_about_numbers() -> None:
    x = te.placeholder((5,), name="x")
    outputs = [
        te.compute((5,), lambda i: te.isnan(x[i]).astype("int32"), name="nan"),
        te.compute((5,), lambda i: te.isinf(x[i]).astype("int32"), name="inf"),
        te.compute((5,), lambda i: te.isfinite(x[i]).astype("int32"), name="finite"),
    ]
    module = tvm.build(te.create_schedule([o.op for o in outputs]), [x, *outputs])
    values = np.array([0.0, np.inf, -np.inf, np.nan, 1e30], "float32")
    results = [np.zeros(5, "int32") for _ in outputs]
    module(values, *results)
    for result, reference in zip(results, (np.isnan, np.isinf, np.isfinite), strict=True):
        np.testing.assert_array_equal(result, reference(values))
