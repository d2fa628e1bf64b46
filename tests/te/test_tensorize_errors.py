"""What cannot be tensorized, and how that is said."""

import re
from typing import Any

import pytest

import sterna as tvm
from sterna import te, tir
from sterna.te.lower import lower_schedule
from tests.te.intrinsics import gemm


def matmul(
    n: int = 16, m: int = 16, k: int = 16, dtype: str = "float32", **changes: Any
) -> tuple[Any, Any, Any, Any]:
    a = te.placeholder((n, k), dtype, name="A")
    b = te.placeholder((k, m), dtype, name="B")
    over = te.reduce_axis((0, k), name="k")
    reduce = changes.get("reduce", te.sum)
    source = changes.get("source", lambda i, j, k: a[i, k] * b[k, j])
    make = changes.get("make", lambda i, j: reduce(source(i, j, over), axis=over))
    c = te.compute((n, m), make, name="C")
    return te.create_schedule(c.op), a, b, c


def refuse(s: Any, args: Any, *said: str) -> str:
    """Lower a schedule that must be refused with these words in order."""
    with pytest.raises(ValueError, match="(?s)" + ".*".join(map(re.escape, said))) as error:
        tvm.lower(s, args)
    return str(error.value)


def tiled(s: Any, c: Any, intrin: Any = None, factor: int = 4) -> Any:
    i, j = c.op.axis
    xo, yo, xi, yi = s[c].tile(i, j, factor, factor)
    s[c].tensorize(xi, intrin or gemm(4, 4, 16))
    return xo, yo, xi, yi


def test_both_computations_are_shown() -> None:
    s, a, b, c = matmul()
    tiled(s, c, factor=8)
    text = refuse(s, [a, b, c], "C cannot be tensorized at i.inner by gemm: the loops run over")
    assert text.splitlines() == [
        "C cannot be tensorized at i.inner by gemm: the loops run over (i: 8, j: 8), the intrinsic "
        "over (i: 4, j: 4)",
        "  the loops compute      C[i.outer*8 + i, j.outer*8 + j] = reduce(x + y, "
        "A[i.outer*8 + i, k]*B[k, j.outer*8 + j], axis=[k]) for i < 8, j < 8, k < 16",
        "  the intrinsic computes c[i, j] = reduce(x + y, a[i, k]*b[k, j], axis=[k]) "
        "for i < 4, j < 4, k < 16",
    ]


def test_other_expressions() -> None:
    s, a, b, c = matmul(source=lambda i, j, k: te.exp(te.const(1.0)))
    tiled(s, c)
    refuse(s, [c], "exp(1.0) against a[i, k]*b[k, j]")
    s, a, b, c = matmul(reduce=te.max)
    tiled(s, c)
    refuse(s, [a, b, c], "max(x, y) against x + y")
    s, a, b, c = matmul(dtype="float64")
    tiled(s, c)
    refuse(s, [a, b, c], "is float64,", "is float32")
    s, a, b, c = matmul(make=lambda i, j: te.const(1.0))
    tiled(s, c)
    refuse(s, [c], "one is a reduction, the other is none")


