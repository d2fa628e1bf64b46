"""nn.linear_attention: attention whose past is a matrix that every step updates.

A step adds the outer product of its key and value to the state, and reads the state by its query.
Gated rules let the state decay first; delta rules write what the state lacks of the value.
"""

from typing import Any

import numpy as np

from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.ir.types import Any as AnyDim
from sterna.ir.types import TensorType, TupleType, Type
from sterna.op.checks import broadcast_shapes, expect_dim, not_empty, of_kind, same_dtype, tensor
from sterna.op.elementwise import quiet
from sterna.op.indexing import dims_of
from sterna.op.statements import loops, statements
from sterna.relay.arrays import Array
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.builders import make
from sterna.relay.expr import RelayExpr, RelayExprLike, as_expr, const
from sterna.relay.op import OPAQUE, Case, ContractionRules, OpRecord, call, register
from sterna.schedule.contraction import Contraction
from sterna.schedule.products import wide, widened
from sterna.te import Tensor
from sterna.tir import op as t
from sterna.tir.ir_builder import BufferVar, IRBuilder

RULES = ("linear", "gated", "delta", "gated_delta")


@attributes
class LinearAttentionAttrs(Attrs):
    """Of nn.linear_attention."""

    update_rule: str = "gated_delta"
    scale: float = 1.0

    def normalize(self) -> None:
        if self.update_rule not in RULES:
            raise ValueError(f"update_rule is one of {', '.join(RULES)}, not {self.update_rule!r}")

    @property
    def is_gated(self) -> bool:
        """Whether the state decays."""
        return self.update_rule in ("gated", "gated_delta")

    @property
    def is_delta(self) -> bool:
        """Whether a value is written less what the state holds of it."""
        return self.update_rule in ("delta", "gated_delta")


def _infer(
    attrs: LinearAttentionAttrs, query: Type, key: Type, value: Type, state: Type, decay: Type,
    beta: Type,
) -> TupleType:
    names = ["query", "key", "value"]
    kinds = [tensor(kind, name, 4) for kind, name in zip((query, key, value), names, strict=True)]
    of_kind(kinds[0], "query", "float")
    same_dtype(kinds, names)
    q, k, v = kinds
    batch, heads, length, width = k.shape
    past = of_kind(tensor(state, "state", 4), "state", "float")
    for have, want, what in (
        (q.shape[0], batch, "the batch of query"), (q.shape[2], length, "the length of query"),
        (q.shape[3], width, "the width of query"), (v.shape[0], batch, "the batch of value"),
        (v.shape[1], heads, "the number of heads of value"),
        (v.shape[2], length, "the length of value"),
    ):
        expect_dim(have, want, what)
    for have, want in zip(past.shape, (batch, heads, width, v.shape[3]), strict=True):
        expect_dim(have, want, "an extent of state (batch, heads, width of keys, of values)")
    not_empty(k, "key", [1], "its heads are")
    if type(q.shape[1]) is int and type(heads) is int and q.shape[1] % heads:
        raise ValueError(f"query's {q.shape[1]} heads are not a multiple of key's {heads}")
    whole = (batch, heads, length, width)
    for given, name, wanted in ((decay, "decay", whole), (beta, "beta", (*whole[:3], 1))):
        own = of_kind(tensor(given, name, 4), name, "float").shape
        if broadcast_shapes(own, wanted) != tuple(wanted):
            raise ValueError(f"{name} of shape {own} does not spread to {wanted}")
    made = TensorType((batch, q.shape[1], length, v.shape[3]), q.dtype)
    return TupleType((made, past))


