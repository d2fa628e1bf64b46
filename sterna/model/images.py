"""Pictures as a model's input: opened, brought to size, normalised. Needs the package Pillow."""

import os
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.model.arguments import InputError, TensorSpec
from sterna.relay.arrays import Array, numpy_dtype
from sterna.support.dtype import DataType

SUFFIXES = frozenset({".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff"})

# What a picture is opened as, by its number of channels.
MODES = {1: "L", 3: "RGB", 4: "RGBA"}

# What Pillow raises where a file is cut short, or holds what it should not.
BROKEN = (OSError, EOFError, SyntaxError, ValueError, TypeError, LookupError, OverflowError,
          struct.error)

IMAGENET_MEAN, IMAGENET_STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True, slots=True)
class ImageOptions:
    """How a picture becomes numbers: cut to size, divided by scale, less mean, divided by std."""

    resize: int | None = None
    """The length of the shorter side before the middle is cut out; None: just so that it fits."""
    stretch: bool = False
    """Bring it to size whatever that does to its proportions, and cut nothing off."""
    scale: float | None = None
    """None: 255 where the model takes floats, 1 where it takes integers."""
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    layout: str | None = None
    """NCHW or NHWC; None: as the input's shape says."""
    bgr: bool = False


def image_array(path: str | os.PathLike[str], spec: TensorSpec, options: ImageOptions) -> Array:
    """A picture as an input of one image, or of one image without a batch."""
    from PIL import Image  # missing packages are told before inputs that do not fit

    layout = _layout(spec, options)
    sizes = dict(zip(layout, spec.shape, strict=True))
    if sizes.get("N", 1) != 1:
        raise InputError(f"input '{spec.name}' takes {spec.type}: {sizes['N']} pictures, not one")
    picture = _opened(path, MODES[sizes["C"]], Image)
    cut = _cut(picture, sizes["W"], sizes["H"], options)
    numbers = np.asarray(cut, "float32").reshape(sizes["H"], sizes["W"], sizes["C"])
    if options.bgr:
        numbers = numbers[..., ::-1]
    numbers = _normalised(numbers, spec, options)
    order = ["HWC".index(axis) for axis in layout if axis != "N"]
    made: Array = np.ascontiguousarray(numbers.transpose(order)).reshape(spec.shape)
    return made


def _opened(path: str | os.PathLike[str], mode: str, pillow: Any) -> Any:
    """A picture, decoded as a whole."""
    from PIL import UnidentifiedImageError

    with open(path, "rb") as file:
        try:
            with pillow.open(file) as opened:
                return opened.convert(mode)
        except UnidentifiedImageError:
            raise ValueError(f"'{os.fspath(path)}' is no picture that Pillow knows") from None
        except (*BROKEN, pillow.DecompressionBombError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise ValueError(f"'{os.fspath(path)}' is a broken picture: {reason}") from None


def _layout(spec: TensorSpec, options: ImageOptions) -> str:
    """The input's axes, from NCHW or NHWC, and without N if it has three."""
    rank = len(spec.shape)
    likely = [
        name[-rank:]
        for name in ([options.layout] if options.layout else ["NCHW", "NHWC"])
        if rank in (3, 4) and spec.shape[name[-rank:].index("C")] in MODES
    ]
    if not likely:
        wanted = options.layout or "NCHW or NHWC"
        raise InputError(
            f"input '{spec.name}' takes {spec.type}, which is no picture of 1, 3 or 4 channels in "
            f"{wanted}"
        )
    by_channels = {spec.shape[layout.index("C")]: layout for layout in reversed(likely)}
    return next(by_channels[channels] for channels in (3, 1, 4) if channels in by_channels)


def _cut(picture: Any, width: int, height: int, options: ImageOptions) -> Any:
    from PIL import Image

    bilinear = Image.Resampling.BILINEAR
    if options.stretch:
        return picture.resize((width, height), bilinear)
    factor = max(width / picture.width, height / picture.height)
    if options.resize is not None:
        factor = options.resize / min(picture.width, picture.height)
    size = max(1, round(picture.width * factor)), max(1, round(picture.height * factor))
    if size[0] < width or size[1] < height:
        raise ValueError(
            f"resized to {options.resize} on its shorter side the picture is {size[0]} x {size[1]} "
            f"and smaller than the {width} x {height} that the model takes"
        )
    left, top = (size[0] - width) // 2, (size[1] - height) // 2
    return picture.resize(size, bilinear).crop((left, top, left + width, top + height))


def _normalised(numbers: Array, spec: TensorSpec, options: ImageOptions) -> Array:
    is_integer = DataType(spec.dtype).kind in ("int", "uint")
    scale = options.scale if options.scale is not None else (1.0 if is_integer else 255.0)
    channels = numbers.shape[-1]
    for what, values in (("mean", options.mean), ("std", options.std)):
        if len(values) not in (1, channels):
            raise ValueError(f"{what} has {len(values)} numbers for {channels} channels")
    mean, std = np.array(options.mean, "float32"), np.array(options.std, "float32")
    made: Array = (numbers / scale - mean) / std
    return (np.rint(made) if is_integer else made).astype(numpy_dtype(spec.dtype))
