"""The list of targets, and tests that take ``target`` and ``dev``."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from sterna import runtime, testing
from sterna.testing.targets import matches_target, target_kind

pytest_plugins = ["pytester"]

Suite = Callable[..., pytest.RunResult]


def names() -> list[str]:
    return [name for name, _ in testing.enabled_targets()]


class TestList:
    def test_default_list_keeps_what_can_run(self, machine: SimpleNamespace) -> None:
        assert names() == ["llvm"]
        machine.add_gpu()
        assert names() == ["llvm", "cuda"]
        assert [str(dev) for _, dev in testing.enabled_targets()] == ["cpu(0)", "cuda(0)"]

    def test_enabled_kind_without_a_device_is_left_out(self, machine: SimpleNamespace) -> None:
        machine.enabled.add("cuda")
        assert names() == ["llvm"]

    def test_default_kind_unknown_to_the_runtime_is_left_out(
        self, machine: SimpleNamespace
    ) -> None:
        assert "hexagon" not in machine.kinds
        assert names() == ["llvm"]

    @pytest.mark.parametrize("variable", ["STERNA_TEST_TARGETS", "TVM_TEST_TARGETS"])
    def test_environment(
        self, variable: str, machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        machine.add_gpu()
        monkeypatch.setenv(variable, " cuda -arch=sm_90; llvm -mcpu=x ;;llvm -mcpu=x")
        assert names() == ["cuda -arch=sm_90", "llvm -mcpu=x"]

    def test_own_variable_comes_first(
        self, machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        machine.add_gpu()
        monkeypatch.setenv("STERNA_TEST_TARGETS", "llvm")
        monkeypatch.setenv("TVM_TEST_TARGETS", "cuda")
        assert names() == ["llvm"]

    def test_unusable_listed_target_warns(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STERNA_TEST_TARGETS", "llvm;cuda -arch=sm_90")
        with pytest.warns(UserWarning, match="'cuda -arch=sm_90', which cannot be tested: not en"):
            assert names() == ["llvm"]

    def test_default_list_does_not_warn(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            names()

    def test_unknown_listed_target_is_an_error(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STERNA_TEST_TARGETS", "lvm")
        with pytest.raises(ValueError, match=r"STERNA_TEST_TARGETS .* lists 'lvm'"):
            names()

    @pytest.mark.usefixtures("require_all")
    def test_require_all_and_listed_targets(
        self, machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STERNA_TEST_TARGETS", "llvm;cuda")
        with pytest.warns(UserWarning, match="'cuda'"):
            assert names() == ["llvm"]
        machine.enabled.clear()
        with pytest.raises(RuntimeError, match=r"lists 'llvm'.*STERNA_REQUIRE_ALL"):
            names()

    def test_device_enabled(
        self, machine: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        machine.add_gpu()
        assert testing.device_enabled("llvm -mcpu=x")
        assert testing.device_enabled("cuda")
        assert not testing.device_enabled("vulkan")
        monkeypatch.setenv("STERNA_TEST_TARGETS", "llvm -mcpu=y")
        assert testing.device_enabled("llvm")
        assert not testing.device_enabled("cuda")


class TestKinds:
    def test_forms_of_a_target(self) -> None:
        class Kind:
            name = "cuda"

        class Target:
            kind = Kind()

        assert target_kind("llvm") == "llvm"
        assert target_kind("llvm -mcpu=x") == "llvm"
        assert target_kind({"kind": "cuda", "arch": "sm_90"}) == "cuda"
        assert target_kind('{"kind": "cuda"}') == "cuda"
        assert target_kind(Target()) == "cuda"

    @pytest.mark.parametrize("value", [3, None, "", {"arch": "x"}])
    def test_not_a_target(self, value: object) -> None:
        with pytest.raises(TypeError, match="is not a target"):
            target_kind(value)

    def test_matching(self) -> None:
        assert matches_target("cuda -arch=sm_90", "cuda")
        assert matches_target("cuda -arch=sm_90", "cuda -arch=sm_90")
        assert not matches_target("cuda", "cuda -arch=sm_90")
        assert not matches_target("llvm", "cuda")


class TestParametrization:
    def test_target_and_dev(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.add_gpu()
        result = suite(
            """
def test_both(target, dev): print("both", target, dev)
def test_target(target): print("target", target)
def test_dev(dev): print("dev", dev)
def test_neither(): pass
""",
            "-s",
        )
        result.assert_outcomes(passed=7)
        output = result.stdout.str()
        for line in ("both llvm cpu(0)", "both cuda cuda(0)", "target cuda", "dev cuda(0)"):
            assert line in output

    def test_through_a_fixture(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.add_gpu()
        result = suite(
            """
@pytest.fixture(scope="session")
def built(target): return "built for " + target
def test_it(built, target): assert built == "built for " + target
""",
            "-v",
        )
        result.assert_outcomes(passed=2)
        result.stdout.fnmatch_lines(["*test_it?llvm?*", "*test_it?cuda?*"])

    def test_own_targets(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.add_gpu()
        result = suite(
            """
@sterna.testing.parametrize_targets("llvm -mcpu=x", pytest.param("cuda", id="gpu"), "vulkan")
def test_it(dev): pass
@sterna.testing.parametrize_targets
def test_bare(target): pass
@sterna.testing.parametrize_targets()
def test_empty(target): pass
""",
            "-v",
        )
        result.assert_outcomes(passed=6, skipped=1)
        result.stdout.fnmatch_lines(["*test_it?llvm -mcpu=x? PASSED*", "*test_it?gpu? PASSED*"])
        result.stdout.fnmatch_lines(["SKIPPED*needs target 'vulkan': not enabled in this build*"])

    def test_own_targets_of_a_class(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.add_gpu()
        result = suite("""
