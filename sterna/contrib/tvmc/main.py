"""The classic command line, tvmc: compile, run and tune with the options that users know.

    python -m tvm.driver.tvmc compile --target llvm --output model.tar model.onnx
    python -m tvm.driver.tvmc run --inputs in.npz --output out.npz --print-time model.tar

`sterna` is the command of this house; this one is for scripts that are there already.
"""

import argparse
import sys
import zipfile
from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.contrib.tvmc.autotuner import tune_model
from sterna.contrib.tvmc.compiler import FORMS, LAYOUT_OPERATORS, PACKAGE, compile_model
from sterna.contrib.tvmc.frontends import load_model
from sterna.contrib.tvmc.micro import add_micro, add_project_option
from sterna.contrib.tvmc.model import TVMCException, TVMCPackage, TVMCResult
from sterna.contrib.tvmc.runner import DEVICES, FILLS, MICRO, run_module
from sterna.contrib.tvmc.shapes import parse_shapes
from sterna.relay.backend import Executor, Runtime
from sterna.target import Target
from sterna.target.kind import find_kind
from sterna.version import __version__


def make_parser() -> argparse.ArgumentParser:
    """The options, by their classic names."""
    parser = argparse.ArgumentParser(prog="tvmc", description="Compile, run and tune models.")
    parser.add_argument("-v", "--verbose", action="count", default=0, help="show tracebacks")
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(title="commands", dest="command", required=True)
    _add_compile(commands.add_parser("compile", help="a model to a package"))
    _add_run(commands.add_parser("run", help="run a package"))
    _add_tune(commands.add_parser("tune", help="search faster kernels for a model"))
    add_micro(commands.add_parser("micro", help="projects for microcontrollers"))
    return parser


