"""Networks made by builders, with weights that are random but behave: for tests and benchmarks."""

import importlib
from typing import Any

from sterna.relay.testing.workload import create_workload, run_infer_type, run_opt_pass
from sterna.runtime import Device, device
from sterna.support.classic import MOVED, find_moved

__all__ = [
    "create_workload", "dcgan", "densenet", "dqn", "enabled_targets", "inception_v3", "mlp",
    "mobilenet", "resnet", "run_infer_type", "run_opt_pass", "squeezenet", "vgg",
]


def enabled_targets() -> list[tuple[str, Device]]:
    """The targets that code runs for here, each with its first device: ctx_list, as it was."""
    known = ((name, device(name, 0)) for name in ("llvm", "cuda", "opencl"))
    return [(name, one) for name, one in known if one.exist]


def __getattr__(name: str) -> Any:
    if f"{__name__}.{name}" in MOVED:
        return find_moved(__name__, name)
    if name == "ctx_list":
        return enabled_targets
    if name not in __all__:
        raise AttributeError(f"relay.testing has no network '{name}'; it has {', '.join(__all__)}")
    return importlib.import_module(f"sterna.relay.testing.{name}")
