"""Values of every kind between Python and the runtime."""

import collections
import ctypes
import enum
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna
from sterna.runtime import DataType, Object, PackedFunc

INT_MAX, INT_MIN = 2**63 - 1, -(2**63)

Echo = Callable[[Any], Any]


@pytest.fixture(params=["python", "c", "python through c", "c through python"])
def echo(request: pytest.FixtureRequest, library: sterna.Module) -> Echo:
    """A function that gives back its argument, by each way across the boundary."""
    in_python, in_c, call = PackedFunc(lambda value: value), library["echo"], library["call"]
    ways: dict[str, Echo] = {
        "python": in_python,
        "c": in_c,
        "python through c": lambda value: call(in_python, value),
        "c through python": PackedFunc(lambda value: in_c(value)),
    }
    return ways[request.param]


def same(left: Any, right: Any) -> bool:
    """Whether both are the same value of the same type, NaN included."""
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    if isinstance(left, bytearray):
        left = bytes(left)
    return type(left) is type(right) and bool(left == right)


# ---- plain values ----


@pytest.mark.parametrize(
    "value",
    [
        None, True, False,
        0, 1, -1, 255, 256, 2**31 - 1, 2**31, -(2**31), 2**32, 2**62, INT_MAX, INT_MIN,
        0.0, 1.5, -2.25, 1e308, 5e-324, math.inf, -math.inf, math.nan,
        "", "a", "seven b", "eight by", "naïve ✓", "𝄞" * 3, "a\0b", "\0", "x" * 7 + "\0",
        "long text " * 1000, "é" * 100_000,
        b"", b"a", b"\0" * 7, b"\0" * 8, bytes(range(256)), b"long " * 100_000,
        bytearray(b""), bytearray(b"abc"), bytearray(range(256)),
    ],
    ids=lambda value: f"{type(value).__name__}-{str(value)[:12]!r}",
)
def test_plain_values_come_back(echo: Echo, value: Any) -> None:
    assert same(echo(value), bytes(value) if isinstance(value, bytearray) else value)


def test_negative_zero_keeps_its_sign(echo: Echo) -> None:
    assert math.copysign(1, echo(-0.0)) == -1


@pytest.mark.parametrize("number", [INT_MAX + 1, INT_MIN - 1, 2**64, -(2**64), 10**30])
def test_integers_beyond_64_bits_are_refused(echo: Echo, number: int) -> None:
    with pytest.raises(OverflowError, match=f"{number} does not fit in 64 bits"):
        echo(number)


def test_integers_too_long_to_print_are_refused(echo: Echo) -> None:
    with pytest.raises(OverflowError, match="does not fit in 64 bits"):
        echo(1 << 100_000)


def test_text_with_a_lone_surrogate_is_refused(echo: Echo) -> None:
    for text in ("\ud800", "a long text and then \udfff"):
        with pytest.raises(UnicodeEncodeError, match="surrogates not allowed"):
            echo(text)


def test_subclasses_come_back_as_their_base(echo: Echo) -> None:
    class Number(int):
        pass

    class Real(float):
        pass

    class Text(str):
        __slots__ = ()

    class Colour(enum.IntEnum):
        RED = 3

    class Flavour(enum.StrEnum):
        UP = "up"

    Point = collections.namedtuple("Point", "x y")
    for value, plain in (
        (Number(5), 5), (Colour.RED, 3), (Real(0.5), 0.5), (Text("abc"), "abc"),
        (Text("a longer text"), "a longer text"), (Flavour.UP, "up"), (Point(1, 2), [1, 2]),
    ):
        assert same(echo(value), plain)


def test_the_kinds_that_c_sees(library: sterna.Module) -> None:
    kinds = library["kinds"]
    array = sterna.nd.empty((1,))
    assert kinds(None, 1, True, 1.5, ctypes.c_void_p(1), DataType("int8"), sterna.cpu()) == [
        0, 1, 2, 3, 4, 5, 6,
    ]
    # Long text and bytes are lent, short ones travel in the value.
    assert kinds("eight by", b"eight by", "short", b"short") == [8, 9, 11, 12]
    assert kinds("eight by\0", bytearray(b"eight by")) == [65, 66]
    assert kinds(kinds, len, array, np.zeros(2), [], (1,), library, {}) == [
        68, 68, 70, 70, 71, 71, 73, 74,
    ]


def test_c_reads_what_python_passes(library: sterna.Module) -> None:
    read = library["read"]
    assert same(read("int", True), 1)
    assert same(read("float", 3), 3.0)
    assert same(read("float", INT_MAX), float(INT_MAX))
    for text in ("", "é", "short", "a longer text", "zeros\0and\0more"):
        assert read("text", text) == text.encode()
    for data in (b"", b"\0", b"short", b"longer bytes\0\0"):
        assert read("bytes", data) == read("bytes", bytearray(data)) == data
    assert read("dtype", "float16") == read("dtype", DataType("float16")) == "float16"
    assert read("device", sterna.cuda(3)) == sterna.cuda(3)


