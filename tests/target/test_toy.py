"""A target of which the compiler knows nothing: kind, code generator and schedule lie in toy/."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor
from sterna.driver import compile_kernels
from sterna.driver.kernel_worker import Worker
from sterna.relay.backend import Executor, Runtime
from sterna.schedule.registry import (
    find_schedule,
    find_whole_kernel,
    generic_schedule,
    schedule_for,
    whole_kernel,
)
from sterna.support.fingerprint import fingerprint
from sterna.target import Target, kind, register
from sterna.target.kind import all_kinds, find_kind
from tests.support import ROOT

TOY = "tests.target.toy.kind"


@pytest.fixture(autouse=True)
def toy() -> Iterator[None]:
    register(TOY)
    yield
    kind._registered.clear()
    kind._announced.cache_clear()
    kind._kinds.cache_clear()


def network() -> tuple[Any, np.ndarray, np.ndarray]:
    """Two dense layers and a softmax; with it an input, and what comes out."""
    rng = np.random.default_rng(0)
    data, first, bias, second = (
        rng.standard_normal(shape, "float32") for shape in ((2, 8), (6, 8), 6, (3, 6))
    )
    x = relay.var("x", shape=data.shape)
    hidden = relay.nn.bias_add(relay.nn.dense(x, relay.const(first)), relay.const(bias))
    scores = relay.nn.dense(relay.nn.relu(hidden), relay.const(second))
    module = tvm.IRModule.from_expr(relay.Function((x,), relay.nn.softmax(scores)))
    expected = np.exp(np.maximum(data @ first.T + bias, 0) @ second.T)
    return module, data, expected / expected.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("executor", ["graph", "aot"])
def test_a_network_runs_on_it(executor: str) -> None:
    module, data, expected = network()
    lib = relay.build(module, "toy", executor=Executor(executor))
    runner = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    runner.set_input("x", data)
    runner.run()
    np.testing.assert_allclose(runner.get_output(0).numpy(), expected, rtol=1e-5)
    assert lib.get_lib().kind == "toy" and "def " in lib.get_lib().get_source()


def test_the_report_says_whose_schedule_was_taken() -> None:
    lib = relay.build(network()[0], "toy")
    notes = {note.anchor: note for note in lib.kernel_notes.values()}
    assert notes["nn.dense"].schedule == "schedule_dense"
    assert notes["nn.dense"].why.startswith("its own schedule for toy: The loops as they are")
    assert notes["nn.softmax"].why.startswith("its own schedule for cpu: ")
    x = relay.var("x", shape=(4,))
    plain = relay.build(tvm.IRModule.from_expr(relay.Function((x,), relay.exp(x))), "toy")
    (note,) = plain.kernel_notes.values()
    assert note.why.startswith("no schedule of its own, the generic one for cpu: Every stage")


def test_functions_are_built_for_it() -> None:
    a = tvm.te.placeholder((4,), name="A")
    b = tvm.te.compute((4,), lambda i: a[i] * 2.0, name="B")
    double = tvm.build(tvm.te.create_schedule(b.op), [a, b], target="toy", name="double")
    result = np.zeros(4, "float32")
    double(np.arange(4, dtype="float32"), result)
    np.testing.assert_array_equal(result, [0, 2, 4, 6])


OTHER_DEVICE = """
from sterna.schedule.registry import generic_schedule
from sterna.target.kind import Option, TargetKind

KIND = TargetKind(
    "toy_gpu", 1, ("toy_gpu",), (Option("max_threads", "int", 64),),
    codegen="tests.target.toy.code_generator", schedules=("toy_gpu_target",), triple="host",
)

@generic_schedule("toy_gpu")
def schedule_all(kernel):
    kernel.choices["threads"] = kernel.target.attrs["max_threads"]
