"""Numeric comparison of tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from sterna import runtime


def assert_allclose(
    actual: object,
    desired: object,
    rtol: float = 1e-7,
    atol: float = 1e-7,
    verbose: bool = True,
) -> None:
    """Assert that two tensors have the same shape and nearly the same values.

    Elements match when ``|actual - desired| <= atol + rtol * |desired|``. Shapes are never
    broadcast. Each side may be a NumPy array, an NDArray, a number or list, or any object with
    ``__array__`` or ``__dlpack__``. ``verbose`` adds the values to the error message.
    """
    __tracebackhide__ = True
    left = _to_numpy(actual, "actual")
    right = _to_numpy(desired, "desired")
    if left.shape != right.shape:
        raise AssertionError(
            f"the shapes differ: actual is {left.shape}, desired is {right.shape} "
            "(assert_allclose does not broadcast)"
        )
    np.testing.assert_allclose(left, right, rtol=rtol, atol=atol, verbose=verbose)


def _to_numpy(value: object, role: str) -> npt.NDArray[Any]:
    """The value as a NumPy array; ``role`` names the argument in errors."""
    if isinstance(value, runtime.NDArray):
        return np.asarray(value.numpy())
    only_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
    try:
        # np.from_dlpack's annotation asks for more than the protocol does.
        return np.from_dlpack(value) if only_dlpack else np.asanyarray(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, RuntimeError, BufferError) as error:
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        raise TypeError(
            f"assert_allclose cannot read `{role}` (a {kind}) as a NumPy array: {error}. "
            "Copy it to host memory as a plain array first."
        ) from error
