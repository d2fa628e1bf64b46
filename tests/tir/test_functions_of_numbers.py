"""Functions of scalars by their classic names, against NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, tir

RNG = np.random.default_rng(11)
INTEGERS = RNG.integers(-(2**20), 2**20, (2, 40)).astype("int32")
SMALL = RNG.integers(0, 9, (2, 40)).astype("int32")
FLOATS = RNG.standard_normal((2, 40)).astype("float32")


def computed(function: Callable[..., Any], target: str, *arrays: Any) -> Any:
    tensors = [te.placeholder(each.shape, str(each.dtype), name=f"x{i}")
               for i, each in enumerate(arrays)]
    made = te.compute(arrays[0].shape, lambda i: function(*[each[i] for each in tensors]))
    built = tvm.build(te.create_schedule(made.op), [*tensors, made], target)
    result = tvm.nd.empty(arrays[0].shape, str(made.dtype))
    built(*map(tvm.nd.array, arrays), result)
    return result.numpy()


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize(("ours", "theirs", "arrays"), [
    (tir.add, np.add, INTEGERS), (tir.subtract, np.subtract, INTEGERS),
    (tir.multiply, np.multiply, INTEGERS), (tir.bitwise_and, np.bitwise_and, INTEGERS),
    (tir.bitwise_or, np.bitwise_or, INTEGERS), (tir.bitwise_xor, np.bitwise_xor, INTEGERS),
    (lambda x, y: tir.bitwise_not(x), lambda x, y: ~x, INTEGERS),
    (tir.shift_left, np.left_shift, (INTEGERS[0], SMALL[0])),
    (tir.shift_right, np.right_shift, (INTEGERS[0], SMALL[0])),
    (lambda x, y: tir.ceildiv(x, 2 * y - 7), lambda x, y: -(-x // (2 * y - 7)),
     (INTEGERS[0], SMALL[0])),
    (lambda x, y: tir.ceildiv(x, 5), lambda x, y: -(-x // 5), INTEGERS),
    (tir.nextafter, np.nextafter, FLOATS), (tir.ldexp, np.ldexp, (FLOATS[0], SMALL[0])),
    (lambda x, y: tir.pow(tir.abs(x), y), lambda x, y: np.abs(x) ** y, FLOATS),
    (lambda x, y: te.select(tir.likely(x > y), x, tir.infinity("float32")),
     lambda x, y: np.where(x > y, x, np.inf), FLOATS),
])
def test_functions_of_two(
    target: str, ours: Callable[..., Any], theirs: Callable[..., Any], arrays: Any
) -> None:
    wanted = theirs(*arrays)
    np.testing.assert_allclose(computed(ours, target, *arrays), wanted, rtol=1e-6)


@pytest.mark.parametrize("shift", [-7, -1, 0, 1, 5])
def test_products_of_fixed_point(shift: int) -> None:
    factors = RNG.integers(2**30, 2**31 - 1, 40).astype("int32")
    numbers = RNG.integers(-(2**20), 2**20, 40).astype("int32")
    exact = numbers.astype(object) * factors.astype(object)
    down = 31 - min(shift, 0)
    wanted = [((int(n) << max(shift, 0)) + (1 << (down - 1))) >> down for n in exact]
    for given in (shift, te.const(shift)):
        made = computed(lambda x, y, s=given: tir.q_multiply_shift(x, y, 31, s), "llvm", numbers,
                        factors)
        np.testing.assert_array_equal(made, np.array(wanted).astype("int32"))


def test_limits_and_reductions() -> None:
    assert tir.max_value("int8").value == 127 and tir.min_value("uint8").value == 0
    assert tir.max_value("float16").value == np.finfo("float16").max
    with pytest.raises(ValueError, match="infinity is of floats, not of int32; max_value is"):
        tir.infinity("int32")
    largest = tir.comm_reducer(lambda x, y: tir.max(x, y), tir.min_value, name="largest")
    a, k = te.placeholder((4, 9), name="a"), te.reduce_axis((0, 9), "k")
    b = te.compute((4,), lambda i: largest(a[i, k], axis=k))
    built, given = tvm.build(te.create_schedule(b.op), [a, b]), FLOATS[:, :36].reshape(2, 4, 9)[0]
    result = tvm.nd.empty((4,))
    built(tvm.nd.array(given), result)
    np.testing.assert_array_equal(result.numpy(), given.max(1))
