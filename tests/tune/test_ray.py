"""Tuning on a real Ray cluster of two nodes, which lie on this machine."""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from sterna import relay
from sterna.cli import main
from sterna.target import Target
from sterna.testing import requires_package
from sterna.tune import TuningDatabase
from sterna.tune.measure import Measured
from sterna.tune.ray_cluster import RayNode, RayPool
from sterna.tune.tuner import network_inputs
from sterna.tune.worker import write_network
from sterna.tune.workers import NoWorkersError, Request
from tests.tune.networks import LAYER, two_convolutions

pytestmark = requires_package("ray").marks()

TARGET = Target("llvm -mcpu=native")
STORE = 80 << 20


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A head and another node, one processor each."""
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False,
            "_system_config": {"worker_niceness": 0}}  # the tests around them are not nice either
    made = Cluster(initialize_head=True, head_node_args=head)
    made.second = made.add_node(num_cpus=1, object_store_memory=STORE)
    yield made
    made.shutdown()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return two_convolutions(tmp_path)


def described(model: Path, folder: Path) -> Path:
    mod, params = relay.frontend.from_onnx(onnx.load(model))
    inputs = {i.name: np.ones(i.shape, i.dtype) for i in network_inputs(mod, params)}
    folder.mkdir()
    write_network(folder, mod, params, TARGET, inputs, threads=1)
    return folder


def pid_of(actor: Any) -> int:
    import ray

    pid: int = ray.get(actor.__ray_call__.remote(lambda _: os.getpid()))
    return pid


def test_the_command_tunes_on_a_cluster(
    cluster: Any, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = main(["tune", str(model), "--ray", cluster.address, "--trials", "1", "--threads", "1",
                 "--json"])
    found = json.loads(capsys.readouterr().out)
    assert code == 0 and found["speedup"] >= 1.0 and found["trials"] > 0
    database = TuningDatabase(found["output"], read_only=True)
    # Answers that change no kernel are kept, so that nobody tries them again, but not counted.
    assert len(database.trials(TARGET)) >= found["trials"]


def test_a_cluster_goes_on_without_what_it_loses(
    cluster: Any, model: Path, tmp_path: Path
) -> None:
    pool = RayPool(cluster.address, described(model, tmp_path / "network"))
    try:
        assert pool.width == 2
        request = Request({}, {f"{LAYER}/implementation": "direct"}, 0.0)
        for found in pool.compare_all([request] * 3, 120):
            assert isinstance(found, Measured) and LAYER in found.layers
        node = pool.machines[0]
        assert isinstance(node, RayNode)
        os.kill(pid_of(node.runner), signal.SIGKILL)  # its trial is made once more
        assert all(isinstance(found, Measured) for found in pool.compare_all([request] * 2, 120))
        assert pool.width == 2
        cluster.remove_node(cluster.second, allow_graceful=False)
        with pytest.warns(UserWarning, match=r"tuning goes on without node .*: it is gone"):
            while pool.width == 2:  # until the head has seen that the node is gone
                found_all = pool.compare_all([request] * 2, 120)
                assert all(isinstance(found, Measured) for found in found_all)
        assert len(pool.compare_everywhere(request, 120)) == 1
    finally:
        pool.close()


def test_no_cluster_answers(model: Path, tmp_path: Path) -> None:
    with pytest.raises(NoWorkersError, match=r"no Ray cluster answers at '127\.0\.0\.1:9'"):
        RayPool("127.0.0.1:9", described(model, tmp_path / "network"))
