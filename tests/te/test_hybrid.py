"""Hybrid script: the same function in Python and as loops, and what a script cannot say."""

# The names of hybrid script are defined where it runs.
# ruff: noqa: F821
# mypy: disable-error-code="name-defined"
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna
from sterna import te

TABLE, TWICE = (1, 3, 5), 2


def check(script: Any, *arrays: Any) -> te.Tensor:
    """Hold the compiled loops against Python."""
    inputs = [te.placeholder(a.shape, str(a.dtype), name=f"a{i}") for i, a in enumerate(arrays)]
    outputs = script(*inputs)
    listed = outputs if isinstance(outputs, list) else [outputs]
    built = sterna.build(te.create_schedule(listed[0].op), [*inputs, *listed], "llvm")
    wanted = script(*arrays)
    found = [sterna.nd.empty([int(e.value) for e in o.shape], o.dtype) for o in listed]
    built(*map(sterna.nd.array, arrays), *found)
    for one, other in zip(found, wanted if isinstance(wanted, tuple) else [wanted], strict=True):
        np.testing.assert_allclose(one.numpy(), other, rtol=1e-5)
    first: te.Tensor = listed[0]
    return first


def some(*shape: int) -> Any:
    return np.random.default_rng(0).random(shape, "float32")


def outer(a: Any, b: Any) -> Any:
    c = output_tensor((a.shape[0], b.shape[0]), a.dtype)
    for i in range(a.shape[0]):
        for j in range(b.shape[0]):
            c[i, j] = a[i] * b[j]
    return c


def kinds_of_loops(a: Any) -> Any:
    """Loops of every kind, steps, and several results."""
    b = output_tensor((16,), "float32")
    c = output_tensor((16,), "float32")
    for i in parallel(16):
        b[i] = a[i]
    for i in vectorize(16):
        c[i] = a[i] + 1.0
    for i in unroll(4):
        c[i] += 1.0
    for i in range(2, 16, 5):
        b[i] = 0.0
    for i in const_range(len(TABLE)):
        for j in const_range(TWICE):
            b[TABLE[i]] += float32(j + 1)
    return b, c


def branches(a: Any) -> Any:
    b = output_tensor((8,), "float32")
    for i in range(8):
        if i % 2 == 0:
            b[i] = sqrt(a[i]) + max(a[i], 0.5, a[0])
        else:
            b[i] = -1.0 if a[i] < 0.5 else power(a[i], 2.0)
        if (0 <= i < 4 and a[i] > 0.1) or not i < 6:
            b[i] += float32(int32(a[i] * 10.0))
    return b


def windows(a: Any) -> Any:
    """A variable, and memory inside a loop."""
    b = output_tensor((6,), "float32")
    for i in range(6):
        row = allocate((3,), "float32")
        total = 0.0
        for j in range(3):
            row[j] = a[i + j] * 2.0
            total += row[j]
        b[i] = total / 3.0
    return b


def bubbles(a: Any) -> Any:
    b = output_tensor((8,), "float32")
    for i in range(8):
        b[i] = a[i]
    for _ in range(8):
        for j in range(7):
            if b[j] > b[j + 1]:
                kept = b[j]
                b[j] = b[j + 1]
                b[j + 1] = kept
    return b


def swaps(a: Any) -> Any:
    """What is read before something is written in its place."""
    b = output_tensor((8,), "float32")
    for i in range(8):
        b[i] = a[i]
        x = a[i]
        y = a[7 - i]
        x, y = y, x
        b[i] += x - 2.0 * y
    for i in range(4):
        b[i], b[7 - i] = b[7 - i], b[i]
    before = (b[0], b[1])
    b[0] = 100.0
    for each in (before[0], b[1], b[0]):
        b[0] = 1.0
        b[1] += each
    return b


def known_when_read(a: Any) -> Any:
    """Conditions that are known decide what is read at all, and what their names are."""
    b = output_tensor((8,), "float32")
    if TWICE == 2:
        factor = 3.0
        added = 1.0
    else:
        factor = nothing_known
    for i in const_range(8):
        b[i] = round(a[i] * 10.0 - 2.5) * factor
        if i > 0 and a[i - 1] > 0.5:
            b[i] += added
    b[0] = round(2.5) + round(a[0] * 0.0 - 0.5)
    return b


