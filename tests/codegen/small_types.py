"""Runs elementwise functions in the interpreter, through LLVM and as C, on any types."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

import sterna as tvm
from sterna import te
from sterna.runtime import NDArray
from sterna.support import element_arrays
from sterna.support.dtype import DataType
from sterna.support.float_format import is_small_float
from sterna.tir import interpreter
from sterna.tir.memory import storage_type
from sterna.tir.stmt import PrimFunc

Array = npt.NDArray[Any]
ENGINES = ["interpreter", "llvm", "c"]


@dataclass
class Case:
    """out[i] = compute(in0[i], in1[i], ...)"""

    compute: Callable[..., Any]
    inputs: Sequence[NDArray]
    out: str
    schedule: Callable[[te.Schedule, te.Tensor], None] | None = None

    def lowered(self, name: str) -> PrimFunc:
        """Its loops after all passes."""
        count = self.inputs[0].shape[0]
        places = [te.placeholder((count,), x.dtype, f"x{at}") for at, x in enumerate(self.inputs)]
        result = te.compute((count,), lambda i: self.compute(*[p[i] for p in places]), name="y")
        plan = te.create_schedule(result.op)
        if self.schedule is not None:
            self.schedule(plan, result)
        function: PrimFunc = tvm.lower(plan, [*places, result], name=name)[name]
        return function


def run_all(engine: str, cases: Sequence[Case]) -> list[NDArray]:
    """The results of some functions, compiled together."""
    functions = [case.lowered(f"f{at}") for at, case in enumerate(cases)]
    made = [tvm.nd.empty(case.inputs[0].shape, case.out) for case in cases]
    if engine == "interpreter":
        for case, function, result in zip(cases, functions, made, strict=True):
            arrays = [held_bytes(array) for array in (*case.inputs, result)]
            views = [
                array.view(storage_type(buffer.dtype))
                for array, buffer in zip(arrays, function.buffers, strict=True)
                if buffer is not None
            ]
            interpreter.run(function, *views)
            result._create_view((result.nbytes,), "uint8").copyfrom(arrays[-1])
        return made
    module = tvm.build(functions, target=engine)
    for at, (case, result) in enumerate(zip(cases, made, strict=True)):
        module[f"f{at}"](*case.inputs, result)
    return made


def held_bytes(array: NDArray) -> Array:
    """The memory of an array."""
    held = np.zeros(array.nbytes, np.uint8)
    array._copy_to_buffer(held)
    return held


def numbers(array: NDArray) -> Array:
    """The numbers in an array, as NumPy computes with them."""
    held = array.numpy()
    is_bits = is_small_float(array.dtype) and array.dtype != held.dtype.name
    return element_arrays.decode(held, array.dtype) if is_bits else held


def every_code(dtype: str) -> NDArray:
    """All numbers of a small type."""
    kind = DataType(dtype)
    codes = np.arange(1 << kind.bits)
    if kind.is_int:
        codes = codes - (1 << kind.bits - 1)
    return tvm.nd.array(codes, dtype=dtype)


def vectors(factor: int) -> Any:
    """A schedule in vectors."""

    def apply(schedule: te.Schedule, tensor: te.Tensor) -> None:
        _, inner = schedule[tensor].split(tensor.op.axis[0], factor=factor)
        schedule[tensor].vectorize(inner)

    return apply
