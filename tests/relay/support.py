"""What tests of passes share: graphs from text, values for parameters, results held together."""

from typing import Any

import numpy as np

import sterna as tvm
from sterna import relay
from sterna.ir.types import TensorType, TupleType, Type
from sterna.relay.arrays import numpy_dtype
from sterna.relay.interpreter import interpret


def function(text: str) -> relay.Function:
    """The function that a text says, without its version line."""
    made = relay.fromtext(f'#[version = "0.0.5"]\n{text}')
    found = made["main"] if isinstance(made, tvm.IRModule) else made
    assert isinstance(found, relay.Function)
    found.checked_type  # noqa: B018
    return found


def text_of(expr: Any) -> str:
    """A function's body as one line, without types and the version line."""
    lines = str(relay.Function(expr.params, expr.body) if isinstance(expr, relay.Function)
                else expr).splitlines()
    return " ".join(line.strip() for line in lines if not line.startswith("#["))


def value_of(kind: Type, rng: np.random.Generator) -> Any:
    """A random value of a type."""
    if isinstance(kind, TupleType):
        return tuple(value_of(part, rng) for part in kind.fields)
    assert isinstance(kind, TensorType)
    shape, dtype = kind.concrete_shape, numpy_dtype(kind.dtype)
    if kind.dtype.is_bool:
        return rng.integers(0, 2, shape).astype(bool)
    if kind.dtype.is_float:
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0 if kind.dtype.is_uint else -7, 8, shape).astype(dtype)


def run(function: Any, seed: int = 0, mod: Any = None) -> Any:
    """The value of a function for random parameters."""
    rng = np.random.default_rng(seed)
    given = [value_of(param.checked_type, rng) for param in function.params]
    with np.errstate(all="ignore"):
        return interpret(function, *given, mod=mod)


def assert_same_values(got: Any, want: Any, tolerance: float = 1e-5) -> None:
    """Two results, which may be tuples, are equal; floats nearly so."""
    if isinstance(want, tuple):
        assert isinstance(got, tuple) and len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            assert_same_values(a, b, tolerance)
        return
    got, want = np.asarray(got), np.asarray(want)
    assert got.dtype == want.dtype and got.shape == want.shape
    if not str(want.dtype).startswith(("float", "bfloat")):
        np.testing.assert_array_equal(got, want)
        return
    exact = want.astype(np.float64)
    scale = max(1.0, float(np.max(np.abs(exact)[np.isfinite(exact)], initial=0.0)))
    np.testing.assert_allclose(
        got.astype(np.float64), exact, rtol=tolerance, atol=tolerance * scale
    )


def apply(transform: Any, function: Any) -> Any:
    """A pass applied to one function, at a level at which all parts of passes run."""
    with tvm.transform.PassContext(opt_level=4, config=tvm.transform.PassContext.current().config):
        made = transform(tvm.IRModule({"main": function}))["main"]
    made.checked_type  # noqa: B018
    return made


def check(transform: Any, before: Any, after: str | None, tolerance: float = 1e-5) -> Any:
    """A pass makes of one function another, given as text, with equal values; None: the same."""
    before = function(before) if isinstance(before, str) else before
    made = apply(transform, before)
    if after is None:
        assert made is before, text_of(made)
    else:
        assert text_of(made) == text_of(function(after))
    assert_same_values(run(made), run(before), tolerance)
    assert made.checked_type == before.checked_type
    return made
