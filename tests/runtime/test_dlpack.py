"""Arrays in and out of other libraries without a copy."""

import ctypes
import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna
from sterna import nd
from sterna.runtime import PackedFunc
from sterna.testing import require

READ_ONLY, IS_COPIED = 1, 2

_new = ctypes.pythonapi.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
_name = ctypes.pythonapi.PyCapsule_GetName
_name.restype, _name.argtypes = ctypes.c_char_p, [ctypes.py_object]
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]

# Capsules do not copy their names.
PLAIN, VERSIONED = b"dltensor", b"dltensor_versioned"


class Exporter:
    """An object whose __dlpack__ is the given function."""

    def __init__(self, export: Callable[..., Any]) -> None:
        self.export = export

    def __dlpack__(self, **wishes: Any) -> Any:
        return self.export(**wishes)

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0


# ---- NumPy ----


@pytest.mark.parametrize(
    "dtype",
    [
        "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
        "float16", "float32", "float64", "complex64", "complex128",
    ],
)
def test_numpy_both_ways(dtype: str) -> None:
    for shape in ((), (3,), (2, 3), (0, 2)):
        values = np.ones(shape, dtype)
        array = nd.from_dlpack(values)
        assert array.shape == shape and array.dtype == dtype
        back = np.from_dlpack(array)
        assert back.shape == shape and back.dtype == dtype
        if values.size:
            assert array.data_ptr() == values.ctypes.data == back.ctypes.data
            back[...] = 0
            assert not values.any() and not array.numpy().any()


def test_numpy_memory_lives_as_long_as_anybody_uses_it() -> None:
    values = np.arange(1000.0)
    before = sys.getrefcount(values)
    array = nd.from_dlpack(values)
    assert sys.getrefcount(values) == before + 1
    again = np.from_dlpack(array.reshape((10, 100)))
    del array
    gc.collect()
    assert sys.getrefcount(values) == before + 1 and again[9, 99] == 999
    del again
    assert sys.getrefcount(values) == before


def test_any_alignment_is_taken() -> None:
    memory = bytearray(4 * 9)
    odd = np.frombuffer(memory, "float32")[1:]
    array = nd.from_dlpack(odd)
    assert array.data_ptr() == odd.ctypes.data
    odd[:] = 5
    assert (array.numpy() == 5).all()


def test_misaligned_elements(library: sterna.Module) -> None:
    values = np.frombuffer(bytearray(17), "float32", offset=1)
    values[:] = [1, 2, 3, 4]
    array = nd.from_dlpack(values)
    assert array.data_ptr() == values.ctypes.data and array.data_ptr() % 4 == 1
    assert array.numpy().tolist() == [1, 2, 3, 4]
    assert nd.array(array).data_ptr() % 64 == 0
    assert library["describe"](array)[0] == values.ctypes.data


@pytest.mark.parametrize(
    "shuffle", [lambda x: x.T, lambda x: x[:, 1:], lambda x: x[::2], lambda x: x[::-1]]
)
def test_arrays_with_gaps_are_refused(shuffle: Callable[[Any], Any]) -> None:
    values = shuffle(np.zeros((4, 4), "float32"))
    before = sys.getrefcount(values)
    for take in (nd.from_dlpack, PackedFunc(lambda array: None)):
        with pytest.raises(ValueError, match="contiguous"):
            take(values)
    assert sys.getrefcount(values) == before


def test_strides_of_single_elements_do_not_matter(library: sterna.Module) -> None:
    values = np.zeros((4, 4))[:1].T[:1]  # one element, odd strides
    assert nd.from_dlpack(values).shape == (1, 1)
    column = np.zeros((3, 1), order="F")
    assert library["describe"](column)[-2:] == [1, 1]
    assert nd.from_dlpack(np.zeros((0, 5)).T).shape == (5, 0)


def test_numpy_types_without_dlpack_are_refused() -> None:
    for values in (np.array(["a"]), np.array([None]), np.array(["2020"], "M8[D]"),
                   np.zeros(2, ">f4"), np.zeros(2, [("x", "f4")])):
        with pytest.raises(BufferError):
            nd.from_dlpack(values)


