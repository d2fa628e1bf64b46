"""Arrays: making them, copying, views, types, and how they behave as Python objects."""

import copy
import gc
import importlib
import pickle
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna
from sterna import nd
from sterna.runtime import Object, _core
from tests.support import require_module

NUMPY_TYPES = [
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128",
]
SHAPES: list[tuple[int, ...]] = [
    (), (1,), (5,), (0,), (2, 3), (0, 3), (3, 0), (1, 1, 1), (2, 3, 4, 5), (1,) * 32,
]


def sample(shape: tuple[int, ...], dtype: str = "float32") -> Any:
    """Different numbers in each place, as far as the type allows."""
    count = int(np.prod(shape))
    return (np.arange(count) % 120).astype(dtype).reshape(shape)


# ---- making and reading ----


@pytest.mark.parametrize("dtype", NUMPY_TYPES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_arrays_hold_what_they_were_given(shape: tuple[int, ...], dtype: str) -> None:
    values = sample(shape, dtype)
    array = nd.array(values)
    assert array.shape == shape and array.dtype == dtype and array.ndim == len(shape)
    assert array.device == sterna.cpu(0) and array.size == values.size
    assert array.nbytes == values.nbytes and array.data_ptr() % 64 == 0
    assert not array.is_read_only
    back = array.numpy()
    assert back.dtype == values.dtype and back.shape == shape
    np.testing.assert_array_equal(back, values)
    np.testing.assert_array_equal(array.asnumpy(), values)
    np.testing.assert_array_equal(np.asarray(array), values)


def test_properties_are_plain_python() -> None:
    array = nd.empty((2, 3), "float64")
    assert [type(extent) for extent in array.shape] == [int, int]
    assert type(array.dtype) is sterna.DataType and type(array.device) is sterna.Device
    assert array.strides == (3, 1) and nd.empty(()).strides == ()
    assert len(array) == 2
    with pytest.raises(TypeError, match="no length"):
        len(nd.empty(()))
    for name in ("shape", "dtype", "device", "handle"):
        with pytest.raises(AttributeError):
            setattr(array, name, None)
    with pytest.raises(AttributeError):
        array.other = 1  # type: ignore[attr-defined]


def test_empty_takes_shapes_and_types_of_many_forms() -> None:
    shapes: list[Any] = [(2, 3), [2, 3], np.array([2, 3]), (np.int64(2), 3), iter((2, 3))]
    for shape in shapes:
        assert nd.empty(shape).shape == (2, 3)
    assert nd.empty(4).shape == (4,)
    types: list[Any] = ["int8", np.int8, np.dtype("int8"), sterna.DataType("int8")]
    for dtype in types:
        assert nd.empty((2,), dtype).dtype == "int8"
    assert nd.empty((2,)).dtype == "float32"
    assert nd.empty((2,), mem_scope="global").shape == (2,)


@pytest.mark.parametrize(
    ("shape", "error", "message"),
    [
        ((-1,), ValueError, "dimension 0 of the array is negative: -1"),
        ((2, -3), ValueError, "dimension 1"),
        ((1.5,), TypeError, "float"),
        (("2",), TypeError, "str"),
        ((None,), TypeError, "NoneType"),
        ((2**63,), OverflowError, "too big|too large"),
        ((2**62, 2**62), ValueError, "does not fit in 64 bits"),
        ((2**50,), MemoryError, "out of memory"),
        (None, TypeError, "sequence of integers, not NoneType"),
        (2.0, TypeError, "sequence of integers, not float"),
        ("ab", TypeError, "str"),
    ],
)
def test_bad_shapes_are_refused(shape: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        nd.empty(shape)


def test_a_shape_that_changes_while_it_is_read() -> None:
    class Clears:
        def __index__(self) -> int:
            shape.clear()
            gc.collect()
            return 2

    shape: list[Any] = [Clears(), *([3] * 5)]
    assert nd.empty(shape).shape == (2, 3, 3, 3, 3, 3)


@pytest.mark.parametrize("dtype", ["float33", "", "text", "float32x", "float32 ", "int0", "\0"])
def test_bad_types_are_refused(dtype: str) -> None:
    with pytest.raises(ValueError, match="names no data type"):
        nd.empty((1,), dtype)


def test_bad_devices_and_scopes_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"cuda\(99\)"):
        nd.empty((1,), device=sterna.cuda(99))
    with pytest.raises(RuntimeError, match=r"there is no device cpu\(-1\)"):
        nd.empty((1,), device=sterna.cpu(-1))
    with pytest.raises(TypeError, match="Device"):
        nd.empty((1,), device="cpu")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"'shared'.*cpu"):
        nd.empty((1,), mem_scope="shared")


