"""The command line."""

import subprocess
import sys

import pytest

import sterna
from sterna import cli
from sterna.cli import demo


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "sterna", *arguments], capture_output=True, text=True, timeout=120
    )


def test_version() -> None:
    assert run("--version").stdout.strip() == f"sterna {sterna.__version__}"


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
    assert cli.main(["demo"]) == 3
    assert capsys.readouterr().err.strip() == "sterna: the model [is] odd"
    for words in (["--debug", "demo"], ["demo", "--debug"]):
        assert cli.main(words) == 3
        assert "Traceback" in capsys.readouterr().err
