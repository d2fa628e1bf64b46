"""Operators: what the compiler knows about each, in one record.

An operator is a file in the folder of operators that registers a record. From the record come the
builder (relay.nn.softmax), type checking, the text form, constant folding, fusion, layout
conversion, lowering to tensor expressions, documentation and tests on every target.
"""

import difflib
import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, NamedTuple, Protocol, TypeVar

from sterna.ir.node import node
from sterna.ir.types import Type, flatten_type, has_no_elements
from sterna.relay.attributes import Attrs
from sterna.relay.expr import Call, RelayExpr
from sterna.support.classic import MOVED, find_moved
from sterna.support.dtype import DataType

if TYPE_CHECKING:
    from sterna.relay.layout_rules import LayoutPlan
    from sterna.relay.passes.combine_parallel import ParallelRule
    from sterna.relay.passes.fold_scale_axis import ScaleRule
    from sterna.relay.quantized import QuantizedLike, QuantizedResult

# Fusion patterns: how an operator combines with others in one kernel, by the classic numbers.
ELEMWISE, BROADCAST, INJECTIVE, COMM_REDUCE, OUT_ELEMWISE_FUSABLE = 0, 1, 2, 3, 4
TUPLE, OPAQUE = 7, 8

# The package whose modules register all operators; it is loaded when one is first asked for.
OPERATORS = "sterna.op"

# What makes builders of the records.
BUILDERS = "sterna.relay.builders"


@dataclass(frozen=True, slots=True)
class Case:
    """One use of an operator, from which tests on every target are made."""

    inputs: tuple[Any, ...]
    """Per input a shape (float32), a pair of shape and dtype, an array, or a list of such."""
    attrs: dict[str, Any] = field(default_factory=dict)
    """Attributes by name; the others have their defaults."""
    tolerance: float = 1e-5
    """How far a result may be from the reference, absolutely and for its size."""


# The class of an operator's attributes; None of one that has none.
AttrsType = TypeVar("AttrsType", bound=Attrs | None)
AttrsIn = TypeVar("AttrsIn", bound=Attrs | None, contravariant=True)
Out = TypeVar("Out", covariant=True)


class CallRule(Protocol[AttrsIn, Out]):
    """A function of a call's attributes, and of one thing for each of its operands."""

    def __call__(self, attrs: AttrsIn, /, *operands: Any, **options: Any) -> Out:
        """What is known of a call with these."""


# The widths of a border before and after each axis.
Border = Sequence[tuple[int, int]]

# What passes ask: the call by other operators, or None to stay.
Args = tuple[RelayExpr, ...]
Rewrite = Callable[[AttrsType, Args], RelayExpr | None]


class Way(NamedTuple):
    """One way to compute a contraction, as far as the size of its weights is concerned."""

    growth: float
    """How many times larger its weights are than the model's; 0: they are as large."""
    cycles: float


@dataclass(frozen=True, slots=True)
class ChannelRule:
    """How channels of a contraction of whole numbers come and go; arrays have one entry of each.

    Its data and its result have their channels last.
    """

    suits: Callable[[Call], bool]
    """suits(call): whether all below can be asked."""
    is_depthwise: Callable[[Call], bool]
    """is_depthwise(call): whether each channel is made of the data's channel of the same place, so
    that both go together."""
    bounds: Callable[[Call, Any, Any], tuple[Any, Any]]
    """bounds(call, low, high): the least and the largest sums, of data between such numbers."""
    unneeded: Callable[[Call, Any, Any, Any], Any]
    """unneeded(call, dead, constant, value): channels of the data without which the result is
    known, but for those of its channels that are dead: constant ones, or times zero alone."""
    constant_part: Callable[[Call, Any, Any], Any]
    """constant_part(call, gone, value): what channels of the data that are gone add to the sums."""
    keep: Callable[[Call, RelayExpr, Any, Any], RelayExpr]
    """keep(call, data, inputs, outputs): itself of these channels of the data and the result."""


