"""Other ways to a server: proxies, servers behind servers, programs, TLS."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import rpc
from tests.rpc.support import SECRET, TestServer, serving, wait_until
from tests.support import ROOT, clean_environment, require_program

# ---- proxies ----


def behind(proxy: rpc.Proxy, **settings: Any) -> rpc.Server:
    """A server that waits at a proxy."""
    return rpc.Server("127.0.0.1", proxy.port, is_proxy=True, silent=True, **settings)


def test_a_client_reaches_a_server_through_a_proxy() -> None:
    proxy = rpc.Proxy(port=0, silent=True)
    server = behind(proxy, key="hidden")
    for _ in range(3):
        with rpc.connect("127.0.0.1", proxy.port, key="hidden", session_timeout=60) as remote:
            values = np.random.default_rng(0).bytes(3 << 20)
            array = tvm.nd.array(np.frombuffer(values, "uint8"), remote.cpu(0))
            assert array.numpy().tobytes() == values
            remote.upload(b"x", target="a")
            assert remote.listdir() == ["a"]
    server.terminate()
    proxy.terminate()


def test_a_proxy_may_start_after_its_server() -> None:
    first = rpc.Proxy(port=0, silent=True)
    server = behind(first, key="hidden")
    rpc.connect("127.0.0.1", first.port, key="hidden").close()
    first.terminate()
    second = rpc.Proxy(port=first.port, port_end=first.port, silent=True)
    rpc.connect("127.0.0.1", first.port, key="hidden").close()
    server.terminate()
    second.terminate()


def test_a_key_that_no_server_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.rpc.proxy.WAIT_S", 0.2)
    monkeypatch.setattr("sterna.rpc.client.CONNECT_S", 2.0)
    proxy = rpc.Proxy(port=0, silent=True)
    with pytest.raises(rpc.RPCError, match="busy"):
        rpc.connect("127.0.0.1", proxy.port, key="none")
    proxy.terminate()


def test_both_ends_prove_themselves_through_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_RPC_SECRET", SECRET)
    proxy = rpc.Proxy(port=0, silent=True)
    server = behind(proxy, key="hidden")
    rpc.connect("127.0.0.1", proxy.port, key="hidden").close()
    code = f"from sterna import rpc; rpc.connect('127.0.0.1', {proxy.port}, key='hidden')"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, cwd=ROOT,
        env=clean_environment(STERNA_RPC_SECRET="other"),
    )
    assert "PermissionError" in done.stderr and "the secret is wrong" in done.stderr
    server.terminate()
    proxy.terminate()


# ---- servers behind servers ----


def test_a_server_passes_a_session_on() -> None:
    with serving(key="gate") as gate, serving(key="inner") as inner:
        with rpc.connect(
            "127.0.0.1", gate.port, "gate",
            session_constructor_args=["rpc.Connect", "127.0.0.1", inner.port, "inner", False],
        ) as remote:
            assert remote.get_function("test.add_one")(1) == 2
            x = tvm.nd.array(np.arange(1 << 20, dtype="float32"), remote.cpu(0))
            remote.get_function("test.double_in_place")(x)
            np.testing.assert_array_equal(x.numpy(), 2 * np.arange(1 << 20, dtype="float32"))
            process = remote.get_function("test.process")()
        wait_until(lambda: not Path(f"/proc/{process}").exists())
        with pytest.raises(rpc.RPCError, match="another key"):
            rpc.connect(
                "127.0.0.1", gate.port, "gate",
                session_constructor_args=["rpc.Connect", "127.0.0.1", inner.port, "wrong"],
            )
        with pytest.raises(ValueError, match=r"not by 'rpc\.Magic'"):
            rpc.connect("127.0.0.1", gate.port, "gate", session_constructor_args=["rpc.Magic"])


def test_a_server_behind_a_proxy_passes_a_session_on() -> None:
    proxy = rpc.Proxy(port=0, silent=True)
    gate = behind(proxy, key="gate")
    with serving(key="inner") as inner:
        onward = ["rpc.Connect", "127.0.0.1", inner.port, "inner", False]
        with rpc.connect(
            "127.0.0.1", proxy.port, "gate", session_constructor_args=onward
        ) as remote:
            assert remote.get_function("test.add_one")(1) == 2
    gate.terminate()
    proxy.terminate()


# ---- programs ----


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """A program that serves over its standard streams."""
    path = tmp_path / "serve"
    source = (ROOT / "tests" / "rpc" / "pipe_server.py").read_text()
    path.write_text(f"#!{sys.executable}\n{source}")
    path.chmod(0o700)
    return path


def test_a_session_on_a_program(program: Path) -> None:
    session = rpc.PopenSession(program)
    assert session.get_function("test.add_one")(1) == 2
    assert tvm.nd.array(np.ones(3), session.cpu(0)).numpy().tolist() == [1, 1, 1]
    process = session._program.process
    session.close()
    assert process.poll() is not None
    with rpc.PopenSession(program.read_bytes()) as again:
        assert again.get_function("test.add_one")(2) == 3
    with pytest.raises(FileNotFoundError, match="cannot start"):
        rpc.PopenSession("/nonexistent/program")


def test_a_program_on_a_server(server: TestServer, program: Path) -> None:
    args = ["rpc.PopenSession", program.read_bytes()]
    with server.connect(key="board", session_constructor_args=args) as remote:
        assert remote.get_function("test.add_one")(1) == 2
        with pytest.raises(AttributeError, match=r"test\.process"):
            remote.get_function("test.process")


# ---- TLS ----


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, str]]:
    """Two certificates, each signed by itself, and their keys."""
    require_program("openssl")
    made = []
    for name in ("ours", "theirs"):
        folder = tmp_path_factory.mktemp(name)
        subprocess.run(
            ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj",
             "/CN=server", "-out", folder / "cert.pem", "-keyout", folder / "key.pem"],
            check=True, capture_output=True,
        )
        made.append((str(folder / "cert.pem"), str(folder / "key.pem")))
    return made


def test_tls_by_a_certificate(
    certificates: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (cert, key), (other, _) = certificates
    with serving(key="board", tls_cert=cert, tls_key=key) as server:
        with server.connect(key="board", tls_ca=cert, session_timeout=30) as remote:
            assert remote.get_function("test.add_one")(1) == 2
            values = np.random.default_rng(0).random(1 << 18)
            array = tvm.nd.array(values, remote.cpu(0))
            np.testing.assert_array_equal(array.numpy(), values)
            assert remote.get_function("test.call_back")(lambda n: n + 1, 3) == [1, 2, 3]
        with pytest.raises(PermissionError, match="no certificate that is trusted here"):
            server.connect(key="board", tls_ca=other)
        with pytest.raises((rpc.RPCError, PermissionError)):
            server.connect(key="board")
        monkeypatch.setenv("STERNA_RPC_TLS_CA", cert)
        server.connect(key="board").close()


def test_a_tracker_and_its_servers_over_tls(certificates: list[tuple[str, str]]) -> None:
    ((cert, key), _) = certificates
    tracker = rpc.Tracker(port=0, silent=True, tls_cert=cert, tls_key=key)
    settings = {"tls_cert": cert, "tls_key": key, "tls_ca": cert}
    with (
        serving(key="board", tracker=("127.0.0.1", tracker.port), **settings),
        rpc.connect_tracker("127.0.0.1", tracker.port, tls_ca=cert) as session,
    ):
        assert session.request_and_run("board", lambda remote: remote.listdir()) == []
    tracker.terminate()


def test_a_time_limit_holds_over_tls(certificates: list[tuple[str, str]]) -> None:
    ((cert, key), _) = certificates
    with serving(tls_cert=cert, tls_key=key) as server:
        remote = server.connect(tls_ca=cert, session_timeout=1.5)
        sleep = remote.get_function("test.sleep")
        with pytest.raises(rpc.RPCSessionTimeoutError, match=r"session_timeout=1\.5"):
            sleep(30.0)


# ---- many threads ----


def test_threads_share_a_session(remote: rpc.RPCSession) -> None:
    add_one = remote.get_function("test.add_one")
    found: list[int] = []

    def work(start: int) -> None:
        array = tvm.nd.array(np.full(100, start), remote.cpu(0))
        for number in range(50):
            found.append(add_one(start + number))
        assert array.numpy().tolist() == [start] * 100

    threads = [threading.Thread(target=work, args=(1000 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(found) == sorted(1000 * n + i + 1 for n in range(4) for i in range(50))
