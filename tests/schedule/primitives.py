"""The kernels that an expression becomes, one at a time."""

from typing import Any

import numpy as np

import sterna as tvm
from sterna import relay
from sterna.lowering.lower_kernel import LoweredKernel, lower_kernel
from sterna.relay.interpreter import interpret
from sterna.schedule.kernel import Processor


def kernels(body: Any, processor: Processor, *more: Any) -> list[Any]:
    """The primitive functions of an expression, in order, after more passes if some are given."""
    passes = tvm.transform.Sequential([relay.transform.FuseOps(2, processor), *more])
    with tvm.transform.PassContext(opt_level=3):
        main = passes(tvm.IRModule.from_expr(body))["main"]
    found: list[Any] = []

    def visit(expr: Any) -> None:
        if isinstance(expr, relay.Call) and isinstance(expr.op, relay.Function):
            found.append(expr.op)

    relay.analysis.post_order_visit(main, visit)
    return found


def check_kernel(kernel: Any, processor: Processor, tolerance: float = 1e-4) -> LoweredKernel:
    """A kernel gives what the interpreter gives, all of its results."""
    lowered = lower_kernel(kernel, "kernel", processor)
    rng = np.random.default_rng(0)
    kinds = [p.checked_type for p in kernel.params]
    given = [rng.standard_normal(kind.shape).astype(str(kind.dtype)) for kind in kinds]
    right = interpret(kernel, *given)
    want = right if isinstance(right, (list, tuple)) else [right]
    out = [tvm.nd.empty(part.shape, str(part.dtype)) for part in want]
    tvm.build(lowered.function, target="llvm")["kernel"](*map(tvm.nd.array, given), *out)
    for made, part in zip(out, want, strict=True):
        near = tolerance * np.abs(part.astype("float64")).max() / 10
        np.testing.assert_allclose(made.numpy(), part, rtol=tolerance, atol=near)
    return lowered
