"""Arithmetic and traffic of a kernel, for profiles against a roofline and for cost models."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from sterna.ir.types import TensorType, Type, flatten_type
from sterna.relay.expr import Call, Function, Var
from sterna.relay.op import INJECTIVE, AnyOp, is_packed, record_of
from sterna.relay.traverse import post_order
from sterna.schedule.contraction import Contraction
from sterna.schedule.implementation import products_of, transformed_work_of
from sterna.support.dtype import DataType


@dataclass(frozen=True, slots=True)
class Work:
    """Floating-point operations and bytes of one run of a kernel."""

    flops: int
    bytes: int
    written_bytes: int
    """Those of them that are its results."""
    packing_overhead: int
    """The part of its weights' bytes that the model's own weights do not have."""
    function_steps: int = 0
    """Instructions of its functions of elements that are none themselves, at the least and for
    each lane; not among the operations."""
    spared_flops: int = 0
    """Those of the operations that a transform of Winograd's spares it."""
    way: str = ""
    """Which transform that is: Winograd F(4, 3)."""
    product_flops: int = 0
    """Those of the operations that are multiply-adds."""
    product_type: str = ""
    """Of what they multiply."""


def work_of(function: Function) -> Work:
    """A kernel's multiply-adds, or an operation per element; its operands are moved once."""
    if not is_closed(function):
        return Work(0, 0, 0, 0)  # only the run tells
    flops = packing_overhead = steps = spared = products = 0
    way = product_type = ""
    for expr in post_order(function.body):
        record = record_of(expr)
        if record is None or record.is_view:
            continue
        assert isinstance(expr, Call)
        kinds = [arg.checked_type for arg in expr.args]
        if record.macs is not None:
            macs = record.macs(expr.attrs, expr.checked_type, *kinds)
            flops += 2 * macs
            products += 2 * macs
            product_type = _narrowest(product_type, kinds)
            packing_overhead += _packing_overhead(record, expr)
            transformed = _transformed_work(record, expr)
            if transformed is not None:
                way, done = transformed
                spared += max(0, 2 * (macs - done))
        else:
            results = flatten_type(expr.checked_type)
            elements = sum(math.prod(kind.concrete_shape) for kind in results)
            flops += elements
            steps += elements * record.instructions
    readers = _readers(function)
    read = sum(_bytes_read(param, readers.get(id(param), ())) for param in function.params)
    written = bytes_of_all(function.body.checked_type)
    return Work(flops, read + written, written, packing_overhead, steps, spared, way, products,
                product_type)


def _narrowest(before: str, kinds: Sequence[Type]) -> str:
    """Of the types of operands, the bias and what is rescaled among them, that of the factors."""
    found = [leaf.dtype for kind in kinds[:2] for leaf in flatten_type(kind)]
    named = [*([DataType(before)] if before else []), *found]
    return str(min(named, key=lambda dtype: dtype.bits)) if named else ""


def _readers(function: Function) -> dict[int, list[Call]]:
    """The calls that read each value, by its identity."""
    found: dict[int, list[Call]] = {}
    for expr in post_order(function.body):
        if isinstance(expr, Call):
            for arg in {id(arg) for arg in expr.args}:
                found.setdefault(arg, []).append(expr)
    return found


def _bytes_read(param: Var, readers: Sequence[Call]) -> int:
    """Those of an operand; of a table that is only picked from, as many as results are made of."""
    whole, picked = bytes_of_all(param.checked_type), 0
    kinds = flatten_type(param.checked_type)
    for call in readers:
        record = record_of(call)
        if record is None or record.is_view or record.pattern > INJECTIVE or len(kinds) != 1:
            return whole
        elements = (math.prod(kind.concrete_shape) for kind in flatten_type(call.checked_type))
        picked += sum(elements) * kinds[0].dtype.bytes
    return min(whole, picked) if picked else whole


def is_picked_from(function: Function, param: Var) -> bool:
    """Whether results may be made of a few of an operand's elements, of one row again and again."""
    records = [record_of(call) for call in _readers(function).get(id(param), ())]
    return bool(records) and all(r is not None and r.pattern == INJECTIVE for r in records)


def is_closed(function: Function) -> bool:
    """Whether all extents of a kernel are known."""
    kinds = [leaf for param in function.params for leaf in flatten_type(param.checked_type)]
    return all(kind.is_static for kind in (*kinds, *flatten_type(function.body.checked_type)))


def _described(record: AnyOp, call: Call) -> Contraction | None:
    """What a packed call computes; None of others."""
    describe = record.contraction.describe
    if describe is None or call.attrs is None or not is_packed(call.attrs):
        return None
    made: Contraction | None = describe(call.attrs, *(arg.checked_type for arg in call.args))
    return made


def _transformed_work(record: AnyOp, call: Call) -> tuple[str, int] | None:
    """The name and the multiply-adds of a packed call that computes with transforms."""
    made = _described(record, call)
    return None if made is None or call.attrs is None else transformed_work_of(call.attrs, made)


def _packing_overhead(record: AnyOp, call: Call) -> int:
    """The bytes by which packed weights are larger than the model's."""
    made = _described(record, call)
    if made is None or call.attrs is None:
        return 0
    sets = made.matrices if made.own_weights else 1
    weights = sets * made.outputs * products_of(call.attrs, made) * made.weight.bytes
    packed: int = sum(bytes_of_all(arg.checked_type) for arg in call.args[1:])
    return max(0, packed - weights)


def bytes_of_all(kind: Type) -> int:
    """The memory that the tensors of a type take."""
    return sum(bytes_of(each) for each in flatten_type(kind))


def bytes_of(kind: TensorType) -> int:
    """The memory that a tensor takes; elements smaller than a byte share bytes."""
    return (math.prod(kind.concrete_shape) * kind.dtype.bits * kind.dtype.lanes + 7) // 8
