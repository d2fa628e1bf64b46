"""flex_attention: scores and masks that are programs of the user."""

from collections.abc import Callable
from typing import Any

import pytest

from sterna.support.errors import OpNotImplemented
from tests.frontend.torch_support import expect_close, imported, results
from tests.support import require_module

require_module("torch")
import torch  # noqa: E402
from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")

def score_of(bias: Any, table: Any, documents: Any) -> Callable[..., Any]:
    """Causal in each document, with a bias of heads, and a factor that is picked in two steps."""
    def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        changed = 2 * torch.tanh((s + bias[h] * (j - i)) * table[b][h] / 2)
        is_seen = (documents[b, i] == documents[b, j]) & (i >= j)
        return torch.where(is_seen, changed, -float("inf"))

    return score


class Attention(torch.nn.Module):
    def forward(self, query: Any, key: Any, value: Any, *tables: Any) -> Any:
        return flex_attention(
            query, key, value, score_mod=score_of(*tables), enable_gqa=True, return_lse=True
        )


class Masked(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mask = create_block_mask(seen, None, None, 16, 16, device="cpu", BLOCK_SIZE=8)

    def forward(self, query: Any, key: Any, value: Any) -> Any:
        return flex_attention(query, key, value, block_mask=self.mask, return_lse=True)


def seen(b: Any, h: Any, i: Any, j: Any) -> Any:
    return (i > j) & (i - j < 4)


def operands(length: int, heads: int) -> list[Any]:
    return [
        torch.sin(torch.arange(2.0 * count * length * 3) * step).reshape(2, count, length, 3)
        for count, step in ((4, 0.7), (heads, 1.1), (heads, 1.9))
    ]


def attended(
    query: Any, key: Any, value: Any, score: Callable[..., Any], see: Callable[..., Any]
) -> tuple[Any, Any]:
    """Attention, and the logarithms of its sums, from the text."""
    times = query.shape[1] // key.shape[1]
    key, value = (each.repeat_interleave(times, 1) for each in (key, value))
    scores = query @ key.mT / query.shape[-1] ** 0.5
    places = torch.meshgrid(*map(torch.arange, scores.shape), indexing="ij")
    scores = scores.masked_fill(~see(*places), -float("inf"))
    for place in zip(*(each.flatten().tolist() for each in places), strict=True):
        scores[place] = score(scores[place], *map(torch.tensor, place))
    weights = scores.softmax(-1).nan_to_num(0)
    return weights @ value, scores.logsumexp(-1)


def test_scores() -> None:
    tables = (
        torch.linspace(-1, 1, 4), torch.linspace(-2, 2, 8).reshape(2, 4),
        torch.tensor([[0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 2, 2]]),
    )
    given = [*operands(6, heads=2), *tables]
    made = torch.compile(
        Attention(), backend="sterna", fullgraph=True, options={"fallback": False, "opt_level": 1}
    )(*given)
    query, key, value = given[:3]
    wanted = attended(query, key, value, score_of(*tables), lambda *places: torch.tensor(True))
    expect_close(made, wanted)


def test_a_mask_that_leaves_nothing_of_some_rows() -> None:
    given = operands(16, heads=4)
    exported = torch.export.export(Masked(), tuple(given))
    query, key, value = given
    wanted = attended(query, key, value, lambda s, b, h, i, j: s, seen)
    expect_close(results(imported(exported), *given), wanted)


def test_sums_along_what_a_score_picks_are_refused() -> None:
    class Sums(torch.nn.Module):
        def forward(self, query: Any, key: Any, value: Any, table: Any) -> Any:
            return flex_attention(
                query, key, value, score_mod=lambda s, b, h, i, j: s + table[b].sum()
            )

    given = (*operands(6, heads=4), torch.ones(2, 4))
    with pytest.raises(OpNotImplemented, match=r"a score or mask that is computed by aten\.sum"):
        imported(torch.export.export(Sums(), given))
