"""Programs whose extents only runs tell: one compilation, held against NumPy at several sizes."""

from typing import Any

import numpy as np
import pytest

import sterna
from sterna.runtime.vm import Executable, VirtualMachine

relay: Any = sterna.relay
RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def machine_of(params: list[Any], body: Any, weights: dict[str, Any] | None = None) -> Any:
    module = sterna.IRModule.from_expr(relay.Function(params, body))
    return VirtualMachine(relay.vm.compile(module, "llvm", params=weights), sterna.cpu())


def test_rows_of_a_dense_layer() -> None:
    x, w = relay.var("x", shape=(relay.Any(), 24)), relay.var("w", shape=(16, 24))
    weight = floats(16, 24)
    machine = machine_of([x, w], relay.nn.relu(relay.nn.dense(x, w)), {"w": weight})
    for rows in (0, 1, 2, 7, 8, 9, 33):
        data = floats(rows, 24)
        wanted = np.maximum(data @ weight.T, 0)
        np.testing.assert_allclose(machine.run(data).numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_names_tell_which_extents_are_equal() -> None:
    x = relay.var("x", shape=(relay.Any("rows"), 3))
    y = relay.var("y", shape=(relay.Any("rows"), relay.Any()))
    machine = machine_of([x, y], relay.concatenate([x * x, y], axis=1))
    a, b = floats(4, 3), floats(4, 2)
    np.testing.assert_array_equal(machine.run(a, b).numpy(), np.concatenate([a * a, b], 1))
    with pytest.raises(ValueError, match="must be rows"):
        machine.run(a, floats(5, 2))


def test_extents_without_a_name_broadcast() -> None:
    x, y = relay.var("x", shape=(relay.Any(), 4)), relay.var("y", shape=(relay.Any(), 4))
    machine = machine_of([x, y], x + y)
    for rows, others in ((3, 3), (1, 5), (5, 1), (1, 1)):
        a, b = floats(rows, 4), floats(others, 4)
        np.testing.assert_array_equal(machine.run(a, b).numpy(), a + b)
    with pytest.raises(ValueError, match="must be equal, or one of them 1"):
        machine.run(floats(2, 4), floats(3, 4))


def test_repeating_makes_no_extent_smaller() -> None:
    x = relay.var("x", shape=(relay.Any(), 4))
    shape = relay.var("shape", shape=(2,), dtype="int64")
    machine = machine_of([x, shape], relay.broadcast_to(x, shape))
    for rows, wanted in ((3, (3, 4)), (1, (5, 4))):
        data = floats(rows, 4)
        repeated = machine.run(data, np.array(wanted, "int64")).numpy()
        np.testing.assert_array_equal(repeated, np.broadcast_to(data, wanted))
    for smaller in ((1, 4), (3, 1), (2, 4)):
        with pytest.raises(ValueError, match="a dimension that is repeated"):
            machine.run(floats(3, 4), np.array(smaller, "int64"))


def test_sequences_of_any_length_attend() -> None:
    shape = (relay.Any("batch"), relay.Any("length"), 8)
    q, k = relay.var("q", shape=shape), relay.var("k", shape=shape)
    scores = relay.nn.softmax(relay.nn.batch_matmul(q, k))
    machine = machine_of([q, k], relay.reshape(scores, (-1,)))
    for batch, length in ((1, 1), (2, 5), (1, 19)):
        a, b = floats(batch, length, 8), floats(batch, length, 8)
        powers = np.exp(a @ b.swapaxes(1, 2))
        wanted = powers / powers.sum(-1, keepdims=True)
        np.testing.assert_allclose(
            machine.run(a, b).numpy(), wanted.reshape(-1), rtol=1e-4, atol=1e-6
        )


def test_what_a_run_found_outlives_the_next_run() -> None:
    """A result that is cut along its first axis lies in the memory that was made for all."""
    x, c = relay.var("x", shape=(50, 3)), relay.var("c", shape=(50,), dtype="bool")
    machine = machine_of([x, c], relay.compress(x, c, axis=0))
    rng = np.random.default_rng(0)
    data, flags = rng.random((4, 50, 3), "float32"), rng.random((4, 50)) < 0.5
    kept = [machine.run(*each) for each in zip(data, flags, strict=True)]
    for found, one, chosen in zip(kept, data, flags, strict=True):
        np.testing.assert_array_equal(found.numpy(), one[chosen])


def test_data_decides_how_many() -> None:
    x = relay.var("x", shape=(relay.Any(), 4))
    flags = relay.greater(x, relay.const(0.0))
    found = relay.argwhere(flags)
    machine = machine_of([x], relay.add(found, relay.const(1)))
    for rows in (0, 1, 9):
        data = floats(rows, 4)
        np.testing.assert_array_equal(machine.run(data).numpy(), np.argwhere(data > 0) + 1)


@pytest.mark.parametrize("axis", [0, 1])
def test_slices_that_a_condition_selects(axis: int) -> None:
    x = relay.var("x", shape=(relay.Any(), 4))
    c = relay.var("c", shape=(relay.Any(),), dtype="bool")
    machine = machine_of([x, c], relay.compress(x, c, axis=axis))
    for rows in (1, 6):
        data, flags = floats(rows, 4), RNG.integers(0, 2, (rows, 4)[axis]).astype(bool)
        wanted = np.compress(flags, data, axis=axis)
        np.testing.assert_array_equal(machine.run(data, flags).numpy(), wanted)


def test_slices_of_open_extents() -> None:
    x = relay.var("x", shape=(relay.Any(),))
    parts = [slice(1, None), slice(-3, None), slice(None, -1), slice(0, 4, 2), slice(5, 1, -2)]
    bodies = [
        relay.strided_slice(x, [p.start or 0], [2**31 - 1 if p.stop is None else p.stop],
                            [p.step or 1])
        for p in parts
    ]
    machine = machine_of([x], relay.Tuple(bodies))
    for size in (1, 3, 8):
        data = floats(size)
        for got, part in zip(machine.run(data), parts, strict=True):
            start = part.start or 0
            np.testing.assert_array_equal(got.numpy(), data[start : part.stop : part.step])


def test_memory_of_equal_sizes_is_shared() -> None:
    x = relay.var("x", shape=(relay.Any("n"), 64))
    value = x
    for _ in range(6):  # each softmax is a kernel of its own
        value = relay.nn.softmax(value * relay.const(2.0))
    module = sterna.IRModule.from_expr(relay.Function([x], value))
    executable: Executable = relay.vm.compile(module, "llvm")
    machine = VirtualMachine(executable, sterna.cpu())
    assert executable.lib is not None
    extents = executable.lib["tvmgen_default_block0_extents"]
    told = sterna.nd.empty((3,), "int64")
    extents(sterna.nd.array(floats(5, 64)), told)
    workspace, *shape = told.numpy()
    assert shape == [5, 64] and workspace <= 2 * 5 * 64 * 4
    assert machine.run(floats(5, 64)).shape == (5, 64)
