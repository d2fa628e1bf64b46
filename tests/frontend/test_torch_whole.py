"""Operators that .pt2 files keep whole and PyTorch would take apart: losses, quantiles, norms."""

import io
from collections.abc import Callable
from typing import Any

import pytest

from tests.support import require_module

require_module("torch")
import torch  # noqa: E402
from torch.nn import functional  # noqa: E402

from tests.frontend.torch_support import expect_close, imported, results  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Calls(torch.nn.Module):  # type: ignore[misc]
    def __init__(self, calls: Callable[..., Any]) -> None:
        super().__init__()
        self.calls = calls

    def forward(self, *given: Any) -> Any:
        return self.calls(*given)


def expect_as_file(calls: Callable[..., Any], *inputs: Any) -> None:
    """A file of calls, which nothing takes apart, computes what they compute."""
    module = Calls(calls)
    file = io.BytesIO()
    torch.export.save(torch.export.export(module, inputs), file)
    expect_close(results(imported(file.getvalue()), *inputs), module(*inputs), 2e-5)


def test_losses() -> None:
    torch.manual_seed(0)
    labels = torch.tensor([0, 3, -100, 2])
    weight = torch.rand(5) + 0.1

    def losses(x: Any, y: Any, labels: Any, weight: Any, image: Any, pixels: Any) -> Any:
        entropy = functional.cross_entropy
        known = labels.clamp(min=0)
        return [
            functional.mse_loss(x, y), functional.mse_loss(x, y, reduction="sum"),
            functional.l1_loss(x, y, reduction="none"), entropy(x, labels),
            entropy(x, labels, weight, label_smoothing=0.2),
            entropy(x, labels, weight, reduction="none", label_smoothing=0.1),
            entropy(x, y.softmax(1), weight, label_smoothing=0.1), entropy(x[0], labels[1]),
            entropy(x[0], y[0].softmax(0)), entropy(image, pixels, ignore_index=2),
            functional.multi_margin_loss(x, known),
            functional.multi_margin_loss(x, known, p=2, margin=0.5, weight=weight),
            functional.multi_margin_loss(x, known, reduction="none"),
            functional.multi_margin_loss(x[1], known[1]),
        ]

    expect_as_file(
        losses, torch.randn(4, 5), torch.randn(4, 5), labels, weight, torch.randn(2, 5, 3, 3),
        torch.randint(0, 5, (2, 3, 3)),
    )


def test_quantiles() -> None:
    torch.manual_seed(0)
    x = torch.randn(3, 4, 5)
    holes = x.clone()
    holes[0, 1, 2] = holes[2, 3, 1] = torch.nan
    holes[1, 1] = torch.nan

    def quantiles(x: Any, holes: Any, q: Any) -> Any:
        return [
            torch.quantile(x, 0.3), torch.quantile(x, q), torch.quantile(x, q, keepdim=True),
            torch.quantile(x, q, dim=1), torch.quantile(x, 0.75, dim=0, keepdim=True),
            torch.quantile(x, q, dim=-1, keepdim=True), torch.quantile(holes, q, dim=2),
            torch.nanquantile(holes, q, dim=2), torch.nanquantile(holes, 0.5),
            *(torch.quantile(x, q, dim=1, interpolation=how)
              for how in ("lower", "higher", "nearest", "midpoint")),
        ]

    expect_as_file(quantiles, x, holes, torch.tensor([0.0, 0.1, 0.5, 0.9, 1.0]))


def test_matrix_norms() -> None:
    torch.manual_seed(0)

    def norms(x: Any) -> Any:
        norm = torch.linalg.matrix_norm
        kinds = ("fro", "nuc", 1, -1, 2, -2, float("inf"), -float("inf"))
        return [
            *(norm(x, kind) for kind in kinds), *(norm(x, kind, (0, 2), True) for kind in kinds),
        ]

    expect_as_file(norms, torch.randn(3, 4, 5))
    expect_as_file(
        lambda x: [torch.linalg.matrix_norm(x, kind) for kind in ("fro", "nuc", 1, 2, torch.inf)],
        torch.zeros(2, 0, 3),
    )


def test_affine_grids() -> None:
    torch.manual_seed(0)

    def grids(flat: Any, deep: Any) -> Any:
        make = functional.affine_grid
        return [
            make(flat, [2, 3, 4, 5], align_corners=False), make(flat, [2, 1, 1, 5], True),
            make(deep, [2, 3, 2, 4, 5], align_corners=True),
        ]

    expect_as_file(grids, torch.randn(2, 2, 3), torch.randn(2, 3, 4))


def test_writing_by_places_in_the_memory_of_a_view_is_refused() -> None:
    def scatter(x: Any) -> Any:
        turned = x.t()[1:]
        return torch.as_strided_scatter(turned, torch.zeros(2, 2), (2, 2), (1, 2), 1)

    with pytest.raises(NotImplementedError, match="in the memory of a"):
        expect_as_file(scatter, torch.randn(4, 4))

    def whole(x: Any) -> Any:
        return torch.as_strided_scatter(x, torch.zeros(2, 2), (2, 2), (1, 2), 1)

    expect_as_file(whole, torch.randn(4, 4))
