"""A few of PyTorch's sample calls; `python -m tests.frontend.torch_opinfo` runs all of them."""

import pytest

from tests.support import require_module

require_module("torch")
require_module("expecttest")
import torch  # noqa: E402

from tests.frontend.torch_opinfo import RIGHT, name_of, operators, run_operator  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLE = {
    "index_put", "cumsum", "std", "nn.functional.conv2d", "lgamma", "scatter_reduce.amax",
    "nn.functional.cross_entropy", "nn.functional.avg_pool2d", "cummax", "roll", "diag_embed",
    "linalg.solve", "svd", "fft.irfft2", "special.bessel_j1", "mode", "nn.functional.embedding_bag",
}


def test_sample_calls() -> None:
    wanted = [op for op in operators(torch.float32) if name_of(op) in SAMPLE]
    outcomes = [run_operator(op, torch.float32, 1, compiled=False) for op in wanted]
    assert {one.name for one in outcomes} == SAMPLE
    assert [one for one in outcomes if one.reason != RIGHT] == []
