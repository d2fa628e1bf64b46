"""parameter, parameters and fixture."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sterna import nd, testing
from sterna.testing.cache import FixtureCache

pytest_plugins = ["pytester"]

Suite = Callable[..., pytest.RunResult]


class TestParameter:
    def test_every_combination(self, suite: Suite) -> None:
        result = suite(
            """
size = sterna.testing.parameter(1, 16)
dtype = sterna.testing.parameter("float32", "int8")
@sterna.testing.fixture
def shape(size): return (size, size)
def test_both(size, dtype): assert size in (1, 16) and dtype in ("float32", "int8")
def test_through_a_fixture(shape): assert shape in ((1, 1), (16, 16))
""",
            "-v",
        )
        result.assert_outcomes(passed=6)
        result.stdout.fnmatch_lines_random(["*test_both?16-int8? PASSED*"])

    def test_ids(self, suite: Suite) -> None:
        result = suite(
            """
size = sterna.testing.parameter(1, 2, ids=["small", "large"])
shape = sterna.testing.parameter(by_dict={"row": (1, 4), "column": (4, 1)})
marked = sterna.testing.parameter(1, pytest.param(2, marks=pytest.mark.skip, id="two"))
def test_it(size, shape): assert shape in ((1, 4), (4, 1))
def test_marked(marked): assert marked == 1
""",
            "-v",
        )
        result.assert_outcomes(passed=5, skipped=1)
        result.stdout.fnmatch_lines_random(
            [
                "*test_it?small-row? PASSED*",
                "*test_it?large-column? PASSED*",
                "*test_marked?two? SKIPPED*",
            ]
        )

    def test_in_a_class(self, suite: Suite) -> None:
        suite("""
class TestBase:
    size = sterna.testing.parameter(1, 2)
    def test_it(self, size): assert size in (1, 2)
class TestDerived(TestBase):
    size = sterna.testing.parameter(3)
    def test_other(self, size): assert size == 3
    def test_it(self, size): assert size == 3
""").assert_outcomes(passed=4)

    def test_misuse(self) -> None:
        with pytest.raises(TypeError, match="either values and ids, or by_dict"):
            testing.parameter(1, by_dict={"a": 1})
        with pytest.raises(TypeError, match="either values and ids, or by_dict"):
            testing.parameter(ids=["a"], by_dict={"a": 1})
        with pytest.raises(ValueError, match="2 values but 1 ids"):
            testing.parameter(1, 2, ids=["a"])
        with pytest.raises(ValueError, match="at least one value"):
            testing.parameter()


class TestParameters:
    def test_vary_together(self, suite: Suite) -> None:
        result = suite(
            """
size, dtype = sterna.testing.parameters((16, "float32"), (32, "float16"))
other = sterna.testing.parameter("a", "b")
pairs = {(16, "float32"), (32, "float16")}
def test_both(size, dtype): assert (size, dtype) in pairs
def test_one(dtype): assert dtype.startswith("float")
def test_more(other, dtype, size): assert (size, dtype) in pairs
@sterna.testing.fixture
def shape(size): return (size,)
def test_through_a_fixture(shape, dtype): assert (shape[0], dtype) in pairs
@pytest.mark.parametrize("size", [7])
def test_overridden(size, dtype): assert size == 7
""",
            "-v",
        )
        result.assert_outcomes(passed=12)
        result.stdout.fnmatch_lines_random(["*test_both?16-float32? PASSED*"])

    def test_ids(self, suite: Suite) -> None:
        result = suite(
            """
a, b = sterna.testing.parameters((1, None), (2, [3]), ids=["first", "second"])
c, d = sterna.testing.parameters(
    (1.5, None), ([1], int), pytest.param(1, 2, id="mine", marks=pytest.mark.skip)
)
def test_given(a, b): pass
def test_made(c, d): pass
""",
            "-v",
        )
        result.assert_outcomes(passed=4, skipped=1)
        result.stdout.fnmatch_lines_random(
            [
                "*test_given?first? PASSED*",
                "*test_given?second? PASSED*",
                "*test_made?1.5-None? PASSED*",
                "*test_made?list1-int? PASSED*",
                "*test_made?mine? SKIPPED*",
            ]
        )

    def test_in_a_class(self, suite: Suite) -> None:
        suite("""
