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


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("compil net.onnx", "sterna: error: there is no command 'compil'; did you mean compile?"),
        ("wings --fly", "sterna: error: there is no command 'wings'; there are compile, run"),
        ("--verson", "sterna: error: there is no option --verson; did you mean --version?"),
        ("compile --outptu=x a.onnx",
         "sterna compile: error: there is no option --outptu; did you mean --output?"),
        ("run a.onnx b.onnx", "sterna run: error: b.onnx is one word too many"),
        ("run a.onnx --precision floot16", "there is no choice 'floot16'; did you mean float16?"),
    ],
)
def test_misspelt_words_are_told_with_the_commands_own_usage(
    words: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(words.split())
    said = capsys.readouterr().err
    assert ended.value.code == 2 and text in said
    command = words.split()[0] if words.startswith(("compile", "run")) else "[-h]"
    assert said.startswith(f"usage: sterna {command}")


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
