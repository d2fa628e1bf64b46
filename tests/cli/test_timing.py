"""sterna bench, profile and targets."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from sterna.cli import profile
from sterna.model import bounds, streams
from sterna.model.bounds import measure_bounds
from sterna.runtime import num_threads
from sterna.runtime.node_times import Bounds, NodeTime, NodeTimes
from sterna.target import Target, machine_of
from tests.cli.conftest import Sterna
from tests.support import require_module, require_program

QUICK = ("--turns", "2", "--turn-ms", "1")


def test_bench_beside_onnx_runtime(sterna: Sterna) -> None:
    require_module("onnxruntime")
    done = sterna("bench", "dense.onnx", *QUICK, "--threads", "1", "--json")
    assert done.status == 0 and not done.err
    engines = done.data["engines"]
    assert list(engines) == ["sterna", "onnxruntime"] and done.data["threads"] == 1
    assert engines["sterna"]["min"] <= engines["sterna"]["median"]
    ratio = engines["onnxruntime"]["min"] / engines["sterna"]["min"]
    assert done.data["ratio"]["min"] == pytest.approx(ratio)
    assert done.data["largest_difference"] < 1e-5
    assert "onnxruntime takes" in sterna("bench", "dense.onnx", *QUICK).out


def test_bench_of_a_file(sterna: Sterna) -> None:
    require_program("cc")
    assert sterna("compile", "dense.onnx", "-o", "dense.so").status == 0
    data = sterna("bench", "dense.so", *QUICK, "--json").data
    assert list(data["engines"]) == ["sterna"] and "--beside MODEL.onnx" in data["note"]
    require_module("onnxruntime")
    done = sterna("bench", "dense.so", *QUICK, "--beside", "dense.onnx", "--json")
    assert list(done.data["engines"]) == ["sterna", "onnxruntime"]
    assert sterna("bench", "dense.so", "--alone", "--beside", "dense.onnx").status == 2


def test_bench_beside_what_is_not_installed(
    sterna: Sterna, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    done = sterna("bench", "dense.onnx", *QUICK, "--beside", "dense.onnx")
    assert done.status == 5 and "pip install onnxruntime" in done.err


def test_bench_beside_a_peer_that_refuses(sterna: Sterna, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*given: object) -> None:
        raise RuntimeError("unknown model version")

    require_module("onnxruntime")
    monkeypatch.setattr("sterna.cli.bench.onnxruntime_runner", refuse)
    done = sterna("bench", "dense.onnx", *QUICK)
    assert done.status == 0 and "cannot run this model: unknown model version" in done.out
    done = sterna("bench", "dense.onnx", *QUICK, "--beside", "dense.onnx")
    assert done.status == 3 and "ONNX Runtime cannot run 'dense.onnx'" in done.err


def test_profile_shows_rates_and_writes_a_trace(sterna: Sterna, folder: Path) -> None:
    done = sterna("profile", "dense.onnx", "--repeat", "2", "--trace", "trace.json", "--no-bounds")
    assert done.status == 0 and "wrote trace.json" in done.err
    assert "GFLOP/s" in done.out and "Bound (%)" not in done.out
    assert json.loads((folder / "trace.json").read_text())["traceEvents"]
    data = sterna("profile", "dense.onnx", "--repeat", "1", "--no-bounds", "--json").data
    assert data["nodes"][0]["seconds"] > 0 and data["bounds"] is None
    shown = sterna("profile", "dense.onnx", "--in-order").out
    assert "Bound (%)" in shown and "This machine: " in shown and "\nnn_dense" in shown
    assert "dense, activation" in shown


def test_profile_names_kernels_over_three_times_their_bound() -> None:
    far = NodeTime("tvmgen_default_fused_nn_dense", "f", 4e-3, 2, ((1, 8),), flops=1_000_000)
    near = NodeTime("tvmgen_default_fused_add", "g", 1e-3, 2, ((1, 8),), flops=1_000_000)
    shown = profile._text(NodeTimes([far, near], Bounds(gflops=1)), in_order=True)
    assert shown.endswith("\n\nOver three times their bound: nn_dense 4 x")
    shown = profile._text(NodeTimes([near], Bounds(gflops=1)), in_order=True)
    assert "Over three times" not in shown


def test_bounds_are_those_of_a_machine() -> None:
    found = measure_bounds(num_threads())
    has_dot4 = machine_of(Target("llvm -mcpu=native")).provides("dot4")
    assert (found.byte_gflops is not None) == has_dot4
    assert found.gflops is not None and 0.5 < found.gflops < 1e5
    for measured in (found.gbytes, found.read_gbytes):
        rates = [rate for _, rate in measured]
        assert rates == sorted(rates, reverse=True) and 0.05 < rates[-1] < 1e4


def test_what_a_call_costs_is_no_part_of_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    rate = bounds._multiply_add_rate(1, "float32")
    monkeypatch.setattr(bounds, "ROUNDS", 4 * bounds.ROUNDS)
    assert rate > 0.97 * bounds._multiply_add_rate(1, "float32")


def test_streams_go_over_whole_lines_as_those_of_models_do() -> None:
    arrays = [streams._ones(1, 1 << bits) for bits in (3, 10, 18)]
    assert all(np.from_dlpack(array).ctypes.data % 64 == 0 for array in arrays)


def test_targets_are_listed_with_what_is_missing(sterna: Sterna) -> None:
    kinds = {kind["kind"]: kind for kind in sterna("targets", "--json").data["kinds"]}
    assert kinds["llvm"]["builds"] and "mcpu" in kinds["llvm"]["options"]
    assert not kinds["metal"]["builds"] and "no code generator" in kinds["metal"]["missing"]
    machines = {m.pop("target"): m for m in sterna("targets", "--json").data["machines"]}
    for made in machines.values():
        for found in made.values():
            assert (found["by"] is None) == (found["missing"] is not None)
    hexagon = machines["llvm -mtriple=hexagon-unknown-elf"]
    assert "hexagon-clang with cc=" in hexagon["shared_library"]["missing"]
    assert "wasm_module" in machines["llvm -mtriple=wasm32-wasi"]
    shown = sterna("targets").out
    assert "This machine: " in shown and sys.platform in shown and "hexagon" in shown
    assert "[1]" in shown and "runs on a device of its own" in shown
