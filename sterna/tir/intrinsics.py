"""Intrinsics: the functions that a Call may name, beside external ones.

Every intrinsic is a row: its name, how many arguments it takes, whether it has an effect, what it
computes on Python numbers, and how each code generator says it. The interpreter, the verifier, the
passes and the code generators read that row, so that a function of numbers is added by adding one.
Arguments and result have one type unless the row says otherwise. What deals with memory, types or
other functions is written out by the interpreter and by each code generator itself.

    if_then_else(c, a, b)     a or b; only the one that is taken is evaluated
    exact(x)                  x; its integers index or bound something, so they do not wrap where
                              they are used
    likely(c)                 c; a hint that it nearly always holds, left by loop splitting
    saturate(x)               x as the call's type, held within its range; NaN becomes 0. Of the
                              floats those of at most 8 bits have a range: their largest numbers
    round_bfloat16(x)         x, a float32, as bfloat16; what is subnormal may become 0, which takes
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
    widen_even(a), widen_odd(a)
                              the first and the third byte of a word, or the second and the fourth,
                              with their signs, as its halves of 16 bits: SXTB16. All are int32
    join_halves(a, b)         the word whose lower half is that of a, and its upper one b's lower
    high_product(a, b)        a * b / 2**31, rounded, halves upward; b is at least 2**30
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
    storage_sync("shared")    threads of a block wait for each other here; what each has written
                              before, the others see behind it. "warp": the threads of a warp
    tvm_warp_shuffle(mask, x, lane, width, 32), ..._up, ..._down, ..._xor
                              the x of another lane of the warp: of that number, so many before or
                              behind this one, or whose number differs in those bits. mask: the
                              lanes that call it; width: how many lanes, a power of two, are a
                              group. Where there is no such lane in it, this lane's own
    tvm_warp_activemask()     uint32: a bit for each lane of the warp that is here

and those that take packed arguments apart, where `args` is the address of an array of sterna_any
and `tensor` that of a DLTensor (see runtime/sterna.h):

    any_type(args, i)         int32: the type index of args[i]
    any_value(args, i)        its payload as int64, float64 or handle
    any_tensor(args, i)       handle: the DLTensor of args[i], which is an array or a tensor view
    check_array(args, i, signature, name, dtype, is_written, extents ...)
                              fails unless args[i] is such an array of the CPU, without gaps; an
                              extent of -1 may be any. One that is written to may not be read-only.
                              The words say what to call it in errors
    tensor_data(tensor)       handle: data + byte_offset
    tensor_ndim(tensor), tensor_device(tensor)           int32
    tensor_dtype(tensor)      int32: code | bits << 8 | lanes << 16
    tensor_shape(tensor, i)   int64
    tensor_has_strides(tensor)                           bool
    tensor_stride(tensor, i)  int64
"""

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field
from typing import Any

from sterna.ir import build
from sterna.ir.expr import Call, Expr, FloatImm, IntImm, Let, Select, Var
from sterna.tir import halves


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
    spelled: Mapping[str, str] = field(default_factory=dict)
    """How source languages write it. c: an operator, or the function of <math.h> for doubles, whose
    twin for floats has an f behind its name; languages of GPUs by their names."""
    llvm: str = ""
    """An instruction of LLVM for two operands (and), or its intrinsic (llvm.floor), whose name the
    operands' type completes."""
    polynomial: str | Callable[..., Expr] = ""
    """Of floats, by basic operations, for code generators without a library: a function of
    expressions, or where sterna/codegen/llvm has it. Beside llvm: for processors without that."""
    in_double: bool = False
    """Whether the polynomial of float32 is computed in float64 and rounded once."""
    by: Callable[[Expr], Expr] | None = None
    """Of floats, by other intrinsics, for code generators that have nothing better."""
    of_integers: Callable[[Call], Expr] | None = None
    """Of integers, by other expressions: floor(i) is i."""


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


# ---- by others, and of integers ----


def _number(value: float, like: Expr) -> Expr:
    return build.cast(like.dtype, FloatImm(like.dtype.element, value))


def _sigmoid_by_exp(x: Expr) -> Expr:
    one = _number(1.0, x)
    return one / (one + Call(x.dtype, "exp", (_number(0.0, x) - x,)))


def _exp10_by_pow(x: Expr) -> Expr:
    return Call(x.dtype, "pow", (_number(10.0, x), x))


def _rsqrt_by_sqrt(x: Expr) -> Expr:
    return _number(1.0, x) / Call(x.dtype, "sqrt", (x,))