class TestIt:
    a, b = sterna.testing.parameters((1, 10), (2, 20))
    def test_it(self, a, b): assert b == 10 * a
""").assert_outcomes(passed=2)

    def test_in_conftest(self, suite: Suite, pytester: pytest.Pytester) -> None:
        package = pytester.mkdir("sub")
        (package / "conftest.py").write_text(
            "import sterna.testing\na, b = sterna.testing.parameters((1, 10), (2, 20))\n"
        )
        (package / "test_sub.py").write_text("def test_it(a, b): assert b == 10 * a\n")
        suite("").assert_outcomes(passed=2)

    def test_misuse(self) -> None:
        with pytest.raises(ValueError, match="value set 1 has 1 values where the first has 2"):
            testing.parameters((1, 2), (3,))
        with pytest.raises(TypeError, match="for a single fixture use parameter"):
            testing.parameters(1, 2)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="not 'ab'"):
            testing.parameters("ab", "cd")
        with pytest.raises(ValueError, match="at least one value"):
            testing.parameters()


class TestFixture:
    def test_uncached(self, suite: Suite) -> None:
        suite("""
calls = []
@sterna.testing.fixture
def bare():
    calls.append(1)
    yield 5
    calls.append(2)
@sterna.testing.fixture()
def called(bare): return bare + 1
def test_one(called): assert called == 6 and calls == [1]
def test_two(called): assert calls == [1, 2, 1]
""").assert_outcomes(passed=2)

    def test_cached_once_for_each_parameter_set(self, suite: Suite) -> None:
        suite("""
import numpy as np
calls = []
size = sterna.testing.parameter(1, 2)
kind = sterna.testing.parameter("a", "b")
@sterna.testing.fixture
def data(size): return {"x": np.arange(size), "l": [size, (1.0, None)], "s": {size}}
@sterna.testing.fixture(cache_return_value=True)
def reference(data, size):
    calls.append(size)
    return data["x"] + 1
@pytest.mark.parametrize("again", range(3))
def test_it(again, kind, size, reference):
    assert reference.shape == (size,)
    reference[:] = -1
def test_last(reference): assert sorted(calls) == [1, 2] and (reference >= 0).all()
""").assert_outcomes(passed=14)

    def test_each_test_gets_its_own_copy(self, suite: Suite) -> None:
        suite("""
import numpy as np
from sterna import nd
calls = []
class Holder:
    def __init__(self, array): self.array = array
class Slotted:
    __slots__ = ("array",)
    def __init__(self, array): self.array = array
@sterna.testing.fixture(cache_return_value=True)
def value():
    calls.append(1)
    array = nd.array(np.zeros(2, "float32"))
    return {"a": [array], "same": array, "n": np.zeros(2), "h": Holder(array), "s": Slotted(array)}
seen = []
@pytest.mark.parametrize("again", range(3))
def test_it(again, value):
    array = value["a"][0]
    assert array is value["same"] is value["h"].array is value["s"].array
    assert array.numpy().dtype == "float32" and (array.numpy() == 0).all()
    assert (value["n"] == 0).all() and not any(array is old for old in seen)
    value["n"][:] = 1
    value["a"].append(2)
    seen.append(array)
    assert calls == [1]
""").assert_outcomes(passed=3)

    def test_methods(self, suite: Suite) -> None:
        suite("""
class TestBase:
    number = 1
    calls = []
    @sterna.testing.fixture(cache_return_value=True)
    def value(self):
        self.calls.append(type(self).__name__)
        return [self.number]
    def test_one(self, value): assert value == [self.number]
    def test_two(self, value): assert value == [self.number]
class TestDerived(TestBase):
    number = 2
def test_calls(): assert TestBase.calls == ["TestBase", "TestDerived"]
""").assert_outcomes(passed=5)

    def test_cached_fixture_on_cached_fixture(self, suite: Suite) -> None:
        suite("""
calls = []
class Thing:
    def __init__(self): self.x = [1]