@dataclass(frozen=True, slots=True)
class ContractionRules(Generic[AttrsType]):
    """What is known about contractions: convolutions, dense layers, products of matrices.

    How they are packed, laid out and joined; see schedule/contraction.py. One leaves out what it
    has no rule for, and an operator that is no contraction leaves out all.
    """

    describe: CallRule[AttrsType, Any] | None = None
    """describe(attrs, *types): the description of the contraction, which implementations and cost
    models read; None where extents are unknown."""
    implement: Callable[[Call, Any, float], RelayExpr | None] | None = None
    """implement(call, processor, growth): itself with weights packed for the implementation that
    costs least there, at most so many times larger; None where that is the call as it stands."""
    ways: Callable[[Call, Any], Sequence[Way]] | None = None
    """ways(call, processor): those among which implement picks by growth, each larger and cheaper
    than the one before; of an operator without this rule no weights grow."""
    compute_with: CallRule[AttrsType, Any] | None = None
    """compute_with(attrs, out_type, epilogue, *tensors): its computation with its epilogue; gives
    None for a call that has nothing better than what follows any operator."""
    alter_layout: Callable[[AttrsType, Args, Any, Any], Attrs | None] | None = None
    """alter_layout(attrs, args, processor, costs): its attributes in the layout that runs best
    there; costs are what layout_costs gave for all whose layouts pass to each other, or None."""
    layout_costs: Callable[[Sequence[Call], int, Any], Any] | None = None
    """layout_costs(calls, moved, processor): what all of these, whose layouts pass to each other,
    cost as they lie, and in the layout that they prefer, where so many elements go into it and
    back; None where that one is taken anyway."""
    without_border: Callable[[Call, Any], RelayExpr | None] | None = None
    """without_border(call, processor): itself by parts that see no border; None where that costs
    more than products with it."""
    device_layout: Callable[[AttrsType, Args], Attrs | None] | None = None
    """device_layout(attrs, args): its attributes in the layout that GPUs run best."""
    convert_layout: Callable[[AttrsType, Args, tuple[str, ...]], Attrs | None] | None = None
    """convert_layout(attrs, args, layouts): its attributes in the layouts that the user wants."""
    is_packed: bool = False
    """Whether only an implementation makes it, of operands that are packed for a processor; the
    page of operators leaves it out."""
    scale: "ScaleRule | None" = None
    """How a factor for each channel becomes one of the weights: batch norm folding."""
    parallel: "ParallelRule | None" = None
    """How calls that read the same data become one: horizontal fusion."""
    channels: ChannelRule | None = None
    """How channels that cannot matter are left out."""
    chain: Callable[[Call, Call, Any], bool] | None = None
    """chain(call, before, processor): whether it runs in one kernel with the call that its data
    comes from, which is more than injective too: layer fusion."""
    gives_row_sums: Callable[[Call, Any], bool] | None = None
    """gives_row_sums(call, processor): whether its kernel may also give the sums of its image's
    rows, as float32: along the third of four axes, which stays as one element."""
    rows_are_one: bool = False
    """Whether the axes of its first operand but the last are all rows: one axis does for them."""
    gives_first_columns: Callable[[AttrsType], bool] | None = None
    """gives_first_columns(attrs): whether processors compute only the first columns of its result,
    of float32, where a strided_slice behind it takes no others: that is a part of its kernel."""
    reads_moved: int = 0
    """How many of its operands GPUs read in whatever order they lie: what moves them before is a
    part of its kernel."""
    gives_moved: bool = False
    """Whether GPUs store its result in whatever order of axes, and as float32: a transpose and a
    cast behind it are parts of its kernel."""
    rounds_data: bool = False
    """Whether GPUs round its first operand to 16 bits as they read it: a cast before is a part of
    its kernel."""
    reads_images: bool = False
    """Whether GPUs write the windows of few channels as columns: what moves or rounds an image
    before is a part of that."""
    widen: Callable[[AttrsType, Args, Any], RelayExpr | None] | None = None
    """widen(attrs, args, processor): by operands of float32, where narrow ones would be widened
    one by one as they are read."""
    stays_wide: Callable[[AttrsType, DataType], bool] | None = None
    """stays_wide(attrs, narrow): whether ToMixedPrecision leaves it as it is, with these
    attributes."""


