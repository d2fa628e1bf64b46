"""Recurrent networks in two parts: a dense layer for the input of all steps, and the steps.

    nn.lstm(%x, (%w, %r, %b))  ->  %1 = reshape(add(nn.dense(%x, packed(%w)), packed(%b)))
                                   nn.lstm_steps(%1, (packed(%r)))

Known weights are packed when the graph is compiled, and the dense layer runs as others do.
recurrent_steps.py says how what is packed lies.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from sterna.codegen.nvptx.architecture import Architecture
from sterna.ir.types import TensorType, TupleType, Type
from sterna.op.checks import of_kind, same_dtype, tensor, tensors
from sterna.op.dynamic import tensor_type
from sterna.op.recurrence import Network, RecurrentAttrs
from sterna.op.recurrent_shares import Share, Work, sequences_of_cluster, vectors_of
from sterna.op.recurrent_steps import (
    BLOCKS,
    SEQUENCES,
    UNITS,
    RegisterTiles,
    Tile,
    by_layout,
    largest_divisor,
    shared_by_threads,
    units_of_block,
)
from sterna.relay.arrays import Array
from sterna.relay.attributes import attributes
from sterna.relay.expr import RelayExpr, Tuple, TupleGetItem, const
from sterna.relay.op import OPAQUE, Case, ContractionRules, OpRecord, call
from sterna.schedule.choose import deciding
from sterna.schedule.contraction import Contraction
from sterna.schedule.gpu.limits import Limits
from sterna.schedule.products import wide
from sterna.support.dtype import DataType
from sterna.target import Target, is_gpu, processor_of
from sterna.te import Tensor


@attributes
class StepsAttrs(RecurrentAttrs):
    """Of nn.rnn_steps, nn.gru_steps and nn.lstm_steps."""

    direction: str = "forward"
    activations: tuple[str, ...] = ()
    activation_alpha: tuple[float, ...] = ()
    activation_beta: tuple[float, ...] = ()
    clip: float | None = None
    layout: int = 0
    linear_before_reset: bool = False
    input_forget: bool = False
    given: tuple[str, ...] = ()
    together: int = 1
    """So many sequences step together at most."""
    rows: int = 1
    """So many of them are in a register tile at most."""
    share: str = SEQUENCES
    """What threads share: sequences, or the units of each step; on a GPU these by blocks."""
    units: int = 1
    """Units of a block of a GPU."""
    parts: int = 1
    """Threads of a GPU that share a sum."""
    at_once: int = 0
    """Blocks of a processor of a GPU that is told; 0 for others."""
    in_cluster: int = 0
    """Sequences of a cluster of blocks that keep the weights for all steps; 0 without such."""
    tiles: int = 0
    """Of 16 rows of a block, for Tensor Cores; 0 without these."""

    @property
    def on_blocks(self) -> Share:
        """What a block of a GPU has of a step."""
        return Share(
            self.units, self.together, self.rows, self.parts, self.at_once, self.in_cluster,
            self.tiles)


def in_steps(
    network: Network, attrs: RecurrentAttrs, args: tuple[RelayExpr, ...], target: Target | None
) -> RelayExpr | None:
    """A network by a dense layer and its steps, where all shapes are known."""
    data, weights = args
    kinds = [tensor_type(data), *tensors(weights.checked_type, "weights")]
    if not isinstance(weights, Tuple) or any(type(n) is not int for k in kinds for n in k.shape):
        return None
    kind = wide(kinds[0].dtype)
    is_blocks = target is not None and is_gpu(target)
    if kind != kinds[0].dtype and not is_blocks:
        return _in_float32(network, attrs, data, weights.fields)
    weight, recurrence, *others = weights.fields
    given = dict(zip(attrs.given, others, strict=True))
    size = kinds[2].concrete_shape[2]
    with deciding(f"nn.{network.name} {kinds[0]!r}"):
        units, chosen = _decide(network, attrs, kinds, target)
    packing = _Packing(network.gates, size, len(attrs.directions), units)
    first, second, features = kinds[0].concrete_shape
    rows = packing.of_gates(weight)
    projected = call(
        "nn.dense", call("reshape", data, newshape=(first * second, features)),
        call("reshape", rows, newshape=(packing.numbers, features)), units=packing.numbers,
        out_dtype=str(kind),
    )
    operands: dict[str, RelayExpr] = {
        "columns": packing.rows(recurrence) if is_blocks else packing.columns(recurrence)
    }
    if "bias" in given:
        bias = _cast(given.pop("bias"), kind)
        early, late = _biases(packing, bias, network.late(attrs))
        projected = call("add", projected, call("reshape", early, newshape=(packing.numbers,)))
        if late is not None:
            operands["late_bias"] = late
    if "peepholes" in given:
        given["peepholes"] = packing.of_gates(given["peepholes"])
    operands |= given
    shape = (first, second, *packing.shape)
    options = {name: value for name, value in attrs.items() if name != "given"}
    return call(
        f"nn.{network.name}_steps", call("reshape", projected, newshape=shape),
        Tuple(tuple(operands.values())), given=tuple(operands)[1:], **chosen, **options,
    )


def _cast(part: RelayExpr, kind: DataType) -> RelayExpr:
    return part if tensor_type(part).dtype == kind else call("cast", part, dtype=str(kind))


def _in_float32(
    network: Network, attrs: RecurrentAttrs, data: RelayExpr, weights: Sequence[RelayExpr]
) -> RelayExpr:
    """A network of narrow floats whose steps pass float32 to each other."""
    narrow = tensor_type(data).dtype

    def widened(arg: RelayExpr) -> RelayExpr:
        return call("cast", arg, dtype="float32") if tensor_type(arg).dtype == narrow else arg

    operands = Tuple(tuple(map(widened, weights)))
    made = call(f"nn.{network.name}", widened(data), operands, **dict(attrs.items()))
    results = (TupleGetItem(made, place) for place in range(1 + network.states))
    return Tuple(tuple(call("cast", each, dtype=narrow) for each in results))


def _decide(
    network: Network, attrs: RecurrentAttrs, kinds: list[TensorType], target: Target | None
) -> tuple[int, dict[str, Any]]:
    """How many units are packed together, and what the steps are told of tiles and threads."""
    size, dtype = kinds[2].concrete_shape[2], kinds[0].dtype
    if target is None:
        return units_of_block(network.gates, size), {}
    first, second, _ = kinds[0].concrete_shape
    time, batch = by_layout(attrs, (first, second))
    if is_gpu(target):
        is_one = network.rounds(attrs) == 1
        work = Work(network.gates, size, batch, len(attrs.directions), dtype, wide(dtype),
                    is_one and dtype == "bfloat16" and _compute_capability(target) >= 80)
        found = work.choose(Limits.of(target))
        return 1, {
            "together": found.sequences, "rows": found.rows, "units": found.units,
            "parts": found.parts, "share": BLOCKS,
            "at_once": work.at_once(found) if "cuda" in target.keys else 0,
            "in_cluster": (
                sequences_of_cluster(work, found)
                if _compute_capability(target) >= 90 and is_one and time else 0
            ),
            "tiles": found.tiles,
        }
    processor = processor_of(target)
    threads, lines = processor.threads, batch * len(attrs.directions)
    step_cycles = network.gates * size * size / processor.lanes(dtype)
    share = shared_by_threads(threads, lines, time, step_cycles) if threads > 1 else SEQUENCES
    alike = 1 if "sequence_lens" in attrs.given else batch
    together = largest_divisor(alike, alike if share == UNITS else -(-lines // threads))
    rows, units = RegisterTiles(network.gates, size, alike, together, processor, dtype).choose()
    return units, {"together": max(together, rows), "rows": rows, "share": share}


def _compute_capability(target: Target) -> int:
    """In tenths, the least of the GPUs that a library is for; 0 of other devices than CUDA's."""
    found = [target.attrs.get(name) for name in ("arch", "plain_arch")]
    return min((Architecture.of(arch).number for arch in found if isinstance(arch, str)), default=0)


