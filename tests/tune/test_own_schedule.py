"""Workloads in te that the compiler knows: found by what they compute, and scheduled so."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna
from sterna import auto_scheduler, te
from sterna.auto_scheduler.convolutions import convolution_of
from sterna.auto_scheduler.own_schedule import own_schedule
from sterna.auto_scheduler.own_space import OwnSpace
from sterna.auto_scheduler.steps import step_of_json
from sterna.target import Target

Array = np.ndarray[Any, Any]
NATIVE = Target("llvm -mcpu=native")


def product(turned: bool) -> list[te.Tensor]:
    a = te.placeholder((33, 24), name="a")
    b = te.placeholder((50, 24) if turned else (24, 50), name="b")
    bias = te.placeholder((50,), name="bias")
    k = te.reduce_axis((0, 24), name="k")
    read: Callable[..., Any] = (lambda j: b[j, k]) if turned else (lambda j: b[k, j])
    total = te.compute((33, 50), lambda i, j: te.sum(a[i, k] * read(j), axis=k), name="total")
    return [a, b, bias, te.compute((33, 50), lambda i, j: te.max(total[i, j] + bias[j], 0.0))]


def convolution(layout: str, stride: int) -> list[te.Tensor]:
    """Eight channels of 9 x 9 pixels with a border to sixteen; channels are summed last."""
    first = layout == "NCHW"
    spatial = (2, 3) if first else (1, 2)
    x = te.placeholder((1, 8, 9, 9) if first else (1, 9, 9, 8), name="x")
    w = te.placeholder((16, 8, 3, 3) if first else (3, 3, 8, 16), name="w")
    p, q, c = (te.reduce_axis((0, n), name=a) for a, n in (("p", 3), ("q", 3), ("c", 8)))

    def with_border(*at: Any) -> Any:
        inside = [test for s in spatial for test in (at[s] >= 1, at[s] <= 9)]
        moved = [index - 1 if place in spatial else index for place, index in enumerate(at)]
        return te.if_then_else(te.all(*inside), x(*moved), 0.0)

    image = te.compute((1, 8, 11, 11) if first else (1, 11, 11, 8), with_border, name="image")
    size = 8 // stride + 1

    def element(*at: Any) -> Any:
        n, o, i, j = at if first else (at[0], at[3], at[1], at[2])
        y, z = i * stride + p, j * stride + q
        read = image[n, c, y, z] * w[o, c, p, q] if first else image[n, y, z, c] * w[p, q, c, o]
        return te.sum(read, axis=[p, q, c])

    return [x, w, te.compute((1, 16, size, size) if first else (1, size, size, 16), element,
                             name="conv")]


def softmax() -> list[te.Tensor]:
    x = te.placeholder((5, 37), name="x")
    r, s = (te.reduce_axis((0, 37), name=name) for name in "rs")
    most = te.compute((5,), lambda i: te.max(x[i, r], axis=r), name="most")
    power = te.compute((5, 37), lambda i, j: te.exp(x[i, j] - most[i]), name="power")
    total = te.compute((5,), lambda i: te.sum(power[i, s], axis=s), name="total")
    return [x, te.compute((5, 37), lambda i, j: power[i, j] / total[i], name="softmax")]


KNOWN: dict[str, Callable[[], list[te.Tensor]]] = {
    "product": lambda: product(False), "product turned": lambda: product(True),
    "channels first": lambda: convolution("NCHW", 1),
    "channels last, stride 2": lambda: convolution("NHWC", 2), "softmax": softmax,
}


def computed(schedule: te.Schedule, tensors: list[te.Tensor], given: list[Array]) -> Array:
    arrays = [sterna.nd.array(array) for array in given]
    sterna.build(schedule, tensors, target=NATIVE)(*arrays)
    found: Array = arrays[-1].numpy()
    return found


@pytest.mark.parametrize("name", KNOWN)
def test_answers_change_how_and_not_what(name: str) -> None:
    tensors = KNOWN[name]()
    rng = np.random.default_rng(1)
    given = [rng.standard_normal([int(str(e)) for e in t.shape]).astype("float32")
             for t in tensors]
    expected = computed(te.create_schedule(tensors[-1].op), tensors, given)
    dag = auto_scheduler.ComputeDAG(tensors)
    space = OwnSpace.of(dag, NATIVE)
    assert space is not None
    for point in {0, *map(int, rng.integers(0, len(space.space), 2))}:
        steps = space.state(space.space.get(point)).transform_steps
        again = [step_of_json(json.loads(json.dumps(step.to_json()))) for step in steps]
        schedule, args = auto_scheduler.loop_state.State(dag, again).apply()
        assert args[:-1] == tensors[:-1]
        np.testing.assert_allclose(computed(schedule, args, given), expected, 1e-4, 1e-4)


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_convolutions_by_transforms(layout: str) -> None:
    *inputs, conv = convolution(layout, 1)
    out = te.compute(conv.shape, lambda *at: te.max(conv(*at) + 1.0, 0.0), name="out")
    tensors, rng = [*inputs, out], np.random.default_rng(3)
    given = [rng.standard_normal([int(str(e)) for e in t.shape]).astype("float32")
             for t in tensors]
    expected = computed(te.create_schedule(out.op), tensors, given)
    space = OwnSpace.of(auto_scheduler.ComputeDAG(tensors), NATIVE)
    assert space is not None
    offered = [str(each) for each in space.space.space_map["implementation"]]
    assert "direct" in offered
    sizes = {answer.partition("tiles")[0]: answer for answer in offered}
    assert len(sizes) > 2, "F(2, 3) and larger ones"
    for answer in [*sizes.values()][1::2]:
        made = own_schedule(tensors, NATIVE, {"implementation": answer})
        assert made is not None and made.taken["implementation"] == answer
        found = computed(made.schedule, made.tensors, given)
        np.testing.assert_allclose(found, expected, 1e-3, 1e-3, err_msg=answer)


def test_softmax_of_any_numbers() -> None:
    tensors = softmax()
    rows = np.random.default_rng(2).standard_normal((5, 37)).astype("float32") * 60
    rows[1, 3], rows[2], rows[3, :2] = np.inf, 0.0, [-np.inf, 1e30]
    made = own_schedule(tensors, NATIVE, {})
    assert made is not None
    found = computed(made.schedule, made.tensors, [rows, np.zeros_like(rows)])
    with np.errstate(invalid="ignore"):
        shifted = np.exp(rows - rows.max(1, keepdims=True))
    np.testing.assert_allclose(found, shifted / shifted.sum(1, keepdims=True), 1e-6, 1e-37)


def test_what_only_looks_alike_is_left_alone() -> None:
    tensors = convolution("NHWC", 1)
    known = convolution_of(tensors[-1].op)
    assert known is not None and str(known.made) == "1x11x11x8 * 16x3x3x8 -> 1x9x9x16 float32"
    image, w = known.data, tensors[1]
    p, q, c = (te.reduce_axis((0, n), name=a) for a, n in (("p", 3), ("q", 3), ("c", 7)))
    fewer = te.compute((1, 9, 9, 16), lambda n, i, j, o: te.sum(
        image[n, i + p, j + q, c] * w[p, q, c, o], axis=[p, q, c]), name="fewer")
    assert convolution_of(fewer.op) is None, "not all channels"
    moved = te.compute((1, 8, 9, 16), lambda n, i, j, o: te.sum(
        image[n, i + p + 1, j + q, c] * w[p, q, c, o], axis=[p, q, c]), name="moved")
    assert convolution_of(moved.op) is None, "it begins at the second row"
    largest = te.compute((9,), lambda i: te.max(image[0, i, 0, c] * w[0, 0, c, 0], axis=c))
    assert own_schedule([image, w, largest], NATIVE, {}) is None, "no sum"
    assert own_schedule(tensors, Target("opencl"), {}) is None, "no processor"


def test_the_step_stands_alone() -> None:
    dag = auto_scheduler.ComputeDAG(product(False))
    state = dag.init_state
    state.compute_inline(state.stage_ops[3])
    with pytest.raises(ValueError, match="the only step"):
        state.take(step_of_json(["OWN", 0, "llvm", []]))