def test_array_from_anything_numpy_reads() -> None:
    sources: list[Any] = [
        [1.0, 2.0], (1.0, 2.0), np.array([1.0, 2.0]), nd.array(np.array([1.0, 2.0])), range(1, 3),
        memoryview(b"\1\2"),
    ]
    for source in sources:
        assert nd.array(source).numpy().tolist() == [1, 2]
    assert nd.array(3).shape == () and nd.array(3).dtype == "int64"
    assert nd.array(True).dtype == "bool" and nd.array(1.5).numpy() == 1.5


def test_array_from_torch(torch: Any) -> None:
    tensor = torch.arange(6.0).reshape(2, 3).t()
    array = nd.array(tensor)
    tensor[:] = 0
    assert array.numpy().tolist() == [[0, 3], [1, 4], [2, 5]]


@pytest.mark.parametrize(
    "source",
    [
        ["a", "b"], b"ab", None, ..., [None], np.array(["2020"], "M8[D]"),
        np.array([1], "m8[ns]"), np.zeros(2, [("x", "f4")]), np.zeros(2, np.longdouble),
    ],
    ids=repr,
)
def test_sources_that_are_no_numbers_are_refused(source: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        nd.array(source)


@pytest.mark.parametrize(
    "shuffle",
    [
        lambda x: x.T, lambda x: x[::2], lambda x: x[:, 1:], lambda x: x[::-1, ::-1],
        lambda x: np.asfortranarray(x), lambda x: np.broadcast_to(x[0], x.shape),
        lambda x: x.astype(">f4"), lambda x: x.view(np.rec.recarray).view(np.ndarray),
    ],
)
def test_sources_of_any_layout(shuffle: Callable[[Any], Any]) -> None:
    values = shuffle(sample((4, 6)))
    np.testing.assert_array_equal(nd.array(values).numpy(), values)
    np.testing.assert_array_equal(nd.empty(values.shape).copyfrom(values).numpy(), values)


def test_copies_are_independent() -> None:
    values = sample((3,))
    array = nd.array(values)
    values[:] = -1
    assert array.numpy().tolist() == [0, 1, 2]
    back = array.numpy()
    back[:] = -2
    assert array.numpy().tolist() == [0, 1, 2] and back.flags.owndata
    other = nd.array(array)
    other[:] = 9
    assert array.numpy().tolist() == [0, 1, 2]
    assert array.copyto(sterna.cpu(0)).data_ptr() != array.data_ptr()


def test_numpy_protocol() -> None:
    array = nd.array(sample((2, 2)))
    assert np.asarray(array).dtype == "float32"
    assert np.asarray(array, "int64").dtype == "int64"
    assert np.array(array, copy=True).sum() == 6
    with pytest.raises(ValueError, match="from_dlpack"):
        np.array(array, copy=False)
    np.testing.assert_array_equal(np.add(array, 1), sample((2, 2)) + 1)
    np.testing.assert_array_equal(array, sample((2, 2)))


# ---- copying ----


def test_copyfrom_gives_itself_and_converts() -> None:
    array = nd.empty((3,), "int8")
    assert array.copyfrom(np.array([1.9, -1.9, 3.0])) is array
    assert array.numpy().tolist() == [1, -1, 3]
    assert nd.empty((2,), "bool").copyfrom([0, 5]).numpy().tolist() == [False, True]
    assert nd.empty((2,), "float16").copyfrom([1, 2]).numpy().tolist() == [1, 2]
    assert nd.empty(()).copyfrom(4).numpy() == 4


@pytest.mark.parametrize("source", [(3, 2), (6,), (2, 3, 1), (), (1, 3), (0,)], ids=str)
def test_copyfrom_names_both_shapes(source: tuple[int, ...]) -> None:
    with pytest.raises(ValueError) as caught:
        nd.empty((2, 3)).copyfrom(np.zeros(source))
    assert str(source) in str(caught.value) and "(2, 3)" in str(caught.value)


def test_copies_between_arrays() -> None:
    array = nd.array(sample((2, 3)))
    assert nd.empty((6,)).copyfrom(array).numpy().tolist() == list(range(6))
    target = nd.empty((3, 2))
    assert array.copyto(target) is target and target.numpy()[2, 1] == 5
    with pytest.raises(ValueError) as caught:
        nd.empty((4,), "int16").copyfrom(array)
    for part in ("(2, 3)", "float32", "(4,)", "int16"):
        assert part in str(caught.value)
    for other in (5, None, np.zeros((2, 3))):
        with pytest.raises(TypeError, match="expected an NDArray or a Device"):
            array.copyto(other)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="expected an NDArray, got list"):
        array._copy_from_array([])  # type: ignore[arg-type]


