"""Averages of images by sums of their rows, which the kernels that make the images give as well.

    %1 = fn (%p) { swish(conv(%p)) }(%x)       %1 = fn (%p) { %0 = swish(conv(%p));
    %2 = fn (%p) { pool(%p) }(%1)         ->                  (%0, sum(%0, axis=2)) }(%x)
    g(%1, %2)                                  %2 = fn (%p) { pool(%p) * 1/width }(%1.1)
                                               g(%1.0, %2)

A row is added up while it is in the innermost cache; the image is not read again. The records of
operators say whose kernels give such sums, and what makes do with them.
"""

from typing import Any

from sterna.ir.transform import Pass, function_pass
from sterna.ir.types import TensorType
from sterna.relay.expr import Call, Function, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.op import COMM_REDUCE, TUPLE, call, record_of
from sterna.relay.traverse import not_primitive, post_order, rewrite
from sterna.support.dtype import DataType

WIDE = DataType("float32")


def SumRows(processor: Any = None) -> Pass:
    """Let kernels add up rows for what averages them; without a processor nothing changes."""
    made: Pass = function_pass(
        lambda func, mod, context: func if processor is None else sum_rows(func, processor),
        opt_level=3, name="SumRows", kind=Function,
    )
    return made


def sum_rows(func: Function, processor: Any) -> Function:
    """The function with sums of rows in the place of images that are only averaged."""
    if func.is_primitive:
        return func
    sums: dict[int, RelayExpr | None] = {}
    """By a kernel's call: its sums, None as long as it is not rebuilt."""
    readers: dict[int, tuple[int, Call]] = {}
    """By a kernel's call: the place of the image in its arguments, and what averages it."""
    for expr in post_order(func, not_primitive):
        found = _averaged(expr)
        if found is not None and _can_sum(expr.args[found[0]], processor):  # type: ignore[attr-defined]
            readers[id(expr)] = found
            sums[id(expr.args[found[0]])] = None  # type: ignore[attr-defined]

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        if id(old) in readers:
            assert isinstance(old, Call) and isinstance(new, Call)
            place, pool = readers[id(old)]
            given = sums[id(old.args[place])]
            assert given is not None
            new = _of_sums(new, place, pool, given)
        if id(old) in sums:
            assert isinstance(new, Call)
            both = _with_sums(new)
            sums[id(old)] = TupleGetItem(both, 1)
            return TupleGetItem(both, 0)
        return new

    made = rewrite(func, change, not_primitive) if readers else func
    assert isinstance(made, Function)
    return made


def _averaged(expr: RelayExpr) -> tuple[int, Call] | None:
    """Which argument a kernel reads only to average it, and what does so."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Function):
        return None
    params: dict[int, int] = {id(param): place for place, param in enumerate(expr.op.params)}
    inner = post_order(expr.op.body)
    for part in inner:
        record = record_of(part)
        if record is None or record.of_row_sums is None:
            continue
        assert isinstance(part, Call)
        image = part.args[0]
        uses = sum(image is used for other in inner for used in other.operands())  # type: ignore[attr-defined]
        if id(image) not in params or uses > 1 or not _is_image(image.checked_type):
            continue
        if record.of_row_sums(part, Var("sums", _sums_type(image.checked_type))) is not None:
            return params[id(image)], part
    return None


def _is_image(kind: Any) -> bool:
    return isinstance(kind, TensorType) and kind.is_static and len(kind.shape) == 4


def _sums_type(image: Any) -> TensorType:
    batch, height, _, channels = image.shape
    return TensorType((batch, height, 1, channels), WIDE)


def _can_sum(expr: RelayExpr, processor: Any) -> bool:
    """Whether a call of a kernel gives an image, and the kernel could give sums of its rows."""
    if not isinstance(expr, Call) or not isinstance(expr.op, Function):
        return False
    if not _is_image(expr.checked_type):
        return False
    anchor = _anchor(expr.op)
    record = record_of(anchor)
    if anchor is None or record is None or record.contraction.gives_row_sums is None:
        return False
    same: bool = anchor.checked_type == expr.checked_type
    return same and record.contraction.gives_row_sums(anchor, processor)


def _anchor(kernel: Function) -> Call | None:
    """The last call in a kernel that is more than injective."""
    found = None
    for part in post_order(kernel.body):
        record = record_of(part)
        if record is not None and COMM_REDUCE <= record.pattern < TUPLE:
            assert isinstance(part, Call)
            found = part
    return found


def _with_sums(kernel: Call) -> Call:
    """A call of the same kernel that gives its image and the sums of its rows."""
    func = kernel.op
    assert isinstance(func, Function)
    image = func.body
    terms = image
    if image.checked_type.dtype != WIDE:  # type: ignore[attr-defined]
        terms = call("cast", image, dtype=WIDE)
    both = Tuple((image, call("sum", terms, axis=(2,), keepdims=True)))
    made = Call(Function(func.params, both, attrs=func.attrs), kernel.args)
    made.span = kernel.span
    return made


def _of_sums(kernel: Call, place: int, pool: Call, sums: RelayExpr) -> Call:
    """A call of the same kernel, which reads sums in the place of an image."""
    func = kernel.op
    assert isinstance(func, Function)
    record = record_of(pool)
    assert record is not None and record.of_row_sums is not None
    given = Var(func.params[place].name_hint, _sums_type(func.params[place].checked_type))
    averaged = record.of_row_sums(pool, given)
    assert averaged is not None
    averaged.span = pool.span

    def change(new: RelayExpr, old: RelayExpr) -> RelayExpr:
        return averaged if old is pool else new

    body = rewrite(func.body, change)
    params = (*func.params[:place], given, *func.params[place + 1 :])
    arguments = (*kernel.args[:place], sums, *kernel.args[place + 1 :])
    made = Call(Function(params, body, attrs=func.attrs), arguments)
    made.span = kernel.span
    return made
