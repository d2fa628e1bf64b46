"""Ctrl-C while a command is still being loaded."""

import pytest

from sterna import cli
from sterna.cli.failures import INTERRUPTED


def test_an_interrupted_import_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(name: str) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    assert cli.main(["compile", "model.onnx"]) == INTERRUPTED
    assert capsys.readouterr().err == "sterna: interrupted\n"
