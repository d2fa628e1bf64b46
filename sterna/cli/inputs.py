"""Inputs that commands are given: files of arrays, pictures, random numbers."""

import argparse
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from sterna.cli.failures import UsageError
from sterna.frontend.open_inputs import OpenInput
from sterna.frontend.open_shapes import OPEN
from sterna.model.arguments import TensorSpec
from sterna.model.images import IMAGENET_MEAN, IMAGENET_STD, SUFFIXES, ImageOptions, image_array
from sterna.relay.random_inputs import random_inputs
from sterna.support.errors import MissingPackageError

ARRAYS = (".npy", ".npz")


def add_inputs(parser: argparse.ArgumentParser) -> None:
    """The options that say what a model is run on."""
    group = parser.add_argument_group("inputs")
    group.add_argument(
        "-i", "--input", action="append", default=[], metavar="[NAME=]FILE",
        help="an input from an .npy file or a picture, or inputs by name from an .npz file; the "
        "name may be left out where the model has one input",
    )
    group.add_argument("--seed", type=int, default=0, help="for random numbers; 0 if not given")
    group.add_argument(
        "--integers", type=parse_range, default=(0, 2), metavar="FROM:BELOW",
        help="which integers random inputs are drawn from; 0:2 if not given",
    )
    add_pictures(parser)


def add_pictures(parser: argparse.ArgumentParser) -> None:
    """The options that say how pictures become numbers."""
    group = parser.add_argument_group("pictures (with the package Pillow)")
    group.add_argument(
        "--resize", type=int, metavar="SIDE",
        help="make the shorter side so long, then cut out the middle; if not given, as large as "
        "fits the model",
    )
    group.add_argument("--stretch", action="store_true", help="bring to size, cut nothing off")
    group.add_argument("--scale", type=float, help="divide by this; by 255 if not given")
    group.add_argument("--mean", type=parse_numbers, help="subtract these, one or per channel")
    group.add_argument("--std", type=parse_numbers, help="then divide by these")
    group.add_argument(
        "--imagenet", action="store_true", help="the mean and deviation that ImageNet's models use"
    )
    group.add_argument("--layout", choices=("NCHW", "NHWC"), help="if the shape does not tell")
    group.add_argument("--bgr", action="store_true", help="channels as blue, green, red")


def parse_range(text: str) -> tuple[int, int]:
    """FROM:BELOW"""
    try:
        low, high = map(int, text.split(":"))
    except ValueError:
        low = high = 0
    if low >= high:
        raise argparse.ArgumentTypeError(f"'{text}' is no FROM:BELOW, such as 0:1000")
    return low, high


def parse_numbers(text: str) -> tuple[float, ...]:
    """0.485,0.456,0.406"""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"'{text}' is no 0.485,0.456,0.406") from None


def read_inputs(
    options: argparse.Namespace, specs: Sequence[TensorSpec | OpenInput], fill: bool
) -> dict[str, Any]:
    """The inputs by name; fill: those that no file gives are random numbers."""
    given: dict[str, Any] = {}
    for text in options.input:
        for name, value in _read(options, text, specs).items():
            if name in given:
                raise UsageError(f"input '{name}' is given twice")
            given[name] = value
    if fill:
        drawn = random_inputs(_closed(specs, given), options.seed, options.integers)
        given = {**drawn, **given}
    return given


def expect_inputs(options: argparse.Namespace) -> None:
    """Refuse, before long work begins, files of inputs that are not there or of no known form."""
    for text in options.input:
        named = text.partition("=")[2]
        path = Path(named if named and not Path(text).exists() else text)
        if path.suffix not in ARRAYS and path.suffix.lower() not in SUFFIXES:
            raise UsageError(f"--input {text}: a file is an .npy, an .npz or a picture")
        path.stat()


def _closed(specs: Sequence[TensorSpec | OpenInput], given: dict[str, Any]) -> list[TensorSpec]:
    """Inputs of known shapes: an open dimension is as in a file that is given, or 1."""
    extents: dict[str, int] = {}
    for spec in specs:
        if spec.name in given and isinstance(spec, OpenInput):
            extents.update({
                name: have for name, have in zip(spec.shape or (), given[spec.name].shape,
                                                 strict=False) if isinstance(name, str)
            })
    return [
        TensorSpec(spec.name, tuple(
            extents.get(dim, 1) if isinstance(dim, str) and dim != OPEN
            else 1 if isinstance(dim, str) else dim for dim in spec.shape or ()
        ), spec.dtype or "float32")
        for spec in specs
    ]


def _read(
    options: argparse.Namespace, text: str, specs: Sequence[TensorSpec | OpenInput]
) -> dict[str, Any]:
    name, _, file = text.partition("=")
    known = {spec.name: spec for spec in specs}
    path = Path(file if file and (name in known or not Path(text).exists()) else text)
    if path.suffix == ".npz":
        return dict(load_arrays(path))
    if str(path) == text:
        if len(specs) != 1:
            names = ", ".join(known)
            raise UsageError(f"--input {text}: say which of {names} it is, as NAME={text}")
        name = specs[0].name
    if path.suffix == ".npy":
        return {name: load_arrays(path)}
    if name not in known:
        raise UsageError(f"--input {text}: the model's inputs are {', '.join(known)}")
    (spec,) = _closed([known[name]], {})
    return {name: load_picture(path, spec, options)}


def load_arrays(path: Path) -> Any:
    """The array of an .npy file, or those of an .npz file by name."""
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise ValueError(f"'{path}' is no file of arrays: {error}") from None


def load_picture(path: Path, spec: TensorSpec, options: argparse.Namespace) -> Any:
    """A picture as an input, as the options of add_pictures say."""
    mean, std = (IMAGENET_MEAN, IMAGENET_STD) if options.imagenet else ((0.0,), (1.0,))
    how = ImageOptions(
        options.resize, options.stretch, options.scale, options.mean or mean, options.std or std,
        options.layout, options.bgr,
    )
    try:
        return image_array(path, spec, how)
    except ModuleNotFoundError as error:
        if error.name != "PIL":
            raise
        raise MissingPackageError("pillow", f"the picture '{path}'") from None
