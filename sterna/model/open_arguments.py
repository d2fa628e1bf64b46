"""What an open model is called with, held against what it declares: names bound once, in range."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from sterna.frontend.open_inputs import Given, OpenInput
from sterna.frontend.open_shapes import OPEN
from sterna.model.arguments import InputError, way_to
from sterna.relay.arrays import HOST, Array, numpy_dtype, to_numpy
from sterna.runtime import NDArray
from sterna.runtime.ndarray import from_dlpack

Ranges = Mapping[str, tuple[int, int]]
"""By the name of a dimension, the least and the greatest extent."""


def arranged(
    inputs: Sequence[OpenInput], args: Sequence[Any], named: Mapping[str, Any]
) -> dict[str, Given]:
    """One value per input, from arguments by place and by name."""
    names = [each.name for each in inputs]
    if len(args) > len(names):
        raise InputError(f"{_takes(inputs)}, but {len(args)} were given")
    values: dict[str, Any] = dict(zip(names, args, strict=False))
    for name, value in named.items():
        if name in values:
            raise InputError(f"input '{name}' is given by place and by name")
        if name not in names:
            raise InputError(f"the model has no input '{name}'; {_takes(inputs)}")
        values[name] = value
    missing = [each for each in inputs if each.name not in values and not each.is_optional]
    if missing:
        raise InputError(f"missing: {', '.join(map(str, missing))}; {_takes(inputs)}")
    return {each.name: _taken(each, values.get(each.name)) for each in inputs}


def _takes(inputs: Sequence[OpenInput]) -> str:
    return f"the model takes {', '.join(map(str, inputs)) or 'nothing'}"


def _taken(declared: OpenInput, value: Any) -> Given:
    if value is None:
        if declared.is_optional:
            return None
        raise InputError(f"input {declared} is None")
    if declared.is_sequence or (declared.is_optional and isinstance(value, list)):
        if not isinstance(value, list | tuple):
            raise InputError(f"input {declared} is given a {type(value).__name__}, not a list")
        return [_array(declared, each) for each in value]
    return _array(declared, value)


def _array(declared: OpenInput, value: Any) -> "Array | NDArray":
    if isinstance(value, NDArray):
        return _of_runtime(value)
    if declared.dtype is None and not declared.is_sequence:
        return np.asarray(value).astype(object)
    if isinstance(value, np.ndarray | np.generic):
        return np.asarray(value)
    try:
        if hasattr(value, "__dlpack__"):
            return _shared(value)
        if hasattr(value, "__array__") or declared.dtype is None:
            return np.asarray(value)
        return np.asarray(value, numpy_dtype(declared.dtype))
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        reason = str(error).partition("\n")[0]  # others' traces follow
        raise InputError(
            f"input {declared} is given a {type(value).__name__}, which is no array ({reason})"
        ) from None


def _shared(value: Any) -> "Array | NDArray":
    """An array over the memory of another library's tensor."""
    try:
        return np.from_dlpack(value)
    except (BufferError, RuntimeError):  # elements that NumPy lacks, or memory of a device
        return _of_runtime(from_dlpack(value))


def _of_runtime(value: NDArray) -> "Array | NDArray":
    """An array of the runtime: NumPy's, unless it lies on a device."""
    return to_numpy(value) if value.device.device_type == HOST.device_type else value


def check_inputs(inputs: Sequence[OpenInput], given: Mapping[str, Given], ranges: Ranges) -> None:
    """Every value is of its input's type; a name stands for one extent, which is in its range."""
    bound: dict[str, tuple[int, str]] = {}
    for declared in inputs:
        value = given[declared.name]
        if isinstance(value, list) or value is None:
            continue
        if declared.dtype is not None and str(value.dtype) != declared.dtype:
            raise InputError(
                f"input {declared} is given {value.dtype}{list(value.shape)}; "
                f"{way_to(declared.dtype, str(value.dtype))}"
            )
        if declared.shape is not None:
            _check_shape(declared, value.shape, bound)
    for name, (extent, where) in bound.items():
        least, most = ranges.get(name, (0, extent))
        if not least <= extent <= most:
            raise InputError(
                f"input '{where}' has the extent {extent} for the dimension '{name}', which was "
                f"compiled for {least} to {most}"
            )


def _check_shape(
    declared: OpenInput, shape: Sequence[int], bound: dict[str, tuple[int, str]]
) -> None:
    assert declared.shape is not None
    fits = len(shape) == len(declared.shape) and all(
        isinstance(want, str) or want == have
        for want, have in zip(declared.shape, shape, strict=True)
    )
    if not fits:
        raise InputError(f"input {declared} is given the shape {tuple(shape)}")
    for want, have in zip(declared.shape, shape, strict=True):
        if not isinstance(want, str) or want == OPEN:
            continue
        known, where = bound.setdefault(want, (have, declared.name))
        if known != have:
            raise InputError(
                f"the dimension '{want}' is {known} in input '{where}' and {have} in input "
                f"'{declared.name}'"
            )
