"""A process of our own that answers lines of JSON: what it does to itself, it does to nobody else.

The module that is named has a function serve, which reads requests from the standard input.
"""

import contextlib
import json
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import IO, Any

_START = "import sys, json, importlib; sys.path[:] = json.loads(sys.argv[1]); \
importlib.import_module('sterna.tune.lines').end_with(int(sys.argv.pop())); \
importlib.import_module(sys.argv[2]).serve()"
# Seconds between two looks whether the process that asks is still there.
_LOOK_SECONDS = 0.5


class ProcessEnded(RuntimeError):
    """It ended before it answered."""


class ProcessSilent(RuntimeError):
    """It did not answer in time."""


class LineProcess:
    """The process, which is started when it is first asked, and anew after it failed."""

    def __init__(self, module: str, *arguments: str) -> None:
        self.module, self.arguments = module, arguments
        self.process: subprocess.Popen[bytes] | None = None

    def ask(self, request: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """What it answers; raises ProcessEnded and ProcessSilent."""
        process = self.process or self._started(self.arguments)
        assert process.stdin is not None and process.stdout is not None
        try:
            process.stdin.write(json.dumps(request).encode() + b"\n")
            process.stdin.flush()
            answer: dict[str, Any] = json.loads(_line(process.stdout, timeout))
        except TimeoutError:
            self.close()
            raise ProcessSilent(f"no answer within {timeout:.0f} s") from None
        except (OSError, ValueError, EOFError):
            raise ProcessEnded(f"the process ended with status {self.close()}") from None
        except BaseException:
            self.close()  # what it would answer belongs to no question any more
            raise
        return answer

    def _started(self, arguments: Sequence[str]) -> "subprocess.Popen[bytes]":
        command = [sys.executable, "-c", _START, json.dumps(sys.path), self.module, *arguments,
                   str(os.getpid())]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C is the tuner's to handle
        )
        return self.process

    def close(self) -> int | None:
        """End the process; the result is its exit status."""
        process, self.process = self.process, None
        if process is None:
            return None
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):  # what it did not read is lost with it
            process.stdin.close()
        try:
            status = process.wait(0.2)
        except subprocess.TimeoutExpired:
            process.kill()
            status = process.wait()
        process.stdout.close()
        return status


def end_with(parent: int) -> None:
    """End this process soon after the one that started it: a candidate that hangs reads no end."""
    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(_LOOK_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _line(stream: IO[bytes], timeout: float) -> bytes:
    """The next line of a process that may fall silent, or end."""
    end, found = time.monotonic() + timeout, b""
    with selectors.DefaultSelector() as selector:
        selector.register(stream, selectors.EVENT_READ)
        while not found.endswith(b"\n"):
            left = end - time.monotonic()
            if left <= 0 or not selector.select(left):
                raise TimeoutError
            part = os.read(stream.fileno(), 1 << 16)
            if not part:
                raise EOFError
            found += part
    return found
