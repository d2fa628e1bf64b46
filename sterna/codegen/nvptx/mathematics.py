"""Functions of float32 that a GPU's special function unit begins, to two units in the last place.

Those of narrow floats are as near as these hold. Vectors are taken lane by lane. Other types, and
functions that are not here, are computed as processors compute them: sterna/codegen/llvm/math.py.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

from sterna.codegen.llvm.convert import cast
from sterna.codegen.llvm.steps import constant, polynomial
from sterna.codegen.llvm.types import float_literal
from sterna.codegen.nvptx.intrinsics import DeviceIntrinsic, Write
from sterna.ir import build
from sterna.ir.expr import Call, Cast
from sterna.support.dtype import DataType

if TYPE_CHECKING:
    from sterna.codegen.nvptx.kernel import KernelEmitter

_FLOAT = DataType("float32")
_EXPONENTS = 252
"""The powers of two that a multiplication by a normal number reaches: -126 to 126."""
_SHIFTER = 1.5 * 2**23
"""Added to a number it leaves the nearest integer in the low bits."""


def _number(value: float) -> tuple[str, str]:
    return "float", float_literal(value, _FLOAT)


_One = Callable[["KernelEmitter", str], str]


def _by_lanes(one: _One | None, narrow: _One | None = None) -> Write:
    """By what makes a lane of float32, and of narrower floats after they were made float32."""

    def write(emitter: "KernelEmitter", call: Call) -> str | None:
        is_narrow = call.dtype.is_float and call.dtype.bits == 16
        made = one if call.dtype.element == _FLOAT else narrow if is_narrow else None
        if made is None:
            return None
        dtype = _FLOAT.with_lanes(call.dtype.lanes)
        operand = emitter.expr(Cast(dtype, call.args[0]) if is_narrow else call.args[0])
        lanes = [made(emitter, emitter.lane(dtype, operand, lane)) for lane in range(dtype.lanes)]
        found = emitter.gathered(dtype, lanes)
        return cast(emitter.writer, dtype, call.dtype, found) if is_narrow else found

    return write


def _exp(emitter: "KernelEmitter", x: str) -> str:
    """e**x = 2**n * 2**f, where n is bounded, so that f takes what is left of very large x."""
    value, fma = emitter.writer.value, "llvm.nvvm.fma.rn.f"
    operand = ("float", x)
    share = emitter.instruction(
        "llvm.nvvm.fma.rn.sat.f", "float", operand, _number(1 / (_EXPONENTS * math.log(2))),
        _number(0.5),
    )
    # Its lowest bits are the exponent of 2**n as a float has it: 1 to 253.
    moved = emitter.instruction(
        "llvm.nvvm.fma.rm.f", "float", ("float", share), _number(_EXPONENTS), _number(_SHIFTER + 1)
    )
    minus_n = value(f"fsub float {float_literal(_SHIFTER + 127, _FLOAT)}, {moved}")
    high = 1 / math.log(2)
    rounded = float.fromhex("0x1.715476p+0")
    f = emitter.instruction(fma, "float", operand, _number(rounded), ("float", minus_n))
    f = emitter.instruction(fma, "float", operand, _number(high - rounded), ("float", f))
    bits = value(f"bitcast float {moved} to i32")
    shifted = value(f"shl i32 {bits}, 23")
    scale = value(f"bitcast i32 {shifted} to float")
    power = emitter.instruction("llvm.nvvm.ex2.approx.ftz.f32", "float", ("float", f))
    return value(f"fmul float {power}, {scale}")


def _exp2(emitter: "KernelEmitter", x: str) -> str:
    return emitter.instruction("llvm.nvvm.ex2.approx.f32", "float", ("float", x))


def _quick_exp(emitter: "KernelEmitter", x: str) -> str:
    """Within 2**-17 where the result is finite."""
    share = emitter.writer.value(f"fmul float {x}, {float_literal(math.log2(math.e), _FLOAT)}")
    return _exp2(emitter, share)


def _quick_sigmoid(emitter: "KernelEmitter", x: str) -> str:
    """1 / (1 + e**-x)"""
    value = emitter.writer.value
    power = _quick_exp(emitter, value(f"fneg float {x}"))
    whole = value(f"fadd float {power}, {float_literal(1.0, _FLOAT)}")
    return emitter.instruction("llvm.nvvm.rcp.approx.ftz.f", "float", ("float", whole))


def _rsqrt(emitter: "KernelEmitter", x: str) -> str:
    return emitter.instruction("llvm.nvvm.rsqrt.approx.f", "float", ("float", x))


# erf(x) / x where |x| <= _ERF_MOST, of x * x, to 1e-5 of it; above that, 1 - erf(x) < 8e-5.
_ERF_MOST = 2.8
_ERF = (
    1.12836838, -0.375922441, 0.112168342, -0.0259814262, 0.00461111544, -0.000602024491,
    5.35867366e-05, -2.85810893e-06, 6.81124632e-08,
)


def _quick_erf(emitter: "KernelEmitter", call: Call) -> str | None:
    """The error function of narrow floats, computed in float32."""
    if not call.dtype.is_float or call.dtype.bits != 16:
        return None
    x = Cast(_FLOAT.with_lanes(call.dtype.lanes), call.args[0])
    most = constant(_ERF_MOST, x)
    held = build.maximum(constant(-_ERF_MOST, x), build.minimum(most, x))  # NaN stays
    made = build.bind(held, lambda h: build.bind(h * h, lambda v: polynomial(v, _ERF) * h))
    return emitter.expr(Cast(call.dtype, made))


MATHEMATICS = {
    "exp": DeviceIntrinsic(_by_lanes(_exp, _quick_exp)),
    "exp2": DeviceIntrinsic(_by_lanes(_exp2)),
    "erf": DeviceIntrinsic(_quick_erf),
    "rsqrt": DeviceIntrinsic(_by_lanes(_rsqrt)),
    "sigmoid": DeviceIntrinsic(_by_lanes(None, _quick_sigmoid)),
}
