"""The list of layers, the sampler, and runs over them beside other engines."""

import importlib
import json
import math
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

import numpy as np
import onnx
import pytest

from sterna.runtime.node_times import Bounds, NodeTime, NodeTimes
from tests.support import ROOT, require_module

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmarks' modules can be imported."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def all_layers() -> list[Any]:
    layers: list[Any] = module("layer_list.every").LAYERS
    return layers


# ---- the list ----


def test_the_list_is_long_and_names_are_unique() -> None:
    layers = all_layers()
    assert len(layers) >= 400
    assert [key for key, count in Counter(layer.key for layer in layers).items() if count > 1] == []


def test_every_class_and_every_variant_is_there() -> None:
    layers = all_layers()
    kinds = Counter(layer.kind for layer in layers)
    some = {"conv-grouped", "conv-3d", "conv-1d-dilated", "dense-row", "attention", "sort"}
    assert some <= set(kinds)
    variants = Counter(str(layer.variant) for layer in layers)
    assert all(variants[name] >= 50 for name in ("", "batch8", "int8", "free"))


@pytest.mark.parametrize("part", range(4))
def test_every_layer_is_a_valid_model(part: int) -> None:
    for layer in all_layers()[part::4]:
        model, inputs = layer.build()
        onnx.checker.check_model(model)
        assert [value.name for value in model.graph.input] == list(inputs), layer.key
        assert all(value.type.tensor_type.elem_type for value in model.graph.output), layer.key


def test_a_layer_is_the_same_in_every_process() -> None:
    layer = next(one for one in all_layers() if one.key == "conv/alexnet_3x3_256_256_13-free")
    (first, given), (second, again) = layer.build(), layer.build()
    assert first.SerializeToString() == second.SerializeToString()
    assert all(np.array_equal(given[name], again[name]) for name in given)
    assert len(given) == 3, "the weights and the bias are inputs"


def test_a_variant_of_unknown_letters_is_refused() -> None:
    with pytest.raises(ValueError, match="made of 8, q and f, not '8x'"):
        module("layer_list.layer").Variant.parse("8x")


# ---- the sampler ----


def test_a_seed_draws_the_same_layers_and_another_one_others() -> None:
    sample = module("layer_list.sample").sample
    first = [layer.key for layer in sample(60, 3)]
    assert first == [layer.key for layer in sample(60, 3)]
    assert first[:20] == [layer.key for layer in sample(20, 3)]
    assert len(set(first)) == 60
    assert first != [layer.key for layer in sample(60, 4)]


def test_drawn_layers_are_valid_models_of_every_class() -> None:
    drawing = module("layer_list.sample")
    layers = drawing.sample(2 * len(drawing.DRAWS), 11)
    assert {layer.kind for layer in layers} == set(drawing.DRAWS)
    for layer in layers:
        onnx.checker.check_model(layer.build()[0])


# ---- standings ----


def made(key: str, ratio: float | None, **fields: Any) -> Any:
    given = {"variant": "", "threads": 1, "times": {}, "fastest_peer": "onnxruntime",
             "difference": 0.0, "same": True, **fields}
    return module("standings").Standing(key=key, kind=key.split("/")[0], ratio=ratio, **given)


def test_the_worst_comes_first_and_failures_before_it() -> None:
    standings = module("standings")
    found = [
        made("a/slow", 0.5), made("a/fast", 2.0), made("b/wrong", 3.0, same=False),
        made("b/fails", None, same=None, failures={"sterna": "no"}),
        made("b/alone", None, same=None),
    ]
    order = [each.key for each in standings.worst_first(found)]
    assert order == ["b/fails", "b/wrong", "a/slow", "a/fast", "b/alone"]


def test_classes_are_summed_up_by_geometric_means() -> None:
    standings = module("standings")
    rows = standings.summary([made("a/x", 0.5), made("a/y", 2.0), made("b/z", 4.0)])
    assert [row[0] for row in rows] == ["a", "b", "all"]
    assert rows[0][2:6] == ("2", "1.00", "1 (50%)", "1 (50%)")
    assert rows[2][3] == f"{(0.5 * 2 * 4) ** (1 / 3):.2f}"


def test_the_picture_has_a_dot_for_each_ratio() -> None:
    found = [made("a/x<y", 0.5), made("a/y", 2.0), made("b/z", 4000.0), made("b/none", None)]
    drawn = module("standings").picture(found, "Layers")
    assert drawn.count("<circle") == 3 and 'class="lost"' in drawn and "a/x&lt;y: 0.50" in drawn


# ---- engines in processes ----


def test_an_engine_that_cannot_take_a_model_is_left_out(tmp_path: Path) -> None:
    require_module("onnxruntime")
    contest = module("contest")
    layer = next(one for one in all_layers() if one.key.startswith("softmax/Softmax_16x10"))
    model, inputs = layer.build()
    onnx.save(model, tmp_path / "layer.onnx")
    engines = [contest.Engine("onnxruntime", 1), contest.Engine("unheard_of", 1)]
    try:
        found = contest.contest(engines, tmp_path / "layer.onnx", inputs, 1, 0.001)
    finally:
        for engine in engines:
            engine.close()
    assert set(found.times) == {"onnxruntime"} and "unheard_of" in found.failures
    assert found.ratio is None and math.isnan(found.difference)


