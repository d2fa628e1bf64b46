"""The server in C on other processors, emulated: networks that were compiled here run there."""

from pathlib import Path

import numpy as np
import pytest

import sterna as tvm
from sterna import rpc
from sterna.contrib import graph_executor
from sterna.support import cross
from sterna.support.server_program import build_server
from sterna.testing import require
from tests.contrib.test_cross import MACHINES, build, network
from tests.rpc.c_server import running
from tests.support import require_module, require_program

ELSEWHERE = [row for row in MACHINES if not cross.is_here(row[0].split("=")[1].split()[0])]
CHOSEN = [row for row in ELSEWHERE if "arm" not in row[1]]


@pytest.mark.parametrize("target,emulator,root", CHOSEN, ids=lambda text: text.split("=")[-1])
def test_a_network_runs_there(target: str, emulator: str, root: str, tmp_path: Path) -> None:
    require_module("ziglang")
    qemu = require_program(emulator)
    require(None if Path(root).is_dir() else f"{root} is not there: install libc6-*-cross")
    triple = target.split("=")[1].split()[0]
    build_server(tmp_path / "server", triple)
    _, _, x, want = network()
    lib = build(target)
    lib.export_library(tmp_path / "net.so")
    lib.export_library(tmp_path / "net.tar")
    with (
        running([qemu, "-L", root, tmp_path / "server"]) as server,
        rpc.connect("127.0.0.1", server.port, session_timeout=120) as remote,
    ):
        for name in ("net.so", "net.tar"):
            remote.upload(tmp_path / name)
            loaded = remote.load_module(name)
            net = graph_executor.GraphModule(loaded["default"](remote.cpu(0)))
            net.run(data=x)
            np.testing.assert_allclose(net.get_output(0).numpy(), want, rtol=1e-5)
            times = net.module.time_evaluator("run", remote.cpu(0), number=2, repeat=3)()
            assert len(times.results) == 3 and times.min > 0
        double = tvm.nd.array(np.arange(5.0), remote.cpu(0))
        assert (double.numpy() == np.arange(5.0)).all()
