"""Equality, hash and JSON of expressions."""

import contextlib
import json
import os
import random
import subprocess
import sys

import pytest

from sterna.ir import (
    Expr,
    IRModule,
    Var,
    build,
    const,
    explain_difference,
    load_json,
    save_json,
    structural_equal,
    structural_hash,
)
from sterna.ir import expr as E
from sterna.support.dtype import DataType
from tests.support import ROOT

K, J = Var("i"), Var("j")
X = Var("x", DataType("float32"))


def let(name: str) -> Expr:
    var = Var(name)
    return E.Let(var, K + 1, var * var + J)


EQUAL = [
    (K + J * 2, K + J * 2),
    (let("a"), let("b")),
    (const(float("nan")), const(float("nan"))),
    (build.call_intrinsic("exp", X), build.call_intrinsic("exp", X)),
    (E.Shuffle((E.Broadcast(K, 2),), (0, 1)), E.Shuffle((E.Broadcast(K, 2),), (0, 1))),
]

DIFFERENT = [
    (K + J, K + K, "at b: j and i are different Vars"),
    (K + J, K - J, "i + j is Add, i - j is Sub"),
    (K + 1, K + 2, "at b.value: 1 against 2"),
    (const(1), const(1, "int64"), "at dtype: 'int32' against 'int64'"),
    (const(0.0), const(-0.0), "at value: 0.0 against -0.0"),
    (K, Var("i"), "i and i are different Vars"),
    (
        build.call_intrinsic("f", X), build.call_intrinsic("f", X, X),
        "at args: 1 items against 2",
    ),
]


@pytest.mark.parametrize(("a", "b"), EQUAL)
def test_equal(a: Expr, b: Expr) -> None:
    assert explain_difference(a, b) is None
    assert structural_equal(a, b)
    assert structural_hash(a) == structural_hash(b)


@pytest.mark.parametrize(("a", "b", "reason"), DIFFERENT)
def test_different(a: Expr, b: Expr, reason: str) -> None:
    assert explain_difference(a, b) == reason
    assert structural_hash(a) != structural_hash(b) or "Vars" in reason


def test_bound_variables_correspond_one_to_one() -> None:
    a, b, c, d = (Var(name) for name in "abcd")
    left = E.Let(a, K, E.Let(b, J, a + b))
    assert structural_equal(left, E.Let(c, K, E.Let(d, J, c + d)))
    assert not structural_equal(left, E.Let(c, K, E.Let(d, J, d + c)))
    assert not structural_equal(E.Let(a, K, a + J), E.Let(b, K, b + b))


def test_free_variables_correspond_if_asked() -> None:
    a, b = Var("a"), Var("b")
    assert not structural_equal(a + 1, b + 1)
    assert structural_equal(a + 1, b + 1, map_free_vars=True)
    assert structural_hash(a + 1, map_free_vars=True) == structural_hash(b + 1, map_free_vars=True)
    assert not structural_equal(a + a, a + b, map_free_vars=True)


def test_the_hash_is_the_same_in_every_process() -> None:
    program = "from sterna.ir import *; print(structural_hash(Var('i') + 1))"
    command = [sys.executable, "-c", program]
    outputs = {
        subprocess.check_output(command, env={**os.environ, "PYTHONHASHSEED": seed}, cwd=ROOT)
        for seed in ("1", "2")
    }
    assert outputs == {f"{structural_hash(K + 1)}\n".encode()}


def deep(count: int) -> Expr:
    expr: Expr = K
    for _ in range(count):
        expr = E.Add(expr, J)
    return expr


def shared(count: int) -> Expr:
    expr: Expr = K
    for _ in range(count):
        expr = E.Add(expr, expr)
    return expr


@pytest.mark.parametrize("make", [deep, shared])
def test_deep_and_shared_nodes(make: object) -> None:
    count = 50000 if make is deep else 200
    a, b = make(count), make(count)  # type: ignore[operator]
    assert structural_equal(a, b)
    assert structural_hash(a) == structural_hash(b)
    loaded = load_json(save_json((a, K, J)))
    assert structural_equal((a, K, J), loaded, map_free_vars=True)


def test_json_keeps_sharing() -> None:
    part = K * 3
    loaded = load_json(save_json(part + part))
    assert loaded.a is loaded.b


def test_json_keeps_every_value() -> None:
    numbers = [const(float("nan")), const(float("-inf")), const(0.1, "float64"), const(-0.0)]
    values = (*numbers, const(2**63 - 1, "int64"), const(True), E.StringImm("\u00e9\n"))
    assert structural_equal(load_json(save_json(values)), values)


def test_json_of_a_module() -> None:
    module = load_json(save_json(IRModule({"f": K + 1}, {"level": 3, "names": ("a", None)})))
    assert repr(module["f"]) == "i + 1"
    assert module.attrs == {"level": 3, "names": ("a", None)}


def broken(**changes: object) -> str:
    data = json.loads(save_json(K + 1))
    data.update(changes)
    return json.dumps(data)


def with_node(**changes: object) -> str:
    data = json.loads(save_json(K + 1))
    data["nodes"][-1].update(changes)
    return json.dumps(data)


BROKEN = [
    ("", "this is no saved IR"),
    ("[1, 2", "this is no saved IR"),
    ("[" * 100000, "nested too deeply|no saved IR"),
    ("{}", 'it lacks "format"'),
    (broken(version=99), "saved IR of version 99; this reads 1"),
    (broken(nodes=3), "lacks its list of nodes"),
    (broken(root={"node": 77}), "the root: it refers to node 77"),
    (broken(nodes=[5]), "node 0: it has no class"),
    (broken(nodes=[{"class": "os"}]), "node 0: there is no class 'os'"),
    (with_node(a=3), r"node 2 \(Add\): the field a cannot hold int 3"),
    (with_node(a={"node": 2}), "it refers to node 2, which does not come before it"),
    (with_node(c=3), "its fields are a, b, not a, b, c"),
    (with_node(a={"eval": "1"}), "is no value"),
    (with_node(a=1.5), "the number 1.5 is not written as a float"),
    (broken(root={"dtype": "int99"}), "'int99' names no data type"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_broken_json_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        load_json(text)


def test_damaged_json_gives_a_node_or_a_value_error() -> None:
    generator = random.Random(1)
    vector = E.Ramp(K, const(2), 4)
    sample = (let("a"), E.Shuffle((vector,), (3, 1)), build.select(K < J, X, 2.5), const(1.5))
    text = save_json(sample)
    pieces = ['"', "{", "}", "[", "]", ",", "0", "-1", "1e9", "null", '"a"', "true", "x"]
    for _ in range(1500):
        start = generator.randrange(len(text))
        end = min(len(text), start + generator.randrange(12))
        damaged = text[:start] + generator.choice([*pieces, text[end : end + 9]]) + text[end:]
        with contextlib.suppress(ValueError):
            load_json(damaged)


def test_misplaced_nodes_give_a_node_or_a_value_error() -> None:
    generator = random.Random(2)
    sample = (let("a"), E.Shuffle((E.Ramp(K, const(2), 4),), (3, 1)), build.select(K < J, X, 2.5))
    data = json.loads(save_json(sample))
    fields = [(at, key) for at, row in enumerate(data["nodes"]) for key in row]
    for _ in range(1500):
        changed = json.loads(json.dumps(data))
        for _ in range(generator.randrange(1, 4)):
            (a, x), (b, y) = generator.sample(fields, 2)
            changed["nodes"][a][x] = data["nodes"][b][y]
        with contextlib.suppress(ValueError):
            load_json(json.dumps(changed))