def test_assignment_to_the_whole() -> None:
    array = nd.empty((2, 3))
    array[:] = 1
    assert array.numpy().sum() == 6
    array[...] = [1, 2, 3]
    assert array.numpy().tolist() == [[1, 2, 3]] * 2
    array[:] = sample((2, 3))
    array[:] = array
    array[:] = nd.array(sample((2, 3)) * 2)
    assert array.numpy()[1, 2] == 10
    array[:] = array.reshape((3, 2))
    for index in (0, (0, 0), slice(0, 2), slice(None, None, 2), (slice(None), 0), None, "x"):
        with pytest.raises(ValueError, match="only whole arrays"):
            array[index] = 0
    with pytest.raises(ValueError) as caught:
        array[:] = np.zeros((3, 3))
    assert "(3,3)" in str(caught.value) and "(2,3)" in str(caught.value)
    with pytest.raises(ValueError, match=r"\(4,\)"):
        array[:] = nd.empty((4,))


def test_buffers_of_the_wrong_size_are_refused() -> None:
    array = nd.empty((2,))
    for use in (array._copy_from_buffer, array._copy_to_buffer):
        with pytest.raises(ValueError, match="7 bytes were given for an array of 8 bytes"):
            use(bytearray(7))
    with pytest.raises((BufferError, TypeError)):
        array._copy_to_buffer(bytes(8))
    with pytest.raises(TypeError, match="bytes-like"):
        array._copy_from_buffer(5)
    with pytest.raises((BufferError, ValueError)):
        array._copy_from_buffer(np.zeros((4, 4), "uint8")[:, ::2])


def test_read_only_arrays_stay_as_they_are() -> None:
    values = sample((3,))
    values.flags.writeable = False
    array = nd.from_dlpack(values)
    for target in (array, array.reshape((3,)), array._create_view((3,))):
        assert target.is_read_only
        with pytest.raises(ValueError, match="read-only"):
            target.copyfrom([1, 2, 3])
        with pytest.raises(ValueError, match="read-only"):
            target[:] = 0
        with pytest.raises(ValueError, match="read-only"):
            nd.empty((3,)).copyto(target)
    assert array.numpy().tolist() == [0, 1, 2] and array.numpy().flags.writeable
    assert not nd.array(array).is_read_only


# ---- views ----


def test_reshape_shares_the_memory() -> None:
    array = nd.array(sample((2, 3)))
    view = array.reshape([3, 2])
    assert view.shape == (3, 2) and view.data_ptr() == array.data_ptr()
    view[:] = 7
    assert (array.numpy() == 7).all()
    assert array.reshape((6,)).reshape((1, 6, 1)).shape == (1, 6, 1)
    assert nd.empty((0, 3)).reshape((5, 0)).shape == (5, 0)
    assert nd.array(3).reshape((1, 1)).shape == (1, 1)
    assert nd.empty((4,), "int4").reshape((2, 2)).shape == (2, 2)