@dataclass(slots=True, eq=False)
class OpRecord(Generic[AttrsType]):
    """What is known about an operator, whose attributes are of the class AttrsType."""

    # What it is.
    name: str
    """As in the text form: "nn.softmax"."""
    inputs: tuple[str, ...]
    """The arguments' names; one that begins with * is a tuple of tensors."""
    infer: CallRule[AttrsType, Type]
    """infer(attrs, *types): the result's type; raises ValueError for operands that do not fit."""
    attrs: type[AttrsType] | None = None
    """The class of its attributes, from which its builder and its text form come."""
    complete: CallRule[AttrsType, Sequence[Type | None]] | None = None
    """complete(attrs, *types): types for operands that have none (weights without a shape)."""
    num_outputs: int | Callable[[AttrsType], int] = 1
    """More than 1, or a function: the result is a tuple."""
    builder: Callable[..., Any] | None = None
    """The function behind relay.<name> where the derived one would not do."""
    doc: str = ""
    """What it computes, for docs/operators.md and help()."""
    cases: Sequence[Case] = ()
    """Uses of it, which are tested on every target."""

    # How it is computed.
    reference: CallRule[AttrsType, Any] | None = None
    """reference(attrs, *arrays): the result in NumPy; also how constants are folded."""
    compute: CallRule[AttrsType, Any] | None = None
    """compute(attrs, out_type, *tensors): tensor expressions; a tuple argument comes as a list."""
    compute_by_threads: CallRule[AttrsType, Any] | None = None
    """The same for devices of many threads, which steps that follow each other leave idle; gives
    None for a call that has nothing better than what all targets compute."""
    schedules: Mapping[str, Callable[[Any], None]] = field(default_factory=dict)
    """schedules[key](kernel): how a kernel with this anchor runs on targets that have a key, such
    as cpu; targets' own files add others, and without one the shape of its loops decides."""
    pattern: int = OPAQUE
    """How it combines with others in one kernel: a fusion pattern."""
    is_view: bool = False
    """Whether the result is its first operand's elements in their order, under another shape."""
    order: Callable[[Call], Sequence[int] | None] | None = None
    """order(call): the places that its result's axes had in its operand, whose elements it moves
    and no more; None for a call that does more."""
    is_monotone: bool = False
    """Whether a larger first operand never makes the result smaller, element by element."""
    foldable: bool = True
    """Whether equal calls give equal results, so that one may stand for another."""
    macs: CallRule[AttrsType, int] | None = None
    """macs(attrs, out_type, *types): the multiply-adds of a call."""
    instructions: int = 0
    """Those that an element takes at the least, of a function that is no instruction itself."""

    # What passes ask.
    simplify: Rewrite[AttrsType] | None = None
    """What it is when nothing is trained: batch_norm as a multiplication and an addition."""
    rewrites: Sequence[Callable[[Call], RelayExpr | None]] = ()
    """Rules of SimplifyExpr, each of which takes a call of it: x + 0 is x."""
    canonicalize: Rewrite[AttrsType] | None = None
    """Itself by simpler operators: bias_add as an addition."""
    legalize: Callable[[AttrsType, Args, Any], RelayExpr | None] | None = None
    """legalize(attrs, args, target): itself by operators that the target runs better."""
    fast: Rewrite[AttrsType] | None = None
    """Itself, less exact and faster."""
    to_static: Rewrite[AttrsType] | None = None
    """Itself when operands that say a shape turn out to be constants."""
    measured: Rewrite[AttrsType] | None = None
    """Itself by operators with room for all that it may give, cut to what a run counts."""
    integer: "Callable[[AttrsType, Sequence[QuantizedLike]], QuantizedResult] | None" = None
    """integer(attrs, operands): itself on the integers of quantised operands; a rule, see
    quantized.py."""
    layout: "Callable[[AttrsType, AttrsType, Sequence[Any]], LayoutPlan | None] | None" = None
    """How layouts pass through it: a rule, see layout_rules.py."""
    take_border: Callable[[AttrsType, Border, float], AttrsType | None] | None = None
    """take_border(attrs, pad_width, value): its attributes with data's border in its padding."""
    of_row_sums: Callable[[Call, RelayExpr], RelayExpr | None] | None = None
    """of_row_sums(call, sums): itself of sums along the rows of its first operand; None if it
    needs more."""
    mixed_precision: Literal["always", "follow", "never"] = "follow"
    """Whether ToMixedPrecision computes it in the narrow type."""
    contraction: ContractionRules[AttrsType] = field(default_factory=ContractionRules)
    """What is known about it as a contraction."""

    def outputs_of(self, attrs: AttrsType) -> int:
        """The number of values that a call with these attributes gives."""
        count = self.num_outputs
        return count if isinstance(count, int) else count(attrs)

    def takes(self, count: int, attrs: Attrs | None) -> bool:
        """Whether a call has so many operands: those of its names, or packed weights in several."""
        return count == len(self.inputs) or (count > len(self.inputs) and is_packed(attrs))

    @property
    def gives_tuple(self) -> bool:
        """Whether a call's value is a tuple."""
        return self.num_outputs != 1


