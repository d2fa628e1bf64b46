"""sterna quantize: a float ONNX model becomes one of 8-bit integers."""

import argparse
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from sterna.cli.commands import COMMANDS
from sterna.cli.failures import UsageError
from sterna.cli.inputs import add_pictures, parse_range
from sterna.cli.models import expect_file, parse_count, parse_shape
from sterna.cli.output import add_json, file_size, progress, show, tell
from sterna.cli.sample_folder import SampleFolder
from sterna.model.arguments import TensorSpec
from sterna.quantization.quantize_model import ACTIVATIONS, QuantizedModel, quantize
from sterna.quantization.samples import input_specs
from sterna.relay.random_inputs import random_inputs
from sterna.support.table import show_bytes, show_seconds
from sterna.support.write_aside import write_aside

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "quantize", help=COMMANDS["quantize"],
        description="Quantise a float ONNX model by samples of its inputs, and write it in QDQ "
        "form, which Sterna and other engines compute in integers.",
    )
    parser.add_argument("model", metavar="MODEL", help="a float model (.onnx)")
    parser.add_argument("-o", "--output", required=True, metavar="FILE.onnx", help="what to write")
    given = parser.add_mutually_exclusive_group(required=True)
    given.add_argument(
        "--data", metavar="FOLDER",
        help="samples of what the model will see, a hundred or so: .npy files, .npz files with an "
        "array for each input, or pictures",
    )
    given.add_argument(
        "--random", type=parse_count, metavar="N",
        help="N samples of random numbers, for trying; ranges chosen by them do not fit real data",
    )
    parser.add_argument("--seed", type=int, default=0, help="for random numbers; 0 if not given")
    parser.add_argument(
        "--integers", type=parse_range, default=(0, 2), metavar="FROM:BELOW",
        help="which integers random inputs are drawn from; 0:2 if not given",
    )
    parser.add_argument(
        "--shape", action="append", type=parse_shape, metavar="NAME:1,3,224,224", default=[],
        help="the shape of an input that leaves dimensions open, for pictures and random numbers",
    )
    parser.add_argument(
        "--keep-accuracy", type=parse_fraction, metavar="1%",
        help="leave the layers in float that hurt most, until at most this fraction of the samples "
        "has another top class, or the outputs are off by at most this fraction",
    )
    parser.add_argument(
        "--keep-float", action="append", default=[], metavar="NODE",
        help="leave this node in float; may be repeated",
    )
    parser.add_argument(
        "--activations", choices=ACTIVATIONS, default="uint8", help="uint8 if not given"
    )
    parser.add_argument(
        "--plot", metavar="FILE.svg", help="draw the error of each layer into this file"
    )
    add_pictures(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def parse_fraction(text: str) -> float:
    """1% or 0.01"""
    number, percent = text.removesuffix("%"), text.endswith("%")
    try:
        fraction = float(number) / (100 if percent else 1)
    except ValueError:
        fraction = -1.0
    if not 0 <= fraction < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no fraction, such as 1%")
    return fraction


def run(options: argparse.Namespace) -> int:
    """Quantise the model, write it and tell what it cost."""
    output = Path(options.output)
    if output.suffix != ".onnx":
        raise UsageError(f"-o '{output}': the name must end in .onnx")
    if options.plot and Path(options.plot).suffix != ".svg":
        raise UsageError(f"--plot '{options.plot}': the name must end in .svg")
    expect_file("-o", options.output)
    expect_file("--plot", options.plot)
    start = time.perf_counter()
    with progress(options):
        samples = _samples(options)
        made = quantize(
            options.model, samples, keep_accuracy=options.keep_accuracy,
            keep_float=options.keep_float, activations=options.activations,
            sample_names=samples.names if isinstance(samples, SampleFolder) else (),
        )
    write_aside(output, lambda path: onnx.save(made.model, path))
    if options.plot:
        write_aside(Path(options.plot), lambda path: _write(path, made.report.draw()))
        tell(f"wrote {options.plot}")
    seconds = time.perf_counter() - start
    data = {"output": str(output), "bytes": file_size(output), "seconds": seconds,
            **made.report.to_dict()}
    show(options, data, lambda: _text(options, made, seconds))
    return 0


def _samples(options: argparse.Namespace) -> Iterable[dict[str, Any]]:
    specs = [TensorSpec(spec.name, spec.shape, spec.dtype)
             for spec in input_specs(options.model, dict(options.shape))]
    if options.data is not None:
        return SampleFolder(options.data, specs, options)
    return [random_inputs(specs, options.seed + index, options.integers)
            for index in range(options.random)]


def _write(path: Path, text: str) -> None:
    path.write_text(text, "utf-8")


def _text(options: argparse.Namespace, made: QuantizedModel, seconds: float) -> str:
    sizes = " of ".join(show_bytes(file_size(path)) for path in (options.output, options.model))
    return "\n".join([
        made.report.table(), "", made.report.summary(),
        f"wrote {options.output}: {sizes}, in {show_seconds(seconds)}",
    ])
