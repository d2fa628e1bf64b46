"""Boards as executors of this machine: values, times, and lines that lose bytes."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import micro, relay
from sterna.micro.host_driven import DrivenNetwork
from sterna.micro.platforms.handler import Project
from sterna.micro.platforms.network import draw_inputs
from sterna.micro.transport import Transport, TransportTimeouts
from sterna.relay.arrays import to_numpy
from tests.micro.networks import assert_agree, build, mixed, run_here
from tests.support import require_program


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("network")
    return micro.export_model_library_format(build(mixed()), folder / "model.tar")


def make(platform: str, archive: Path, folder: Path, **options: str) -> micro.GeneratedProject:
    """A project whose program waits for the host."""
    chosen = {"project_type": "host_driven", **options}
    project = micro.generate_project_from_mlf(platform, folder, archive, chosen)
    project.build({"warning_as_error": True})
    return project


@pytest.fixture(scope="module")
def crt(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    require_program("cc")
    project = make("crt", archive, tmp_path_factory.mktemp("crt") / "project")
    yield project
    project.close()


def run_session(project: micro.GeneratedProject) -> None:
    """A classic program with a board, against this machine."""
    inputs = draw_inputs(Project.load(project.folder).network)
    with micro.Session(project.transport()) as session:
        net = tvm.runtime.executor.AotModule(session.create_aot_executor())
        shapes, types = net.get_input_info()
        assert shapes == {"image": (1, 1, 8, 8), "signal:0": (1, 16)}
        assert types["signal:0"] == "int8" and net.get_input_name(1) == "signal:0"
        for _ in range(2):
            for name, value in inputs.items():
                net.get_input(name).copyfrom(value)
            net.run()
            made = [to_numpy(net.get_output(place)) for place in range(net.get_num_outputs())]
            assert_agree(made, run_here(mixed(), inputs))
            inputs["image"] = inputs["image"] * 2 + 1
        net.set_input("image", inputs["image"])
        net.run()
        out = tvm.nd.empty((1, 5), "float32", session.device)
        net.get_output(0, out)
        assert_agree([out.numpy()], run_here(mixed(), inputs)[:1])
        timed = net.module.time_evaluator("run", session.device, number=5, repeat=3)()
        assert len(timed.results) == 3 and 0 < timed.min < 10
        assert net.benchmark(session.device, number=2, repeat=2, min_repeat_ms=5).min > 0


def test_a_program_of_this_machine(crt: micro.GeneratedProject) -> None:
    run_session(crt)


def test_a_bare_board(archive: Path, tmp_path: Path) -> None:
    require_program("qemu-system-arm")
    require_program("arm-none-eabi-gcc")
    project = make("baremetal", archive, tmp_path / "project", board="mps2_an386", toolchain="gcc")
    run_session(project)
    project.close()


def test_mistakes_are_named(crt: micro.GeneratedProject) -> None:
    session = micro.Session(crt.transport())
    with pytest.raises(micro.SessionTerminatedError, match="with block"):
        session.create_aot_executor()
    with session:
        net = tvm.runtime.executor.AotModule(session.create_aot_executor())
        with pytest.raises(ValueError, match="no input 'picture'; it has image, signal:0"):
            net.set_input("picture", np.zeros(3))
        with pytest.raises(ValueError, match="has the shape"):
            net.set_input("image", np.zeros((1, 1, 8, 9), "float32"))
        with pytest.raises(IndexError, match="there are 3 outputs; 3 is none of them"):
            net.get_output(3)
        with pytest.raises(ValueError, match="times 'run', not 'set_input'"):
            net.module.time_evaluator("set_input", session.device)
        with pytest.raises(AttributeError, match="share_params"):
            net.module["share_params"]
    with pytest.raises(micro.SessionTerminatedError):
        session.get_system_lib()


class LossyLine(Transport):
    """A line that loses, repeats and changes bytes."""

    def __init__(self, inner: Transport, seed: int, harm: float) -> None:
        self._inner, self._rng, self.harm = inner, random.Random(seed), harm
        self.harmed, self._surplus = 0, b""

    def timeouts(self) -> TransportTimeouts:
        return self._inner.timeouts()

    def open(self) -> None:
        self._inner.open()

    def close(self) -> None:
        self._inner.close()

    def _damaged(self, data: bytes) -> bytes:
        if self._rng.random() >= self.harm or not data:
            return data
        self.harmed += 1
        made, place = bytearray(data), self._rng.randrange(len(data))
        match self._rng.randrange(4):
            case 0:
                del made[place]
            case 1:
                made[place] ^= 1 << self._rng.randrange(8)
            case 2:
                made.insert(place, 0xA5)
            case _:
                del made[place:]
        return bytes(made)

    def read(self, n: int, timeout_sec: float | None) -> bytes:
        data = self._surplus
        while not data:
            data = self._damaged(self._inner.read(n, timeout_sec))
        self._surplus = data[n:]
        return data[:n]

    def write(self, data: bytes, timeout_sec: float | None) -> None:
        if sent := self._damaged(data):
            self._inner.write(sent, timeout_sec)


def test_a_line_that_loses_bytes(crt: micro.GeneratedProject) -> None:
    network = Project.load(crt.folder).network
    inputs = draw_inputs(network)
    want = run_here(mixed(), inputs)
    harmed = 0
    with crt.transport() as stream:
        for seed in range(12):
            line = LossyLine(stream, seed, 0.0)
            driven = DrivenNetwork(line, network, 0.3)
            line.harm = 0.04
            assert_agree(driven(**inputs), want)
            harmed += line.harmed
    assert harmed > 3


def test_classic_options_make_a_program_that_a_session_drives(tmp_path: Path) -> None:
    require_program("cc")
    x = relay.var("x", shape=(1, 4))
    built = relay.build(
        tvm.IRModule.from_expr(relay.Function((x,), relay.nn.relu(x))),
        target=tvm.target.target.micro("host"), executor=relay.backend.Executor("aot"),
        runtime=relay.backend.Runtime("crt", {"system-lib": True}),
    )
    template = micro.get_microtvm_template_projects("crt")
    project = micro.generate_project(template, built, tmp_path / "p", {})
    project.build()
    with micro.Session(project.transport()) as session:
        net = tvm.runtime.executor.AotModule(session.create_aot_executor())
        net.set_input("x", np.array([[-1, 2, -3, 4]], "float32"))
        net.run()
        np.testing.assert_array_equal(net.get_output(0).numpy(), [[0, 2, 0, 4]])
    project.close()
    options = {"project_type": "example_project"}
    other = micro.generate_project(template, built, tmp_path / "q", options)
    with pytest.raises(ValueError, match="is of the type example_project, which obeys no session"):
        micro.Session(other.transport()).__enter__()
    other.close()
