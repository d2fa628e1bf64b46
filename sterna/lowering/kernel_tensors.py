"""A fused function as tensor expressions: its anchor, the prologue before it, its epilogue.

Each call becomes the tensors of its operator's computation; parameters become placeholders, and
scalars become constants. The operator whose loops the kernel follows is its anchor: the last of
those that are the most, if these are more than injective, or else the last.
"""

from dataclasses import dataclass
from typing import Any

from sterna.ir import build
from sterna.ir.types import TensorType, TupleType, flatten_type
from sterna.relay.arrays import to_numpy
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.op import BROADCAST, COMM_REDUCE, ELEMWISE, AnyOp, record_of
from sterna.relay.passes.fuse_ops import FIXED
from sterna.relay.traverse import post_order
from sterna.schedule.device_target import written_for
from sterna.schedule.epilogue import epilogue_of
from sterna.schedule.kernel import ScheduleTarget
from sterna.schedule.registry import WholeKernel
from sterna.te import Operation, PlaceholderOp, Tensor, compute, placeholder

# The tensor of an expression, or those of a tuple.
Value = Any


@dataclass(slots=True)
class KernelTensors:
    """A kernel before it is scheduled."""

    inputs: list[Tensor]
    outputs: list[Tensor]
    anchor: list[Tensor]
    """The anchor's results."""
    anchor_record: AnyOp
    own: set[Operation]
    """The operations that the anchor's computation consists of."""
    is_flat: bool
    """Whether every operand is read at the very index that is written."""


def kernel_tensors(
    func: Function, gpu: ScheduleTarget | None = None, write: WholeKernel | None = None
) -> KernelTensors:
    """The tensors of a primitive function; gpu: the one that it is made for, if it is one.

    write: what may give the statements of whole kernels there.
    """
    return _Translator(func, gpu, write).run()


class _Translator:
    def __init__(
        self, func: Function, gpu: ScheduleTarget | None, write: WholeKernel | None
    ) -> None:
        self.func = func
        self.gpu = gpu
        self.write = write
        self.values: dict[int, Value] = {}
        self.anchor: tuple[AnyOp, list[Tensor], set[Operation]] | None = None
        self.anchor_call: tuple[Call, list[Value]] | None = None
        self.highest = ELEMWISE

    def run(self) -> KernelTensors:
        inputs = [self._parameter(param) for param in self.func.params]
        for expr in post_order(self.func.body):
            if id(expr) not in self.values:
                self.values[id(expr)] = self._translate(expr)
        outputs = _distinct(flatten(self.values[id(self.func.body)]))
        assert self.anchor is not None
        outputs = self._on_gpu(outputs) or self._with_epilogue(outputs)
        record, anchor, own = self.anchor
        shapes = {tuple(map(str, tensor.shape)) for tensor in (*inputs, *outputs) if tensor.shape}
        flat = self.highest <= BROADCAST and len(shapes) == 1
        return KernelTensors(inputs, outputs, anchor, record, own, flat)

    def _on_gpu(self, outputs: list[Tensor]) -> list[Tensor]:
        """The outputs by statements of a GPU's own; none if it has none for them."""
        if self.gpu is None or self.write is None:
            return []
        given = [self.values[id(param)] for param in self.func.params]
        fixed = {given[place] for place in (self.func.attrs or {}).get(FIXED, ())}
        whole = self.write(outputs, self.gpu, fixed)
        if whole is None:
            return []
        assert self.anchor is not None
        self.anchor = (self.anchor[0], [whole], {whole.op})
        return [whole]

    def _with_epilogue(self, outputs: list[Tensor]) -> list[Tensor]:
        """The outputs, as the anchor itself makes them if it can."""
        assert self.anchor is not None and self.anchor_call is not None
        record, made, _ = self.anchor
        compute_with = record.contraction.compute_with
        if compute_with is None or len(outputs) != 1 or len(made) != 1:
            return outputs
        epilogue = epilogue_of(made[0], outputs[0])
        if epilogue is None:
            return outputs
        call, operands = self.anchor_call
        whole = compute_with(call.attrs, call.checked_type, epilogue, *operands)
        if whole is None:
            return outputs
        given = {tensor.op for value in operands for tensor in flatten(value)}
        given |= {tensor.op for tensor in epilogue.reads}
        self.anchor = (record, [whole], _operations_between([whole], given))
        return [whole]

    def _parameter(self, param: Var) -> Tensor:
        kind = param.checked_type
        assert isinstance(kind, TensorType)
        made = placeholder(kind.shape, kind.dtype, name=param.name_hint)
        self.values[id(param)] = made
        return made

    def _translate(self, expr: RelayExpr) -> Value:
        if isinstance(expr, Constant):
            return _constant(expr)
        if isinstance(expr, Tuple):
            return [self.values[id(part)] for part in expr.fields]
        if isinstance(expr, TupleGetItem):
            return self.values[id(expr.tuple_value)][expr.index]
        assert isinstance(expr, Call)
        return self._call(expr)

    def _call(self, call: Call) -> Value:
        record = record_of(call)
        if record is None:
            raise ValueError(f"a kernel calls operators only, not {call.op!r}")
        if record.compute is None:
            raise ValueError(
                f"{record.name} has no computation of its own; a pass must rewrite it first"
            )
        operands = [self.values[id(arg)] for arg in call.args]
        given = {tensor.op for value in operands for tensor in flatten(value)}
        made = None
        if self.gpu is not None and record.compute_by_threads is not None:
            with written_for(self.gpu):
                made = record.compute_by_threads(call.attrs, call.checked_type, *operands)
        if made is None:
            made = record.compute(call.attrs, call.checked_type, *operands)
        value = list(made) if isinstance(made, list | tuple) else made
        if isinstance(call.checked_type, TupleType) and not isinstance(value, list):
            value = [value]
        _check_types(record, call, flatten(value))
        if self._consider_anchor(record, flatten(value), given):
            self.anchor_call = (call, operands)
        return value

    def _consider_anchor(
        self, record: AnyOp, made: list[Tensor], given: set[Operation]
    ) -> bool:
        """Whether the kernel follows this call's loops, as far as is known."""
        self.highest = max(self.highest, record.pattern)
        held = self.anchor[0].pattern if self.anchor is not None else -1
        if held >= COMM_REDUCE and record.pattern < held:
            return False
        self.anchor = (record, made, _operations_between(made, given))
        return True