def test_other_places() -> None:
    x, y = te.placeholder((16, 16), name="X"), te.placeholder((16, 16), name="Y")
    k = te.reduce_axis((0, 16), name="k")
    c = te.compute((16, 16), lambda i, j: te.sum(x[i, k] * y[j, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    tiled(s, c)
    refuse(s, [x, y, c], "Y[", "] is read where the intrinsic reads b[k, j]")
    c = te.compute((16, 16), lambda i, j: te.sum(x[i, k] * y[k, j] + x[0, 0], axis=k), name="C")
    s = te.create_schedule(c.op)
    tiled(s, c)
    refuse(s, [x, y, c], "against a[i, k]*b[k, j]")
    square = te.placeholder((16, 16), name="S")
    c = te.compute((16, 16), lambda i, j: te.sum(x[i, k] * square[k, j], axis=k,
                                                 where=k.var < 9), name="C")
    s = te.create_schedule(c.op)
    tiled(s, c)
    refuse(s, [x, square, c], "k < 9 against True")
    c = te.compute((16, 16), lambda i, j: te.sum(x[i, k] * y[k, j], axis=k, init=1.0), name="C")
    s = te.create_schedule(c.op)
    tiled(s, c)
    refuse(s, [x, y, c], "(1.0,) against ()")


def test_an_input_that_is_two_tensors() -> None:
    a = te.placeholder((4,), name="a")
    c = te.compute((4,), lambda i: a[i] * a[i], name="c")
    square = te.decl_tensor_intrin(
        c.op, lambda ins, outs: tir.call_extern("int32", "square"), name="square"
    )
    x, y = te.placeholder((4,), name="X"), te.placeholder((4,), name="Y")
    out = te.compute((4,), lambda i: x[i] * y[i], name="C")
    s = te.create_schedule(out.op)
    s[out].tensorize(out.op.axis[0], square)
    refuse(s, [x, y, out], "a is X here and Y there")
    shifted = te.placeholder((5,), name="Z")
    out = te.compute((4,), lambda i: shifted[i] * shifted[i + 1], name="C")
    s = te.create_schedule(out.op)
    s[out].tensorize(out.op.axis[0], square)
    refuse(s, [shifted, out], "Z[i] is read where the intrinsic reads a[i]")


def test_loops_that_cannot_be_replaced() -> None:
    s, a, b, c = matmul()
    s[c].vectorize(tiled(s, c)[1])
    refuse(s, [a, b, c], "the loop j.outer around it is vectorized")
    s, a, b, c = matmul()
    i, j = c.op.axis
    io, ii = s[c].split(i, 4)
    s[c].reorder(ii, io, j)
    s[c].tensorize(io, gemm(4, 16, 16))
    refuse(s, [a, b, c], "the loops i.outer, j, k leave gaps on the axes of C")
    s, a, b, c = matmul()
    cache = s.cache_read(a, "global", [c])
    *_, yi = tiled(s, c)
    s[cache].compute_at(s[c], yi)
    refuse(s, [a, b, c], "A.global is computed at j.inner, which the intrinsic replaces")
    s, a, b, c = matmul()
    *_, yi = tiled(s, c)
    s[c].prefetch(a, yi, 1)
    refuse(s, [a, b, c], "j.inner, which the intrinsic replaces, is bound to a thread or prefetch")
    s, a, b, c = matmul()
    tiled(s, c)
    s[c].set_store_predicate(c.op.axis[0] < 3)
    refuse(s, [a, b, c], "its stage has a store predicate")


def test_a_rolling_buffer_goes_round() -> None:
    a = te.placeholder((16, 8), name="A")
    b = te.compute((16, 8), lambda i, j: a[i, j] * 2.0, name="B")
    r = te.reduce_axis((0, 3), name="r")
    c = te.compute((14, 8), lambda i, j: te.sum(b[i + r, j], axis=r), name="C")
    x = te.placeholder((3, 8), name="x")
    k = te.reduce_axis((0, 3), name="k")
    y = te.compute((8,), lambda j: te.sum(x[k, j], axis=k), name="y")
    columns = te.decl_tensor_intrin(
        y.op, lambda ins, outs: tir.call_extern("int32", "f", *ins, *outs), name="columns"
    )
    s = te.create_schedule(c.op)
    s[b].compute_at(s[c], c.op.axis[0])
    s[b].rolling_buffer()
    s[c].tensorize(c.op.axis[1], columns)
    refuse(s, [a, c], "B is kept in a rolling buffer, in which a tile does not lie in one piece")


def test_what_is_read_under_a_condition_must_be_there() -> None:
    a = te.placeholder((8,), name="a")
    c = te.compute((8,), lambda i: te.if_then_else(i < 5, a[i], 0.0), name="c")
    first = te.decl_tensor_intrin(
        c.op, lambda ins, outs: tir.call_extern("int32", "f", *ins, *outs), name="first"
    )
    for columns in (5, 8):
        x = te.placeholder((3, columns), name="X")
        out = te.compute((3, 8), lambda i, j: te.if_then_else(j < 5, x[i, j], 0.0), name="C")  # noqa: B023
        s = te.create_schedule(out.op)
        s[out].tensorize(out.op.axis[1], first)
        if columns == 8:
            tvm.lower(s, [x, out])
        else:
            refuse(s, [x, out], "it reads a under a condition, and 8 elements from 0 on may stick")


def test_a_part_of_a_reduction_needs_an_update() -> None:
    s, a, b, c = matmul()
    xo, yo, xi, yi = tiled(s, c, gemm(4, 4, 4, "b"))
    ko, ki = s[c].split(c.op.reduce_axis[0], 4)
    s[c].reorder(xo, yo, ko, xi, yi, ki)
    refuse(s, [a, b, c], "the loop k.outer over a part of the reduction runs outside, but the intr")


# ---- buffers ----


def copy_of(**buffer: Any) -> Any:
    """c[i, j] = a[i, j] on tiles of 2 by 4, with a declared as this buffer."""
    a = te.placeholder((2, 4), name="a")
    c = te.compute((2, 4), lambda i, j: a[i, j] + 1.0, name="c")
    binds = {
        a: tir.decl_buffer((2, 4), "float32", "a", **buffer),
        c: tir.decl_buffer((2, 4), "float32", "c", strides=[te.var("s"), 1]),
    }
    emit = lambda ins, outs: tir.call_extern("int32", "f", *ins, *outs)  # noqa: E731
    return te.decl_tensor_intrin(c.op, emit, name="copy", binds=binds)


def copying(intrin: Any, cached: bool = False) -> Any:
    a = te.placeholder((8, 16), name="A")
    c = te.compute((8, 16), lambda i, j: a[i, j] + 1.0, name="C")
    s = te.create_schedule(c.op)
    if cached:
        s.cache_read(a, "local", [c])
    i, j = c.op.axis
    s[c].tensorize(s[c].tile(i, j, 2, 4)[2], intrin)
    return s, [a, c]


def test_strides_must_be_those_of_the_buffer() -> None:
    said = "its buffer a, which is at A[i.outer*2, j.outer*4], has a stride of 16 in dimension 0, "
    refuse(*copying(copy_of()), said + 'not 4; declare it with strides=[te.var("s0"), 1]')
    refuse(*copying(copy_of(strides=[8, 1])), "not 8")
    one = te.var("one")
    refuse(*copying(copy_of(strides=[one, one])), "has a stride of 1 in dimension 1, not 16")
    tvm.lower(*copying(copy_of(strides=[16, 1])))


def test_memory_must_be_the_declared_one() -> None:
    strides = [te.var("s"), 1]
    refuse(*copying(copy_of(strides=strides), cached=True), 'declare it with scope="local"')
    tvm.lower(*copying(copy_of(strides=strides, scope="local"), cached=True))
    refuse(*copying(copy_of(strides=strides, scope="local")), 'declare it with scope="global"')


def test_alignment_must_be_known() -> None:
    strides = [te.var("s"), 1]
    aligned = copy_of(strides=strides, data_alignment=16)
    refuse(*copying(aligned), "is only known to be at a multiple of 4 bytes, not of 16")
    ours = copy_of(strides=strides, data_alignment=16, scope="local")
    s, args = copying(ours, cached=True)
    assert "alignment=16" in str(lower_schedule(s, args, "f"))
    wide = copy_of(strides=strides, data_alignment=64, scope="local")
    refuse(*copying(wide, cached=True), "is only known to be at a multiple of 16 bytes, not of 64")


# ---- declarations ----


def declare(make: Any = None, shape: int = 4, **options: Any) -> Any:
    a = te.placeholder((4,), name="a")
    c = te.compute((shape,), make(a) if make else lambda i: a[i] + 1.0, name="c")
    emit = options.pop("emit", lambda ins, outs: tir.call_extern("int32", "f", *ins, *outs))
    return te.decl_tensor_intrin(c.op, emit, name="f", **options)


def test_wrong_declarations() -> None:
    with pytest.raises(TypeError, match="the intrinsic f needs the operation of a compute"):
        te.decl_tensor_intrin(te.placeholder((4,)).op, print, name="f")
    first = te.compute((4,), lambda i: te.const(1.0), name="first")
    with pytest.raises(ValueError, match="Do not yet support composition op: first, an input of"):
        declare(lambda a: lambda i: a[i] + first[i])
    with pytest.raises(ValueError, match=r"read the whole of its input a: .* from 0 to 2, the sh"):
        declare(shape=3)
    from_one = te.reduce_axis((1, 4), name="r")
    with pytest.raises(ValueError, match="the axis r of the intrinsic f must start at 0"):
        declare(lambda a: lambda i: te.sum(a[from_one], axis=from_one))
    a = te.placeholder((4,), name="a")
    c = te.compute((4,), lambda i: a[i] + 1.0, name="c")
    other = tir.decl_buffer((5,), "float32", "B")
    with pytest.raises(ValueError, match=r"binds a, float32\[4\], to the buffer B: Buffer\[\(5,\)"):
        te.decl_tensor_intrin(c.op, lambda ins, outs: None, name="f", binds={a: other})
    with pytest.raises(ValueError, match=r"the intrinsic f binds .*, which is no part of it"):
        declare(binds={te.placeholder((4,)): other})


@pytest.mark.parametrize(
    ("emit", "said"),
    [
        (lambda ins, outs: None, "the intrinsic f gives no statement"),
        (lambda ins, outs: (None, None, None), "the intrinsic f gives no statement"),
        (lambda ins, outs: 3, "the body of the intrinsic f is no statement: 3"),
        (lambda ins, outs: (outs[0].vstore([0], 1.0),) * 3, "f reduces nothing: it gives one"),
        (lambda ins, outs: (outs[0].vstore([0], 1.0),) * 4, "f gives 4 statements, not 3 at most"),
        (lambda ins, outs: outs[0].vstore([te.var("q")], 1.0), "the variable q is used outside"),
        (
            lambda ins, outs: tir.decl_buffer((4,), "float32", "Z").vstore([0], 1.0),
            "the body of the intrinsic f is wrong: the buffer Z is used outside what binds it",
        ),
    ],
)
def test_wrong_statements(emit: Any, said: str) -> None:
    with pytest.raises((ValueError, TypeError), match=said):
        declare(emit=emit)


def test_wrong_calls() -> None:
    s, a, _, c = matmul()
    with pytest.raises(TypeError, match=r"stage C: i is tensorized by what te\.decl_tensor_intrin"):
        s[c].tensorize(c.op.axis[0], 3)
    with pytest.raises(ValueError, match="A cannot be tensorized: only a compute can be"):
        s[a].tensorize(c.op.axis[0], gemm(4, 4, 16))
    s[c].split(c.op.axis[0], 4)
    with pytest.raises(ValueError, match="that has already been split"):
        s[c].tensorize(c.op.axis[0], gemm(4, 4, 16))
    assert repr(gemm(4, 4, 16)) == "TensorIntrin(gemm)"
