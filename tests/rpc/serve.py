"""A server with functions to test with: python -m tests.rpc.serve SETTINGS."""

import os
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np

import sterna as tvm
from sterna.rpc.addresses import check_may_listen, listen
from sterna.rpc.server import ServerLoop
from sterna.rpc.settings import ServerSettings
from sterna.support.options import options

kept: list[Any] = []


@tvm.register_func("test.add_one")
def add_one(value: int) -> int:
    return value + 1


@tvm.register_func("test.same")
def same(*values: Any) -> list[Any]:
    return list(values)


@tvm.register_func("test.double_in_place")
def double_in_place(array: tvm.nd.NDArray) -> None:
    array.copyfrom(array.numpy() * 2)


@tvm.register_func("test.make_array")
def make_array(count: int) -> tvm.nd.NDArray:
    return tvm.nd.array(np.arange(count, dtype="float32"))


@tvm.register_func("test.describe_array")
def describe_array(array: tvm.nd.NDArray) -> list[Any]:
    return [str(array.dtype), list(array.shape), str(array.device), array.numpy().tobytes()]


@tvm.register_func("test.call_back")
def call_back(function: tvm.runtime.PackedFunc, count: int) -> list[Any]:
    return [function(number) for number in range(count)]


@tvm.register_func("test.compose")
def compose(function: tvm.runtime.PackedFunc) -> Any:
    return lambda value: function(function(value))


@tvm.register_func("test.keep")
def keep(*values: Any) -> None:
    kept[:] = values


@tvm.register_func("test.fail")
def fail(kind: str, message: str) -> None:
    raise {"KeyError": KeyError, "ValueError": ValueError, "SystemExit": SystemExit}[kind](message)


@tvm.register_func("test.sleep")
def sleep(seconds: float) -> None:
    time.sleep(seconds)


@tvm.register_func("test.spin")
def spin() -> None:
    while True:
        pass


@tvm.register_func("test.process")
def process() -> int:
    return os.getpid()


@tvm.register_func("test.crash")
def crash() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@tvm.register_func("test.start_daemon")
def start_daemon() -> int:
    """A grandchild that has left the group, the session and its parent."""
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        sleeper = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        os.write(writes, str(sleeper.pid).encode())
        os._exit(0)
    os.waitpid(child, 0)
    return int(os.read(reads, 32))


@tvm.register_func("test.take_memory")
def take_memory(count: int) -> int:
    return len(bytearray(count))


@tvm.register_func("test.link")
def link(target: str, name: str, is_hard: bool) -> None:
    (os.link if is_hard else os.symlink)(target, name)


@tvm.register_func("test.folder")
def folder() -> str:
    return os.getcwd()


def main() -> None:
    host, port, settings = sys.argv[1:]
    check_may_listen(host, options.rpc_secret)
    listener = listen(host, int(port), int(port))
    print(listener.getsockname()[1], flush=True)
    ServerLoop(listener, ServerSettings.from_json(settings)).run(0)


if __name__ == "__main__":
    main()
