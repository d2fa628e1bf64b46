"""Random functions of loops, after all passes, as code: the same numbers as in the interpreter."""

import shutil

import numpy as np
import pytest

import sterna as tvm
from sterna.ir import IRModule
from sterna.tir import PrimFunc
from tests.tir.random_programs import Program, draw

TARGETS = ["llvm", *(["c"] if shutil.which("cc") else [])]


def named(program: Program, name: str) -> PrimFunc:
    func = program.func
    return PrimFunc(name, func.params, func.buffers, func.body)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("group", range(4))
def test_random_functions(target: str, group: int) -> None:
    programs = {f"f{seed}": draw(seed) for seed in range(10 * group, 10 * group + 10)}
    module = tvm.build(IRModule({n: named(p, n) for n, p in programs.items()}), target=target)
    for name, program in programs.items():
        arrays = [array.copy() for array in program.arrays]
        module[name](*arrays, program.scalar)
        for result, expected in zip(arrays, program.run(program.func), strict=True):
            # products and sums may be fused
            np.testing.assert_allclose(
                result, expected, rtol=2e-5, atol=1e-4, err_msg=str(program.func)
            )