@sterna.testing.fixture(cache_return_value=True)
def first(): return Thing()
@sterna.testing.fixture(cache_return_value=True)
def second(first):
    calls.append(1)
    return first.x
@pytest.mark.parametrize("again", range(3))
def test_it(again, second): assert second == [1] and calls == [1]
""").assert_outcomes(passed=3)

    def test_value_that_cannot_be_copied(self, suite: Suite) -> None:
        result = suite("""
import threading
@sterna.testing.fixture(cache_return_value=True)
def my_lock(): return threading.Lock()
def test_it(my_lock): pass
""")
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(
            ["*TypeError: cached fixture 'my_lock' returned a lock, which cannot be deep-copied*"]
        )

    def test_argument_that_cannot_be_told_apart(self, suite: Suite) -> None:
        result = suite("""
class Odd:
    __hash__ = None
    def __reduce__(self): raise TypeError("not picklable")
@pytest.fixture
def odd(): return Odd()
@sterna.testing.fixture(cache_return_value=True)
def value(odd): return 1
def test_it(value): pass
""")
        result.assert_outcomes(errors=1)
        result.stdout.fnmatch_lines(["*TypeError: cached fixture 'value' *argument 'odd'*"])

    def test_failure_is_not_cached(self, suite: Suite) -> None:
        suite("""
calls = []
@sterna.testing.fixture(cache_return_value=True)
def value():
    calls.append(1)
    if len(calls) == 1: pytest.skip("the first time")
    return 1
def test_one(value): pass
def test_two(value): assert value == 1
""").assert_outcomes(passed=1, skipped=1)

    def test_what_cannot_be_cached(self) -> None:
        def generator() -> Any:
            yield 1

        def asker(request: pytest.FixtureRequest) -> object:
            return request

        with pytest.raises(TypeError, match="fixture 'generator' cannot be cached"):
            testing.fixture(generator, cache_return_value=True)
        with pytest.raises(TypeError, match="fixture 'asker' cannot be cached: it takes `request`"):
            testing.fixture(cache_return_value=True)(asker)

    def test_emptied_after_the_last_use(self, suite: Suite) -> None:
        suite("""
import gc, weakref
alive = []
class Thing:
    def __init__(self): alive.append(weakref.ref(self))
    def __deepcopy__(self, memo): return 1
@sterna.testing.fixture(cache_return_value=True)
def thing(): return Thing()
def test_one(thing): pass
def test_two(thing): assert alive[0]() is not None
def test_after():
    gc.collect()
    assert len(alive) == 1 and alive[0]() is None
""").assert_outcomes(passed=3)


class TestKeys:
    @staticmethod
    def made(*values: object) -> int:
        """How many of the values the cache takes for different ones."""
        cache = FixtureCache("sample")
        calls: list[int] = []
        for value in values:
            cache.get(None, {"x": value}, lambda: calls.append(1))
        return len(calls)

    @pytest.mark.parametrize(
        "values",
        [
            (1, 1.0, True),
            (0.0, -0.0),
            ("a", b"a"),
            ([1], (1,)),
            ({1}, frozenset({1})),
            ({"a": 1}, {"a": 2}),
            (np.zeros(2), np.zeros((2, 1)), np.zeros(2, "float32"), np.ones(2)),
            (np.zeros(1, [("a", "i4")]), np.zeros(1, [("b", "i4")])),
            (int, float),
        ],
    )
    def test_different(self, values: tuple[object, ...]) -> None:
        assert self.made(*values) == len(values)

    def test_same(self) -> None:
        assert self.made(float("nan"), float("nan")) == 1
        assert self.made(np.arange(3), np.arange(3)) == 1
        assert self.made({"a": [1, {2}]}, {"a": [1, {2}]}) == 1
        assert self.made(nd.array(np.arange(3)), nd.array(np.arange(3))) == 1
        assert self.made(nd.array(np.arange(3)), nd.array(np.arange(4))) == 2
        assert self.made(np.array(["a", None], object), np.array(["a", None], object)) == 1

    def test_unpicklable_but_hashable(self) -> None:
        class Local:
            pass

        one, other = Local(), Local()
        assert self.made(one, one, other) == 2
