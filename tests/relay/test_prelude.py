"""Data types, matches, references and the prelude: by the machine and by the interpreter."""

from typing import Any

import numpy as np
import pytest

import sterna
from sterna.relay.prelude import Prelude
from tests.driver.test_vm import FLOATS, X, agree, scalar

relay: Any = sterna.relay

Y = X + 10


def program(body: Any) -> sterna.IRModule:
    """A module whose main is made with the prelude at hand, over x and y."""
    module = sterna.IRModule()
    prelude = Prelude(module)
    x, y = relay.var("x", FLOATS), relay.var("y", FLOATS)
    module["main"] = relay.Function([x, y], body(prelude, x, y))
    return module


def test_lists() -> None:
    def body(p: Any, x: Any, y: Any) -> Any:
        z = relay.var("z", FLOATS)
        double = relay.Function([z], relay.add(z, z))
        positive = relay.Function([z], relay.less(relay.const(0.0), relay.sum(z)))
        items = p.cons(x, p.cons(y, p.cons(relay.negative(y), p.nil())))
        mapped = p.map(double, items)
        return relay.Tuple([
            p.hd(mapped), p.nth(mapped, relay.const(2)), p.length(p.filter(positive, items)),
            p.hd(p.rev(items)), p.length(p.concat(items, p.tl(items))),
            p.nth(p.update(items, relay.const(1), x), relay.const(1)),
            p.hd(p.zip(items, p.tl(items))),
        ])

    found = agree(program(body), X, Y)
    assert found[2] == 2 and found[4] == 5
    np.testing.assert_array_equal(found[1], -2 * Y)
    np.testing.assert_array_equal(found[5], X)


def test_folds_take_functions_and_constructors() -> None:
    def body(p: Any, x: Any, y: Any) -> Any:
        a, b = relay.var("a", FLOATS), relay.var("b", FLOATS)
        minus = relay.Function([a, b], relay.subtract(a, b))
        items = p.cons(x, p.cons(y, p.cons(x, p.nil())))
        copied = p.foldr(p.cons, p.nil(), items)
        twice = p.iterate(relay.Function([a], relay.add(a, a)), relay.const(2))
        return relay.Tuple([
            p.foldl(minus, y, items), p.foldr(minus, y, copied), p.foldr1(minus, items),
            relay.Call(twice, (x,)),
        ])

    found = agree(program(body), X, Y)
    np.testing.assert_allclose(found[0], Y - X - Y - X)
    np.testing.assert_array_equal(found[3], 4 * X)


def test_matches_look_into_values() -> None:
    def body(p: Any, x: Any, y: Any) -> Any:
        v, w = relay.var("v"), relay.var("w")
        pair = relay.PatternTuple([
            relay.PatternConstructor(p.some, [relay.PatternVar(v)]),
            relay.PatternConstructor(p.some, [relay.PatternVar(w)]),
        ])
        given = relay.If(relay.less(relay.sum(x), relay.const(0.0)), p.some(x), p.none())
        return relay.Match(relay.Tuple([p.some(y), given]), [
            relay.Clause(pair, relay.add(v, w)), relay.Clause(relay.PatternWildcard(), y),
        ])

    module = program(body)
    np.testing.assert_array_equal(agree(module, -X, Y), Y - X)
    np.testing.assert_array_equal(agree(module, X, Y), Y)


def test_an_incomplete_match_says_so() -> None:
    module = program(lambda p, x, y: p.hd(p.tl(p.cons(x, p.nil()))))
    with pytest.raises(ValueError, match="no clause of a match holds"):
        relay.create_executor("vm", module).evaluate()(X, Y)


def test_values_of_data_types_come_back() -> None:
    module = program(lambda p, x, y: p.cons(x, p.cons(y, p.nil())))
    found = relay.create_executor("vm", module).evaluate()(X, Y)
    assert found.tag == 0 and len(found) == 2 and found[1].tag == 0 and found[1][1].tag == 1
    np.testing.assert_array_equal(found[1][0].numpy(), Y)
    again = relay.create_executor("debug", module).evaluate()(X, Y)
    assert again.constructor.name_hint == "Cons"


def test_trees() -> None:
    def body(p: Any, x: Any, y: Any) -> Any:
        leaf = p.rose(y, p.nil())
        return p.size(p.rose(x, p.cons(leaf, p.cons(leaf, p.nil()))))

    assert agree(program(body), X, Y) == 3


def test_a_long_list_is_made_and_freed() -> None:
    """200,000 elements: nothing recurses in C."""
    module = sterna.IRModule()
    p = Prelude(module)
    kind = p.l(FLOATS)
    i, items, build = scalar("i"), relay.var("items", kind), relay.GlobalVar("build")
    x, n = relay.var("x", FLOATS), scalar("n")
    again = build(relay.subtract(i, relay.const(1)), p.cons(x, items), x)
    stop = relay.equal(i, relay.const(0))
    module["build"] = relay.Function([i, items, x], relay.If(stop, items, again), kind)
    module["main"] = relay.Function([n, x], p.length(build(n, p.nil(), x)))
    found = relay.create_executor("vm", module).evaluate()(np.int32(200_000), X)
    assert found.numpy() == 200_000


def test_references_are_written_and_read_in_order() -> None:
    x, r, a, b = relay.var("x", FLOATS), relay.var("r"), relay.var("a"), relay.var("b")
    first = relay.RefRead(r)
    written = relay.RefWrite(r, relay.multiply(a, relay.const(3.0)))
    body = relay.Let(r, relay.RefCreate(x), relay.Let(a, first, relay.Let(
        relay.var("_"), written, relay.Let(b, relay.RefRead(r), relay.subtract(b, a)))))
    np.testing.assert_array_equal(agree(relay.Function([x], body), X), 2 * X)


def test_while_loop() -> None:
    i, s = scalar("i"), relay.var("s", FLOATS)
    loop = relay.loops.while_loop(
        lambda i, s: relay.less(i, relay.const(4)), [i, s],
        lambda i, s: [relay.add(i, relay.const(1)), relay.add(s, s)])
    x = relay.var("x", FLOATS)
    found = agree(relay.Function([x], relay.Call(loop, (relay.const(0), x))), X)
    np.testing.assert_array_equal(found[1], 16 * X)
