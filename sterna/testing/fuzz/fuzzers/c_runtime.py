"""Hostile graphs and parameters for the C runtime, under the address and behaviour sanitizers."""

import contextlib
import copy
import json
import os
import random
import shutil
import struct
import subprocess
from pathlib import Path
from typing import Any

import numpy as np

from sterna import relay
from sterna.driver.relay_build import build as build_relay
from sterna.ir.module import IRModule
from sterna.runtime import save_param_dict
from sterna.support import native, toolchain
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.fuzzers._runtime_driver import DRIVER
from sterna.testing.fuzz.mutate import INTERESTING, mutate
from sterna.testing.fuzz.tape import Tape

SANITIZED = ("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-lpthread",
             "-ldl", "-lm")
SETTINGS = {
    "ASAN_OPTIONS": "detect_leaks=0:allocator_may_return_null=1:max_allocation_size_mb=256",
    "STERNA_NUM_THREADS": "1",
}
WORDS = ("", "null", "tvm_op", "__nop", "__copy", "x", "float32", "int4", "float32x4", "list_int",
         "-1", "99999999999999999999", "0", "1")


class CRuntime(Fuzzer):
    """A graph is refused or runs, within its own memory, and leaves none behind."""

    name = "c-runtime"
    about = "hostile graphs and parameters for the C runtime, under sanitizers"
    seconds = 30.0
    memory = None  # sanitizers reserve all there is

    def __init__(self) -> None:
        self._bases: list[tuple[Any, bytes]] = []
        self._process: subprocess.Popen[bytes] | None = None

    def missing(self) -> str | None:
        """Sanitizers come with compilers."""
        return None if shutil.which("gcc") else "needs gcc"

    def prepare(self, folder: Path, corpus: Path | None) -> None:
        """Compile the runtime and its driver, and some networks whose graphs are changed."""
        self._folder = folder
        (folder / "driver.c").write_text(DRIVER)
        toolchain.link_executable(
            folder / "driver", [folder / "driver.c", native.runtime_source()], SANITIZED, "gcc",
            needs_runtime=False,
        )
        self._bases = [_graph_of(function) for function in _networks()]

    def check(self, tape: Tape) -> str:
        """Give the driver one case."""
        graph, params = self._draw(tape)
        process = self._driver()
        assert process.stdin is not None and process.stdout is not None
        answer = b""
        with contextlib.suppress(OSError):
            process.stdin.write(struct.pack("<II", len(graph), len(params)) + graph + params)
            process.stdin.flush()
            answer = process.stdout.readline()
        ending = answer.decode().strip()
        if not ending:
            self._process = None
            process.wait(20)
            words = (self._folder / "said").read_text("utf-8", "replace")
            raise AssertionError(f"the runtime ended with {process.returncode}:\n{words[-4000:]}")
        assert ending != "leaked", f"memory is left of\n{graph!r}"
        return ending

    def _driver(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            with open(self._folder / "said", "wb") as said:
                self._process = subprocess.Popen(
                    [self._folder / "driver"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                    stderr=said, env={**os.environ, **SETTINGS},
                )
        return self._process

    def _draw(self, tape: random.Random) -> tuple[bytes, bytes]:
        graph, params = tape.choice(self._bases)
        graph = copy.deepcopy(graph)
        for _ in range(tape.choice((0, 1, 1, 2, 4))):
            _change(graph, tape)
        text = json.dumps(graph).encode()
        if tape.random() > 0.8:
            text = mutate(text, tape, (1, 2))
        return text, mutate(params, tape, (1, 2)) if tape.random() > 0.5 else params


def _networks() -> list[relay.Function]:
    """Graphs with several nodes, constants, tuples and views."""
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(4, 8))
    dense = relay.nn.softmax(relay.nn.dense(x, w))
    picture = relay.var("p", shape=(1, 3, 6, 6))
    window = relay.const(np.ones((4, 3, 3, 3), "float32"))
    conv = relay.nn.relu(relay.nn.conv2d(picture, window, padding=1))
    parts = relay.split(conv, 2, axis=1)
    joined = relay.reshape(relay.add(parts[0], parts[1]), (-1,))
    return [
        relay.Function((x, w), dense),
        relay.Function((picture,), relay.Tuple((joined, relay.nn.global_avg_pool2d(conv)))),
    ]


def _graph_of(function: relay.Function) -> tuple[Any, bytes]:
    built = build_relay(IRModule.from_expr(function), target="llvm")
    return json.loads(built.get_graph_json()), bytes(save_param_dict(built.get_params()))


def _places(node: Any) -> list[tuple[Any, Any]]:
    """Every container and key in a document."""
    found, stack = [], [node]
    while stack:
        part = stack.pop()
        keys = list(part) if isinstance(part, dict) else range(len(part))
        for key in keys:
            found.append((part, key))
            if isinstance(part[key], dict | list):
                stack.append(part[key])
    return found


def _change(graph: Any, rng: random.Random) -> None:
    """One value of a document changed, left out or repeated."""
    part, key = rng.choice(_places(graph))
    value, kind = part[key], rng.random()
    if kind > 0.9:
        del part[key]
    elif kind > 0.8 and isinstance(part, list):
        part.insert(key, copy.deepcopy(value))
    elif isinstance(value, int):
        part[key] = rng.choice((value + 1, value - 1, *INTERESTING))
    elif isinstance(value, str):
        part[key] = rng.choice(WORDS)
    else:
        part[key] = rng.choice((0, "", [], {}, [[]], None, [value]))


FUZZER = CRuntime()
