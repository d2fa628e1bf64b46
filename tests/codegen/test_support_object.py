"""Kernels that are compiled by themselves share what checks arguments and hands out loops."""

import numpy as np
import pytest

import sterna
from sterna import te
from sterna.codegen.llvm import CompiledModule, LLVMOptions, Support, support_object
from sterna.codegen.llvm.scalar_loops import has_scalar_loops
from sterna.ir.build import const
from sterna.ir.expr import INT32, Broadcast, Ramp, Var
from sterna.tir.passes.make_packed import make_packed
from sterna.tir.stmt import BufferLoad, BufferStore, For, PrimFunc
from tests.codegen.test_llvm_common import kernel, make_buffer

SHARED = (b"sterna.check_arrays", b"sterna.fail", b"sterna.parallel", b"sterna.allocate")
TRIPLES = (
    "aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu", "x86_64-pc-windows-msvc",
    "arm64-apple-macosx", "wasm32-unknown-unknown",
)


def doubled(lanes: int) -> PrimFunc:
    """A kernel whose loop stores vectors, or single elements."""
    a, b, i = make_buffer("a", "float32", 64), make_buffer("b", "float32", 64), Var("i", INT32)
    at = Ramp(i * lanes, const(1), lanes) if lanes > 1 else i
    two = Broadcast(const(2.0, "float32"), lanes) if lanes > 1 else const(2.0, "float32")
    store = BufferStore(b, BufferLoad(a, (at,)) * two, (at,))
    return kernel("doubled", [a, b], For(i, const(0), const(64 // lanes), "serial", store))


def test_a_kernel_by_itself_calls_what_is_shared() -> None:
    functions = [doubled(4), make_packed(doubled(4), 2)]
    alone = CompiledModule(functions, LLVMOptions.native()).ir()
    beside = CompiledModule(functions, LLVMOptions.native(), support=Support.ELSEWHERE).ir()
    assert 'define internal i32 @"sterna.check_arrays"' in alone
    assert 'declare hidden i32 @"sterna.check_arrays"' in beside
    assert "define internal" not in beside.replace('"doubled', "")


def test_all_arrays_are_checked_by_one_call() -> None:
    functions = [doubled(4), make_packed(doubled(4), 2)]
    text = CompiledModule(functions, LLVMOptions.native(), support=Support.ELSEWHERE).ir()
    assert text.count('call i32 @"sterna.check_arrays"') == 1


def test_arrays_are_checked_among_numbers_and_open_shapes() -> None:
    n, scale = te.var("n"), te.var("scale", "float32")
    x, y = te.placeholder((n, 3), name="x"), te.placeholder((3,), name="y")
    z = te.compute((n, 3), lambda i, j: x[i, j] * scale + y[j], name="z")
    run = sterna.build(te.create_schedule(z.op), [x, scale, y, z], "llvm")
    given = np.arange(12, dtype="float32")
    rows, add = sterna.nd.array(given.reshape(4, 3)), sterna.nd.array(given[:3])
    out = sterna.nd.array(np.zeros((4, 3), "float32"))
    run(rows, 2.0, add, out)
    np.testing.assert_array_equal(out.numpy(), given.reshape(4, 3) * 2 + given[:3])
    with pytest.raises(ValueError, match=r"argument y has a wrong shape: y.shape\[0\] must be 3"):
        run(rows, 2.0, sterna.nd.array(given[:4]), out)
    with pytest.raises(ValueError, match=r"argument z has a wrong shape: z.shape\[0\] must be n"):
        run(rows, 2.0, add, sterna.nd.array(np.zeros((5, 3), "float32")))
    with pytest.raises(TypeError, match="argument z must be of type float32"):
        run(rows, 2.0, add, sterna.nd.array(np.zeros((4, 3), "float64")))


@pytest.mark.parametrize("triple", TRIPLES)
def test_the_support_object_has_it_on_every_system(triple: str) -> None:
    content = support_object(LLVMOptions(triple))
    assert all(name in content for name in SHARED)


def test_scalar_loops_are_those_that_store_single_elements() -> None:
    assert has_scalar_loops([doubled(1)])
    assert not has_scalar_loops([doubled(4)])
