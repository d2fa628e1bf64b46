"""sterna demo, its classifier and its pictures."""

import json
import runpy
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from sterna import cli
from sterna.cli import demo
from sterna.cli.pictures import halve, rows, side_by_side
from sterna.model import CompiledModel
from tests.support import ROOT, require_module, require_program

DRAWING = runpy.run_path(str(ROOT / "examples" / "train_digits.py"))


@pytest.fixture(scope="module")
def outcome() -> dict[str, Any]:
    """What the demo tells programs."""
    require_program("cc")
    command = [sys.executable, "-m", "sterna", "demo", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_reads_the_pictures(outcome: dict[str, Any]) -> None:
    assert len(outcome["labels"]) == DRAWING["SAMPLES"] == outcome["right"] == 40
    assert outcome["predictions"] == outcome["labels"]
    assert min(outcome["probabilities"]) > 0.3 and outcome["largest_difference"] < 1e-5


def test_it_is_timed_beside_peers_and_exported(outcome: dict[str, Any]) -> None:
    require_module("onnxruntime")
    assert set(outcome["microseconds"]) == {"Sterna", "NumPy", "ONNX Runtime"}
    assert all(0 < value < 1e6 for value in outcome["microseconds"].values())
    assert outcome["model_bytes"] < 64 * 1024
    assert outcome["model_bytes"] < outcome["exported_bytes"] < 512 * 1024
    assert outcome["why_not_exported"] is None


def test_people_see_pictures_captions_and_times(capsys: pytest.CaptureFixture[str]) -> None:
    require_program("cc")
    assert cli.main(["demo"]) == 0
    said = capsys.readouterr().out
    for text in ("digits.onnx", "compiled in", "█", "7 (", "40 of 40", "NumPy", "digits.so"):
        assert text in said
    assert "\x1b" not in said


def test_without_onnx_runtime_numpy_is_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert set(demo.peers(demo.FOLDER / "digits.onnx")) == {"NumPy"}


def test_without_a_linker_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    def export(self: object, path: object) -> None:
        raise RuntimeError("no linker was found; pip install ziglang")

    monkeypatch.setattr(CompiledModel, "export", export)
    data = np.load(demo.FOLDER / "digits.npz")
    found = demo.try_out(demo.FOLDER / "digits.onnx", data["pictures"][:3], data["labels"][:3])
    assert found.exported_bytes is None
    console = Console(record=True, width=80)
    demo.draw(console, found, data["pictures"][:3])
    assert "Not exported: no linker was found; pip install ziglang" in console.export_text()


def test_wrong_numbers_are_an_error() -> None:
    right = np.eye(2, dtype="float32")
    demo.check_agreement({"Sterna": right, "NumPy": right}, "Sterna", "NumPy")
    for wrong in (right + 0.01, right * np.nan):
        with pytest.raises(ArithmeticError, match="Sterna's probabilities differ from NumPy's"):
            demo.check_agreement({"Sterna": wrong, "NumPy": right}, "Sterna", "NumPy")


def test_the_classifier_reads_what_it_has_not_seen() -> None:
    pictures, labels = DRAWING["draw_many"](500, seed=77)
    classify = demo.with_numpy(demo.FOLDER / "digits.onnx")
    assert np.mean(classify(DRAWING["as_input"](pictures)).argmax(1) == labels) >= 0.97


def test_the_script_draws_the_samples_again() -> None:
    pictures, labels = DRAWING["draw_many"](DRAWING["SAMPLES"], seed=3)
    data = np.load(demo.FOLDER / "digits.npz")
    np.testing.assert_array_equal(data["labels"], labels)
    np.testing.assert_allclose(data["pictures"].astype(int), pictures.astype(int), atol=1)


def test_a_picture_without_colours_is_blocks() -> None:
    picture = np.array([[0, 200, 0, 200], [0, 0, 200, 200], [9, 200, 9, 9]], "uint8")
    assert [line.plain for line in rows(picture, coloured=False)] == [" ▀▄█", " ▀  "]


def test_a_picture_with_colours_has_every_level() -> None:
    picture = np.array([[0, 200], [7, 9]], "uint8")
    (line,) = rows(picture, coloured=True)
    assert line.plain == "▀▀"
    assert [str(span.style) for span in line.spans] == [
        "rgb(0,0,0) on rgb(7,7,7)", "rgb(200,200,200) on rgb(9,9,9)",
    ]


def test_pictures_stand_side_by_side_at_half_size() -> None:
    assert halve(np.array([[0, 4, 8], [8, 4, 8], [1, 1, 1]], "uint8")).tolist() == [[4]]
    console = Console(width=40, record=True, color_system=None)
    console.print(side_by_side(console, [np.full((4, 8), 255, "uint8")] * 3, ["a", "b", "c"]))
    shown = [line.split() for line in console.export_text().splitlines() if line.strip()]
    assert shown == [["████"] * 3, ["a", "b", "c"]]

