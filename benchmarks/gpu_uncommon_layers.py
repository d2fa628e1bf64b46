"""Layers for gpu_layers.py that fewer networks have."""

from collections.abc import Callable, Sequence

import torch
from gpu_contest_layers import Layer, Of, attention, conv, dense, layer, of, taken
from torch import nn
from torch.nn import functional as F


def spectrogram(x: torch.Tensor) -> torch.Tensor:
    """Of sound, as speech networks have it."""
    window = torch.hann_window(400, device=x.device, dtype=x.dtype)
    made = torch.stft(x.float(), 400, 160, window=window.float(), return_complex=True)
    return made.abs().to(x.dtype)


def positive(function: Callable[..., torch.Tensor], *shapes: Sequence[int]) -> Callable[[], Layer]:
    """A function of positive numbers."""
    return lambda: (Of(function), tuple(torch.rand(*shape) + 0.5 for shape in shapes))


def biased(heads: int, batch: int, length: int, width: int) -> Callable[[], Layer]:
    """Attention with a bias of places, as Swin and T5 have it."""
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, bias: torch.Tensor
               ) -> torch.Tensor:
        scores = q @ k.transpose(-2, -1) * width ** -0.5 + bias
        return scores.softmax(-1) @ v

    own = (batch, heads, length, width)
    return of(attend, own, own, own, (heads, length, length))