def flatten(value: Value) -> list[Tensor]:
    """The tensors in a value."""
    if isinstance(value, list | tuple):
        return [tensor for part in value for tensor in flatten(part)]
    return [value]


def _constant(expr: Constant) -> Tensor:
    array = to_numpy(expr.data)
    if array.ndim:
        raise ValueError("a kernel holds scalar constants only; arrays are its parameters")
    number = build.const(array.item(), expr.data.dtype)
    made: Tensor = compute((), lambda: number, name="constant")
    return made


def _distinct(outputs: list[Tensor]) -> list[Tensor]:
    """The outputs, each a tensor of its own: inputs and repeated tensors are copied."""
    seen: set[Tensor] = set()
    distinct = []
    for tensor in outputs:
        if tensor in seen or isinstance(tensor.op, PlaceholderOp):
            tensor = _copy(tensor)
        seen.add(tensor)
        distinct.append(tensor)
    return distinct


def _copy(tensor: Tensor) -> Tensor:
    made: Tensor = compute(tensor.shape, lambda *i: tensor(*i), name="T_copy")
    return made


def _operations_between(made: list[Tensor], given: set[Operation]) -> set[Operation]:
    """The operations that make tensors out of given ones."""
    found: set[Operation] = set()
    stack = [tensor.op for tensor in made]
    while stack:
        op = stack.pop()
        if op not in found and op not in given:
            found.add(op)
            stack += [tensor.op for tensor in op.input_tensors]
    return found


def _check_types(record: AnyOp, call: Call, made: list[Tensor]) -> None:
    kinds = flatten_type(call.checked_type)
    if len(kinds) != len(made):
        raise ValueError(f"{record.name} makes {len(made)} tensors, its type says {len(kinds)}")
    for kind, tensor in zip(kinds, made, strict=True):
        shape = tuple(build.int_value(extent) for extent in tensor.shape)
        if (kind.is_static and shape != kind.shape) or kind.dtype != tensor.dtype:
            raise ValueError(
                f"{record.name} makes {tensor.dtype}{list(tensor.shape)}, its type says {kind!r}"
            )
