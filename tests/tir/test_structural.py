"""Equality, hash and JSON of functions."""

import re
from collections.abc import Callable

import pytest

from sterna.ir import (
    Var,
    const,
    explain_difference,
    load_json,
    save_json,
    structural_equal,
    structural_hash,
)
from sterna.tir import Buffer, BufferLoad, BufferStore, For, PrimFunc
from tests.tir.programs import ALL, F32, ZERO, function, vecadd


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_two_builds_of_one_function_are_equal(make: Callable[[], PrimFunc]) -> None:
    a, b = make(), make()
    assert explain_difference(a, b) is None
    assert structural_hash(a) == structural_hash(b)


@pytest.mark.parametrize("make", ALL.values(), ids=ALL)
def test_json_gives_the_function_back(make: Callable[[], PrimFunc]) -> None:
    func = make()
    loaded = load_json(save_json(func))
    assert explain_difference(func, loaded) is None
    assert repr(loaded) == repr(func)
    for param, buffer in zip(loaded.params, loaded.buffers, strict=True):
        assert buffer is None or param is buffer.data


def copy(order: str = "AB", kind: str = "serial", extent: int = 4, swap: bool = False) -> PrimFunc:
    first, second = (Buffer(name, F32, (const(4),)) for name in order)
    i = Var("i")
    source, target = (second, first) if swap else (first, second)
    body = BufferStore(target, BufferLoad(source, (i,)), (i,))
    return function("copy", For(i, ZERO, const(extent), kind, body), first, second)  # type: ignore[arg-type]


def test_names_do_not_matter_but_roles_do() -> None:
    assert structural_equal(copy("AB"), copy("XY"))
    assert structural_hash(copy("AB")) == structural_hash(copy("XY"))
    assert not structural_equal(copy(), copy(swap=True))
    assert structural_hash(copy()) != structural_hash(copy(swap=True))


@pytest.mark.parametrize(
    ("other", "reason"),
    [
        (copy(kind="parallel"), "at body.kind: 'serial' against 'parallel'"),
        (copy(extent=3), "at body.extent.value: 4 against 3"),
        (copy(swap=True), "at body.body.buffer: B: .* do not correspond"),
        (vecadd(), "at name: 'copy' against 'vecadd'"),
    ],
)
def test_the_first_difference_is_named(other: PrimFunc, reason: str) -> None:
    found = explain_difference(copy(), other)
    assert found is not None
    assert re.search(reason, found), found


def test_a_parameter_belongs_to_its_buffer() -> None:
    a, b = (Buffer(name, F32, (const(4),)) for name in "AB")
    body = BufferStore(a, const(1.0), (ZERO,))
    straight = PrimFunc("f", (a.data, b.data), (a, b), body)
    crossed = PrimFunc("f", (b.data, a.data), (a, b), body)
    assert not structural_equal(straight, crossed)


def test_buffers_that_are_free_must_be_the_same() -> None:
    a, b = (Buffer("A", F32, (const(4),)) for _ in "ab")
    left, right = (BufferStore(one, const(1.0), (ZERO,)) for one in (a, b))
    assert structural_equal(left, BufferStore(a, const(1.0), (ZERO,)))
    assert not structural_equal(left, right)
    assert structural_equal(left, right, map_free_vars=True)
