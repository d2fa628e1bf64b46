"""Networks of PyTorch, written out after their papers, with random weights.

Layers and extents are those of torchvision and transformers, so that times are those of the
networks that people run, and no package beside torch is needed.
"""

from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as f


def _norm_conv(
    inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1,
    activation: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([activation()] if activation else []))


# ---- ResNet ----


class _Residual(nn.Module):
    """A basic block of two convolutions, or a bottleneck of three."""

    def __init__(self, inputs: int, width: int, stride: int, is_deep: bool) -> None:
        super().__init__()
        outputs = width * 4 if is_deep else width
        if is_deep:
            layers = [_norm_conv(inputs, width, 1), _norm_conv(width, width, 3, stride),
                      _norm_conv(width, outputs, 1, activation=None)]
        else:
            layers = [_norm_conv(inputs, width, 3, stride),
                      _norm_conv(width, outputs, 3, activation=None)]
        self.body = nn.Sequential(*layers)
        plain = stride == 1 and inputs == outputs
        self.skip = nn.Identity() if plain else _norm_conv(inputs, outputs, 1, stride,
                                                            activation=None)

    def forward(self, x: Tensor) -> Tensor:
        return f.relu(self.body(x) + self.skip(x))


def resnet(depths: Sequence[int], is_deep: bool) -> nn.Module:
    """ResNet-18 or ResNet-50."""
    layers: list[nn.Module] = [_norm_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for stage, depth in enumerate(depths):
        for place in range(depth):
            width = 64 << stage
            stride = 2 if stage and not place else 1
            layers.append(_Residual(inputs, width, stride, is_deep))
            inputs = width * 4 if is_deep else width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inputs, 1000))


# ---- MobileNetV2 and EfficientNet-B0 ----


class _Squeeze(nn.Module):
    def __init__(self, channels: int, inner: int) -> None:
        super().__init__()
        self.down, self.up = nn.Conv2d(channels, inner, 1), nn.Conv2d(inner, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        inner = f.silu(self.down(f.adaptive_avg_pool2d(x, 1)))
        return x * torch.sigmoid(self.up(inner))


class _Inverted(nn.Module):
    def __init__(
        self, inputs: int, outputs: int, size: int, stride: int, growth: int,
        activation: type[nn.Module], squeezes: bool,
    ) -> None:
        super().__init__()
        inner = inputs * growth
        layers: list[nn.Module] = []
        if growth != 1:
            layers.append(_norm_conv(inputs, inner, 1, activation=activation))
        layers.append(_norm_conv(inner, inner, size, stride, inner, activation))
        if squeezes:
            layers.append(_Squeeze(inner, max(1, inputs // 4)))
        layers.append(_norm_conv(inner, outputs, 1, activation=None))
        self.body = nn.Sequential(*layers)
        self.is_residual = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.body(x)
        return x + made if self.is_residual else made


# Growth, channels, blocks, stride and window of each stage.
_MOBILE = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 32, 3, 2, 3), (6, 64, 4, 2, 3),
           (6, 96, 3, 1, 3), (6, 160, 3, 2, 3), (6, 320, 1, 1, 3))
_EFFICIENT = ((1, 16, 1, 1, 3), (6, 24, 2, 2, 3), (6, 40, 2, 2, 5), (6, 80, 3, 2, 3),
              (6, 112, 3, 1, 5), (6, 192, 4, 2, 5), (6, 320, 1, 1, 3))


def inverted(
    stages: Sequence[tuple[int, int, int, int, int]], activation: type[nn.Module], squeezes: bool
) -> nn.Module:
    """A network of inverted residuals."""
    layers: list[nn.Module] = [_norm_conv(3, 32, 3, 2, activation=activation)]
    inputs = 32
    for growth, outputs, depth, stride, size in stages:
        for place in range(depth):
            step = 1 if place else stride
            layers.append(_Inverted(inputs, outputs, size, step, growth, activation, squeezes))
            inputs = outputs
    layers += [_norm_conv(inputs, 1280, 1, activation=activation), nn.AdaptiveAvgPool2d(1)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1280, 1000))


# ---- VGG, DenseNet, U-Net ----


def vgg11() -> nn.Module:
    """VGG-11 with batch norms."""
    layers: list[nn.Module] = []
    inputs = 3
    for outputs in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers.append(_norm_conv(inputs, outputs) if outputs else nn.MaxPool2d(2))
        inputs = outputs or inputs
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(512 * 49, 4096), nn.ReLU(),
                         nn.Linear(4096, 4096), nn.ReLU(), nn.Linear(4096, 1000))


class _DenseLayer(nn.Module):
    def __init__(self, inputs: int, growth: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, 4 * growth, 1, bias=False),
            nn.BatchNorm2d(4 * growth), nn.ReLU(),
            nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.body(x)], 1)


