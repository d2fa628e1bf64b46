"""The bars that show what is being compiled."""

import argparse
import io
import threading
import time
import warnings

import pytest
from rich.console import Console
from rich.progress import Progress

from sterna.cli import output
from sterna.cli.output import Bar, Lines, progress, short_name
from sterna.support.progress import Watcher, stage, watching


def test_a_bar_shows_the_stage_its_steps_and_the_kernel() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    columns = Progress.get_default_columns()
    with Progress(*columns, "{task.fields[what]}", console=console) as bars:
        with watching(Bar(bars)), stage("compile kernels", 2) as at:
            at.begin("tvmgen_default_fused_nn_conv2d_add")
            bars.refresh()
            at.end("tvmgen_default_fused_nn_conv2d_add")
            for step in (at.begin, at.end):
                thread = threading.Thread(target=step, args=("other",))
                thread.start()
                thread.join()
            bars.refresh()
            assert bars.tasks[0].completed == 2
        assert not bars.tasks
    assert "compile kernels" in shown.getvalue() and "nn_conv2d_add" in shown.getvalue()
    assert "tvmgen" not in shown.getvalue()


def test_there_is_no_bar_in_a_pipe_or_for_machines(capfd: pytest.CaptureFixture[str]) -> None:
    for as_json in (True, False):
        with progress(argparse.Namespace(json=as_json)), stage("work", 1) as at:
            at.begin("a step")
            at.end("a step")
    assert capfd.readouterr() == ("", "")


def test_long_stages_are_lines_in_a_pipe(capfd: pytest.CaptureFixture[str]) -> None:
    lines = Lines(every=0.05)
    with watching(lines), stage("compile kernels", 3) as at:
        at.begin("a step")
        at.end("a step")
        time.sleep(0.3)
    said = capfd.readouterr().err
    assert "sterna: compile kernels (1 of 3): 0 s so far" in said and said.count("\n") >= 2
    time.sleep(0.12)
    assert capfd.readouterr().err == ""


def test_stages_that_fail_are_not_ended() -> None:
    class Names(Watcher):
        def __init__(self) -> None:
            self.ended: list[str] = []

        def end_stage(self, name: str, seconds: float) -> None:
            self.ended.append(name)

    names = Names()
    with watching(names):
        with stage("good"):
            pass
        with pytest.raises(ValueError, match="no"), stage("bad"):
            raise ValueError("no")
    with stage("unwatched"):
        pass
    assert names.ended == ["good"]


def test_names_are_short_and_warnings_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert short_name("tvmgen_my_model_fused_nn_dense") == "nn_dense"
    with warnings.catch_warnings():
        warnings.showwarning = output.warn
        warnings.simplefilter("always")
        warnings.warn("the wing [is] odd", stacklevel=1)
    assert capsys.readouterr().err == "sterna: the wing [is] odd\n"
