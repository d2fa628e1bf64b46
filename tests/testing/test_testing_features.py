"""The requires_* marks and the rule that turns an absence into a skip or a failure."""

from __future__ import annotations

import platform
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from sterna import testing
from sterna.testing.features import FEATURES

pytest_plugins = ["pytester"]

Suite = Callable[..., pytest.RunResult]

ABSENT = """
@sterna.testing.requires_llvm
def test_bare(): assert False
@sterna.testing.requires_llvm()
def test_called(): assert False
@sterna.testing.requires_llvm
class TestIt:
    def test_one(self): assert False
    def test_two(self): assert False
@pytest.mark.parametrize("x", [pytest.param(1, marks=sterna.testing.requires_llvm.marks()), 2])
def test_param(x): assert x == 2
"""


class TestAbsent:
    def test_skips_with_the_reason(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.enabled.clear()
        result = suite(ABSENT)
        result.assert_outcomes(skipped=5, passed=1)
        result.stdout.fnmatch_lines(["SKIPPED*needs LLVM: not enabled in this build of sterna"])

    @pytest.mark.usefixtures("require_all")
    def test_require_all_fails_with_the_reason(
        self, suite: Suite, machine: SimpleNamespace
    ) -> None:
        machine.enabled.clear()
        result = suite(ABSENT)
        result.assert_outcomes(errors=5, passed=1)
        assert result.ret == pytest.ExitCode.TESTS_FAILED
        result.stdout.fnmatch_lines(["ERROR*test_bare - RequirementError: needs LLVM: *"])

    @pytest.mark.usefixtures("require_all")
    def test_require_all_is_not_hidden_by_xfail(
        self, suite: Suite, machine: SimpleNamespace
    ) -> None:
        machine.enabled.clear()
        result = suite("""
@pytest.mark.xfail
@sterna.testing.requires_llvm
def test_marked(): pass
@pytest.mark.xfail
def test_direct(): sterna.testing.requires_llvm.require()
@sterna.testing.known_failing_targets("llvm")
@sterna.testing.parametrize_targets("llvm")
def test_target(target): assert False
@pytest.mark.xfail
def test_ordinary(): assert False
""")
        result.assert_outcomes(errors=2, failed=1, xfailed=1)

    @pytest.mark.usefixtures("require_all")
    def test_skipped_by_the_user(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.enabled.clear()
        result = suite("""
@pytest.mark.skip(reason="mine")
@sterna.testing.requires_llvm
def test_it(): pass
""")
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines(["SKIPPED*mine"])

    def test_fixtures_are_not_set_up(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.enabled.clear()
        result = suite("""
@pytest.fixture
def heavy(): raise RuntimeError("set up")
@sterna.testing.requires_llvm
def test_it(heavy): pass
""")
        result.assert_outcomes(skipped=1)


class TestPresent:
    @pytest.mark.parametrize("everything", [False, True])
    def test_runs(
        self,
        everything: bool,
        suite: Suite,
        machine: SimpleNamespace,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        machine.add_gpu()
        if everything:
            monkeypatch.setenv("STERNA_REQUIRE_ALL", "1")
        result = suite("""
@sterna.testing.requires_llvm
def test_llvm(): pass
@sterna.testing.requires_cuda()
def test_cuda(): pass
@sterna.testing.requires_gpu
class TestIt:
    @sterna.testing.requires_cuda
    def test_gpu(self): pass
""")
        result.assert_outcomes(passed=3)

    def test_checked_when_the_test_runs(self, suite: Suite) -> None:
        result = suite("""
@sterna.testing.requires_program("made-by-a-test")
def test_it(): pass
@pytest.fixture(scope="session", autouse=True)
def tool(tmp_path_factory):
    bin = tmp_path_factory.mktemp("bin")
    (bin / "made-by-a-test").write_text("")
    (bin / "made-by-a-test").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(bin))
        yield
def test_first(): pass
@sterna.testing.requires_program("made-by-a-test")
def test_then(): pass
""")
        result.assert_outcomes(passed=2, skipped=1)


GPU = ["gpu", "cuda", "opencl", "vulkan", "metal", "rocm", "hexagon"]


class TestHardware:
    @pytest.mark.usefixtures("require_all")
    @pytest.mark.parametrize("name", GPU)
    def test_require_all_never_fails_for_gpus(self, name: str, suite: Suite) -> None:
        result = suite(f"""
@sterna.testing.requires_{name}
def test_it(): pass
""")
        result.assert_outcomes(skipped=1)
        result.stdout.fnmatch_lines([f"SKIPPED*needs {FEATURES[name].long_name}: *"])

    @pytest.mark.usefixtures("require_all")
    @pytest.mark.parametrize(
        ("machine_name", "passes", "skips"),
        [("x86_64", "x86", "aarch64"), ("AMD64", "x86", "aarch64"), ("arm64", "aarch64", "x86")],
    )
    def test_cpus(
        self,
        machine_name: str,
        passes: str,
        skips: str,
        suite: Suite,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr(platform, "machine", lambda: machine_name)
        result = suite(f"""
@sterna.testing.requires_{passes}
def test_passes(): pass
@sterna.testing.requires_{skips}
def test_skips(): assert False
""")
        result.assert_outcomes(passed=1, skipped=1)
        result.stdout.fnmatch_lines([f"SKIPPED*CPU: this machine is {machine_name}"])

    @pytest.mark.usefixtures("require_all")
    def test_comes_before_what_can_fail(self, suite: Suite) -> None:
        result = suite("""
@sterna.testing.requires_package("no_such_package")
@sterna.testing.requires_gpu
@sterna.testing.requires_program("no-such-program")
def test_it(): pass
""")
        result.assert_outcomes(skipped=1)

    @pytest.mark.usefixtures("require_all")
    def test_own_targets(self, suite: Suite) -> None:
        result = suite("""
@sterna.testing.parametrize_targets("llvm", "c", "cuda")
def test_it(target): pass
""")
        result.assert_outcomes(passed=1, errors=1, skipped=1)


class TestSupportRequired:
    def test_compile_only(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.enabled.add("cuda")
        result = suite("""
@sterna.testing.requires_cuda(support_required="compile-only")
def test_compiles(): pass
@sterna.testing.requires_cuda(support_required="compile-and-run")
def test_runs(): pass
@sterna.testing.requires_rocm(support_required="compile-only")
def test_no_compiler(): pass
@sterna.testing.requires_rocm(support_required="optional")
def test_optional(): pass
""")
        result.assert_outcomes(passed=2, skipped=2)

    def test_unknown_level(self) -> None:
        with pytest.raises(ValueError, match="support_required='sometimes' for CUDA"):
            testing.requires_cuda(support_required="sometimes")  # type: ignore[call-overload]


class TestPackagesAndPrograms:
    SOURCE = """
@sterna.testing.requires_package("json", "numpy.linalg")
def test_packages(): pass
@sterna.testing.requires_package("json", "no_such_package", "no_parent.child")
def test_no_package(): pass
@sterna.testing.requires_program("no-such-program")
class TestProgram:
    def test_it(self): pass
"""

    def test_skips(self, suite: Suite) -> None:
        result = suite(self.SOURCE)
        result.assert_outcomes(passed=1, skipped=2)
        result.stdout.fnmatch_lines_random(
            [
                "SKIPPED*needs Python package json, no_such_package, no_parent.child: "
                "no_such_package, no_parent.child cannot be imported; try `pip install *`",
                "SKIPPED*needs program no-such-program: no-such-program not found on PATH",
            ]
        )

    @pytest.mark.usefixtures("require_all")
    def test_require_all_fails(self, suite: Suite) -> None:
        suite(self.SOURCE).assert_outcomes(passed=1, errors=2)

    @pytest.mark.parametrize("function", [testing.requires_package, testing.requires_program])
    def test_bare_use_is_an_error(self, function: object) -> None:
        assert callable(function)
        with pytest.raises(TypeError, match=r"as in @requires_\w+\('name'\)"):
            function(lambda: None)
        with pytest.raises(TypeError, match=r"as in @requires_\w+\('name'\)"):
            function()


class TestMarkers:
    def test_select_tests(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.add_gpu()
        source = """
@sterna.testing.requires_cuda
def test_cuda(): pass
@sterna.testing.uses_gpu
def test_uses(): pass
@sterna.testing.uses_gpu()
class TestUses:
    def test_it(self): pass
def test_plain(): pass
"""
        suite(source, "-m", "gpu").assert_outcomes(passed=3, deselected=1)
        suite(source, "-m", "cuda").assert_outcomes(passed=1, deselected=3)

    def test_uses_gpu_runs_without_one(self, suite: Suite) -> None:
        suite("""
@sterna.testing.uses_gpu
def test_it(): pass
""").assert_outcomes(passed=1)

    def test_are_registered(self, suite: Suite, machine: SimpleNamespace) -> None:
        machine.add_gpu()
        marks = "".join(f"@sterna.testing.requires_{name}\n" for name in FEATURES)
        result = suite(
            marks
            + """
@sterna.testing.requires_package("json")
@sterna.testing.requires_program("gcc")
@sterna.testing.parametrize_targets("llvm")
@sterna.testing.exclude_targets("cuda")
@sterna.testing.known_failing_targets("cuda")
def test_it(target): pass
""",
            "--strict-markers",
        )
        result.assert_outcomes(skipped=1)
        suite("", "--markers").stdout.fnmatch_lines(["@pytest.mark.sterna_requires(*"])


class TestRequire:
    SOURCE = """
def test_present(): sterna.testing.require(None)
def test_absent(): sterna.testing.require("no such thing")
def test_hardware(): sterna.testing.require("no such hardware", hardware=True)
"""

    def test_skips(self, suite: Suite) -> None:
        result = suite(self.SOURCE)
        result.assert_outcomes(passed=1, skipped=2)
        result.stdout.fnmatch_lines(["SKIPPED*no such thing"])

    @pytest.mark.usefixtures("require_all")
    def test_require_all(self, suite: Suite) -> None:
        result = suite(self.SOURCE)
        result.assert_outcomes(passed=1, failed=1, skipped=1)
        result.stdout.fnmatch_lines(["FAILED*no such thing (*"])

    def test_module(self, suite: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
        source = "sterna.testing.require('no such thing')\ndef test_it(): pass\n"
        suite(source).assert_outcomes(skipped=1)
        monkeypatch.setenv("STERNA_REQUIRE_ALL", "1")
        suite(source).assert_outcomes(errors=1)
