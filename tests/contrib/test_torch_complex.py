"""Complex numbers in PyTorch models: inputs, weights, results, what is done to them, gradients."""

import math
from typing import Any

import numpy as np
import pytest

from tests.support import require_module

require_module("torch")
import torch  # noqa: E402

import sterna  # noqa: E402
from sterna.contrib import torch_compile  # noqa: E402
from sterna.frontend.torch.complex_pairs import in_parts  # noqa: E402
from tests.frontend.torch_gradients import by_references  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(autouse=True)
def _references(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_compile, "_build", by_references)
    torch._dynamo.reset()


def expect_equal(function: Any, *given: Any) -> None:
    compiled = torch.compile(function, backend="sterna", fullgraph=True)
    torch.testing.assert_close(compiled(*given), function(*given), equal_nan=True)


def complex_numbers(*shape: int) -> Any:
    return torch.complex(*torch.randn(2, *shape, generator=torch.Generator().manual_seed(0)))


def test_arithmetic() -> None:
    def many(r: Any, s: Any) -> Any:
        return (
            r / s, 1 / r, r.exp(), r.log(), r.sgn(), r.sum(0) - 2 * s, r @ r.mT, r * 2j + 1,
            3 - r, torch.add(r, r, alpha=2), r.mean(), r.abs(), r.angle(), r.conj() * r,
            torch.add(r, 2, alpha=3),
        )

    expect_equal(many, complex_numbers(5, 4), complex_numbers(4) * 1e25)


def test_roots_and_powers() -> None:
    """Roots lie in the half of the plane that PyTorch's do, on both sides of its cut."""
    def many(z: Any) -> Any:
        return z.sqrt(), z.rsqrt(), z.tanh(), z**2, z**-1.5, z.pow(3), z.mT @ z

    expect_equal(many, complex_numbers(5, 4))
    expect_equal(many, complex_numbers(5, 4) * 1e4)
    axes = torch.complex(torch.tensor([-4.0, -4.0, 4.0, 0.0]), torch.tensor([-0.0, 0.0, -0.0, 9.0]))
    expect_equal(lambda z: (z.sqrt(), z.tanh(), torch.view_as_real(z.sqrt())), axes)
    expect_equal(lambda z: (z.sqrt(), z**1.5, z.tanh()), torch.zeros(2, dtype=torch.complex64))


def test_matrices_and_vectors() -> None:
    def many(r: Any, s: Any, v: Any) -> Any:
        return (
            r.mH @ s, r.adjoint(), torch.einsum("ij,kj,k->i", r, s.conj(), v), torch.outer(v, s[0]),
            torch.vdot(v, s[0]), torch.kron(r[:2], s), torch.linalg.vector_norm(r, 1, dim=0),
            torch.linalg.norm(r), r.prod(0), r.prod(), torch.addmm(s, r, s, alpha=2j),
            torch.nn.functional.linear(r, s, v), torch.linalg.solve(r, s),
            torch.linalg.solve(r, v), torch.linalg.inv(r) @ r, torch.addcmul(r, r, s, value=0.5),
        )

    expect_equal(many, *complex_numbers(2, 5, 5), complex_numbers(5))


def test_numbers_that_are_complex() -> None:
    def many(x: Any, z: Any) -> Any:
        return (
            x * (1 + 2j), x + 1j, (1 - 1j) / z, z ** (1 + 2j), 2j**z, z**z.flip(0), z.tan(),
            z.sigmoid(), z.log2(), z.log10(), torch.zeros_like(z) ** z, torch.zeros_like(z) ** 0j,
            z.masked_fill(x > 0, 2 - 1j), z.masked_fill(x > 0, 3),
        )

    expect_equal(many, torch.linspace(-1, 1, 4), complex_numbers(4))


def test_views_and_copies() -> None:
    def many(r: Any, s: Any) -> Any:
        return (
            torch.cat([r, s[None]]), *r.unbind(1), torch.where(r.real > 0, r, s), r.imag * 2,
            r[1:, None].expand(4, 3, 4).reshape(-1), torch.stack([r, r.conj()]),
            torch.view_as_real(r.T.contiguous()), r.flip(0), torch.cat([r, r.real]),
            r.new_zeros(2), torch.zeros(3, dtype=torch.complex64),
        )

    expect_equal(many, complex_numbers(5, 4), complex_numbers(4))


def test_sizes_do_not_overflow() -> None:
    numbers = torch.tensor([0.0, 3.0, 1e30, 1e-42, math.inf, -math.inf, math.nan])
    first, second = numbers.repeat(7), numbers.repeat_interleave(7)
    expect_equal(lambda a, b: (torch.hypot(a, b), torch.complex(a, b).abs()), first, second)


def test_conjugates_that_are_not_written_out() -> None:
    expect_equal(lambda z: z * z, complex_numbers(3).conj())


def test_a_complex_buffer_turns_pairs() -> None:
    class Rotary(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turns", complex_numbers(6, 4))

        def forward(self, x: Any) -> Any:
            turned = torch.view_as_complex(x.reshape(2, 6, 4, 2)) * self.turns
            return torch.view_as_real(turned).flatten(2)

    model, data = Rotary(), torch.randn(2, 6, 8)
    made = np.asarray(sterna.compile(model, example_inputs=(data,))(data))
    np.testing.assert_allclose(made, model(data).numpy(), rtol=1e-5, atol=1e-6)


def test_inputs_come_with_both_parts() -> None:
    class Square(torch.nn.Module):  # type: ignore[misc]
        def forward(self, z: Any) -> Any:
            return z * z

    given = complex_numbers(3, 2)
    model = sterna.compile(Square(), example_inputs=(given,))
    made = np.asarray(model(in_parts(given.numpy())))
    with pytest.raises(ValueError, match=r"input 'z' .* both parts along a last axis"):
        model(given)
    np.testing.assert_allclose(made, in_parts((given * given).numpy()), rtol=1e-5, atol=1e-6)


def test_gradients_of_transforms() -> None:
    data = torch.randn(3, 6, requires_grad=True)

    def filtered(x: Any) -> Any:
        spectrum = torch.fft.rfft2(x)
        return torch.fft.irfft2(spectrum * spectrum.conj(), s=(3, 6)).pow(2).sum()

    def gradient(function: Any) -> Any:
        return torch.autograd.grad(function(data), data)[0]

    compiled = torch.compile(filtered, backend="sterna", fullgraph=True)
    torch.testing.assert_close(gradient(compiled), gradient(filtered), rtol=1e-4, atol=1e-4)