def test_read_only_numpy() -> None:
    values = np.arange(3.0)
    values.flags.writeable = False
    array = nd.from_dlpack(values)
    assert array.is_read_only
    back = np.from_dlpack(array)
    assert not back.flags.writeable and back.ctypes.data == values.ctypes.data
    with pytest.raises(BufferError, match="read-only"):
        array.__dlpack__()
    with pytest.raises(BufferError, match="read-only"):
        array.to_dlpack()
    assert np.from_dlpack(array, copy=True).flags.writeable


def test_numpyasarray_shares() -> None:
    values = np.zeros(3)
    assert nd.numpyasarray(values).data_ptr() == values.ctypes.data


def test_from_dlpack_of_our_own_is_itself() -> None:
    array = nd.empty((2,))
    assert nd.from_dlpack(array) is array


# ---- PyTorch ----


@pytest.mark.parametrize(
    "dtype",
    [
        "bool", "int8", "int16", "int32", "int64", "uint8", "float16", "bfloat16", "float32",
        "float64", "complex64",
    ],
)
def test_torch_both_ways(torch: Any, dtype: str) -> None:
    for shape in ((), (3,), (2, 3), (0, 2)):
        tensor = torch.ones(shape, dtype=getattr(torch, dtype))
        array = nd.from_dlpack(tensor)
        assert array.shape == shape and array.dtype == dtype
        assert array.data_ptr() == tensor.data_ptr()
        back = torch.from_dlpack(array)
        assert back.data_ptr() == tensor.data_ptr() and back.dtype == tensor.dtype
        assert tuple(back.shape) == shape


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_torch_float8(torch: Any, dtype: str) -> None:
    tensor = torch.ones(3).to(getattr(torch, dtype))
    array = nd.from_dlpack(tensor)
    assert array.dtype == dtype and array.data_ptr() == tensor.data_ptr()
    np.testing.assert_array_equal(array.numpy(), tensor.view(torch.uint8).numpy())
    assert torch.from_dlpack(array).dtype == tensor.dtype


def test_torch_memory_is_shared_by_calls(torch: Any, library: sterna.Module) -> None:
    tensor = torch.zeros(4)
    library["add_one"](tensor)
    library["add_one"](tensor[2:])
    assert tensor.tolist() == [1, 1, 2, 2]
    facts = library["describe"](tensor[2:])
    assert facts[0] == tensor[2:].data_ptr() and facts[1:] == [1, 2, 32, 1, 1, 0, 2, 1]


def test_torch_memory_lives_as_long_as_anybody_uses_it(torch: Any) -> None:
    array = nd.from_dlpack(torch.arange(1000.0))
    gc.collect()
    assert array.numpy()[999] == 999
    back = torch.from_dlpack(array)
    del array
    gc.collect()
    assert back[999] == 999


def test_torch_tensors_with_gaps_or_gradients(torch: Any) -> None:
    with pytest.raises(ValueError, match="contiguous"):
        nd.from_dlpack(torch.zeros(3, 4).t())
    parameter = torch.nn.Parameter(torch.ones(2))
    assert nd.from_dlpack(parameter.detach()).numpy().tolist() == [1, 1]


def test_torch_tensors_that_are_not_what_lies_in_memory(torch: Any) -> None:
    lazy = torch.tensor([1 + 2j], dtype=torch.complex64).conj()
    with pytest.raises(BufferError, match="conjugate"):
        nd.from_dlpack(lazy)
    assert nd.from_dlpack(lazy.resolve_conj()).numpy().tolist() == [1 - 2j]
    for tensor in (torch.ones(2, device="meta"), torch.eye(2).to_sparse()):
        with pytest.raises((RuntimeError, BufferError)):
            nd.from_dlpack(tensor)


def test_torch_takes_the_c_way(torch: Any) -> None:
    """A tensor gives its memory through C functions; its Python method is not called."""
    has_it = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
    require(None if has_it else "this PyTorch has no exchange of arrays in C")

    class Silent(torch.Tensor):  # type: ignore[misc]
        def __dlpack__(self, **_: Any) -> Any:
            raise AssertionError

    tensor = torch.ones(3).as_subclass(Silent)
    assert nd.from_dlpack(tensor).data_ptr() == tensor.data_ptr()


