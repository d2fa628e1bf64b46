"""The server in C beside the one in Python: the same client, the same results."""

import os
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, rpc, te
from sterna.contrib import cc, graph_executor
from sterna.rpc.streams import SocketStream
from sterna.support.server_program import build_server
from sterna.target import Target, machine_of
from sterna.testing.fuzz import wire
from tests.rpc.c_server import Running, running
from tests.rpc.support import SECRET, is_running, wait_until

LIBRARY = """
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "sterna.h"

/* (function, value): calls the function on the value, and again on the result */
STERNA_FUNCTION(apply_twice) {
  sterna_function *f;
  sterna_any once = {0};
  (void)self;
  if (n != 2 || sterna_as_function(&args[0], &f)) return -1;
  if (sterna_function_call(f, &args[1], 1, &once)) return -1;
  int failed = sterna_function_call(f, &once, 1, ret);
  sterna_any_release(&once);
  return failed;
}
STERNA_FUNCTION(same) {
  (void)self;
  return sterna_list(args, n, ret);
}
STERNA_FUNCTION(fail) {
  (void)self; (void)args; (void)n; (void)ret;
  return sterna_set_error("KeyError", "as asked");
}
STERNA_FUNCTION(crash) {
  (void)self; (void)args; (void)n; (void)ret;
  signal(SIGABRT, SIG_DFL);
  abort();
}
STERNA_FUNCTION(spin) {
  (void)self; (void)args; (void)n; (void)ret;
  for (volatile long i = 0;; i++) continue;
}
STERNA_FUNCTION(sleep) {
  (void)self; (void)args; (void)n; (void)ret;
  sleep(600);
  return 0;
}
/* the numbers of a child and of a grandchild that has left its group and its session */
STERNA_FUNCTION(spawn) {
  int ends[2];
  long grandchild = 0;
  (void)self; (void)args; (void)n;
  if (pipe(ends)) return -1;
  pid_t child = fork();
  if (child == 0) {
    pid_t inner = fork();
    if (inner == 0) {
      setsid();
      signal(SIGTERM, SIG_IGN);
      sleep(600);
    }
    grandchild = inner;
    if (write(ends[1], &grandchild, sizeof grandchild) < 0) _exit(1);
    _exit(0); /* the grandchild is an orphan now */
  }
  if (read(ends[0], &grandchild, sizeof grandchild) < 0) return -1;
  *ret = sterna_any_int(grandchild);
  return 0;
}
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("library")
    (folder / "tricks.c").write_text(LIBRARY)
    cc.create_shared(folder / "tricks.so", folder / "tricks.c")
    return folder / "tricks.so"


@pytest.fixture
def server(sanitized: Path) -> Iterator[Running]:
    with running([sanitized], "--max-sessions", "2", "--max-disk", "2M") as made:
        yield made


@pytest.fixture
def remote(server: Running) -> Iterator[rpc.RPCSession]:
    with rpc.connect("127.0.0.1", server.port) as session:
        yield session


@pytest.fixture
def tricks(remote: rpc.RPCSession, library: Path) -> tvm.Module:
    remote.upload(library)
    return remote.load_module("tricks.so")


def network() -> tuple[Any, Any, Any]:
    """A small network with its parameters, an input, and what it gives by NumPy."""
    rng = np.random.default_rng(3)
    w = rng.standard_normal((4, 8)).astype("float32")
    x = rng.standard_normal((1, 8)).astype("float32")
    data, weight = relay.var("data", shape=(1, 8)), relay.var("w", shape=(4, 8))
    mod = tvm.IRModule.from_expr(relay.nn.relu(relay.nn.dense(data, weight)))
    return (mod, {"w": w}), x, np.maximum(x @ w.T, 0)


# ---- values, arrays, functions ----


def test_values_come_back_as_they_went(tricks: tvm.Module, remote: rpc.RPCSession) -> None:
    values: list[Any] = [
        None, True, False, 0, -(2**63), 2**63 - 1, 0.5, "", "täglich\0", "short", b"", b"\0\xff",
        [], [1, ["a", [None]]], "x" * 100_000,
    ]
    assert tricks["same"](*values) == values
    assert tricks["same"](tvm.DataType("int8x4"), remote.cpu(3)) == ["int8x4", remote.cpu(3)]
    x = tvm.nd.array(np.arange(6, dtype="int16").reshape(2, 3), remote.cpu(0))
    (back,) = tricks["same"](x)
    assert (back.numpy() == x.numpy()).all() and back.dtype == "int16"


def test_arrays_live_on_the_server(remote: rpc.RPCSession) -> None:
    a = np.random.default_rng(1).standard_normal((300, 401))
    x = tvm.nd.array(a, remote.cpu(0))
    y = tvm.nd.empty(a.shape, "float64", remote.cpu(0))
    x.copyto(y)
    assert (y.numpy() == a).all()
    y.copyfrom(a + 1)
    assert (y.numpy() == a + 1).all() and (x.numpy() == a).all()
    empty = tvm.nd.array(np.empty((0, 3), "float32"), remote.cpu(0))
    assert empty.numpy().shape == (0, 3)
    with pytest.raises((RuntimeError, ValueError), match=r"cuda|device"):
        tvm.nd.empty((2,), "float32", remote.cuda(0))


def test_functions_go_both_ways(tricks: tvm.Module) -> None:
    assert tricks["apply_twice"](lambda value: value + 5, 1) == 11
    (again,) = tricks["same"](tricks["apply_twice"])
    assert again(lambda value: value * 3, 2) == 18

    def refuse(value: int) -> int:
        raise LookupError(f"not {value}")

    with pytest.raises(LookupError, match="not 1"):
        tricks["apply_twice"](refuse, 1)
    assert tricks["apply_twice"](lambda v: tricks["apply_twice"](lambda u: u + 1, v), 0) == 4


def test_errors_have_their_class(tricks: tvm.Module, remote: rpc.RPCSession) -> None:
    with pytest.raises(KeyError, match="as asked"):
        tricks["fail"]()
    with pytest.raises(AttributeError):
        tricks["nothing"]
    with pytest.raises(AttributeError, match="has no function 'nothing'"):
        remote.get_function("nothing")


# ---- files and modules ----


def test_files(remote: rpc.RPCSession) -> None:
    data = os.urandom(700_000)
    remote.upload(bytearray(data), "deep/er/x.bin")
    assert remote.download("deep/er/x.bin") == data
    assert remote.listdir() == ["deep"] and remote.listdir("deep/er") == ["x.bin"]
    remote.remove("deep")
    assert remote.listdir() == []
    with pytest.raises(FileNotFoundError, match=r"x\.bin"):
        remote.download("deep/er/x.bin")
    for name in ("../x", "/tmp/x", "a/../../x", ""):
        with pytest.raises(ValueError, match="the file name"):
            remote.upload(b"x", name)
    with pytest.raises(OSError, match="'big' does not fit"):
        remote.upload(bytes(3 << 20), "big")
    assert remote.listdir() == []


def test_networks_in_libraries_and_archives(remote: rpc.RPCSession, tmp_path: Path) -> None:
    (mod, params), x, want = network()
    lib = relay.build(mod, "llvm", params=params)
    for name in ("net.so", "net.tar"):
        lib.export_library(tmp_path / name)
        remote.upload(tmp_path / name)
        loaded = remote.load_module(name)
        net = graph_executor.GraphModule(loaded["default"](remote.cpu(0)))
        net.run(data=x)
        np.testing.assert_allclose(net.get_output(0).numpy(), want, rtol=1e-5)
        times = net.module.time_evaluator("run", remote.cpu(0), number=3, repeat=4)().results
        assert len(times) == 4 and all(0 < seconds < 1 for seconds in times)
    linked = remote.download_linked_module("net.tar")
    assert linked[:4] == b"\x7fELF"


def test_networks_ahead_of_time(remote: rpc.RPCSession, tmp_path: Path) -> None:
    (mod, params), x, want = network()
    executor = relay.backend.Executor("aot")
    relay.build(mod, "llvm", params=params, executor=executor).export_library(tmp_path / "aot.so")
    remote.upload(tmp_path / "aot.so")
    net = tvm.runtime.executor.AotModule(remote.load_module("aot.so")["default"](remote.cpu(0)))
    net.set_input("data", x)
    net.run()
    np.testing.assert_allclose(net.get_output(0).numpy(), want, rtol=1e-5)


def test_parts_of_a_network(remote: rpc.RPCSession, tmp_path: Path) -> None:
    """The graph's text comes from the client, the functions from a library."""
    (mod, params), x, want = network()
    lib = relay.build(mod, "llvm", params=params)
    lib.get_lib().export_library(tmp_path / "functions.so")
    remote.upload(tmp_path / "functions.so")
    functions = remote.load_module("functions.so")
    net = graph_executor.create(lib.get_graph_json(), functions, remote.cpu(0))
    net.load_params(relay.save_param_dict(lib.get_params()))
    net.run(data=x)
    np.testing.assert_allclose(net.get_output(0).numpy(), want, rtol=1e-5)


