"""What a model is called with, held against what it takes."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.relay.arrays import Array, from_numpy, numpy_dtype
from sterna.runtime import Device, NDArray, cpu
from sterna.runtime._core import array_over
from sterna.runtime.ndarray import array as nd_array
from sterna.runtime.ndarray import from_dlpack
from sterna.support.dtype import DataType
from sterna.support.table import count

# Bytes that a kernel of a GPU reads or writes by one instruction.
MOVED_AT_ONCE = 16


class InputError(TypeError, ValueError):
    """A model was called with something that it does not take."""


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """An input or output of a model."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def type(self) -> str:
        """float32[1, 3, 224, 224]"""
        return f"{self.dtype}{list(self.shape)}"

    def __str__(self) -> str:
        return f"{self.name}: {self.type}"


def bind_arguments(
    specs: Sequence[TensorSpec], args: Sequence[Any], named: Mapping[str, Any]
) -> list[Any]:
    """One array per input, from arguments by place and by name."""
    values = arrange_arguments(specs, args, named)
    return [fitting_array(spec, value) for spec, value in zip(specs, values, strict=True)]


def arrange_arguments(
    specs: Sequence[TensorSpec], args: Sequence[Any], named: Mapping[str, Any]
) -> tuple[Any, ...]:
    """One value per input, in order, from arguments by place and by name."""
    if len(args) > len(specs):
        raise InputError(f"{_takes(specs)}, but {len(args)} were given")
    wanted = [spec.name for spec in specs]
    if not args and named.keys() == {*wanted}:
        return tuple(named[name] for name in wanted)
    given = dict(zip(wanted, args, strict=False))
    for name, value in named.items():
        if name in given:
            raise InputError(f"input '{name}' is given by place and by name")
        if name not in wanted:
            hint = _hint(name, specs)
            raise InputError(f"the model has no input '{name}'{hint}; {_takes(specs)}")
        given[name] = value
    missing = [spec for spec in specs if spec.name not in given]
    if missing:
        names = ", ".join(map(str, missing))
        raise InputError(f"missing: {names}; {_takes(specs)}, but {len(given)} were given")
    return tuple(given[name] for name in wanted)


def _takes(specs: Sequence[TensorSpec]) -> str:
    listed = f" ({', '.join(map(str, specs))})" if specs else ""
    return f"the model takes {count(len(specs), 'input')}{listed}"


def _hint(name: str, specs: Sequence[TensorSpec]) -> str:
    near = difflib.get_close_matches(name, [spec.name for spec in specs], n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def way_to(wanted: str, given: str) -> str:
    """What makes elements of one type those of another."""
    if given.startswith("complex") and wanted.startswith("float"):
        return "give both parts along a last axis, as torch.view_as_real does"
    return f"convert it to {wanted}"


def fitting_array(spec: TensorSpec, value: Any) -> Any:
    """A value as the runtime takes it: an NDArray or a NumPy array that it can read in place."""
    array = value if isinstance(value, NDArray) else _from_elsewhere(spec, value)
    dtype, shape = str(array.dtype), tuple(array.shape)
    if dtype != spec.dtype:
        raise InputError(
            f"input '{spec.name}' takes {spec.type}, but {dtype}{list(shape)} was given; "
            f"{way_to(spec.dtype, dtype)}"
        )
    if shape != spec.shape:
        raise InputError(
            f"input '{spec.name}' takes {spec.type}, but {dtype}{list(shape)} was given"
        )
    if isinstance(array, NDArray):
        return array
    return readable_array(array, spec.dtype)


def readable_array(array: Array, dtype: str) -> Any:
    """A NumPy array as the runtime reads it: in place where it can, else a copy."""
    if array.dtype.isbuiltin != 1:  # elements that NumPy itself lacks
        return shared_array(array, dtype)
    return array if _lies_well(array) else nd_array(array)


def shared_array(array: Array, dtype: str) -> NDArray:
    """An array of the runtime over a NumPy array: in place where it can, else a copy."""
    if array.dtype.isbuiltin == 1 and array.flags.carray:
        return from_dlpack(array)
    is_own = array.dtype.isbuiltin == 1 or array.dtype.itemsize * 8 == DataType(dtype).bits
    if not is_own or not _lies_well(array):
        return from_numpy(array)  # the runtime packs what NumPy gives a byte
    shared: NDArray = array_over(array.shape, dtype, cpu(0), array.ctypes.data, array)
    return shared


def _lies_well(array: Array) -> bool:
    """Whether the elements lie in order, each at a multiple of its size."""
    return array.flags.c_contiguous and array.ctypes.data % array.itemsize == 0


def host_array(spec: TensorSpec, value: Any) -> Any:
    """A value as the runtime reads it in this machine's memory, where models on the CPU run."""
    array = fitting_array(spec, value)
    elsewhere = isinstance(array, NDArray) and array.device.device_type != cpu(0).device_type
    return array.copyto(cpu(0)) if elsewhere else array


def device_array(device: Device, spec: TensorSpec, value: Any) -> tuple[NDArray, bool]:
    """A value as an array on a device, and whether it was there before.

    What does not begin at a multiple of sixteen bytes, which kernels move at once, is copied.
    """
    array = fitting_array(spec, value)
    if not isinstance(array, NDArray):
        return nd_array(array, device), False
    is_there = array.device == device
    lies_well = array.data_ptr() % MOVED_AT_ONCE == 0
    return (array if is_there and lies_well else array.copyto(device)), is_there


def _from_elsewhere(spec: TensorSpec, value: Any) -> Any:
    """An array of the value's own type; a list or number, which has none, gets the input's."""
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    if hasattr(value, "__dlpack__"):
        return _from_dlpack(spec, value)
    try:
        if hasattr(value, "__array__"):
            return np.asarray(value)
        return np.asarray(value, numpy_dtype(spec.dtype))
    except (ValueError, TypeError) as error:
        raise InputError(
            f"input '{spec.name}' takes {spec.type}, but a {type(value).__name__} was given, "
            f"which is no array ({error})"
        ) from None


def _from_dlpack(spec: TensorSpec, value: Any) -> Any:
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError, TypeError, ValueError):
        pass  # memory of another device, or elements that NumPy lacks
    try:
        return from_dlpack(value)
    except Exception as error:
        reason = str(error).partition("\n")[0]  # others' traces follow
        raise InputError(
            f"input '{spec.name}' takes {spec.type}, but the {type(value).__name__} that was "
            f"given cannot be read: {reason}"
        ) from None
