"""The passes as objects over modules, their order, and the settings that they obey."""

import logging
import re
from importlib import import_module
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.ir import IRModule, const
from sterna.ir.transform import PassContext, Sequential, find_pass
from sterna.support.errors import InternalError
from sterna.te.lower import lower_schedule
from sterna.tir import PrimFunc, interpreter, pipeline
from sterna.tir import transform as T
from sterna.tir.stmt import Evaluate, seq
from tests.support import ROOT, in_snake_case


def scaled(n: Any, factor: int, mark: str = "", pragma: tuple[str, int] | None = None) -> PrimFunc:
    """b[i] = a[i] * 2 with a split loop, whose inner part is marked."""
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] * 2.0, name="b")
    s = te.create_schedule(b.op)
    outer, inner = s[b].split(b.op.axis[0], factor=factor)
    if mark:
        getattr(s[b], mark)(inner)
    if pragma is not None:
        s[b].pragma(outer, *pragma)
    return lower_schedule(s, [a, b], "scaled")


def lowered(func: PrimFunc, **config: Any) -> str:
    """The text of a function after all passes, whose numbers are checked."""
    with PassContext(config={key.replace("__", "."): value for key, value in config.items()}):
        done = pipeline.run(func)
    n = tvm.ir.build.int_value(done.buffers[0].shape[0]) if done.buffers[0] is not None else 0
    values, result = np.arange(n or 0, dtype="float32"), np.zeros(n or 0, "float32")
    interpreter.run(done, values, result)
    np.testing.assert_array_equal(result, values * 2)
    return str(done)


# ---- passes over modules ----


def test_a_pass_runs_over_the_functions_of_loops() -> None:
    mod = IRModule({"f": scaled(16, 4), "other": const(1)})
    made = tvm.tir.transform.Simplify()(mod)
    assert made["other"] is mod["other"]
    assert "i.outer*4 + i.inner" in str(made["f"])
    assert T.Simplify()(made) is made


def test_passes_have_the_names_that_users_know() -> None:
    names = [one.info.name for one in pipeline.passes()]
    for name in ("Simplify", "LoopPartition", "StorageRewrite", "VectorizeLoop", "UnrollLoop"):
        assert f"tir.{name}" in names


def test_a_pass_its_function_and_its_file_have_one_name() -> None:
    for name in set(T.__all__) - {"PrimFuncPass", "prim_func_pass"}:
        word = in_snake_case(name)
        assert callable(getattr(import_module(f"sterna.tir.passes.{word}"), word))


def test_simple_mode_leaves_guards() -> None:
    names = [one.info.name for one in pipeline.passes(simple=True)]
    assert "tir.LoopPartition" not in names
    assert "likely" in str(pipeline.run(scaled(22, 8), simple=True))


def test_passes_can_be_required_by_name() -> None:
    for name in T.__all__:
        if name not in ("PrimFuncPass", "prim_func_pass"):
            assert find_pass(f"tir.{name}").info.name == f"tir.{name}"
    keep = T.prim_func_pass(
        lambda func, mod, ctx: func, opt_level=0, name="keep", required=["tir.Simplify"]
    )
    mod = IRModule({"f": scaled(16, 4)})
    assert str(Sequential([keep])(mod)) == str(T.Simplify()(mod))


def test_disabled_passes_do_not_run() -> None:
    with PassContext(disabled_pass=["tir.LoopPartition"]):
        assert "likely" in str(pipeline.run(scaled(22, 8)))
    assert "likely" not in str(pipeline.run(scaled(22, 8)))


def test_prim_func_pass_as_a_decorator() -> None:
    @tvm.tir.transform.prim_func_pass(opt_level=1, name="mine")
    def rename(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return PrimFunc("renamed", func.params, func.buffers, func.body, func.attrs)

    made = rename(IRModule({"f": scaled(16, 4), "other": const(1)}))
    assert str(made["f"]).startswith("def renamed") and rename.info.opt_level == 1


def test_passes_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="sterna.transform"):
        pipeline.run(scaled(16, 4))
    assert any(re.fullmatch(r"tir.LoopPartition: .* ms, unchanged", m) for m in caplog.messages)
    assert any(re.fullmatch(r"tir.FlattenBuffer: [\d.]* ms", m) for m in caplog.messages)


