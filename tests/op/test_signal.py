"""Operators on signals: transforms of many lengths, torch's spectra and windows, mistakes."""

import importlib
import math
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from sterna.ir.types import TensorType
from sterna.op.fourier import factors
from sterna.relay.op import find
from sterna.te import create_schedule, placeholder
from tests.op.harness import compiled
from tests.support import require_module

RNG = np.random.default_rng(2)


def reference(name: str, *operands: Any, **attrs: Any) -> Any:
    record = find(name)
    assert record.reference is not None and record.attrs is not None
    return record.reference(record.attrs(**attrs), *operands)


def test_factors_make_the_length() -> None:
    for length in range(1, 300):
        found = factors(length)
        assert math.prod(found) == length
        assert all(one == 4 or all(one % d for d in range(2, one)) for one in found)
    assert factors(1024) == [4] * 5


@pytest.mark.parametrize("length", [2, 9, 13, 64, 120, 182, 2048, 37, 82, 251, 1009])
def test_transforms_of_many_lengths(length: int) -> None:
    record = find("dft")
    assert record.attrs is not None
    x, y = RNG.standard_normal((2, 2, length))
    want = np.fft.fft(x + 1j * y)
    real, imaginary = compiled(record, record.attrs(), [x, y])
    np.testing.assert_allclose(real + 1j * imaginary, want, rtol=1e-12, atol=1e-11)


def test_a_length_may_be_a_variable() -> None:
    record = find("signal.dft")
    assert record.attrs is not None and record.compute is not None
    attrs = record.attrs()
    kind = TensorType((2, te.size_var("n"), 2))
    x = placeholder(kind.shape, name="x")
    made = record.compute(attrs, record.infer(attrs, kind), x)
    function = tvm.build(create_schedule(made.op), [x, made], "llvm")
    for size in (1, 6, 11):
        given = RNG.standard_normal((2, size, 2)).astype("float32")
        got = np.empty_like(given)
        function(given, got)
        np.testing.assert_allclose(got, reference("signal.dft", given), rtol=1e-4, atol=1e-4)


def test_definition() -> None:
    x = RNG.standard_normal((1, 6, 2))
    values = x[..., 0] + 1j * x[..., 1]
    k = np.arange(6)
    matrix = np.exp(-2j * np.pi * np.outer(k, k) / 6)
    want = values @ matrix
    got = reference("signal.dft", x)
    np.testing.assert_allclose(got[..., 0] + 1j * got[..., 1], want, atol=1e-12)
    back = reference("signal.dft", got, inverse=True)
    np.testing.assert_allclose(back, x, atol=1e-12)
    half = reference("signal.dft", x[..., :1], onesided=True)
    assert half.shape == (1, 4, 2)
    again = reference("signal.dft", half, onesided=True, inverse=True)
    np.testing.assert_allclose(again, x[..., :1], atol=1e-12)


def test_spectra_and_windows_are_torchs() -> None:
    require_module("torch")
    torch = importlib.import_module("torch")
    x = RNG.standard_normal((3, 50))
    window = reference("signal.hann_window", size=9, dtype="float64")
    np.testing.assert_allclose(window, torch.hann_window(9, dtype=torch.float64), atol=1e-12)
    for periodic in (True, False):
        size = {"size": 12, "periodic": periodic, "dtype": "float64"}
        black = torch.blackman_window(12, periodic, dtype=torch.float64)
        np.testing.assert_allclose(reference("signal.blackman_window", **size), black, atol=1e-12)
        ham = torch.hamming_window(12, periodic, 25 / 46, 21 / 46, dtype=torch.float64)
        np.testing.assert_allclose(reference("signal.hamming_window", **size), ham, atol=1e-12)
    want = torch.stft(
        torch.from_numpy(x), 12, 5, 9, torch.from_numpy(window), center=False, normalized=True,
        return_complex=True,
    )
    got = reference("stft", x, window, n_fft=12, hop_length=5, win_length=9, normalized=True)
    np.testing.assert_allclose(got, torch.view_as_real(want).numpy(), atol=1e-12)
    pairs = reference("signal.stft", x[..., None], window, frame_step=4)
    plain = reference("stft", x, window, n_fft=9, hop_length=4, win_length=9)
    np.testing.assert_allclose(pairs, plain.swapaxes(1, 2), atol=1e-12)


def test_builders_and_mistakes() -> None:
    x = relay.var("x", shape=(2, 40))
    assert str(relay.stft(x, 16).checked_type) == "Tensor[(2, 9, 7, 2), float32]"
    with pytest.raises(ValueError, match="a frame of 64 does not fit into a signal of 40"):
        relay.stft(x, 64)
    with pytest.raises(ValueError, match="win_length is 1 to n_fft = 16, not 17"):
        relay.stft(x, 16, win_length=17)
    z = relay.var("z", shape=(2, 8, 2))
    with pytest.raises(ValueError, match="axis is not the last one"):
        relay.signal.dft(z, axis=2)
    with pytest.raises(ValueError, match="a onesided transform goes from real numbers"):
        relay.signal.dft(z, onesided=True)
    with pytest.raises(ValueError, match=r"upper_edge_hertz 900.0 lies above half"):
        relay.signal.mel_weight_matrix(4, 16, 1000, 0.0, 900.0)
