"""What commands have in common that take a model.

The compiler is loaded when there is something to compile.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from sterna import model as models
from sterna.cli.failures import UnsupportedError, UsageError
from sterna.cli.output import add_json, progress
from sterna.frontend.formats import importable_suffixes
from sterna.model.compiled_model import CompiledModel
from sterna.model.import_model import COMPILED
from sterna.model.sizes import SIZES
from sterna.runtime import set_num_threads
from sterna.target import Target
from sterna.target.here import runs_here


def add_model(parser: argparse.ArgumentParser, compiled_too: bool = True) -> None:
    """The model, and the options for compiling it."""
    kinds = model_files() + (", or a file that compile wrote" if compiled_too else "")
    parser.add_argument("model", metavar="MODEL", help=kinds)
    if compiled_too:
        parser.add_argument(
            "--trust", action="append", metavar="KEY",
            help="load a compiled file only if it is signed with the secret key of this public "
            "one; may be repeated",
        )
    add_compiling(parser)
    add_json(parser)


def model_files() -> str:
    """What files a command takes that compiles a model, for its help."""
    return f"a model ({', '.join(importable_suffixes())})"


def add_compiling(parser: argparse.ArgumentParser) -> None:
    """The options for compiling."""
    parser.add_argument(
        "--target", help='what to compile for, such as "llvm -mcpu=cortex-a72"; this machine if '
        "it is not given",
    )
    add_shapes(parser)
    parser.add_argument(
        "--tuned", metavar="FILE.db",
        help="the records that `sterna tune` wrote; those beside the model if not given",
    )
    parser.add_argument(
        "--precision", choices=("float32", "float16", "bfloat16"),
        help="the type that weights and activations are kept in; the model's own if not given",
    )
    parser.add_argument(
        "--size", choices=tuple(SIZES),
        help="small keeps weights as large as the model's, balanced lets them grow by half where "
        "that saves most time, fast, which holds if it is not given, as much as saves time",
    )


def add_shapes(parser: argparse.ArgumentParser) -> None:
    """The options for what is compiled, whatever it is for."""
    parser.add_argument(
        "--shape", action="append", type=parse_shape, metavar="NAME:1,3,224,224", default=[],
        help="the shape of an input, where the model leaves dimensions open, or by the name of a "
        "dimension its extent (batch:8) or the range in which it stays open (batch:1,64); may be "
        "repeated",
    )
    parser.add_argument(
        "--fix", action="append", type=parse_fixed, metavar="NAME=VALUE", default=[],
        help="the value of an input, which becomes a constant: a number, numbers with commas, or "
        "an .npy file; may be repeated",
    )
    parser.add_argument(
        "--opt-level", type=int, choices=range(5), metavar="0..4",
        help="how far to optimize; 3 if it is not given",
    )


def add_threads(parser: argparse.ArgumentParser) -> None:
    """How many threads to run on."""
    parser.add_argument(
        "--threads", type=parse_count, help="how many threads to use; all cores if not given"
    )


def parse_shape(text: str) -> tuple[str, tuple[int, ...]]:
    """NAME:1,3,224,224, or NAME: for a scalar; a name may have colons itself."""
    name, colon, dims = text.rpartition(":")
    try:
        shape = tuple(int(dim) for dim in dims.split(",") if dim.strip())
    except ValueError:
        shape = (-1,)
    if not colon or not name or any(dim < 0 for dim in shape):
        raise argparse.ArgumentTypeError(f"'{text}' is no NAME:1,3,224,224")
    return name, shape


def parse_fixed(text: str) -> tuple[str, Any]:
    """NAME=16000, NAME=0.5,0.25 or NAME=FILE.npy"""
    name, _, value = text.partition("=")
    try:
        if value.endswith(".npy"):
            return name, np.load(value, allow_pickle=False)
        numbers = [float(part) if set(part) & set(".eEn") else int(part)
                   for part in value.split(",")]
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no NAME=16000: {error}") from None
    return name, np.asarray(numbers if len(numbers) > 1 else numbers[0])


def expect_folder(option: str, file: str | None) -> None:
    """Refuse, before long work begins, a file that could not be written in the end."""
    if file is None:
        return
    folder = Path(file).parent
    if not folder.is_dir():
        raise UsageError(f"{option} '{file}': there is no folder '{folder}'")
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise UsageError(
            f"{option} '{file}': nothing can be written in the folder '{folder}': {error.strerror}"
        ) from None


def expect_file(option: str, file: str | None) -> None:
    """The same, of what is no folder itself."""
    expect_folder(option, file)
    if file is not None and Path(file).is_dir():
        raise UsageError(f"{option} '{file}' is a folder; name a file")


def parse_count(text: str) -> int:
    """A number of things, at least one."""
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of at least 1")
    return int(text)


def parse_target(text: str | None) -> Target:
    """A target that can be compiled for."""
    try:
        target = models.target_of(text or "native")
        target.kind.code_generator()
    except ValueError as error:
        named = f"target '{text}': " if text else ""  # without one, a setting is the reason
        raise UnsupportedError(f"{named}{error}") from None
    return target


def compile_model(options: argparse.Namespace, closed: bool = False) -> CompiledModel:
    """The model, compiled as the options say, with a bar that shows how far it is.

    closed: refuse one whose shapes are open, before it is compiled.
    """
    level = 3 if options.opt_level is None else options.opt_level
    target = parse_target(options.target)
    compile = models.compile_closed if closed else models.compile
    with progress(options):
        return compile(
            options.model, target, shapes=dict(options.shape), opt_level=level,
            precision=options.precision or "float32", tuned=options.tuned,
            size=options.size or "fast", fixed=dict(options.fix),
        )


def open_model(options: argparse.Namespace, closed: bool = False) -> CompiledModel:
    """The model, compiled for this machine or loaded, ready to run on so many threads."""
    if options.threads is not None:
        set_num_threads(options.threads)
    if Path(options.model).suffix in COMPILED:
        _expect_no_compiling(options)
        return models.load(options.model, trust=options.trust)
    if options.trust:
        raise UsageError(f"--trust is for compiled files; '{options.model}' is compiled here")
    target = parse_target(options.target)
    if not runs_here(target):
        raise UnsupportedError(
            f"target '{options.target}' is another machine than this; compile for it with "
            "`sterna compile` and run the file there"
        )
    return compile_model(options, closed)


def _expect_no_compiling(options: argparse.Namespace) -> None:
    given = [
        option
        for option, value in (("--target", options.target), ("--shape", options.shape),
                              ("--fix", options.fix),
                              ("--opt-level", options.opt_level),
                              ("--precision", options.precision), ("--tuned", options.tuned),
                              ("--size", options.size))
        if value not in (None, [])
    ]
    if given:
        raise UsageError(f"'{options.model}' is compiled already; {given[0]} has no effect on it")
