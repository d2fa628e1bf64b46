"""Intrinsics of users' own, by rules for each target, and functions of C on GPUs."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, tir
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


def test_functions_of_c_on_a_gpu() -> None:
    for name in ("__expf", "expf"):
        source = build(lambda x, name=name: tir.call_pure_extern("float32", name, x), GPU)
        assert "st.global" in source.imported_modules[0].get_source()
    with pytest.raises(ValueError, match="a kernel on a device cannot call_pure_extern"):
        build(lambda x: tir.call_pure_extern("float32", "strange", x), GPU)


def test_what_cannot_be_registered() -> None:
    with pytest.raises(ValueError, match=r"'tir\.exp' is an intrinsic already"):
        register_intrin_lowering("tir.exp", "llvm", f=lambda call: call)
    with pytest.raises(ValueError, match=r"graphs is its record, relay\.op\.OpRecord"):
        register_op_attr("nn.relu", "target.own", lambda call: True)
