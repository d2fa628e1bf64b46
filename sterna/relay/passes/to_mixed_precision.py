"""Automatic mixed precision: products in a narrow float, and what follows as far as that is safe.

    nn.relu(nn.dense(%x, %w))
        -> nn.relu(nn.dense(cast(%x, dtype="float16"), cast(%w, dtype="float16")))

An operator's record, or a function that a user registered for it (mixed_precision.py), says what it
does: `always` reads narrow floats, `never` does, and those that
`follow` are narrow if all that is computed for them is; constants and parameters are no obstacle,
unless a constant has no place in the narrow type. Sums are computed in float32 in any case.
relay.ToMixedPrecision.follow_weights lets what reads weights alone, such as an embedding, be narrow
too, so that all that follows stays so, and convolutions of groups, which no instruction multiplies
in a narrow type: for devices on which memory is what counts.
"""

from typing import Any

import numpy as np

from sterna.ir.module import IRModule
from sterna.ir.pass_context import PassContext
from sterna.ir.transform import Pass, function_pass
from sterna.ir.types import TensorType, TupleType, Type, flatten_type
from sterna.relay.arrays import float_info, to_numpy
from sterna.relay.expr import Call, Constant, Function, RelayExpr, Tuple, TupleGetItem, Var
from sterna.relay.mixed_precision import conversion_of
from sterna.relay.op import AnyOp, call, rules_of
from sterna.relay.traverse import not_primitive, post_order, rebuild
from sterna.support.dtype import DataType

WIDE = DataType("float32")
NARROW = ("float16", "bfloat16")


def ToMixedPrecision(
    mixed_precision_type: str = "float16", missing_op_mode: int = 1
) -> Pass:
    """Compute products in a narrow type.

    missing_op_mode is what the classic pass does with operators that say nothing about it; here
    every operator does.
    """
    if mixed_precision_type not in NARROW:
        raise ValueError(f"the narrow type is {' or '.join(NARROW)}, not {mixed_precision_type!r}")
    if missing_op_mode not in (0, 1, 2):
        raise ValueError(f"missing_op_mode is 0, 1 or 2, not {missing_op_mode!r}")
    narrow = DataType(mixed_precision_type)

    def change(func: Function, mod: IRModule, context: PassContext) -> Function:
        keep = context.config.get("relay.ToMixedPrecision.keep_orig_output_dtype", False)
        weights = context.config.get("relay.ToMixedPrecision.follow_weights", False)
        return to_mixed_precision(func, narrow, keep, weights)

    made: Pass = function_pass(change, opt_level=0, name="ToMixedPrecision", kind=Function)
    return made


def to_mixed_precision(
    func: Function, narrow: DataType, keep_result: bool, follow_weights: bool = False
) -> Function:
    """The function with products in a narrow type; keep_result brings its result back.

    follow_weights: whether operators that follow, and read no floats but constants, are narrow.
    """
    func.checked_type  # noqa: B018
    return _Narrower(narrow, follow_weights).run(func, keep_result)


