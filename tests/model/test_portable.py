"""One library for several levels of an architecture, of which loading picks one."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.cli import main
from sterna.driver.portable import CORES, LevelCode, export_levels, levels_of
from sterna.isa.instruction_set import Level
from sterna.model import export_portable, target_of
from sterna.target import Target, machine_of, processor_of
from tests.support import absent_feature


def network() -> Any:
    rng = np.random.default_rng(3)
    x = relay.var("x", shape=(2, 16))
    w = relay.const(rng.standard_normal((24, 16)).astype("float32"))
    return tvm.IRModule.from_expr(relay.Function((x,), relay.nn.relu(relay.nn.dense(x, w))))


def best_level() -> str:
    """The highest level whose features this machine has."""
    native = machine_of(Target("llvm -mcpu=native"))
    found = [level.name for level, target in levels_of(Target("llvm"))
             if _looked_for(target) <= native.feature_set]
    return found[-1]


def _looked_for(target: Target) -> set[str]:
    machine = machine_of(target)
    known = machine.instructions.isa.loader_features.split()
    return {f for f in machine.feature_set if f in known or f.startswith("amx-")}


def test_loading_picks_the_best_level(tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    levels = export_portable(network(), path)
    loaded = tvm.load(path)
    x = np.random.default_rng(4).standard_normal((2, 16)).astype("float32")
    np.testing.assert_allclose(loaded(x), tvm.compile(network())(x), rtol=1e-5)
    assert loaded.graph["attrs"]["level"] == ["list_str", [best_level(), *levels]]
    assert f"({best_level()} of {', '.join(levels)})" in str(loaded.report())
    executor = tvm.contrib.graph_executor.GraphModule(
        tvm.runtime.load_module(path)["default"](tvm.cpu(0))
    )
    executor.run(x=x)
    np.testing.assert_array_equal(executor.get_output(0).numpy(), loaded(x))


def built(place: int, options: str) -> LevelCode:
    made = relay.build(network(), f"llvm {options}", mod_name=f"level{place}")
    return LevelCode(Level(f"step{place}", options), made)


def test_levels_that_this_processor_lacks_are_passed_over(tmp_path: Path) -> None:
    low, high = built(0, ""), built(1, f"-mattr=+{absent_feature()}")
    export_levels([low, high], tmp_path / "both.so")
    assert tvm.load(tmp_path / "both.so").graph["attrs"]["level"][1][0] == "step0"
    export_levels([high], tmp_path / "high.so")
    with pytest.raises(ValueError, match=rf"high\.so.* this processor lacks .*{absent_feature()}"):
        tvm.load(tmp_path / "high.so")


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = Path(tvm.__file__).parent / "cli" / "digits" / "digits.onnx"
    command = ["compile", str(model), "--portable", "--shape", "count:1"]
    assert main([*command, "-o", str(tmp_path / "m.tar")]) == 3
    assert "portable files are shared libraries" in capsys.readouterr().err
    named = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"
    assert main([*command, "--target", named, "-o", "m.so"]) == 3
    assert "leave out -mcpu" in capsys.readouterr().err
    assert main([*command, "--target", "llvm -mtriple=riscv64-linux-gnu", "-o", "m.so"]) == 3
    assert "made for x86-64 and AArch64" in capsys.readouterr().err


def test_files_for_another_architecture(tmp_path: Path) -> None:
    other = {"aarch64": "x86_64", "x86": "aarch64"}
    machine = machine_of(Target("llvm"))
    triple = f"{other[machine.instructions.isa.name]}-linux-gnu"
    path = tmp_path / "net.so"
    levels = export_portable(network(), path, f"llvm -mtriple={triple}")
    content = path.read_bytes()
    assert all(f"{level} ".encode() in content for level in levels) and len(levels) > 2
    assert json.dumps(levels)[1:-1].encode() in content


def test_a_file_names_the_processor_that_it_needs(tmp_path: Path) -> None:
    path = tmp_path / "net.so"
    tvm.compile(network()).export(path)
    cpu = machine_of(Target("llvm -mcpu=native")).cpu
    assert f"for the file {path} (needs {cpu}" in str(tvm.load(path).report())


def test_native_kernels_are_for_the_threads_that_run_them() -> None:
    try:
        tvm.runtime.set_num_threads(1)
        alone = target_of("native")
    finally:
        tvm.runtime.set_num_threads(0)
    assert processor_of(alone).threads == 1
    assert processor_of(target_of("native")).threads == tvm.runtime.num_threads()
    named = target_of("llvm -mcpu=native")
    assert target_of(named) is named or str(target_of(named)) == str(named)
    assert {processor_of(each).threads for _, each in levels_of(Target("llvm"))} == {CORES}
