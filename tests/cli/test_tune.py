"""sterna tune: records beside the model, a plot, and what it refuses."""

import io
import xml.etree.ElementTree
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console

from sterna.cli.tune import search_table
from sterna.tune import Budget, Progress, TuningDatabase
from sterna.tune.chart import draw_history
from sterna.tune.search import LayerProgress
from tests.cli.conftest import Sterna
from tests.support import require_program


def test_a_model_is_tuned(sterna: Sterna, folder: Path) -> None:
    done = sterna("tune", "dense.onnx", "--trials", "1", "--plot", "search.svg", "--json")
    assert done.status == 0, done.err
    assert done.data["output"] == "dense.tuned.db" and done.data["speedup"] >= 1.0
    assert TuningDatabase(folder / "dense.tuned.db", read_only=True)
    assert (folder / "search.svg").read_text().startswith("<svg")
    again = sterna("compile", "dense.onnx", "-o", "dense.tar")
    assert again.status == 0 and not again.err


def test_a_network_for_a_board_is_tuned_by_instructions(sterna: Sterna, folder: Path) -> None:
    require_program("qemu-system-arm")
    require_program("arm-none-eabi-gcc")
    save_convolution(folder / "conv.onnx")
    done = sterna("tune", "conv.onnx", "--board", "mps2_an386", "--trials", "1", "--json")
    assert done.status == 0, done.err
    counts = [done.data[f"{which}_seconds"] * 1e9 for which in ("untuned", "tuned")]
    assert counts[1] <= counts[0] < 500_000 and done.data["trials"] == 1 and not done.data["failed"]
    built = sterna("micro", "conv.onnx", "--board", "mps2_an386", "--layers", "--json")
    assert built.status == 0 and not built.err, built.err
    counted = sum(row["instructions"] for row in built.data["layers"])
    assert counted == pytest.approx(counts[1], rel=1e-3), "what was found is what is built"


def save_convolution(path: Path) -> None:
    """Four channels of 8 x 8 pixels to eight."""
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1, channels, 8, 8])
            for name, channels in (("x", 4), ("y", 8))]
    weights = np.random.default_rng(0).standard_normal((8, 4, 3, 3)).astype("float32")
    node = helper.make_node("Conv", ["x", "w"], ["y"], pads=[1, 1, 1, 1])
    graph = helper.make_graph([node], "conv", ends[:1], ends[1:],
                              [numpy_helper.from_array(weights, "w")])
    onnx.save(helper.make_model(graph, ir_version=8, opset_imports=[helper.make_opsetid("", 17)]),
              path)


def test_minutes_limit_the_time(sterna: Sterna, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Budget] = []

    def stop(*args: object, **_: object) -> None:
        asked.extend(arg for arg in args if isinstance(arg, Budget))
        raise ValueError("seen enough")

    monkeypatch.setattr("sterna.cli.tune.tune", stop)
    sterna("tune", "dense.onnx", "--minutes", "2", "--trials", "3")
    assert [(budget.trials, budget.seconds) for budget in asked] == [(3, 120.0)]


def test_where_a_search_stands_is_shown() -> None:
    layers = {"1x8x8x16 * 16x1x1x16 -> 1x8x8x16 float32": LayerProgress(0.75, 3, 0.9),
              "<a & b>": LayerProgress(0.2, 2, 1.0)}
    at = Progress(2, 0.93, 0.02, 5, 1, 12.0, 0.004, layers)
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(search_table(at, 600))
    shown = console.export_text()
    assert "round 2, 12 of 600 s: 5 trials" in shown and "3.72 ms" in shown
    assert "75.0%" in shown and "0.900" in shown
    drawn = draw_history([at])
    assert drawn.count("<polyline") == 3 and "&lt;a &amp; b&gt;: 100.0%" in drawn
    xml.etree.ElementTree.fromstring(drawn)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--minutes", "0"), "'0' is no number of minutes above 0"),
        (("--board", "mps2_an38"), "there is no board 'mps2_an38'; did you mean mps2_an38"),
        (("--board", "mps2_an386", "--target", "llvm"), "networks for boards are C, not 'llvm'"),
        (("--board", "mps2_an386", "--ray", "auto"), "--board and --ray do not go together"),
        (("--board", "microbit"), "SysTick that it knows"),
        (("--rpc", "nowhere"), "'nowhere' is no HOST:PORT"),
        (("--rpc", "here:9190"), "--rpc and --key go together"),
        (("--rpc", "here:9190", "--key", "board"), "--rpc: say what the device is"),
        (("--target", "llvm -mtriple=riscv64-linux-gnu"), "is another machine than this; --rpc"),
        (("--target", "llvm", "--rpc", "here:9190", "--key", "board", "--ray", "auto"),
         "--ray and --rpc do not go together"),
        (("--ray", "127.0.0.1:9"), "no Ray cluster answers at '127.0.0.1:9'"),
        (("-o", "none/t.db"), "there is no folder 'none'"),
    ],
)
def test_what_is_refused(sterna: Sterna, words: tuple[str, ...], message: str) -> None:
    try:
        done = sterna("tune", "dense.onnx", *words)
    except SystemExit as error:
        assert error.code == 2
    else:
        assert done.status != 0 and message in done.err


def test_a_model_that_is_not_there_leaves_no_records(sterna: Sterna, folder: Path) -> None:
    done = sterna("tune", "nothing.onnx")
    assert done.status == 3 and "nothing.onnx" in done.err
    assert not (folder / "nothing.tuned.db").exists()


@pytest.mark.parametrize("command", ["run", "bench", "profile", "tune"])
def test_an_empty_name_is_told(sterna: Sterna, command: str) -> None:
    done = sterna(command, "")
    assert done.status == 3 and "empty name" not in done.err and len(done.err) > 10
