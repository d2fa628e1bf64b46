"""Kernels over extents of their own, which calls pass."""

from typing import Any

import numpy as np

import sterna
from sterna.ir.expr import INT32, Var
from sterna.ir.structural import structural_equal
from sterna.ir.types import TensorType
from sterna.lowering.kernel_extents import KernelExtents
from sterna.relay.infer import infer
from sterna.runtime.vm import VirtualMachine
from sterna.support.dtype import DataType

relay: Any = sterna.relay
N, K = Var("n", INT32), Var("k", INT32)
FLOAT32 = DataType("float32")


def kernel(body: Any, *shapes: tuple[Any, ...]) -> Any:
    """A function of tensors, whose symbols are free."""
    params = [relay.Var(f"p{i}", TensorType(each, FLOAT32)) for i, each in enumerate(shapes)]
    made = relay.Function(params, body(*params), attrs={"Primitive": 1})
    infer(made)
    return made


def scaled(x: Any, y: Any) -> Any:
    return relay.tanh(relay.sum(x, axis=1, keepdims=True) * y)


def test_expressions_of_symbols_make_no_difference() -> None:
    extents = KernelExtents()
    wide = (K + 64) // 256
    first = extents.of(kernel(scaled, (N, wide), (N, wide)))
    for rows, columns in ((N, K), (K, N), (N, (N + 1) // 3 - 1)):
        other = kernel(scaled, (rows, columns), (rows, columns))
        assert structural_equal(extents.of(other), first)
    apart = extents.of(kernel(scaled, (N, K), (N, wide)))
    assert str(apart.body.checked_type) == "Tensor[(extent0, extent2), float32]"
    assert not structural_equal(apart, first)


def test_what_is_said_of_extents_is_kept() -> None:
    for shape in ((2, 3), (N, K * 8), (N * 2 + 1, 4)):
        own = kernel(relay.nn.relu, shape)
        assert KernelExtents().of(own) is own
    named = kernel(lambda x: relay.reshape(x, (N * K,)), (N, K))
    assert KernelExtents().of(named) is named


def test_calls_pass_the_extents_of_their_operands() -> None:
    x = relay.var("x", shape=(relay.Any("n"), relay.Any("k")))
    far = 2**31 - 1
    steps = (2, 3, 5)
    parts = [relay.strided_slice(x, [0, 0], [far, far], [1, step]) for step in steps]
    body = relay.Tuple([scaled(part, part) for part in parts])
    program = relay.vm.compile(sterna.IRModule.from_expr(relay.Function([x], body)), "llvm")
    source = program.lib.get_source()
    assert "fused_multiply_tanh" in source and "fused_multiply_tanh_1" not in source
    machine = VirtualMachine(program, sterna.cpu())
    for shape in ((3, 11), (1, 1), (0, 7)):
        data = np.random.default_rng(0).standard_normal(shape).astype("float32")
        for step, found in zip(steps, machine.run(data), strict=True):
            part = data[:, ::step]
            wanted = np.tanh(part.sum(1, keepdims=True) * part)
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-5)
