"""Pointwise convolutions whose images are computed as one row of pixels."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.lowering.lower_kernel import lower_kernel
from sterna.relay.infer import TypeInferenceError
from sterna.relay.interpreter import interpret
from sterna.schedule.implementations.direct import packing_of
from sterna.schedule.kernel import Processor
from sterna.schedule.packed import contraction_of_call
from sterna.target import Target, processor_of


def conv(shape: Any, channels: int, **attrs: Any) -> Any:
    x, w = relay.var("x", shape=shape), relay.var("w", shape=(channels // 16, 1, 1, shape[3], 16))
    return relay.nn.conv2d(
        x, w, data_layout="NHWC", kernel_layout="OHWI", channels=channels, kernel_size=(1, 1),
        implementation="direct(weights=OHWI16o, flat=1)", **attrs,
    )


@pytest.mark.parametrize("shape", [(1, 7, 7, 24), (2, 5, 3, 300), (1, 14, 14, 9), (3, 1, 9, 600)])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("bits", [128, 256, 512])
def test_numbers_with_what_follows(shape: Any, threads: int, bits: int) -> None:
    result = (*shape[:3], 48)
    body = relay.nn.relu(relay.add(conv(shape, 48), relay.var("other", shape=result)))
    main = relay.transform.FuseOps(2)(tvm.IRModule.from_expr(body))["main"]
    small = {"l1_bytes": 4096, "l2_bytes": 65536}
    processor = Processor(bits, 16, threads=threads, **small)  # type: ignore[arg-type]
    loops = lower_kernel(main.body.op, "kernel", processor).function
    rng = np.random.default_rng(bits)
    kinds = [param.checked_type for param in main.body.op.params]
    given = [rng.standard_normal(kind.shape).astype("float32") for kind in kinds]
    out = tvm.nd.empty(result)
    tvm.build(loops, target="llvm")["kernel"](*map(tvm.nd.array, given), out)
    want = interpret(main.body.op, *given)
    np.testing.assert_allclose(out.numpy(), want, rtol=1e-4, atol=1e-4)


def chosen(side: int, channels: int, target: str, **attrs: Any) -> bool:
    window = attrs.pop("kernel_size", (1, 1))
    x = relay.var("x", shape=(1, side, side, 32))
    w = relay.const(np.zeros((channels, *window, 32), "float32"))
    call = relay.nn.conv2d(x, w, data_layout="NHWC", kernel_layout="OHWI", **attrs)
    made = contraction_of_call(call)
    assert made is not None
    return packing_of(made, processor_of(Target(target))).flat


def test_where_it_pays() -> None:
    assert chosen(7, 64, "llvm -mcpu=haswell")
    assert chosen(7, 64, "llvm -mcpu=haswell -num-cores=16")
    assert chosen(14, 64, "llvm -mcpu=haswell")
    assert not chosen(14, 64, "llvm -mcpu=haswell -num-cores=2")
    assert not chosen(7, 64, "llvm -mcpu=skylake-avx512")
    assert not chosen(112, 64, "llvm -mcpu=haswell")
    assert not chosen(7, 64, "llvm -mcpu=haswell", strides=(2, 2))
    assert not chosen(7, 64, "llvm -mcpu=haswell", padding=(1, 1))
    assert not chosen(7, 64, "llvm -mcpu=haswell", kernel_size=(3, 3), padding=(1, 1))


@pytest.mark.parametrize("attrs", [{"strides": (2, 2)}, {"padding": (1, 1)},
                                   {"out_layout": "NCHW"}])
def test_only_single_pixels(attrs: Any) -> None:
    with pytest.raises(TypeInferenceError, match="flat is for pointwise convolutions"):
        tvm.IRModule.from_expr(conv((1, 7, 7, 24), 16, **attrs))
