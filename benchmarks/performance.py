"""Measure everything and put the tables into docs/performance.md, under this machine's heading.

    python benchmarks/performance.py [--networks FOLDER] [--threads 1 2] [--print]

FOLDER holds the ONNX files to race the other engines over; without it the section has no tables of
them. What other machines measured is left alone. Takes some minutes on an idle machine.
"""

import argparse
import os
import sys
from pathlib import Path

import kernels  # isort: skip  (before all that loads NumPy, which it sets to one thread)
import engines
import firmware_sizes
import networks
import operators
import peers
import rpc
import runtime_costs
from contest import OURS
from machine import machine, versions
from rows import HEAD, Row, markdown

from sterna.model.bounds import measure_bounds

PAGE = Path(__file__).resolve().parent.parent / "docs" / "performance.md"
BEGIN, END = "<!-- measured on {} -->", "<!-- end of what was measured on {} -->"


def limits(threads: int) -> str:
    """What the machine can do, as the share of the limit counts it."""
    bounds = measure_bounds(threads)
    size, copies = bounds.gbytes[-1]
    _, reads = bounds.read_gbytes[-1]
    return (f"{bounds.gflops:.0f} GFLOP/s of multiply-adds, {copies:.1f} GB/s of copies and "
            f"{reads:.1f} GB/s of reads of {size / 1e6:.0f} MB on {threads} threads")


def bounded(title: str, command: str, rows: list[Row]) -> str:
    """The part of a table of rows with bounds."""
    table = markdown(HEAD, [row.cells() for row in rows])
    return f"### {title}\n\n`python benchmarks/{command}.py`\n\n{table}"


def models(folder: Path, threads: list[int], rounds: int, seconds: float) -> list[str]:
    """The parts about models in files."""
    files = sorted(folder.glob("*.onnx"))
    if not files:
        raise SystemExit(f"there is no .onnx file in {folder}")
    names = [OURS, *peers.installed()]
    races = [engines.race(file, names, number, rounds, seconds)
             for number in threads for file in files]
    raced = markdown(engines.head(names), [race.cells(names) for race in races])
    reached = markdown(operators.HEAD, operators.measure(files))
    return [
        f"### Beside other engines\n\n`python benchmarks/engines.py MODELS`\n\n{raced}\n\n"
        f"{engines.summary(races)}",
        "### Operators beside the machine's limits\n\n`python benchmarks/operators.py MODELS`\n\n"
        f"This machine: {limits(os.cpu_count() or 1)}.\n\n{reached}",
    ]


def section(options: argparse.Namespace) -> str:
    """All that this machine has to tell."""
    parts = [f"## {machine()}", f"With {versions()}."]
    if options.networks:
        parts += models(options.networks, options.threads, options.rounds, options.seconds)
    parts += [
        bounded("Networks from builders", "networks", networks.measure()),
        bounded("Networks as firmware", "firmware_sizes", firmware_sizes.measure()),
        bounded("Kernels written as schedules", "kernels", kernels.measure()),
        bounded("The runtime", "runtime_costs", runtime_costs.measure()),
        bounded("Remote execution", "rpc", rpc.measure()),
    ]
    return "\n\n".join(parts)


def put(page: str, name: str, text: str) -> str:
    """The page with a machine's section in place of its former one, or at the end."""
    begin, end = BEGIN.format(name), END.format(name)
    whole = f"{begin}\n{text}\n{end}"
    if begin not in page:
        return f"{page.rstrip()}\n\n{whole}\n"
    before, rest = page.split(begin, 1)
    return before + whole + rest.split(end, 1)[1]


def main() -> int:
    """Measure and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--networks", type=Path, help="a folder of ONNX files")
    parser.add_argument(
        "--threads", type=int, nargs="+", default=sorted({1, os.cpu_count() or 1})
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of an engine's turn")
    parser.add_argument("--print", action="store_true", help="do not change the page")
    options = parser.parse_args()
    text = section(options)
    if options.print:
        print(text)
    else:
        PAGE.write_text(put(PAGE.read_text(), machine(), text))
    return 0


if __name__ == "__main__":
    sys.exit(main())
