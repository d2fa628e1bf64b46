"""sterna demo: what the installed version can do, shown by doing it."""

import argparse
import inspect
import platform
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console
from rich.syntax import Syntax
from rich.table import Table

from sterna import runtime, te
from sterna.driver import OperatorModule, build, lower
from sterna.version import __version__

if TYPE_CHECKING:
    Subparsers = argparse._SubParsersAction[argparse.ArgumentParser]

SIZE = 1 << 20
SHOWN_LINES = 14


def swish(n: int) -> tuple[te.Schedule, list[te.Tensor]]:
    """y = x * sigmoid(x), in vectors, on all threads."""
    x = te.placeholder((n,), name="x")
    y = te.compute((n,), lambda i: x[i] * te.sigmoid(x[i]), name="y")
    s = te.create_schedule(y.op)
    outer, inner = s[y].split(y.op.axis[0], factor=64)
    s[y].vectorize(inner)
    s[y].parallel(outer)
    return s, [x, y]


def add_to(commands: "Subparsers") -> None:
    """Add this command to the command line."""
    parser = commands.add_parser("demo", help="show what this version can do")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Compile a kernel, show it at each level, run it and time it."""
    console = Console()
    console.print(
        f"[bold]Sterna {__version__}[/bold] on {platform.machine()}, "
        f"{runtime.num_threads()} threads\n"
    )
    console.print("[bold]1. A tensor expression and its schedule[/bold]")
    console.print(Syntax(inspect.getsource(swish).strip(), "python", word_wrap=True))
    schedule, args = swish(SIZE)
    start = time.perf_counter()
    module = build(schedule, args, target="llvm -mcpu=native", name="swish")
    function = module["swish"]
    seconds = time.perf_counter() - start
    show_levels(console, schedule, args, module)
    console.print(f"[bold]5. Compiled in {seconds:.2f} s; now it runs[/bold]")
    show_timing(console, function)
    return 0


def show_levels(
    console: Console, schedule: te.Schedule, args: list[te.Tensor], module: OperatorModule
) -> None:
    """The loops, before and after the passes, LLVM's IR and the machine's code."""
    levels = [
        ("2. Loops", str(lower(schedule, args, "swish", simple_mode=True)), "python"),
        ("3. LLVM IR", interesting(module.get_source("ll"), "define internal"), "llvm"),
        ("4. Machine code", interesting(module.get_source("asm"), "fma", "fmla"), "text"),
    ]
    for title, text, language in levels:
        console.print(f"[bold]{title}[/bold]")
        shown = text.splitlines()[:SHOWN_LINES]
        console.print(Syntax("\n".join(shown), language, word_wrap=False))


def interesting(text: str, *marks: str) -> str:
    """The text from a little before the first line that has one of the marks."""
    lines = text.splitlines()
    places = [i for i, line in enumerate(lines) if any(mark in line for mark in marks)]
    return "\n".join(lines[max(0, places[0] - 2) :]) if places else text


def show_timing(console: Console, function: Any) -> None:
    """Its time beside NumPy's, after both agree."""
    x = np.random.default_rng(0).standard_normal(SIZE, dtype="float32")
    y = np.empty_like(x)

    def with_numpy() -> Any:
        return x / (1 + np.exp(-x))

    function(x, y)
    agrees = bool(np.allclose(y, with_numpy(), rtol=1e-5, atol=1e-6))
    console.print(f"   it agrees with NumPy: {agrees}")
    table = Table("x * sigmoid(x) of 1 Mi floats", "time")
    for name, call in (("Sterna", lambda: function(x, y)), ("NumPy", with_numpy)):
        table.add_row(name, f"{best_time(call) * 1e6:.0f} us")
    console.print(table)


def best_time(call: Callable[[], object]) -> float:
    """Seconds of the fastest of several calls."""
    best = float("inf")
    for _ in range(20):
        start = time.perf_counter()
        call()
        best = min(best, time.perf_counter() - start)
    return best