@pytest.mark.parametrize(
    ("kind", "value", "message"),
    [
        ("int", 1.5, "expected int, got float"),
        ("int", "1", "expected int, got text"),
        ("int", None, "expected int, got none"),
        ("float", [], "expected float, got a list"),
        ("float", np.zeros(1), "expected float, got an array"),
        ("text", b"bytes", "expected text, got bytes"),
        ("text", len, "expected text, got a function"),
        ("bytes", "text", "expected bytes, got text"),
        ("bytes", {}, "expected bytes, got a Python object"),
        ("device", "cpu", "expected a device, got text"),
        ("dtype", 5, "expected a data type, got int"),
    ],
)
def test_c_refuses_other_kinds(
    library: sterna.Module, kind: str, value: Any, message: str
) -> None:
    with pytest.raises(TypeError, match=message):
        library["read"](kind, value)


# ---- NumPy's scalars, pointers, devices, types ----


@pytest.mark.parametrize(
    "name",
    [
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64",
    ],
)
def test_numpy_scalars_become_numbers(echo: Echo, name: str) -> None:
    scalar = np.dtype(name).type(1)
    assert same(echo(scalar), scalar.item())
    if name.startswith(("int", "uint")):
        for limit in (np.iinfo(name).min, min(np.iinfo(name).max, INT_MAX)):
            assert echo(np.dtype(name).type(limit)) == limit


def test_numpy_text_and_bytes(echo: Echo) -> None:
    assert same(echo(np.str_("some text")), "some text")
    assert same(echo(np.bytes_(b"some bytes")), b"some bytes")


@pytest.mark.parametrize(
    "scalar",
    [
        np.complex64(1), np.longdouble(1), np.void(b"ab"), np.datetime64(5, "ns"),
        np.datetime64("2020-01-01"), np.timedelta64(5, "ns"), np.timedelta64(5, "D"),
    ],
    ids=repr,
)
def test_other_numpy_scalars_are_refused(echo: Echo, scalar: Any) -> None:
    with pytest.raises(TypeError, match=type(scalar).__name__):
        echo(scalar)


def test_numpy_scalars_beyond_64_bits_are_refused(echo: Echo) -> None:
    with pytest.raises(OverflowError):
        echo(np.uint64(2**63))


def test_pointers(library: sterna.Module, echo: Echo) -> None:
    for address in (1, 0x7FFF_FFFF_0000, 2**64 - 1):
        back = echo(ctypes.c_void_p(address))
        assert type(back) is ctypes.c_void_p and back.value == address
        assert library["read"]("pointer", ctypes.c_void_p(address)) == hex(address)
    assert echo(ctypes.c_void_p()) is None and echo(ctypes.c_void_p(0)) is None
    assert library["make"]("null pointer").value is None


def test_devices_and_types(echo: Echo) -> None:
    for device in (sterna.cpu(), sterna.cuda(7), sterna.device(12, 3)):
        back = echo(device)
        assert type(back) is sterna.Device and back == device
    for name in ("float32", "bool", "int4", "uint1", "bfloat16", "float8_e4m3fn", "int8x4"):
        back = echo(DataType(name))
        assert type(back) is DataType and back == name
    assert same(echo("float32"), "float32")  # plain text stays text


# ---- lists ----


def test_lists_and_tuples_come_back_as_lists(echo: Echo) -> None:
    value: list[Any] = [1, (2.5, [None, ("deep", b"er")], ()), [], True, "a longer text"]
    assert echo(value) == [1, [2.5, [None, ["deep", b"er"]], []], [], True, "a longer text"]
    assert echo([[[[]]]]) == [[[[]]]]
    assert echo(list(range(100_000))) == list(range(100_000))


def test_lists_hold_every_kind(echo: Echo, library: sterna.Module) -> None:
    array, thing = sterna.nd.empty((2,)), object()
    back = echo([array, np.arange(3), sterna.cpu(), DataType("int8"), thing, len, library])
    assert back[0].same_as(array) and (back[1].numpy() == [0, 1, 2]).all()
    assert back[2:4] == [sterna.cpu(), "int8"] and back[4] is thing
    assert back[5]([1, 2]) == 2 and back[6].same_as(library)


def test_a_list_inside_itself_is_refused(echo: Echo) -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (endless, ([endless],)):
        with pytest.raises(RecursionError, match="list is passed to a packed function"):
            echo(value)


def test_very_deep_lists_fail_cleanly(echo: Echo) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecursionError):
        echo(deep)


def test_a_bad_item_fails_the_list(echo: Echo) -> None:
    thing = object()
    before = sys.getrefcount(thing)
    for bad, error in ((2**70, OverflowError), ("\ud800", UnicodeEncodeError)):
        with pytest.raises(error):
            echo([thing, "a longer text", [thing, [bad]]])
    assert sys.getrefcount(thing) == before


def test_a_list_that_changes_while_it_is_read(echo: Echo) -> None:
    class Shrinks:
        def __dlpack__(self, **_: Any) -> Any:
            values.clear()
            return np.arange(2).__dlpack__()

    values: list[Any] = [Shrinks(), 1, 2, 3]
    assert len(echo(values)) == 4 and not values


