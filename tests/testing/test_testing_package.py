"""The package itself: what it imports, what it gives without pytest, and main()."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sterna import testing

pytest_plugins = ["pytester"]


def run_python(code: str) -> str:
    """What a fresh interpreter prints for the code."""
    command = [sys.executable, "-c", code]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_all_names_exist() -> None:
    assert all(hasattr(testing, name) for name in testing.__all__)


def test_import_does_not_load_the_compiler_backend() -> None:
    code = "import sys, sterna.testing; print('llvmlite' in sys.modules)"
    assert run_python(code) == "False\n"


def test_without_pytest() -> None:
    output = run_python("""
import sys
sys.modules["pytest"] = None
import sterna.testing
sterna.testing.assert_allclose([1.0], [1.0])
print(type(sterna.testing.enabled_targets()), sterna.testing.device_enabled("llvm") in (0, 1))
try:
    sterna.testing.requires_llvm
except ImportError as error:
    print(error)
try:
    from sterna.testing import fixture
except ImportError as error:
    print(error)
print(hasattr(sterna.testing, "no_such_name"))
""")
    assert output.splitlines() == [
        "<class 'list'> True",
        "sterna.testing.requires_llvm needs pytest: run `pip install pytest`",
        "sterna.testing.fixture needs pytest: run `pip install pytest`",
        "False",
    ]


MAIN = """
import sterna.testing

a, b = sterna.testing.parameters((1, 10), (2, 20))

def test_it(a, b):
    assert b == 10 * a

@sterna.testing.requires_program("no-such-program")
def test_skipped():
    assert False

if __name__ == "__main__":
    sterna.testing.main()
"""


@pytest.mark.parametrize("conftest", [None, 'pytest_plugins = ["sterna.testing.plugin"]\n'])
def test_main(pytester: pytest.Pytester, conftest: str | None) -> None:
    if conftest is not None:
        pytester.makeconftest(conftest)
    path = pytester.makepyfile(test_main=MAIN)
    result = pytester.runpython(path)
    result.assert_outcomes(passed=2, skipped=1)
    assert result.ret == 0


def test_main_passes_arguments_and_status(pytester: pytest.Pytester) -> None:
    path = pytester.makepyfile(test_main=MAIN.replace("10 * a", "10"))
    result = pytester.run(sys.executable, path, "-k", "test_it and 2-20")
    result.assert_outcomes(failed=1, deselected=2)
    assert result.ret == pytest.ExitCode.TESTS_FAILED


def test_main_outside_a_file() -> None:
    code = "import sterna.testing; sterna.testing.main()"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False
    )
    assert result.returncode != 0
    assert "must be called from a test file" in result.stderr


def test_suite_in_a_subprocess(pytester: pytest.Pytester) -> None:
    """The plugin on the real machine, which has at most a CPU for sure."""
    pytester.makeconftest('pytest_plugins = ["sterna.testing.plugin"]\n')
    pytester.makepyfile("""
import sterna.testing

def test_target(target, dev):
    assert (target, dev) in sterna.testing.enabled_targets()

def test_same_as_listed(request):
    assert all(dev.exist for _, dev in sterna.testing.enabled_targets())
""")
    result = pytester.runpytest_subprocess("-ra", "-W", "error")
    assert result.ret == 0