def _same(call: Call) -> Expr:
    return call.args[0]


def _size(call: Call) -> Expr:
    x = call.args[0]
    if not x.dtype.is_int:
        return x
    number, zero = Var("x", x.dtype), build.const(0, x.dtype)
    return Let(number, x, Select(number < zero, zero - number, number))


def _never(call: Call) -> Expr:
    return build.cast(call.dtype, IntImm(call.dtype.element, 0))


def _always(call: Call) -> Expr:
    return build.cast(call.dtype, IntImm(call.dtype.element, 1))


# ---- the rows ----


def _math(
    name: str, compute: Callable[..., Any] | None, polynomial: str, arity: int = 1,
    in_double: bool = False, c: str | None = None, by: Callable[[Expr], Expr] | None = None,
) -> Intrinsic:
    """A function of floats, whose name in <math.h> is its own unless c says otherwise."""
    spelled = {"c": name if c is None else c}
    return Intrinsic(
        name, arity, compute, spelled={k: v for k, v in spelled.items() if v},
        polynomial=polynomial, in_double=in_double, by=by,
    )


def _rounding(name: str, compute: Callable[..., Any], llvm: str, polynomial: str) -> Intrinsic:
    """A function of floats that is an instruction of many processors."""
    return Intrinsic(
        name, 1, compute, spelled={"c": name}, llvm=llvm, polynomial=polynomial, of_integers=_same
    )


def _bits(name: str, compute: Callable[..., Any], c: str, llvm: str = "") -> Intrinsic:
    """An operation on the bits of two integers."""
    return Intrinsic(name, 2, compute, spelled={"c": c}, llvm=llvm)


