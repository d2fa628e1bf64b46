"""Runs a project's example program, and reads what it prints."""

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.micro.project import GeneratedProject
from sterna.micro.transport import IoTimeoutError, TransportClosedError
from sterna.support.numpy_dtype import numpy_dtype

Array = np.ndarray[Any, Any]

_HEAD = re.compile(r"output (\d+) (\w+)\[([\d, ]*)\] (.*)")
_ELEMENT = re.compile(r"0x([0-9a-f]+)\b.*")
_STACK = re.compile(r"stack (\d+)")
_KERNEL = re.compile(r"kernel \d+ (\d+)")


class ExampleError(RuntimeError):
    """A program did not run to its end; the text has what it said."""


class ExampleTimeoutError(ExampleError):
    """A program ran for too long."""


@dataclass(frozen=True, slots=True)
class ExampleRun:
    """What a program gave."""

    outputs: dict[str, Array]
    stack_bytes: int
    """The most stack that was in use; 0 if the platform does not know."""
    kernel_ticks: tuple[int, ...] = ()
    """What each kernel took, where the program was built with -DSTERNA_PROFILE."""


def run_example(
    project: GeneratedProject, options: Mapping[str, Any] | None = None, seconds: float = 120.0
) -> ExampleRun:
    """Start the program on its board or emulator and wait until it is done."""
    text, deadline, why = b"", time.monotonic() + seconds, ""
    with project.transport(options) as stream:
        while not text.endswith(b"\ndone\n"):
            try:
                text += stream.read(1 << 16, max(0.0, deadline - time.monotonic()))
            except TransportClosedError as error:
                why = str(error)
                break
            except IoTimeoutError:
                raise ExampleTimeoutError(
                    f"the program ran for more than {seconds:.0f} s; it said:\n{_last(text)}"
                ) from None
    if not text.endswith(b"\ndone\n"):
        raise ExampleError(f"the program did not finish ({why}); it said:\n{_last(text)}")
    return read_example(text.decode())


def _last(text: bytes) -> str:
    return text[-2000:].decode("utf-8", "replace")


def read_example(text: str) -> ExampleRun:
    """The outputs in what an example program printed, bit by bit."""
    outputs: dict[str, Array] = {}
    stack, lines = 0, text.splitlines()
    ticks = [int(found[1]) for line in lines if (found := _KERNEL.fullmatch(line))]
    for place, line in enumerate(lines):
        if head := _HEAD.fullmatch(line):
            shape = tuple(int(part) for part in head[3].split(",") if part.strip())
            name = head[4] if head[4] not in outputs else f"{head[4]}_{head[1]}"
            outputs[name] = _array(lines[place + 1 :], head[2], shape)
        elif found := _STACK.fullmatch(line):
            stack = int(found[1])
    return ExampleRun(outputs, stack, tuple(ticks))


def _array(lines: list[str], dtype: str, shape: tuple[int, ...]) -> Array:
    kind = numpy_dtype(dtype)
    count = int(np.prod(shape, dtype=np.int64))
    matched = [_ELEMENT.fullmatch(line) for line in lines[:count]]
    words = [int(found[1], 16) for found in matched if found]
    if len(words) != count:
        raise ExampleError(f"{count} elements of {dtype} were expected, {len(words)} were printed")
    held = np.array(words, f"uint{kind.itemsize * 8}")
    return held.view(kind).reshape(shape)
