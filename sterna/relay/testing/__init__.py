"""Networks made by builders, with weights that are random but behave: for tests and benchmarks."""

import importlib
from typing import Any

from sterna.relay.testing.workload import create_workload, run_infer_type, run_opt_pass
from sterna.support.classic import MOVED, find_moved

__all__ = [
    "create_workload", "dcgan", "densenet", "dqn", "inception_v3", "mlp", "mobilenet", "resnet",
    "run_infer_type", "run_opt_pass", "squeezenet", "vgg",
]


def __getattr__(name: str) -> Any:
    if f"{__name__}.{name}" in MOVED:
        return find_moved(__name__, name)
    if name not in __all__:
        raise AttributeError(f"relay.testing has no network '{name}'; it has {', '.join(__all__)}")
    return importlib.import_module(f"sterna.relay.testing.{name}")