@pytest.mark.parametrize(
    ("function", "shapes"),
    [
        (outer, [(5,), (7,)]), (kinds_of_loops, [(16,)]), (branches, [(8,)]), (windows, [(8,)]),
        (bubbles, [(8,)]), (swaps, [(8,)]), (known_when_read, [(8,)]),
    ],
)
def test_loops_give_what_python_gives(function: Any, shapes: list[tuple[int, ...]]) -> None:
    check(te.hybrid.script(function), *(some(*shape) for shape in shapes))


def test_a_script_calls_another_one() -> None:
    add = te.hybrid.script(outer)

    def both(a: Any, b: Any) -> Any:
        made = output_tensor((3, 4), "float32")
        product = add(a, b)
        for i in range(3):
            for j in range(4):
                made[i, j] = product[i, j] + 1.0
        return made

    check(te.hybrid.script(both), some(3), some(4))


def test_open_extents_and_assertions() -> None:
    def shifted(n: Any, a: Any) -> Any:
        b = output_tensor((n,), "float32")
        for i in range(n):
            assert a[i] >= 0.0, "negative"
            b[i] = a[i] + float32(n)
        return b

    n = te.var("n")
    a = te.placeholder((n,), name="a")
    b = te.hybrid.script(shifted)(n, a)
    built = sterna.build(te.create_schedule(b.op), [a, b], "llvm")
    result = sterna.nd.empty((5,))
    built(sterna.nd.array(some(5)), result)
    np.testing.assert_allclose(result.numpy(), some(5) + 5, rtol=1e-6)
    with pytest.raises(ValueError, match="negative"):
        built(sterna.nd.array(-some(5)), result)


def test_threads_of_a_device() -> None:
    def added(a: Any) -> Any:
        b = output_tensor(a.shape, a.dtype)
        for tx in bind("threadIdx.x", a.shape[0]):
            b[tx] = a[tx] + 1.0
        return b

    a = te.placeholder((32,), name="a")
    b = te.hybrid.script(added)(a)
    text = str(sterna.lower(te.create_schedule(b.op), [a, b]))
    assert "threadIdx.x" in text


def endless(a: Any) -> Any:
    b = output_tensor((4,), "float32")
    while True:
        pass
    return b


def unknown(a: Any) -> Any:
    b = output_tensor((4,), "float32")
    b[0] = nothing_known
    return b


def input_written(a: Any) -> Any:
    b = output_tensor((4,), "float32")
    a[0] = 1.0
    return b


def input_returned(a: Any) -> Any:
    return a


def inner_variable(a: Any) -> Any:
    b = output_tensor((4,), "float32")
    for i in range(4):
        x = a[i]
    b[0] = x
    return b


def text_stored(a: Any) -> Any:
    b = output_tensor((4,), "float32")
    b[0] = "x"
    return b


def early(a: Any) -> Any:
    b = output_tensor((4,), "float32")
    for _ in range(4):
        return b


def from_the_end(a: Any) -> Any:
    b = output_tensor((4,), "float32")
    b[0] = a[-1]
    return b


def whole_row(a: Any) -> Any:
    b = output_tensor((4, 4), "float32")
    b[0] = a[0]
    return b


def halves(a: Any) -> Any:
    b = output_tensor((4,), "float32")
    for i in range(4):
        b[i] = a[0] + i / 2
    return b


def cut_off(a: Any) -> Any:
    b = output_tensor((4,), "float32")
    total = 0
    for i in range(4):
        total += a[i]
    b[0] = total
    return b


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (from_the_end, "the index -1 is none of 0 to 4 - 1"),
        (whole_row, "an element of b has 2 indices, not 1"),
        (halves, "/ of integers is a float in Python: take //, or convert one"),
        (cut_off, "total is int32, as what it was given first, and has no room for float32"),
        (endless, r"endless, line \d+ \(while True:\): .* no while"),
        (unknown, "nothing_known is not defined here"),
        (input_written, "a is an input, which is only read"),
        (input_returned, "it returns what output_tensor made"),
        (inner_variable, r"\(b\[0\] = x\): x is not defined here"),
        (text_stored, "a number was expected"),
        (early, "it returns at its end only"),
    ],
)
def test_what_a_script_cannot_say(function: Callable[..., Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        te.hybrid.script(function)(te.placeholder((4,), name="a"))


def test_arguments_are_counted() -> None:
    with pytest.raises(ValueError, match=r"outer, line .*: it takes 2 arguments, not 1"):
        te.hybrid.script(outer)(te.placeholder((4,), name="a"))
    with pytest.raises(TypeError, match=r"takes a function of Python with a name, not 5"):
        te.hybrid.script(5)  # type: ignore[arg-type]
