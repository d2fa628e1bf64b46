"""A run over many small models: options, turns, what is kept, what is shown in the end."""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import peers
from contest import OURS, Engine, contest
from machine import machine, versions
from standings import MAY_DIFFER, Standing, Standings, show_standings, standing, write_picture

# PyTorch needs seconds to compile a layer; it is asked for by name.
USUAL = ("onnxruntime", "openvino", "mnn")


@dataclass(frozen=True)
class Task:
    """A model that is timed."""

    key: str
    kind: str
    variant: str
    quantised: bool
    make: Callable[[Path], tuple[Path, Mapping[str, Any]]]
    """Gives the model's file, which may lie in the folder, and its inputs."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """What all such runs can be told."""
    here = [name for name in peers.installed() if name in USUAL]
    parser.add_argument("--only", default="", metavar="TEXT",
                        help="those with this text in CLASS/NAME; several are parted by commas")
    parser.add_argument("--every", type=int, default=1, metavar="N", help="each Nth of them")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--rounds", type=int, default=4, help="turns of each engine")
    parser.add_argument("--seconds", type=float, default=0.03, help="of a turn")
    parser.add_argument("--engines", nargs="+", default=here, metavar="PEER",
                        choices=sorted(peers.PACKAGES), help=f"if not given: {' '.join(here)}")
    parser.add_argument("--json", type=Path, metavar="FILE", help="keep what is found, as it goes")
    parser.add_argument("--resume", action="store_true", help="go on with what FILE holds")
    parser.add_argument("--stop-after", type=float, metavar="SECONDS",
                        help="begin no more models after so long; --resume goes on")
    parser.add_argument("--picture", type=Path, metavar="FILE", help="draw it as SVG")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--limit", type=int, metavar="ROWS", help="of the long table")


def check_options(parser: argparse.ArgumentParser, options: argparse.Namespace) -> None:
    """Refuse what makes no sense."""
    if options.resume and not options.json:
        parser.error("--resume goes on with the file that --json names")
    if not options.engines:
        parser.error("no peer is installed: pip install onnxruntime openvino MNN")
    for folder in {path.parent for path in (options.json, options.picture) if path}:
        if not folder.is_dir():
            parser.error(f"there is no folder '{folder}'")


def wanted(key: str, only: str) -> bool:
    """Whether a name is asked for."""
    return not only or any(part in key for part in only.split(","))


def run(tasks: Sequence[Task], options: argparse.Namespace, title: str) -> int:
    """Time the tasks and show the tables; 1 if a result differs or a model cannot be run."""
    tasks = [task for task in tasks if wanted(task.key, options.only)][:: options.every]
    if not tasks:
        raise SystemExit(f"no layer has '{options.only}' in its name")
    found = Standings({"machine": machine(), "versions": versions(), "title": title})
    if options.resume and options.json.is_file():
        found = Standings.read(options.json)
    start = time.perf_counter()
    for threads in options.threads:
        engines = [Engine(name, threads) for name in (OURS, *options.engines)]
        try:
            _run_on(tasks, engines, threads, options, found, start)
        finally:
            for engine in engines:
                engine.close()
    keys = {task.key for task in tasks}
    shown = [each for each in found.all if each.key in keys and each.threads in options.threads]
    names = [OURS, *options.engines]
    show_standings(shown, names, title, options.markdown, options.limit)
    if options.picture:
        write_picture(shown, options.picture, f"{title}, {found.about['machine']}")
    return 1 if any(OURS in each.failures or each.same is False for each in shown) else 0


def _run_on(
    tasks: Sequence[Task], engines: Sequence[Engine], threads: int, options: argparse.Namespace,
    found: Standings, start: float,
) -> None:
    known = found.known()
    left = [task for task in tasks if (task.key, threads) not in known]
    for number, task in enumerate(left, 1):
        if options.stop_after and time.perf_counter() - start > options.stop_after:
            print(f"stopped; {len(left) - number + 1} are left", file=sys.stderr)
            return
        with tempfile.TemporaryDirectory() as folder:
            path, inputs = task.make(Path(folder))
            reference = _reference(path, inputs) if task.quantised else None
            held = contest(engines, path, inputs, options.rounds, options.seconds, True, reference,
                           MAY_DIFFER[task.quantised])
        made = standing(task.key, task.kind, task.variant, threads, held, task.quantised)
        found.all.append(made)
        if options.json:
            found.write(options.json)
        print(f"[{number}/{len(left)}] {_told(made)}", file=sys.stderr, flush=True)


def _reference(path: Path, inputs: Mapping[str, Any]) -> list[Any] | None:
    """What a model of bytes gives without fused kernels; None where nothing here tells."""
    return peers.unfused(path, inputs) if "onnxruntime" in peers.installed() else None


def _told(made: Standing) -> str:
    if OURS in made.failures:
        return f"{made.key}: fails: {' '.join(made.failures[OURS].split())[:150]}"
    ratio = "no peer" if made.ratio is None else f"{made.ratio:.2f} of {made.fastest_peer}"
    wrong = ", WRONG" if made.same is False else ""
    wrong += "".join(f", {name} is wrong" for name in made.wrong)
    bound = "" if made.share_of_bound is None else f", {made.share_of_bound:.0%} of the bound"
    return f"{made.key}: {made.times[OURS] * 1e3:.3f} ms, {ratio}{bound}{wrong}"
