"""The classic command line, as scripts call it."""

import gzip
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna
from sterna.contrib import graph_executor
from sterna.contrib.tvmc.main import main
from sterna.contrib.tvmc.micro import typed_options
from sterna.contrib.tvmc.model import TVMCException
from sterna.contrib.tvmc.shapes import parse_shapes
from sterna.micro.project_api.server import ProjectOption
from sterna.rpc import Server
from sterna.target import Target
from sterna.tune import TuningDatabase
from tests.contrib.test_tvmc import model as model  # a fixture
from tests.support import require_program

GIVEN = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
WANTED = np.maximum(GIVEN @ (np.arange(12, dtype="float32").reshape(4, 3) / 10), 0)


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    np.savez(tmp_path / "in.npz", x=GIVEN)
    return tmp_path / "in.npz"


def compiled(model: Path, *more: str) -> Path:
    package = model.with_suffix(".tar")
    assert main(["compile", "--target", "llvm", "--output", str(package), *more, str(model)]) == 0
    return package


def run(package: Path, inputs: Path, *more: str) -> np.ndarray:
    out = package.with_name("out.npz")
    assert main(["run", "--inputs", str(inputs), "--outputs", str(out), *more, str(package)]) == 0
    made: np.ndarray = np.load(out)["output_0"]
    return made