class _Narrower:
    def __init__(self, narrow: DataType, follow_weights: bool) -> None:
        self.narrow = narrow
        self.follow_weights = follow_weights
        self.made: dict[int, RelayExpr] = {}
        self.casts: dict[tuple[int, str], RelayExpr] = {}
        self.kept: list[RelayExpr] = []

    def run(self, func: Function, keep_result: bool) -> Function:
        for expr in post_order(func.body, not_primitive):
            self.made[id(expr)] = self._narrowed(expr)
        body = self.made[id(func.body)]
        if keep_result:
            body = self._like(body, func.body.checked_type)
        if body is func.body:
            return func
        same = body.checked_type == func.body.checked_type
        declared = func.ret_type if same else None
        return Function(func.params, body, declared, func.type_params, func.attrs)

    def _narrowed(self, old: RelayExpr) -> RelayExpr:
        record = rules_of(old)
        if record is not None:
            assert isinstance(old, Call)
            return self._call(old, record)
        if isinstance(old, Tuple | TupleGetItem):
            return rebuild(old, self.made)
        if not not_primitive(old):
            return old
        inner = old.operands()  # type: ignore[attr-defined]
        return rebuild(old, {id(e): self._like(self.made[id(e)], e.checked_type) for e in inner})

    def _call(self, old: Call, record: AnyOp) -> RelayExpr:
        args = [self.made[id(arg)] for arg in old.args]
        attrs: Any = old.attrs
        said = conversion_of(old, self.narrow)
        category, sums, result = said or (record.mixed_precision, self.narrow, self.narrow)
        narrow = self._is_narrow(category, record, attrs, old.args, args)
        if narrow:
            args = [self._cast(arg, WIDE, self.narrow) for arg in args]
            typed = attrs is not None and "out_dtype" in attrs.FIELDS
            if typed and attrs.out_dtype != sums and (said or attrs.out_dtype == WIDE):
                attrs = attrs.replace(out_dtype=sums)
        else:
            pairs = zip(args, old.args, strict=True)
            args = [self._like(arg, before.checked_type) for arg, before in pairs]
        if attrs is old.attrs and all(a is b for a, b in zip(args, old.args, strict=True)):
            return old
        made = Call(old.op, tuple(args), attrs)
        made.span = old.span
        return self._cast(made, sums, result) if narrow and sums != result else made

    def _is_narrow(
        self, category: str, record: AnyOp, attrs: Any, old: tuple[RelayExpr, ...],
        args: list[RelayExpr],
    ) -> bool:
        """Whether a call reads narrow floats."""
        stays_wide = record.contraction.stays_wide if not self.follow_weights else None
        if stays_wide is not None and stays_wide(attrs, self.narrow):
            return False
        leaves = [leaf for arg in args for leaf in _leaves(arg)]
        before = [kind for arg in old for kind in flatten_type(arg.checked_type)]
        if not any(kind.dtype == WIDE for kind in before) or not all(map(self._fits, leaves)):
            return False
        if category != "follow":
            return category == "always"
        computed = [leaf for leaf in leaves if not isinstance(leaf, Constant | Var)]
        kinds = {kind.dtype for leaf in computed for kind in flatten_type(leaf.checked_type)}
        if self.follow_weights and not kinds & {WIDE, self.narrow}:
            given = [leaf for leaf in leaves if isinstance(leaf, Var)]
            return WIDE not in [k.dtype for leaf in given for k in flatten_type(leaf.checked_type)]
        return self.narrow in kinds and WIDE not in kinds

    def _fits(self, leaf: RelayExpr) -> bool:
        """Whether the numbers of a constant are numbers of the narrow type as well."""
        if not isinstance(leaf, Constant) or leaf.data.dtype != WIDE:
            return True
        values = np.abs(to_numpy(leaf.data))
        most = float(float_info(self.narrow).max)
        return bool(np.all((values <= most) | ~np.isfinite(values)))

    def _like(self, expr: RelayExpr, kind: Type) -> RelayExpr:
        """The expression in the types that it had."""
        wide = [part for part in flatten_type(kind) if part.dtype == WIDE]
        return self._cast(expr, self.narrow, WIDE) if wide else expr

    def _cast(self, expr: RelayExpr, source: DataType, wanted: DataType) -> RelayExpr:
        """The expression whose floats of one type are of another; made once."""
        kind = expr.checked_type
        if source not in [part.dtype for part in flatten_type(kind)]:
            return expr
        key = (id(expr), str(wanted))
        if key not in self.casts:
            self.kept.append(expr)
            self.casts[key] = self._made_cast(expr, kind, source, wanted)
        return self.casts[key]

    def _made_cast(
        self, expr: RelayExpr, kind: Type, source: DataType, wanted: DataType
    ) -> RelayExpr:
        if isinstance(kind, TupleType):
            parts = expr.fields if isinstance(expr, Tuple) else [
                TupleGetItem(expr, place) for place in range(len(kind.fields))]
            return Tuple(tuple(self._cast(part, source, wanted) for part in parts))
        assert isinstance(kind, TensorType)
        return call("cast", expr, dtype=wanted)


def _leaves(expr: RelayExpr) -> list[RelayExpr]:
    """The fields of a tuple, or the expression itself."""
    return [leaf for part in expr.fields for leaf in _leaves(part)] if isinstance(
        expr, Tuple) else [expr]