_ROWS = (
    _math("exp", _guard(math.exp), "math_exp.exp"),
    _math("exp2", _guard(lambda x: math.pow(2.0, x)), "math_exp.exp2"),
    _math("exp10", _guard(lambda x: math.pow(10.0, x)), "math_exp.exp10", in_double=True, c="",
          by=_exp10_by_pow),
    _math("log", _log, "math_exp.log"),
    _math("log2", lambda x: _log(x, math.log2), "math_exp.log2"),
    _math("log10", lambda x: _log(x, math.log10), "math_exp.log10"),
    _math("log1p", lambda x: -math.inf if x == -1 else _guard(math.log1p)(x), "math_exp.log1p"),
    Intrinsic("sqrt", 1, _guard(math.sqrt), spelled={"c": "sqrt"}, llvm="llvm.sqrt"),
    _math("rsqrt", lambda x: math.inf if x == 0 else 1 / _guard(math.sqrt)(x),
          "math_rounding.rsqrt", c="", by=_rsqrt_by_sqrt),
    _math("sin", _guard(math.sin), "math_trig.sin"),
    _math("cos", _guard(math.cos), "math_trig.cos"),
    _math("tan", _guard(math.tan), "math_trig.tan", in_double=True),
    _math("asin", _guard(math.asin), "math_inverse.asin"),
    _math("acos", _guard(math.acos), "math_inverse.acos"),
    _math("atan", math.atan, "math_inverse.atan"),
    _math("sinh", lambda x: math.copysign(_guard(math.sinh)(abs(x)), x), "math_inverse.sinh",
          in_double=True),
    _math("cosh", _guard(math.cosh), "math_inverse.cosh", in_double=True),
    _math("tanh", math.tanh, "math_exp.tanh"),
    _math("asinh", _guard(math.asinh), "math_inverse.asinh", in_double=True),
    _math("acosh", _guard(math.acosh), "math_inverse.acosh", in_double=True),
    _math("atanh", lambda x: math.copysign(math.inf, x) if abs(x) == 1 else _guard(math.atanh)(x),
          "math_inverse.atanh", in_double=True),
    _math("atan2", math.atan2, "math_inverse.atan2", 2, in_double=True),
    _math("erf", math.erf, "math_inverse.erf"),
    _math("sigmoid", _sigmoid, "math_exp.sigmoid", c="", by=_sigmoid_by_exp),
    _math("pow", _pow, "math_power.pow_", 2, in_double=True),
    Intrinsic("fmod", 2, lambda x, y: math.nan if y == 0 or math.isinf(x) else math.fmod(x, y),
              spelled={"c": "fmod"}),
    _math("hypot", math.hypot, "math_power.hypot", 2, in_double=True),
    Intrinsic("copysign", 2, math.copysign, spelled={"c": "copysign"}, llvm="llvm.copysign"),
    _math("nextafter", None, "math_rounding.nextafter", 2),
    _math("ldexp", None, "math_rounding.ldexp", 2),
    _rounding("floor", _keep_inf(math.floor), "llvm.floor", "math_rounding.floor"),
    _rounding("ceil", _keep_inf(math.ceil), "llvm.ceil", "math_rounding.ceil"),
    _rounding("trunc", _keep_inf(math.trunc), "llvm.trunc", "math_rounding.trunc"),
    _rounding("round", _round_away, "llvm.round", "math_rounding.round_away"),
    _rounding("nearbyint", _keep_inf(round), "llvm.rint", "math_rounding.nearbyint"),
    Intrinsic("abs", 1, abs, spelled={"c": "fabs"}, llvm="llvm.fabs", of_integers=_size),
    Intrinsic("isnan", 1, math.isnan, result="bool", of_integers=_never),
    Intrinsic("isinf", 1, math.isinf, result="bool", of_integers=_never),
    Intrinsic("isfinite", 1, math.isfinite, result="bool", of_integers=_always),
    _bits("bitwise_and", lambda a, b: a & b, "&", "and"),
    _bits("bitwise_or", lambda a, b: a | b, "|", "or"),
    _bits("bitwise_xor", lambda a, b: a ^ b, "^", "xor"),
    Intrinsic("bitwise_not", 1, lambda a: ~a),
    _bits("shift_left", lambda a, b: a << b, "<<", "shl"),
    _bits("shift_right", lambda a, b: a >> b, ">>"),
    Intrinsic("popcount", 1, None, llvm="llvm.ctpop"),
    Intrinsic("clz", 1, None, llvm="llvm.ctlz"),
    Intrinsic("if_then_else", 3, None),
    Intrinsic("likely", 1, lambda c: c),
    Intrinsic("exact", 1, lambda x: x),
    Intrinsic("saturate", 1, None),
    Intrinsic("reinterpret", 1, None),
    Intrinsic("dot4", 3, None),
    Intrinsic("dot2", 2, None),
    Intrinsic("add_pairs", 2, None),
    Intrinsic("widen_even", 1, halves.even_of_bytes, of_integers=halves.even_by_shifts),
    Intrinsic("widen_odd", 1, halves.odd_of_bytes, of_integers=halves.odd_by_shifts),
    Intrinsic("join_halves", 2, halves.joined, of_integers=halves.join_by_shifts),
    Intrinsic("high_product", 2, halves.high_of_product, of_integers=halves.high_by_int64),
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
    Intrinsic("storage_sync", 1, None, has_effect=True, result="int32"),
    Intrinsic("tvm_warp_shuffle", 5, None, has_effect=True),
    Intrinsic("tvm_warp_shuffle_up", 5, None, has_effect=True),
    Intrinsic("tvm_warp_shuffle_down", 5, None, has_effect=True),
    Intrinsic("tvm_warp_shuffle_xor", 5, None, has_effect=True),
    Intrinsic("tvm_warp_activemask", 0, None, has_effect=True, result="uint32"),
    Intrinsic("any_type", 2, None, result="int32"),
    Intrinsic("any_value", 2, None),
    Intrinsic("any_tensor", 2, None, result="handle"),
    Intrinsic("check_array", -1, None, has_effect=True, result="int32"),
    Intrinsic("tensor_data", 1, None, result="handle"),
    Intrinsic("tensor_ndim", 1, None, result="int32"),
    Intrinsic("tensor_device", 1, None, result="int32"),
    Intrinsic("tensor_dtype", 1, None, result="int32"),
    Intrinsic("tensor_shape", 2, None, result="int64"),
    Intrinsic("tensor_has_strides", 1, None, result="bool"),
    Intrinsic("tensor_stride", 2, None, result="int64"),
)

INTRINSICS = {row.name: row for row in _ROWS}


def register_intrinsic(row: Intrinsic) -> Intrinsic:
    """Make known one more function that a Call may name."""
    if INTRINSICS.setdefault(row.name, row) is not row:
        raise ValueError(f"there is an intrinsic '{row.name}' already; give yours another name")
    return row


class Known(Container[str]):
    """The names of the intrinsics of which a row says something."""

    def __init__(self, says: Callable[[Intrinsic], object]) -> None:
        self.says = says

    def __contains__(self, name: object) -> bool:
        row = INTRINSICS.get(name) if isinstance(name, str) else None
        return row is not None and bool(self.says(row))
