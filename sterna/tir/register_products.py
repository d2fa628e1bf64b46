"""Products of Tensor Cores whose first factor is in registers, beside those of warpgroups.py.

    wgmma_registers(kind, columns, sums, words, b, adds, b_along_rows)
                               sums = a times b, plus sums if adds: 64 rows and so many columns in
                               the registers of four warps. a: four words of each thread, of two
                               numbers each, in the order in which a product before left its sums;
                               of float32 one number each, of which ten bits of the fraction count.
                               b: a descriptor of a matrix in shared memory
    load_float(to, from), load_pair(to, from)
                               a number of float32 from shared memory, or two
    fetch_quad(to, address)    four numbers of float32 from the device's memory
    fetch_once(to, address)    16 bytes from there that stay in no cache of the processor
    keep_words(to, a, b, c, d), store_words(address, a, b, c, d)
                               16 bytes into shared memory, or into the device's
    take_ticket(to, address)   the next number of a count in the device's memory
    add_count(address), await_count(address, n)
                               what this warp has stored is there for copies, and is counted; wait
                               for a count of n, and for what was counted
    settle(first, n)           n registers hold what products that were waited for have made:
                               nothing that reads them is moved before
    larger(x, y), flushed_exp2(x)
                               float32: the larger number, and a power of two; subnormal ones are 0
"""

import math
from collections.abc import Sequence

from sterna.ir import build
from sterna.ir.expr import INT32, Call, Expr, ExprLike, StringImm
from sterna.support.dtype import DataType
from sterna.tir.external import address_of
from sterna.tir.intrinsics import Intrinsic, register_intrinsic
from sterna.tir.stmt import BufferLoad

for _row in (
    Intrinsic("wgmma_registers", 7, None, has_effect=True, result="int32"),
    Intrinsic("load_float", 2, None, has_effect=True, result="int32"),
    Intrinsic("load_pair", 2, None, has_effect=True, result="int32"),
    Intrinsic("fetch_quad", 2, None, has_effect=True, result="int32"),
    Intrinsic("fetch_once", 2, None, has_effect=True, result="int32"),
    Intrinsic("keep_words", 5, None, has_effect=True, result="int32"),
    Intrinsic("store_words", 5, None, has_effect=True, result="int32"),
    Intrinsic("take_ticket", 2, None, has_effect=True, result="int32"),
    Intrinsic("add_count", 1, None, has_effect=True, result="int32"),
    Intrinsic("await_count", 2, None, has_effect=True, result="int32"),
    Intrinsic("settle", 2, None, has_effect=True, result="int32"),
    Intrinsic("larger", 2, lambda x, y: y if math.isnan(x) or y > x else x, result="float32"),
    Intrinsic("flushed_exp2", 1, lambda x: math.exp2(x) if x >= -126 else 0.0, result="float32"),
):
    register_intrinsic(_row)


def wgmma_registers(
    kind: DataType | str, columns: int, sums: BufferLoad, words: BufferLoad, b: Expr,
    adds: ExprLike, b_along_rows: bool,
) -> Expr:
    """Multiply 64 rows with so many columns; sums and words: the first of this thread's own."""
    return Call(INT32, "wgmma_registers", (
        StringImm(str(kind)), build.const(columns), address_of(sums), address_of(words), b,
        build.as_expr(adds), build.const(int(b_along_rows)),
    ))


def load_float(element: BufferLoad, source: Expr) -> Expr:
    """Load a float from shared memory into an element of private memory."""
    return Call(INT32, "load_float", (address_of(element), source))


def load_pair(first: BufferLoad, source: Expr) -> Expr:
    """Load two floats from shared memory, from an element of private memory on."""
    return Call(INT32, "load_pair", (address_of(first), source))


def fetch_quad(first: BufferLoad, element: BufferLoad) -> Expr:
    """Load four floats from where an element is, from an element of private memory on."""
    return Call(INT32, "fetch_quad", (address_of(first), address_of(element)))


def fetch_once(first: BufferLoad, element: BufferLoad) -> Expr:
    """Load 16 bytes from where an element is, past the processor's cache, from an element of
    private memory on."""
    return Call(INT32, "fetch_once", (address_of(first), address_of(element)))


def keep_words(to: Expr, words: Sequence[Expr]) -> Expr:
    """Put four words into shared memory."""
    return Call(INT32, "keep_words", (to, *words))


def store_words(element: BufferLoad, words: Sequence[Expr]) -> Expr:
    """Put four words where an element is."""
    return Call(INT32, "store_words", (address_of(element), *words))


def take_ticket(to: BufferLoad, count: BufferLoad) -> Expr:
    """Put what a count is into private memory, and count one further."""
    return Call(INT32, "take_ticket", (address_of(to), address_of(count)))


def add_count(count: BufferLoad) -> Expr:
    """Count what all lanes of a warp have stored."""
    return Call(INT32, "add_count", (address_of(count),))


def await_count(count: BufferLoad, wanted: Expr) -> Expr:
    """Wait until so much was counted."""
    return Call(INT32, "await_count", (address_of(count), wanted))


def settle(first: BufferLoad, count: int) -> Expr:
    """What products have put into so many registers, from one on, is there."""
    return Call(INT32, "settle", (address_of(first), build.const(count)))


def larger(x: Expr, y: Expr) -> Expr:
    """The larger of two floats, or the one that is a number."""
    return Call(DataType("float32"), "larger", (x, y))


def flushed_exp2(x: Expr) -> Expr:
    """2 to the power of x, within two units of the last place; 0 below the normal numbers."""
    return Call(DataType("float32"), "flushed_exp2", (x,))
