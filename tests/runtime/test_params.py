"""Parameters as bytes: the classic format, and everything that is not it."""

import contextlib
import struct
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import sterna as tvm
from sterna.runtime import load_param_dict, save_param_dict

DTYPES = ["float32", "float64", "float16", "int8", "int64", "uint8", "uint32", "bool"]


@given(
    st.dictionaries(
        st.text(max_size=20).filter(lambda name: "\0" not in name),
        st.sampled_from(DTYPES).flatmap(
            lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_side=4, min_side=0))
        ),
        max_size=5,
    )
)
def test_what_is_saved_is_loaded(params: dict[str, np.ndarray[Any, Any]]) -> None:
    loaded = load_param_dict(save_param_dict(params))
    assert list(loaded) == list(params)
    for name, want in params.items():
        assert loaded[name].dtype == want.dtype.name
        got = loaded[name].numpy()
        assert got.shape == want.shape and got.tobytes() == want.tobytes()


def test_the_bytes_are_those_of_the_classic_system() -> None:
    values = np.array([[1.5, -2.0]], "float32")
    expected = (
        struct.pack("<QQ", 0xF7E58D4F05049CB7, 0)
        + struct.pack("<QQ", 1, 2) + b"w1"
        + struct.pack("<Q", 1)
        + struct.pack("<QQ", 0xDD5E40F096B4A13F, 0)
        + struct.pack("<iiiBBH", 1, 0, 2, 2, 32, 1)
        + struct.pack("<qqq", 1, 2, 8)
        + values.tobytes()
    )
    assert save_param_dict({"w1": tvm.nd.array(values)}) == expected


def test_the_classic_bool_is_a_bit_that_takes_a_byte() -> None:
    saved = save_param_dict({"b": np.array([True, False, True])})
    assert struct.pack("<BBH", 1, 1, 1) in saved
    loaded = load_param_dict(saved)["b"]
    assert loaded.dtype == "bool" and loaded.numpy().tolist() == [True, False, True]


def test_types_that_numpy_lacks_pass_through() -> None:
    half = np.array([1.5, 2.5], ml_dtypes.bfloat16)
    small = tvm.nd.empty((3,), "int4")
    small._copy_from_buffer(np.array([0x21, 0x03], "uint8"))
    loaded = load_param_dict(save_param_dict({"half": half, "small": small}))
    assert loaded["half"].dtype == "bfloat16"
    assert loaded["half"].numpy().tolist() == half.view("uint16").tolist()
    assert loaded["small"].numpy().tolist() == [1, 2, 3]


def test_arrays_are_aligned() -> None:
    loaded = load_param_dict(save_param_dict({"a": np.zeros(3, "int8"), "b": np.zeros(5)}))
    assert all(array.data_ptr() % 64 == 0 for array in loaded.values())


def test_every_cut_is_refused() -> None:
    saved = bytes(save_param_dict({"w": np.zeros((2, 3), "float32"), "b": np.arange(4)}))
    for size in range(len(saved)):
        with pytest.raises(ValueError, match="no complete parameters"):
            load_param_dict(saved[:size])
    with pytest.raises(ValueError, match="something follows"):
        load_param_dict(saved + b"\0")


@settings(max_examples=300)
@given(st.lists(st.tuples(st.integers(0, 165), st.integers(0, 255)), min_size=1, max_size=4))
def test_noise_is_refused_or_read(changes: list[tuple[int, int]]) -> None:
    saved = save_param_dict({"w": np.zeros((2, 3), "float32"), "b": np.arange(4)})
    for at, value in changes:
        saved[at] = value
    with contextlib.suppress(ValueError):
        load_param_dict(saved)


def test_what_is_no_parameter_is_refused_by_name() -> None:
    with pytest.raises(TypeError, match="parameter 'w'"):
        save_param_dict({"w": object()})
    with pytest.raises(TypeError, match="named by text, not by 3"):
        save_param_dict({3: np.zeros(2)})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="from bytes, not from str"):
        load_param_dict("text")  # type: ignore[arg-type]