def test_memory_is_handed_on_where_nobody_else_holds_it() -> None:
    array = nd.array(sample((4, 3)))
    assert array.is_sole
    view = array.reshape((12,))
    assert not array.is_sole and not view.is_sole
    del array
    assert view.is_sole
    shared = np.from_dlpack(view)
    assert not view.is_sole
    del shared
    assert view.is_sole
    assert not nd.from_dlpack(np.zeros(3, "float32")).is_sole  # the memory is NumPy's


@pytest.mark.parametrize(
    "shape", [(7,), (5,), (), (-1,), (-2, -3), (2, 0), (2**40, 2**40)], ids=str
)
def test_reshape_names_both_shapes(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError) as caught:
        nd.empty((2, 3)).reshape(shape)
    assert str(shape) in str(caught.value) and "(2, 3)" in str(caught.value)
    with pytest.raises(TypeError):
        nd.empty((2, 3)).reshape(6)  # type: ignore[arg-type]


def test_a_view_keeps_its_array_alive() -> None:
    array = nd.array(sample((1000,)))
    view = array.reshape((10, 100)).reshape((1000,))._create_view((3,), relative_byte_offset=4)
    del array
    gc.collect()
    assert view.numpy().tolist() == [1, 2, 3]


def test_views_of_other_types_and_places() -> None:
    array = nd.array(np.arange(4, dtype="int32"))
    assert array._create_view((16,), "uint8").numpy()[4] == 1
    assert array._create_view((2,), relative_byte_offset=8).numpy().tolist() == [2, 3]
    assert array._create_view((0,), relative_byte_offset=16).shape == (0,)
    with pytest.raises(ValueError, match="does not fit in an array of 16 bytes"):
        array._create_view((4,), relative_byte_offset=4)
    with pytest.raises(ValueError, match="does not fit"):
        array._create_view((0,), relative_byte_offset=17)
    with pytest.raises(ValueError, match="negative"):
        array._create_view((-1,))


# ---- types that NumPy lacks ----


def test_bfloat16_travels_as_its_bits() -> None:
    bits = np.array([0x3F80, 0xC000, 0x7F80], "uint16")  # 1.0, -2.0, inf
    array = nd.empty((3,), "bfloat16").copyfrom(bits)
    assert array.nbytes == 6 and array.numpy().dtype == "uint16"
    np.testing.assert_array_equal(array.numpy(), bits)
    assert array.copyfrom([1, 2, 3]).numpy().tolist() == [1, 2, 3]


def test_what_is_no_number_does_not_pass_for_bits() -> None:
    for dtype, holder in (("bfloat16", "uint16"), ("float8_e4m3fn", "uint8")):
        for values in ([True, False, True], np.zeros(3, "complex64")):
            with pytest.raises(TypeError, match=f"{dtype}.*{holder}"):
                nd.empty((3,), dtype).copyfrom(values)
        with pytest.raises(ValueError, match=f"70000 does not fit in {holder}"):
            nd.empty((3,), dtype).copyfrom([1, 70000, 3])


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn"])
@pytest.mark.parametrize("source", ["float16", "float32", "float64"])
def test_numbers_are_rounded(dtype: str, source: str) -> None:
    require_module("ml_dtypes")
    kind = getattr(importlib.import_module("ml_dtypes"), dtype)
    values = np.random.default_rng(0).standard_normal((7, 9)).astype(source)
    array = nd.empty((7, 9), dtype).copyfrom(values)
    expected = values.astype("float32").astype(kind)
    bits = expected.view("uint16" if dtype == "bfloat16" else "uint8")
    np.testing.assert_array_equal(array.numpy(), bits)
    back = nd.array(array, dtype="float32").numpy()
    np.testing.assert_array_equal(back, expected.astype("float32"))
    again = nd.array(expected)
    assert again.dtype == dtype
    np.testing.assert_array_equal(again.numpy(), bits)
    np.testing.assert_array_equal(nd.array(values, dtype=dtype).numpy(), bits)


