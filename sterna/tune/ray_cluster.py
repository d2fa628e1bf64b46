"""The machines of a Ray cluster as a pool: on each node one actor builds and another one times.

A runner takes all processors of its node, so that Ray puts nothing else beside it; Sterna must be
installed on every node.
"""

import socket
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

from sterna.support.errors import MissingPackageError
from sterna.target import Target, is_gpu
from sterna.tune.database import fingerprint
from sterna.tune.measure import Measured
from sterna.tune.pool import Pool
from sterna.tune.ray_actors import Builder, Runner, packed_files
from sterna.tune.worker import read_target
from sterna.tune.workers import Hung, Lost, NoWorkersError, Request, measured_of

# How long a node may take to start its actors: it may have to import everything from a slow disk.
START_SECONDS = 120.0
CONNECT_SECONDS = 10.0


def import_ray() -> Any:
    """Ray, if it is installed."""
    try:
        import ray
        import ray.exceptions
        import ray.util.scheduling_strategies
    except ImportError:
        raise MissingPackageError("ray", "tuning on a Ray cluster") from None
    return ray


class RayNode:
    """A machine of the cluster."""

    def __init__(self, ray: Any, node: dict[str, Any], files: Any, needs_gpu: bool) -> None:
        self._ray, self._files = ray, files
        self._id: str = node["NodeID"]
        has_gpu = node["Resources"].get("GPU", 0) >= 1
        self._takes = {"num_cpus": node["Resources"]["CPU"],
                       "num_gpus": 1 if needs_gpu and has_gpu else 0}
        self.name = f"node {node['NodeManagerHostname']} ({self._id[:8]})"
        self.builder: Any = None
        """The actor that builds, while it is there; runner is the one that times."""
        self.runner: Any = None
        self.start()

    def start(self) -> None:
        """Ask for the actors that are not there; they start by and by."""
        where = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            self._id, soft=False
        )
        if self.builder is None:
            builder = self._ray.remote(Builder).options(num_cpus=0, scheduling_strategy=where)
            self.builder = builder.remote(self._files)
        if self.runner is None:
            runner = self._ray.remote(Runner).options(**self._takes, scheduling_strategy=where)
            self.runner = runner.remote(self._files)

    def kind(self) -> tuple[str, str, bool] | None:
        """As Runner.kind; none if it does not start."""
        try:
            found: tuple[str, str, bool] = self._ray.get(
                self.runner.kind.remote(), timeout=START_SECONDS
            )
        except self._ray.exceptions.RayError:
            return None
        return found

    def compare(self, request: Request, timeout: float) -> Measured:
        """Raises TrialError; Lost if an actor or the node is gone."""
        self.start()
        asked: tuple[dict[str, str], ...] = ({}, dict(request.incumbent), dict(request.challenger))
        default, incumbent, challenger = (self.builder.build.remote(each) for each in asked)
        try:
            answer = self._ray.get(
                self.runner.compare.remote(default, incumbent, challenger, request.seconds),
                timeout=timeout,
            )
        except self._ray.exceptions.GetTimeoutError:
            self.close()
            raise Hung(f"no answer within {timeout:.0f} s") from None
        except self._ray.exceptions.RayError as error:
            raise Lost(f"{self.name}: {str(error).strip().splitlines()[0]}") from None
        return measured_of(answer)

    def renew(self) -> bool:
        """Start its actors anew; whether the node is still there."""
        self.close()
        alive = {node["NodeID"] for node in self._ray.nodes() if node["Alive"]}
        if self._id not in alive:
            return False
        self.start()
        return self.kind() is not None

    def refresh(self) -> None:
        """Let a process that has seen nothing yet time what comes next."""
        if self.runner is not None:
            self._ray.kill(self.runner)
        self.runner = None

    def close(self) -> None:
        """End its actors."""
        self.refresh()
        if self.builder is not None:
            self._ray.kill(self.builder)
        self.builder = None


class RayPool(Pool):
    """The nodes of a cluster that are the machine that a target names."""

    def __init__(self, address: str, folder: Path, timeout: float = 300.0) -> None:
        ray = import_ray()
        self._ray = None if ray.is_initialized() else ray
        if self._ray is not None:
            try:
                _expect_listening(address)
                ray.init(address=address, log_to_driver=False, logging_level="ERROR")
            except (OSError, ValueError, RuntimeError) as error:
                reason = str(error).strip().splitlines()[0]
                raise NoWorkersError(f"no Ray cluster answers at '{address}': {reason}") from None
        try:
            files = ray.put(packed_files(folder))
            target = read_target(folder)
            nodes = [RayNode(ray, node, files, is_gpu(target)) for node in ray.nodes()
                     if node["Alive"] and node["Resources"].get("CPU", 0) >= 1]
            super().__init__(of_one_kind(nodes, target))
            self.calibrate(timeout)
        except BaseException:
            self._disconnect()
            raise

    def close(self) -> None:
        """End the actors and leave the cluster."""
        super().close()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._ray is not None:
            self._ray.shutdown()


def _expect_listening(address: str) -> None:
    """Raise OSError where nothing listens: Ray itself would try for minutes."""
    host, _, port = address.rpartition(":")
    if host and port.isdigit():
        socket.create_connection((host, int(port)), timeout=CONNECT_SECONDS).close()


def of_one_kind(nodes: list[RayNode], target: Target) -> list[RayNode]:
    """The nodes of the kind that a target names, and of those the most that are alike."""
    here = fingerprint(target)
    kinds = {node: node.kind() for node in nodes}
    fit = {node: kind[1] for node, kind in kinds.items()
           if kind is not None and kind[0] == here and kind[2]}
    if not fit:
        told = "; ".join(f"{node.name}: {'it does not start' if kind is None else kind[1]}"
                         for node, kind in kinds.items())
        raise NoWorkersError(f"the Ray cluster has no machine that '{target}' names; name one of "
                             f"its machines by --target. It has {told or 'no nodes'}")
    (most, _), = Counter(fit.values()).most_common(1)
    kept = [node for node, kind in fit.items() if kind == most]
    for node in nodes:
        if node not in kept:
            node.close()
            warnings.warn(f"tuning goes on without {node.name}: it is another kind of machine",
                          stacklevel=2)
    return kept
