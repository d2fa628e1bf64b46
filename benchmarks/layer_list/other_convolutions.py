"""Convolutions over sequences and volumes, and transposed ones."""

from typing import Any

from layer_list.layer import Layer, layers_of
from layer_list.operators import Conv, Extents

LAYERS: list[Layer] = []


def _add(
    kind: str, network: str, inputs: int, outputs: int, image: tuple[int, ...], window: Extents,
    variants: str = "", **settings: Any,
) -> None:
    made = Conv(inputs, outputs, image, window, **settings)
    LAYERS.extend(layers_of(kind, f"{network}_{made.name}", made, variants))


# ---- sequences: network, channels in and out, steps, window, stride, dilation, groups ----

for _name, _in, _out, _steps, _window, _stride, _dilation, _groups, _more in (
    ("wav2vec", 1, 512, 16000, 10, 5, 1, 1, ""), ("wav2vec", 512, 512, 3199, 3, 2, 1, 1, ""),
    ("wav2vec", 512, 512, 799, 3, 2, 1, 1, "f"), ("wav2vec", 512, 512, 199, 3, 2, 1, 1, "q"),
    ("wav2vec", 512, 512, 99, 2, 2, 1, 1, ""),
    ("wav2vec_position", 768, 768, 49, 128, 1, 1, 16, ""),
    ("hubert_position", 768, 768, 149, 128, 1, 1, 16, ""),
    ("whisper_tiny", 80, 384, 3000, 3, 1, 1, 1, "q"),
    ("whisper_tiny", 384, 384, 3000, 3, 2, 1, 1, ""),
    ("whisper_base", 80, 512, 3000, 3, 1, 1, 1, "f"),
    ("whisper_base", 512, 512, 3000, 3, 2, 1, 1, ""),
    ("whisper_small", 768, 768, 1500, 3, 2, 1, 1, ""), ("m5", 1, 128, 8000, 80, 4, 1, 1, "8"),
    ("m5", 128, 128, 500, 3, 1, 1, 1, "q"), ("sincnet", 1, 80, 3200, 251, 1, 1, 1, ""),
    ("jasper", 256, 256, 400, 11, 1, 1, 1, ""), ("quartznet", 256, 256, 800, 1, 1, 1, 1, "8 q"),
    ("quartznet", 256, 512, 400, 1, 1, 1, 1, "f"), ("tacotron", 512, 512, 200, 5, 1, 1, 1, "f 8"),
    ("tacotron_post", 80, 512, 400, 5, 1, 1, 1, ""), ("conformer", 256, 512, 250, 1, 1, 1, 1, ""),
    ("hifigan", 256, 256, 256, 11, 1, 5, 1, ""), ("hifigan", 128, 128, 2048, 7, 1, 3, 1, ""),
    ("hifigan", 32, 32, 8192, 3, 1, 1, 1, ""), ("hifigan", 32, 1, 8192, 7, 1, 1, 1, ""),
    ("demucs", 2, 64, 16384, 8, 4, 1, 1, ""), ("demucs", 64, 128, 4096, 8, 4, 1, 1, ""),
    ("encodec", 32, 64, 8000, 4, 2, 1, 1, ""), ("ecg", 12, 64, 4096, 17, 1, 1, 1, ""),
    ("pointnet", 64, 128, 1024, 1, 1, 1, 1, "8 q"), ("pointnet", 128, 1024, 1024, 1, 1, 1, 1, ""),
    ("text_cnn", 300, 100, 64, 3, 1, 1, 1, "8"), ("text_cnn", 300, 100, 64, 5, 1, 1, 1, ""),
):
    _add("conv-1d", _name, _in, _out, (_steps,), _window, _more, stride=_stride, dilation=_dilation,
         groups=_groups, padding=None if _stride == 1 else 0)
for _name, _channels, _steps, _window, _more in (
    ("conformer", 256, 250, 31, "8 f"), ("quartznet", 256, 800, 33, "q"),
    ("quartznet", 512, 400, 75, ""),
    ("mamba", 1536, 128, 4, "8"), ("squeezeformer", 144, 500, 31, ""),
):
    _add("conv-1d", _name, _channels, _channels, (_steps,), _window, _more, groups=_channels,
         after="SiLU")
for _dilation in (1, 2, 4, 16, 64, 256, 512):
    _add("conv-1d-dilated", "wavenet", 64, 128, (4096,), 2, "f" if _dilation == 16 else "",
         dilation=_dilation, after="")
for _name, _channels, _steps, _window, _dilation, _more in (
    ("tcn", 64, 1024, 3, 8, "8 q"), ("tcn", 150, 512, 7, 4, ""),
    ("convtasnet", 512, 1000, 3, 32, ""),
    ("parallel_wavegan", 64, 4096, 3, 128, ""), ("bytenet", 256, 512, 3, 16, "f"),
    ("genome", 32, 5000, 11, 10, ""), ("melgan", 128, 2048, 3, 9, "q"),
):
    _add("conv-1d-dilated", _name, _channels, _channels, (_steps,), _window, _more,
         dilation=_dilation)

# ---- volumes ----

