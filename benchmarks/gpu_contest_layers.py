"""How the layers of gpu_layers.py are written down."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

Layer = tuple[nn.Module, tuple[torch.Tensor, ...]]


class Of(nn.Module):  # type: ignore[misc]
    """A function as a module."""

    def __init__(self, function: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *given: torch.Tensor) -> torch.Tensor:
        return self.function(*given)


class First(nn.Module):  # type: ignore[misc]
    """A recurrent layer's sequence alone."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.layer(x)[0]
        return found


def conv(
    dimensions: int, shape: Sequence[int], outputs: int, window: int | tuple[int, ...],
    transposed: bool = False, **more: Any,
) -> Callable[[], Layer]:
    """A convolution of one to three dimensions."""
    name = f"Conv{'Transpose' if transposed else ''}{dimensions}d"
    kind = getattr(nn, name)
    return lambda: (kind(shape[1], outputs, window, **more), (torch.randn(*shape),))


def dense(rows: Sequence[int], inputs: int, outputs: int) -> Callable[[], Layer]:
    """A dense layer."""
    return lambda: (nn.Linear(inputs, outputs), (torch.randn(*rows, inputs),))


def of(function: Callable[..., torch.Tensor], *shapes: Sequence[int]) -> Callable[[], Layer]:
    """A function of random tensors."""
    return lambda: (Of(function), tuple(torch.randn(*shape) for shape in shapes))


def taken(
    function: Callable[..., torch.Tensor], shape: Sequence[int], places: Sequence[int], most: int,
) -> Callable[[], Layer]:
    """A function of a random tensor and of random indices."""
    return lambda: (Of(function), (torch.randn(*shape), torch.randint(0, most, tuple(places))))


def layer(module: Callable[[], nn.Module], *shape: int) -> Callable[[], Layer]:
    """A module of one random tensor."""
    return lambda: (module(), (torch.randn(*shape),))


def attention(
    batch: int, heads: int, queries: int, width: int, keys: int = 0, groups: int = 0,
    causal: bool = False, masked: bool = False,
) -> Callable[[], Layer]:
    """Attention, with heads that share keys, a causal mask or a given one."""
    keys, groups = keys or queries, groups or heads

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *mask: torch.Tensor
               ) -> torch.Tensor:
        found: torch.Tensor = F.scaled_dot_product_attention(
            q, k, v, mask[0] if mask else None, is_causal=causal, enable_gqa=groups != heads)
        return found

    shapes = [(batch, heads, queries, width), *[(batch, groups, keys, width)] * 2]
    return of(attend, *shapes, *([(1, 1, queries, keys)] if masked else []))
