"""Servers: who gets in, what a session may take, and that nothing is left when it ends."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import rpc
from sterna.contrib import cc
from sterna.rpc import frames
from sterna.rpc.remote_memory import ADDRESSES, OFFSET_BITS
from sterna.rpc.settings import machine_memory
from tests.rpc.support import (
    SECRET,
    TestServer,
    is_running,
    leftovers,
    limited,
    serving,
    wait_until,
)
from tests.support import ROOT, clean_environment, require_program

# ---- who gets in ----


@pytest.fixture(scope="module")
def closed() -> Any:
    made = TestServer(secret=SECRET, key="board")
    yield made
    made.stop()


def test_the_secret_lets_in(closed: TestServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_RPC_SECRET", SECRET)
    with closed.connect(key="board") as remote:
        assert remote.get_function("test.add_one")(1) == 2


@pytest.mark.parametrize(
    ("secret", "text"), [("wrong", "the secret is wrong"), ("", "wants a secret")]
)
def test_strangers_stay_out(
    closed: TestServer, monkeypatch: pytest.MonkeyPatch, secret: str, text: str
) -> None:
    monkeypatch.setenv("STERNA_RPC_SECRET", secret)
    with pytest.raises(PermissionError, match=rf"127\.0\.0\.1:{closed.port}: .*{text}"):
        closed.connect(key="board")


def test_a_client_with_a_secret_refuses_a_server_without(
    server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STERNA_RPC_SECRET", SECRET)
    with pytest.raises(PermissionError, match="started without a secret"):
        server.connect(key="board")


def test_the_key_must_be_the_servers(server: TestServer) -> None:
    with pytest.raises(rpc.RPCError, match="another key"):
        server.connect(key="other")


def test_nobody_listens_to_the_world_without_a_secret() -> None:
    for start in (rpc.Server, rpc.Tracker, rpc.Proxy):
        line = r"on each machine:\nexport STERNA_RPC_SECRET=\w{64}"
        with pytest.raises(PermissionError, match=line):
            start(host="0.0.0.0", port=0)
    for program in ("rpc_server", "rpc_tracker", "rpc_proxy"):
        done = subprocess.run(
            [sys.executable, "-m", f"sterna.exec.{program}", "--host=0.0.0.0", "--port=0"],
            capture_output=True, text=True, timeout=60, env=clean_environment(STERNA_RPC_SECRET=""),
        )
        assert done.returncode == 1 and "\nexport STERNA_RPC_SECRET=" in done.stderr


def test_what_is_no_server_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed_port:
        port = closed_port.getsockname()[1]
    with pytest.raises(rpc.RPCError, match=rf"cannot connect to 127.0.0.1:{port}: .*is a server"):
        rpc.connect("127.0.0.1", port)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=lambda: listener.accept()[0].sendall(b"HTTP" * 20)).start()
        with pytest.raises(rpc.RPCError, match="no Sterna server"):
            rpc.connect("127.0.0.1", listener.getsockname()[1])


def test_silent_strangers_do_not_keep_others_out() -> None:
    with serving(limits=limited(handshake_s=2.0, handshakes=3)) as server:
        idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(6)]
        with server.connect() as remote:
            assert remote.get_function("test.add_one")(1) == 2
        wait_until(lambda: all(is_closed(each) for each in idle))


def is_closed(sock: socket.socket) -> bool:
    """Whether the other side has closed a connection."""
    sock.settimeout(0.01)
    try:
        return sock.recv(1) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


# ---- files ----


@pytest.mark.parametrize(
    "name",
    ["../escape", "/etc/escape", "a/../../b", "..", "", "/", "a//b", "a\\..\\b", "C:escape", "c:/x",
     "a\0b", "a/", "x" * 300, "/".join("a" * 20)],
)
def test_names_stay_inside_the_folder(remote: rpc.RPCSession, name: str) -> None:
    before = remote.listdir()
    for use in (
        lambda: remote.upload(b"x", target=name),
        lambda: remote.download(name),
        lambda: remote.remove(name),
        lambda: remote.load_module(name),
    ):
        with pytest.raises((ValueError, FileNotFoundError)) as caught:
            use()
        assert "outside" in str(caught.value) or "too long" in str(caught.value)
    assert remote.listdir() == before


def test_links_lead_nowhere(remote: rpc.RPCSession, tmp_path: Path) -> None:
    link = remote.get_function("test.link")
    outside = tmp_path / "outside"
    outside.write_text("secret")
    link(str(outside), "file", False)
    link(str(tmp_path), "folder", False)
    for name in ("file", "folder/outside"):
        with pytest.raises(ValueError, match=r"cannot be opened|would lead outside"):
            remote.download(name)
    with pytest.raises(ValueError, match="would lead outside"):
        remote.upload(b"x", target="folder/new")
    with pytest.raises(ValueError, match="would lead outside"):
        remote.listdir("folder")
    remote.upload(b"replaced", target="file")  # the link, not what it points to
    assert remote.download("file") == b"replaced"
    remote.remove("folder")
    assert outside.read_text() == "secret" and sorted(tmp_path.iterdir()) == [outside]


def test_second_names_of_files_outside_are_refused(remote: rpc.RPCSession) -> None:
    folder = Path(remote.get_function("test.folder")())
    outside = folder.parent / f"{folder.name}-outside"
    outside.write_text("secret")
    try:
        remote.get_function("test.link")(str(outside), "hard", True)
        with pytest.raises(ValueError, match="another name for one outside"):
            remote.download("hard")
    finally:
        outside.unlink()


# ---- limits ----


def test_files_have_a_limit() -> None:
    with serving(limits=limited(disk_bytes=6 << 20)) as server, server.connect() as remote:
        remote.upload(bytes(3 << 20), target="a")
        with pytest.raises(ValueError, match=r"'b' does not fit: .* may take 6291456 bytes"):
            remote.upload(bytes(5 << 20), target="b")
        assert remote.listdir() == ["a"]
        remote.upload(bytes(2 << 20), target="b")


def test_memory_has_a_limit() -> None:
    limits = limited(memory_bytes=4 << 30)
    with serving(limits=limits) as server, server.connect() as remote:
        with pytest.raises(MemoryError, match="may take 4294967296 bytes"):
            tvm.nd.empty((5 << 30,), "uint8", remote.cpu(0))
        with pytest.raises(MemoryError):
            remote.get_function("test.take_memory")(5 << 30)
        one = tvm.nd.empty((100 << 20,), "uint8", remote.cpu(0))
        del one
        assert remote.get_function("test.add_one")(1) == 2


def test_memory_has_a_limit_by_default() -> None:
    limits = limited()
    assert 0 < limits.most_memory < machine_memory()
    with serving() as server, server.connect() as remote:
        with pytest.raises(MemoryError, match=f"may take {limits.most_memory} bytes"):
            tvm.nd.empty((machine_memory(),), "uint8", remote.cpu(0))
        with pytest.raises(MemoryError):
            remote.get_function("test.take_memory")(machine_memory())
    assert limited(memory_bytes=0).most_memory == 0  # as much as there is


def test_a_disk_that_is_full_is_told(remote: rpc.RPCSession) -> None:
    """A file that must not grow further stands for it."""
    limits = limited(disk_bytes=1 << 20)
    with serving(limits=limits) as server, server.connect() as other:
        with pytest.raises((OSError, ValueError), match=r"'big'"):
            other.upload(bytes(2 << 20), target="big")
        assert other.listdir() == []


def test_sessions_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.rpc.client.CONNECT_S", 2.0)
    with serving(limits=limited(sessions=1)) as server:
        first = server.connect()
        with pytest.raises(rpc.RPCError, match=r"was busy for 2 seconds"):
            server.connect()
        first.close()
        server.connect().close()


def wait_for_end(process: int) -> None:
    wait_until(lambda: not is_running(process))


def test_a_session_ends_when_its_time_is_over() -> None:
    with serving() as server:
        for work in ("test.sleep", "test.spin"):
            remote = server.connect(session_timeout=1.5)
            function = remote.get_function(work)
            process = remote.get_function("test.process")()
            start = time.monotonic()
            with pytest.raises(rpc.RPCSessionTimeoutError, match=r"session_timeout=1\.5") as caught:
                function(*([30.0] if work == "test.sleep" else []))
            assert isinstance(caught.value, TimeoutError) and time.monotonic() - start < 5
            wait_for_end(process)
            with pytest.raises(rpc.RPCSessionTimeoutError, match=r"session_timeout=1\.5"):
                remote.listdir()  # whoever asks later is told the same
        with server.connect() as remote:
            assert remote.get_function("test.add_one")(1) == 2


def test_the_server_may_set_the_time() -> None:
    with serving(limits=limited(session_s=1.5)) as server:
        remote = server.connect(session_timeout=60)
        sleep = remote.get_function("test.sleep")
        with pytest.raises(rpc.RPCSessionTimeoutError, match=r"session_timeout=1\.5"):
            sleep(30.0)


# ---- ends ----


def test_nothing_is_left_of_a_session() -> None:
    with serving() as server:
        remote = server.connect()
        remote.upload(b"x", target="file")
        folder = Path(remote.get_function("test.folder")())
        names = ("test.process", "test.start_daemon")
        processes = [remote.get_function(name)() for name in names]
        assert all(map(is_running, processes)) and (folder / "file").exists()
        remote.close()
        wait_until(lambda: not any(map(is_running, processes)) and not folder.exists())


CLIENT = """
import os, sys
from sterna import rpc
remote = rpc.connect("127.0.0.1", int(sys.argv[1]))
print(remote.get_function("test.process")(), flush=True)
remote.get_function("test.spin")()
"""


def test_a_client_that_dies_in_a_call_leaves_a_free_server() -> None:
    with serving() as server:
        client = subprocess.Popen(
            [sys.executable, "-c", CLIENT, str(server.port)], stdout=subprocess.PIPE, text=True
        )
        assert client.stdout is not None
        worker = int(client.stdout.readline())
        client.send_signal(signal.SIGKILL)
        client.wait()
        wait_until(lambda: not is_running(worker))
        client.stdout.close()
        with server.connect() as remote:
            assert remote.get_function("test.add_one")(1) == 2


def test_a_client_learns_that_its_session_crashed(server: TestServer) -> None:
    remote = server.connect(key="board")
    with pytest.raises(rpc.RPCError, match="what ran there crashed"):
        remote.get_function("test.crash")()
    with pytest.raises(rpc.RPCError, match="the session has ended"):
        remote.listdir()
    with server.connect(key="board") as again:
        assert again.get_function("test.add_one")(1) == 2


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL])
def test_a_server_that_is_killed_in_a_call_ends_its_sessions(sign: int) -> None:
    server = TestServer()
    remote = server.connect()
    worker = remote.get_function("test.process")()
    folder = Path(remote.get_function("test.folder")())
    spin = remote.get_function("test.spin")
    threading.Timer(0.3, lambda: server.process.send_signal(sign)).start()
    with pytest.raises(rpc.RPCError, match="The server was stopped"):
        spin()
    server.process.wait(10)
    wait_until(lambda: not is_running(worker) and not folder.exists())
    server.stop()


def test_an_interrupted_call_ends_its_session(server: TestServer) -> None:
    remote = server.connect(key="board")
    worker = remote.get_function("test.process")()
    sleep = remote.get_function("test.sleep")
    # programs in the background of a shell ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        with pytest.raises(KeyboardInterrupt):
            sleep(30.0)
    finally:
        signal.signal(signal.SIGINT, before)
    wait_until(lambda: not is_running(worker))
    with pytest.raises(rpc.RPCError, match="interrupted"):
        remote.listdir()


def test_frames_that_make_no_sense_end_the_session(server: TestServer) -> None:
    remote = server.connect(key="board")
    remote._peer.stream.send(b"nonsense" * 4)
    with pytest.raises(rpc.RPCProtocolError, match="what came is no frame"):
        remote.listdir()
    remote = server.connect(key="board")
    huge = frames.HEADER.pack(frames.MAGIC, frames.CALL, 0, (1 << 32) - 1, 0)
    remote._peer.stream.send(huge)
    with pytest.raises(rpc.RPCProtocolError, match="at most 67108864 are taken"):
        remote.listdir()


def test_handles_are_checked_before_they_are_believed(remote: rpc.RPCSession) -> None:
    array = tvm.nd.array(np.arange(4, dtype="float32"), remote.cpu(0))
    blocks = ADDRESSES._blocks
    number = array.data_ptr() >> OFFSET_BITS
    (owner, handle), blocks[number] = blocks[number], (remote._peer.memory, 99999)
    with pytest.raises(ValueError, match="no NDArray with the handle 99999"):
        array.numpy()
    with pytest.raises(ValueError, match="no NDArray with the handle 99999"):
        array.copyfrom(np.zeros(4, "float32"))
    with pytest.raises(ValueError, match="no NDArray with the handle 99999"):
        remote.get_function("test.double_in_place")(array)
    blocks[number] = owner, handle
    assert array.numpy().tolist() == [0, 1, 2, 3]


# ---- starting ----


def test_a_server_without_fork() -> None:
    before = leftovers()
    server = rpc.Server(port=0, silent=True, no_fork=True)
    with rpc.connect("127.0.0.1", server.port) as remote:
        assert tvm.nd.array(np.ones(3), remote.cpu(0)).numpy().tolist() == [1, 1, 1]
    server.terminate()
    server.terminate()
    wait_until(lambda: leftovers() <= before)


def test_a_server_with_functions_of_this_process() -> None:
    def prepare() -> None:
        tvm.register_func("test.prepared", lambda x: x * 3)

    server = rpc.Server(port=0, silent=True, server_init_callback=prepare)
    with rpc.connect("127.0.0.1", server.port) as remote:
        assert remote.get_function("test.prepared")(5) == 15
    server.terminate()


EXTENSION = """
#include "sterna.h"
static int answer(void *self, const sterna_any *args, int32_t n, sterna_any *ret) {
  (void)self, (void)args, (void)n;
  *ret = sterna_any_int(42);
  return 0;
}
__attribute__((constructor)) static void announce(void) {
  sterna_function *function;
  if (sterna_function_create(answer, 0, 0, &function)) return;
  sterna_register_function("test.extension", function, 1);
  sterna_release(function);
}
"""


@pytest.mark.parametrize("no_fork", [False, True])
def test_a_server_loads_libraries_first(no_fork: bool, tmp_path: Path) -> None:
    require_program("cc")
    (tmp_path / "extension.c").write_text(EXTENSION)
    cc.create_shared(tmp_path / "extension.so", tmp_path / "extension.c")
    library = str(tmp_path / "extension.so")
    server = rpc.Server(port=0, silent=True, no_fork=no_fork, load_library=library)
    with rpc.connect("127.0.0.1", server.port) as remote:
        assert remote.get_function("test.extension")() == 42
    server.terminate()


def test_the_program_takes_the_known_flags() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "sterna.exec.rpc_server", "--host", "127.0.0.1", "--port", "0",
         "--port-end", "9999", "--key", "board", "--max-seconds", "20"],
        stderr=subprocess.PIPE, text=True, cwd=ROOT, env=clean_environment(STERNA_RPC_SECRET=""),
    )
    assert process.stderr is not None
    port = int(process.stderr.readline().rpartition(":")[2])
    with rpc.connect("127.0.0.1", port, key="board") as remote:
        assert remote.listdir() == [] and remote._peer.timeout_s == 20
    process.terminate()
    assert process.wait(10) == 0
    process.stderr.close()


def test_settings_that_do_not_go_together() -> None:
    with pytest.raises(ValueError, match="needs a key that clients ask for"):
        rpc.Server(port=0, tracker_addr=("127.0.0.1", 9190))
    with pytest.raises(ValueError, match="found by the proxy, not by a tracker"):
        rpc.Server(port=1, is_proxy=True, key="k", tracker_addr="127.0.0.1:9190")
    with pytest.raises(ValueError, match="has not the form HOST:PORT"):
        rpc.Server(port=0, key="k", tracker_addr="127.0.0.1")