"""


def test_other_devices_take_no_schedule_of_processors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "toy_gpu_target.py").write_text(OTHER_DEVICE)
    monkeypatch.syspath_prepend(str(tmp_path))
    register("toy_gpu_target")
    rng = np.random.default_rng(1)
    data, weight = rng.standard_normal((1, 4, 6, 6)), rng.standard_normal((8, 4, 3, 3))
    x = relay.var("x", shape=data.shape)
    image = relay.nn.conv2d(x, relay.const(weight.astype("float32")), padding=(1, 1),
                            kernel_size=(3, 3), channels=8)
    module = tvm.IRModule.from_expr(relay.Function((x,), relay.nn.softmax(image)))
    results = []
    for target in ("toy_gpu -max_threads=32", "llvm"):
        lib = relay.build(module, target)
        runner = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
        runner.set_input("x", data.astype("float32"))
        runner.run()
        results.append((runner.get_output(0).numpy(), lib.kernel_notes.values()))
    np.testing.assert_allclose(results[0][0], results[1][0], rtol=1e-4, atol=1e-7)
    assert {note.anchor for note in results[0][1]} == {"nn.conv2d", "nn.softmax"}
    assert all(note.schedule == "schedule_all" for note in results[0][1])
    assert all(note.choices["threads"] == "32" for note in results[0][1])


def test_what_it_cannot_do_is_refused_by_name(tmp_path: Path) -> None:
    module = network()[0]
    lib = relay.build(module, "toy")
    for suffix in (".so", ".o", ".c"):
        with pytest.raises(ValueError, match="the target toy has no files"):
            lib.export_library(tmp_path / f"lib{suffix}")
    with pytest.raises(ValueError, match="a toy module has the source tir, not 'asm'"):
        lib.get_lib().get_source("asm")
    with pytest.raises(ValueError, match=r"programs in C: build for the target \"c\", not toy"):
        relay.build(module, "toy", executor=Executor("aot"), runtime=Runtime("crt"))
    assert list(tmp_path.iterdir()) == []


def test_it_is_listed_and_found_by_its_module() -> None:
    assert "toy" in Target.list_kinds() and tvm.runtime.enabled("toy")
    assert tvm.device("toy") == tvm.cpu(0)
    register(TOY)  # once more changes nothing
    with pytest.raises(TypeError, match=r"tests\.support declares no target kind; set KIND"):
        register("tests.support")
    with pytest.raises(ModuleNotFoundError):
        register("no_such_module")
    kind._registered.clear()
    kind._kinds.cache_clear()
    with pytest.raises(ValueError, match="Cannot recognize 'toy'"):
        Target("toy")


def test_an_installed_package_announces_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "from sterna.target.kind import TargetKind\nKIND = TargetKind('abacus', 12)\n"
    (tmp_path / "abacus_target.py").write_text(text)
    about = tmp_path / "abacus-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: abacus\nVersion: 1.0\n")
    named = "[sterna.targets]\nabacus = abacus_target\nbroken = module_that_is_gone\n"
    (about / "entry_points.txt").write_text(named)
    monkeypatch.syspath_prepend(str(tmp_path))
    kind._announced.cache_clear()
    kind._kinds.cache_clear()
    with pytest.warns(UserWarning, match="declares targets in module_that_is_gone"):
        assert find_kind("abacus").device_type == 12
    assert "abacus" in all_kinds() and "toy" in all_kinds()


def test_processes_that_compile_kernels_know_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "twin_target.py").write_text(
        "from dataclasses import replace\n"
        "from sterna.target.kinds.llvm import KIND as LLVM\n"
        "KIND = replace(LLVM, name='twin')\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("STERNA_CACHE", "off")
    monkeypatch.setattr(compile_kernels, "helpers", lambda seconds: 1)
    register("twin_target")
    answers: list[bytes | None] = []
    real = Worker.compile

    def compile_there(worker: Worker, request: dict[str, Any]) -> bytes | None:
        answers.append(real(worker, request))
        return answers[-1]

    monkeypatch.setattr(Worker, "compile", compile_there)
    functions = {}
    for size in range(1, 7):
        x = relay.var("x", shape=(size,))
        mod = tvm.IRModule.from_expr(relay.Function((x,), relay.exp(x)))
        functions[f"exp_{size}"] = relay.transform.FuseOps()(mod)["main"].body.op
    assert len(compile_kernels.compile_kernels(functions, Target("twin"))) == 6
    assert answers and None not in answers


def test_a_changed_target_finds_nothing_that_the_old_one_kept() -> None:
    assert Target("toy").kind.fingerprint() != fingerprint() == Target("c").kind.fingerprint()


def test_narrow_keys_come_first() -> None:
    def narrow(kernel: Any) -> None:
        """Narrow."""

    def broad(kernel: Any) -> None:
        pass

    found = find_schedule("nn.nothing", {"toy": narrow, "cpu": broad}, ["toy", "cpu"])
    assert found.apply is narrow and found.why == "its own schedule for toy: Narrow."
    found = find_schedule("nn.nothing", {"cpu": broad}, ["toy", "cpu"])
    assert found.apply is broad and found.why == "its own schedule for cpu"
    with pytest.raises(ValueError, match=r"nn\.nothing has no schedule .* keys abacus, .*: cpu"):
        find_schedule("nn.nothing", {"cpu": broad}, ["abacus"])
    find_kind("toy").load_schedules()
    with pytest.raises(ValueError, match=r"two schedules .* nn\.dense and the key 'toy'"):
        schedule_for("nn.dense", "toy")(narrow)
    with pytest.raises(ValueError, match=r"two generic schedules .* 'cpu'"):
        generic_schedule("cpu")(narrow)
    find_kind("cuda").load_schedules()
    assert find_whole_kernel(["toy", "cpu"]) is None
    with pytest.raises(ValueError, match=r"two functions are registered for whole .* 'gpu'"):
        whole_kernel("gpu")(lambda outputs, target, fixed: None)


# ---- nothing else knows it ----


def names_a_kind(node: ast.Compare, kinds: set[str]) -> bool:
    """Whether a comparison asks `x.kind.name` or `x.kind` for the name of a kind."""
    sides = [node.left, *node.comparators]
    asked = {ast.unparse(side).rpartition(".kind")[2] for side in sides
             if isinstance(side, ast.Attribute) and ".kind" in ast.unparse(side)}
    texts = {n.value for side in sides for n in ast.walk(side)
             if isinstance(n, ast.Constant) and isinstance(n.value, str)}
    return bool(asked & {"", ".name"}) and bool(texts & kinds)


def questions(text: str) -> list[int]:
    """The lines of a file that ask for a kind by name."""
    kinds = set(all_kinds())
    return [
        node.lineno for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Compare) and names_a_kind(node, kinds)
    ]


def test_nobody_asks_for_a_kind_by_name() -> None:
    files = [
        path for path in (ROOT / "sterna").rglob("*.py")
        if not path.is_relative_to(ROOT / "sterna" / "target" / "kinds")
    ]
    found = {str(p.relative_to(ROOT)): q for p in files if (q := questions(p.read_text("utf-8")))}
    assert not found
    assert questions('a.kind.name == "c"\nb.target.kind.name in ("llvm",)\n"c" != x.kind') == [
        1, 2, 3,
    ]
    assert not questions('a.dtype.kind == "float"\nb.kind == other.kind\nc == "c"')
