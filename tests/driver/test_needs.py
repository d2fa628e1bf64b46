"""Code for a processor with more instructions than this one has is refused, not run."""

import re
from pathlib import Path

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from sterna.driver import OperatorModule
from sterna.isa import instruction_sets
from sterna.runtime import _core
from sterna.target import Target, machine_of, needed
from tests.support import absent_feature


@pytest.fixture
def absent() -> str:
    return absent_feature()


def build(absent: str) -> OperatorModule:
    a = te.placeholder((16,), name="A")
    b = te.compute((16,), lambda i: a[i] + 1, name="B")
    return tvm.build(te.create_schedule(b.op), [a, b], f"llvm -mattr=+{absent}", name="plus")


@pytest.mark.parametrize("suffix", [".so", ".tar", ".o", ".a"])
def test_files_are_refused_by_name(absent: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"plus{suffix}"
    build(absent).export_library(path)
    wanted = rf"cannot load .*plus\{suffix}.* was compiled for -mcpu=\S+, and this processor lacks "
    with pytest.raises(ValueError, match=f"{wanted}.*{absent}.*-mcpu=native"):
        tvm.runtime.load_module(path)


def test_code_in_memory_is_refused(absent: str) -> None:
    a = np.zeros(16, "float32")
    with pytest.raises(ValueError, match=f"this processor lacks .*{absent}"):
        build(absent)(a, a.copy())


@pytest.mark.parametrize("executor", ["graph", "aot"])
def test_models_are_refused(absent: str, executor: str, tmp_path: Path) -> None:
    x = relay.var("x", shape=(4,))
    mod = tvm.IRModule.from_expr(relay.nn.relu(x))
    made = relay.build(mod, f"llvm -mattr=+{absent}", executor=relay.backend.Executor(executor))
    made.export_library(tmp_path / "model.so")
    with pytest.raises(ValueError, match=f"this processor lacks .*{absent}"):
        tvm.runtime.load_module(tmp_path / "model.so")


def test_of_several_targets_one_may_be_chosen(absent: str, tmp_path: Path) -> None:
    one, other = te.placeholder((4,), name="A"), te.placeholder((4,), name="A")
    plus = te.compute((4,), lambda i: one[i] + 1, name="B")
    minus = te.compute((4,), lambda i: other[i] - 1, name="B")
    module = tvm.build({
        f"llvm -mattr=+{absent}": tvm.lower(te.create_schedule(plus.op), [one, plus], "plus"),
        "llvm": tvm.lower(te.create_schedule(minus.op), [other, minus], "minus"),
    })
    module.export_library(tmp_path / "both.so")
    a, b = np.ones(4, "float32"), np.ones(4, "float32")
    tvm.runtime.load_module(tmp_path / "both.so")["minus"](a, b)
    assert (b == 0).all()


def test_this_machine_has_what_it_says() -> None:
    _core.check_processor(needed(machine_of(Target("llvm -mcpu=native"))))


def test_features_that_nobody_knows_are_no_hindrance() -> None:
    _core.check_processor("a-processor-of-tomorrow with-teeth")
    _core.check_processor("")


def test_the_runtime_knows_every_feature_that_is_named() -> None:
    root = Path(__file__).parents[2]
    text = (root / "runtime" / "src" / "processor.c").read_text("utf-8")
    known = set(re.findall(r'^    \{"([\w.]+)", ', text, re.MULTILINE))
    named = " ".join(isa.loader_features for isa in instruction_sets().values())
    assert known == set(named.split())


def test_other_architectures_say_nothing() -> None:
    target = Target("llvm -mtriple=riscv64-unknown-linux-gnu -mcpu=generic-rv64")
    assert needed(machine_of(target)) == ""
