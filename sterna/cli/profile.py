"""sterna profile: what each operator of a model takes."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.cli.commands import COMMANDS
from sterna.cli.inputs import add_inputs, read_inputs
from sterna.cli.models import add_model, add_threads, open_model, parse_count
from sterna.cli.output import progress, show
from sterna.driver.files import write_aside
from sterna.model.bounds import measure_bounds
from sterna.support.progress import stage

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "profile", help=COMMANDS["profile"],
        description="Time each operator of a model, on random numbers unless inputs are given, and "
        "say at which rate it computes and moves data and which share of what this machine can do "
        "that is.",
    )  # fmt: skip
    add_model(parser)
    add_threads(parser)
    add_inputs(parser)
    parser.add_argument("--repeat", type=parse_count, default=20, help="runs; 20 if not given")
    parser.add_argument("--trace", metavar="FILE", help="write a trace for Chrome and Perfetto")
    parser.add_argument("--in-order", action="store_true", help="do not sort by time")
    parser.add_argument(
        "--no-bounds", action="store_true", help="do not measure what the machine can do"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Profile the model; show the table and write the trace."""
    model = open_model(options)
    inputs = read_inputs(options, model.inputs, fill=True)
    with progress(options), stage("measure the machine"):
        bounds = None if options.no_bounds else measure_bounds()
    with progress(options), stage("time the operators"):
        times = model.profile(repeat=options.repeat, bounds=bounds, inputs=inputs)
    if options.trace:
        write_aside(Path(options.trace), times.write_trace)
    data = {**times.to_dict(), "trace": options.trace}
    show(options, data, lambda: times.table(sort=not options.in_order))
    return 0