@pytest.mark.parametrize(
    "dtype", ["int4", "uint4", "int2", "uint2", "int1", "uint1", "int3", "uint5"]
)
def test_small_integers_are_packed(dtype: str) -> None:
    bits, low = int(dtype[-1]), 0 if dtype[0] == "u" else -1 << int(dtype[-1]) - 1
    values = np.arange(5 * 7).reshape(5, 7) % (1 << bits) + low
    array = nd.array(values, dtype=dtype)
    assert array.nbytes == (35 * bits + 7) // 8
    np.testing.assert_array_equal(array.numpy(), values)
    turned = values.T.copy().T
    for other in (values.astype("int8"), values.astype("float32"), values.tolist(), turned):
        np.testing.assert_array_equal(nd.empty((5, 7), dtype).copyfrom(other).numpy(), values)
    assert nd.array(array).numpy().tolist() == values.tolist()
    with pytest.raises(ValueError, match=f"{low + (1 << bits)} does not fit in {dtype}"):
        nd.array(values + 1, dtype=dtype)


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int2", "uint2"])
def test_small_integers_from_ml_dtypes(dtype: str) -> None:
    require_module("ml_dtypes")
    kind = getattr(importlib.import_module("ml_dtypes"), dtype)
    values = (np.arange(11) % 4 - (2 if dtype[0] == "i" else 0)).astype(kind)
    array = nd.array(values)
    assert array.dtype == dtype and array.nbytes == (11 * int(dtype[-1]) + 7) // 8
    np.testing.assert_array_equal(array.numpy(), values.astype("int8"))


def test_types_from_ml_dtypes() -> None:
    require_module("ml_dtypes")
    ml_dtypes = importlib.import_module("ml_dtypes")
    values = np.array([1.5, -2], ml_dtypes.bfloat16)
    array = nd.array(values)
    assert array.dtype == "bfloat16"
    np.testing.assert_array_equal(array.numpy(), values.view("uint16"))


@pytest.mark.parametrize(
    "dtype",
    [
        "float8_e3m4", "float8_e4m3", "float8_e4m3b11fnuz", "float8_e4m3fn", "float8_e4m3fnuz",
        "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu",
    ],
)
def test_float8_travels_as_its_bits(dtype: str) -> None:
    array = nd.empty((256,), dtype).copyfrom(np.arange(256, dtype="uint8"))
    assert array.numpy().dtype == "uint8" and array.numpy().tolist() == list(range(256))
    assert dtype in repr(array)


@pytest.mark.parametrize(
    ("dtype", "packed", "expected"),
    [
        ("int4", [0x10, 0xF8], [0, 1, -8, -1]),
        ("uint4", [0x10, 0xF8], [0, 1, 8, 15]),
        ("int2", [0b11100100], [0, 1, -2, -1]),
        ("uint2", [0b11100100], [0, 1, 2, 3]),
        ("uint1", [0b10110001], [1, 0, 0, 0, 1, 1, 0, 1]),
        ("int1", [0b10110001], [-1, 0, 0, 0, -1, -1, 0, -1]),
        ("float4_e2m1fn", [0x21], [1, 2]),
        ("uint3", [0b10001000, 0b11000110], [0, 1, 2, 3, 4]),
        ("float6_e2m3fn", [0x41, 0x20, 0xFC], [1, 1, 2, 63]),
    ],
)
def test_elements_of_less_than_a_byte(dtype: str, packed: list[int], expected: list[int]) -> None:
    array = nd.empty((len(expected),), dtype)
    assert array.nbytes == len(packed)
    array._create_view((len(packed),), "uint8").copyfrom(np.array(packed, "uint8"))
    back = array.numpy()
    assert back.tolist() == expected and back.itemsize == 1
    odd = array.reshape((len(expected), 1)).numpy()
    assert odd.shape == (len(expected), 1)
    array._create_view((len(packed),), "uint8").copyfrom(np.zeros(len(packed), "uint8"))
    assert array.copyfrom(back).numpy().tolist() == expected


def test_odd_numbers_of_small_elements() -> None:
    array = nd.empty((3,), "int4")
    assert array.nbytes == 2
    array._create_view((2,), "uint8").copyfrom(np.array([0x21, 0xF3], "uint8"))
    assert array.numpy().tolist() == [1, 2, 3]
    assert nd.empty((0,), "int4").numpy().shape == (0,)


