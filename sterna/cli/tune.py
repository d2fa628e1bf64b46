"""sterna tune: search faster kernels for a model on this machine, and keep what was found."""

import argparse
import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from sterna.cli.commands import COMMANDS
from sterna.cli.failures import UnsupportedError, UsageError
from sterna.cli.inputs import add_inputs, expect_inputs, read_inputs
from sterna.cli.models import add_model, add_threads, expect_file, parse_count, parse_target
from sterna.cli.output import progress, show
from sterna.ir.transform import PassContext
from sterna.micro.firmware import PER_SECOND, expect_counter, target_of
from sterna.micro.platforms.boards import Board, find_board
from sterna.model.arguments import TensorSpec
from sterna.model.compile_model import BESIDE
from sterna.model.import_and_build import expect_straight, narrowed
from sterna.model.import_model import import_model
from sterna.support.progress import stage
from sterna.support.table import count, lay_out, show_seconds
from sterna.support.write_aside import write_aside
from sterna.target.here import runs_here
from sterna.tune import Budget, Outcome, Progress, TuningDatabase, tune
from sterna.tune.chart import draw_history
from sterna.tune.measure import RemoteDevice
from sterna.tune.ray_cluster import RayPool
from sterna.tune.tuner import network_inputs
from sterna.tune.worker import Worker
from sterna.tune.workers import Workers

# The layers of the table on a terminal.
SHOWN_LAYERS = 16

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "tune", help=COMMANDS["tune"],
        description="Search faster kernels for a model on this machine. Each candidate is built, "
        "compared with the untuned model's results and timed beside it, inside of the network. "
        "Ctrl-C keeps what was found; the same command goes on from there.",
    )
    add_model(parser, compiled_too=False)
    add_threads(parser)
    add_inputs(parser)
    parser.add_argument(
        "-o", "--output", metavar="FILE.db",
        help=f"the records that are read and written; MODEL{BESIDE} if not given, where "
        "`sterna compile` and sterna.compile find it by themselves",
    )
    parser.add_argument(
        "--minutes", type=parse_minutes, default=10.0, help="how long to search; 10 if not given"
    )
    parser.add_argument(
        "--trials", type=parse_count, default=64,
        help="how many candidates to try for each layer; 64 if not given",
    )
    parser.add_argument(
        "--rpc", type=parse_tracker, metavar="HOST:PORT",
        help="the tracker that lends the device of --key; what is built here is timed there",
    )
    parser.add_argument("--key", help="the key of the device, as its server was started with")
    parser.add_argument(
        "--ray", metavar="ADDRESS",
        help="a Ray cluster, whose machines build and time at once: HOST:PORT of its head, or auto",
    )
    parser.add_argument(
        "--board",
        help="a microcontroller's, such as mps2_an386: candidates become firmware, whose "
        "instructions QEMU counts; `sterna micro` takes what was found",
    )
    parser.add_argument("--plot", metavar="FILE.svg", help="draw what each round gained")
    parser.set_defaults(run=run)


def parse_minutes(text: str) -> float:
    """A time above 0."""
    try:
        minutes = float(text)
    except ValueError:
        minutes = math.nan
    if not 0 < minutes < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of minutes above 0")
    return minutes


def parse_tracker(text: str) -> tuple[str, int]:
    """HOST:PORT"""
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise argparse.ArgumentTypeError(f"'{text}' is no HOST:PORT")
    return host, int(port)


def run(options: argparse.Namespace) -> int:
    """Tune the model and tell what it gained."""
    if not Path(options.model).name:
        raise ValueError(f"'{options.model}' names no file of a model")
    output = options.output or str(Path(options.model).with_suffix(BESIDE))
    expect_file("-o", output)
    expect_file("--plot", options.plot)
    expect_inputs(options)
    board = _board(options)
    target = parse_target(options.target) if board is None else target_of(board)
    device = _device(options)
    if board is None and device is None and options.ray is None and not runs_here(target):
        raise UnsupportedError(
            f"target '{options.target}' is another machine than this; --rpc HOST:PORT --key KEY "
            "names a tracker and the device that it lends, --ray ADDRESS a cluster of such machines"
        )
    level = 3 if options.opt_level is None else options.opt_level
    with progress(options), stage("import the model"):
        module, params = import_model(
            options.model, dict(options.shape), None, fixed=dict(options.fix),
            for_microcontroller=board is not None,
        )
        expect_straight(module)
        if options.precision not in (None, "float32"):
            module, params = narrowed(module, params, options.precision, target), {}
    specs = [TensorSpec(i.name, i.shape, i.dtype) for i in network_inputs(module, params)]
    given = read_inputs(options, specs, fill=True)
    budget = Budget(options.trials, seconds=options.minutes * 60)
    database = TuningDatabase(output)
    with PassContext(level), SearchDisplay(options) as display:
        found = tune(module, params, target, database, given, budget, display.tell, level,
                     options.threads, device, workers=_workers(options), board=options.board)
    show_time = show_seconds if board is None else _show_instructions
    if options.plot:
        drawing = draw_history(found.history)
        write_aside(Path(options.plot), lambda aside: aside.write_text(drawing, "utf-8"))
    data = _data(found, output)
    show(options, data, lambda: _text(found, output, options.plot, show_time))
    return 0