def test_our_own_table_of_c_functions() -> None:
    capsule = sterna.NDArray.__dict__.get("__dlpack_c_exchange_api__")
    assert capsule is None  # it lies in the base class
    capsule = sterna.NDArray.__dlpack_c_exchange_api__  # type: ignore[attr-defined]
    assert _name(capsule) == b"dlpack_exchange_api"
    version = (ctypes.c_uint32 * 2).from_address(_pointer(capsule, b"dlpack_exchange_api"))
    assert version[0] == 1


# ---- capsules in ----


def test_a_capsule_is_taken_once(probe: ctypes.CDLL) -> None:
    cases: list[tuple[bytes, int]] = [
        (PLAIN, probe.probe_plain(0)), (VERSIONED, probe.probe_versioned(0, 1, 0)),
    ]
    for name, managed in cases:
        before = probe.probe_deleted()
        capsule = _new(managed, name, None)
        array = nd.from_dlpack(capsule)
        assert _name(capsule) == b"used_" + name
        assert array.numpy().tolist() == [[1, 2], [3, 4]]  # byte_offset counts
        for take in (nd.from_dlpack, PackedFunc(lambda array: None)):
            with pytest.raises(ValueError, match="has not been used"):
                take(capsule)
        del capsule
        view = array.reshape((4,))
        del array
        assert probe.probe_deleted() == before
        del view
        assert probe.probe_deleted() == before + 1


def test_an_array_keeps_the_promise_of_its_capsule(probe: ctypes.CDLL) -> None:
    array = nd.from_dlpack(_new(probe.probe_versioned(0, 1, READ_ONLY), VERSIONED, None))
    assert array.is_read_only
    with pytest.raises(ValueError, match="read-only"):
        array[:] = 0


def test_a_refused_capsule_is_not_used_up(probe: ctypes.CDLL) -> None:
    before = probe.probe_deleted()
    for name, managed, message in (
        (PLAIN, probe.probe_plain(1), "contiguous"),
        (VERSIONED, probe.probe_versioned(1, 1, 0), "contiguous"),
        (VERSIONED, probe.probe_versioned(0, 2, 0), r"DLPack 2\.0"),
    ):
        capsule = _new(managed, name, None)
        with pytest.raises(ValueError, match=message):
            nd.from_dlpack(capsule)
        assert _name(capsule) == name
        with pytest.raises(ValueError, match=message):
            nd.from_dlpack(Exporter(lambda capsule=capsule, **_: capsule))
    assert probe.probe_deleted() == before  # a capsule without destructor cleans nothing up


def test_other_capsules_and_objects_are_refused() -> None:
    with pytest.raises(TypeError, match="PyCapsule is no array"):
        nd.from_dlpack(_new(1, b"something else", None))
    for other in (3, None, [1.0], "text", np.float32(1), np.ndarray, sterna.NDArray):
        with pytest.raises(TypeError, match="no array that speaks DLPack"):
            nd.from_dlpack(other)


def test_exporters_that_misbehave() -> None:
    def fail(**_: Any) -> Any:
        raise KeyError("from the exporter")

    with pytest.raises(KeyError, match="from the exporter"):
        nd.from_dlpack(Exporter(fail))
    for rubbish in (None, 3, "dltensor", _new(1, b"rubbish", None), object()):
        for take in (nd.from_dlpack, PackedFunc(lambda array: None)):
            with pytest.raises(ValueError, match="DLPack capsule"):
                take(Exporter(lambda rubbish=rubbish, **_: rubbish))


def test_exporters_from_before_versions() -> None:
    class Old:
        calls = 0

        def __dlpack__(self, stream: Any = None) -> Any:
            self.calls += 1
            return np.arange(3.0).__dlpack__()

    old = Old()
    assert nd.from_dlpack(old).numpy().tolist() == [0, 1, 2] and old.calls == 1

    class Broken:
        __dlpack__ = None

    with pytest.raises(TypeError):
        nd.from_dlpack(Broken())


def test_an_exporter_is_asked_for_a_version() -> None:
    asked: list[dict[str, Any]] = []

    def export(**wishes: Any) -> Any:
        asked.append(wishes)
        return np.zeros(2).__dlpack__(**wishes)

    nd.from_dlpack(Exporter(export))
    assert asked == [{"max_version": (1, 1)}]


