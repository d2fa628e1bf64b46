"""Columns of blocks and determinants: references against torch, messages."""

import numpy as np
import pytest

from sterna import relay
from tests.op.torch_support import functional, reference, tensor

RNG = np.random.default_rng(3)


@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
@pytest.mark.parametrize("dilation", [(1, 1), (2, 1)])
@pytest.mark.parametrize("padding", [(0, 0), (2, 1)])
def test_col2im_is_torchs_fold(
    strides: tuple[int, int], dilation: tuple[int, int], padding: tuple[int, int]
) -> None:
    options = {"stride": strides, "dilation": dilation, "padding": padding}
    image = tensor(RNG.standard_normal((2, 3, 9, 8)))
    columns = functional().unfold(image, (3, 2), **options)
    want = functional().fold(columns, (9, 8), (3, 2), **options).numpy()
    got = reference("nn.col2im", columns.numpy(), image_shape=(9, 8), block_shape=(3, 2),
                    strides=strides, dilation=dilation, padding=padding)
    np.testing.assert_allclose(got, want, atol=1e-12)


def test_col2im_tells_what_is_wrong() -> None:
    x = relay.var("x", shape=(1, 12, 12))
    with pytest.raises(ValueError, match="number of blocks in data is 15, not 12"):
        relay.nn.col2im(x, image_shape=(4, 5), block_shape=(2, 3), padding=(0, 1))
    with pytest.raises(ValueError, match="12 rows are not whole blocks of"):
        relay.nn.col2im(x, image_shape=(4, 5), block_shape=(5, 1))
    with pytest.raises(ValueError, match="number of strides is 2, not 1"):
        relay.nn.col2im(x, image_shape=(4, 5), block_shape=(2, 3), strides=(1,))


def test_det_takes_square_matrices() -> None:
    with pytest.raises(ValueError, match="columns of a square matrix is 3, not 4"):
        relay.det(relay.var("x", shape=(2, 3, 4)))
