"""Results that are kept for the next call."""

import numpy as np

from sterna.contrib.pickle_memoize import memoize

calls: list[int] = []


def test_results_are_computed_once_and_are_the_callers_own() -> None:
    @memoize("sterna.test_pickle_memoize")
    def numbers(count: int, start: int = 0) -> np.ndarray:
        calls.append(count)
        return np.arange(start, start + count)

    first = numbers(3)
    first[:] = 7
    np.testing.assert_array_equal(numbers(3), [0, 1, 2])
    np.testing.assert_array_equal(numbers(3, start=1), [1, 2, 3])
    numbers(4)
    assert calls == [3, 3, 4] and numbers.__name__ == "numbers"


def test_what_lies_around_a_function_tells_its_results_apart() -> None:
    def sums(shape: list[int], start: float) -> np.ndarray:
        @memoize("sterna.test_pickle_memoize.around")
        def reference() -> np.ndarray:
            return np.full(shape, start)

        return reference()

    assert sums([2], 1).shape == (2,) and sums([3, 1], 1).shape == (3, 1)
    assert sums([2], 1.0).dtype == np.float64 != sums([2], 1).dtype
