"""A model's call: inputs are read in place, results lie in memory of their own that is reused."""

import gc
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest
from onnx import helper

import sterna
from sterna import relay
from sterna.model import InputError
from tests.model.networks import made, two_inputs
from tests.support import require_module

Array = npt.NDArray[Any]
Call = Callable[..., Any]
SHAPE = (64, 1024)


def numbers(seed: int = 0) -> Array:
    """An input of the model below."""
    return np.random.default_rng(seed).standard_normal(SHAPE, dtype="float32")


def expected(x: Array) -> Array:
    """What it computes."""
    result: Array = np.maximum(x, 0) * np.float32(2)
    return result


@pytest.fixture(scope="module")
def model() -> Call:
    """relu(x) * 2: kernels that could work in place of their input."""
    x = relay.var("x", shape=SHAPE)
    return sterna.compile(relay.Function((x,), relay.nn.relu(x) * relay.const(np.float32(2))))


def address(array: Array) -> int:
    """Where an array begins."""
    where: int = array.__array_interface__["data"][0]
    return where


# ---- results ----


def test_memory_of_a_result_that_was_let_go_is_used_again(model: Call) -> None:
    seen = set()
    result = model(numbers())
    for seed in range(8):
        result = model(numbers(seed))
        seen.add(address(result))
    np.testing.assert_array_equal(result, expected(numbers(7)))
    assert len(seen) == 2  # the last one is let go when the next one is there
    assert all(where % 64 == 0 for where in seen)


def test_results_that_are_kept_never_share_memory(model: Call) -> None:
    results = [model(numbers(seed)) for seed in range(6)]
    assert len({address(result) for result in results}) == 6
    for seed, result in enumerate(results):
        np.testing.assert_array_equal(result, expected(numbers(seed)))


@pytest.mark.parametrize(
    "part",
    [
        lambda result: result[3:5, ::2],
        lambda result: result.T,
        lambda result: result.reshape(-1)[::-1],
        memoryview,
        np.from_dlpack,
        sterna.nd.from_dlpack,
        lambda result: result.view(np.int32).ravel(),
    ],
    ids=["slice", "transposed", "flat", "memoryview", "dlpack", "own", "bits"],
)
def test_whatever_shows_a_result_keeps_its_memory(
    model: Call, part: Callable[[Array], Any]
) -> None:
    def read(shown: Any) -> Array:
        return shown.numpy() if isinstance(shown, sterna.nd.NDArray) else np.array(shown)

    kept = part(model(numbers(1)))
    before = read(kept)
    for seed in range(2, 6):
        model(numbers(seed))
    np.testing.assert_array_equal(read(kept), before)


def test_what_a_caller_does_to_a_result_is_forgotten_with_it(model: Call) -> None:
    for _ in range(4):
        result = model(numbers())
        assert result.shape == SHAPE and result.dtype == np.float32 and result.flags.writeable
        result[:] = -1
        result.flags.writeable = False
        reference = weakref.ref(result)
        del result
        assert reference() is None
    np.testing.assert_array_equal(model(numbers()), expected(numbers()))


def test_results_outlive_the_model() -> None:
    short = sterna.compile(two_inputs())
    ones = np.ones((2, 3), "float32")
    total, difference = short(ones, ones)
    del short
    gc.collect()
    total += 1
    assert (total == 3).all() and (difference == 0).all()


def test_results_are_inputs_of_the_next_call(model: Call) -> None:
    x = numbers()
    result = model(x)
    for _ in range(5):
        result = model(result)
    np.testing.assert_array_equal(result, np.maximum(x, 0) * np.float32(64))


def test_outputs_that_are_inputs_or_equal_are_copies() -> None:
    x = relay.var("x", shape=(4,))
    y = relay.nn.relu(x)
    several = sterna.compile(
        relay.Function(
            (x,), relay.Tuple((x, y, y, relay.reshape(x, (2, 2)), relay.reshape(y, (4, 1))))
        )
    )
    given = np.array([-1, 0, 1, 2], "float32")
    results = several(given)
    for result in results:
        assert not np.shares_memory(result, given)
        others = [other for other in results if other is not result]
        assert not any(np.shares_memory(result, other) for other in others)
    assert [result.shape for result in results] == [(4,), (4,), (4,), (2, 2), (4, 1)]
    for result, start in zip(results, (given, *[np.maximum(given, 0)] * 2), strict=False):
        np.testing.assert_array_equal(result, start)
    np.testing.assert_array_equal(results[3].ravel(), given)
    np.testing.assert_array_equal(results[4].ravel(), np.maximum(given, 0))


def test_another_device_of_the_same_kind_has_arrays_of_its_own() -> None:
    pair = sterna.compile(two_inputs())
    elsewhere = sterna.CompiledModel(pair.module, sterna.cpu(1))
    ones = np.ones((2, 3), "float32")
    for first, second in zip(pair(ones, ones), elsewhere(ones, ones), strict=True):
        np.testing.assert_array_equal(first, second)


def test_empty_and_scalar_tensors() -> None:
    x, s = relay.var("x", shape=(0, 3)), relay.var("s", shape=())
    model = sterna.compile(relay.Function((x, s), relay.Tuple((relay.nn.relu(x), s + s))))
    empty, twice = model(np.zeros((0, 3), "float32"), np.float32(2))
    assert empty.shape == (0, 3) and twice.shape == () and twice == 4


# ---- inputs ----


def read_only(x: Array) -> Array:
    """The same numbers in a bytes object."""
    return np.frombuffer(x.tobytes(), "float32").reshape(SHAPE)