@sterna.testing.parametrize_targets("cuda")
class TestIt:
    def test_target(self, target): assert target == "cuda"
    def test_plain(self): pass
    @sterna.testing.parametrize_targets("llvm")
    def test_own(self, target): assert target == "llvm"
""")
        result.assert_outcomes(passed=3)

    def test_unknown_own_target(self, suite: Suite) -> None:
        result = suite("""
@sterna.testing.parametrize_targets("lvm")
def test_it(target): pass
""")
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*parametrize_targets on test_it lists 'lvm'*"])

    def test_user_parametrization(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.add_gpu()
        result = suite("""
@pytest.mark.parametrize("target,dev", sterna.testing.enabled_targets())
def test_pairs(target, dev): assert str(dev) in ("cpu(0)", "cuda(0)")
@pytest.mark.parametrize("target", ["llvm", "vulkan"])
def test_list(target, dev): pass
@pytest.mark.parametrize("target", [7, "a.out", {"kind": "llvm"}])
def test_other_meaning(target): pass
""")
        result.assert_outcomes(passed=6, skipped=1)

    def test_user_fixture_comes_first(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.add_gpu()
        result = suite("""
target = sterna.testing.parameter("llvm -mcpu=x", "llvm -mcpu=y", "vulkan")
def test_it(target, dev): assert target.startswith("llvm -mcpu")
class TestIt:
    @pytest.fixture
    def target(self): return "cuda"
    def test_it(self, target, dev): assert (target, str(dev)) == ("cuda", "cuda(0)")
class TestAbsent:
    @pytest.fixture
    def target(self): return "rocm"
    def test_it(self, dev): pass
""")
        result.assert_outcomes(passed=3, skipped=2)

    def test_device_missing(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.enabled.add("cuda")
        result = suite("""
@sterna.testing.parametrize_targets("cuda")
def test_it(target): pass
""")
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines(["SKIPPED*needs target 'cuda': no cuda device on this machine"])

    def test_excluded(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.add_gpu()
        result = suite("""
@sterna.testing.exclude_targets("cuda", "vulkan")
def test_it(target): assert target == "llvm"
@sterna.testing.exclude_targets("llvm")
class TestIt:
    def test_it(self, dev): assert str(dev) == "cuda(0)"
    @sterna.testing.exclude_targets("cuda")
    def test_none(self, dev): assert False
""")
        result.assert_outcomes(passed=2, skipped=4)
        result.stdout.fnmatch_lines(["SKIPPED*excluded on target 'cuda'"])

    def test_known_failing(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.add_gpu()
        result = suite("""
@sterna.testing.known_failing_targets("cuda")
def test_it(target): assert target != "cuda"
@sterna.testing.known_failing_targets("llvm", "cuda")
def test_passes(target): pass
@pytest.fixture
def broken(target): assert target != "cuda"
@sterna.testing.known_failing_targets("cuda")
class TestIt:
    def test_it(self, broken): pass
""")
        result.assert_outcomes(passed=2, xfailed=2, xpassed=2)
        result.stdout.fnmatch_lines(["XFAIL*known to fail on target 'cuda'*"])

    def test_target_markers_select_tests(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.add_gpu()
        result = suite("def test_it(target): assert target == 'cuda'\n", "-m", "gpu")
        result.assert_outcomes(passed=1, deselected=1)


class TestNoTarget:
    SOURCE = "def test_target(target): assert False\ndef test_dev(dev): assert False\n"

    def test_skips(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.enabled.clear()
        result = suite(self.SOURCE, "-v")
        result.assert_outcomes(skipped=2)
        result.stdout.fnmatch_lines(["*test_target?no_target?*"])
        result.stdout.fnmatch_lines(["SKIPPED*needs an enabled target: llvm: not enabled*cuda: *"])

    @pytest.mark.usefixtures("require_all")
    def test_require_all_fails(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.enabled.clear()
        result = suite(self.SOURCE)
        result.assert_outcomes(errors=2)
        result.stdout.fnmatch_lines(["*needs an enabled target: *STERNA_REQUIRE_ALL*"])

    @pytest.mark.usefixtures("require_all")
    def test_only_hardware_asked_for(self, suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("STERNA_TEST_TARGETS", "cuda")
        result = suite(self.SOURCE)
        result.assert_outcomes(skipped=2, warnings=1)
        result.stdout.fnmatch_lines(["*UserWarning: STERNA_TEST_TARGETS*'cuda'*"])


class TestBadEnvironment:
    @pytest.mark.parametrize("args", [(), ("-W", "error")], ids=["plain", "strict"])
    def test_unknown_name_stops_the_run(
        self, args: tuple[str, ...], suite: Suite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STERNA_TEST_TARGETS", "llvm;lvm")
        result = suite("def test_it(): pass\n", *args)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["ERROR: STERNA_TEST_TARGETS * lists 'lvm'*"])

    def test_strict_warnings_stop_the_run(
        self, suite: Suite, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("STERNA_TEST_TARGETS", "llvm;cuda")
        result = suite("def test_it(): pass\n", "-W", "error")
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        result.stderr.fnmatch_lines(["ERROR: STERNA_TEST_TARGETS * lists 'cuda'*"])


@pytest.mark.parametrize("function", [testing.exclude_targets, testing.known_failing_targets])
def test_marks_need_names(function: object) -> None:
    assert callable(function)
    with pytest.raises(TypeError, match="at least one target"):
        function()
    with pytest.raises(TypeError, match="takes the names of targets, not <function"):
        function(names)


def test_devices_come_from_the_runtime() -> None:
    assert runtime.device("llvm").exist
