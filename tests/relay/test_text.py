"""Graphs as text and back."""

# mypy: disable-error-code="arg-type, attr-defined"

import dataclasses
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.ir import explain_difference
from sterna.relay.attributes import Attrs, attributes
from sterna.relay.op import find, records
from sterna.relay.prelude import Prelude
from tests.relay.random_graphs import draw_cases, draw_network

CONSTANT = np.arange(24.0, dtype="float32").reshape(2, 3, 2, 2)


def network() -> tvm.IRModule:
    x = relay.var("x", shape=(1, 3, 8, 8))
    y = relay.nn.conv2d(x, relay.const(CONSTANT), padding=(1, 0, 1, 0), kernel_size=(2, 2))
    y = relay.nn.relu(y * relay.const(0.5) + 1.0)
    left, right = relay.split(y, 2, axis=1)
    return tvm.IRModule.from_expr(relay.Tuple([relay.concatenate([left, right], axis=-1), y]))


def check(mod: tvm.IRModule) -> None:
    again = relay.parse(mod.astext())
    assert explain_difference(mod, again) is None
    assert again.astext() == mod.astext()


def test_a_network_is_read_back() -> None:
    check(network())
    fused = relay.transform.FuseOps(2)(network())
    assert "Primitive=1" in str(fused["main"])
    check(fused)


def test_lets_choices_and_functions() -> None:
    x, flag = relay.var("x", shape=(2,)), relay.var("flag", shape=(), dtype="bool")
    v, own = relay.var("v"), relay.var("x", shape=(2,))
    inner = relay.Let(v, relay.add(x, x), relay.multiply(v, v))
    twice = relay.GlobalVar("twice")
    mod = tvm.IRModule(
        {
            "twice": relay.Function([own], relay.add(own, own)),
            "main": relay.Function(
                [x, flag], relay.If(flag, inner, twice(x)), relay.TensorType((2,), "float32")
            ),
        }
    )
    check(mod)


def test_unknown_dimensions_and_scalars() -> None:
    x = relay.var("x", relay.TensorType((relay.Any(), 3), "int8"))
    pair = relay.var("pair", relay.TupleType([x.checked_type, relay.TensorType((), "bool")]))
    body = relay.Tuple(
        [x + relay.const(np.int8(-3)), relay.TupleGetItem(pair, 1), relay.const(True)]
    )
    mod = tvm.IRModule.from_expr(body)
    assert "Tensor[(?, 3), int8]" in str(mod) and "-3i8" in str(mod)
    check(mod)


def conv(**attrs: Any) -> str:
    """A convolution's call as text."""
    x, w = relay.var("x", shape=(1, 4, 8, 8)), relay.var("w", shape=(4, 4, 3, 3))
    return str(relay.nn.conv2d(x, w, **attrs)).splitlines()[-1]


def test_attributes_show_where_they_differ_from_their_defaults() -> None:
    assert conv() == "nn.conv2d(%x, %w)"
    assert conv(padding=0, strides=1) == conv(padding=(0, 0, 0, 0)) == conv()
    assert conv(padding=1) == "nn.conv2d(%x, %w, padding=[1, 1, 1, 1])"
    assert conv(channels=4, data_layout="NCHW") == "nn.conv2d(%x, %w, channels=4)"
    x = relay.var("x", shape=(2, 3))
    assert str(relay.nn.softmax(x)).endswith("nn.softmax(%x)")
    assert str(relay.nn.softmax(x, axis=0)).endswith("nn.softmax(%x, axis=0)")
    assert str(relay.reshape(x, (3, 2))).endswith("reshape(%x, newshape=[3, 2])")
    with pytest.raises(ValueError, match=r"in nn\.dense\(data=%x: \S+ 3\), weight=%x: \S+ 4\)\)$"):
        relay.nn.dense(x, relay.var("x", shape=(2, 4)))


def test_defaults_that_hang_on_others_are_shown() -> None:
    first = Dependent(3)
    assert first.shown() == [("size", 3)]
    assert Dependent(3, pad=3).shown() == [("size", 3)]
    assert Dependent(3, half=True).shown() == [("size", 3), ("pad", 1), ("half", True)]
    assert Picky(2, depth=5).shown() == [("size", 2), ("depth", 5)]


@attributes
class Dependent(Attrs):
    """What the padding is by default hangs on the other two."""

    size: int
    pad: int | None = None
    half: bool = False

    def normalize(self) -> None:
        """The default in numbers."""
        if self.pad is None:
            self.pad = self.size // 2 if self.half else self.size


@attributes
class Picky(Attrs):
    """Its defaults alone are refused."""

    size: int
    depth: int = 0

    def normalize(self) -> None:
        """The two go together."""
        if self.size == 2 and self.depth != 5:
            raise ValueError("a size of 2 goes with a depth of 5")


def calls_of_cases() -> list[tuple[str, int]]:
    return [(name, i) for name, record in sorted(records().items()) if record.attrs is not None
            for i in range(len(record.cases))]


def test_attributes_of_every_operator_are_read_back() -> None:
    for name, place in calls_of_cases():
        record = find(name)
        assert record.attrs is not None
        attrs = record.attrs(**record.cases[place].attrs)
        again = record.attrs(**dict(attrs.shown()))
        assert explain_difference(attrs, again) is None, (name, place)
        defaults = {one.name: one.default for one in dataclasses.fields(record.attrs)}
        for key, value in attrs.shown():
            known = attrs.shown() == list(attrs.items()) or repr(value) != repr(defaults[key])
            assert known, f"{name}: {key}={value!r} is the default"


