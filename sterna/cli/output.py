"""What commands write: results on the standard output, everything else on the standard error."""

import argparse
import json
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn

from sterna.support.progress import Watcher, watching

LONGEST = 40
# What a stage may take before a line tells of it in a pipe.
LONG_S = 5.0


def add_json(parser: argparse.ArgumentParser) -> None:
    """The option that every command has."""
    parser.add_argument("--json", action="store_true", help="print the results as JSON")


def show(options: argparse.Namespace, data: Any, text: Callable[[], str]) -> None:
    """Print the results, for machines or for people."""
    print(json.dumps(_plain(data), indent=2, allow_nan=False) if options.json else text())


def _plain(data: Any) -> Any:
    """The same without numbers that JSON lacks: they become text."""
    if isinstance(data, dict):
        return {key: _plain(value) for key, value in data.items()}
    if isinstance(data, list | tuple):
        return [_plain(value) for value in data]
    return str(data) if isinstance(data, float) and not math.isfinite(data) else data


def complain(message: str, code: int, as_json: bool) -> None:
    """Say what went wrong; programs that read JSON get it as JSON too."""
    if as_json:
        print(json.dumps({"error": message, "exit_status": code}, indent=2))
    Console(stderr=True, soft_wrap=True).print(
        f"sterna: {message}", style="red", markup=False, highlight=False
    )


def tell(message: str) -> None:
    """Say on the standard error what was done beside the results."""
    Console(stderr=True, soft_wrap=True).print(
        f"sterna: {message}", markup=False, highlight=False
    )


def warn(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Show a warning as one message, without the place that it comes from."""
    Console(stderr=True, soft_wrap=True).print(
        f"sterna: {message}", style="yellow", markup=False, highlight=False
    )


@contextmanager
def progress(options: argparse.Namespace) -> Iterator[None]:
    """A bar, on a terminal, that shows what is being done; in a pipe lines, if it takes long."""
    console = Console(stderr=True)
    if options.json:
        yield
        return
    if not console.is_terminal:
        lines = Lines()
        try:
            with watching(lines):
                yield
        finally:
            lines.stop()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
               TextColumn("{task.fields[what]}"))
    with Progress(*columns, console=console, transient=True) as bars, watching(Bar(bars)):
        yield


class Lines(Watcher):
    """A line for each stage that takes long, and again from time to time while it goes on."""

    def __init__(self, every: float = LONG_S) -> None:
        self.every = every
        self.name = ""
        self.steps: int | None = None
        self.done = 0
        self.start = 0.0
        self.timer: threading.Timer | None = None

    def begin_stage(self, name: str, steps: int | None) -> None:
        self.name, self.steps, self.done, self.start = name, steps, 0, time.monotonic()
        self._wait()

    def end_step(self, what: str) -> None:
        self.done += 1

    def end_stage(self, name: str, seconds: float) -> None:
        self.stop()

    def stop(self) -> None:
        """Say no more."""
        if self.timer is not None:
            self.timer.cancel()

    def _wait(self) -> None:
        self.stop()
        self.timer = threading.Timer(self.every, self._say)
        self.timer.daemon = True
        self.timer.start()

    def _say(self) -> None:
        counted = f" ({self.done} of {self.steps})" if self.steps else ""
        tell(f"{self.name}{counted}: {time.monotonic() - self.start:.0f} s so far")
        self._wait()


class Bar(Watcher):
    """A bar per stage, with the step that began last and is under way beside it."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars
        self.task: TaskID | None = None
        self.under_way: dict[str, None] = {}

    def begin_stage(self, name: str, steps: int | None) -> None:
        self.task = self.bars.add_task(name, total=steps, what="")

    def begin_step(self, what: str) -> None:
        self.under_way[what] = None
        self._show(0)

    def end_step(self, what: str) -> None:
        self.under_way.pop(what, None)
        self._show(1)

    def _show(self, advance: int) -> None:
        assert self.task is not None
        names = list(self.under_way)  # at once: other threads begin and end steps
        latest = shortened(short_name(names[-1])) if names else ""
        self.bars.update(self.task, advance=advance, what=latest)

    def end_stage(self, name: str, seconds: float) -> None:
        assert self.task is not None
        self.bars.remove_task(self.task)


def short_name(kernel: str) -> str:
    """What a kernel does, from its name: nn_conv2d_add of tvmgen_default_fused_nn_conv2d_add."""
    return re.sub(r"^tvmgen_\w+?_fused_", "", kernel)


def shortened(text: str) -> str:
    """The text, or its beginning if it is long."""
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def file_size(path: str | os.PathLike[str]) -> int:
    """The bytes of a file."""
    return Path(path).stat().st_size