def test_kernels(remote: rpc.RPCSession, tmp_path: Path) -> None:
    n = te.size_var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="b")
    tvm.build(te.create_schedule(b.op), [a, b], name="double").export_library(tmp_path / "k.so")
    remote.upload(tmp_path / "k.so")
    module = remote.load_module("k.so")
    x = tvm.nd.array(np.arange(10, dtype="float32"), remote.cpu(0))
    y = tvm.nd.empty((10,), "float32", remote.cpu(0))
    module["double"](x, y)
    assert (y.numpy() == 2 * np.arange(10)).all()
    with pytest.raises(TypeError, match="argument b must be of type float32"):
        module["double"](x, tvm.nd.empty((10,), "int32", remote.cpu(0)))


def test_files_that_are_no_libraries(remote: rpc.RPCSession) -> None:
    for name, data, reason in (
        ("text.so", b"int main;", "cannot load 'text.so': it is not a shared library"),
        ("short.tar", b"x" * 100, "cannot load 'short.tar': it is no complete tar file"),
        ("empty.tar", bytes(1024), "cannot load 'empty.tar': it holds no lib.so"),
        ("part.o", b"\x7fELF", "a server without Python loads .so and .tar"),
    ):
        remote.upload(bytearray(data), name)
        with pytest.raises(ValueError, match=reason):
            remote.load_module(name)