# ---- objects ----


def test_other_objects_come_back_themselves(echo: Echo) -> None:
    class Thing:
        pass

    for thing in (Thing(), object(), {"a": 1}, {1, 2}, 1j, range(3), iter([]), ..., sys,
                  memoryview(b"abc"), ValueError("a value"), slice(1)):
        before = sys.getrefcount(thing)
        assert echo(thing) is thing
        assert sys.getrefcount(thing) == before


def test_objects_that_are_hard_to_look_at(echo: Echo) -> None:
    class Hidden:
        @property  # type: ignore[misc]
        def __class__(self) -> Any:
            raise ZeroDivisionError

        def __getattr__(self, name: str) -> Any:
            raise ZeroDivisionError

    class Claims:
        __class__ = np.float32  # type: ignore[assignment]

    for thing in (Hidden(), Claims()):
        assert echo(thing) is thing


def test_capsules_of_other_kinds_are_just_objects(echo: Echo) -> None:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype = ctypes.py_object
    new.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    for name in (b"something", None):
        capsule = new(1, name, None)
        assert echo(capsule) is capsule


def test_callables_and_classes_become_functions(echo: Echo) -> None:
    class Adder:
        def __init__(self, number: int) -> None:
            self.number = number

        def __call__(self, number: int) -> int:
            return self.number + number

    class Box:
        def __init__(self, content: int) -> None:
            self.content = content

    assert echo(Adder(3))(4) == 7
    assert echo(Box)(5).content == 5
    assert echo(str.upper)("abc") == "ABC"
    packed = PackedFunc(len)
    assert echo(packed).same_as(packed) and echo(packed) == packed


def test_modules_come_back(echo: Echo, library: sterna.Module) -> None:
    back = echo(library)
    assert type(back) is sterna.Module and back.same_as(library) and back == library


def test_arrays_come_back_the_same(echo: Echo) -> None:
    array = sterna.nd.array(np.arange(6).reshape(2, 3))
    back = echo(array)
    assert type(back) is sterna.NDArray and back.same_as(array)


def test_numpy_arrays_are_shared(echo: Echo) -> None:
    for values in (np.arange(6.0).reshape(2, 3), np.array(3), np.zeros((0, 4), "int8")):
        before = sys.getrefcount(values)
        back = echo(values)
        assert back.shape == values.shape and back.dtype == values.dtype.name
        assert back.data_ptr() == values.ctypes.data or not values.size
        del back
        assert sys.getrefcount(values) == before


def test_torch_tensors_are_shared(echo: Echo, torch: Any) -> None:
    for values in (torch.arange(6.0).reshape(2, 3), torch.tensor(3), torch.zeros(0, 4)):
        back = echo(values)
        assert back.shape == tuple(values.shape)
        assert back.dtype == str(values.dtype).removeprefix("torch.")
        assert back.data_ptr() == values.data_ptr()
    assert echo(torch.nn.Parameter(torch.ones(2)).detach()).numpy().tolist() == [1, 1]


# ---- results that only C makes ----


def test_results_from_c(library: sterna.Module) -> None:
    make = library["make"]
    assert math.isnan(make("nan"))
    assert same(make("shape"), (2, 3, INT_MAX)) and same(make("scalar shape"), ())
    assert same(make("borrowed text"), "borrowed")
    error = make("error")
    assert type(error) is Object and error.type_index == 67
    assert library["echo"](error).same_as(error)


def test_results_that_break_the_rules(library: sterna.Module) -> None:
    make = library["make"]
    for what in ("bad text", "bad long text"):
        with pytest.raises(UnicodeDecodeError):
            make(what)
    for what in ("unknown kind", "bare tensor"):
        with pytest.raises(TypeError, match="unknown kind"):
            make(what)
    assert make("null object") is None


# ---- anything at all ----

SCALARS = (
    st.none() | st.booleans() | st.integers(INT_MIN, INT_MAX) | st.floats() | st.binary()
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from([DataType("int8"), DataType("bfloat16"), sterna.cpu(), sterna.cuda(1)])
)
VALUES = st.recursive(SCALARS, lambda items: st.lists(items) | st.lists(items).map(tuple))

_SUITE: dict[str, PackedFunc] = {}


@pytest.fixture(scope="module", autouse=True)
def _ways(library: sterna.Module) -> None:
    _SUITE.update(python=PackedFunc(lambda value: value), c=library["echo"], pack=library["pack"])


@settings(max_examples=150)
@given(VALUES)
def test_any_value_comes_back_equal(value: Any) -> None:
    assert same(_SUITE["python"](value), value)
    assert same(_SUITE["c"](value), value)


@settings(max_examples=50)
@given(st.lists(VALUES, max_size=20))
def test_any_arguments_come_back_equal(values: list[Any]) -> None:
    assert same(_SUITE["pack"](*values), values)
    assert same(PackedFunc(lambda *args: args)(*values), values)
