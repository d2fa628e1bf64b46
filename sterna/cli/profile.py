"""sterna profile: what each operator of a model takes."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.cli.commands import COMMANDS
from sterna.cli.inputs import add_inputs, expect_inputs, read_inputs
from sterna.cli.models import add_model, add_threads, expect_file, open_model, parse_count
from sterna.cli.output import progress, short_name, shortened, show, tell
from sterna.runtime.node_times import MORE_THAN_THREE_TIMES, Bounds, NodeTime, NodeTimes, tell_far
from sterna.support.progress import stage
from sterna.support.table import lay_out, show_bytes
from sterna.support.write_aside import write_aside

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "profile", help=COMMANDS["profile"],
        description="Time each operator of a model, on random numbers unless inputs are given, and "
        "say at which rate it computes and moves data and which share of what this machine can do "
        "that is.",
    )
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
    expect_file("--trace", options.trace)
    expect_inputs(options)
    model = open_model(options, closed=True)
    inputs = read_inputs(options, model.inputs, fill=True)
    with progress(options), stage("measure the machine and time the operators"):
        times = model.profile(
            repeat=options.repeat, bounds=not options.no_bounds, inputs=inputs
        )
    if options.trace:
        write_aside(Path(options.trace), times.write_trace)
        tell(f"wrote {options.trace}; chrome://tracing and ui.perfetto.dev show it")
    data = {**times.to_dict(), "trace": options.trace}
    show(options, data, lambda: _text(times, options.in_order))
    return 0


def _text(times: NodeTimes, in_order: bool) -> str:
    nodes = list(times.nodes) if in_order else sorted(times.nodes, key=lambda n: -n.seconds)
    sources = [shortened(", ".join(node.sources)) for node in nodes]
    columns = [
        ("Operators", [short_name(node.name) for node in nodes]),
        *([("From", sources)] if any(sources) else []),
        *([("By", [node.way for node in nodes])] if any(node.way for node in nodes) else []),
        ("Result", [", ".join(map(str, node.shapes)) for node in nodes]),
        ("Time (us)", [f"{node.seconds * 1e6:.2f}" for node in nodes]),
        ("Share (%)", [_number(100 * n.seconds / times.seconds) for n in nodes]),
        ("GFLOP/s", [_number(node.gflops()) for node in nodes]),
        ("GB/s", [_number(node.gbytes()) for node in nodes]),
    ]
    total = {"Operators": "Total", "Time (us)": f"{times.seconds * 1e6:.2f}"}
    if times.bounds is None:
        return lay_out(columns, total)
    shares = [times.share_of_bound(node) for node in nodes]
    columns.append(("Bound (%)", [_number(s and 100 * s) for s in shares]))
    parts = [lay_out(columns, total), _bounds(times.bounds)]
    far = [node for node in nodes if times.is_far(node)]
    parts += [f"{MORE_THAN_THREE_TIMES}: {tell_far(_times_bound(times, far))}"] if far else []
    return "\n\n".join(parts)


def _times_bound(times: NodeTimes, nodes: Sequence[NodeTime]) -> list[tuple[str, float]]:
    return [(short_name(node.name), 1 / (times.share_of_bound(node) or 1)) for node in nodes]


def _bounds(bounds: Bounds) -> str:
    copies, reads = _rates(bounds.gbytes), _rates(bounds.read_gbytes)
    others = f", {bounds.half_gflops:.4g} in float16" if bounds.half_gflops else ""
    others += f", {bounds.byte_gflops:.4g} of bytes" if bounds.byte_gflops else ""
    rates = f"GB/s of copies {copies}; of reads {reads}"
    single = f"{bounds.gflops:.4g} GFLOP/s{others}; " if bounds.gflops else ""
    return f"This machine: {single}{rates}"


def _rates(rates: Sequence[tuple[float, float]]) -> str:
    """Some of them: every third, of the largest at the least."""
    shown = list(rates)[::-3][::-1]
    return ", ".join(f"{rate:.3g} of {show_bytes(size)}" for size, rate in shown)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"