# ---- what a session may not do, and its end ----


def test_a_crash_ends_the_session_alone(
    tricks: tvm.Module, server: Running, remote: rpc.RPCSession
) -> None:
    with rpc.connect("127.0.0.1", server.port) as other:
        with pytest.raises(rpc.RPCError, match="signal 6"):
            tricks["crash"]()
        assert other.listdir() == []


def test_everything_that_a_session_started_ends_with_it(
    tricks: tvm.Module, server: Running, remote: rpc.RPCSession
) -> None:
    grandchild = tricks["spawn"]()
    assert is_running(grandchild)
    remote.close()
    server.await_quiet()
    assert not is_running(grandchild)


def test_a_session_ends_when_its_time_is_over(server: Running, library: Path) -> None:
    remote = rpc.connect("127.0.0.1", server.port, session_timeout=1)
    remote.upload(library)
    sleep = remote.load_module("tricks.so")["sleep"]
    start = time.monotonic()
    with pytest.raises(rpc.RPCSessionTimeoutError):
        sleep()
    assert time.monotonic() - start < 10
    server.await_quiet()


def test_a_session_ends_when_its_client_is_gone(server: Running, library: Path) -> None:
    remote = rpc.connect("127.0.0.1", server.port)
    remote.upload(library)
    sleep = remote.load_module("tricks.so")["sleep"]
    session, stream = server.session(), remote._peer.stream
    assert isinstance(stream, SocketStream)
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(sleep)
        time.sleep(0.2)
        stream.socket.shutdown(socket.SHUT_RDWR)
        wait_until(lambda: not is_running(session))
        assert call.exception() is not None
    server.await_quiet()


def test_a_server_takes_no_more_sessions_than_it_was_told(server: Running) -> None:
    address = ("127.0.0.1", server.port)
    with socket.create_connection(address) as one, socket.create_connection(address) as two:
        assert wire.shake_hands(one) == 0 and wire.shake_hands(two) == 0
        with socket.create_connection(address) as three:
            assert wire.shake_hands(three) == 5


def test_arrays_are_limited(tmp_path: Path) -> None:
    build_server(tmp_path / "server", machine_of(Target("llvm")).triple)
    with (
        running([tmp_path / "server"], "--max-memory", "300M") as server,
        rpc.connect("127.0.0.1", server.port) as remote,
    ):
        kept = [tvm.nd.empty((10 << 20,), "uint8", remote.cpu(0)) for _ in range(4)]
        with pytest.raises(MemoryError, match="may take 314572800 bytes"):
            tvm.nd.empty((290 << 20,), "uint8", remote.cpu(0))
        assert len(kept) == 4 and remote.listdir() == []


