"""What the tests of the LLVM code generator share, and the shape of its interface."""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from sterna.codegen.llvm import CompiledModule, JitModule, LLVMOptions, generate
from sterna.ir import build
from sterna.ir.build import const
from sterna.ir.expr import Expr, ExprLike, Ramp, Var
from sterna.support.dtype import DataType
from sterna.tir.stmt import Buffer, BufferLoad, BufferStore, For, PrimFunc, Stmt

Array = npt.NDArray[Any]


def make_buffer(name: str, dtype: str, *shape: ExprLike, **options: Any) -> Buffer:
    """A buffer of some shape."""
    return Buffer(name, DataType(dtype), tuple(build.as_expr(n) for n in shape), **options)


def kernel(name: str, params: list[Buffer | Var], body: Stmt, **attrs: Any) -> PrimFunc:
    """An exported kernel."""
    variables = tuple(p.data if isinstance(p, Buffer) else p for p in params)
    buffers = tuple(p if isinstance(p, Buffer) else None for p in params)
    return PrimFunc(name, variables, buffers, body, {"export": True, **attrs})


class Loaded:
    """A kernel that can be called with arrays and numbers."""

    def __init__(self, *functions: PrimFunc, options: LLVMOptions | None = None) -> None:
        self.module = CompiledModule(list(functions), options)
        self.jit: JitModule = self.module.jit()
        self.name = functions[-1].name

    def __call__(self, *args: Array | int | float) -> int:
        kinds: list[Any] = []
        values: list[Any] = []
        for arg in args:
            if isinstance(arg, np.ndarray):
                kinds.append(ctypes.c_void_p)
                values.append(arg.ctypes.data)
            else:
                kinds.append(ctypes.c_int32 if isinstance(arg, int) else ctypes.c_float)
                values.append(arg)
        function = ctypes.CFUNCTYPE(ctypes.c_int, *kinds)(self.jit.address(self.name))
        return int(function(*values))


def numpy_type(dtype: str) -> Any:
    """The NumPy type of a buffer's elements; bfloat16 as its bits."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def elementwise(
    compute: Callable[..., Expr], result: str, inputs: list[tuple[str, Array]], lanes: int = 1,
    options: LLVMOptions | None = None,
) -> Array:
    """Applies an expression to arrays, so many elements at once."""
    size = len(inputs[0][1])
    padded = -(-size // lanes) * lanes
    buffers = [make_buffer(f"x{i}", dtype, padded) for i, (dtype, _) in enumerate(inputs)]
    out = make_buffer("out", result, padded)
    i = Var("i")
    index: Expr = i if lanes == 1 else Ramp(i * lanes, const(1), lanes)
    value = compute(*[BufferLoad(buffer, (index,)) for buffer in buffers])
    body = For(i, const(0), const(padded // lanes), "serial", BufferStore(out, value, (index,)))
    arrays = [np.resize(array, padded).astype(numpy_type(d)) for d, array in inputs]
    answer = np.zeros(padded, numpy_type(result))
    assert Loaded(kernel("f", [*buffers, out], body), options=options)(*arrays, answer) == 0
    return answer[:size]


def scale_kernel() -> PrimFunc:
    """b = 2 * a + 1"""
    a, b = make_buffer("a", "float32", 100), make_buffer("b", "float32", 100)
    i = Var("i")
    value = BufferLoad(a, (i,)) * 2.0 + 1.0
    return kernel("scale", [a, b], For(i, const(0), const(100), "serial",
                                       BufferStore(b, value, (i,))))


def test_every_form_of_a_module_is_made() -> None:
    module = CompiledModule([scale_kernel()])
    assert "define hidden i32 @\"scale\"" in module.ir()
    assert "@__sterna__host" in module.optimized_ir()
    assert "scale:" in module.assembly()
    assert module.object_bytes()[:4] == b"\x7fELF"
    a = np.arange(100, dtype="float32")
    b = np.zeros_like(a)
    assert Loaded(scale_kernel())(a, b) == 0
    np.testing.assert_array_equal(b, a * 2 + 1)


def test_text_is_deterministic() -> None:
    texts = {generate([scale_kernel()], LLVMOptions.native(), "m") for _ in range(3)}
    assert len(texts) == 1
    objects = {CompiledModule([scale_kernel()]).object_bytes() for _ in range(3)}
    assert len(objects) == 1


def test_internal_functions_have_no_symbol() -> None:
    function = scale_kernel()
    function.attrs.clear()
    loaded = CompiledModule([function]).jit()
    with pytest.raises(KeyError, match="no symbol 'scale'"):
        loaded.address("scale")


def test_two_functions_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="two functions are named 'scale'"):
        generate([scale_kernel(), scale_kernel()], LLVMOptions.native(), "m")


def test_an_unknown_triple_is_named() -> None:
    with pytest.raises(ValueError, match="no target 'nonsense-unknown'"):
        CompiledModule([scale_kernel()], LLVMOptions("nonsense-unknown"))
