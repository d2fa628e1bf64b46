"""Sharing of memory, one after the other and in place."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.ir import Expr, Var, const
from sterna.ir.expr import HANDLE, Call, Ramp, StringImm
from sterna.te.lower import lower_schedule
from sterna.tir import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    Stmt,
    interpreter,
)
from sterna.tir.in_place import READS_FIRST, can_take_over
from sterna.tir.passes import storage_rewrite as sharing
from sterna.tir.passes.flatten_buffer import flatten_buffer
from sterna.tir.passes.loop_partition import loop_partition
from sterna.tir.passes.simplify import simplify
from sterna.tir.passes.storage_rewrite import storage_rewrite
from sterna.tir.stmt import AttrStmt, seq
from sterna.tir.verify import verify
from tests.tir.programs import F32, ZERO

N = 8192


def shared(s: Any, args: list[Any]) -> PrimFunc:
    """A schedule's loops after sharing."""
    loops = loop_partition(simplify(lower_schedule(s, args, "f")))
    done = storage_rewrite(flatten_buffer(loops))
    verify(done)
    return done


def memories(func: PrimFunc) -> int:
    return str(func).count("allocate(")


def check(s: Any, args: list[Any], expected: Callable[[Any], Any]) -> None:
    """The compiled schedule of one input and one output gives what NumPy gives."""
    shape, result = ([int(e) for e in arg.shape] for arg in args)
    values = np.arange(np.prod(shape), dtype="float32").reshape(shape) % 17
    out = np.zeros(result, "float32")
    tvm.build(s, args, target="llvm")(values, out)
    np.testing.assert_array_equal(out, expected(values))


# ---- one after the other ----