def dense_block() -> nn.Module:
    """The first two blocks of DenseNet-121."""
    layers: list[nn.Module] = [_norm_conv(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)]
    inputs = 64
    for depth in (6, 12):
        for _ in range(depth):
            layers.append(_DenseLayer(inputs, 32))
            inputs += 32
        layers += [nn.BatchNorm2d(inputs), nn.ReLU(), nn.Conv2d(inputs, inputs // 2, 1, bias=False),
                   nn.AvgPool2d(2)]
        inputs //= 2
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Down and up again through four levels."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        widths = [width << level for level in range(4)]
        double = [nn.Sequential(_norm_conv(a, b), _norm_conv(b, b))
                  for a, b in zip([3, *widths], widths, strict=False)]
        self.down = nn.ModuleList(double)
        pairs = list(zip(widths[:0:-1], widths[-2::-1], strict=True))
        self.rise = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairs)
        self.up = nn.ModuleList(
            nn.Sequential(_norm_conv(a, b), _norm_conv(b, b)) for a, b in pairs
        )
        self.head = nn.Conv2d(width, 2, 1)

    def forward(self, x: Tensor) -> Tensor:
        held = []
        for place, layer in enumerate(self.down):
            x = layer(f.max_pool2d(x, 2) if place else x)
            held.append(x)
        held.pop()
        for rise, up in zip(self.rise, self.up, strict=True):
            x = up(torch.cat([rise(x), held.pop()], 1))
        made: Tensor = self.head(x)
        return made


# ---- transformers ----


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int, is_causal: bool) -> None:
        super().__init__()
        self.heads, self.is_causal = heads, is_causal
        self.given, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.given(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        made = f.scaled_dot_product_attention(q, k, v, is_causal=self.is_causal)
        found: Tensor = self.out(made.transpose(1, 2).reshape(batch, length, width))
        return found


class _Block(nn.Module):
    """Attention and two linear layers; the norms stand before them, or behind as in BERT."""

    def __init__(self, width: int, heads: int, is_causal: bool, is_after: bool) -> None:
        super().__init__()
        self.is_after = is_after
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attend = _Attention(width, heads, is_causal)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                   nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        if self.is_after:
            x = self.first(x + self.attend(x))
            return self.second(x + self.inner(x))
        x = x + self.attend(self.first(x))
        return x + self.inner(self.second(x))


class VisionTransformer(nn.Module):
    """ViT-B/16."""

    def __init__(self, depth: int = 12, width: int = 768) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 16, 16)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, 197, width) * 0.02)
        self.blocks = nn.Sequential(*(_Block(width, 12, False, False) for _ in range(depth)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 1000)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.place
        made: Tensor = self.head(self.norm(self.blocks(x))[:, 0])
        return made


class TextModel(nn.Module):
    """BERT-base, or GPT-2 where attention is causal."""

    def __init__(self, words: int, depth: int, is_causal: bool, width: int = 768) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(words, width), nn.Embedding(512, width)
        self.norm = nn.LayerNorm(width)
        self.blocks = nn.Sequential(
            *(_Block(width, 12, is_causal, not is_causal) for _ in range(depth))
        )

    def forward(self, x: Tensor) -> Tensor:
        places = torch.arange(x.shape[1], device=x.device)
        made: Tensor = self.blocks(self.norm(self.words(x) + self.places(places)))
        return made


# ---- ConvNeXt and recurrent networks ----


class _NextBlock(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.inner = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(),
                                   nn.Linear(4 * width, width))
        self.scale = nn.Parameter(torch.full((width,), 1e-6))

    def forward(self, x: Tensor) -> Tensor:
        made = self.scale * self.inner(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        return x + made.permute(0, 3, 1, 2)


class _ChannelNorm(nn.LayerNorm):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


def convnext(widths: Sequence[int] = (96, 192, 384, 768)) -> nn.Module:
    """ConvNeXt-T."""
    layers: list[nn.Module] = [nn.Conv2d(3, widths[0], 4, 4), _ChannelNorm(widths[0], eps=1e-6)]
    for stage, (width, depth) in enumerate(zip(widths, (3, 3, 9, 3), strict=True)):
        if stage:
            before = widths[stage - 1]
            layers += [_ChannelNorm(before, eps=1e-6), nn.Conv2d(before, width, 2, 2)]
        layers += [_NextBlock(width) for _ in range(depth)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.LayerNorm(widths[-1], eps=1e-6), nn.Linear(widths[-1], 1000))


class Recurrent(nn.Module):
    """Two layers of LSTM or GRU over a sequence."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        self.layers = kind(128, 256, num_layers=2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        made: Tensor = self.layers(x)[0]
        return made


def _image(size: int = 224) -> Tensor:
    return torch.randn(1, 3, size, size)


def _text(length: int = 128) -> Tensor:
    return torch.randint(0, 30000, (1, length))


Made = tuple[Callable[[], nn.Module], Callable[[], Tensor]]
NETWORKS: dict[str, Made] = {
    "resnet18": (partial(resnet, (2, 2, 2, 2), False), _image),
    "resnet50": (partial(resnet, (3, 4, 6, 3), True), _image),
    "mobilenet_v2": (partial(inverted, _MOBILE, nn.ReLU6, False), _image),
    "efficientnet_b0": (partial(inverted, _EFFICIENT, nn.SiLU, True), _image),
    "vgg11": (vgg11, _image),
    "densenet_blocks": (dense_block, _image),
    "vit_b_16": (VisionTransformer, _image),
    "bert_base": (partial(TextModel, 30522, 12, False), _text),
    "gpt2_blocks": (partial(TextModel, 30522, 2, True), _text),
    "convnext_tiny": (convnext, _image),
    "unet": (UNet, partial(_image, 128)),
    "lstm": (partial(Recurrent, nn.LSTM), lambda: torch.randn(1, 64, 128)),
    "gru": (partial(Recurrent, nn.GRU), lambda: torch.randn(1, 64, 128)),
}
