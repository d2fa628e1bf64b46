"""What a model is called with, held against what it takes."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from sterna.relay.arrays import Array, from_numpy, numpy_dtype
from sterna.runtime import NDArray
from sterna.runtime.ndarray import from_dlpack
from sterna.support.table import count


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
    if len(args) > len(specs):
        raise InputError(f"{_takes(specs)}, but {len(args)} were given")
    given = {spec.name: value for spec, value in zip(specs, args, strict=False)}
    for name, value in named.items():
        if name in given:
            raise InputError(f"input '{name}' is given by place and by name")
        if name not in {spec.name for spec in specs}:
            hint = _hint(name, specs)
            raise InputError(f"the model has no input '{name}'{hint}; {_takes(specs)}")
        given[name] = value
    missing = [spec for spec in specs if spec.name not in given]
    if missing:
        names = ", ".join(map(str, missing))
        raise InputError(f"missing: {names}; {_takes(specs)}, but {len(given)} were given")
    return [fitting_array(spec, given[spec.name]) for spec in specs]


def _takes(specs: Sequence[TensorSpec]) -> str:
    listed = f" ({', '.join(map(str, specs))})" if specs else ""
    return f"the model takes {count(len(specs), 'input')}{listed}"


def _hint(name: str, specs: Sequence[TensorSpec]) -> str:
    near = difflib.get_close_matches(name, [spec.name for spec in specs], n=1)
    return f"; did you mean '{near[0]}'?" if near else ""


def fitting_array(spec: TensorSpec, value: Any) -> Any:
    """A value as the runtime takes it: an NDArray or a NumPy array that it can read in place."""
    if type(value) is np.ndarray and value.shape == spec.shape and _fits_as_it_is(spec, value):
        return value
    array = value if isinstance(value, NDArray) else _from_elsewhere(spec, value)
    dtype, shape = str(array.dtype), tuple(array.shape)
    if dtype != spec.dtype:
        raise InputError(
            f"input '{spec.name}' takes {spec.type}, but {dtype}{list(shape)} was given; convert "
            f"it to {spec.dtype}"
        )
    if shape != spec.shape:
        raise InputError(
            f"input '{spec.name}' takes {spec.type}, but {dtype}{list(shape)} was given"
        )
    if isinstance(array, NDArray):
        return array
    if array.dtype.kind == "V":  # elements that NumPy itself lacks
        return from_numpy(array)
    usable = array.flags.c_contiguous and array.flags.writeable
    return array if usable else np.array(array, order="C")


def _fits_as_it_is(spec: TensorSpec, array: Array) -> bool:
    """Whether the runtime can read an array of the right shape in place; most calls end here."""
    dtype, flags = array.dtype, array.flags
    return (
        dtype == _numpy_dtype(spec.dtype)
        and dtype.kind != "V"
        and flags.c_contiguous
        and flags.writeable
    )


_numpy_dtype = cache(numpy_dtype)


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
        raise InputError(
            f"input '{spec.name}' takes {spec.type}, but the {type(value).__name__} that was "
            f"given cannot be read: {error}"
        ) from None