UNCOMMON: dict[str, Callable[[], Layer]] = {
    "conv3d 1x3x3 64 at 16x56": conv(3, (1, 64, 16, 56, 56), 64, (1, 3, 3), padding=(0, 1, 1)),
    "conv3d 3x1x1 128 at 16x28": conv(3, (1, 128, 16, 28, 28), 128, (3, 1, 1), padding=(1, 0, 0)),
    "depthwise conv3d 3x3x3 96 at 8x28": conv(3, (2, 96, 8, 28, 28), 96, 3, padding=1, groups=96),
    "conv3d 3x5x5 stride 2 3 to 64 at 16x112": conv(3, (1, 3, 16, 112, 112), 64, (3, 5, 5),
                                                    stride=(1, 2, 2), padding=(1, 2, 2)),
    "transposed conv3d 2x2x2 stride 2 128 to 64": conv(3, (1, 128, 8, 16, 16), 64, 2, True,
                                                       stride=2),
    "transposed conv 3x3 64 to 32 at 64": conv(2, (2, 64, 64, 64), 32, 3, True, padding=1),
    "conv 1x7 192 at 17, batch 4": conv(2, (4, 192, 17, 17), 192, (1, 7), padding=(0, 3)),
    "conv 3x3 stride 2 3 to 32 at 299": conv(2, (4, 3, 299, 299), 32, 3, stride=2),
    "conv 9x9 3 to 64 at 64, batch 16": conv(2, (16, 3, 64, 64), 64, 9, padding=4),
    "conv 3x3 64 to 3 at 256": conv(2, (2, 64, 256, 256), 3, 3, padding=1),
    "conv 3x3 512 at 64": conv(2, (1, 512, 64, 64), 512, 3, padding=1),
    "conv 1x1 960 to 160 at 7, batch 1": conv(2, (1, 960, 7, 7), 160, 1),
    "conv1d 5 stride 3 256 over 10000": conv(1, (2, 256, 10000), 256, 5, stride=3),
    "conv1d 7 33 to 65 over 2000": conv(1, (4, 33, 2000), 65, 7, padding=3),
    "depthwise conv1d 4 1536 over 2048": conv(1, (1, 1536, 2048), 1536, 4, padding=3, groups=1536),
    "circular conv 3x3 48 at 60": conv(2, (2, 48, 60, 60), 48, 3, padding=1,
                                       padding_mode="circular"),
    "dense 3 x 257 to 129": dense((3,), 257, 129),
    "dense 100 x 1001 to 999": dense((100,), 1001, 999),
    "dense 16384 x 64 to 64": dense((16384,), 64, 64),
    "dense 1024 x 1024 to 1": dense((1024,), 1024, 1),
    "three dense layers 512 x 784 to 10": layer(
        lambda: nn.Sequential(nn.Linear(784, 300), nn.ReLU(), nn.Linear(300, 100), nn.ReLU(),
                              nn.Linear(100, 10)), 512, 784),
    "bilinear 128 x 64 x 64 to 32": lambda: (nn.Bilinear(64, 64, 32), (
        torch.randn(128, 64), torch.randn(128, 64))),
    "outer products 64 x 512 x 512": of(lambda x, y: x[:, :, None] * y[:, None], (64, 512),
                                        (64, 512)),
    "tensordot of two axes": of(lambda x, y: torch.tensordot(x, y, dims=([1, 2], [0, 1])),
                                (64, 32, 48), (32, 48, 96)),
    "matmul broadcast 8 x 1 by 1 x 12 of 64": of(torch.matmul, (8, 1, 64, 64), (1, 12, 64, 64)),
    "baddbmm 16 of 100 x 200 x 300": of(torch.baddbmm, (16, 100, 300), (16, 100, 200),
                                        (16, 200, 300)),
    "distances 1000 x 1000 of 64": of(torch.cdist, (1000, 64), (1000, 64)),
    "cosine similarity 4096 x 512": of(F.cosine_similarity, (4096, 512), (4096, 512)),
    "window attention 64 x 3 x 49 x 32 with bias": biased(3, 64, 49, 32),
    "attention 8 x 512 x 64 with bias": biased(8, 2, 512, 64),
    "attention 8 x 300 x 32": attention(2, 8, 300, 32),
    "attention 1 x 4096 x 512": attention(1, 1, 4096, 512),
    "attention 12 x 77 x 64 causal, batch 16": attention(16, 12, 77, 64, causal=True),
    "transformer layer 4 x 128 x 512": layer(
        lambda: nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 4, 128, 512),
    "layer norm of 3 axes 32 x 64 x 14 x 14": layer(lambda: nn.LayerNorm((64, 14, 14)), 32, 64,
                                                    14, 14),
    "batch norm 1d 4096 x 512": layer(lambda: nn.BatchNorm1d(512), 4096, 512),
    "local response norm 96 at 55": layer(lambda: nn.LocalResponseNorm(5), 4, 96, 55, 55),
    "group norm 1 of 256 at 28": layer(lambda: nn.GroupNorm(1, 256), 8, 256, 28, 28),
    "group norm 8 of 64 over 16000": layer(lambda: nn.GroupNorm(8, 64), 2, 64, 16000),
    "instance norm 1d 32 over 5001": layer(lambda: nn.InstanceNorm1d(32), 4, 32, 5001),
    "variance of pixels 8 x 256 x 64 x 64": of(lambda x: x.var((2, 3)), (8, 256, 64, 64)),
    "norm along the first 4096 x 1000": of(lambda x: x.norm(dim=0), (4096, 1000)),
    "mean of channels 8 x 256 x 56 x 56": of(lambda x: x.mean(1), (8, 256, 56, 56)),
    "sum of 1000 x 3": of(lambda x: x.sum(0), (1000000, 3)),
    "largest and place along channels": of(lambda x: x.argmax(1), (4, 150, 128, 128)),
    "any above 0 along rows": of(lambda x: (x > 3).any(-1), (8192, 4096)),
    "adaptive max pool to 7 of 256 at 50": layer(lambda: nn.AdaptiveMaxPool2d(7), 4, 256, 50, 50),
    "average pool 2x2 stride 2 64 at 112": layer(lambda: nn.AvgPool2d(2), 8, 64, 112, 112),
    "average pool 3d 1024 at 8x7": layer(lambda: nn.AdaptiveAvgPool3d(1), 4, 1024, 8, 7, 7),
    "max pool 1d 3 of 512 over 4001": layer(lambda: nn.MaxPool1d(3, 2), 2, 512, 4001),
    "max pool 13x13 512 at 20": layer(lambda: nn.MaxPool2d(13, 1, 6), 1, 512, 20, 20),
    "trilinear to 2 times 64 at 8x32": of(lambda x: F.interpolate(
        x, scale_factor=2, mode="trilinear"), (1, 64, 8, 32, 32)),
    "area to a half 64 at 128": of(lambda x: F.interpolate(x, scale_factor=0.5, mode="area"),
                                   (2, 64, 128, 128)),
    "linear 1d to 2 times 256 over 1000": of(lambda x: F.interpolate(
        x, scale_factor=2, mode="linear"), (2, 256, 1000)),
    "affine grid and sample 3 at 256": of(
        lambda x, t: F.grid_sample(x, F.affine_grid(t, [4, 3, 256, 256], align_corners=False),
                                   align_corners=False), (4, 3, 256, 256), (4, 2, 3)),
    "fold 3x3 64 at 56": of(lambda x: F.fold(x, (56, 56), 3, padding=1), (4, 576, 3136)),
    "constant pad 1 of 64 at 223": of(lambda x: F.pad(x, (1, 2, 3, 0)), (4, 64, 223, 223)),
    "repeat 2 x 3 of 256 x 512": of(lambda x: x.repeat(8, 2, 3), (256, 512)),
    "repeat interleaved 4 of 1024 x 256": of(lambda x: x.repeat_interleave(4, 0), (1024, 256)),
    "stack and split 8 of 512 x 512": of(lambda *x: torch.stack(x, 1)[:, ::2].contiguous(),
                                         *[(512, 512)] * 8),
    "lower triangle 4096 x 4096": of(torch.tril, (4096, 4096)),
    "masked fill 64 x 512 x 512": of(lambda x: x.masked_fill(x > 1, -1e4), (64, 512, 512)),
    "permute five axes": of(lambda x: x.permute(0, 3, 1, 4, 2).contiguous(), (8, 16, 24, 32, 20)),
    "transpose 3 x 1000000": of(lambda x: x.T.contiguous(), (3, 1000000)),
    "rows of 1000000 x 7 plus columns": of(lambda x, y: x + y, (1000000, 7), (7,)),
    "broadcast 512 x 1 x 512 with 1 x 512 x 512": of(lambda x, y: x * y + x, (512, 1, 512),
                                                     (1, 512, 512)),
    "clamp, exp and log 10 million": positive(lambda x: x.clamp(0.6, 1.4).exp().log1p(),
                                              (10000000,)),
    "erf and tanh 4 million": of(lambda x: x.erf() + x.tanh(), (4000000,)),
    "hard swish 32 x 96 x 56 x 56": of(F.hardswish, (32, 96, 56, 56)),
    "PReLU 64 at 112": layer(lambda: nn.PReLU(64), 8, 64, 112, 112),
    "GLU 2048 x 8192": of(lambda x: F.glu(x, -1), (2048, 8192)),
    "softplus and sigmoid 8 million": of(lambda x: F.softplus(x) * x.sigmoid(), (8388608,)),
    "gumbel-like argmax 4096 x 512": of(lambda x: (x * 2 + 1).softmax(-1).argmax(-1), (4096, 512)),
    "softmax along the first 128 x 8192": of(lambda x: x.softmax(0), (128, 8192)),
    "softmax 1000000 x 10": of(lambda x: x.softmax(-1), (1000000, 10)),
    "softmax 8 x 1000000": of(lambda x: x.softmax(-1), (8, 1000000)),
    "cross entropy 8192 x 1000": taken(lambda x, n: F.cross_entropy(x, n), (8192, 1000), (8192,),
                                       1000),
    "mean squared error 16 million": of(F.mse_loss, (4096, 4096), (4096, 4096)),
    "running product 4096 x 512": positive(lambda x: x.cumprod(-1), (4096, 512)),
    "running largest 1024 x 1024": of(lambda x: x.cummax(-1)[0], (1024, 1024)),
    "running sum of columns 4096 x 1000": of(lambda x: x.cumsum(0), (4096, 1000)),
    "median 4096 x 257": of(lambda x: x.median(-1)[0], (4096, 257)),
    "top 300 of 8 x 76725": of(lambda x: x.topk(300)[0], (8, 76725)),
    "argsort 4096 x 100": of(lambda x: x.argsort(-1).float(), (4096, 100)),
    "rows picked 20000 of 50000 x 128": taken(lambda x, n: x[n], (50000, 128), (20000,), 50000),
    "columns picked 500 of 4096 x 1000": taken(lambda x, n: x[:, n], (4096, 1000), (500,), 1000),
    "scatter 65536 rows into 65536 x 32": taken(
        lambda x, n: torch.zeros_like(x).index_copy(0, n, x), (65536, 32), (65536,), 65536),
    "sums of segments 200000 x 16": taken(
        lambda x, n: torch.zeros(5000, 16, device=x.device, dtype=x.dtype).index_add(0, n, x),
        (200000, 16), (200000,), 5000),
    "bins of a million": of(lambda x: torch.bucketize(
        x, torch.linspace(-3, 3, 64, device=x.device, dtype=x.dtype)).to(x.dtype), (1000000,)),
    "spectrogram of 30 seconds": of(spectrogram, (1, 480000)),
    "Fourier transform 256 x 1024": of(lambda x: torch.fft.rfft(x.float()).abs().to(x.dtype),
                                       (256, 1024)),
}
