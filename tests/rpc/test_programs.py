"""The whole way, by the programs that users start: compile here, run and time there."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import sterna as tvm
from sterna import rpc
from sterna.contrib import graph_executor
from tests.rpc.support import SECRET
from tests.rpc.test_models import EXPECTED, INPUT, network
from tests.support import ROOT, clean_environment, require_program


def start(*arguments: str) -> tuple[subprocess.Popen[str], str]:
    """A program, and the port that it says it listens on."""
    process = subprocess.Popen(
        [sys.executable, "-m", *arguments], cwd=ROOT, stderr=subprocess.PIPE, text=True,
        env=clean_environment(STERNA_RPC_SECRET=SECRET),
    )
    assert process.stderr is not None
    return process, process.stderr.readline().rpartition(":")[2].strip()


def test_the_whole_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    require_program("cc")
    monkeypatch.setenv("STERNA_RPC_SECRET", SECRET)
    tracker, tracker_port = start("sterna.exec.rpc_tracker", "--port=0")
    at = f"--tracker=127.0.0.1:{tracker_port}"
    server, port = start("sterna.exec.rpc_server", "--port=0", at, "--key=rpi4")
    try:
        network("graph").export_library(tmp_path / "net.tar")
        session = rpc.connect_tracker("127.0.0.1", int(tracker_port))
        remote = session.request("rpi4", priority=0, session_timeout=60)
        assert "rpi4" in session.text_summary()
        remote.upload(tmp_path / "net.tar")
        library = remote.load_module("net.tar")
        module = graph_executor.GraphModule(library["default"](remote.cpu(0)))
        module.set_input("x", tvm.nd.array(INPUT))
        module.run()
        np.testing.assert_allclose(module.get_output(0).numpy(), EXPECTED, rtol=1e-5)
        timer = module.module.time_evaluator("run", remote.cpu(0), repeat=10, number=10)
        times = np.array(timer().results)
        assert times.shape == (10,) and (times > 0).all()
        with pytest.raises(ValueError, match="outside the session's folder"):
            remote.upload(bytearray(b"x"), target="../escape")
        del module, library, timer, remote
        session.request("rpi4").close()  # it was given back
        session.close()
        monkeypatch.setenv("STERNA_RPC_SECRET", "wrong")
        with pytest.raises(PermissionError, match="the secret is wrong"):
            rpc.connect("127.0.0.1", int(port), key="rpi4")
    finally:
        for process in (server, tracker):
            process.terminate()
            process.wait(10)
            assert process.stderr is not None
            process.stderr.close()


def test_a_server_without_a_secret_does_not_wait_at_a_far_proxy() -> None:
    with pytest.raises(PermissionError, match=r"waiting for clients at the proxy on '192"):
        rpc.Server("192.0.2.1", 9090, is_proxy=True, key="hidden")
