"""Models from files are found as they were compiled before."""

import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import sterna
from sterna import model as models
from sterna.ir.instrument import PassTimingInstrument
from sterna.ir.transform import PassContext
from sterna.model.cached_model import SIZE, Recipe
from sterna.support.cache import Cache
from tests.support import require_program

RNG = np.random.default_rng(7)
WEIGHTS = RNG.standard_normal((6, 5)).astype("float32")
X = RNG.standard_normal((2, 6)).astype("float32")


def write(path: Path, weights: Any = WEIGHTS, external: bool = False) -> Path:
    """x @ weights, then relu."""
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["y"]),
            helper.make_node("Relu", ["y"], ["z"]),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 6])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(weights, "w")],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(made, path, save_as_external_data=external, location="weights.bin", size_threshold=0)
    return path


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model's file, and a cache of its own."""
    monkeypatch.setenv("STERNA_CACHE", str(tmp_path / "cache"))
    return write(tmp_path / "net.onnx")


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """One entry for each model that is compiled anew."""
    calls: list[Any] = []
    whole = models.build_model

    def build(model: Any, *rest: Any) -> Any:
        calls.append(model)
        return whole(model, *rest)

    monkeypatch.setattr(models, "build_model", build, raising=False)
    return calls


def right(model: sterna.CompiledModel, weights: Any = WEIGHTS) -> bool:
    return bool(np.allclose(model(X), np.maximum(X @ weights, 0), rtol=1e-5, atol=1e-6))


def test_the_second_time_nothing_is_compiled(path: Path, counted: list[Any]) -> None:
    first, second = sterna.compile(path), sterna.compile(str(path))
    assert len(counted) == 1
    assert right(first) and right(second)
    assert (first.inputs, first.outputs) == (second.inputs, second.outputs)
    assert first.report().to_dict() == second.report().to_dict()


def test_a_cached_model_can_do_all_that_a_new_one_can(path: Path, tmp_path: Path) -> None:
    require_program("cc")
    first, second = sterna.compile(path), sterna.compile(path)
    second.export(tmp_path / "net.so")
    assert right(sterna.load(tmp_path / "net.so"))
    assert "nn_dense" in str(second.profile(repeat=1, bounds=False))
    assert first.build is not None and second.build is not None
    texts = [m.build.factory.lib.get_source("ll") for m in (first, second) if m.build is not None]
    assert texts[0] == texts[1]
    bare = second.module["remove_params"]()
    assert bare["get_graph_params"]() == []


def test_what_differs_is_compiled_anew(path: Path, counted: list[Any]) -> None:
    sterna.compile(path)
    sterna.compile(path, opt_level=1)
    sterna.compile(path, target="llvm")
    sterna.compile(path, precision="float16")
    sterna.compile(path, shapes={"x": (2, 6)})
    with PassContext(disabled_pass=["ChooseImplementations"]):
        sterna.compile(path)
    assert len(counted) == 6
    write(path, 2 * WEIGHTS)
    assert right(sterna.compile(path), 2 * WEIGHTS) and len(counted) == 7
    sterna.compile(path.read_bytes())
    assert len(counted) == 8


def test_who_watches_passes_sees_them(path: Path) -> None:
    target, seen = sterna.target.Target("llvm"), set[str]()
    sterna.compile(path, target)
    timing = PassTimingInstrument()
    with PassContext(instruments=[timing], trace=lambda mod, info, before: seen.add(info.name)):
        sterna.compile(path, target)
        shown = timing.render()
    assert all(name in shown and name in seen for name in ("FuseOps", "tir.Simplify"))
    for watched in (PassContext(instruments=[timing]), PassContext(trace=print)):
        assert Recipe.of(path, target, watched, {}) is None


def test_weights_in_other_files_are_read_each_time(
    path: Path, tmp_path: Path, counted: list[Any]
) -> None:
    write(path, external=True)
    assert right(sterna.compile(path))
    data = tmp_path / "weights.bin"
    data.write_bytes((np.frombuffer(data.read_bytes(), "float32") * 3).tobytes())
    assert right(sterna.compile(path), 3 * WEIGHTS) and len(counted) == 2


@pytest.mark.parametrize("damage", ["cut", "changed", "gone"])
def test_a_damaged_entry_is_made_anew(
    path: Path, tmp_path: Path, counted: list[Any], damage: str
) -> None:
    sterna.compile(path)
    (entry,) = [p for p in (tmp_path / "cache" / "models").rglob("*") if p.is_file()]
    content = bytearray(entry.read_bytes())
    content[-100] ^= 1
    if damage == "gone":
        entry.unlink()
    else:
        entry.write_bytes(content[:-50] if damage == "cut" else content)
    told = nullcontext() if damage == "gone" else pytest.warns(RuntimeWarning, match="is damaged")
    with told:
        assert right(sterna.compile(path)) and len(counted) == 2
    assert right(sterna.compile(path)) and len(counted) == 2


@pytest.mark.parametrize("body", [b"", bytes(8), b"\xff" * 64, SIZE.pack(2) + b"{}"])
def test_an_entry_that_is_no_model_is_made_anew(
    path: Path, counted: list[Any], body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    put = Cache.put
    with monkeypatch.context() as patch:
        patch.setattr(Cache, "put", lambda self, key, *parts: put(self, key, body))
        sterna.compile(path)
    with pytest.warns(RuntimeWarning, match="holds something else"):
        assert right(sterna.compile(path)) and len(counted) == 2
    assert right(sterna.compile(path)) and len(counted) == 2


@pytest.mark.parametrize(
    "variable, value", [("STERNA_CACHE", "off"), ("STERNA_CACHE_BYTES", "200")]
)
def test_what_has_no_room_is_not_cached(
    path: Path, counted: list[Any], variable: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, value)
    assert right(sterna.compile(path)) and right(sterna.compile(path)) and len(counted) == 2


def test_a_cached_model_runs_without_the_compiler(path: Path) -> None:
    sterna.compile(path)
    program = (
        "import sys, numpy as np, sterna\n"
        "model = sterna.compile(sys.argv[1])\n"
        "assert model(np.ones((2, 6), 'float32')).shape == (2, 5)\n"
        "heavy = ('onnx', 'sterna.op', 'sterna.driver', 'sterna.lowering', 'sterna.te')\n"
        "print([name for name in heavy if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(path)], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
