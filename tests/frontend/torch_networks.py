"""Small networks of PyTorch's own layers, with weights that are the same in every run."""

from typing import Any

import torch
from torch import nn


class Residual(nn.Module):
    """A residual block."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.short = nn.Sequential(
            nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = self.norm2(self.conv2(self.relu(self.norm1(self.conv1(x)))))
        made += self.short(x)
        return self.relu(made)


class ResNet(nn.Module):
    """A stem, two residual blocks and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )
        self.blocks = nn.Sequential(Residual(8, 8, 1), Residual(8, 16, 2))
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.head = nn.Linear(16, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))


class Encoder(nn.Module):
    """A transformer's encoder over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(50, 16)
        self.places = nn.Parameter(torch.randn(1, 6, 16))
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(16, 50)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.layers(self.tokens(tokens) + self.places))


class Recurrent(nn.Module):
    """A recurrent network of two layers and both directions."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.cells = getattr(nn, kind)(5, 7, 2, bidirectional=True, batch_first=True)

    def forward(self, x: Any) -> Any:
        return self.cells(x)


class InPlace(nn.Module):
    """Changes of tensors and of their views."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = x.clone()
        first = y[0]
        for place in range(x.shape[0]):
            y[place].add_(float(place))
            if place % 2 == 0:
                y[place, 1] = 0.5
        flat = y.view(-1)
        flat.mul_(2)
        y.transpose(0, 1)[1] += 1.0
        rows, columns = x.size()[:2]
        return y.reshape(columns, rows), first + 1, torch.zeros(rows, columns).to(y) - flat.sum()


def made(network: Any) -> Any:
    """A network with random weights and statistics, in the state for inference."""
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for tensor in network.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) - 0.3)
        for part in network.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_var.abs_().add_(0.5)
    return network.eval()
