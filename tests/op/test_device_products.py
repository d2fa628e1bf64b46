"""What GPUs have as products of matrices: wide attention, and Fourier transforms."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.interpreter import interpret

Array = npt.NDArray[Any]
GPU = "cuda -arch=sm_90a"


def legalized(body: relay.Expr, target: str = GPU) -> relay.Function:
    free = tuple(relay.analysis.free_vars(body))
    module = relay.transform.InferType()(tvm.IRModule.from_expr(relay.Function(free, body)))
    made: relay.Function = relay.transform.Legalize(tvm.target.Target(target))(module)["main"]
    return made


@pytest.mark.parametrize("mask", ["", "float32", "bool"])
def test_wide_attention(mask: str) -> None:
    rng = np.random.default_rng(0)
    shapes = [(2, 5, 3, 320), (2, 7, 3, 320), (2, 7, 3, 16)]
    given = [relay.var(f"x{n}", shape=shape) for n, shape in enumerate(shapes)]
    data: list[Array] = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    attend: Any = relay.nn.attention
    if mask:
        attend = relay.nn.masked_attention
        given.append(relay.var("m", shape=(1, 3, 5, 7), dtype=mask))
        drawn = rng.standard_normal((1, 3, 5, 7)).astype("float32")
        data.append(drawn > -1 if mask == "bool" else drawn)
    body = attend(*given, scale=0.05)
    made = legalized(body)
    assert "attention" not in str(made)
    for other in ("llvm", "cuda -arch=sm_70"):
        assert "attention" in str(legalized(body, other))
    free = tuple(relay.analysis.free_vars(body))
    want = interpret(relay.Function(free, body), *data)
    np.testing.assert_allclose(interpret(made, *data), want, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("inverse", [False, True])
@pytest.mark.parametrize("is_real", [False, True])
@pytest.mark.parametrize("length", [6, 35])
def test_fourier_transforms(length: int, is_real: bool, inverse: bool) -> None:
    rng = np.random.default_rng(0)
    real = rng.standard_normal((2, 3, length)).astype("float32")
    imaginary = np.zeros_like(real) if is_real else rng.standard_normal(real.shape).astype("f")
    x, y = relay.var("x", shape=real.shape), relay.var("y", shape=real.shape)
    parts = relay.dft(x, relay.zeros(real.shape, "float32") if is_real else y, inverse)
    made = legalized(relay.stack([parts[0], parts[1]], axis=-1))
    assert "dft" not in str(made) and ("concatenate" in str(made)) != is_real
    found = interpret(made, *([real] if is_real else [real, imaginary]))
    transform = np.fft.ifft if inverse else np.fft.fft
    want = transform(real + 1j * imaginary.astype("float64"))
    np.testing.assert_allclose(found[..., 0] + 1j * found[..., 1], want, rtol=1e-4, atol=1e-4)
