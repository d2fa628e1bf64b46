"""Products of Tensor Cores whose first factor is in registers, beside those of warpgroups.py.

    wgmma_registers(kind, columns, sums, words, b, b_along_rows)
                               sums += a times b: 64 rows and so many columns in the registers of
                               four warps. a: four words of each thread, of two numbers each, in the
                               order in which a product before left its sums. b: a descriptor of a
                               matrix in shared memory
"""

from sterna.ir import build
from sterna.ir.expr import INT32, Call, Expr, StringImm
from sterna.support.dtype import DataType
from sterna.tir.external import address_of
from sterna.tir.intrinsics import Intrinsic, register_intrinsic
from sterna.tir.stmt import BufferLoad

register_intrinsic(Intrinsic("wgmma_registers", 6, None, has_effect=True, result="int32"))


def wgmma_registers(
    kind: DataType | str, columns: int, sums: BufferLoad, words: BufferLoad, b: Expr,
    b_along_rows: bool,
) -> Expr:
    """Add a product to sums; sums and words: the first of this thread's own."""
    return Call(INT32, "wgmma_registers", (
        StringImm(str(kind)), build.const(columns), address_of(sums), address_of(words), b,
        build.const(int(b_along_rows)),
    ))
