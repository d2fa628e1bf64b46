"""sterna compile: from a model to a file that runs without the compiler."""

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna.cli.commands import COMMANDS
from sterna.cli.failures import UnsupportedError, UsageError, shape_options
from sterna.cli.models import add_model, compile_model, expect_file, parse_target
from sterna.cli.output import file_size, progress, show
from sterna.driver.export import expect_form
from sterna.driver.portable import expect_library
from sterna.frontend.open_shapes import OpenShapeError
from sterna.model import CompiledModel, OpenModel, export_portable
from sterna.model.import_model import COMPILED
from sterna.model.open_model import OPEN_FORMS
from sterna.support.keys import read_secret_key
from sterna.support.progress import stage
from sterna.support.table import show_bytes, show_seconds
from sterna.support.toolchain import named_compiler

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "compile", help=COMMANDS["compile"],
        description="Compile a model to one file that holds code, graph and weights.",
    )
    add_model(parser, compiled_too=False)
    parser.add_argument(
        "-o", "--output", required=True, metavar="FILE",
        help="what to write; its name ends in .so (a shared library), .tar, .o, .a, .c (of the "
        "target c) or .wasm (of wasm32-wasi)",
    )
    parser.add_argument(
        "--portable", action="store_true",
        help="a shared library for every processor of the target's architecture: it holds code for "
        "several levels, such as AVX2 and AVX-512, and loading picks one; its weights are in it "
        "once for each",
    )
    parser.add_argument("--cc", help="the C compiler that links the file")
    parser.add_argument(
        "--sign", metavar="KEY", help="sign the file with this secret key, as `sterna key` makes it"
    )
    parser.add_argument(
        "--report", action="store_true", help="show what was fused and how it was scheduled"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compile the model, write the file and tell about it."""
    output = Path(options.output)
    _expect_writable(options, output)
    signing = {} if options.sign is None else {"sign": options.sign}
    start = time.perf_counter()
    if options.portable:
        return _run_portable(options, output, signing, start)
    model = _compiled(options, output)
    if isinstance(model, OpenModel) and not model.is_symbolic:
        if model.takes_any_shape:
            raise model.open_shapes()
        raise UnsupportedError(model.why_not_symbolic)
    with progress(options), stage("write the file"):
        model.export(output, cc=options.cc, **signing)
    seconds = time.perf_counter() - start
    if isinstance(model, OpenModel):
        _show_open(options, output, model, seconds)
        return 0
    report = model.report()
    written = {"seconds": seconds, "output": str(output), "bytes": file_size(output)}
    data = {**written, **report.to_dict()}
    show(options, data, lambda: _text(output, model, seconds, options.report))
    return 0


def _expect_writable(options: argparse.Namespace, output: Path) -> None:
    """Refuse, before long work begins, what would be refused at its end."""
    if output.suffix not in COMPILED:
        raise UsageError(f"-o '{output}': the name must end in {', '.join(sorted(COMPILED))}")
    expect_file("-o", options.output)
    target = parse_target(options.target)
    if output.suffix == ".c" and "c" not in target.kind.code_generator().forms:
        raise UsageError(f"-o '{output}' is C, which the target c gives: --target c")
    if options.sign is not None:
        read_secret_key(options.sign)
    if options.cc is not None:
        named_compiler(options.cc)
    if options.portable:
        expect_library(output)
    expect_form(output, target, options.cc, options.sign is not None)


def _compiled(options: argparse.Namespace, output: Path) -> CompiledModel:
    """The model; one with open shapes is refused before it is compiled if the file has no room."""
    if output.suffix in OPEN_FORMS:
        return compile_model(options)
    try:
        return compile_model(options, closed=True)
    except OpenShapeError as error:
        raise ValueError(
            f"'{output}': a model with open shapes is written as {' or '.join(OPEN_FORMS)}; for "
            f"other files say the shapes, such as {shape_options(error)}"
        ) from None


def _run_portable(
    options: argparse.Namespace, output: Path, signing: dict[str, Any], start: float
) -> int:
    """Compile the model for each level of the architecture into one file."""
    if options.tuned is not None or options.report:
        given = "--tuned" if options.tuned is not None else "--report"
        raise UsageError(f"{given} is about one processor; leave it out with --portable")
    with progress(options):
        levels = export_portable(
            options.model, output, parse_target(options.target), dict(options.shape),
            3 if options.opt_level is None else options.opt_level,
            precision=options.precision or "float32", size=options.size or "fast",
            fixed=dict(options.fix), cc=options.cc, **signing,
        )
    seconds, size = time.perf_counter() - start, file_size(output)
    data = {"seconds": seconds, "output": str(output), "bytes": size, "levels": levels}
    show(options, data, lambda: "\n".join([
        f"{output}: {show_bytes(size)}, with code for {', '.join(levels)}; loading picks one",
        f"compiled and written in {show_seconds(seconds)}",
    ]))
    return 0


def _show_open(
    options: argparse.Namespace, output: Path, model: OpenModel, seconds: float
) -> None:
    """What is told of a file that takes any shapes."""
    size, inputs = file_size(output), [str(each) for each in model.inputs]
    data = {
        "seconds": seconds, "output": str(output), "bytes": size, "inputs": inputs,
        "outputs": list(model.outputs), "ranges": model.ranges,
    }
    show(options, data, lambda: "\n".join([
        f"{output}: {show_bytes(size)}, for any shapes of {', '.join(inputs)}",
        f"compiled and written in {show_seconds(seconds)}",
    ]))


def _text(output: Path, model: CompiledModel, seconds: float, whole: bool) -> str:
    report = model.report()
    if whole:
        return f"{report}\n{output}: {show_bytes(file_size(output))}"
    return "\n".join([
        f"{output}: {show_bytes(file_size(output))}, {report.counts} for {report.target}",
        f"needs {show_bytes(report.memory.total)} of memory; compiled and written in "
        f"{show_seconds(seconds)}",
        *report.growth,
    ])