def _add_model(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("FILE", help="the model")
    parser.add_argument("--model-format", help="found by its content if not given")
    parser.add_argument("--input-shapes", type=parse_shapes, metavar='"x:[1,3,224,224] y:[1]"')
    parser.add_argument("--target", default="llvm", help="such as llvm or 'cuda -arch=sm_80'")
    parser.add_argument("--target-host", help="the target that drives a GPU")
    parser.add_argument("--tuning-records", metavar="PATH")
    for kind in map(find_kind, Target.list_kinds()):
        for option in kind.options:
            parser.add_argument(
                f"--target-{kind}-{option.name}", dest=f"target {kind} {option.name}",
                help=argparse.SUPPRESS,
            )


def _add_compile(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(function=_compile)
    _add_model(parser)
    parser.add_argument("-o", "--output", default=PACKAGE, help=f"{PACKAGE} if not given")
    parser.add_argument("-f", "--output-format", choices=FORMS, default="so")
    parser.add_argument("-O", "--opt-level", type=int, choices=range(5), default=3)
    parser.add_argument("--cross-compiler", help="the compiler that links for another machine")
    parser.add_argument("--cross-compiler-options", help="its options, in one text")
    parser.add_argument("--desired-layout", choices=("NCHW", "NHWC"))
    parser.add_argument("--desired-layout-ops", nargs="+", metavar="OPERATOR",
                        help=f"{' '.join(LAYOUT_OPERATORS)} if not given")
    parser.add_argument("--dump-code", metavar="FORM,...", help="relay, tir, ll, asm, c")
    parser.add_argument("--pass-config", action="append", metavar="NAME=VALUE")
    parser.add_argument("--disabled-pass", help="names, with commas between them")
    parser.add_argument("--module-name", default="default")
    parser.add_argument("--mixed-precision", action="store_true")
    parser.add_argument("--mixed-precision-calculation-type", default="float16")
    for what, choice in (("executor", Executor), ("runtime", Runtime)):
        parser.add_argument(f"--{what}", choices=choice.list_registered())
        for name in choice.list_registered():
            for option in choice.KNOWN[name]:
                parser.add_argument(f"--{what}-{name}-{option}",
                                    dest=f"{what} {name} {option}", help=argparse.SUPPRESS)


def _add_place(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rpc-tracker", metavar="HOST:PORT", help="a tracker, or a server")
    parser.add_argument("--rpc-key", help="the device that the tracker lends")


def _add_run(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(function=_run)
    _add_place(parser)
    add_project_option(parser)
    parser.add_argument("PATH", help=f"the package; the project's folder with --device {MICRO}")
    parser.add_argument("--device", choices=(*DEVICES, MICRO), default="cpu")
    parser.add_argument("--fill-mode", choices=FILLS, default="random")
    parser.add_argument("-i", "--inputs", metavar="FILE.npz")
    parser.add_argument("-o", "--outputs", metavar="FILE.npz")
    parser.add_argument("--print-time", action="store_true")
    parser.add_argument("--print-top", type=int, metavar="N", help="the N largest of each output")
    parser.add_argument("--profile", action="store_true", help="what each kernel takes")
    parser.add_argument("--end-to-end", action="store_true")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--number", type=int, default=1)


def _add_tune(parser: argparse.ArgumentParser) -> None:
    parser.set_defaults(function=_tune)
    _add_model(parser)
    _add_place(parser)
    parser.add_argument("-o", "--output", required=True, help="the file of what is found")
    parser.add_argument("--trials", type=int, default=64, help="for each layer; 64 if not given")
    ignored = parser.add_argument_group("without a meaning: the search decides these by itself")
    for name in ("early-stopping", "min-repeat-ms", "number", "parallel", "repeat", "timeout"):
        ignored.add_argument(f"--{name}", type=int, help=argparse.SUPPRESS)
    ignored.add_argument("--tuner", help=argparse.SUPPRESS)
    ignored.add_argument("--enable-autoscheduler", action="store_true", help=argparse.SUPPRESS)


def _of_target(options: argparse.Namespace) -> dict[str, dict[str, str]]:
    """What --target-<kind>-<name> say."""
    made: dict[str, dict[str, str]] = {}
    for name, value in vars(options).items():
        what, *words = name.split(" ")
        if what == "target" and words and value is not None:
            made.setdefault(words[0], {})[words[1]] = value
    return made


def _choice(options: argparse.Namespace, what: str, kind: Any) -> Any:
    """The executor or the runtime, with its options."""
    chosen = getattr(options, what)
    given: dict[str, Any] = {}
    for full, value in vars(options).items():
        first, *words = full.split(" ")
        if first != what or not words or value is None:
            continue
        name, option = words
        if name != chosen:
            raise TVMCException(f"--{what}-{name}-{option} is for --{what} {name}")
        given[option] = _typed(f"--{what}-{name}-{option}", kind.KNOWN[name][option][0], value)
    return None if chosen is None else kind(chosen, given)


def _typed(option: str, kind: type, text: str) -> Any:
    truths = {"1": True, "true": True, "0": False, "false": False}
    try:
        return truths[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise TVMCException(f"{option} {text}: it is {kind.__name__}") from None


def _compile(options: argparse.Namespace) -> None:
    model = load_model(options.FILE, options.model_format, options.input_shapes)
    compile_model(
        model, options.target, options.opt_level, _choice(options, "executor", Executor),
        _choice(options, "runtime", Runtime), options.tuning_records, options.output,
        options.cross_compiler, options.cross_compiler_options, options.output_format,
        options.dump_code, options.target_host, options.desired_layout,
        options.desired_layout_ops, options.disabled_pass, options.pass_config,
        _of_target(options), options.module_name, options.mixed_precision,
        mixed_precision_calculation_type=options.mixed_precision_calculation_type,
    )


def _place(options: argparse.Namespace) -> dict[str, Any]:
    """Where a model runs that does not run here."""
    if options.rpc_tracker is None:
        if options.rpc_key is not None:
            raise TVMCException("--rpc-key is lent by a tracker; give --rpc-tracker HOST:PORT")
        return {}
    host, _, port = options.rpc_tracker.partition(":")
    if port and not port.isdecimal():
        raise TVMCException(f"--rpc-tracker {options.rpc_tracker}: it is HOST:PORT")
    return {"hostname": host, "port": int(port or 9090), "rpc_key": options.rpc_key}


def _run(options: argparse.Namespace) -> None:
    inputs = {}
    if options.inputs is not None:
        inputs = _arrays(options.inputs)
    on_board = options.device == MICRO
    result = run_module(
        None if on_board else TVMCPackage(options.PATH), options.device, inputs=inputs,
        fill_mode=options.fill_mode, repeat=options.repeat, number=options.number,
        end_to_end=options.end_to_end, profile=options.profile,
        project_dir=options.PATH if on_board else None, project_options=options.project_option,
        **_place(options),
    )
    if options.print_time:
        print(result.format_times())
    if options.print_top:
        print(_top(result, options.print_top))
    if options.outputs is not None:
        result.save(options.outputs)


def _arrays(path: str) -> dict[str, Any]:
    """The inputs in a file, by name."""
    try:
        file = np.load(path)
        if isinstance(file, np.lib.npyio.NpzFile):
            with file:
                return dict(file)
    except (ValueError, EOFError, zipfile.BadZipFile):
        pass
    raise TVMCException(
        f"--inputs {path}: it is no .npz file, which names its arrays by the model's inputs: "
        "np.savez(path, name=array)"
    )


def _top(result: TVMCResult, count: int) -> str:
    """The places and values of each output's largest elements."""
    rows = []
    for value in result.outputs.values():
        flat = np.ravel(value)
        places = np.argsort(-flat.astype("float64"), kind="stable")[:count]
        rows.append(np.array2string(np.array([places, flat[places]])))
    return "\n".join(rows)


def _tune(options: argparse.Namespace) -> None:
    model = load_model(options.FILE, options.model_format, options.input_shapes)
    tune_model(
        model, options.target, options.output, options.tuning_records, options.trials,
        additional_target_options=_of_target(options), target_host=options.target_host,
        **_place(options),
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; the result is the process's exit status."""
    options = make_parser().parse_args(arguments)
    try:
        options.function(options)
    except Exception as error:
        if options.verbose:
            raise
        print(f"Error: {error or type(error).__name__}", file=sys.stderr)
        return 1
    return 0