def misaligned(x: Array) -> Array:
    """The same numbers at an odd address."""
    room = np.zeros(x.nbytes + 1, np.uint8)
    array = room[1:].view("float32").reshape(SHAPE)
    array[:] = x
    assert not array.flags.aligned
    return array


def strided(x: Array) -> Array:
    """The same numbers with others between."""
    return np.repeat(x, 3, axis=1)[:, ::3]


def backwards(x: Array) -> Array:
    """The same numbers in memory that is read from its end."""
    return np.array(x[::-1])[::-1]


@pytest.mark.parametrize(
    "lay", [np.array, read_only, misaligned, strided, backwards, np.asfortranarray]
)
def test_inputs_are_taken_however_they_lie_and_never_written(
    model: Call, lay: Callable[[Array], Array]
) -> None:
    given = lay(numbers(3))
    np.testing.assert_array_equal(model(given), expected(numbers(3)))
    np.testing.assert_array_equal(given, numbers(3))


def test_a_read_only_tensor_of_another_library_is_read(model: Call) -> None:
    class Foreign:
        """Speaks DLPack and nothing else."""

        def __dlpack__(self, **wishes: Any) -> Any:
            return read_only(numbers()).__dlpack__(**wishes)

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    np.testing.assert_array_equal(model(Foreign()), expected(numbers()))


def test_arrays_of_torch_are_read_in_place(model: Call) -> None:
    require_module("torch")
    import torch

    given = torch.from_numpy(numbers(5))
    np.testing.assert_array_equal(model(given), expected(numbers(5)))
    np.testing.assert_array_equal(model(given.T.contiguous().T), expected(numbers(5)))


def test_nothing_of_an_input_is_kept_after_the_call(model: Call) -> None:
    given = numbers()
    model(given)
    given.resize((3, 5))  # refused while anybody refers to it
    model(sterna.nd.array(numbers()))
    gone = numbers()
    reference = weakref.ref(gone)
    model(gone)
    del gone
    assert reference() is None


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e5m2", "float8_e4m3fn", "int4", "bool"])
def test_elements_that_numpy_lacks(dtype: str) -> None:
    kind = np.dtype(getattr(ml_dtypes, dtype, dtype))
    x = relay.var("x", shape=(2, 3), dtype=dtype)
    turned: Call = sterna.compile(relay.Function((x,), relay.reverse(x, axis=1)))
    values = np.array([[0, 1, 0], [1, 1, 0]], "float32").astype(kind)
    for given in (values, np.asfortranarray(values), np.repeat(values, 2, axis=0)[::2]):
        result = turned(given)
        assert result.dtype == kind
        np.testing.assert_array_equal(result.astype("float32"), values[:, ::-1].astype("float32"))


def test_both_integers_of_64_bits_are_int64() -> None:
    x = relay.var("x", shape=(3,), dtype="int64")
    model = sterna.compile(relay.Function((x,), x + x))
    for kind in (np.int64, np.longlong):
        np.testing.assert_array_equal(model(np.arange(3, dtype=kind)), [0, 2, 4])


def test_other_byte_orders_are_refused(model: Call) -> None:
    with pytest.raises(InputError, match="takes float32"):
        model(numbers().astype(">f4"))


# ---- failing and sharing ----


def test_a_model_is_usable_after_an_error() -> None:
    pair = sterna.compile(two_inputs())
    ones = np.ones((2, 3), "float32")
    for wrong in (np.ones((3, 2), "float32"), "tern", np.ones((2, 3))):
        with pytest.raises(InputError, match="'right'"):
            pair(ones, wrong)
        total, difference = pair(ones, ones)
        assert (total == 2).all() and (difference == 0).all()
    assert len(pair._idle) == 1


def test_an_input_may_call_the_model_while_it_is_read(model: Call) -> None:
    class Calling:
        """Computes itself by the model when it is asked for its numbers."""

        def __array__(self, *_: Any, **__: Any) -> Array:
            result = model(numbers())
            assert isinstance(result, np.ndarray)
            return result

    np.testing.assert_array_equal(model(Calling()), 2 * expected(numbers()))


def test_threads_keep_what_they_get(model: Call) -> None:
    wrong: list[int] = []

    def work(number: int) -> None:
        inputs = [numbers(10 * number + step) for step in range(3)]
        kept = [model(inputs[step % 3]) for step in range(12)]
        for step, result in enumerate(kept):
            if not np.array_equal(result, expected(inputs[step % 3])):
                wrong.append(number)
        for step in range(30):
            if not np.array_equal(model(inputs[step % 3]), kept[step % 3]):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_ten_inputs_by_place_and_by_name() -> None:
    names = [f"a{index}" for index in range(10)]
    total = made(
        [helper.make_node("Sum", names, ["y"])], {name: [1, 16] for name in names}, {"y": [1, 16]}
    )
    model: Call = sterna.compile(total)
    given = [np.full((1, 16), index, "float32") for index in range(10)]
    assert (model(*given) == 45).all()
    assert (model(*given[:4], **dict(zip(names[4:], given[4:], strict=True))) == 45).all()
    by_name = dict(zip(names, given, strict=True))
    assert (model(**by_name) == 45).all()
    assert least_seconds(lambda: model(*given)) < 30e-6
    assert least_seconds(lambda: model(**by_name)) < 30e-6


def least_seconds(run: Callable[[], object]) -> float:
    """The least time of the core that one of many runs takes."""
    found = []
    for _ in range(300):
        start = time.thread_time()
        run()
        found.append(time.thread_time() - start)
    return min(found)