@pytest.mark.parametrize("seed", range(40))
def test_graphs_drawn_at_random_are_read_back(seed: int) -> None:
    drawn = draw_cases(seed) if seed % 2 else draw_network(seed)
    check(tvm.IRModule({"main": drawn.function}))


def test_attributes_that_are_no_finite_numbers() -> None:
    x = relay.var("x", shape=(2,))
    for low, high in ((-np.inf, 6.0), (0.0, np.inf), (np.nan, -0.0)):
        mod = tvm.IRModule.from_expr(relay.clip(x, low, high))
        made = relay.parse(mod.astext())["main"].body.attrs
        assert repr((made.a_min, made.a_max)) == repr((float(low), float(high)))


def test_printing_leaves_large_constants_out() -> None:
    assert "meta[relay.Constant][0]" in str(network())
    assert "#[metadata]" not in str(network()) and "#[metadata]" in network().astext()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("def @main(%x) { add(%x, %y) }", "line 1, column 25: %y is not defined"),
        ("def @main(%x: Tensor[(2), float32]) { add(%x %x) }", "expected ',', found '%x'"),
        ("def @main() { nn.sofmax(1f) }", "there is no operator 'nn.sofmax'; did you mean"),
        ("def @main() { meta[relay.Constant][3] }", "constant 3 is missing"),
        ("def @main() { nn.relu(1f, axis=2) }", "nn.relu has no attributes"),
        ("def @main() { $ }", "is no part of a graph"),
        ("def @main() { 1f", "expected '}', found 'the end'"),
        ("def @main() { 1f } def @main() { 1f }", "@main is defined twice"),
        ("", "expected an expression"),
        ("add(1, 3000000000)", "line 1, column 8: 3000000000 is no number of int32"),
        ("-1u8", "-1 is no number of uint8"), ("1.5i32", "1.5 is no number of int32"),
        ("70000f16", "70000 is no number of float16"), ("9" * 20, "is no number of int32"),
        ("def @main() { " + "(" * 50_000, "nested too deeply"),
    ],
)
def test_what_is_wrong_is_shown_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message.replace("[", r"\[")):
        relay.fromtext(text)


def test_signs_between_operands_bind_as_in_python() -> None:
    a, b = relay.var("a", relay.scalar_type("float32")), relay.var("b", shape=(3,))
    body = "%a-1f * (%b + %a) / %b - %a <= %b == True"
    text = f"fn (%a: float32, %b: Tensor[(3), float32]) {{ {body} }}"
    minus = a - relay.const(1.0) * (b + a) / b - a
    expected = relay.Function([a, b], relay.equal(relay.less_equal(minus, b), relay.const(True)))
    assert explain_difference(relay.parse_expr(text), expected) is None


def test_free_variables_and_scalars_are_read() -> None:
    read = relay.parse_expr("free_var %x: Tensor[(2, 3), int8]; free_var %s: int8;\n%x * %s")
    assert [str(v.type_annotation) for v in relay.analysis.free_vars(read)] == [
        "Tensor[(2, 3), int8]", "Tensor[(), int8]",
    ]
    with pytest.raises(ValueError, match="the text shows a module"):
        relay.parse_expr("def @main(%x: int8) { %x }")
    with pytest.raises(ValueError, match=r"line 1, column 9: .*flat32"):
        relay.parse_expr("fn (%x: flat32) { %x }")


def test_data_types_and_matches_are_read_back() -> None:
    mod = Prelude(tvm.IRModule()).mod
    text = mod.astext()
    again = relay.parse(text)
    assert again.astext() == text
    for name in ("hd", "map", "filter", "zip", "tmap", "size"):
        assert explain_difference(mod[name], again[name]) is None
    assert [str(each.name_hint) for each in again.get_type("List")] == ["List", "Cons", "Nil"]
    with pytest.raises(ValueError, match="'hd' is a function of the module"):
        again.get_type("hd")


def test_a_text_with_its_data_types_last_runs() -> None:
    mod = relay.parse("""
    def @main(%x: float32) -> (int32, float32) {
      let %cell = ref(%x);
      let %_ = ref_write(%cell, ref_read(%cell) * 2f);
      (@length(Cons(1, Cons(2, Nil))), ref_read(%cell))
    }
    def @length[A](%xs: List[A]) -> int32 {
      match (%xs) { Cons(_, %rest) => 1 + @length(%rest), Nil => 0 }
    }
    type List[A] { Cons(A, List[A]), Nil }
    """)
    read = relay.parse(mod.astext())
    assert explain_difference(mod["length"], read["length"]) is None
    run = relay.create_executor("vm", mod=read, target="llvm").evaluate()
    count, doubled = run(np.float32(1.5))
    assert int(count.numpy()) == 2 and float(doubled.numpy()) == 3.0


def test_a_value_that_both_branches_share_is_read_back() -> None:
    x, flag = relay.var("x", shape=(2,)), relay.var("flag", shape=(), dtype="bool")
    shared = relay.nn.relu(relay.exp(x))
    made = relay.Function([x, flag], relay.If(flag, relay.negative(shared), relay.sqrt(shared)))
    assert relay.parse(made.astext()).astext() == tvm.IRModule.from_expr(made).astext()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def @f(%x: L) { %x } type L { A, B(", "column 36"),
        ("def @f(%x: L) { match (%x) { C => 1 } } type L { A }", "no constructor C"),
        ("ref_write(1)", "column 1: "),
        ("def @f(%x: int8) { %x } type", "expected a name, found 'the end'"),
    ],
)
def test_broken_data_types_are_refused(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        relay.parse(text)