# Any operator: what passes hold, which speak of calls of all.
AnyOp = OpRecord[Any]

_RECORDS: dict[str, AnyOp] = {}
_loaded = False


def register(record: OpRecord[AttrsType]) -> OpRecord[AttrsType]:
    """Make an operator known."""
    if record.name in _RECORDS:
        raise ValueError(f"the operator {record.name} is registered twice")
    _RECORDS[record.name] = record
    return record


def records() -> dict[str, AnyOp]:
    """All operators by name."""
    global _loaded
    if not _loaded:
        _loaded = True
        importlib.import_module(OPERATORS)
    return _RECORDS


def find(name: str) -> AnyOp:
    """The operator of that name."""
    found = _RECORDS.get(name) or records().get(name)
    if found is None:
        near = difflib.get_close_matches(name, _RECORDS, n=3)
        hint = f"; did you mean {', '.join(near)}?" if near else ""
        raise ValueError(f"there is no operator '{name}'{hint}")
    return found


@node
class Op(RelayExpr):
    """An operator. There is one object per name."""

    name: str

    _made: ClassVar[dict[str, "Op"]] = {}

    def __new__(cls, name: str) -> "Op":
        if name not in cls._made:
            find(name)
            cls._made[name] = object.__new__(cls)
        return cls._made[name]

    def operands(self) -> tuple[RelayExpr, ...]:
        """What it is made of."""
        return ()

    @staticmethod
    def get(name: str) -> "Op":
        """The operator of that name."""
        return Op(name)

    @staticmethod
    def list_op_names() -> list[str]:
        """The names of all operators."""
        return sorted(records())

    @property
    def record(self) -> AnyOp:
        """What is known about it."""
        return find(self.name)

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return self.name


def __getattr__(name: str) -> Any:
    """Builders by their classic paths: relay.op.nn.conv2d, relay.op.add, relay.op.tensor.add."""
    if name.startswith("__") or f"{__name__}.{name}" in MOVED:
        return find_moved(__name__, name)
    return getattr(importlib.import_module(BUILDERS).namespace(""), name)


def record_of(expr: object) -> AnyOp | None:
    """The record of the operator that an expression calls; None if it calls none."""
    if isinstance(expr, Call) and isinstance(expr.op, Op):
        return expr.op.record
    return None


def is_packed(attrs: Attrs | None) -> bool:
    """Whether a call's weights are packed for an implementation."""
    return bool(getattr(attrs, "implementation", ""))


def rules_of(expr: object) -> AnyOp | None:
    """The record of a call that passes may change; None if it stays as it is.

    Rules of an operator speak of the weights that a model has, not of those that are packed
    already; and a result without elements needs no other way to be computed.
    """
    record = record_of(expr)
    if record is None or is_packed(expr.attrs):  # type: ignore[attr-defined]
        return None
    results = flatten_type(expr.checked_type)  # type: ignore[attr-defined]
    return None if results and all(map(has_no_elements, results)) else record


def is_call_of(expr: object, name: str) -> bool:
    """Whether an expression calls a certain operator."""
    return isinstance(expr, Call) and isinstance(expr.op, Op) and expr.op.name == name


def call(name: str, *args: RelayExpr, **attrs: Any) -> Call:
    """A call of an operator, for passes: its attributes by name."""
    record = find(name)
    made = record.attrs(**attrs) if record.attrs is not None else None
    return Call(Op(name), args, made)
