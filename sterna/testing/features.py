"""Marks for tests that need something a machine may lack."""

from __future__ import annotations

import importlib.util
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, overload

import pytest

from sterna.testing.rule import require
from sterna.testing.targets import codegen_absence, needs_own_hardware, target_absence, target_kind

_T = TypeVar("_T", bound=Callable[..., Any])

Support = Literal["compile-and-run", "compile-only", "optional"]


@dataclass(frozen=True)
class Feature:
    """Something a test may need.

    Used as a decorator, bare or called, on a test function or class, it makes the test need the
    feature. It is also available as ``marks()`` for ``pytest.param``.
    """

    name: str
    long_name: str
    check: Callable[[], str | None]
    """Why the feature is absent, or None if it is present."""
    compile_check: Callable[[], str | None] | None = None
    """The same for tests that build code for the feature but do not run it."""
    hardware: bool = False
    """Whether a machine may lack it for good, so that its absence is never a failure."""
    markers: tuple[str, ...] = ()
    """The pytest markers, for ``pytest -m``, that the tests get."""

    @overload
    def __call__(self, func: _T, *, support_required: Support = ...) -> _T: ...

    @overload
    def __call__(
        self, func: None = None, *, support_required: Support = ...
    ) -> Callable[[_T], _T]: ...

    def __call__(
        self, func: _T | None = None, *, support_required: Support = "compile-and-run"
    ) -> _T | Callable[[_T], _T]:
        """Mark a test as needing this feature.

        ``support_required`` is "compile-only" for a test that builds code but does not run it,
        and "optional" for a test that uses the feature where there is one.
        """
        marks = self.marks(support_required)

        def decorate(test: _T) -> _T:
            for mark in marks:
                test = mark(test)
            return test

        return decorate if func is None else decorate(func)

    def marks(self, support_required: Support = "compile-and-run") -> list[pytest.MarkDecorator]:
        """The pytest marks that the decorator applies."""
        if support_required not in ("compile-and-run", "compile-only", "optional"):
            raise ValueError(
                f"support_required={support_required!r} for {self.long_name}: give "
                "'compile-and-run', 'compile-only' or 'optional'"
            )
        marks = [getattr(pytest.mark, name) for name in self.markers]
        if support_required != "optional":
            marks.append(pytest.mark.sterna_requires(self, support_required))
        return marks

    def absence(self, support_required: Support = "compile-and-run") -> str | None:
        """Why the feature is absent, or None if it is present."""
        if support_required == "compile-only" and self.compile_check is not None:
            reason = self.compile_check()
        else:
            reason = self.check()
        return None if reason is None else f"needs {self.long_name}: {reason}"

    def require(self, support_required: Support = "compile-and-run") -> None:
        """Skip or fail the running test if the feature is absent."""
        __tracebackhide__ = True
        require(self.absence(support_required), hardware=self.hardware)


def _gpu_absence() -> str | None:
    if any(target_absence(kind) is None for kind in _GPU_KINDS):
        return None
    return f"no device of {', '.join(_GPU_KINDS)} can be used on this machine"


def _machine_absence(names: tuple[str, ...]) -> str | None:
    machine = platform.machine()
    return None if machine.lower() in names else f"this machine is {machine or 'unknown'}"


def _package_absence(names: tuple[str, ...]) -> str | None:
    missing = [name for name in names if not _can_import(name)]
    if not missing:
        return None
    return f"{', '.join(missing)} cannot be imported; try `pip install {' '.join(missing)}`"


def _can_import(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except (ModuleNotFoundError, ValueError):
        # The parent package is missing, or the module was blocked in sys.modules.
        return False


def _program_absence(names: tuple[str, ...]) -> str | None:
    missing = [name for name in names if shutil.which(name) is None]
    return f"{', '.join(missing)} not found on PATH" if missing else None


def _target_feature(kind: str, long_name: str, *groups: str) -> Feature:
    return Feature(
        kind,
        long_name,
        partial(target_absence, kind),
        partial(codegen_absence, kind),
        hardware=needs_own_hardware(kind),
        markers=(kind, *groups),
    )


def _cpu_feature(name: str, long_name: str, *machines: str) -> Feature:
    check = partial(_machine_absence, machines)
    return Feature(name, long_name, check, hardware=True, markers=(name,))


_GPU_KINDS = ("cuda", "opencl", "vulkan", "metal", "rocm")

FEATURES = {
    feature.name: feature
    for feature in (
        _target_feature("llvm", "LLVM"),
        Feature("gpu", "a GPU", _gpu_absence, hardware=True, markers=("gpu",)),
        _target_feature("cuda", "CUDA", "gpu"),
        _target_feature("opencl", "OpenCL", "gpu"),
        _target_feature("vulkan", "Vulkan", "gpu"),
        _target_feature("metal", "Metal", "gpu"),
        _target_feature("rocm", "ROCm", "gpu"),
        _target_feature("hexagon", "Hexagon"),
        _cpu_feature("x86", "an x86 CPU", "x86_64", "amd64", "i386", "i686", "x86"),
        _cpu_feature("aarch64", "an AArch64 CPU", "aarch64", "arm64"),
    )
}

requires_llvm = FEATURES["llvm"]
requires_gpu = FEATURES["gpu"]
requires_cuda = FEATURES["cuda"]
requires_opencl = FEATURES["opencl"]
requires_vulkan = FEATURES["vulkan"]
requires_metal = FEATURES["metal"]
requires_rocm = FEATURES["rocm"]
requires_hexagon = FEATURES["hexagon"]
requires_x86 = FEATURES["x86"]
requires_aarch64 = FEATURES["aarch64"]


def feature_of_target(target: object) -> Feature:
    """The feature that a test run on this target needs."""
    kind = target_kind(target)
    return Feature(
        kind,
        f"target {str(target)!r}",
        partial(target_absence, target),
        partial(codegen_absence, kind),
        hardware=needs_own_hardware(kind),
        markers=FEATURES[kind].markers if kind in FEATURES else (),
    )


@overload
def uses_gpu(func: _T) -> _T: ...


@overload
def uses_gpu(func: None = None) -> Callable[[_T], _T]: ...


def uses_gpu(func: _T | None = None) -> _T | Callable[[_T], _T]:
    """Mark a test that uses a GPU where there is one, for ``pytest -m gpu``."""
    decorate: Callable[[_T], _T] = requires_gpu(support_required="optional")
    return decorate if func is None else decorate(func)


def requires_package(*names: str) -> Feature:
    """A feature: the Python packages can be imported."""
    _check_names("requires_package", names)
    check = partial(_package_absence, names)
    return Feature("package", f"Python package {', '.join(names)}", check)


def requires_program(*names: str) -> Feature:
    """A feature: the programs are on PATH."""
    _check_names("requires_program", names)
    return Feature("program", f"program {', '.join(names)}", partial(_program_absence, names))


def _check_names(function: str, names: tuple[object, ...]) -> None:
    if not names or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"{function} takes names, as in @{function}('name'), not {names!r}")