def test_a_peer_that_computes_something_else_does_not_count(tmp_path: Path) -> None:
    require_module("onnxruntime")
    contest, peers = module("contest"), module("peers")
    layer = next(one for one in all_layers() if one.key == "dense-row/odd_1x333x77")
    model, inputs = layer.build()
    onnx.save(model, path := tmp_path / "layer.onnx")
    right = peers.unfused(path, inputs)
    engine = contest.Engine("onnxruntime", 1)
    try:
        found = [contest.contest([engine], path, inputs, 1, 0.001, False, reference, 0.01)
                 for reference in (right, [2 * each for each in right])]
    finally:
        engine.close()
    assert [each.fastest_peer for each in found] == ["onnxruntime", ""]
    assert set(found[1].wrong) == {"onnxruntime"} and not found[0].wrong


def test_the_reference_of_bytes_sums_the_largest_products_whole(tmp_path: Path) -> None:
    """255 * 127 + 255 * 127 does not fit in 16 bits, where fused kernels of peers saturate."""
    require_module("onnxruntime")
    layer = next(one for one in all_layers() if one.key == "dense-row/whisper_tiny_1x384x384-int8")
    model, inputs = layer.build()
    onnx.save(model, path := tmp_path / "layer.onnx")
    extreme = {name: np.full_like(each, 255) for name, each in inputs.items()}
    (got,) = module("peers").unfused(path, extreme)
    held = {each.name: onnx.numpy_helper.to_array(each) for each in model.graph.initializer}
    weights, bias = (held[node.input[0]].astype("int64") for node in model.graph.node[1:3])
    sums = weights.sum(axis=1) * (255 - 128) + bias
    scale = float(held[model.graph.node[-1].input[1]])
    layered = module("layer_list.layer")
    floats = sums * layered.DATA_STEP * layered.WEIGHT_STEP
    want = np.clip(np.rint(floats / scale) + 128, 0, 255)
    assert np.abs(got.astype("int64").reshape(-1) - want).max() <= 1


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    program = [sys.executable, str(BENCHMARKS / "layers.py"), *map(str, arguments)]
    return subprocess.run(program, capture_output=True, text=True, timeout=300)


def test_a_run_times_compares_keeps_draws_and_goes_on(tmp_path: Path) -> None:
    require_module("onnxruntime")
    kept, drawn = tmp_path / "found.json", tmp_path / "found.svg"
    settings = ("--engines", "onnxruntime", "--rounds", 1, "--seconds", 0.001, "--json", kept)
    done = run("--only", "dense-row/odd_1x333x77", *settings)
    assert done.returncode == 0, done.stderr
    (one,) = json.loads(kept.read_text())["standings"]
    assert one["same"] and one["ratio"] > 0 and one["share_of_bound"] > 0 and one["flops"] > 50_000
    wider = ("--only", "dense-row/odd_1x333x77,Softmax_16x10", "--resume", "--picture", drawn)
    done = run(*wider, *settings)
    assert done.returncode == 0 and "[1/1]" in done.stderr, "what is known is not timed again"
    assert "dense-row" in done.stdout and "softmax" in done.stdout
    assert drawn.read_text().count("<circle") == 2