def test_what_a_pass_breaks_is_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def lose(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
        return func.with_body(Evaluate(tvm.tir.Var("nowhere")))

    broken = T.prim_func_pass(lose, opt_level=0, name="lose")
    mod = IRModule({"f": scaled(16, 4)})
    with pytest.raises(InternalError, match="the pass lose: scaled: the variable nowhere is used"):
        broken(mod)
    monkeypatch.setenv("STERNA_VERIFY_PASSES", "0")
    broken(mod)


def test_instruments_see_every_pass() -> None:
    timing = tvm.instrument.PassTimingInstrument()
    a = te.placeholder((16,), name="a")
    b = te.compute((16,), lambda i: a[i] * 2.0, name="b")
    with PassContext(instruments=[timing]):
        tvm.lower(te.create_schedule(b.op), [a, b])
        assert "\ttir.VectorizeLoop: " in timing.render()


# ---- settings ----


def test_disable_vectorize() -> None:
    func = scaled(16, 8, "vectorize")
    assert "ramp" in lowered(func)
    text = lowered(func, tir__disable_vectorize=True)
    assert "ramp" not in text and "vectorized" not in text


def test_disable_storage_rewrite() -> None:
    names = []
    for off in (False, True):
        with PassContext(config={"tir.disable_storage_rewrite": off}):
            names.append([one.info.name for one in pipeline.passes()])
    assert "tir.StorageRewrite" in names[0] and "tir.StorageRewrite" not in names[1]


def test_loop_partition_of_constant_loops() -> None:
    assert "likely" not in lowered(scaled(22, 8))
    kept = lowered(scaled(22, 8), tir__LoopPartition={"partition_const_loop": False})
    assert "likely" in kept
    n = te.size_var("n")
    with PassContext(config={"tir.LoopPartition": {"partition_const_loop": False}}):
        assert "n // 8" in str(pipeline.run(scaled(n, 8)))


def test_loop_partition_where_a_hint_wants_it() -> None:
    """Both ends of a border; the middle asks nothing. Without the hint nothing is split."""
    a = te.placeholder((16,), name="a")
    shifted = te.compute(
        (18,), lambda i: te.if_then_else(te.all(i >= 1, i < 17), a[i - 1], 0.0), name="shifted"
    )
    texts = []
    for hint, parallel in ((False, False), (True, False), (True, True)):
        s = te.create_schedule(shifted.op)
        outer, _ = s[shifted].split(shifted.op.axis[0], factor=3)
        if hint:
            s[shifted].pragma(outer, "loop_partition_hint", True)
        if parallel:
            s[shifted].parallel(outer)
        texts.append(str(tvm.lower(s, [a, shifted])["main"]))
        values, out = np.arange(16, dtype="float32"), np.ones(18, "float32")
        tvm.build(s, [a, shifted], target="llvm")(values, out)
        np.testing.assert_array_equal(out, np.pad(values, 1))
    plain, split, shared = texts
    assert plain.count("if_then_else") == 1 and plain.count("shifted[") == 1
    assert split.count("if_then_else") == 2 and split.count("shifted[") == 3
    assert shared.count("if_then_else") == 2 and shared.count("# parallel") == 1


def test_conditions_are_hoisted_in_parts() -> None:
    a, m = te.placeholder((8,), name="a"), te.size_var("m")
    k = te.reduce_axis((0, 8), "k")
    total = te.compute(
        (4,), lambda i: te.sum(a[k], axis=k, where=te.all(k >= i, i < m)), name="total"
    )
    text = str(tvm.lower(te.create_schedule(total.op), [a, total, m])["main"])
    lines = [line.strip() for line in text.split("\n")]
    assert lines.index("if i < m:") < lines.index("for k in range(8):"), text


def test_trivial_loops_are_kept_on_demand() -> None:
    func = scaled(9, 8)
    assert lowered(func).count("for ") == 1
    one = {"no_unroll_loop_with_extent_one": True}
    text = lowered(func, tir__LoopPartition=one, tir__debug_keep_trivial_loop=True)
    assert text.count("for ") > 2


@pytest.mark.parametrize(
    ("config", "stores"),
    [
        ({}, 1),
        ({"auto_max_step": 3}, 1),
        ({"auto_max_step": 4}, 4),
        ({"auto_max_step": 15}, 4),
        ({"auto_max_step": 16}, 16),
        ({"auto_max_step": 16, "auto_max_depth": 1}, 4),
        ({"auto_max_step": 16, "auto_max_depth": 0}, 1),
        ({"auto_max_extent": 4}, 16),
        ({"auto_max_extent": 3}, 1),
    ],
)
def test_unroll_small_loops(config: dict[str, int], stores: int) -> None:
    text = lowered(scaled(16, 4), tir__UnrollLoop=config)
    assert text.count("b[") == stores


def test_unroll_leaves_it_to_the_code_generator() -> None:
    marked = scaled(16, 4, "unroll")
    text = lowered(marked, tir__UnrollLoop={"explicit_unroll": False})
    assert text.count("b[") == 1 and text.count("unrolled") == 1
    text = lowered(scaled(16, 4), tir__UnrollLoop={"auto_max_step": 4, "explicit_unroll": False})
    assert text.count("b[") == 1 and text.count("unrolled") == 1
    with PassContext(config={"tir.UnrollLoop": {"explicit_unroll": False}}):
        module = tvm.build(IRModule({"scaled": marked}), target="llvm")
    values, result = np.arange(16, dtype="float32"), np.zeros(16, "float32")
    module(values, result)
    np.testing.assert_array_equal(result, values * 2)


def test_unroll_by_pragma() -> None:
    text = lowered(scaled(16, 4, pragma=("auto_unroll_max_step", 16)))
    assert text.count("b[") == 16 and "pragma" not in text
    text = lowered(scaled(16, 4, pragma=("auto_unroll_max_step", 4)))
    assert text.count("b[") == 4
    other = lowered(scaled(16, 4, pragma=("something_else", 4)))
    assert "pragma_something_else" in other


def test_unroll_what_indexes_registers() -> None:
    a = te.placeholder((16,), name="a")
    b = te.compute((16,), lambda i: a[i] * 2.0, name="b")
    s = te.create_schedule(b.op)
    kept = s.cache_read(a, "local", [b.op])
    outer, _ = s[b].split(b.op.axis[0], factor=4)
    s[kept].compute_at(s[b], outer)
    func = lower_schedule(s, [a, b], "scaled")
    text = lowered(func, tir__UnrollLoop={"unroll_local_access": True})
    assert text.count("b[") == 4 and lowered(func).count("b[") == 1


def test_passes_of_ones_own() -> None:
    order: list[str] = []

    def note(name: str) -> Any:
        def look(func: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
            shape = func.buffers[0].shape if func.buffers[0] is not None else ()
            order.append(f"{name} {len(shape)} {'unrolled' in str(func)}")
            return func

        return T.prim_func_pass(look, opt_level=0, name=name)

    a = te.placeholder((4, 4), name="a")
    b = te.compute((4, 4), lambda i, j: a[i, j] * 2.0, name="b")
    s = te.create_schedule(b.op)
    s[b].unroll(b.op.axis[1])
    mine = [(phase, note(f"p{phase}")) for phase in (3, 1, 0, 2)]
    with PassContext(config={"tir.add_lower_pass": mine}):
        tvm.lower(s, [a, b])
    assert order == ["p0 2 True", "p1 1 True", "p2 1 False", "p3 1 False"]


@pytest.mark.parametrize(
    ("given", "kind", "message"),
    [
        ([(0, "x")], TypeError, r"holds pairs \(phase, pass\), not \(0, 'x'\)"),
        ([T.Simplify()], TypeError, "holds pairs"),
        ([(4, T.Simplify())], ValueError, "has the phases 0, 1, 2 and 3, not 4"),
    ],
)
def test_passes_of_ones_own_that_are_none(
    given: Any, kind: type[Exception], message: str
) -> None:
    with PassContext(config={"tir.add_lower_pass": given}), pytest.raises(kind, match=message):
        pipeline.run(scaled(16, 4))


@pytest.mark.parametrize(("target", "word"), [("llvm", "ptr noalias %p"), ("c", "*restrict b")])
def test_arrays_that_may_overlap(target: str, word: str) -> None:
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="b")
    s = te.create_schedule(b.op)
    s[b].parallel(b.op.axis[0])
    assert word in tvm.build(s, [a, b], target=target).get_source()
    with PassContext(config={"tir.noalias": False}):
        module = tvm.build(s, [a, b], target=target)
    assert word not in module.get_source()


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_checks_can_be_left_out(target: str) -> None:
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] * 2.0, name="b")
    s = te.create_schedule(b.op)
    assert "argument b" in tvm.build(s, [a, b], target=target).get_source()
    with PassContext(config={"tir.disable_assert": True}):
        module = tvm.build(s, [a, b], target=target)
    assert "argument b" not in module.get_source()
    if target == "llvm":
        values, result = np.arange(64, dtype="float32"), np.zeros(64, "float32")
        module(values, result)
        np.testing.assert_array_equal(result, values * 2)


def test_skip_assert() -> None:
    n = tvm.tir.Var("n")
    check = tvm.tir.AssertStmt(n < 4, "ValueError", "n is large")
    func = PrimFunc("f", (n,), (None,), seq(check, Evaluate(n)))
    assert str(T.SkipAssert()(IRModule({"f": func}))["f"].body) == "pass"
    plain = scaled(16, 4)
    assert T.SkipAssert()(IRModule({"f": plain}))["f"] is plain


def test_the_documentation_names_every_setting() -> None:
    text = (ROOT / "docs" / "pass_settings.md").read_text("utf-8")
    missing = [key for key in PassContext.list_configs() if key[:4] == "tir." and key not in text]
    assert not missing
