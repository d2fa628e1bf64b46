"""Runs a schedule in every way there is."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import sterna as tvm
from sterna.te.lower import lower_schedule
from sterna.tir import interpreter, pipeline
from sterna.tir.verify import verify
from tests.support import require_program


def check(
    schedule: Any,
    args: Sequence[Any],
    inputs: Sequence[Any],
    expected: Sequence[Any],
    sizes: Sequence[int] = (),
    tolerance: float = 0,
    targets: Sequence[str] = ("llvm", "c"),
) -> str:
    """Loops, passes and machine code give the expected results; the loops as text.

    sizes: the values of the variables in the arguments' shapes.
    """
    require_program("cc")
    loops = verify(lower_schedule(schedule, args, "f"))
    passed = verify(pipeline.run(loops))
    runs: list[Callable[..., Any]] = [
        lambda *a: interpreter.run(loops, *a, *sizes),
        lambda *a: interpreter.run(passed, *a, *sizes),
        *(tvm.build(schedule, args, target=target, name="f") for target in targets),
    ]
    for run in runs:
        results = [np.full(e.shape, 77, e.dtype) for e in expected]
        run(*inputs, *results)
        for result, right in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, right, tolerance, tolerance, err_msg=str(loops))
    return str(loops)