def _biases(
    packing: "_Packing", bias: RelayExpr, late: int
) -> tuple[RelayExpr, RelayExpr | None]:
    """What is added before the steps, and what the last gates add in them."""
    both = packing.of_gates(bias)

    def part(begin: int, end: int) -> RelayExpr:
        return call("strided_slice", both, begin=(begin,), end=(end,), axes=(2,))

    gates = packing.gates
    early, own = part(0, gates), part(gates, 2 * gates - late)
    if not late:
        return call("add", early, own), None
    zeros = const(np.zeros((*packing.shape[:2], late, packing.units), tensor_type(bias).dtype))
    filled = call("concatenate", Tuple((own, zeros)), axis=2)
    return call("add", early, filled), part(2 * gates - late, 2 * gates)


class _Packing:
    """Gates of a network's units by blocks."""

    def __init__(self, gates: int, size: int, count: int, units: int) -> None:
        self.gates, self.size, self.count, self.units = gates, size, count, max(1, units)
        self.blocks = -(-size // self.units)
        self.shape = (count, self.blocks, gates, self.units)
        self.numbers = math.prod(self.shape)

    def of_gates(self, part: RelayExpr) -> RelayExpr:
        """(direction, gate and unit, ...) as (direction, block, gate, unit, ...)."""
        _, rows, *rest = tensor_type(part).concrete_shape
        gates = rows // self.size
        made = call("reshape", part, newshape=(self.count, gates, self.size, *rest))
        missing = self.blocks * self.units - self.size
        if missing:
            border = ((0, 0), (0, 0), (0, missing), *((0, 0) for _ in rest))
            zero = const(0.0, tensor_type(part).dtype)
            made = call("nn.pad", made, zero, pad_width=border)
        split = (self.count, gates, self.blocks, self.units, *rest)
        axes = (0, 2, 1, 3, *range(4, 4 + len(rest)))
        return call("transpose", call("reshape", made, newshape=split), axes=axes)

    def columns(self, recurrence: RelayExpr) -> RelayExpr:
        """Weights of the recurrence, those that a number of the state is multiplied by together."""
        return call("transpose", self.of_gates(recurrence), axes=(0, 1, 4, 2, 3))

    def rows(self, recurrence: RelayExpr) -> RelayExpr:
        """Those of a unit's gates as rows of whole vectors."""
        made, kind = self.of_gates(recurrence), tensor_type(recurrence).dtype
        missing = vectors_of(kind, self.size) - self.size
        border = (*((0, 0) for _ in range(4)), (0, missing))
        return call("nn.pad", made, const(0.0, kind), pad_width=border) if missing else made

    def rows_of(self, packed: Array) -> Array:
        """(..., direction, block, gate, unit) as (..., direction, gate and unit)."""
        *rest, count, blocks, gates, units = packed.shape
        turned = np.moveaxis(packed, -3, -2).reshape(*rest, count, gates, blocks * units)
        return turned[..., : self.size].reshape(*rest, count, gates * self.size)


def _operands(attrs: StepsAttrs, weights: Any) -> dict[str, Any]:
    return dict(zip(("columns", *attrs.given), weights, strict=True))


def _infer(network: Network, attrs: StepsAttrs, projected: Type, weights: Type) -> TupleType:
    x = of_kind(tensor(projected, "projected", 6), "projected", "float")
    kinds = tensors(weights, "weights")
    if len(kinds) != 1 + len(attrs.given):
        raise ValueError(f"weights are columns, {', '.join(attrs.given)}, not {len(kinds)} tensors")
    operands = _operands(attrs, kinds)
    columns = tensor(operands["columns"], "columns", 5)
    if attrs.share != BLOCKS:
        same_dtype([x, columns], ["projected", "columns"])
    elif x.dtype != wide(columns.dtype):
        raise ValueError(f"projected is {wide(columns.dtype)}, as sums are, not {x.dtype}")
    size, units = _extents(attrs, columns)
    packing = _Packing(network.gates, size, len(attrs.directions), units)
    count, blocks, gates, units = packing.shape
    first, second = x.concrete_shape[:2]
    time, batch = by_layout(attrs, (first, second))
    state = (*by_layout(attrs, (count, batch)), size)
    wanted: dict[str, tuple[int, ...]] = {
        "projected": (first, second, *packing.shape),
        "columns": (
            (count, size, gates, 1, vectors_of(columns.dtype, size)) if attrs.share == BLOCKS
            else (count, blocks, size, gates, units)
        ),
        "late_bias": (count, blocks, network.late(attrs), units),
        "sequence_lens": (batch,),
        "initial_h": state,
        "initial_c": state,
        "peepholes": (count, blocks, 3, units),
    }
    for name, kind in {"projected": x, **operands}.items():
        if kind.concrete_shape != wanted[name]:
            raise ValueError(f"{name} has shape {wanted[name]}, not {kind.concrete_shape}")
    network.functions(attrs)
    steps = (time, count, batch) if attrs.layout == 0 else (batch, time, count)
    last = TensorType(state, columns.dtype)
    return TupleType((TensorType((*steps, size), columns.dtype), *[last] * network.states))


def _extents(attrs: StepsAttrs, columns: TensorType) -> tuple[int, int]:
    """The units of a state, and those that are packed together."""
    shape = columns.concrete_shape
    return (shape[1], 1) if attrs.share == BLOCKS else (shape[2], shape[4])


def _compute(
    network: Network, attrs: StepsAttrs, out: TupleType, projected: Tensor, weights: list[Tensor]
) -> list[Tensor]:
    operands = {"projected": projected, **_operands(attrs, weights)}
    if attrs.share == BLOCKS:
        return network.block_steps(attrs, out, operands, attrs.on_blocks)
    return network.steps(attrs, out, operands, Tile(attrs.together, attrs.rows), attrs.share)


def _reference(
    network: Network, attrs: StepsAttrs, projected: Array, weights: list[Array]
) -> list[Array]:
    """The whole network, whose input comes through the weights unchanged."""
    operands = _operands(attrs, weights)
    columns = operands.pop("columns")
    if attrs.share == BLOCKS:
        columns = columns[..., : columns.shape[1]].transpose(0, 1, 4, 2, 3)
    count, _, size, gates, units = columns.shape
    packing = _Packing(gates, size, count, units)
    rows = packing.rows_of(projected)
    each = gates * size
    weight = np.zeros((count, each, count * each), projected.dtype)
    for d in range(count):
        weight[d, :, d * each : (d + 1) * each] = np.eye(each, dtype=projected.dtype)
    recurrence = np.swapaxes(packing.rows_of(columns.transpose(2, 0, 1, 3, 4)), 0, 1)
    given: dict[str, Array] = {"bias": np.zeros((count, 2 * each), projected.dtype)}
    if "late_bias" in operands:
        late = packing.rows_of(operands.pop("late_bias"))
        given["bias"][:, 2 * each - late.shape[1] :] = late
    if "peepholes" in operands:
        operands["peepholes"] = packing.rows_of(operands["peepholes"])
    given |= operands
    x = rows.reshape(*rows.shape[:2], count * each)
    parts = [weight, recurrence.swapaxes(1, 2), *given.values()]
    made = network.reference(attrs.replace(given=tuple(given)), x, parts)
    return [each.astype(columns.dtype) for each in made]


def _contraction(attrs: StepsAttrs, projected: TensorType, weights: TupleType) -> Contraction:
    """The states of all steps times the recurrence's weights, a step after the other."""
    size, units = _extents(attrs, tensors(weights, "weights")[0])
    first, second, _, blocks, gates, _ = projected.concrete_shape
    time, batch = by_layout(attrs, (first, second))
    count, kind = len(attrs.directions), projected.dtype
    rows = time * batch * count
    return Contraction(
        batch=1, image=(1, rows), inputs=size, result=(1, rows), outputs=blocks * gates * units,
        data=kind, weight=kind, out=kind, data_layout="NC", out_layout="NC",
        matrices=max(1, time * count),
    )


def _macs(attrs: StepsAttrs, out: TupleType, projected: TensorType, weights: TupleType) -> int:
    return _contraction(attrs, projected, weights).macs


def record_of_steps(network: Network, cases: list[Case]) -> OpRecord[StepsAttrs]:
    """What is known about the steps of a network."""
    return OpRecord(
        f"nn.{network.name}_steps",
        inputs=("projected", "*weights"),
        attrs=StepsAttrs,
        infer=lambda attrs, *kinds: _infer(network, attrs, *kinds),
        compute=lambda attrs, out, *inputs: _compute(network, attrs, out, *inputs),
        reference=lambda attrs, *arrays: _reference(network, attrs, *arrays),
        contraction=ContractionRules(describe=_contraction),
        macs=_macs,
        num_outputs=1 + network.states,
        pattern=OPAQUE,
        mixed_precision="never",
        cases=cases,
        doc=f"The steps of nn.{network.name}, given what the input adds to its gates.",
    )
