"""Products of matrices in registers that hold small matrices, where a processor has them.

    nn.dense(%x, const)  ->  nn.dense_tiles(%x, packed, units=768)

The operator's record says what it becomes.
"""

from typing import Any

from sterna.ir.transform import Pass, function_pass
from sterna.relay.expr import Call, Function, RelayExpr
from sterna.relay.op import OpRecord
from sterna.relay.passes.rewrite_calls import rewrite_calls


def Tiles(processor: Any = None) -> Pass:
    """Multiply by known weights in tiles where that pays; without a processor nothing changes."""
    made: Pass = function_pass(
        lambda func, mod, context: func if processor is None else tiles(func, processor),
        opt_level=3, name="Tiles", kind=Function,
    )
    return made


def tiles(func: Function, processor: Any) -> Function:
    """The function with what costs less in the place of products of matrices."""

    def answer(record: OpRecord, call: Call) -> RelayExpr | None:
        return None if record.tiles is None else record.tiles(call, processor)

    return rewrite_calls(func, answer) if processor.matrix_tiles else func
