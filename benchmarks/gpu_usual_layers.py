"""Layers for gpu_layers.py that many networks have."""

from collections.abc import Callable

import torch
from gpu_contest_layers import First, Layer, attention, conv, dense, layer, of, taken
from torch import nn
from torch.nn import functional as F


def windows(x: torch.Tensor) -> torch.Tensor:
    """Shifted windows of an image, as Swin has them."""
    x = torch.roll(x, (-3, -3), (1, 2))
    b, h, w, c = x.shape
    return x.view(b, h // 7, 7, w // 7, 7, c).transpose(2, 3).reshape(-1, 49, c)


def rms(x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """Divided by the root of the mean square."""
    return F.rms_norm(x, x.shape[-1:], scale)


def rotated(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary embedding."""
    low, high = x.chunk(2, -1)
    return x * cos + torch.cat((-high, low), -1) * sin


USUAL: dict[str, Callable[[], Layer]] = {
    "conv 3x3 64 at 56, batch 8": conv(2, (8, 64, 56, 56), 64, 3, padding=1),
    "conv 3x3 96 to 192 at 35, batch 4": conv(2, (4, 96, 35, 35), 192, 3),
    "conv 3x3 24 to 48 at 112, batch 16": conv(2, (16, 24, 112, 112), 48, 3, padding=1),
    "conv 3x3 100 to 36 at 30": conv(2, (2, 100, 30, 30), 36, 3, padding=1),
    "conv 3x3 stride 2 256 to 512 at 28": conv(2, (1, 256, 28, 28), 512, 3, padding=1, stride=2),
    "conv 3x3 256 at 20, batch 1": conv(2, (1, 256, 20, 20), 256, 3, padding=1),
    "conv 3x3 dilated 12 512 to 256 at 65": conv(2, (1, 512, 65, 65), 256, 3, padding=12,
                                                 dilation=12),
    "conv 1x1 2048 to 512 at 7, batch 8": conv(2, (8, 2048, 7, 7), 512, 1),
    "conv 1x1 320 to 1280 at 7": conv(2, (1, 320, 7, 7), 1280, 1),
    "conv 1x1 18 to 72 at 64, batch 2": conv(2, (2, 18, 64, 64), 72, 1),
    "conv 5x5 48 to 64 at 28, batch 4": conv(2, (4, 48, 28, 28), 64, 5, padding=2),
    "conv 7x7 stride 2 3 to 64 at 224, batch 4": conv(2, (4, 3, 224, 224), 64, 7, padding=3,
                                                      stride=2),
    "conv 6x6 stride 2 3 to 48 at 640": conv(2, (1, 3, 640, 640), 48, 6, padding=2, stride=2),
    "patches 16x16 of 3 to 768 at 224, batch 8": conv(2, (8, 3, 224, 224), 768, 16, stride=16),
    "patches 4x4 of 3 to 96 at 224, batch 8": conv(2, (8, 3, 224, 224), 96, 4, stride=4),
    "conv 3x3 32 groups of 8 at 56": conv(2, (4, 256, 56, 56), 256, 3, padding=1, groups=32),
    "conv 3x3 16 groups of 24 at 28": conv(2, (4, 384, 28, 28), 384, 3, padding=1, groups=16),
    "conv 1x1 3 groups of 80 at 28": conv(2, (4, 240, 28, 28), 240, 1, groups=3),
    "depthwise 3x3 144 at 56, batch 8": conv(2, (8, 144, 56, 56), 144, 3, padding=1, groups=144),
    "depthwise 3x3 stride 2 96 at 112": conv(2, (1, 96, 112, 112), 96, 3, padding=1, stride=2,
                                             groups=96),
    "depthwise 5x5 672 at 14, batch 8": conv(2, (8, 672, 14, 14), 672, 5, padding=2, groups=672),
    "depthwise 7x7 384 at 14, batch 32": conv(2, (32, 384, 14, 14), 384, 7, padding=3, groups=384),
    "depthwise 7x7 96 at 56, batch 8": conv(2, (8, 96, 56, 56), 96, 7, padding=3, groups=96),
    "depthwise 31x31 128 at 56": conv(2, (1, 128, 56, 56), 128, 31, padding=15, groups=128),
    "conv1d 3 512 over 3000": conv(1, (1, 512, 3000), 512, 3, padding=1),
    "conv1d 10 stride 5 1 to 512 over 80000": conv(1, (1, 1, 80000), 512, 10, stride=5),
    "conv1d 3 80 to 512 over 3000": conv(1, (1, 80, 3000), 512, 3, padding=1),
    "conv1d 128 16 groups 768 over 499": conv(1, (1, 768, 499), 768, 128, padding=64, groups=16),
    "conv1d 2 dilated 64 64 over 16000": conv(1, (1, 64, 16000), 64, 2, dilation=64),
    "depthwise conv1d 31 256 over 1500": conv(1, (2, 256, 1500), 256, 31, padding=15, groups=256),
    "conv3d 3x3x3 64 at 8x56": conv(3, (1, 64, 8, 56, 56), 64, 3, padding=1),
    "conv3d 3x3x3 stride 2 32 to 64 at 16x64": conv(3, (1, 32, 16, 64, 64), 64, 3, padding=1,
                                                    stride=2),
    "transposed conv 4x4 stride 2 256 to 128 at 16": conv(2, (4, 256, 16, 16), 128, 4, True,
                                                          padding=1, stride=2),
    "transposed conv 2x2 stride 2 512 to 256 at 28": conv(2, (1, 512, 28, 28), 256, 2, True,
                                                          stride=2),
    "transposed conv1d 16 stride 8 512 to 256": conv(1, (1, 512, 500), 256, 16, True, padding=4,
                                                     stride=8),
    "dense 1 x 4096 to 11008": dense((1,), 4096, 11008),
    "dense 1 x 4096 to 32000": dense((1,), 4096, 32000),
    "dense 4 x 1024 to 50257": dense((4,), 1024, 50257),
    "dense 8 x 8192 to 1024": dense((8,), 8192, 1024),
    "dense 64 x 1000 to 1000": dense((64,), 1000, 1000),
    "dense 77 x 768 to 3072": dense((77,), 768, 3072),
    "dense 32 x 197 x 384 to 1536": dense((32, 197), 384, 1536),
    "dense 2048 x 2048 to 8192": dense((2048,), 2048, 8192),
    "dense 4096 x 13 to 512": dense((4096,), 13, 512),
    "dense 2048 x 479 to 1024": dense((2048,), 479, 1024),
    "dense 5000 x 300 to 7": dense((5000,), 300, 7),
    "matmul 64 of 128 x 64 x 128": of(torch.matmul, (64, 128, 64), (64, 64, 128)),
    "matmul 96 of 49 x 32 x 49": of(lambda x, y: x @ y.mT, (96, 49, 32), (96, 49, 32)),
    "matmul 12 of 1 x 64 x 1000": of(torch.matmul, (12, 1, 64), (12, 64, 1000)),
    "matmul 1000 x 1000 x 1000": of(torch.matmul, (1000, 1000), (1000, 1000)),
    "matmul 2047 x 1023 x 511": of(torch.matmul, (2047, 1023), (1023, 511)),
    "matmul transposed 1024 x 4096 x 1024": of(lambda x, y: x.T @ y, (4096, 1024), (4096, 1024)),
    "matrix by vector 8192 x 8192": of(torch.mv, (8192, 8192), (8192,)),
    "einsum bhwc,hkc->bhwk": of(lambda x, y: torch.einsum("bhwc,hkc->bhwk", x, y),
                                (8, 14, 14, 64), (14, 14, 64)),
    "einsum relative bhid,hjd->bhij": of(lambda x, y: torch.einsum("bhid,hjd->bhij", x, y),
                                         (4, 8, 256, 64), (8, 256, 64)),
    "attention 12 x 197 x 64, batch 32": attention(32, 12, 197, 64),
    "attention 12 x 128 x 64, batch 32": attention(32, 12, 128, 64),
    "attention 3 x 49 x 32, batch 512": attention(512, 3, 49, 32),
    "attention 8 x 1024 x 40, batch 2": attention(2, 8, 1024, 40),
    "attention 8 x 4096 x 40 on 77": attention(2, 8, 4096, 40, 77),
    "attention 32 on 8 x 1024 x 128 causal": attention(1, 32, 1024, 128, groups=8, causal=True),
    "attention 16 x 512 x 64 masked, batch 4": attention(4, 16, 512, 64, masked=True),
    "attention 32 on 8 x 1 x 128 of 3000": attention(4, 32, 1, 128, 3000, 8),
    "attention 16 x 1500 x 80": attention(1, 16, 1500, 80),
    "LSTM 128 x 100 x 256": layer(lambda: First(nn.LSTM(256, 256, batch_first=True)), 16, 100, 256),
    "GRU 64 x 512, two layers": layer(lambda: First(nn.GRU(512, 512, 2)), 64, 4, 512),
    "softmax 4096 x 1000": of(lambda x: x.softmax(-1), (4096, 1000)),
    "softmax 96 x 197 x 197": of(lambda x: x.softmax(-1), (96, 197, 197)),
    "softmax 512 x 30522": of(lambda x: x.softmax(-1), (512, 30522)),
    "softmax along channels 8 x 21 x 256 x 256": of(lambda x: x.softmax(1), (8, 21, 256, 256)),
    "log softmax 128 x 50257": of(lambda x: x.log_softmax(-1), (128, 50257)),
    "logsumexp 10000 x 777": of(lambda x: x.logsumexp(-1), (10000, 777)),
    "layer norm 8192 x 768": layer(lambda: nn.LayerNorm(768), 8192, 768),
    "layer norm 197 x 384": layer(lambda: nn.LayerNorm(384), 197, 384),
    "layer norm of channels 8 x 96 x 56 x 56": of(
        lambda x: F.layer_norm(x.permute(0, 2, 3, 1), (96,)).permute(0, 3, 1, 2), (8, 96, 56, 56)),
    "RMS norm 2048 x 4096": of(rms, (2048, 4096), (4096,)),
    "group norm 32 of 320 at 64, batch 2": layer(lambda: nn.GroupNorm(32, 320), 2, 320, 64, 64),
    "group norm and SiLU 32 of 512 at 128": layer(
        lambda: nn.Sequential(nn.GroupNorm(32, 512), nn.SiLU()), 1, 512, 128, 128),
    "instance norm 64 at 256": layer(lambda: nn.InstanceNorm2d(64), 2, 64, 256, 256),
    "batch norm and ReLU 256 at 56, batch 8": layer(
        lambda: nn.Sequential(nn.BatchNorm2d(256), nn.ReLU()), 8, 256, 56, 56),
    "max pool 3x3 stride 2 64 at 112, batch 8": layer(
        lambda: nn.MaxPool2d(3, 2, 1), 8, 64, 112, 112),
    "max pool 5x5 256 at 20": layer(lambda: nn.MaxPool2d(5, 1, 2), 1, 256, 20, 20),
    "max pool 2x2x2 64 at 16x56": layer(lambda: nn.MaxPool3d(2), 2, 64, 16, 56, 56),
    "average pool 3x3 192 at 35, batch 8": layer(lambda: nn.AvgPool2d(3, 1, 1), 8, 192, 35, 35),
    "global pool 2048 at 7, batch 32": layer(lambda: nn.AdaptiveAvgPool2d(1), 32, 2048, 7, 7),
    "global pool 96 at 112, batch 8": layer(lambda: nn.AdaptiveAvgPool2d(1), 8, 96, 112, 112),
    "adaptive pool to 6 of 512 at 60": layer(lambda: nn.AdaptiveAvgPool2d(6), 4, 512, 60, 60),
    "bilinear to 2 times 256 at 64": of(lambda x: F.interpolate(
        x, scale_factor=2, mode="bilinear"), (2, 256, 64, 64)),
    "bilinear 21 from 65 to 513": of(lambda x: F.interpolate(
        x, (513, 513), mode="bilinear", align_corners=True), (1, 21, 65, 65)),
    "bicubic 3 from 224 to 518": of(lambda x: F.interpolate(x, (518, 518), mode="bicubic"),
                                    (4, 3, 224, 224)),
    "nearest to 2 times 256 at 40": of(lambda x: F.interpolate(x, scale_factor=2),
                                       (4, 256, 40, 40)),
    "grid sample 64 at 128": of(lambda x, g: F.grid_sample(x, g.tanh(), align_corners=False),
                                (2, 64, 128, 128), (2, 128, 128, 2)),
    "pixel shuffle 2 of 256 at 64": of(lambda x: F.pixel_shuffle(x, 2), (4, 256, 64, 64)),
    "channel shuffle 2 of 232 at 28": of(
        lambda x: x.view(16, 2, 116, 28, 28).transpose(1, 2).reshape(16, 232, 28, 28),
        (16, 232, 28, 28)),
    "shifted windows 56 x 96, batch 8": of(windows, (8, 56, 56, 96)),
    "unfold 3x3 64 at 56": of(lambda x: F.unfold(x, 3, padding=1), (4, 64, 56, 56)),
    "reflected pad 3 of 64 at 256": of(lambda x: F.pad(x, (3,) * 4, mode="reflect"),
                                       (2, 64, 256, 256)),
    "concatenated channels 4 of 64 at 56": of(lambda *x: torch.cat(x, 1), *[(8, 64, 56, 56)] * 4),
    "transpose 8191 x 4097": of(lambda x: x.T.contiguous(), (8191, 4097)),
    "permute 32 x 197 x 12 x 64": of(lambda x: x.permute(0, 2, 1, 3).contiguous(),
                                     (32, 197, 12, 64)),
    "permute to NHWC 16 x 3 x 512 x 512": of(lambda x: x.permute(0, 2, 3, 1).contiguous(),
                                             (16, 3, 512, 512)),
    "flip and roll 16 x 256 x 1024": of(lambda x: x.flip(1).roll(5, 2), (16, 256, 1024)),
    "rotary 32 x 2048 x 128": of(rotated, (1, 32, 2048, 128), (2048, 128), (2048, 128)),
    "GELU 8192 x 3072": of(F.gelu, (8192, 3072)),
    "tanh GELU of 8 million and a bit": of(lambda x: F.gelu(x, approximate="tanh"), (8000003,)),
    "SwiGLU 2048 x 11008": of(lambda x, y: F.silu(x) * y, (2048, 11008), (2048, 11008)),
    "mish 16 x 64 x 104 x 104": of(F.mish, (16, 64, 104, 104)),
    "add a bias of channels, ReLU 16 x 64 x 112": of(
        lambda x, b: F.relu(x + b[:, None, None]), (16, 64, 112, 112), (64,)),
    "power and sine 4 million": of(lambda x: (x.abs() ** 0.45 + x).sin(), (4194304,)),
    "mean and variance 64 x 100000": of(lambda x: torch.cat(torch.var_mean(x, 1)), (64, 100000)),
    "sum of everything 16 million": of(lambda x: x.sum(), (16777216,)),
    "sum along the middle 64 x 1000 x 100": of(lambda x: x.sum(1), (64, 1000, 100)),
    "largest along the first 5000 x 3000": of(lambda x: x.amax(0), (5000, 3000)),
    "argmax 1024 x 32000": of(lambda x: x.argmax(-1), (1024, 32000)),
    "norm of rows 10000 x 512": of(lambda x: F.normalize(x, dim=-1), (10000, 512)),
    "running sum 1000 x 1001": of(lambda x: x.cumsum(-1), (1000, 1001)),
    "top 50 of 64 x 32000": of(lambda x: x.topk(50)[0], (64, 32000)),
    "top 8 of 4096 x 64": of(lambda x: x.topk(8)[0], (4096, 64)),
    "sort 256 x 4096": of(lambda x: x.sort(-1)[0], (256, 4096)),
    "sort a million": of(lambda x: x.sort()[0], (1000000,)),
    "embedding 64 x 128 of 30522 x 768": taken(
        lambda x, n: F.embedding(n, x), (30522, 768), (64, 128), 30522),
    "embedding bag 2048 x 20 of 100000 x 64": taken(
        lambda x, n: F.embedding(n, x).sum(1), (100000, 64), (2048, 20), 100000),
    "gather 4096 x 1000 along rows": taken(
        lambda x, n: x.gather(1, n), (4096, 1000), (4096, 200), 1000),
    "scatter add 1000000 into 10000 rows of 64": taken(
        lambda x, n: torch.zeros(10000, 64, device=x.device, dtype=x.dtype).index_add(0, n, x),
        (100000, 64), (100000,), 10000),
    "one hot 65536 of 100": taken(
        lambda x, n: F.one_hot(n, 100).to(x.dtype) * x, (1,), (65536,), 100),
}