for _name, _in, _out, _image, _window3, _stride3, _groups, _more in (
    ("c3d", 3, 64, (8, 56, 56), 3, 1, 1, "f"), ("c3d", 64, 128, (8, 28, 28), 3, 1, 1, ""),
    ("c3d", 256, 256, (4, 14, 14), 3, 1, 1, "f"), ("c3d", 512, 512, (2, 7, 7), 3, 1, 1, "q"),
    ("r3d18", 3, 64, (8, 112, 112), (3, 7, 7), (1, 2, 2), 1, ""),
    ("r3d18", 64, 64, (8, 28, 28), 3, 1, 1, "q"), ("r3d18", 128, 128, (4, 28, 28), 3, 1, 1, ""),
    ("r3d18", 128, 256, (4, 28, 28), 3, 2, 1, ""), ("r3d18", 256, 256, (2, 14, 14), 3, 1, 1, ""),
    ("r2plus1d", 64, 144, (8, 56, 56), (1, 3, 3), 1, 1, ""),
    ("r2plus1d", 144, 64, (8, 56, 56), (3, 1, 1), 1, 1, ""),
    ("r2plus1d", 230, 128, (4, 28, 28), (3, 1, 1), 1, 1, "f"),
    ("slowfast_fast", 3, 8, (16, 112, 112), (5, 7, 7), (1, 2, 2), 1, ""),
    ("slowfast_fast", 8, 8, (32, 56, 56), (1, 3, 3), 1, 1, ""),
    ("slowfast_fast", 32, 8, (32, 56, 56), (3, 1, 1), 1, 1, ""),
    ("slowfast_slow", 64, 64, (4, 56, 56), (1, 3, 3), 1, 1, ""),
    ("slowfast_slow", 256, 256, (4, 14, 14), (1, 3, 3), 1, 1, ""),
    ("slowfast_slow", 512, 256, (4, 14, 14), (3, 1, 1), 1, 1, "q"),
    ("slowfast_lateral", 32, 64, (32, 28, 28), (5, 1, 1), (8, 1, 1), 1, ""),
    ("x3d", 54, 54, (4, 56, 56), 3, 1, 54, ""), ("x3d", 216, 216, (4, 14, 14), 3, 1, 216, "8"),
    ("x3d", 24, 54, (4, 56, 56), 1, 1, 1, ""),
    ("x3d", 3, 24, (4, 112, 112), (1, 3, 3), (1, 2, 2), 1, ""),
    ("unet3d", 1, 32, (32, 32, 32), 3, 1, 1, ""), ("unet3d", 32, 64, (32, 32, 32), 3, 1, 1, ""),
    ("unet3d", 128, 128, (8, 8, 8), 3, 1, 1, "f"), ("vnet", 16, 16, (32, 32, 32), 5, 1, 1, ""),
    ("nnunet", 32, 64, (32, 32, 32), 3, 2, 1, ""), ("i3d", 192, 64, (8, 28, 28), 1, 1, 1, ""),
    ("voxelnet", 64, 64, (10, 40, 36), 3, (2, 1, 1), 1, ""),
    ("resnext3d", 128, 128, (4, 28, 28), 3, 1, 32, ""),
):
    _add("conv-3d", _name, _in, _out, _image, _window3, _more, stride=_stride3, groups=_groups)

# ---- transposed ----

for _name, _in, _out, _place, _window, _stride, _padding, _more in (
    ("unet", 1024, 512, (16, 16), 2, 2, 0, "f"), ("unet", 512, 256, (32, 32), 2, 2, 0, ""),
    ("unet", 256, 128, (64, 64), 2, 2, 0, ""), ("unet", 128, 64, (128, 128), 2, 2, 0, ""),
    ("dcgan", 100, 512, (1, 1), 4, 1, 0, "8"), ("dcgan", 512, 256, (4, 4), 4, 2, 1, "8 f"),
    ("dcgan", 256, 128, (8, 8), 4, 2, 1, "8"), ("dcgan", 128, 64, (16, 16), 4, 2, 1, ""),
    ("dcgan", 64, 3, (32, 32), 4, 2, 1, "f"), ("cyclegan", 128, 64, (64, 64), 3, 2, 1, ""),
    ("pose", 512, 256, (8, 6), 4, 2, 1, ""), ("pose", 256, 256, (16, 12), 4, 2, 1, ""),
    ("mask_rcnn", 256, 256, (14, 14), 2, 2, 0, "8"), ("fcn", 21, 21, (16, 16), 4, 2, 1, ""),
    ("fcn", 21, 21, (8, 8), 16, 8, 4, ""), ("fsrcnn", 56, 1, (64, 64), 9, 3, 4, ""),
    ("hifigan", 512, 256, (32,), 16, 8, 4, "f"), ("hifigan", 256, 128, (256,), 16, 8, 4, ""),
    ("hifigan", 128, 64, (2048,), 4, 2, 1, ""), ("encodec", 64, 32, (2000,), 8, 4, 2, ""),
    ("unet3d", 256, 128, (8, 8, 8), 2, 2, 0, ""), ("unet3d", 64, 32, (16, 16, 16), 2, 2, 0, ""),
    ("vae", 256, 128, (16, 16), 3, 2, 1, "8"), ("bilinear", 32, 32, (32, 32), 4, 2, 1, ""),
):
    _add("conv-transposed", _name, _in, _out, _place, _window, _more, stride=_stride,
         padding=_padding,
         transposed=True, groups=32 if _name == "bilinear" else 1)
