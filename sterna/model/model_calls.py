"""Executors as functions of arrays: what a compiled model's call runs on."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from sterna.model.arguments import TensorSpec, device_array, fitting_array, host_array
from sterna.relay.arrays import Array, numpy_dtype, to_numpy
from sterna.runtime import Device, Module, NDArray, cpu
from sterna.runtime._core import DeviceCall, ModelCall
from sterna.runtime.device import REMOTE_DEVICES
from sterna.support.dtype import DataType

Runner = Callable[[tuple[Any, ...]], tuple[Any, ...]]
"""Takes one value per input and gives an array per output; one thread at a time may use it."""


def make_runner(
    executor: Module, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec], device: Device,
    ends_there: bool = True,
) -> Runner:
    """A function over an executor.

    On the CPU the nodes read the caller's arrays and write the results' own memory. So they do on
    a GPU when the caller's arrays are there, and then the results are there too; other arrays are
    copied there and back. All arrays are copied to another machine's devices, and so are elements
    of less than a byte, which NumPy gives a byte each, and those of a model whose inputs and
    outputs do not all lie on its device.
    """
    packed = any(_is_packed(spec.dtype) for spec in outputs)
    if not ends_there or device.device_type >= REMOTE_DEVICES or (packed and device == cpu(0)):
        return _CopyingRunner(executor, inputs, outputs)
    if device != cpu(0):
        return DeviceCall(
            executor["run_on"],
            partial(device_array, device),
            device,
            tuple((spec, spec.shape, spec.dtype) for spec in inputs),
            tuple((spec.shape, spec.dtype, _reader(spec.dtype)) for spec in outputs),
        )
    return ModelCall(
        executor["run_on"],
        host_array,
        np.ndarray,
        tuple((spec, spec.shape, spec.dtype, _buffer_format(spec.dtype)) for spec in inputs),
        tuple((spec.shape, spec.dtype, numpy_dtype(spec.dtype)) for spec in outputs),
    )


def _reader(dtype: str) -> Callable[[NDArray], Array]:
    """What makes a NumPy array of an array of the runtime."""
    return NDArray.numpy if numpy_dtype(dtype).isbuiltin == 1 else to_numpy


def _is_packed(dtype: str) -> bool:
    return DataType(dtype).bits != 8 * numpy_dtype(dtype).itemsize


def _buffer_format(dtype: str) -> str | None:
    """How NumPy names a type in its buffers; None for those that it lacks."""
    kind = numpy_dtype(dtype)
    return np.empty(0, kind).data.format if kind.isbuiltin == 1 else None


class _CopyingRunner:
    """Copies inputs to the executor's memory and results from it."""

    def __init__(
        self, executor: Module, inputs: Sequence[TensorSpec], outputs: Sequence[TensorSpec]
    ) -> None:
        self.inputs = inputs
        self.set_input = executor["set_input"]
        self.run = executor["run"]
        self.results = [executor["get_output"](place) for place in range(len(outputs))]
        self.readers = [_reader(spec.dtype) for spec in outputs]

    def __call__(self, values: tuple[Any, ...]) -> tuple[Array, ...]:
        for spec, value in zip(self.inputs, values, strict=True):
            self.set_input(spec.name, fitting_array(spec, value))
        self.run()
        return tuple(
            read(result) for read, result in zip(self.readers, self.results, strict=True)
        )