@pytest.mark.parametrize("arguments, told", [
    (("--only", "no_such_layer"), "no layer has 'no_such_layer' in its name"),
    (("--resume",), "--resume goes on with the file that --json names"),
    (("--json", "nowhere/found.json"), "there is no folder 'nowhere'"),
])
def test_mistakes_are_told(
    arguments: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    require_module("onnxruntime")
    monkeypatch.setattr(sys, "argv", ["layers.py", *arguments])
    with pytest.raises(SystemExit) as ended:
        module("layers").main()
    assert told in f"{ended.value.code}{capsys.readouterr().err}" and ended.value.code != 0


# ---- exported networks ----


def test_thirty_networks_have_names_of_their_own() -> None:
    networks = module("exported_networks").NETWORKS
    assert len({network.key for network in networks}) == 30
    assert {network.library for network in networks} == {"torchvision", "timm"}


def test_a_network_is_exported_and_runs_as_torch_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module("torch")
    import torch

    import sterna

    exported = module("exported_networks")

    class Segmentation(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.ReLU())

        def forward(self, x: Any) -> Any:
            return {"out": self.net(x)}

    net = Segmentation().eval()
    monkeypatch.setattr(exported.Network, "make", lambda self: net)
    monkeypatch.setattr(exported, "prepare_torchvision", lambda: None)
    task = exported.task_of(exported.Network("timm", "small", (1, 3, 8, 8)), tmp_path)
    path, inputs = task.make(tmp_path)
    assert path == tmp_path / "timm_small.onnx"
    with torch.no_grad():
        wanted = net(torch.from_numpy(inputs["image"]))["out"].numpy()
    assert np.allclose(sterna.compile(path).run(inputs)["result"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("absent, told", [
    ({"torch"}, "exporting networks needs PyTorch: pip install torch"),
    ({"timm", "yaml"}, "exporting networks needs timm, pyyaml: pip install --no-deps timm pyyaml"),
])
def test_what_exporting_needs_is_told(
    absent: set[str], told: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name in absent else object()
    )
    given = [str(tmp_path), "--export-only", "--engines", "onnxruntime"]
    monkeypatch.setattr(sys, "argv", ["exported_networks.py", *given])
    with pytest.raises(SystemExit) as ended:
        module("exported_networks").main()
    assert ended.value.code == told


def test_files_that_are_there_are_timed_without_the_libraries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    exported, standings = module("exported_networks"), module("standings")
    small = exported.Network("timm", "small", (1, 3, 4, 4))
    monkeypatch.setattr(exported, "NETWORKS", [small, exported.Network("timm", "large")])
    monkeypatch.setattr(exported, "check_libraries", lambda: pytest.fail("nothing is exported"))
    exported.file_of(small, tmp_path).write_bytes(b"")
    timed: list[str] = []

    def run(tasks: Any, options: Any, title: str) -> int:
        for task in tasks:
            if module("timing_run").wanted(task.key, options.only):
                path, inputs = task.make(tmp_path)
                assert path.name == "timm_small.onnx" and inputs["image"].shape == (1, 3, 4, 4)
                timed.append(task.key)
        times = {"sterna": 0.002, "onnxruntime": 0.003}
        made = standings.Standing("timm/small", "timm", "", 1, times, 1.5, "onnxruntime", 0.0, True)
        standings.show_standings([made], list(times), title, False, None)
        return 0

    monkeypatch.setattr(exported, "run", run)
    given = [str(tmp_path), "--only", "small", "--engines", "onnxruntime"]
    monkeypatch.setattr(sys, "argv", ["exported_networks.py", *given])
    assert exported.main() == 0 and timed == ["timm/small"]
    table = capsys.readouterr().out
    assert "timm/small" in table and "2.000" in table and "3.000" in table and "1.50" in table


# ---- files of a folder ----


def test_files_of_a_folder_are_timed_on_inputs_that_lie_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    require_module("onnxruntime")
    files, engines = module("model_files"), module("peers")
    rate = onnx.helper.make_tensor_value_info("rate", 7, [])
    x, y = (onnx.helper.make_tensor_value_info(name, 1, ("n", 3)) for name in "xy")
    nodes = [onnx.helper.make_node("Cast", ["rate"], ["r"], to=1),
             onnx.helper.make_node("Mul", ["x", "r"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "scaled", [x, rate], [y])
    (tmp_path / "sub").mkdir()
    path = tmp_path / "sub" / "scaled.onnx"
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    tasks: list[Any] = []

    def run(given: Any, *rest: Any) -> int:
        tasks.extend(given)
        return 0

    monkeypatch.setattr(files, "run", run)
    given = [str(tmp_path), "--inputs", str(tmp_path), "--engines", "onnxruntime"]
    monkeypatch.setattr(sys, "argv", ["model_files.py", *given])
    assert files.main() == 0
    (task,) = tasks
    assert (task.key, task.kind, task.quantised) == ("sub/scaled", "sub", False)
    drawn = task.make(tmp_path)[1]
    assert drawn["x"].shape == (1, 3) and drawn["rate"].dtype == np.int64
    held = np.arange(6, dtype="float32").reshape(2, 3)
    np.savez(tmp_path / "scaled.npz", x=held, rate=np.array(2))
    file, inputs = task.make(tmp_path)
    ours, theirs = (engine(file, inputs, 1) for engine in (engines.sterna, engines.onnxruntime))
    assert np.array_equal(ours()[0], theirs()[0]) and ours.model.inputs[0].shape == (2, 3)


def test_the_least_time_of_a_model_is_that_of_what_its_kernels_compute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engines = module("peers")
    nodes = [
        NodeTime("bytes", "f", 1e-3, 1, ((8,),), flops=9_000_000, product_flops=8_000_000,
                 product_type="int8"),
        NodeTime("winograd", "g", 1e-3, 1, ((8,),), flops=4_000_000, spared_flops=3_000_000),
    ]
    model = MagicMock(inputs=[], weights={}, return_value=np.ones(8, "float32"))
    model.profile.return_value = NodeTimes(nodes)
    monkeypatch.setattr(engines, "measure_bounds", lambda _: Bounds(gflops=1, byte_gflops=4))
    limits = engines.CompiledRunner(model, {}, 1).limits()
    assert limits.least_seconds == pytest.approx((1 + 8 / 4 + 1) * 1e-3)
