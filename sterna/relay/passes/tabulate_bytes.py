"""Lookup tables: what floats between bytes make of each of 256 numbers, computed now.

    qnn.quantize(sigmoid(qnn.dequantize(%x)))  ->  take(table, %x)

Elementwise calls between a tensor of bytes and one that follows, whose other operands are single
known numbers, are a function of one byte. Where it leads through floats, it takes conversions, a
division and whatever the function itself takes for vectors of elements; looking one up is two loads
and a store, or a vector of them some shuffles where registers hold the table. What costs less is
taken.
"""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from sterna.ir.transform import Pass, function_pass
from sterna.ir.types import TensorType
from sterna.relay.arrays import Array, numpy_dtype, shared_numpy
from sterna.relay.expr import Call, Constant, Function, RelayExpr, const
from sterna.relay.op import BROADCAST, call, rules_of
from sterna.relay.traverse import not_primitive, post_order, rewrite
from sterna.support.dtype import DataType

BYTES = ("int8", "uint8")
BYTE, FLOAT32 = DataType("uint8"), DataType("float32")
# Accesses to memory of a lookup, and what a call between bytes takes of a vector, a division among
# such calls, beside the function that it may be; as measured.
LOOKUP_ACCESSES = 3
CALL_INSTRUCTIONS = 12


def TabulateBytes(processor: Any = None) -> Pass:
    """Look up what floats between bytes would compute, unless vectors compute it sooner."""
    made: Pass = function_pass(
        lambda func, mod, context: tabulate_bytes(func, processor),
        opt_level=2, name="TabulateBytes", kind=Function,
    )
    return made


@dataclass(frozen=True, slots=True)
class _OfByte:
    """What an expression is of all bytes that another one may hold."""

    byte: RelayExpr
    values: Array
    in_floats: bool = False
    """Whether it is a float, or was made of some."""
    instructions: int = 0
    """Those that a vector of it takes."""

    def pays(self, processor: Any) -> bool:
        """Whether an element is looked up in no more cycles than it is computed."""
        if not self.in_floats or str(self.values.dtype) not in BYTES:
            return False
        if processor is None:
            return True
        lanes, core = processor.lanes(FLOAT32), processor.throughput
        computed: float = self.instructions / (lanes * core.multiply_adds)
        looked_up: float = LOOKUP_ACCESSES / core.loads
        if processor.byte_lookup:
            vectors = processor.lanes(BYTE) * core.multiply_adds
            looked_up = min(looked_up, processor.byte_lookup / vectors)
        return looked_up <= computed


def tabulate_bytes(func: Function, processor: Any = None) -> Function:
    """The function with lookups in the place of calls between bytes that compute in floats."""
    if func.is_primitive:
        return func
    found: dict[int, _OfByte] = {}
    for expr in post_order(func, not_primitive):
        known = _known_of_byte(expr, found)
        if known is not None:
            found[id(expr)] = known
    tables = {key: of for key, of in found.items() if of.pays(processor)}
    if not tables:
        return func
    bytes_now: dict[int, RelayExpr] = {id(of.byte): of.byte for of in tables.values()}

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        if id(old) in tables:
            of = tables[id(old)]
            new = _looked_up(of.values, bytes_now[id(of.byte)], _byte_type(of.byte))
            new.span = old.span
        if id(old) in bytes_now:
            bytes_now[id(old)] = new
        return new

    made = rewrite(func, change, not_primitive)
    assert isinstance(made, Function)
    return made


def _byte_type(expr: RelayExpr) -> TensorType | None:
    """The type of a tensor of bytes whose extents are known."""
    kind = expr.checked_type
    if not isinstance(kind, TensorType) or not kind.is_static or not kind.shape:
        return None
    return kind if str(kind.dtype) in BYTES else None


def _known_of_byte(expr: RelayExpr, found: dict[int, _OfByte]) -> _OfByte | None:
    """What a call is of each byte, if all that it reads is of the same one."""
    record = rules_of(expr)
    if record is None or record.pattern > BROADCAST or record.reference is None:
        return None
    assert isinstance(expr, Call)
    kind = expr.checked_type
    if not record.foldable or not isinstance(kind, TensorType) or not kind.is_static:
        return None
    operands = [_operand(arg, kind, found) for arg in expr.args]
    of = [each for each in operands if isinstance(each, _OfByte)]
    if None in operands or not of or any(each.byte is not of[0].byte for each in of):
        return None
    arrays = [each.values if isinstance(each, _OfByte) else each for each in operands]
    with np.errstate(all="ignore"):
        values = np.asarray(record.reference(expr.attrs, *arrays))
    if values.shape != of[0].values.shape or values.dtype != numpy_dtype(kind.dtype):
        return None
    in_floats = kind.dtype.is_float or any(each.in_floats for each in of)
    before = {id(each): each.instructions for each in of}
    own = CALL_INSTRUCTIONS + record.instructions
    return _OfByte(of[0].byte, values, in_floats, own + sum(before.values()))


def _operand(
    arg: RelayExpr, result: TensorType, found: dict[int, _OfByte]
) -> _OfByte | Array | None:
    """A single number, or what is known of bytes; None for all else."""
    kind = arg.checked_type
    if not isinstance(kind, TensorType):
        return None
    if isinstance(arg, Constant):
        single = math.prod(kind.concrete_shape) == 1 and len(kind.shape) <= len(result.shape)
        return shared_numpy(arg.data) if single else None
    if kind.shape != result.shape:
        return None
    if id(arg) in found:
        return found[id(arg)]
    own = _byte_type(arg)
    if own is None:
        return None
    first = np.iinfo(numpy_dtype(own.dtype)).min
    every = np.arange(first, first + 256).astype(numpy_dtype(own.dtype))
    return _OfByte(arg, every.reshape(*[1] * (len(own.shape) - 1), 256))


def _looked_up(values: Array, byte: RelayExpr, kind: TensorType | None) -> Call:
    assert kind is not None
    table = const(values.reshape(256))
    index = call("cast", byte, dtype="int32")
    if kind.dtype.is_int:
        index = call("add", index, const(np.int32(128)))
    return call("take", table, index, mode="fast")
