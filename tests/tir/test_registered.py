"""Intrinsics of users' own, by rules for each target, and functions of C on GPUs."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, tir
from sterna.tir import registered
from sterna.tir.registered import register_intrin_lowering, register_op_attr

GPU = "cuda -arch=sm_70"


def build(value: Any, target: str = "llvm") -> Any:
    n = te.var("n")
    a = te.placeholder((n,), name="A")
    b = te.compute((n,), lambda i: value(a[i]), name="B")
    schedule = te.create_schedule(b.op)
    if target == GPU:
        block, thread = schedule[b].split(b.op.axis[0], factor=64)
        schedule[b].bind(block, te.thread_axis("blockIdx.x"))
        schedule[b].bind(thread, te.thread_axis("threadIdx.x"))
    return tvm.build(schedule, [a, b], target, name="mapped")


def mylog(x: Any) -> Any:
    return tir.call_intrin(x.dtype, "tir.test_mylog", x)


def test_a_rule_says_what_an_intrinsic_is() -> None:
    tvm.ir.register_op_attr("tir.test_mylog", "TCallEffectKind", tir.CallEffectKind.Pure)

    @tvm.ir.register_intrin_lowering(  # type: ignore[untyped-decorator]
        "tir.test_mylog", target="llvm", level=99
    )
    def rule(call: Any) -> Any:
        if call.dtype == "float32":
            return tir.call_pure_extern("float32", "logf", call.args[0])
        return call

    register_intrin_lowering("tir.test_mylog", "llvm", f=lambda call: call.args[0], level=5)
    x, y = tvm.nd.array(np.arange(1, 6, dtype="float32")), tvm.nd.empty((5,))
    build(mylog)(x, y)
    np.testing.assert_allclose(y.numpy(), np.log(x.numpy()), rtol=1e-6)
    with pytest.raises(ValueError, match=r"tir\.test_mylog has rules for llvm, not for c:"):
        build(mylog, "c")
    register_intrin_lowering("tir.test_mylog", "default", f=lambda call: tir.log(call.args[0]))
    assert "log" in build(mylog, "c").get_source()
    assert "st.global" in build(mylog, GPU).imported_modules[0].get_source()
    with pytest.raises(ValueError, match=r"the rule of tir\.test_mylog for llvm gave"):
        build(lambda x: mylog(x.astype("float64")).astype("float32"))


@pytest.fixture
def forgotten() -> Iterator[None]:
    yield
    for name in ("tanh", "cosh", "sinh"):
        registered._rules.pop(name, None)
        registered._known.discard(name)


@pytest.mark.usefixtures("forgotten")
def test_a_rule_for_an_intrinsic_that_is_known() -> None:
    seen = []

    def rule(call: Any) -> Any:
        seen.append(call.op.name)
        if call.dtype == "float32":
            return tir.call_pure_extern("float32", f"{call.op.name[4:]}f", call.args[0])
        return call

    tvm.ir.register_intrin_lowering("tir.tanh", target="cuda", f=rule, level=99)
    assert "st.global" in build(tir.tanh, GPU).imported_modules[0].get_source()
    assert seen == ["tir.tanh"]
    given = np.linspace(-2, 2, 9, dtype="float32")
    x, y = tvm.nd.array(given), tvm.nd.empty((9,))
    build(tir.tanh)(x, y)  # other targets know it as before
    np.testing.assert_allclose(y.numpy(), np.tanh(given), rtol=1e-6)
    assert len(seen) == 1
    tvm.ir.register_intrin_lowering("tir.tanh", target="llvm", f=rule)
    build(tir.tanh)(x, y)
    np.testing.assert_allclose(y.numpy(), np.tanh(given), rtol=1e-6)
    doubled = build(lambda x: tir.tanh(x.astype("float64")).astype("float32"))
    doubled(x, y)  # the rule gives the call itself
    np.testing.assert_allclose(y.numpy(), np.tanh(given), rtol=1e-6)
    tvm.ir.register_intrin_lowering("tir.cosh", "llvm", f=lambda call: tir.cosh(call.args[0] * 2))
    build(tir.cosh)(x, y)
    np.testing.assert_allclose(y.numpy(), np.cosh(2 * given), rtol=1e-6)
    tvm.ir.register_intrin_lowering("tir.sinh", "llvm", f=lambda call: call.args[0] * 3)
    build(lambda x: tir.sinh(tir.cosh(x)))(x, y)  # a rule's argument is lowered once
    np.testing.assert_allclose(y.numpy(), 3 * np.cosh(2 * given), rtol=1e-6)


def test_functions_of_c_on_a_gpu() -> None:
    for name in ("__expf", "expf"):
        source = build(lambda x, name=name: tir.call_pure_extern("float32", name, x), GPU)
        assert "st.global" in source.imported_modules[0].get_source()
    with pytest.raises(ValueError, match="a kernel on a device cannot call_pure_extern"):
        build(lambda x: tir.call_pure_extern("float32", "strange", x), GPU)


def test_what_cannot_be_registered() -> None:
    with pytest.raises(ValueError, match=r"'tir\.exp' is an intrinsic already"):
        register_op_attr("tir.exp", "TCallEffectKind", tir.CallEffectKind.Pure)
    with pytest.raises(ValueError, match=r"graphs is its record, relay\.op\.OpRecord"):
        register_op_attr("nn.relu", "TOpPattern", 0)
