"""Intrinsics: the functions that a Call may name, beside external ones.

Every intrinsic is a row: its name, how many arguments it takes, whether it has an effect, and what
it computes on Python numbers; the interpreter, constant folding and the code generators' tests all
use the same row. Arguments and result have one type unless the row says otherwise.

    if_then_else(c, a, b)     a or b; only the one that is taken is evaluated
    exact(x)                  x; its integers index or bound something, so they do not wrap where
                              they are used
    likely(c)                 c; a hint that it nearly always holds, left by loop splitting
    saturate(x)               x as the call's type, held within its range; NaN becomes 0. Of the
                              floats those of at most 8 bits have a range: their largest numbers
    round_bfloat16(x)         x, a float32, as bfloat16; what is denormal may become 0, which takes
                              one instruction where cast(x) takes eight
    reinterpret(x)            x's bits as the call's type; the first lane has the lowest bits
    dot4(x, a, b)             x, of type int32, plus in each lane the products of the four bytes of
                              a and b that belong to it: a[4*i] * b[4*i] + a[4*i + 1] * ...; an a of
                              four bytes serves all lanes. Sums wrap
    dot2(a, b)                in each lane, of type int16, the products of the two bytes of a and b
                              that belong to it: a[2*i] * b[2*i] + a[2*i + 1] * b[2*i + 1], held
                              within its range; an a of four bytes serves all lanes, two by two
    add_pairs(x, a)           x, of type int32, plus in each lane the two of a, of type int16, that
                              belong to it: a[2*i] + a[2*i + 1]. Sums wrap
    call_extern(name, ...)    the C function of that name
    call_pure_extern(...)     the same, of a function without effects
    call_llvm_intrin(name, ...), call_llvm_pure_intrin(name, ...), call_llvm_void(name, ...)
                              what LLVM knows by that name; C and the interpreter do not. The second
                              is without effects, the third gives nothing, which is an int32 here
    call_packed(name, ...)    the packed function of that name, found at run time; it must return a
                              value of the call's type, unless nothing uses that. If it fails, or
                              there is none of that name, so does the function that calls it
    view_of(load)             an argument of call_packed: the array that is the load's whole buffer.
                              With a number of dimensions, the extents and the strides after it, the
                              array that begins there
    address_of(load)          the address of the element that a BufferLoad names
    prefetch(load)            a hint that the element will be needed
    store_bits(load, mask, bits)
                              the bits of a byte that mask has become those of bits; other threads
                              may change the others at the same time
    load_shared(load)         a byte whose other bits other threads may be changing
    try_call(name, ...)       another function of the same module; if it fails, so does this one. A
                              packed function goes by its symbol, __tvm_ffi_<name>
    tile_configure, ...       registers that hold matrices; see tiles.py

and those that take packed arguments apart, where `args` is the address of an array of sterna_any
and `tensor` that of a DLTensor (see runtime/sterna.h):

    any_type(args, i)         int32: the type index of args[i]
    any_value(args, i)        its payload as int64, float64 or handle
    any_tensor(args, i)       handle: the DLTensor of args[i], which is an array or a tensor view
    tensor_data(tensor)       handle: data + byte_offset
    tensor_ndim(tensor), tensor_device(tensor)           int32
    tensor_dtype(tensor)      int32: code | bits << 8 | lanes << 16
    tensor_shape(tensor, i)   int64
    tensor_has_strides(tensor)                           bool
    tensor_stride(tensor, i)  int64
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Intrinsic:
    """What is known about a function that a Call may name."""

    name: str
    arity: int
    """Number of arguments; -1: any."""
    compute: Callable[..., Any] | None = None
    """Its value on Python numbers, or None if the interpreter knows better."""
    has_effect: bool = False
    result: str = ""
    """The result's element type if it is not the first argument's."""


def _guard(function: Callable[[float], float]) -> Callable[[float], float]:
    """A function of math that gives NaN or infinity where math raises."""

    def guarded(x: float) -> float:
        try:
            return function(x)
        except ValueError:
            return math.nan
        except OverflowError:
            return math.inf

    return guarded


def _log(x: float, base: Callable[[float], float] = math.log) -> float:
    if x == 0:
        return -math.inf
    return base(x) if x > 0 else math.nan


def _round_away(x: float) -> float:
    if not math.isfinite(x):
        return x
    return math.copysign(math.floor(abs(x) + 0.5), x)


def _sigmoid(x: float) -> float:
    if x >= 0:
        return 1 / (1 + math.exp(-x))
    z = math.exp(x)
    return z / (1 + z)


def _keep_inf(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: float(function(x)) if math.isfinite(x) else x


def _pow(x: float, y: float) -> float:
    try:
        value = math.pow(x, y)
    except ValueError:
        return math.nan if x != 0 else math.inf
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    return value


_ROWS = (
    Intrinsic("exp", 1, _guard(math.exp)),
    Intrinsic("exp2", 1, _guard(lambda x: math.pow(2.0, x))),
    Intrinsic("exp10", 1, _guard(lambda x: math.pow(10.0, x))),
    Intrinsic("log", 1, _log),
    Intrinsic("log2", 1, lambda x: _log(x, math.log2)),
    Intrinsic("log10", 1, lambda x: _log(x, math.log10)),
    Intrinsic("log1p", 1, lambda x: -math.inf if x == -1 else _guard(math.log1p)(x)),
    Intrinsic("sqrt", 1, _guard(math.sqrt)),
    Intrinsic("rsqrt", 1, lambda x: math.inf if x == 0 else 1 / _guard(math.sqrt)(x)),
    Intrinsic("sin", 1, _guard(math.sin)),
    Intrinsic("cos", 1, _guard(math.cos)),
    Intrinsic("tan", 1, _guard(math.tan)),
    Intrinsic("asin", 1, _guard(math.asin)),
    Intrinsic("acos", 1, _guard(math.acos)),
    Intrinsic("atan", 1, math.atan),
    Intrinsic("sinh", 1, lambda x: math.copysign(_guard(math.sinh)(abs(x)), x)),
    Intrinsic("cosh", 1, _guard(math.cosh)),
    Intrinsic("tanh", 1, math.tanh),
    Intrinsic("asinh", 1, _guard(math.asinh)),
    Intrinsic("acosh", 1, _guard(math.acosh)),
    Intrinsic("atanh", 1, lambda x: math.copysign(math.inf, x) if abs(x) == 1
              else _guard(math.atanh)(x)),
    Intrinsic("atan2", 2, math.atan2),
    Intrinsic("erf", 1, math.erf),
    Intrinsic("sigmoid", 1, _sigmoid),
    Intrinsic("pow", 2, _pow),
    Intrinsic("fmod", 2, lambda x, y: math.nan if y == 0 or math.isinf(x) else math.fmod(x, y)),
    Intrinsic("hypot", 2, math.hypot),
    Intrinsic("copysign", 2, math.copysign),
    Intrinsic("nextafter", 2, None),
    Intrinsic("ldexp", 2, None),
    Intrinsic("floor", 1, _keep_inf(math.floor)),
    Intrinsic("ceil", 1, _keep_inf(math.ceil)),
    Intrinsic("trunc", 1, _keep_inf(math.trunc)),
    Intrinsic("round", 1, _round_away),
    Intrinsic("nearbyint", 1, _keep_inf(round)),
    Intrinsic("abs", 1, abs),
    Intrinsic("isnan", 1, math.isnan, result="bool"),
    Intrinsic("isinf", 1, math.isinf, result="bool"),
    Intrinsic("isfinite", 1, math.isfinite, result="bool"),
    Intrinsic("bitwise_and", 2, lambda a, b: a & b),
    Intrinsic("bitwise_or", 2, lambda a, b: a | b),
    Intrinsic("bitwise_xor", 2, lambda a, b: a ^ b),
    Intrinsic("bitwise_not", 1, lambda a: ~a),
    Intrinsic("shift_left", 2, lambda a, b: a << b),
    Intrinsic("shift_right", 2, lambda a, b: a >> b),
    Intrinsic("popcount", 1, None),
    Intrinsic("clz", 1, None),
    Intrinsic("if_then_else", 3, None),
    Intrinsic("likely", 1, lambda c: c),
    Intrinsic("exact", 1, lambda x: x),
    Intrinsic("saturate", 1, None),
    Intrinsic("reinterpret", 1, None),
    Intrinsic("dot4", 3, None),
    Intrinsic("dot2", 2, None),
    Intrinsic("add_pairs", 2, None),
    Intrinsic("round_bfloat16", 1, lambda x: x, result="bfloat16"),
    Intrinsic("call_extern", -1, None, has_effect=True),
    Intrinsic("call_pure_extern", -1, None),
    Intrinsic("call_llvm_intrin", -1, None, has_effect=True),
    Intrinsic("call_llvm_pure_intrin", -1, None),
    Intrinsic("call_llvm_void", -1, None, has_effect=True, result="int32"),
    Intrinsic("call_packed", -1, None, has_effect=True),
    Intrinsic("store_bits", 3, None, has_effect=True),
    Intrinsic("load_shared", 1),
    Intrinsic("view_of", -1, None, result="handle"),
    Intrinsic("address_of", 1, None),
    Intrinsic("prefetch", 1, None, has_effect=True),
    Intrinsic("try_call", -1, None, has_effect=True, result="int32"),
    Intrinsic("tile_configure", 16, None, has_effect=True, result="int32"),
    Intrinsic("tile_zero", 1, None, has_effect=True, result="int32"),
    Intrinsic("tile_load", 3, None, has_effect=True, result="int32"),
    Intrinsic("tile_store", 3, None, has_effect=True, result="int32"),
    Intrinsic("tile_dot", 4, None, has_effect=True, result="int32"),
    Intrinsic("tile_release", 0, None, has_effect=True, result="int32"),
    Intrinsic("any_type", 2, None, result="int32"),
    Intrinsic("any_value", 2, None),
    Intrinsic("any_tensor", 2, None, result="handle"),
    Intrinsic("tensor_data", 1, None, result="handle"),
    Intrinsic("tensor_ndim", 1, None, result="int32"),
    Intrinsic("tensor_device", 1, None, result="int32"),
    Intrinsic("tensor_dtype", 1, None, result="int32"),
    Intrinsic("tensor_shape", 2, None, result="int64"),
    Intrinsic("tensor_has_strides", 1, None, result="bool"),
    Intrinsic("tensor_stride", 2, None, result="int64"),
)

INTRINSICS = {row.name: row for row in _ROWS}