@pytest.mark.parametrize(
    "dtype", ["float32x4", "int8x16", "handle", "int24"]
)
def test_types_without_a_numpy_form(dtype: str) -> None:
    array = nd.empty((2,), dtype)
    assert array.dtype == dtype
    with pytest.raises(TypeError, match=dtype):
        array.numpy()
    assert repr(array) == f"<NDArray shape=(2,), {dtype}, cpu(0)>"
    assert array.copyto(sterna.cpu()).dtype == dtype


# ---- as Python objects ----


def test_text_of_an_array() -> None:
    array = nd.array(np.array([[1, 2]], "int32"))
    assert repr(array) == "<NDArray shape=(1, 2), int32, cpu(0)>\narray([[1, 2]], dtype=int32)"
    assert str(array) == repr(array)


def test_equality_is_identity(library: sterna.Module) -> None:
    array, other = nd.array([1]), nd.array([1])
    again = library["echo"](array)
    assert again is not array and again == array and again.same_as(array)
    assert array != other and not array.same_as(other) and not array.same_as(1)
    assert hash(again) == hash(array) and len({array, again, other}) == 2
    assert array.handle == again.handle and array.type_index == 70
    assert isinstance(array, Object)


def test_arrays_are_not_made_or_copied_behind_the_runtimes_back() -> None:
    for kind in (sterna.NDArray, sterna.Module, Object, _core.NDArray, _core.Module):
        with pytest.raises(TypeError, match="cannot create"):
            kind()
        with pytest.raises(TypeError, match="not safe"):
            object.__new__(kind)
    assert copy.copy(array := nd.array([1])) is not array  # a new one, by the runtime


def test_weak_references_to_arrays() -> None:
    array = nd.array([1])
    reference = weakref.ref(array)
    assert reference() is array
    del array
    assert reference() is None


def test_arrays_at_the_end_of_the_process() -> None:
    """Arrays over NumPy, functions and errors that are alive when Python ends."""
    program = (
        "import sterna, numpy as np\n"
        "a = sterna.nd.from_dlpack(np.zeros(5)); b = a.reshape((5, 1)); c = np.from_dlpack(a)\n"
        "f = sterna.register_func('end', lambda: a)\n"
        "class Late:\n"
        "    def __del__(self): f(); print(b.shape)\n"
        "late = Late(); cycle = [late]; cycle.append(cycle)\n"
        "sterna.register_func('late', late.__del__)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(("values", "dtype", "number"), [
    ([1, 300], "int8", "300"), ([-1], "uint8", "-1"), ([2**40], "int32", "1099511627776"),
    (np.array([2**63], "uint64"), "int64", "9223372036854775808"), ([1.0, np.nan], "int8", "nan"),
    ([-129.5], "int8", "-129.5"), ([2.0**63], "int64", r"9\.22\d*e\+18"),
])
def test_integers_do_not_wrap_around(values: Any, dtype: str, number: str) -> None:
    with pytest.raises(ValueError, match=f"^{number} does not fit in {dtype}, which holds -?[0-9]"):
        nd.empty((len(values),), dtype).copyfrom(values)


def test_integers_at_the_ends_of_a_type_fit() -> None:
    ends = np.array([-(2.0**63), -128.9, 127.9])
    assert nd.empty((3,), "int64").copyfrom(ends).numpy().tolist() == [-(2**63), -128, 127]
    assert nd.empty((2,), "int8").copyfrom(ends[1:]).numpy().tolist() == [-128, 127]
    assert nd.empty((1,), "uint64").copyfrom(np.array([2**63], "uint64")).numpy()[0] == 2**63


@pytest.mark.parametrize("dtype", ["float32", "int8", "bool", "bfloat16", "int4", "float16"])
def test_pickled_and_copied(dtype: str) -> None:
    made = nd.array(np.array([[0, 1, 1], [1, 0, 1]]), dtype=dtype)
    for again in (pickle.loads(pickle.dumps(made)), copy.deepcopy(made)):
        assert again.dtype == dtype and again.shape == (2, 3) and not again.same_as(made)
        np.testing.assert_array_equal(again.numpy(), made.numpy())
