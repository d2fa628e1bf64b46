"""A process that compiles kernels for another: requests on its input, their code on its output.

A message is a line of JSON. A request has the kernel's name, its function as saved IR, the target,
the modules that declare kinds of targets and the settings of passes; an answer has the size of the
code that follows it, or an error. A request without a function has no answer: the process loads
what kernels for the target will need.
"""

import json
import subprocess
import sys
from contextlib import suppress
from typing import IO, Any

from sterna.driver.kernel import compile_kernel
from sterna.ir.serialize import load_json
from sterna.ir.transform import PassContext
from sterna.relay.op import records
from sterna.support.collection import without_collection
from sterna.support.expendable import become_expendable
from sterna.target import Target, register
from sterna.target.kind import registered

_START = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); \
from sterna.driver.kernel_worker import serve; serve()"


class Worker:
    """A process that compiles one kernel at a time."""

    def __init__(self) -> None:
        command = [sys.executable, "-c", _START, json.dumps(sys.path)]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )

    def prepare(self, target: Target) -> None:
        """Let the process load what it needs for a target, before there is a kernel."""
        assert self.process.stdin is not None
        request = {"target": str(target), "targets": registered()}
        with suppress(OSError):  # a process that has ended shows when it is asked for a kernel
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()

    def compile(self, request: dict[str, Any]) -> bytes | None:
        """The kernel's code; None if the process failed, so that the caller can find out why."""
        assert self.process.stdin is not None and self.process.stdout is not None
        try:
            self.process.stdin.write(json.dumps(request).encode() + b"\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
            answer = json.loads(line) if line else {}
            size = answer.get("size")
            content = self.process.stdout.read(size) if size else b""
        except (OSError, ValueError):
            return None
        return content if size and len(content) == size else None

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.kill()
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait()


def serve() -> None:
    """Answer requests until there are no more."""
    become_expendable()
    output = sys.stdout.buffer
    sys.stdout = sys.stderr  # nothing else may get between the answers
    with without_collection():
        for line in sys.stdin.buffer:
            request = json.loads(line)
            if "function" in request:
                _answer(request, output)
            else:
                _prepare(request)


def _prepare(request: dict[str, Any]) -> None:
    with suppress(Exception):  # what is wrong shows again with a kernel, which has an answer
        for module in request["targets"]:
            register(module)
        kind = Target(request["target"]).kind
        kind.code_generator()
        kind.load_schedules()
        records()


def _answer(request: dict[str, Any], output: IO[bytes]) -> None:
    try:
        for module in request["targets"]:
            register(module)
        named = request["required_pass"], request["disabled_pass"]
        with PassContext(request["opt_level"], *named, config=request["config"]):
            function = load_json(request["function"])
            target = Target(request["target"])
            packed, shares = request["packed"], request["shares"]
            made = compile_kernel(request["name"], function, target, packed, shares)
        content = made.to_bytes()
        output.write(json.dumps({"size": len(content)}).encode() + b"\n" + content)
    except Exception as error:
        output.write(json.dumps({"error": str(error)}).encode() + b"\n")
    output.flush()
