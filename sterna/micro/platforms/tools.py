"""Programs that build, flash and emulate: found or named, run with a time limit."""

import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from sterna.support.toolchain import CompileError, MissingToolError

SECONDS = 1200.0


def require_tool(name: str, how: str) -> str:
    """The path of a program; MissingToolError says how to get it."""
    found = shutil.which(name)
    if found is None:
        raise MissingToolError(f"{name} was not found; {how}")
    return found


def run_tool(command: Sequence[str], folder: Path, verbose: bool = False) -> None:
    """Run a program in a folder; CompileError with its words if it fails."""
    if verbose:
        print(shlex.join(command), file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=SECONDS, check=False,
        )
    except subprocess.TimeoutExpired:
        raise CompileError(f"{shlex.join(command)} took more than {SECONDS:.0f} s") from None
    if verbose and done.stdout:
        print(done.stdout, file=sys.stderr, flush=True)
    if done.returncode != 0:
        raise CompileError(
            f"'{Path(command[0]).name}' failed (exit status {done.returncode}):\n"
            f"{done.stdout.strip()}\nCommand line: {shlex.join(command)}"
        )