def test_memory_is_used_again() -> None:
    a = te.placeholder((N,), name="a")
    b = te.compute((N,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((N,), lambda i: b[N - 1 - i] * 2.0, name="c")
    d = te.compute((N,), lambda i: c[N - 1 - i] + 3.0, name="d")
    e = te.compute((N,), lambda i: d[N - 1 - i] * 2.0, name="e")
    s = te.create_schedule(e.op)
    assert memories(shared(s, [a, e])) == 2
    check(s, [a, e], lambda x: (((x + 1) * 2 + 3) * 2)[::-1])


def test_the_shared_memory_grows() -> None:
    a = te.placeholder((4096,), name="a")
    b = te.compute((4096,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((4096,), lambda i: b[4095 - i] * 2.0, name="c")
    d = te.compute((N,), lambda i: c[i // 2], name="d")
    e = te.compute((N,), lambda i: d[i] + 1.0, name="e")
    s = te.create_schedule(e.op)
    done = shared(s, [a, e])
    assert memories(done) == 2 and f"({N},)" in str(done)
    check(s, [a, e], lambda x: np.repeat(((x + 1) * 2)[::-1], 2) + 1)


def test_small_memory_is_left_alone() -> None:
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((64,), lambda i: b[i] * 2.0, name="c")
    d = te.compute((64,), lambda i: c[i] + 3.0, name="d")
    assert memories(shared(te.create_schedule(d.op), [a, d])) == 2


# ---- in place ----


def test_a_chain_needs_one_buffer() -> None:
    a = te.placeholder((N,), name="a")
    tensor = a
    for stage in range(6):
        tensor = _plus(tensor, float(stage))
    s = te.create_schedule(tensor.op)
    assert memories(shared(s, [a, tensor])) == 1
    check(s, [a, tensor], lambda x: x + 15)


def _plus(tensor: Any, number: float) -> Any:
    return te.compute(tensor.shape, lambda *i: tensor(*i) + number, name=f"t{int(number)}")


def test_what_is_still_needed_is_kept() -> None:
    a = te.placeholder((N,), name="a")
    b = te.compute((N,), lambda i: a[i] + 1.0, name="b")
    c = te.compute((N,), lambda i: b[i] * 2.0, name="c")
    d = te.compute((N,), lambda i: c[i] + b[i], name="d")
    e = te.compute((N,), lambda i: d[i] * b[i], name="e")
    s = te.create_schedule(e.op)
    # b lives to the end; d takes c's memory while it reads it
    assert memories(shared(s, [a, e])) == 2
    check(s, [a, e], lambda x: ((x + 1) * 2 + x + 1) * (x + 1))


def two_stages(make: Callable[[Any, Any, Any], Expr], schedule: Callable[[Any, Any], None]) -> int:
    """How many memories a matrix and one made from it need."""
    n, m = 17, 22
    a = te.placeholder((n, m), name="a")
    b = te.compute((n, m), lambda i, j: a[i, j] + 1.0, name="b")
    c = te.compute((n, m), lambda i, j: make(b, i, j), name="c")
    d = te.compute((n, m), lambda i, j: c[n - 1 - i, j] + 1.0, name="d")
    s = te.create_schedule(d.op)
    schedule(s[c], c)
    func = shared(s, [a, d])
    plain = lower_schedule(te.create_schedule(d.op), [a, d], "plain")
    values = np.random.default_rng(0).integers(0, 9, (n, m)).astype("float32")
    expected, result = np.zeros((n, m), "float32"), np.zeros(n * m, "float32")
    interpreter.run(plain, values, expected)
    interpreter.run(func, values.reshape(-1), result)
    np.testing.assert_array_equal(result.reshape(n, m), expected)
    return memories(func)


SCHEDULES: dict[str, Callable[[Any, Any], None]] = {
    "plain": lambda stage, c: None,
    "reordered": lambda stage, c: stage.reorder(*reversed(c.op.axis)),
    "fused": lambda stage, c: stage.fuse(*c.op.axis),
    "tiled": lambda stage, c: stage.tile(*c.op.axis, 17, 11),
    "with tails": lambda stage, c: stage.tile(*c.op.axis, 7, 8),
    "parallel with tails": lambda stage, c: stage.parallel(stage.split(c.op.axis[0], 7)[0]),
    "vectors": lambda stage, c: stage.vectorize(stage.split(c.op.axis[1], 4)[1]),
}


@pytest.fixture
def share_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets small buffers share memory, too."""
    monkeypatch.setattr(sharing, "SMALLEST_BYTES", 0)


@pytest.mark.parametrize("name", SCHEDULES)
@pytest.mark.usefixtures("share_all")
def test_in_place_under_schedules(name: str) -> None:
    assert two_stages(lambda b, i, j: b[i, j] * 2.0 + b[i, j], SCHEDULES[name]) == 1


@pytest.mark.parametrize(
    "make",
    [
        lambda b, i, j: b[i, 21 - j] * 2.0,
        lambda b, i, j: b[i, te.max(j - 1, 0)] + b[i, j],
        lambda b, i, j: te.if_then_else(i < 3, b[i, j], b[0, j]),
    ],
)
@pytest.mark.usefixtures("share_all")
def test_other_elements_forbid_it(make: Any) -> None:
    assert two_stages(make, SCHEDULES["plain"]) == 2


def test_arguments_are_never_taken_over() -> None:
    a = te.placeholder((N,), name="a")
    b = te.compute((N,), lambda i: a[i] + 1.0, name="b")
    s = te.create_schedule(b.op)
    done = shared(s, [a, b])
    assert "b[i] = a[i]" in str(done)


# ---- the rule itself ----

SOURCE, TARGET = Buffer("s", F32, (const(64),)), Buffer("t", F32, (const(64),))
X, Y, NAMED, V = Var("x"), Var("y"), Var("i"), Var("v", F32)


def move(at: Expr, source: Expr | None = None) -> Stmt:
    return BufferStore(TARGET, BufferLoad(SOURCE, (at if source is None else source,)) + 1.0, (at,))


def loop(var: Var, extent: int, body: Stmt, start: int = 0) -> Stmt:
    return For(var, const(start), const(extent), "serial", body)


CASES: list[tuple[str, Stmt, bool]] = [
    ("one element", move(const(3)), True),
    ("each once", loop(X, 8, move(X)), True),
    ("twice", loop(X, 8, loop(Y, 2, move(X))), False),
    ("rows", loop(X, 8, loop(Y, 8, move(X * 8 + Y))), True),
    ("columns", loop(X, 8, loop(Y, 8, move(Y * 8 + X))), True),
    ("rows that overlap", loop(X, 8, loop(Y, 8, move(X * 7 + Y))), False),
    ("rows with gaps", loop(X, 7, loop(Y, 8, move(X * 9 + Y))), True),
    ("backwards", loop(X, 8, move(63 - X)), True),
    ("a part and the rest", seq(loop(X, 8, move(X)), loop(Y, 4, move(Y + 8))), True),
    ("parts that overlap", seq(loop(X, 8, move(X)), loop(Y, 4, move(Y + 7))), False),
    ("loops that do not begin at 0", seq(loop(X, 8, move(X)), loop(Y, 4, move(Y), 8)), True),
    ("no iteration", loop(X, 0, seq(move(X), move(X))), True),
    ("a loop of unknown length", For(X, ZERO, Var("n"), "serial", move(X)), False),
    ("rows in two parts",
     loop(X, 4, seq(move(X * 8), loop(Y, 7, move(X * 8 + Y + 1)))), True),
    ("one way or the other", loop(X, 8, IfThenElse(X < 3, move(X), move(X))), True),
    ("one way and then both", loop(X, 8, seq(IfThenElse(X < 3, move(X)), move(X))), False),
    ("vectors", loop(X, 8, move(Ramp(X * 8, const(1), 8))), True),
    ("vectors that overlap", loop(X, 8, move(Ramp(X * 4, const(1), 8))), False),
    ("vectors side by side",
     seq(move(Ramp(const(0), const(2), 8)), move(Ramp(const(1), const(2), 8))), True),
    ("one way, then the other",
     loop(X, 8, IfThenElse(X < 5, move(X), loop(Y, 5, move(Y)))), False),
    ("ways apart", loop(X, 8, IfThenElse(X < 5, move(X), move(X + 20))), True),
    ("another index", loop(X, 8, move(X, X + 1)), False),
    ("not linear", loop(X, 8, move(X // 2)), False),
    ("read elsewhere", seq(move(X), LetStmt(Var("v", F32), BufferLoad(SOURCE, (ZERO,)),
                                            move(X + 1))), False),
    ("read just before", loop(X, 8, LetStmt(V, BufferLoad(SOURCE, (X,)),
                                            BufferStore(TARGET, V + 1.0, (X,)))), True),
    ("another read just before", loop(X, 8, LetStmt(V, BufferLoad(SOURCE, (X + 1,)),
                                                    BufferStore(TARGET, V + 1.0, (X,)))), False),
    ("an index with a name", loop(X, 8, LetStmt(NAMED, X * 2, move(NAMED))), True),
    ("one index with a name", loop(X, 8, LetStmt(NAMED, const(3), move(NAMED))), False),
    ("read by another store", seq(move(X), BufferStore(Buffer("u", F32, (const(1),)),
                                                       BufferLoad(SOURCE, (X,)), (ZERO,))), False),
    ("written", seq(move(X), BufferStore(SOURCE, const(0.0), (X,))), False),
    ("begun before it is read", seq(BufferStore(TARGET, const(0.0), (X,)), move(X)), False),
    ("its address is taken",
     seq(move(X), Evaluate(Call(const(0).dtype, "call_extern", (StringImm("f"), SOURCE.data)))),
     False),
]


@pytest.mark.parametrize(("name", "stmt", "expected"), CASES, ids=[case[0] for case in CASES])
def test_the_rule(name: str, stmt: Stmt, expected: bool) -> None:
    assert can_take_over(SOURCE, TARGET, [stmt]) is expected
    if expected:
        assert_same_in_place(stmt)


def assert_same_in_place(stmt: Stmt) -> None:
    """What is written is the same whether or not the target lies where the source lies."""
    out, i, j = Buffer("out", F32, (const(64),)), Var("i"), Var("j")
    begin = seq(*[
        For(v, ZERO, const(64), "serial", BufferStore(buffer, v.astype("float32"), (v,)))
        for v, buffer in ((Var("k"), TARGET), (i, SOURCE))
    ])
    end = For(j, ZERO, const(64), "serial", BufferStore(out, BufferLoad(TARGET, (j,)), (j,)))
    body = Allocate(SOURCE, Allocate(TARGET, seq(begin, stmt, end)))
    func = PrimFunc("f", (out.data,), (out,), body)
    before, after = np.zeros(64, "float32"), np.zeros(64, "float32")
    interpreter.run(func, before)
    # the beginning writes both: only what the statement itself wrote can be compared
    interpreter.run(_merged(func), after)
    written = before != np.arange(64)
    np.testing.assert_array_equal(after[written], before[written])


def _merged(func: PrimFunc) -> PrimFunc:
    sharer = sharing._Sharer()
    sharer.share(TARGET, SOURCE)
    body: Stmt = func.body.body.body  # type: ignore[attr-defined]
    return func.with_body(Allocate(SOURCE, sharer.rewrite(body)))


# ---- at random ----

MAPS: list[Callable[[Any, Any, Any, int, int], Any]] = [
    lambda t, i, j, n, m: t[i, j],
    lambda t, i, j, n, m: t[i, j] * 2.0 + t[i, j],
    lambda t, i, j, n, m: t[n - 1 - i, j],
    lambda t, i, j, n, m: t[i, te.max(j - 1, 0)] + t[i, j],
    lambda t, i, j, n, m: te.if_then_else(j < 2, t[i, j], 0.0),
]


@pytest.mark.parametrize("seed", range(40))
@pytest.mark.usefixtures("share_all")
def test_random_stages(seed: int) -> None:
    rng = random.Random(seed)
    n, m = rng.randint(2, 6), rng.randint(2, 7)
    tensors = [te.placeholder((n, m), name="a")]
    for number in range(rng.randint(2, 6)):
        tensors.append(_random_stage(rng, tensors, number, n, m))
    s = te.create_schedule(tensors[-1].op)
    args = [tensors[0], tensors[-1]]
    for tensor in tensors[1:]:
        if tensor.op in s.stage_map:
            _random_loops(rng, s[tensor], tensor)
    values = np.random.default_rng(seed).integers(-4, 5, (n, m)).astype("float32")
    expected, result = np.zeros((n, m), "float32"), np.zeros(n * m, "float32")
    interpreter.run(lower_schedule(s, args, "f"), values, expected)
    done = shared(s, args)
    interpreter.run(done, values.reshape(-1), result)
    np.testing.assert_array_equal(result.reshape(n, m), expected, err_msg=str(done))


def _random_stage(rng: random.Random, tensors: list[Any], number: int, n: int, m: int) -> Any:
    last, other = tensors[-1], rng.choice(tensors)
    first, second = rng.choice(MAPS), rng.choice(MAPS)
    both = rng.random() < 0.5 or last is tensors[0]

    def make(i: Any, j: Any) -> Any:
        value = first(last, i, j, n, m) + 1.0
        return value + second(other, i, j, n, m) if both else value

    return te.compute((n, m), make, name=f"t{number}")


def _random_loops(rng: random.Random, stage: Any, tensor: Any) -> None:
    i, j = tensor.op.axis
    kind = rng.choice(["plain", "reorder", "split", "fuse", "tile"])
    if kind == "reorder":
        stage.reorder(j, i)
    elif kind == "split":
        outer, inner = stage.split(rng.choice([i, j]), factor=rng.randint(2, 4))
        stage.parallel(outer) if rng.random() < 0.5 else stage.unroll(inner)
    elif kind == "fuse":
        stage.fuse(i, j)
    elif kind == "tile":
        stage.tile(i, j, rng.randint(1, 3), rng.randint(1, 4))


def test_statements_may_say_that_they_read_first() -> None:
    moved = loop(X, 8, move(X, 7 - X))
    address = Call(HANDLE, "address_of", (BufferLoad(SOURCE, (ZERO,)),))
    other = Call(HANDLE, "address_of", (BufferLoad(Buffer("u", F32, (const(8),)), (ZERO,)),))
    assert not can_take_over(SOURCE, TARGET, [moved])
    assert can_take_over(SOURCE, TARGET, [AttrStmt(READS_FIRST, None, address, moved)])
    assert not can_take_over(SOURCE, TARGET, [AttrStmt(READS_FIRST, None, other, moved)])