def test_many_types_of_exporters() -> None:
    """More types than the extension remembers, some of them gone by then."""
    for i in range(100):
        kind = type(f"Exporter{i}", (Exporter,), {})
        values = np.full(3, i)
        assert nd.from_dlpack(kind(values.__dlpack__)).numpy().tolist() == [i] * 3
        thing = type(f"Thing{i}", (), {})()
        assert PackedFunc(lambda value: value)(thing) is thing
        del kind
    gc.collect()
    assert nd.from_dlpack(Exporter(np.zeros(1).__dlpack__)).shape == (1,)


# ---- capsules out ----


def test_capsules_of_both_forms() -> None:
    array = nd.array([1.0, 2.0])
    cases: list[tuple[dict[str, Any], bytes]] = [
        ({}, PLAIN), ({"max_version": None}, PLAIN), ({"max_version": (0, 8)}, PLAIN),
        ({"max_version": (1, 0)}, VERSIONED), ({"max_version": (2, 5)}, VERSIONED),
    ]
    for wishes, name in cases:
        capsule = array.__dlpack__(**wishes)
        assert _name(capsule) == name
        assert nd.from_dlpack(capsule).data_ptr() == array.data_ptr()
    assert _name(array.to_dlpack()) == PLAIN
    assert array.__dlpack_device__() == (1, 0)


def test_a_capsule_keeps_the_array_alive() -> None:
    forms: list[dict[str, Any]] = [{}, {"max_version": (1, 0)}]
    for wishes in forms:
        values = np.arange(3.0)
        before = sys.getrefcount(values)
        capsule = nd.from_dlpack(values).__dlpack__(**wishes)
        assert sys.getrefcount(values) == before + 1
        del capsule  # never used
        assert sys.getrefcount(values) == before
        back = np.from_dlpack(nd.from_dlpack(values))
        assert sys.getrefcount(values) == before + 1
        del back
        assert sys.getrefcount(values) == before


def test_copies_on_demand(probe: ctypes.CDLL) -> None:
    array = nd.array([1.0, 2.0])
    yes: list[Any] = [True, 1, np.True_]
    for copy in yes:
        capsule = array.__dlpack__(copy=copy, max_version=(1, 0))
        assert probe.probe_flags(_pointer(capsule, VERSIONED)) == IS_COPIED
        made = nd.from_dlpack(capsule)
        assert made.data_ptr() != array.data_ptr() and made.numpy().tolist() == [1, 2]
    for no_copy in (False, None):
        capsule = array.__dlpack__(copy=no_copy, max_version=(1, 0))
        assert probe.probe_flags(_pointer(capsule, VERSIONED)) == 0
        assert nd.from_dlpack(capsule).data_ptr() == array.data_ptr()
    assert np.from_dlpack(array, copy=True).ctypes.data != array.data_ptr()
    assert np.from_dlpack(array, copy=False).ctypes.data == array.data_ptr()


def test_devices_and_streams_on_demand() -> None:
    array = nd.array([1.0])
    array.__dlpack__(dl_device=(1, 0), stream=None)
    array.__dlpack__(dl_device=None)
    assert np.from_dlpack(array, device="cpu").ctypes.data == array.data_ptr()
    for device in ((2, 0), (1, 1)):
        with pytest.raises(BufferError, match="on its own device"):
            array.__dlpack__(dl_device=device)
    for stream in (1, 2, -1):
        with pytest.raises(BufferError, match="no stream"):
            array.__dlpack__(stream=stream)


@pytest.mark.parametrize(
    "wishes",
    [
        {"dl_device": 1}, {"dl_device": [1, 0]}, {"dl_device": (1,)}, {"dl_device": ("cpu", 0)},
        {"max_version": 1}, {"max_version": "1.0"}, {"max_version": (1, 0, 0)}, {"other": 1},
    ],
    ids=str,
)
def test_demands_that_make_no_sense(wishes: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=next(iter(wishes)) + "|interpreted as an integer"):
        nd.array([1.0]).__dlpack__(**wishes)


def test_positional_demands_are_refused() -> None:
    with pytest.raises(TypeError, match="keyword arguments only"):
        nd.array([1.0]).__dlpack__(None)  # type: ignore[call-arg]


def test_types_that_numpy_lacks_go_out(torch: Any) -> None:
    array = nd.empty((2,), "bfloat16").copyfrom([0x3F80, 0x4000])
    assert torch.from_dlpack(array).tolist() == [1.0, 2.0]
    with pytest.raises((BufferError, RuntimeError, TypeError)):
        np.from_dlpack(array)
