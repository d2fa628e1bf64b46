"""Upsampling: references against torch, types, messages."""

from typing import Any

import numpy as np
import pytest

from sterna import relay
from sterna.ir.types import TensorType
from tests.op.torch_support import functional, reference, tensor


def test_planes_are_torchs() -> None:
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 5))
    stretch = functional().interpolate
    want = stretch(tensor(x), scale_factor=(2, 3)).numpy()
    np.testing.assert_array_equal(reference("nn.upsampling", x, scale_h=2, scale_w=3), want)
    want = stretch(tensor(x), scale_factor=(2, 3), mode="bilinear", align_corners=True).numpy()
    attrs: dict[str, Any] = {"method": "bilinear", "align_corners": True}
    got = reference("nn.upsampling", x, scale_h=2, scale_w=3, **attrs)
    np.testing.assert_allclose(got, want)


@pytest.mark.parametrize("corners", [True, False])
def test_volumes_are_torchs(corners: bool) -> None:
    x = np.random.default_rng(0).standard_normal((1, 2, 3, 4, 5))
    stretch = functional().interpolate
    scales = {"scale_d": 2, "scale_h": 3, "scale_w": 1}
    want = stretch(tensor(x), scale_factor=(2, 3, 1)).numpy()
    np.testing.assert_array_equal(reference("nn.upsampling3d", x, **scales), want)
    want = stretch(
        tensor(x), scale_factor=(2, 3, 1), mode="trilinear", align_corners=corners
    ).numpy()
    mode = "align_corners" if corners else "half_pixel"
    got = reference(
        "nn.upsampling3d", x, method="trilinear", coordinate_transformation_mode=mode, **scales
    )
    np.testing.assert_allclose(got, want)


def test_cubic_interpolation_keeps_quadratics() -> None:
    line = np.arange(9.0) ** 2 - 3 * np.arange(9.0)
    x = np.tile(line, (1, 1, 2, 1))
    got = reference("nn.upsampling", x, scale_w=4, method="bicubic")[0, 0, 0, 4:-8]
    at = np.arange(4, 28) / 4
    np.testing.assert_allclose(got, at**2 - 3 * at)


def test_extents_that_only_the_run_knows() -> None:
    x = relay.var("x", shape=(1, 3, relay.Any(), 8))
    assert relay.nn.upsampling(x, 2, 1.5).checked_type == TensorType((1, 3, relay.Any(), 12))


def test_mistakes() -> None:
    x = relay.var("x", shape=(1, 3, 8, 8))
    with pytest.raises(ValueError, match="method is one of nearest_neighbor, linear, cubic, bil"):
        relay.nn.upsampling(x, 2, 2, method="sinc")
    with pytest.raises(ValueError, match="scale_w is more than 0, not -1"):
        relay.nn.upsampling(x, 2, -1)
