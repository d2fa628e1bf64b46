"""Who times candidates: a process of this machine, or a device that a tracker lends."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from sterna.rpc.client import RPCSession
from sterna.rpc.tracker_client import TrackerSession, connect_tracker
from sterna.tune.measure import RemoteDevice


@dataclass(frozen=True)
class EvaluatorConfig:
    """How often something runs when it is timed; the tuner stops by its own test before that."""

    number: int = 3
    repeat: int = 1
    min_repeat_ms: int = 100
    enable_cpu_cache_flush: bool = False


@dataclass(frozen=True)
class RunnerResult:
    """What became of running a candidate: seconds, or why there are none."""

    run_secs: Sequence[float] | None
    error_msg: str | None


class Runner:
    """Times candidates."""

    evaluator_config: EvaluatorConfig | None = None

    def device(self) -> RemoteDevice | None:
        """The device where they run; None: this machine."""
        return None

    @staticmethod
    def create(kind: str = "local", *args: Any, **options: Any) -> "Runner":
        """A runner by its name."""
        known: dict[str, type[Runner]] = {"local": LocalRunner, "rpc": RPCRunner}
        if kind not in known:
            raise ValueError(f"runner '{kind}' is unknown; there are {', '.join(known)}")
        return known[kind](*args, **options)

    @staticmethod
    def of(given: "Runner | str") -> "Runner":
        """What a user gave: a runner, or its name."""
        return given if isinstance(given, Runner) else Runner.create(given)


def _expect_no_hooks(**hooks: Any) -> None:
    given = [name for name, hook in hooks.items() if hook is not None]
    if given:
        raise ValueError(
            f"{', '.join(given)}: candidates run inside of their network, on arrays that the tuner "
            "draws; give inputs to sterna.tune.tune instead"
        )


@dataclass
class LocalRunner(Runner):
    """Times in a process of this machine."""

    timeout_sec: float = 30
    evaluator_config: EvaluatorConfig | None = None
    cooldown_sec: float = 0.0
    alloc_repeat: int = 1
    f_alloc_argument: Callable[..., Any] | str | None = None
    f_run_evaluator: Callable[..., Any] | str | None = None
    f_cleanup: Callable[..., Any] | str | None = None
    initializer: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        _expect_no_hooks(f_alloc_argument=self.f_alloc_argument, f_cleanup=self.f_cleanup,
                         f_run_evaluator=self.f_run_evaluator)


@dataclass(frozen=True)
class RPCConfig:
    """Where devices are asked for; what is not given comes from the environment."""

    tracker_host: str | None = None
    tracker_port: int | str | None = None
    tracker_key: str | None = None
    session_priority: int = 1
    session_timeout_sec: int = 10

    def device(self) -> RemoteDevice:
        """The device that is asked for."""
        found = {
            name: getattr(self, name) or os.environ.get(f"TVM_{name.upper()}")
            for name in ("tracker_host", "tracker_port", "tracker_key")
        }
        missing = [name for name, value in found.items() if not value]
        if missing:
            names = ", ".join(f"TVM_{name.upper()}" for name in missing)
            raise ValueError(f"RPCConfig lacks {', '.join(missing)}: give them, or set {names}")
        return RemoteDevice(
            str(found["tracker_host"]), int(str(found["tracker_port"])), str(found["tracker_key"]),
            self.session_timeout_sec, self.session_priority,
        )

    def connect_tracker(self) -> TrackerSession:
        """A connection to the tracker."""
        device = self.device()
        return connect_tracker(device.host, device.port)

    def connect_server(self) -> RPCSession:
        """A session with a device."""
        device = self.device()
        return self.connect_tracker().request(
            device.key, priority=device.priority, session_timeout=device.session_seconds
        )

    def count_num_servers(self, allow_missing: bool = True) -> int:
        """How many devices of this key the tracker knows."""
        summary = self.connect_tracker().summary()
        known = [info for info in summary["server_info"] if info["key"].endswith(self.device().key)]
        if not known and not allow_missing:
            raise ValueError(f"the tracker knows no device with the key '{self.device().key}'")
        return len(known)


@dataclass
class RPCRunner(Runner):
    """Times on a device that a tracker lends."""

    rpc_config: RPCConfig | None = None
    evaluator_config: EvaluatorConfig | None = None
    cooldown_sec: float = 0.0
    alloc_repeat: int = 1
    f_create_session: Callable[..., Any] | str | None = None
    f_upload_module: Callable[..., Any] | str | None = None
    f_alloc_argument: Callable[..., Any] | str | None = None
    f_run_evaluator: Callable[..., Any] | str | None = None
    f_cleanup: Callable[..., Any] | str | None = None
    max_workers: int | None = None
    initializer: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        _expect_no_hooks(
            f_create_session=self.f_create_session, f_upload_module=self.f_upload_module,
            f_alloc_argument=self.f_alloc_argument, f_run_evaluator=self.f_run_evaluator,
            f_cleanup=self.f_cleanup,
        )

    def device(self) -> RemoteDevice:
        """As the configuration names it."""
        return (self.rpc_config or RPCConfig()).device()


create = Runner.create