def _compute(attrs: LinearAttentionAttrs, out: TupleType, *inputs: Tensor) -> list[Tensor]:
    batch, heads, length, width = dims_of(inputs[1])
    group: Any = dims_of(inputs[0])[1] // heads
    size = dims_of(inputs[2])[3]
    dtype = wide(inputs[0].dtype)
    zero = build.const(0, dtype)

    def read(source: BufferVar, *indices: ExprLike) -> Expr:
        """An element, of which there is but one along axes of extent 1."""
        own = [
            0 if build.int_value(extent) == 1 else index
            for extent, index in zip(source.shape, indices, strict=True)
        ]
        return build.cast(dtype, source[tuple(own)])

    def fill(ib: IRBuilder, ins: list[BufferVar], outs: list[BufferVar]) -> None:
        query, key, value, past, decay, beta = ins
        result, last = outs
        with ib.for_range(0, batch * heads, name="line", kind="parallel") as line:
            b, h = ib.let("b", line // heads), ib.let("h", line % heads)
            state = ib.allocate(dtype, (width, size), name="state")
            row = ib.allocate(dtype, (size,), name="row")

            def look_up(head: Expr, step: Expr, source: BufferVar) -> None:
                """The state's rows summed, each times a number of a vector."""
                with ib.for_range(0, size, name="j") as j:
                    row[j] = zero
                with ib.for_range(0, width, name="i") as i:
                    factor = ib.let("factor", read(source, b, head, step, i))
                    with ib.for_range(0, size, name="j") as j:
                        row[j] = row[j] + factor * state[i, j]

            with loops(ib, [width, size], "s") as (i, j):
                state[i, j] = build.cast(dtype, past[b, h, i, j])
            with ib.for_range(0, length, name="step") as step:
                if attrs.is_gated:
                    with ib.for_range(0, width, name="i") as i:
                        kept = ib.let("kept", t.exp(read(decay, b, h, step, i)))
                        with ib.for_range(0, size, name="j") as j:
                            state[i, j] = state[i, j] * kept
                if attrs.is_delta:
                    look_up(h, step, key)
                    strength = ib.let("strength", read(beta, b, h, step, 0))
                with ib.for_range(0, size, name="j") as j:
                    new = build.cast(dtype, value[b, h, step, j])
                    row[j] = strength * (new - row[j]) if attrs.is_delta else new
                with ib.for_range(0, width, name="i") as i:
                    own = ib.let("own", build.cast(dtype, key[b, h, step, i]))
                    with ib.for_range(0, size, name="j") as j:
                        state[i, j] = state[i, j] + own * row[j]
                with ib.for_range(0, group, name="g") as g:
                    look_up(h * group + g, step, query)
                    with ib.for_range(0, size, name="j") as j:
                        made = row[j] * build.const(attrs.scale, dtype)
                        result[b, h * group + g, step, j] = build.cast(result.dtype, made)
            with loops(ib, [width, size], "s") as (i, j):
                last[b, h, i, j] = build.cast(last.dtype, state[i, j])

    return statements(out, list(inputs), fill, "T_linear_attention")


def _reference(attrs: LinearAttentionAttrs, query: Array, *given: Array) -> list[Array]:
    q, key, value, state, decay, beta = (
        widened(array, str(array.dtype)).astype("float64") for array in (query, *given)
    )
    group = q.shape[1] // key.shape[1] if key.shape[1] else 1
    made = np.zeros((*q.shape[:3], value.shape[3]))
    decay = np.broadcast_to(decay, (*key.shape[:3], decay.shape[3]))
    beta = np.broadcast_to(beta, (*key.shape[:3], 1))
    for step in range(q.shape[2]):
        k, v = key[:, :, step], value[:, :, step]
        if attrs.is_gated:
            state = state * np.exp(decay[:, :, step])[..., None]
        if attrs.is_delta:
            v = beta[:, :, step] * (v - np.einsum("bhij,bhi->bhj", state, k))
        state = state + k[..., None] * v[..., None, :]
        read = np.repeat(state, group, axis=1)
        made[:, :, step] = attrs.scale * np.einsum("bhi,bhij->bhj", q[:, :, step], read)
    return [made.astype(query.dtype), state.astype(given[2].dtype)]


def _contraction(
    attrs: LinearAttentionAttrs, query: TensorType, key: TensorType, value: TensorType,
    *others: Type,
) -> Contraction | None:
    """Queries times the states that they read; updates of the states are not among its products."""
    if not query.is_static or not value.is_static:
        return None
    batch, heads, length, width = query.concrete_shape
    rows, kind = batch * heads * length, query.dtype
    return Contraction(
        batch=1, image=(1, rows), inputs=width, result=(1, rows), outputs=value.concrete_shape[3],
        data=kind, weight=kind, out=kind, data_layout="NC", out_layout="NC", matrices=max(1, rows),
    )


def _linear_attention(
    query: RelayExprLike, key: RelayExprLike, value: RelayExprLike,
    state: RelayExprLike | None = None, decay: RelayExprLike | None = None,
    beta: RelayExprLike | None = None, update_rule: str = "gated_delta", scale: float = 1.0,
) -> Any:
    """Attention by a state that every step updates: what each step reads, and the last state.

    query, key and value are (batch, heads, length, width); query may have a multiple of the heads.
    The state is (batch, heads, width of keys, width of values), zeros if it is not given. A step
    multiplies it by exp(decay), if update_rule is gated, replaces the value by beta times what the
    state lacks of it, if the rule is delta, adds the product of key and value, and reads it by
    scale times the query.
    """
    attrs = LinearAttentionAttrs(update_rule, scale)
    for name, part, wanted in (("decay", decay, attrs.is_gated), ("beta", beta, attrs.is_delta)):
        if (part is not None) != wanted:
            word = "needs" if wanted else "has no use for"
            raise ValueError(f"update_rule {update_rule!r} {word} {name}")
    none = const(np.zeros((1, 1, 1, 1), "float32"))
    if state is None:
        state = _zeros(as_expr(key), as_expr(value))
    return make("nn.linear_attention", query, key, value, state, none if decay is None else decay,
                none if beta is None else beta, update_rule=update_rule, scale=scale)


def _zeros(key: RelayExpr, value: RelayExpr) -> RelayExpr:
    k, v = tensor(key.checked_type, "key", 4), tensor(value.checked_type, "value", 4)
    shape = (*k.shape[:2], k.shape[3], v.shape[3])
    if any(isinstance(extent, AnyDim) for extent in shape):
        raise ValueError(f"the state's shape {shape} is not known; give a state")
    return call("zeros", shape=shape, dtype=str(v.dtype))


def _case(
    rule: str, heads: int, decay: tuple[int, ...] = (1, 1, 1, 1),
    beta: tuple[int, ...] = (1, 1, 1, 1), dtype: str = "float32", tolerance: float = 1e-5,
) -> Case:
    """Three steps of two heads with keys of four numbers and values of three."""
    shapes = [(2, heads, 3, 4), (2, 2, 3, 4), (2, 2, 3, 3), (2, 2, 4, 3), decay, beta]
    inputs = tuple((shape, dtype) for shape in shapes)
    return Case(inputs, {"update_rule": rule, "scale": 0.5}, tolerance)


register(OpRecord(
    "nn.linear_attention",
    inputs=("query", "key", "value", "state", "decay", "beta"),
    attrs=LinearAttentionAttrs,
    infer=_infer,
    compute=_compute,
    reference=quiet(_reference),
    contraction=ContractionRules(describe=_contraction),
    num_outputs=2,
    builder=_linear_attention,
    pattern=OPAQUE,
    mixed_precision="never",
    cases=[
        _case("linear", 2),
        _case("gated", 4, decay=(2, 2, 3, 4)),
        _case("delta", 2, beta=(2, 1, 3, 1)),
        _case("gated_delta", 6, decay=(2, 2, 3, 1), beta=(2, 2, 3, 1)),
        _case("gated_delta", 2, decay=(2, 2, 3, 1), beta=(2, 2, 3, 1), dtype="float16",
              tolerance=5e-3),
    ],
    doc=_linear_attention.__doc__ or "",
))
