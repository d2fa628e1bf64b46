"""Virtual threads are loops, on processors as on GPUs."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("scope", ["global", "local", "shared"])
@pytest.mark.parametrize("extent", [24, 21])
def test_a_virtual_thread_on_a_processor(target: str, scope: str, extent: int) -> None:
    a = te.placeholder((extent, 16), name="A")
    k = te.reduce_axis((0, 16), "k")
    b = te.compute((extent, 16), lambda i, j: a[i, j] * 2.0 + 1.0, name="B")
    c = te.compute((extent, 16), lambda i, j: te.sum(b[i, k] * b[i, 15 - j], axis=k), name="C")
    s = te.create_schedule(c.op)
    cached = s.cache_write(c, "local")
    outer, inner = s[c].split(c.op.axis[0], nparts=4)
    columns, inside = s[c].split(c.op.axis[1], factor=8)
    s[c].reorder(outer, columns, inner, inside)
    s[c].bind(outer, te.thread_axis("vthread"))
    s[c].bind(columns, te.thread_axis("vthread"))
    s[cached].compute_at(s[c], inner)
    s[b].set_scope(scope)
    s[b].compute_at(s[c], columns)
    function = tvm.build(s, [a, c], target)
    given: Any = np.random.default_rng(extent).standard_normal((extent, 16)).astype("float32")
    made = tvm.nd.empty((extent, 16))
    function(tvm.nd.array(given), made)
    doubled = given * 2 + 1
    wanted = doubled.sum(1, keepdims=True) * doubled[:, ::-1]
    np.testing.assert_allclose(made.numpy(), wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_a_sum_along_a_virtual_thread(target: str) -> None:
    a, k = te.placeholder((5, 24), name="A"), te.reduce_axis((0, 24), "k")
    b = te.compute((5,), lambda i: te.sum(a[i, k], axis=k), name="B")
    s = te.create_schedule(b.op)
    outer, _ = s[b].split(k, factor=5)
    s[b].bind(outer, te.thread_axis("vthread"))
    assert "blockIdx" not in str(tvm.lower(s, [a, b]))
    given: Any = np.random.default_rng(2).standard_normal((5, 24)).astype("float32")
    made = tvm.nd.empty((5,))
    tvm.build(s, [a, b], target)(tvm.nd.array(given), made)
    np.testing.assert_allclose(made.numpy(), given.sum(1), rtol=1e-5)


def test_threads_of_a_gpu_stay_refused_on_a_processor() -> None:
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="B")
    s = te.create_schedule(b.op)
    s[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    with pytest.raises(ValueError, match=r"bound to threadIdx\.x: a CPU has no such threads"):
        tvm.build(s, [a, b], "llvm")
