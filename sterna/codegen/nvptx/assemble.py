"""LLVM's text to PTX, in a process that may end.

LLVM ends the process where a GPU lacks what it is asked for. A process that compiles kernels for
another one asks it itself; others start one for that. Then that one ends, and here there is an
error. It serves many requests, each a line of JSON, and goes when this process goes.
"""

import json
import os
import re
import subprocess
import sys
import threading
from typing import IO, Any

from sterna.codegen.llvm.machine import LLVMOptions, create_machine
from sterna.support.errors import InternalError
from sterna.support.expendable import is_expendable

_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); "
    "from sterna.codegen.nvptx.assemble import serve; serve()"
)
_LOCK = threading.Lock()
_processes: dict[int, subprocess.Popen[str]] = {}
"""The other process, by the number of the one that started it: a forked one starts its own."""


def assemble(text: str, cpu: str, features: str, level: int) -> str:
    """The PTX of a module's text, for a GPU and a version of PTX."""
    if is_expendable():
        return _ptx(text, cpu, features, level)
    request = {"text": text, "cpu": cpu, "features": features, "level": level}
    with _LOCK:
        process = _process()
        answer = _ask(process, request)
        if answer is None:
            _processes.clear()
            _, words = process.communicate()
            raise InternalError(f"LLVM cannot make PTX for {cpu} {features}: {_reason(words)}")
    if "error" in answer:
        raise InternalError(f"the generated LLVM IR is wrong: {answer['error']}")
    return answer["ptx"]


def _process() -> "subprocess.Popen[str]":
    own = os.getpid()
    if own not in _processes:
        _processes.clear()
        _processes[own] = subprocess.Popen(
            [sys.executable, "-c", _START, json.dumps(sys.path)], stdin=subprocess.PIPE,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace",
        )
    return _processes[own]


def _ask(process: "subprocess.Popen[str]", request: dict[str, Any]) -> dict[str, str] | None:
    assert process.stdin is not None and process.stdout is not None
    try:
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        return None
    answer: dict[str, str] | None = json.loads(line) if line.endswith("\n") else None
    return answer


def _reason(words: str) -> str:
    """What LLVM said last."""
    known = re.findall(r"LLVM ERROR: (.*)|Assertion `(.*)' failed", words)
    lines = [first or second for first, second in known] or words.strip().splitlines()[-1:]
    return lines[-1] if lines else "it gave no reason"


# ---- in the other process ----


def serve() -> None:
    """Answer requests until there are no more."""
    output = sys.stdout
    sys.stdout = sys.stderr  # nothing else may get between the answers
    for line in sys.stdin:
        _answer(json.loads(line), output)


def _answer(request: dict[str, Any], output: IO[str]) -> None:
    try:
        answer = {"ptx": _ptx(**request)}
    except RuntimeError as error:
        answer = {"error": str(error)}
    output.write(json.dumps(answer) + "\n")
    output.flush()


def _ptx(text: str, cpu: str, features: str, level: int) -> str:
    import llvmlite.binding as llvm

    options = LLVMOptions("nvptx64-nvidia-cuda", cpu, features, level)
    machine = create_machine(options)
    module = llvm.parse_assembly(text, llvm.create_context())
    module.verify()
    # Schedules say where vectors are: more of them would only be cut up again.
    tuning = llvm.create_pipeline_tuning_options(speed_level=level)
    tuning.loop_vectorization = tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, tuning)
    builder.getModulePassManager().run(module, builder)
    ptx: str = machine.emit_assembly(module)
    return ptx
