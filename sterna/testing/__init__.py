"""Helpers for test suites, as in the classic API.

``assert_allclose``, ``enabled_targets`` and ``device_enabled`` work on their own. The rest needs
pytest, and most of it the plugin: put ``pytest_plugins = ["sterna.testing.plugin"]`` into the
top-level conftest.py of the test suite.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sterna.support.classic import find_moved
from sterna.testing.compare import assert_allclose
from sterna.testing.targets import device_enabled, enabled_targets

try:
    import pytest  # noqa: F401
except ModuleNotFoundError:
    _HAS_PYTEST = False
else:
    _HAS_PYTEST = True

__all__ = [
    "Feature",
    "assert_allclose",
    "device_enabled",
    "enabled_targets",
    "exclude_targets",
    "fixture",
    "known_failing_targets",
    "main",
    "parameter",
    "parameters",
    "parametrize_targets",
    "require",
    "requires_aarch64",
    "requires_cuda",
    "requires_gpu",
    "requires_hexagon",
    "requires_llvm",
    "requires_metal",
    "requires_opencl",
    "requires_package",
    "requires_program",
    "requires_rocm",
    "requires_vulkan",
    "requires_x86",
    "uses_gpu",
]

if TYPE_CHECKING or _HAS_PYTEST:
    from sterna.testing.features import (
        Feature,
        requires_aarch64,
        requires_cuda,
        requires_gpu,
        requires_hexagon,
        requires_llvm,
        requires_metal,
        requires_opencl,
        requires_package,
        requires_program,
        requires_rocm,
        requires_vulkan,
        requires_x86,
        uses_gpu,
    )
    from sterna.testing.fixtures import fixture
    from sterna.testing.marks import exclude_targets, known_failing_targets, parametrize_targets
    from sterna.testing.params import parameter, parameters
    from sterna.testing.rule import require
    from sterna.testing.run import main


def __getattr__(name: str) -> object:
    if name in __all__:
        raise ImportError(f"sterna.testing.{name} needs pytest: run `pip install pytest`")
    return find_moved(__name__, name)
