"""The server in C on other processors, emulated: networks that were compiled here run there."""

import shlex
from pathlib import Path

import numpy as np
import pytest

import sterna as tvm
from sterna import rpc
from sterna.contrib import graph_executor
from sterna.support.emulators import runner_for
from sterna.support.server_program import build_server
from sterna.support.toolchain import MissingToolError
from sterna.testing import require
from tests.contrib.test_cross import ELSEWHERE, build, network
from tests.rpc.c_server import running
from tests.support import require_module, require_program

CHOSEN = [options for options in ELSEWHERE if "arm" not in options and "-mattr=+v" not in options]


@pytest.mark.parametrize("options", CHOSEN)
def test_a_network_runs_there(options: str, tmp_path: Path) -> None:
    require_module("ziglang")
    target, triple = f"llvm -mtriple={options}", options.split()[0]
    require_program(f"qemu-{triple.partition('-')[0]}")
    try:
        qemu = shlex.split(runner_for(triple))
    except MissingToolError as error:
        require(str(error))
    build_server(tmp_path / "server", triple)
    _, _, x, want = network()
    lib = build(target)
    lib.export_library(tmp_path / "net.so")
    lib.export_library(tmp_path / "net.tar")
    with (
        running([*qemu, tmp_path / "server"]) as server,
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
