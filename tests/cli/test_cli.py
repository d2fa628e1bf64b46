"""The command line."""

import subprocess
import sys

import pytest

import sterna
from sterna import cli
from sterna.cli import demo
from sterna.support import toolchain


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "sterna", *arguments], capture_output=True, text=True, timeout=120
    )


def test_version() -> None:
    assert run("--version").stdout.strip() == f"sterna {sterna.__version__}"


def test_demo_shows_what_it_did() -> None:
    done = run("demo")
    assert done.returncode == 0, done.stderr
    assert "[ 0. 10. 20. 30.]" in done.stdout
    assert "shared without a copy (True)" in done.stdout
    assert "it agrees with NumPy: True" in done.stdout


def test_demo_without_a_compiler_says_how_to_get_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(toolchain, "find_c_compiler", lambda: None)
    assert cli.main(["demo"]) == 0
    assert "pip install ziglang" in capsys.readouterr().out


def test_unknown_command_is_a_usage_error() -> None:
    done = run("fly")
    assert done.returncode == 2
    assert "fly" in done.stderr and "Traceback" not in done.stderr


def test_an_error_is_one_message(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(options: object) -> int:
        raise ValueError("the model [is] odd")

    monkeypatch.setattr(demo, "run", fail)
    assert cli.main(["demo"]) == 1
    assert capsys.readouterr().err.strip() == "sterna: the model [is] odd"
    with pytest.raises(ValueError, match="odd"):
        cli.main(["--debug", "demo"])
