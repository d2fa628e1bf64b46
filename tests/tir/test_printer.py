"""Functions as text, and back."""

import contextlib
import random
from collections.abc import Callable

import pytest

from sterna.ir import Var, const, explain_difference
from sterna.tir import Allocate, Buffer, BufferStore, For, ParseError, PrimFunc, parse
from sterna.tir.verify import verify
from tests.tir.programs import ALL, F32, ZERO, everything, function, vecadd

Golden = Callable[[str, str], None]


@pytest.mark.parametrize("name", ALL)
def test_text(name: str, golden: Golden) -> None:
    golden(f"{name}.txt", repr(ALL[name]()) + "\n")


def test_vecadd_reads_well() -> None:
    assert repr(vecadd()) == (
        'def vecadd(A: Buffer[(1024,), "float32"], B: Buffer[(1024,), "float32"], '
        'C: Buffer[(1024,), "float32"]):\n'
        "    for i in range(1024):  # parallel\n"
        "        C[i] = A[i] + B[i]"
    )


@pytest.mark.parametrize("name", ALL)
def test_the_text_can_be_read_back(name: str) -> None:
    func = ALL[name]()
    again = parse(repr(func))
    assert explain_difference(func, again) is None
    assert repr(again) == repr(func)
    verify(again)


def test_a_loop_over_a_thread() -> None:
    a = Buffer("A", F32, (const(4),))
    i = Var("threadIdx.x")
    func = function("f", For(i, ZERO, const(4), "thread", BufferStore(a, const(1.0), (i,)),
                             "threadIdx.x"), a)
    assert "# thread threadIdx.x" in repr(func)
    assert explain_difference(func, parse(repr(func))) is None


def test_statements_print_alone() -> None:
    a = Buffer("A", F32, (const(4),))
    stmt = Allocate(a, BufferStore(a, const(1.0), (ZERO,)))
    assert repr(stmt) == 'A = allocate((4,), "float32", "global")\nA[0] = 1.0'
    assert repr(a) == 'A: Buffer[(4,), "float32"]'


HEAD = 'def f(A: Buffer[(4,), "float32"]):\n'

BROKEN = [
    ("", "line 1, column 1: expected a function"),
    ("def f(:", "line 1, column 7: expected a parameter, found ':'"),
    ("def f(A: int333):", "line 1, column 10: expected a type, found 'int333'"),
    ('def f(A: Buffer[(4,), "floaty"]):\n    pass', "column 23: expected a data type"),
    (HEAD, "expected an indented block after this line"),
    (HEAD + "  A[0] = 1.0", "expected an indented block"),
    (HEAD + "    A[0] = 1.0 1", "line 2, column 16: expected the end of the line, found '1'"),
    (HEAD + "    A[0] = B[0]", "line 2, column 12: there is no 'B' here"),
    (HEAD + "    A[0, 1] = 1.0", "A has 1 dimensions"),
    (HEAD + "    A[0] = 1", "int32 is stored where float32 belongs"),
    (HEAD + "    A[0] = (1.0", "line 2, column 16: expected '\\)', found the end of the line"),
    (HEAD + "    for i in range(4):  # sideways\n        pass", "no loop of kind 'sideways'"),
    (HEAD + "    for i in range(4):\n    pass", "expected an indented block"),
    (HEAD + "    for i in range(A[0]):\n      pass", "expected .* block|expected 8 spaces"),
    (HEAD + "    x: int32 = 1.5", "'x' is int32, its value float32"),
    (HEAD + "    A[0] = A[0] + 1.0 $", "the character '\\$' means nothing here"),
    (HEAD + "    A[0] = float32(A[0] < 1) + int64(2)", "column 31: float32 beside int64|beside"),
    (HEAD + "    pass\ndef g():\n    pass", "expected the end of the text, found 'def'"),
    (HEAD + "    A[0] = 1.0\n    A = 3", "'A' is bound already"),
    (HEAD + '    with tensorized("f"):\n        pass\n    pass', "expected 'means', found 'pass'"),
    (HEAD + "    prefetch_region(B, (0,), (1,))", "column 21: expected a buffer, found 'B'"),
    (HEAD + '    assert True, "x"', "expected an error's name"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN)
def test_errors_say_where_and_what(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse(text)


def test_text_that_is_nested_too_deeply() -> None:
    text = 'def main(A: Buffer[(4,), "float32"]):\n    A[0] = ' + "(" * 50_000
    with pytest.raises(ParseError, match=r"line 2.*nested too deeply"):
        parse(text)


def test_damaged_text_gives_a_function_or_a_parse_error() -> None:
    text = repr(everything())
    generator = random.Random(3)
    pieces = ["(", ")", "[", "]", " ", "\n", "0", "1.5", "i", "n", ":", "=", '"', "#", "-", ","]
    for _ in range(1500):
        start = generator.randrange(len(text))
        end = start + generator.randrange(6)
        damaged = text[:start] + generator.choice(pieces) + text[end:]
        with contextlib.suppress(ParseError):
            assert isinstance(parse(damaged), PrimFunc)