def _board(options: argparse.Namespace) -> Board | None:
    """The board that firmware is for, whose instructions QEMU counts."""
    if options.board is None:
        return None
    others = [("--rpc", options.rpc), ("--ray", options.ray), ("--precision", options.precision)]
    for name, given in others:
        if given is not None:
            raise UsageError(f"--board and {name} do not go together: QEMU runs the firmware here")
    forms = parse_target(options.target or "c").kind.code_generator().forms
    if "c" not in forms:
        raise UsageError(f"--board: networks for boards are C, not '{options.target}'")
    _, board = find_board(options.board)
    try:
        expect_counter(board)
    except ValueError as error:
        raise UsageError(f"--board: {error}") from None
    return board


def _show_instructions(seconds: float) -> str:
    return f"{seconds * PER_SECOND:,.0f} instructions"


def _device(options: argparse.Namespace) -> RemoteDevice | None:
    if (options.rpc is None) != (options.key is None):
        raise UsageError("--rpc and --key go together: a tracker, and the device that it lends")
    if options.rpc is None:
        return None
    if options.target is None:
        raise UsageError("--rpc: say what the device is, as --target \"llvm -mcpu=cortex-a72\"")
    host, port = options.rpc
    return RemoteDevice(host, port, options.key)


def _workers(options: argparse.Namespace) -> Callable[[Path], Workers]:
    if options.ray is None:
        return Worker
    if options.rpc is not None:
        raise UsageError("--ray and --rpc do not go together: the cluster's machines time, or the "
                         "tracker's device does")
    return partial(RayPool, options.ray)


class SearchDisplay:
    """The search as it goes: a table on a terminal, elsewhere a line for each round."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._is_quiet: bool = options.json
        self._seconds: float = options.minutes * 60
        self._console = Console(stderr=True, highlight=False)
        self._live: Live | None = None

    def __enter__(self) -> "SearchDisplay":
        if self._console.is_terminal and not self._is_quiet:
            self._live = Live(console=self._console, transient=True, auto_refresh=False)
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._live.stop()

    def tell(self, at: Progress) -> None:
        """What a round came to."""
        if self._live is not None:
            self._live.update(search_table(at, self._seconds), refresh=True)
        elif not self._is_quiet:
            self._console.print(_line(at, self._seconds))


def _line(at: Progress, seconds: float) -> str:
    return (f"round {at.round}, {at.seconds:.0f} of {seconds:.0f} s: {count(at.trials, 'trial')}, "
            f"the network at {at.ratio:.3f} of its untuned time, {show_seconds(now_takes(at))}, "
            f"up to {at.expected:.1%} more expected")


def now_takes(at: Progress) -> float:
    """What the network takes now."""
    return at.untuned_seconds * at.ratio


def search_table(at: Progress, seconds: float) -> Group:
    """Where a search stands: the network, and its greatest layers."""
    table = Table("Layer", "Share", "Trials", "Of its untuned time", box=None)
    for scope, layer in list(at.layers.items())[:SHOWN_LAYERS]:
        table.add_row(Text(scope), f"{layer.fraction:.1%}", str(layer.trials), f"{layer.ratio:.3f}")
    return Group(Text(_line(at, seconds)), table)


def _data(found: Outcome, output: str) -> dict[str, Any]:
    return {
        "output": output,
        "untuned_seconds": found.default_seconds,
        "tuned_seconds": found.seconds,
        "speedup": 1 / found.ratio,
        "answers": found.answers,
        "trials": found.count,
        "failed": found.failed,
        "interrupted": found.interrupted,
    }


def _text(
    found: Outcome, output: str, plot: str | None, show_time: Callable[[float], str]
) -> str:
    before, after = show_time(found.default_seconds), show_time(found.seconds)
    speedup, trials = 1 / found.ratio, count(found.count, "trial")
    lines = [f"untuned {before}, tuned {after}: {speedup:.3f} x, {trials}"]
    if found.failed:
        told = ", ".join(f"{number} {what}" for what, number in found.failed.items())
        lines.append(f"trials without a time: {told}")
    if found.answers:
        layers, _, names = zip(*(q.rpartition("/") for q in sorted(found.answers)), strict=True)
        answers = [found.answers[q] for q in sorted(found.answers)]
        columns = [("Layer", list(layers)), ("Question", list(names)), ("Answer", answers)]
        lines += ["", lay_out(columns), ""]
    else:
        lines.append("nothing faster was found: the model stays as it is")
    lines.append(f"records: {output}" + ("; interrupted, the same command goes on"
                                         if found.interrupted else ""))
    return "\n".join([*lines, *([f"plot: {plot}"] if plot else [])])
