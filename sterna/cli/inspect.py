"""sterna inspect: a model, its code at any stage, and a drawing of it."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna.cli.commands import COMMANDS
from sterna.cli.failures import UsageError
from sterna.cli.models import add_model, expect_file, parse_target
from sterna.cli.output import progress, show, tell
from sterna.model import load
from sterna.model.draw import to_html, to_svg
from sterna.model.import_model import COMPILED, import_model
from sterna.model.stages import STAGES, Stages, Statistics, statistics_of
from sterna.support.progress import stage
from sterna.support.table import lay_out, show_bytes
from sterna.support.write_aside import write_aside
from sterna.target import is_microcontroller

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

DRAWINGS = {".svg": to_svg, ".html": to_html}


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser(
        "inspect", help=COMMANDS["inspect"],
        description="Show what a model consists of: operators, multiply-adds, parameters. Or show "
        "it at a stage on its way to code, or draw it.",
    )
    add_model(parser)
    parser.add_argument(
        "--show", choices=tuple(STAGES),
        help="the graph as imported, after the passes of --opt-level, or its kernels as loops, "
        "LLVM IR, assembly or C",
    )
    parser.add_argument(
        "--kernel", default="", metavar="TEXT", help="only kernels with this in their names"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write what is shown to a file")
    parser.add_argument(
        "--draw", metavar="FILE", help="draw the fused graph; the name ends in .svg or .html"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Show the model's statistics, or its text at a stage; draw it if that is asked for."""
    if options.output and not options.show:
        raise UsageError("-o goes with --show; --draw FILE names its own file")
    if options.draw and Path(options.draw).suffix not in DRAWINGS:
        raise UsageError(f"--draw '{options.draw}': the name must end in .svg or .html")
    expect_file("-o", options.output)
    expect_file("--draw", options.draw)
    if Path(options.model).suffix in COMPILED:
        return _show_compiled(options)
    level = 3 if options.opt_level is None else options.opt_level
    target = parse_target(options.target)
    with progress(options), stage("import the model"):
        module, params = import_model(options.model, dict(options.shape), None,
                                      for_microcontroller=is_microcontroller(target),
                                      fixed=dict(options.fix))
        model = Stages.of(module, params, target, level)
    statistics = statistics_of(model.module)
    data: dict[str, Any] = statistics.to_dict()
    if options.draw:
        data["drawing"] = options.draw
        with progress(options), stage("draw the graph"):
            _draw(model, Path(options.draw), Path(options.model).name)
        tell(f"wrote {options.draw}")
    if not options.show:
        show(options, data, lambda: _text(statistics))
        return 0
    with progress(options), stage(f"make the {options.show} text"):
        text = model.text(options.show, options.kernel)
    if options.output:
        write_aside(Path(options.output), lambda aside: aside.write_text(f"{text}\n", "utf-8"))
        show(options, {**data, "output": options.output}, lambda: f"wrote {options.output}")
    else:
        show(options, {**data, "stage": options.show, "text": text}, lambda: text)
    return 0


def _show_compiled(options: argparse.Namespace) -> int:
    if options.show or options.draw:
        raise UsageError(
            f"'{options.model}' is compiled already; --show and --draw need the model itself"
        )
    report = load(options.model, trust=options.trust).report()
    show(options, report.to_dict(), lambda: str(report))
    return 0


def _draw(model: Stages, path: Path, name: str) -> None:
    text = DRAWINGS[path.suffix](model.boxes(), name)
    write_aside(path, lambda aside: aside.write_text(text, "utf-8"))


def _text(statistics: Statistics) -> str:
    counts = statistics.operators
    return "\n".join([
        *(f"takes {spec}" for spec in statistics.inputs),
        *(f"gives {spec}" for spec in statistics.outputs),
        f"{statistics.macs:,} multiply-adds, {statistics.parameters:,} parameters "
        f"({show_bytes(statistics.parameter_bytes)})",
        "",
        lay_out([("Operator", list(counts)), ("Calls", [str(n) for n in counts.values()])],
                {"Operator": "Total", "Calls": str(sum(counts.values()))}),
    ])
