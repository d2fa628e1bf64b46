"""sterna bench: how long a model takes, beside ONNX Runtime where it is installed."""

import argparse
import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna.cli.commands import COMMANDS
from sterna.cli.failures import UsageError
from sterna.cli.inputs import add_inputs, expect_inputs, read_inputs
from sterna.cli.models import add_model, add_threads, open_model, parse_count
from sterna.cli.output import show
from sterna.cli.pictures import bars
from sterna.model import CompiledModel
from sterna.model.bench import (
    Contestant,
    Timing,
    differences,
    largest,
    onnxruntime_runner,
    time_in_turns,
)
from sterna.runtime import num_threads
from sterna.support.errors import MissingPackageError
from sterna.support.table import lay_out

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

OURS, PEER = "sterna", "onnxruntime"


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "bench", help=COMMANDS["bench"],
        description="Time a model from arrays to arrays, on random numbers unless inputs are "
        "given. Engines take turns, so that what else the machine does hits them alike.",
    )
    add_model(parser)
    add_threads(parser)
    add_inputs(parser)
    parser.add_argument("--turns", type=parse_count, default=15, help="15 if not given")
    parser.add_argument(
        "--turn-ms", type=parse_count, default=100, help="how long a turn is; 100 if not given"
    )
    parser.add_argument(
        "--beside", metavar="MODEL.onnx",
        help="the model for ONNX Runtime; MODEL itself if it is an .onnx",
    )
    parser.add_argument("--alone", action="store_true", help="leave ONNX Runtime out")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Time the engines and show the ratio."""
    if options.alone and options.beside:
        raise UsageError("--alone and --beside do not go together")
    if options.beside:
        _expect_peer_model(Path(options.beside))
    expect_inputs(options)
    model = open_model(options)
    inputs = read_inputs(options, model.inputs, fill=True)
    ours = list(model.run(inputs).values())
    contestants: dict[str, Contestant] = {OURS: lambda: model.run(inputs)}
    agreement = {}
    path = _peer_model(options)
    note = "" if options.alone or path is not None else _why_alone(options)
    if path is not None:
        try:
            run_peer = onnxruntime_runner(path, inputs, num_threads())
            theirs = run_peer()
        except Exception as error:  # whatever it is: it is the peer's, and not about our times
            if options.beside:
                raise ValueError(f"ONNX Runtime cannot run '{path}': {error}") from error
            note = f"ONNX Runtime cannot run this model: {error}"
        else:
            agreement = {"largest_difference": largest(differences(ours, theirs)),
                         "largest_number": largest(theirs)}
            contestants[PEER] = run_peer
    times = time_in_turns(contestants, options.turns, options.turn_ms * 1e-3)
    data = {**_data(model, times), **agreement}
    if note:
        data["note"] = note
    show(options, data, lambda: _text(data))
    return 0


def _expect_peer_model(path: Path) -> None:
    """Refuse, before long work begins, what ONNX Runtime could not read."""
    if path.suffix != ".onnx":
        raise UsageError(f"--beside '{path}': ONNX Runtime reads .onnx files")
    if importlib.util.find_spec("onnxruntime") is None:
        raise MissingPackageError("onnxruntime", "--beside")
    path.stat()


def _peer_model(options: argparse.Namespace) -> Path | None:
    if options.alone:
        return None
    path = Path(options.beside or options.model)
    installed = importlib.util.find_spec("onnxruntime") is not None
    return path if installed and path.suffix == ".onnx" else None


def _why_alone(options: argparse.Namespace) -> str:
    if Path(options.model).suffix == ".onnx":
        return "ONNX Runtime is not installed; it would run beside: pip install onnxruntime"
    return "ONNX Runtime does not read this file; --beside MODEL.onnx gives it the model"


def _data(model: CompiledModel, times: dict[str, Timing]) -> dict[str, Any]:
    data: dict[str, Any] = {
        "inputs": [str(spec) for spec in model.inputs],
        "threads": num_threads(),
        "engines": {
            name: {"median": t.median, "min": t.min, "turns": list(t.turns)}
            for name, t in times.items()
        },
    }
    if PEER in times:
        data["ratio"] = {
            "median": times[PEER].median / times[OURS].median,
            "min": times[PEER].min / times[OURS].min,
        }
    return data


def _text(data: dict[str, Any]) -> str:
    engines = data["engines"]
    table = lay_out([
        ("Engine", list(engines)),
        ("Median (ms)", [f"{row['median'] * 1e3:.4g}" for row in engines.values()]),
        ("Min (ms)", [f"{row['min'] * 1e3:.4g}" for row in engines.values()]),
        ("", bars([row["median"] for row in engines.values()])),
    ])
    lines = [f"{', '.join(data['inputs'])}, threads: {data['threads']}", "", table]
    if "ratio" in data:
        ratio = data["ratio"]
        lines += ["", f"{PEER} takes {ratio['median']:.2f} x as long by the median, "
                  f"{ratio['min']:.2f} x by the minimum",
                  f"the results differ by {data['largest_difference']:.1e} at most; the largest "
                  f"number is {data['largest_number']:.3g}"]
    return "\n".join([*lines, *(["", data["note"]] if "note" in data else [])])
