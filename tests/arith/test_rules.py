"""Every rule of the table, both sides evaluated on edge cases and random values."""

import itertools
import math
import random
from collections.abc import Iterator

import pytest

from sterna.arith.emit import same
from sterna.arith.match import Bindings, Pattern, Rule, build
from sterna.arith.rules import RULES
from sterna.ir.build import round_float, wrap_int
from sterna.ir.expr import BOOL, CompareExpr, FloatImm, IntImm, Not, Select, Var
from sterna.support.dtype import DataType
from tests.arith.evaluate import NoMeaning, alike, evaluate

FLOAT_EDGES = [0.0, -0.0, 1.0, -1.0, 0.5, 3.0, math.inf, -math.inf, math.nan, 1e-40, 3e38, 65504.0]
INT_EDGES = [0, 1, 2, 3, 7, 127, 128, 255, -1, -2, -128, 2**31 - 1, -(2**31), 2**63 - 1, -(2**63)]
TYPES = {
    "float": ["float16", "float32", "float64"],
    "int": ["int8", "uint8", "int32", "int64", "uint32"],
    "uint": ["uint8", "uint32"],
    "bool": ["bool"],
    "any": ["int8", "float32", "bool"],
}


def names(pattern: Pattern) -> set[str]:
    """The letters in a pattern."""
    found = {pattern.name} if pattern.name else set()
    return found.union(*[names(part) for part in pattern.parts])


def letters_of_conditions(pattern: Pattern) -> set[str]:
    """The letters that stand for bools whatever the type of the rule."""
    found = names(pattern.parts[0]) if pattern.kind is Select else set()
    return found.union(*[letters_of_conditions(part) for part in pattern.parts])


def edges(dtype: DataType, source: random.Random) -> list[int | float]:
    """Values worth trying."""
    if dtype.is_float:
        return [round_float(v, dtype) for v in [*FLOAT_EDGES, source.uniform(-9, 9)]]
    values = [*INT_EDGES, source.randint(-100, 100), source.randint(-(2**40), 2**40)]
    return sorted({wrap_int(value, dtype) for value in values})


def result_type(rule: Rule, dtype: DataType) -> DataType:
    """The type of the whole pattern for operands of a type."""
    kind = rule.left.kind
    is_class = isinstance(kind, type)
    return BOOL if is_class and (issubclass(kind, CompareExpr) or kind is Not) else dtype


def constants(rule: Rule, dtype: DataType, source: random.Random) -> Iterator[Bindings]:
    """Choices for the letters that stand for constants."""
    letters = sorted(names(rule.left) & set("cd"))
    pool = [0, 1, 2, 3, 4, 5, 8, 31, 100]
    for choice in itertools.product(pool, repeat=len(letters)):
        if dtype.is_float:
            yield {
                letter: FloatImm(dtype, v * source.choice((1.0, -1.0, 0.125)))
                for letter, v in zip(letters, choice, strict=True)
            }
        else:
            yield {
                letter: IntImm(dtype, wrap_int(v, dtype))
                for letter, v in zip(letters, choice, strict=True)
            }


def cases(rule: Rule) -> Iterator[tuple[str, str]]:
    for kind in rule.kinds.split():
        for name in TYPES[kind]:
            yield rule.pattern, name


CASES = [
    pytest.param(rule, name, id=f"{pattern} → {rule.replacement} [{name}]")
    for rule in RULES
    for pattern, name in cases(rule)
]


@pytest.mark.parametrize(("rule", "name"), CASES)
def test_both_sides_are_equal(rule: Rule, name: str) -> None:
    source = random.Random(f"{rule.pattern} {name}")
    dtype = DataType(name)
    bools = letters_of_conditions(rule.left)
    letters = sorted(names(rule.left) - set("cd"))
    variables = {
        letter: Var(letter, BOOL if letter in bools else dtype) for letter in letters
    }
    tried = 0
    for fixed in constants(rule, dtype, source):
        found: Bindings = {**variables, **fixed}
        if rule.when is not None and not rule.when(found):
            continue
        try:
            left = build(rule.left, found, dtype)
            right = build(rule.right, found, result_type(rule, dtype))
        except (ValueError, ZeroDivisionError):  # a constant shift that is too far
            continue
        pools = [edges(variable.dtype, source) for variable in variables.values()]
        choices = list(itertools.product(*pools))
        for choice in source.sample(choices, min(len(choices), 400)):
            values = dict(zip(variables.values(), choice, strict=True))
            try:
                wanted = evaluate(left, values)
            except NoMeaning:
                continue
            tried += 1
            assert alike(wanted, evaluate(right, values)), f"{rule.words}: {choice} {fixed}"
    assert tried > 1


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.pattern)
def test_a_rule_rewrites_its_own_pattern(rule: Rule) -> None:
    dtype = DataType(TYPES[rule.kinds.split()[0]][0])
    bools = letters_of_conditions(rule.left)
    found: Bindings = {
        name: Var(name, BOOL if name in bools else dtype) for name in names(rule.left) - set("cd")
    }
    for name in names(rule.left) & set("cd"):
        found[name] = FloatImm(dtype, 2.0) if dtype.is_float else IntImm(dtype, 2)
    left = build(rule.left, found, dtype)
    after = rule.apply(left, lambda a, b: a is b)
    assert after is not None
    assert same(after, build(rule.right, found, result_type(rule, dtype)))


def test_a_rule_keeps_the_type() -> None:
    rule = next(rule for rule in RULES if rule.pattern == "select(x, 1, 0)")
    one, zero = IntImm(DataType("int32"), 1), IntImm(DataType("int32"), 0)
    assert rule.apply(Select(Var("x", BOOL), one, zero), same) is None
