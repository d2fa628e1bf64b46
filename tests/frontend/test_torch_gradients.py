"""Gradients of a few of PyTorch's sample calls, by the training path of torch.compile.

`python -m tests.frontend.torch_gradients` runs all of them.
"""

import pytest

from tests.support import require_module

require_module("torch")
require_module("expecttest")
import torch  # noqa: E402

from sterna.contrib import torch_compile  # noqa: E402
from tests.frontend.torch_gradients import by_references, run_operator  # noqa: E402
from tests.frontend.torch_opinfo import RIGHT, name_of, operators  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

SAMPLE = {
    "cdist", "grid_sampler_2d", "nn.functional.adaptive_avg_pool2d", "nn.functional.avg_pool3d",
    "nn.functional.conv_transpose2d", "nn.functional.embedding_bag",
    "nn.functional.multilabel_soft_margin_loss",
}


def test_gradients_of_sample_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_compile, "_build", by_references)
    wanted = [op for op in operators(torch.float32) if name_of(op) in SAMPLE]
    outcomes = [made for op in wanted if (made := run_operator(op, 1)) is not None]
    assert {one.name for one in outcomes} == SAMPLE
    assert [one for one in outcomes if one.reason != RIGHT] == []


@pytest.mark.parametrize("name", ["linalg.det", "linalg.slogdet", "_segment_reduce.lengths"])
def test_gradients_of_all_sample_calls(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch_compile, "_build", by_references)
    (op,) = (each for each in operators(torch.float32) if name_of(each) == name)
    made = run_operator(op, 6)
    assert made is not None and made.reason == RIGHT, made
