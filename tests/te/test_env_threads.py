"""Threads launched around a scan: its init and its steps run inside them."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.te.lower import lower_schedule
from sterna.tir import interpreter, pipeline
from sterna.tir.verify import verify

T, N = 4, 6


def recurrence() -> dict[str, Any]:
    """h[t] = h[t-1] @ w + x[t], with the product as a stage of its own."""
    x, w = te.placeholder((T, N), name="x"), te.placeholder((N, N), name="w")
    state = te.placeholder((T, N), name="state")
    init = te.compute((1, N), lambda _, i: x[0, i], name="init")
    k = te.reduce_axis((0, N), name="k")
    product = te.compute(
        (T, N), lambda t, i: te.sum(state[t - 1, k] * w[k, i], axis=k), name="product"
    )
    update = te.compute((T, N), lambda t, i: product[t, i] + x[t, i], name="update")
    h = te.scan(init, update, state, inputs=[x, w], name="h")
    return {"x": x, "w": w, "init": init, "product": product, "update": update, "h": h}


def expected(x: Any, w: Any) -> Any:
    rows = [x[0]]
    for row in x[1:]:
        rows.append(rows[-1] @ w + row)
    return np.stack(rows)


def check(schedule: Any, net: dict[str, Any]) -> str:
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-2, 3, shape).astype("float32") for shape in ((T, N), (N, N)))
    loops = verify(lower_schedule(schedule, [net["x"], net["w"], net["h"]], "f"))
    for func in (loops, verify(pipeline.run(loops))):
        out = np.full((T, N), np.nan, "float32")
        arrays = [a if func is loops else a.reshape(-1) for a in (x, w, out)]
        interpreter.run(func, *arrays)
        np.testing.assert_array_equal(out, expected(x, w), err_msg=str(func))
    return str(loops)


def test_init_and_steps_run_inside_the_threads() -> None:
    net = recurrence()
    s = te.create_schedule(net["h"].op)
    block = te.thread_axis((0, 2), "blockIdx.x")
    thread = te.thread_axis((0, 3), "threadIdx.x")
    s[net["h"]].env_threads([block, thread])
    for name in ("init", "product", "update"):
        stage = s[net[name]]
        outer, inner = stage.split(stage.op.axis[1], factor=3)
        stage.bind(outer, block)
        stage.bind(inner, thread)
    text = check(s, net)
    lines = [line.strip() for line in text.splitlines()]
    loops = [line for line in lines if line.startswith("for")]
    assert loops[0] == "for blockIdx.x in range(2):  # thread blockIdx.x"
    assert loops[1] == "for threadIdx.x in range(3):  # thread threadIdx.x"
    assert text.index("for threadIdx.x") < text.index("= x[0, ") < text.index("for h.idx")
    with pytest.raises(ValueError, match="blockIdx"):
        tvm.build(s, [net["x"], net["w"], net["h"]], target="llvm").get_source()


def test_a_stage_may_be_computed_once_per_thread() -> None:
    net = recurrence()
    s = te.create_schedule(net["h"].op)
    local = s.cache_read(net["w"], "local", [net["product"]])
    first = s.cache_read(net["x"], "local", [net["init"]])
    thread = te.thread_axis((0, N), "threadIdx.x")
    s[net["h"]].env_threads(thread)
    s[local].compute_at(s[net["h"]], thread)
    s[first].compute_at(s[net["h"]], thread)
    s[net["update"]].bind(net["update"].op.axis[1], thread)
    text = check(s, net)
    assert text.index("for threadIdx.x") < text.index("w.local = ") < text.index("for h.idx")


def test_two_scans_may_have_the_same_threads() -> None:
    thread = te.thread_axis((0, N), "threadIdx.x")
    x = te.placeholder((T, N), name="x")
    tensor = x
    for name in ("first", "second"):
        tensor = running_sum(tensor, name)
    s = te.create_schedule(tensor.op)
    for stage in s.stages:
        if isinstance(stage.op, te.ScanOp):
            stage.env_threads([thread])
    values, out = np.ones((T, N), "float32"), np.zeros((T, N), "float32")
    interpreter.run(verify(lower_schedule(s, [x, tensor], "f")), values, out)
    np.testing.assert_array_equal(out, values.cumsum(0).cumsum(0))


def running_sum(x: Any, name: str) -> Any:
    state = te.placeholder((T, N), name=f"{name}.state")
    init = te.compute((1, N), lambda _, i: x[0, i], name=f"{name}.init")
    update = te.compute((T, N), lambda t, i: state[t - 1, i] + x[t, i], name=f"{name}.update")
    return te.scan(init, update, state, name=name)


def test_what_is_refused() -> None:
    net = recurrence()
    s = te.create_schedule(net["h"].op)
    thread = te.thread_axis((0, 4), "threadIdx.x")
    scan = s[net["h"]]
    with pytest.raises(
        ValueError, match="env_threads is only valid for composite ops such as ScanOp, and update"
    ):
        s[net["update"]].env_threads([thread])
    with pytest.raises(ValueError, match="axes made by te"):
        scan.env_threads([net["update"].op.axis[1]])
    with pytest.raises(ValueError, match="needs a range from 0 on"):
        scan.env_threads([te.thread_axis("threadIdx.x")])
    with pytest.raises(ValueError, match="launches each thread once"):
        scan.env_threads([thread, te.thread_axis((0, 4), "threadIdx.x")])
    scan.env_threads([thread])
    with pytest.raises(ValueError, match="Already set env_threads of h"):
        scan.env_threads([te.thread_axis((0, 4), "threadIdx.y")])
    with pytest.raises(ValueError, match="Cannot fuse ThreadIndex axis"):
        scan.fuse(thread, scan.op.axis[0])
    with pytest.raises(ValueError, match="runs as threads already"):
        scan.unroll(thread)