def test_memory_is_limited_if_nobody_says_how(tmp_path: Path) -> None:
    build_server(tmp_path / "server", machine_of(Target("llvm")).triple)
    wanted = os.sysconf("SC_PHYS_PAGES") // 4 * 3 * os.sysconf("SC_PAGE_SIZE")
    for limits, *options in ([[wanted, -1]], [[-1, -1], "--max-memory", "0"]):
        with (
            running([tmp_path / "server"], *map(str, options)) as server,
            socket.create_connection(("127.0.0.1", server.port)) as sock,
        ):
            assert wire.shake_hands(sock) == 0
            session = server.session()
            kinds = (resource.RLIMIT_DATA, resource.RLIMIT_AS)
            deadline = time.monotonic() + 10  # the session sets them when it begins
            while [resource.prlimit(session, kind)[0] for kind in kinds] != limits:
                assert time.monotonic() < deadline
                time.sleep(0.02)


def test_the_processors_time_is_limited(sanitized: Path, library: Path) -> None:
    with (
        running([sanitized], "--max-cpu", "1") as server,
        rpc.connect("127.0.0.1", server.port) as remote,
    ):
        remote.upload(library)
        with pytest.raises(rpc.RPCError, match="ended by signal"):
            remote.load_module("tricks.so")["spin"]()


LOADED = """
#include "sterna.h"
static int answer(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self; (void)args; (void)n;
  *ret = sterna_any_int(42);
  return 0;
}
__attribute__((constructor)) static void begin(void) {
  sterna_register("test.answer", answer, 0, 0);
}
"""


def test_libraries_that_are_loaded_at_first(sanitized: Path, tmp_path: Path) -> None:
    (tmp_path / "first.c").write_text(LOADED)
    cc.create_shared(tmp_path / "first.so", tmp_path / "first.c")
    with (
        running([sanitized], "--load-library", str(tmp_path / "first.so")) as server,
        rpc.connect("127.0.0.1", server.port) as remote,
    ):
        assert remote.get_function("test.answer")() == 42


# ---- secrets, keys, trackers ----


def test_secrets(sanitized: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running([sanitized], "--host", "0.0.0.0", "--key", "board", secret=SECRET) as server:
        with pytest.raises(PermissionError, match="the server wants a secret"):
            rpc.connect("127.0.0.1", server.port, key="board")
        monkeypatch.setenv("STERNA_RPC_SECRET", "wrong")
        with pytest.raises(PermissionError, match="the secret is wrong"):
            rpc.connect("127.0.0.1", server.port, key="board")
        monkeypatch.setenv("STERNA_RPC_SECRET", SECRET)
        with pytest.raises(rpc.RPCError, match="the server has another key"):
            rpc.connect("127.0.0.1", server.port, key="other")
        with rpc.connect("127.0.0.1", server.port, key="board") as remote:
            assert remote.listdir() == []


def test_a_secret_in_a_file(
    sanitized: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret").write_text(SECRET + "\n")
    monkeypatch.setenv("STERNA_RPC_SECRET", SECRET)
    with (
        running([sanitized], "--secret-file", str(tmp_path / "secret")) as server,
        rpc.connect("127.0.0.1", server.port) as remote,
    ):
        assert remote.listdir() == []


def test_a_tracker_hands_it_out(sanitized: Path) -> None:
    tracker = rpc.Tracker(port=0, silent=True)
    try:
        options = ("--tracker", f"127.0.0.1:{tracker.port}", "--key", "board")
        with running([sanitized], *options) as server:
            session = rpc.connect_tracker("127.0.0.1", tracker.port)
            for _ in range(3):  # a fresh match key each time
                with session.request("board", session_timeout=60) as remote:
                    assert remote.listdir() == []
            with pytest.raises(rpc.RPCError, match="connect_tracker"):
                rpc.connect("127.0.0.1", server.port, key="board")
            session.close()
    finally:
        tracker.terminate()


def test_a_proxy_leads_to_it(
    sanitized: Path, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STERNA_RPC_SECRET", SECRET)
    proxy = rpc.Proxy(port=0, silent=True)
    try:
        options = ("--through-proxy", "--port", str(proxy.port), "--key", "hidden")
        with running([sanitized], *options, secret=SECRET):
            for _ in range(2):
                with rpc.connect("127.0.0.1", proxy.port, key="hidden") as remote:
                    remote.upload(library)
                    twice = remote.load_module("tricks.so")["apply_twice"]
                    assert twice(lambda value: value * 2, 3) == 12
    finally:
        proxy.terminate()


def test_a_program_behind_pipes(sanitized: Path, library: Path) -> None:
    remote = rpc.PopenSession(str(sanitized), "--stdio", "--max-memory", "0")  # shadow memory
    remote.upload(library)
    assert remote.load_module("tricks.so")["apply_twice"](lambda value: value + 1, 1) == 3
    remote.close()