def test_a_package_runs_and_is_what_programs_unpack(
    model: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = compiled(model, "--input-shapes", "x:[2,4]", "--dump-code", "relay,tir,ll")
    made = run(package, inputs, "--print-time", "--repeat", "3", "--print-top", "2")
    np.testing.assert_allclose(made, WANTED, rtol=1e-5)
    shown = capsys.readouterr().out
    assert "mean (ms)" in shown and "[" in shown
    assert "nn.relu" in Path(f"{package}.relay").read_text()
    assert "define " in Path(f"{package}.ll").read_text()
    assert "for " in Path(f"{package}.tir").read_text()
    with tarfile.open(package) as archive:
        archive.extractall(package.parent, filter="data")
    library = sterna.runtime.load_module(package.parent / "mod.so")
    graph = (package.parent / "mod.json").read_text()
    module = graph_executor.create(graph, library, sterna.cpu())
    module.load_params((package.parent / "mod.params").read_bytes())
    module.run(x=GIVEN)
    np.testing.assert_allclose(module.get_output(0).numpy(), WANTED, rtol=1e-5)
    run(package, inputs, "--profile")
    assert "dense" in capsys.readouterr().out


@pytest.mark.parametrize("more", [
    ["--executor", "aot"],
    ["--executor", "graph", "--executor-graph-link-params", "1", "-O", "1"],
    ["--disabled-pass", "FuseOps", "--pass-config", "tir.disable_vectorize=true"],
    ["--desired-layout", "NHWC"],
])
def test_options_of_compile(model: Path, inputs: Path, more: list[str]) -> None:
    np.testing.assert_allclose(run(compiled(model, *more), inputs, "--end-to-end"), WANTED, 1e-5)


def test_archives_for_microcontrollers(
    model: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = model.with_name("mlf.tar")
    words = ["compile", "--target", "c", "--target-c-mcpu", "cortex-m4", "-f", "mlf", "-o",
             str(package), "--executor", "aot", "--executor-aot-unpacked-api", "1",
             "--executor-aot-interface-api", "c", "--runtime", "crt", str(model)]
    assert main(words) == 0
    with tarfile.open(package) as archive:
        assert any(name.endswith("metadata.json") for name in archive.getnames())
    assert main(["run", "--inputs", str(inputs), str(package)]) != 0
    assert "is in Model Library Format, for programs of C" in capsys.readouterr().err


def test_options_of_projects_as_words() -> None:
    known = [ProjectOption(name, type=kind, optional=["build"])
             for name, kind in (("quiet", "bool"), ("defines", "list"), ("port", "int"))]
    assert typed_options(["quiet=True", "defines=-DA,-DB=1", "port=7"], known) == {
        "quiet": True, "defines": ["-DA", "-DB=1"], "port": 7}
    for word in ("colour=red", "quiet"):
        with pytest.raises(TVMCException, match="it is NAME=VALUE, the name one of quiet"):
            typed_options([word], known)


def test_a_project_is_made_built_and_run(model: Path, inputs: Path) -> None:
    require_program("cc")
    package, project = model.with_name("mlf.tar"), model.with_name("project")
    assert main(["compile", "--target", "c", "-f", "mlf", "-o", str(package), "--executor", "aot",
                 "--executor-aot-unpacked-api", "1", "--runtime", "crt", str(model)]) == 0
    assert main(["micro", "create", str(project), str(package), "crt", "--project-option",
                 "project_type=host_driven", "verbose=0"]) == 0
    assert main(["micro", "build", str(project), "crt"]) == 0
    out = model.with_name("out.npz")
    assert main(["run", "--device", "micro", "-i", str(inputs), "-o", str(out), "--print-time",
                 str(project)]) == 0
    np.testing.assert_allclose(np.load(out)["output_0"], WANTED, rtol=1e-5)


def test_on_a_server(model: Path, inputs: Path) -> None:
    server = Server(host="127.0.0.1")
    try:
        made = run(compiled(model), inputs, "--rpc-tracker", f"127.0.0.1:{server.port}")
        np.testing.assert_allclose(made, WANTED, rtol=1e-5)
    finally:
        server.terminate()


@pytest.mark.parametrize(("words", "said"), [
    (["--pass-config", "tir.disable_vectorize=often"], "tir.disable_vectorize is bool"),
    (["--pass-config", "tir.disable_vectorize"], "it is name=value"),
    (["--target-cuda-arch", "sm_80"], "-arch=sm_80 is for the target cuda, but the model"),
    (["--executor", "graph", "--executor-aot-link-params", "1"], "is for --executor aot"),
    (["--desired-layout-ops", "nn.conv2d", "--opt-level", "3"], "are for a desired_layout"),
    (["--model-format", "caffe"], "there is no importer for 'caffe', only for"),
])
def test_mistakes_of_compile(
    model: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["compile", "--target", "llvm", *words, str(model)]) != 0
    error = capsys.readouterr().err
    assert error.startswith("Error: ") and said in error


@pytest.mark.parametrize(("words", "said"), [
    (["--rpc-key", "pi"], "give --rpc-tracker HOST:PORT"),
    (["--rpc-tracker", "here:there"], "it is HOST:PORT"),
])
def test_mistakes_of_run(
    model: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    assert main(["run", *words, str(compiled(model))]) != 0
    assert said in capsys.readouterr().err


def test_inputs_that_do_not_fit(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = compiled(model)
    for name, value, said in (("y", GIVEN, "there is no input 'y'; the model takes x"),
                              ("x", GIVEN[:1], "'x' has the shape [2, 4], not [1, 4]")):
        given: dict[str, Any] = {name: value}
        np.savez(model.with_name("odd.npz"), **given)
        assert main(["run", "-i", str(model.with_name("odd.npz")), str(package)]) != 0
        assert said in capsys.readouterr().err


def test_inputs_are_named_arrays(
    model: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package, odd = compiled(model), model.with_name("x.npy")
    np.save(odd, GIVEN)
    assert main(["run", "-i", str(odd), str(package)]) != 0
    assert "x.npy: it is no .npz file, which names its arrays" in capsys.readouterr().err
    odd.write_bytes(inputs.read_bytes()[:40])
    assert main(["run", "-i", str(odd), str(package)]) != 0
    assert "it is no .npz file" in capsys.readouterr().err


def test_the_host_is_a_part_of_what_is_tuned(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "--target", "llvm", "--target-host", "nothing", "--trials", "1",
                 "--output", str(model.with_suffix(".db")), str(model)]) != 0
    assert "nothing" in capsys.readouterr().err


def test_tuning(model: Path, inputs: Path) -> None:
    records = model.with_suffix(".db")
    assert main(["tune", "--target", "llvm", "--trials", "1", "--tuner", "xgb", "--number", "1",
                 "--output", str(records), str(model)]) == 0
    package = compiled(model, "--tuning-records", str(records))
    np.testing.assert_allclose(run(package, inputs), WANTED, rtol=1e-5)


def test_tuning_begins_with_earlier_records(model: Path) -> None:
    earlier, records = model.with_name("earlier.db"), model.with_name("later.db")
    target = Target("llvm")
    TuningDatabase(earlier).keep(target, {"tile of nothing": ("4", 0.5), "other": ("1", 0.7)})
    TuningDatabase(records).keep(target, {"other": ("2", 0.6)})
    assert main(["tune", "--target", "llvm", "--trials", "0", "--tuning-records", str(earlier),
                 "--output", str(records), str(model)]) == 0
    found = TuningDatabase(records, read_only=True).answers(target)
    assert found.items() >= {("tile of nothing", "4"), ("other", "2")}


def test_packages_of_strangers(
    model: Path, inputs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package = compiled(model)
    first = package.read_bytes()
    assert compiled(model).read_bytes() == first
    for content, said in (
        (first[:2000], "small.tar is no package: it is no complete tar file"),
        (gzip.compress(first), "which may not be compressed"),
    ):
        package.write_bytes(content)
        assert main(["run", str(package)]) != 0
        assert said in capsys.readouterr().err
    with tarfile.open(package, "w") as archive:
        archive.add(inputs, "in.npz")
    assert main(["run", str(package)]) != 0
    assert "it has no mod.so" in capsys.readouterr().err


def test_shapes_as_words() -> None:
    assert parse_shapes("x:[1,3]") == {"x": (1, 3)}
    assert parse_shapes("x:[1, 3] 'a:0':[2]") == {"x": (1, 3), "a:0": (2,)}
    assert parse_shapes("x:[],y:[4]") == {"x": (), "y": (4,)}
    for text in ("x", "x:[a]", "x:[1] y"):
        with pytest.raises(Exception, match="is no shape such as"):
            parse_shapes(text)


def test_by_its_classic_name(model: Path) -> None:
    words = [sys.executable, "-m", "sterna.as_tvm", "-m", "tvm.driver.tvmc"]
    done = subprocess.run([*words, "--version"], capture_output=True, text=True, timeout=100)
    assert done.stdout.strip() == sterna.__version__, done.stderr
