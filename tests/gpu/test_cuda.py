"""CUDA: kernels, types and mathematics on the first GPU that there is."""

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.ir.build import call_intrinsic
from sterna.relay.arrays import from_numpy, numpy_dtype, to_numpy
from sterna.testing import requires_cuda
from tests.codegen.test_llvm_math import UNARY, errors, flushed, samples
from tests.gpu.kernels import EXAMPLES

pytestmark = [
    *requires_cuda.marks(), pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]


@pytest.mark.parametrize("name", EXAMPLES)
def test_schedules_run(name: str) -> None:
    EXAMPLES[name]().check_on("cuda")


@pytest.mark.parametrize(
    ("dtype", "out"),
    [("float16", "float16"), ("float32", "bfloat16"), ("bfloat16", "bfloat16"), ("int8", "int32"),
     ("bool", "bool"), ("float64", "float32"), ("int64", "uint8"), ("float32", "float8_e4m3fn"),
     ("float8_e5m2", "float32")],
)
def test_types(dtype: str, out: str) -> None:
    """What a processor computes is what the GPU does."""
    n = 64
    a = te.placeholder((n,), dtype, name="A")
    b = te.compute((n,), lambda i: tvm.tir.if_then_else(
        a[i] > a[n - 1 - i], a[i].astype(out),
        (a[i] + a[n - 1 - i]).astype(out) if dtype != "bool" else a[n - 1 - i]), name="B")
    schedule = te.create_schedule(b.op)
    schedule[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    x = (np.random.default_rng(0).standard_normal(n) * 50).astype(numpy_dtype(dtype))
    device = tvm.cuda(0)
    result = from_numpy(np.zeros(n, numpy_dtype(out))).copyto(device)
    tvm.build(schedule, [a, b], "cuda")(from_numpy(x).copyto(device), result)
    on_cpu = from_numpy(np.zeros(n, numpy_dtype(out)))
    tvm.build(te.create_schedule(b.op), [a, b], "llvm")(from_numpy(x), on_cpu)
    np.testing.assert_array_equal(to_numpy(result.copyto(tvm.cpu())), to_numpy(on_cpu))


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("bits", [32, 64])
@pytest.mark.parametrize("op", UNARY)
def test_mathematics(op: str, bits: int, lanes: int) -> None:
    """As exact as on processors, in vectors too."""
    x = samples(bits)
    x = np.concatenate([x, x[: -len(x) % 1024]])
    a = te.placeholder((len(x),), f"float{bits}", name="A")
    b = te.compute((len(x),), lambda i: call_intrinsic(op, a[i]), name="B")
    schedule = te.create_schedule(b.op)
    outer, inner = schedule[b].split(b.op.axis[0], factor=lanes)
    block, thread = schedule[b].split(outer, factor=256)
    schedule[b].bind(block, te.thread_axis("blockIdx.x"))
    schedule[b].bind(thread, te.thread_axis("threadIdx.x"))
    if lanes > 1:
        schedule[b].vectorize(inner)
    device = tvm.cuda(0)
    result = tvm.nd.empty((len(x),), f"float{bits}", device)
    tvm.build(schedule, [a, b], "cuda")(tvm.nd.array(x, device), result)
    got = result.numpy()
    reference, limit32, limit64 = UNARY[op]
    wanted = np.asarray(reference(x.astype("longdouble")))
    worst = np.where(flushed(op, got, wanted), 0.0, errors(got, wanted))
    at = int(np.argmax(worst))
    limit = limit32 if bits == 32 else limit64
    assert worst[at] <= limit, (
        f"{op}({x[at]!r}) = {got[at]!r}, not {wanted[at]!r}: {worst[at]} units"
    )


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_lanes_hand_their_values_on(dtype: str) -> None:
    n, every = 64, tvm.tir.const(0xFFFFFFFF, "uint32")
    a = te.placeholder((n,), dtype, name="A")
    b = te.compute((n,), lambda i: tvm.tir.call_intrin(
        dtype, "tir.tvm_warp_shuffle_xor", every, a[i], 5, 32, 32), name="B")
    schedule = te.create_schedule(b.op)
    schedule[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    x = (np.arange(n) % 3 - 1).astype(dtype) if dtype == "bool" else np.arange(n).astype(dtype)
    device = tvm.cuda(0)
    result = tvm.nd.empty((n,), dtype, device)
    tvm.build(schedule, [a, b], "cuda")(tvm.nd.array(x, device), result)
    np.testing.assert_array_equal(result.numpy(), x[np.arange(n) ^ 5])
