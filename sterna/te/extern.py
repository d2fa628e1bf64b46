"""Opaque operations: tensors made by the user's own statements, or by a function they call."""

from collections.abc import Callable, Sequence
from typing import Any

from sterna.arith import Analyzer, substitute
from sterna.ir import build
from sterna.ir.expr import Call, Expr, Var
from sterna.ir.node import Node, nodes_of, post_order
from sterna.support.dtype import DataType
from sterna.te.operation import Shape, as_shape
from sterna.te.tag import tag_in_scope
from sterna.te.tensor import Operation, ProducerLoad, Tensor
from sterna.tir.buffer import decl_buffer
from sterna.tir.copy import copy_stmt
from sterna.tir.external import strides_of
from sterna.tir.stmt import Buffer, BufferLoad, BufferStore, Evaluate, PrimFunc, Stmt


class ExternOp(Operation):
    """Whole tensors from whole tensors, by a statement over buffers that stand for them."""

    def __init__(
        self,
        name: str,
        inputs: Sequence[Tensor],
        shapes: Sequence[Sequence[Expr]],
        input_placeholders: Sequence[Buffer],
        output_placeholders: Sequence[Buffer],
        body: Stmt,
        tag: str = "",
        attrs: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(name, tag, attrs)
        self.inputs = list(inputs)
        self.shapes = list(shapes)
        self.input_placeholders = list(input_placeholders)
        self.output_placeholders = list(output_placeholders)
        self.body = body
        self.outputs = [
            Tensor(self, i, shape, buffer.dtype)
            for i, (shape, buffer) in enumerate(zip(shapes, output_placeholders, strict=True))
        ]

    @property
    def input_tensors(self) -> list[Tensor]:
        return list(dict.fromkeys(self.inputs))

    def rewritten(self, change: Callable[[Expr], Expr]) -> Operation:
        inputs: list[Tensor] = []
        for tensor in self.inputs:
            read = change(tensor(*[build.const(0)] * tensor.ndim))
            if not isinstance(read, ProducerLoad):
                raise ValueError(f"{tensor.name} cannot be inlined into {self.name}, an extern")
            inputs.append(read.tensor)
        return ExternOp(
            self.name, inputs, self.shapes, self.input_placeholders, self.output_placeholders,
            self.body, self.tag, self.attrs,
        )


def extern(
    shape: Shape | Sequence[Shape],
    inputs: Sequence[Tensor],
    fcompute: Callable[[list[Buffer], list[Buffer]], Stmt | Expr],
    name: str = "extern",
    dtype: str | Sequence[str] | None = None,
    in_buffers: Buffer | Sequence[Buffer] | None = None,
    out_buffers: Buffer | Sequence[Buffer] | None = None,
    tag: str = "",
    attrs: dict[str, Any] | None = None,
) -> Any:
    """Tensors that a statement fills: fcompute gets buffers for the inputs and for the outputs.

    It returns the statement, or a call such as call_packed("name", ins[0], outs[0]). A list of
    shapes makes several tensors. The type is that of the inputs, unless dtype says otherwise.
    """
    tensors: list[Any] = list(inputs) if isinstance(inputs, tuple | list) else [inputs]
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise ValueError(f"extern {name}: expect inputs to be tensor, not {tensor!r}")
    ins = _given(in_buffers) or [decl_buffer(t.shape, t.dtype, t.op.name) for t in tensors]
    if len(ins) != len(tensors):
        raise ValueError(f"extern {name}: {len(ins)} in_buffers for {len(tensors)} inputs")
    for tensor, buffer in zip(tensors, ins, strict=True):
        _check_buffer(name, tensor.name, buffer, tensor.shape, tensor.dtype)
    shapes = _shapes(shape)
    outs = _given(out_buffers)
    if not outs:
        kinds = _output_types(name, tensors, dtype, len(shapes))
        outs = [decl_buffer(s, t, name) for s, t in zip(shapes, kinds, strict=True)]
    if len(outs) != len(shapes):
        raise ValueError(f"extern {name}: {len(outs)} out_buffers for {len(shapes)} outputs")
    for i, (extents, buffer) in enumerate(zip(shapes, outs, strict=True)):
        _check_buffer(name, f"output {i}", buffer, extents, buffer.dtype)
    body = fcompute(list(ins), list(outs))
    stmt = Evaluate(body) if isinstance(body, Expr) else body
    if not isinstance(stmt, Stmt):
        raise ValueError(
            f"extern {name}: its function must return a statement or an expression, not {body!r}"
        )
    _refuse_tensors(name, stmt)
    op = ExternOp(name, tensors, shapes, ins, outs, stmt, tag_in_scope(tag), attrs)
    return op.output(0) if len(op.outputs) == 1 else list(op.outputs)


def _given(buffers: Buffer | Sequence[Buffer] | None) -> list[Buffer]:
    if buffers is None:
        return []
    return [buffers] if isinstance(buffers, Buffer) else list(buffers)


def _shapes(shape: Shape | Sequence[Shape]) -> list[list[Expr]]:
    listed = isinstance(shape, tuple | list) and any(isinstance(s, tuple | list) for s in shape)
    several: Any = shape if listed else [shape]
    return [as_shape(one) for one in several]


def _output_types(
    name: str, inputs: Sequence[Tensor], dtype: str | Sequence[str] | None, count: int
) -> list[str]:
    if dtype is None:
        kinds = {t.dtype for t in inputs}
        if len(kinds) != 1:
            raise ValueError(
                f"extern {name}: Cannot infer output type, please provide dtype argument"
            )
        return [kinds.pop()] * count
    if isinstance(dtype, str):
        return [dtype] * count
    if len(dtype) != count:
        raise ValueError(f"extern {name}: {len(dtype)} types for {count} outputs")
    return list(dtype)


def _check_buffer(
    name: str, what: str, buffer: Buffer, shape: Sequence[Expr], dtype: DataType
) -> None:
    """A buffer stands for a tensor if it can have its shape and has its type."""
    if not isinstance(buffer, Buffer):
        raise TypeError(f"extern {name}: {what} needs a buffer, not {buffer!r}")
    same = buffer.dtype == dtype and len(buffer.shape) == len(shape)
    for a, b in zip(buffer.shape, shape, strict=False):
        same = same and (isinstance(a, Var) or Analyzer().can_prove_equal(a, b))
    if not same:
        shown = ", ".join(map(str, shape))
        raise ValueError(
            f"extern {name}: the buffer {buffer} cannot stand for {what}, {dtype}[{shown}]"
        )


def _refuse_tensors(name: str, body: Stmt) -> None:
    for load in nodes_of(body, ProducerLoad):
        raise ValueError(
            f"extern {name}: its body reads the tensor {load.tensor.name}; list that among the "
            "inputs and read the buffer that stands for it"
        )


def extern_primfunc(input_tensors: Sequence[Tensor], primfunc: PrimFunc, **options: Any) -> Any:
    """The tensors that a function of loops writes, from tensors in the place of those it reads."""
    written = {id(b) for b in _stored_buffers(primfunc.body)}
    buffers = [b for b in primfunc.buffers if b is not None]
    ins = [b for b in buffers if id(b) not in written]
    outs = [b for b in buffers if id(b) in written]
    if not outs:
        raise ValueError(f"extern_primfunc: {primfunc.name} writes none of its buffers")
    if len(ins) != len(input_tensors):
        raise ValueError(
            f"extern_primfunc: {primfunc.name} reads {len(ins)} buffers "
            f"({', '.join(b.name for b in ins)}), not {len(input_tensors)}"
        )
    options.setdefault("name", primfunc.name)
    return extern(
        [b.shape for b in outs], input_tensors, lambda _ins, _outs: primfunc.body,
        in_buffers=ins, out_buffers=outs, **options,
    )


def _stored_buffers(body: Stmt) -> list[Buffer]:
    """The buffers that a statement writes."""
    found: list[Buffer] = []

    def look(node: Node) -> None:
        if isinstance(node, BufferStore):
            found.append(node.buffer)

    post_order(body, look)
    return found


# ---- lowering ----


def extern_body(op: ExternOp, inputs: Sequence[Buffer], outputs: Sequence[Buffer]) -> Stmt:
    """The operation's statement over the buffers where its tensors are kept."""
    values: dict[Var, Expr] = {}
    buffers: dict[Buffer, Buffer] = {}
    declared = [*op.input_placeholders, *op.output_placeholders]
    for stand_in, actual in zip(declared, [*inputs, *outputs], strict=True):
        if actual.strides and not stand_in.strides and _takes_address(op.body, stand_in):
            raise ValueError(
                f"extern {op.name} takes the address of {stand_in.name}, which storage_align pads; "
                "declare its buffer with strides, or leave it without gaps"
            )
        buffers[stand_in] = actual
        values[stand_in.data] = actual.data
        _bind(op, values, stand_in, "shape", stand_in.shape, actual.shape)
        if stand_in.strides:
            _bind(op, values, stand_in, "strides", stand_in.strides, strides_of(actual))
    return copy_stmt(op.body, values, buffers)


def _takes_address(body: Stmt, buffer: Buffer) -> bool:
    found: list[Node] = []

    def look(node: Node) -> None:
        element = node.args[0] if isinstance(node, Call) and node.op == "address_of" else None
        if node is buffer.data or (isinstance(element, BufferLoad) and element.buffer is buffer):
            found.append(node)

    post_order(body, look)
    return bool(found)


def _bind(
    op: ExternOp, values: dict[Var, Expr], stand_in: Buffer, what: str, declared: Sequence[Expr],
    actual: Sequence[Expr],
) -> None:
    """Variables in a declared shape or strides stand for what the tensor has there."""
    for a, b in zip(declared, actual, strict=True):
        if isinstance(a, Var) and a is not b:
            values.setdefault(a, b)
        if not Analyzer().can_prove_equal(substitute(a, values), b):
            raise ValueError(
                f"extern {op.name}: the {what} of the buffer {stand_in.name} cannot be "
                f"({', '.join(map(str, actual))})"
            )
