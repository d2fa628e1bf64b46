"""Intrinsics that several tests use, and how their results are held against each other."""

from collections.abc import Sequence
from typing import Any

import numpy as np

import sterna as tvm
from sterna import te, tir
from sterna.ir import explain_difference
from sterna.ir.visitor import Rewriter
from sterna.te.lower import lower_schedule
from sterna.tir import interpreter, parse, pipeline
from sterna.tir.verify import verify


def strided(tensor: te.Tensor, name: str, scope: str = "") -> tir.Buffer:
    """A buffer for a tensor whose rows may lie anywhere."""
    steps: list[Any] = [te.var(f"{name}{i}") for i in range(tensor.ndim - 1)]
    return tir.decl_buffer(
        tensor.shape, tensor.dtype, name=name, offset_factor=1, strides=[*steps, 1], scope=scope
    )


def gemm(m: int, n: int, k: int, parts: str = "biu", scopes: Sequence[str] = ("", "", "")) -> Any:
    """c[i, j] = sum of a[i, k]*b[k, j], by loops; parts: body, init and update."""
    a, b = te.placeholder((m, k), name="a"), te.placeholder((k, n), name="b")
    over = te.reduce_axis((0, k), name="k")
    c = te.compute((m, n), lambda i, j: te.sum(a[i, over] * b[over, j], axis=over), name="c")
    binds = {t: strided(t, x, s) for t, x, s in zip((a, b, c), "ABC", scopes, strict=True)}

    def fcompute(ins: Any, outs: Any) -> Any:
        def write(init: bool, update: bool) -> Any:
            ib = tir.ir_builder.create()
            x, y, z = (ib.buffer_ptr(buffer) for buffer in (*ins, *outs))
            with ib.for_range(0, m) as i, ib.for_range(0, n) as j:
                if init:
                    z[i, j] = 0.0
                if update:
                    with ib.for_range(0, k) as r:
                        z[i, j] = z[i, j] + x[i, r] * y[r, j]
            return ib.get()

        made = [write("b" in parts, True), write(True, False), write(False, True)]
        return tuple(x if p in parts else None for p, x in zip("biu", made, strict=True))

    return te.decl_tensor_intrin(c.op, fcompute, name="gemm", binds=binds)


class _Bodies(Rewriter):
    """Runs intrinsics by their bodies, whose every index the interpreter then checks."""

    def visit_Tensorized(self, stmt: tir.Tensorized) -> Any:
        return self.rewrite(stmt.body)


def with_bodies(func: tir.PrimFunc) -> tir.PrimFunc:
    return func.with_body(_Bodies().rewrite(func.body))


def check(
    schedule: Any, args: Sequence[te.Tensor], arrays: Sequence[Any], expected: Any,
    targets: Sequence[str] = ("llvm",), bodies: bool = True,
) -> str:
    """The last argument must become what is expected, however the schedule is run; its loops."""
    loops = verify(lower_schedule(schedule, args, "f"))
    assert explain_difference(loops, parse(str(loops))) is None
    assert "with tensorized(" in str(loops)
    passed = verify(pipeline.run(loops))
    for func in (loops, passed):
        for version in (func, with_bodies(func)) if bodies else (func,):
            result = np.full_like(expected, 77)
            flat = [x.reshape(-1) for x in (*arrays, result)]
            interpreter.run(version, *(flat if func is passed else (*arrays, result)))
            np.testing.assert_array_equal(result, expected, err_msg=str(version))
    for target in targets:
        result = np.full_like(expected, 77)
        tvm.build(schedule, args, target=target)(*arrays, result)
        np.testing.assert_array_equal(result, expected, err_msg=f"{target}\n{passed}")
    return str(loops)
