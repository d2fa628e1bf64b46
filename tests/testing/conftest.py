"""A small test suite to run pytest on, with a pretended set of targets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from sterna import runtime

CONFTEST = 'pytest_plugins = ["sterna.testing.plugin"]\n'


@dataclass(frozen=True)
class FakeDevice:
    """A device that may be absent."""

    name: str
    exist: bool

    def __str__(self) -> str:
        return f"{self.name}(0)"


class FakeMachine(SimpleNamespace):
    """What the pretended machine has; the kinds can be changed by a test."""

    kinds = frozenset({"llvm", "c", "cuda", "opencl", "vulkan", "metal", "rocm"})

    def __init__(self) -> None:
        super().__init__(enabled={"llvm"}, devices={"cpu"})

    def has_target(self, kind: str) -> bool:
        if kind not in self.kinds:
            raise ValueError(f"unknown target kind {kind!r}")
        return kind in self.enabled

    def device(self, text: str, *_index: int) -> FakeDevice:
        name = text.split(maxsplit=1)[0]
        name = "cpu" if name in ("llvm", "c") else name
        return FakeDevice(name, name in self.devices)

    def add_gpu(self) -> None:
        self.enabled.add("cuda")
        self.devices.add("cuda")


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    """A machine with LLVM and no GPU, and none of the variables of Sterna set."""
    for name in ("STERNA_TEST_TARGETS", "TVM_TEST_TARGETS", "STERNA_REQUIRE_ALL"):
        monkeypatch.delenv(name, raising=False)
    # The plugins installed beside pytest have no part in the small suites, and take time to load.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    fake = FakeMachine()
    monkeypatch.setattr(runtime, "enabled", fake.has_target)
    monkeypatch.setattr(runtime, "device", fake.device)
    return fake


Suite = Callable[..., pytest.RunResult]


@pytest.fixture
def suite(pytester: pytest.Pytester) -> Suite:
    """Runs pytest, with the plugin, on a test file with the given text."""

    def run(source: str, *args: str) -> pytest.RunResult:
        pytester.makeconftest(CONFTEST)
        pytester.makepyfile(test_sample="import pytest\nimport sterna.testing\n" + source)
        return pytester.runpytest_inprocess("-ra", "-Wdefault", "-pno:cacheprovider", *args)

    return run


@pytest.fixture
def require_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets STERNA_REQUIRE_ALL=1."""
    monkeypatch.setenv("STERNA_REQUIRE_ALL", "1")
