"""Unification of types: what a polymorphic function's parameters of types stand for in a call."""

from sterna.ir.types import (
    FuncType,
    IncompleteType,
    ListType,
    RefType,
    TensorType,
    TupleType,
    Type,
    TypeCall,
    TypeVar,
)

Bound = dict[str, Type]


def replace_types(kind: Type, bound: Bound) -> Type:
    """A type with variables of types replaced."""
    if isinstance(kind, TypeVar):
        return bound.get(kind.name_hint, kind)
    if isinstance(kind, TypeCall):
        return TypeCall(kind.func, tuple(replace_types(each, bound) for each in kind.args))
    if isinstance(kind, TupleType):
        return TupleType(tuple(replace_types(each, bound) for each in kind.fields))
    if isinstance(kind, RefType):
        return RefType(replace_types(kind.value, bound))
    if isinstance(kind, FuncType):
        own = {p.name_hint for p in kind.type_params if isinstance(p, TypeVar)}
        inner = {name: each for name, each in bound.items() if name not in own}
        args = tuple(replace_types(each, inner) for each in kind.arg_types)
        return FuncType(args, replace_types(kind.ret_type, inner), kind.type_params)
    return kind


def instantiated(kind: FuncType) -> FuncType:
    """A polymorphic function whose parameters of types are yet to be decided."""
    if not kind.type_params:
        return kind
    bound: Bound = {
        p.name_hint: IncompleteType() for p in kind.type_params if isinstance(p, TypeVar)
    }
    made = replace_types(FuncType(kind.arg_types, kind.ret_type), bound)
    assert isinstance(made, FuncType)
    return made


def unify(given: Type, wanted: Type, bound: Bound) -> bool:
    """Whether a value of one type fits another, some variables of which a call decides (bound)."""
    if isinstance(wanted, TypeVar) and wanted.name_hint in bound:
        known = bound[wanted.name_hint]
        met = join(known, given)
        if met is None:
            return False
        bound[wanted.name_hint] = met
        return True
    if isinstance(given, IncompleteType) or isinstance(wanted, IncompleteType):
        return True
    if isinstance(given, TensorType) and isinstance(wanted, TensorType):
        if given.dtype != wanted.dtype or given.ndim != wanted.ndim:
            return False
        pairs = zip(given.shape, wanted.shape, strict=True)
        return all(type(b) is not int or type(a) is not int or a == b for a, b in pairs)
    if isinstance(given, TupleType) and isinstance(wanted, TupleType):
        return len(given.fields) == len(wanted.fields) and all(
            unify(a, b, bound) for a, b in zip(given.fields, wanted.fields, strict=True)
        )
    if isinstance(given, TypeCall) and isinstance(wanted, TypeCall):
        return given.func.name_hint == wanted.func.name_hint and all(
            unify(a, b, bound) for a, b in zip(given.args, wanted.args, strict=True)
        )
    if isinstance(given, RefType) and isinstance(wanted, RefType):
        return unify(given.value, wanted.value, bound)
    if isinstance(given, ListType) and isinstance(wanted, ListType):
        return unify(given.element, wanted.element, bound)
    if isinstance(given, FuncType) and isinstance(wanted, FuncType):
        own = instantiated(given)
        return len(own.arg_types) == len(wanted.arg_types) and all(
            unify(a, b, bound) for a, b in zip(own.arg_types, wanted.arg_types, strict=True)
        ) and unify(own.ret_type, wanted.ret_type, bound)
    return given == wanted


def join(a: Type, b: Type) -> Type | None:
    """What two types have in common that may both be incomplete; None if they differ."""
    if isinstance(a, IncompleteType):
        return b
    if isinstance(b, IncompleteType):
        return a
    if isinstance(a, TypeCall) and isinstance(b, TypeCall):
        if a.func.name_hint != b.func.name_hint:
            return None
        parts = _joined(a.args, b.args)
        return None if parts is None else TypeCall(a.func, parts)
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        parts = _joined(a.fields, b.fields)
        return None if parts is None else TupleType(parts)
    return a if unify(b, a, {}) else None


def _joined(a: tuple[Type, ...], b: tuple[Type, ...]) -> tuple[Type, ...] | None:
    if len(a) != len(b):
        return None
    parts = [join(x, y) for x, y in zip(a, b, strict=True)]
    known = tuple(part for part in parts if part is not None)
    return known if len(known) == len(parts) else None
