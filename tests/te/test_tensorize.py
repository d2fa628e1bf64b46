"""Intrinsics in the place of loops: numbers, what is bound to what, and what is refused."""

import random
import shutil
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, tir
from sterna.contrib import clang
from sterna.support.toolchain import find_clang
from sterna.target import machine_of
from tests.support import require_module, require_program
from tests.te.intrinsics import check, gemm, strided

RNG = np.random.default_rng(0)


def numbers(*shape: int, dtype: str = "float32") -> Any:
    return RNG.integers(0 if dtype == "uint8" else -5, 6, shape).astype(dtype)


def matmul(n: int, m: int, k: int) -> Any:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    over = te.reduce_axis((0, k), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, over] * b[over, j], axis=over), name="C")
    return te.create_schedule(c.op), a, b, c


# ---- functions of C ----

GEMV = """
#ifdef __cplusplus
extern "C" {
#endif
int gemv_update(float *cc, float *aa, float *bb, int m, int l, int stride) {
  for (int i = 0; i < m; ++i)
    for (int j = 0; j < l; ++j) cc[i] += aa[j] * bb[i * stride + j];
  return 0;
}
int gemv_reset(float *cc, int m) {
  for (int i = 0; i < m; ++i) cc[i] = 0.0f;
  return 0;
}
#ifdef __cplusplus
}
#endif
"""


def gemv(m: int, n: int) -> Any:
    a, b = te.placeholder((n,), name="a"), te.placeholder((m, n), name="b")
    k = te.reduce_axis((0, n), name="k")
    c = te.compute((m,), lambda i: te.sum(a[k] * b[i, k], axis=k), name="c")
    binds = {tensor: strided(tensor, x) for tensor, x in zip((a, b, c), "ABC", strict=True)}

    def fcompute(ins: Any, outs: Any) -> Any:
        aa, bb = ins
        cc = outs[0]

        def write(reset: bool, update: bool) -> Any:
            ib = tir.ir_builder.create()
            if reset:
                ib.emit(tir.call_extern("int32", "gemv_reset", cc.access_ptr("w"), m))
            if update:
                ib.emit(
                    tir.call_extern(
                        "int32", "gemv_update", cc.access_ptr("w"), aa.access_ptr("r"),
                        bb.access_ptr("r"), m, n, bb.strides[0],
                    )
                )
            return ib.get()

        return write(True, True), write(True, False), write(False, True)

    return te.decl_tensor_intrin(c.op, fcompute, name="gemv", binds=binds)


@pytest.mark.parametrize(("n", "m", "depth"), [(3, 32, 16), (1, 40, 38)])
@pytest.mark.parametrize("target", ["c", "llvm"])
def test_matrix_times_vector_in_c(target: str, n: int, m: int, depth: int) -> None:
    a, b = te.placeholder((n, depth), name="A"), te.placeholder((m, depth), name="B")
    k = te.reduce_axis((0, depth), name="k")
    c = te.compute((n, m), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), name="C")
    s = te.create_schedule(c.op)
    x, y = c.op.axis
    yo, yi = s[c].split(y, factor=16)
    ko, ki = s[c].split(k, factor=16)
    s[c].reorder(x, yo, ko, yi, ki)
    s[c].tensorize(yi, gemv(16, 16))
    assert s[c].iter_var_attrs[yi].kind == 8
    if target == "c":
        require_program("cc")
        s[c].pragma(x, "import_c", GEMV)
    else:
        if find_clang() is None:
            require_module("ziglang")
        s[c].pragma(x, "import_llvm", clang.create_llvm(GEMV))
    p, q = numbers(n, depth), numbers(m, depth)
    text = check(s, [a, b, c], [p, q], p @ q.T, [target], bodies=False)
    assert "address_of(B[j.outer*16, k.outer*16])" in text
    assert f", 16, 16, {depth})" in text


def test_the_whole_reduction_at_once() -> None:
    require_program("cc")
    s, a, b, c = matmul(8, 12, 5)
    i, j = c.op.axis
    xo, _, xi, _ = s[c].tile(i, j, 4, 4)
    s[c].parallel(xo)
    s[c].tensorize(xi, gemm(4, 4, 5))
    p, q = numbers(8, 5), numbers(5, 12)
    text = check(s, [a, b, c], [p, q], p @ q, ["llvm", "c"])
    assert text.count("tensorized") == 1


@pytest.mark.parametrize("parts", ["iu", "u", "bu"])
def test_without_all_three_statements(parts: str) -> None:
    s, a, b, c = matmul(8, 6, 10)
    i, j = c.op.axis
    xo, yo, xi, yi = s[c].tile(i, j, 4, 3)
    s[c].tensorize(xi, gemm(4, 3, 10, parts))
    p, q = numbers(8, 10), numbers(10, 6)
    check(s, [a, b, c], [p, q], p @ q)
    ko, ki = s[c].split(c.op.reduce_axis[0], 5)
    s[c].reorder(xo, yo, ko, xi, yi, ki)
    s[c].tensorize(xi, gemm(4, 3, 5, parts))
    check(s, [a, b, c], [p, q], p @ q)


# ---- vectors ----


def vector_add(lanes: int, dtype: str = "float32") -> Any:
    a, b = (te.placeholder((lanes,), dtype, name=x) for x in "ab")
    c = te.compute((lanes,), lambda i: a[i] + b[i], name="c")

    def fcompute(ins: Any, outs: Any) -> Any:
        kind = f"{dtype}x{lanes}"
        x, y = (buffer.vload([0], kind) for buffer in ins)
        return outs[0].vstore([0], x + y)

    return te.decl_tensor_intrin(c.op, fcompute, name="vadd")


@pytest.mark.parametrize("n", [32, 37])
def test_vectors(n: int) -> None:
    a, b = te.placeholder((3, n), name="A"), te.placeholder((n,), name="B")
    c = te.compute((3, n), lambda i, j: a[i, j] + b[j], name="C")
    s = te.create_schedule(c.op)
    _, inner = s[c].split(c.op.axis[1], 8)
    s[c].tensorize(inner, vector_add(8))
    p, q = numbers(3, n), numbers(n)
    targets = ["llvm", "c"] if shutil.which("cc") else ["llvm"]
    text = check(s, [a, b, c], [p, q], p + q, targets)
    assert ("else:" in text) == (n == 37)


def int8_dot(instruction: bool) -> Any:
    """16 sums of 4 products of uint8 and int8, by one instruction or by several of any machine."""
    data, kernel = te.placeholder((4,), "uint8", name="data"), te.placeholder((16, 4), "int8", "k")
    k = te.reduce_axis((0, 4), name="k")
    c = te.compute(
        (16,),
        lambda i: te.sum(data[k].astype("int32") * kernel[i, k].astype("int32"), axis=k),
        name="C",
    )
    binds = {
        data: tir.decl_buffer(data.shape, "uint8", name="a", offset_factor=1, strides=[1]),
        kernel: tir.decl_buffer(
            kernel.shape, "int8", name="b", offset_factor=1, strides=[te.var("ldw"), 1]
        ),
    }

    def fcompute(ins: Any, outs: Any) -> Any:
        def write(part: int) -> Any:
            ib = tir.ir_builder.create()
            if part == 1:
                ib.emit(outs[0].vstore(0, tir.const(0, "int32x16")))
                return ib.get()
            start = outs[0].vload([0], "int32x16") if part else tir.const(0, "int32x16")
            if not instruction:
                for at in range(4):
                    column = tir.BufferLoad(ins[1], (tir.Ramp(tir.const(0), tir.const(1), 16),
                                                     tir.const(at)))
                    factor = ins[0].vload([at]).astype("int32").astype("int32x16")
                    start = start + column.astype("int32x16") * factor
                ib.emit(outs[0].vstore(0, start))
                return ib.get()
            a = tir.call_intrin("int32", "tir.reinterpret", ins[0].vload([0], "uint8x4"))
            b = ins[1].vload([0, 0], "int8x64")
            dot = tir.call_llvm_pure_intrin(
                "int32x16", "llvm.x86.avx512.vpdpbusd.512", tir.const(0, "uint32"),
                start, a.astype("int32x16"), tir.reinterpret("int32x16", b),
            )
            ib.emit(outs[0].vstore(0, dot))
            return ib.get()

        return write(0), write(1), write(2)

    return te.decl_tensor_intrin(
        c.op, fcompute, name="vnni", binds=binds, default_buffer_params={"offset_factor": 1}
    )


@pytest.mark.parametrize(
    ("n", "m", "k", "instruction"), [(2, 40, 8, True), (2, 40, 8, False), (3, 32, 8, False)]
)
def test_dot_product_of_bytes(n: int, m: int, k: int, instruction: bool) -> None:
    data = te.placeholder((n, k), "uint8", name="data")
    packed = te.placeholder((-(-m // 16), k // 4, 16, 4), "int8", name="packed")
    r = te.reduce_axis((0, k), name="r")
    out = te.compute(
        (n, m),
        lambda i, j: te.sum(
            data[i, r].astype("int32")
            * packed[j // 16, r.var // 4, j % 16, r.var % 4].astype("int32"),
            axis=r,
        ),
        name="out",
    )
    s = te.create_schedule(out.op)
    i, j = out.op.axis
    jo, ji = s[out].split(j, 16)
    ro, ri = s[out].split(r, 4)
    s[out].reorder(i, jo, ro, ji, ri)
    s[out].tensorize(ji, int8_dot(instruction))
    x, w = numbers(n, k, dtype="uint8"), numbers(-(-m // 16) * 16, k, dtype="int8")
    laid_out = w.reshape(-1, 16, k // 4, 4).transpose(0, 2, 1, 3).copy()
    expected = (x.astype("int32") @ w.T.astype("int32"))[:, :m]
    if not instruction:
        check(s, [data, packed, out], [x, laid_out], expected)
        return
    native = machine_of(tvm.target.Target("llvm -mcpu=native"))
    able = "x86_64" in native.triple and "+avx512vnni" in str(native.features)
    check(s, [data, packed, out], [x, laid_out], expected, [], bodies=False)
    if able:
        module = tvm.build(s, [data, packed, out], "llvm -mcpu=native")
        result = np.zeros_like(expected)
        module(x, laid_out, result)
        np.testing.assert_array_equal(result, expected)
        assert "vpdpbusd" in module.get_source("asm")
        assert "gather" not in module.get_source("ll")


# ---- what an intrinsic may be ----


def test_scalar_parameters_are_what_the_loops_have_there() -> None:
    x, y = (te.placeholder((4,), name=n) for n in "xy")
    alpha = te.var("alpha", "float32")
    z = te.compute((4,), lambda i: alpha * x[i] + y[i], name="z")

    def fcompute(ins: Any, outs: Any, scalars: Any) -> Any:
        (factor,) = scalars
        return outs[0].vstore(
            [0], factor * ins[0].vload([0], "float32x4") + ins[1].vload([0], "float32x4")
        )

    axpy = te.decl_tensor_intrin(z.op, fcompute, name="axpy", scalar_params=[alpha])
    a, b = te.placeholder((6, 8), name="A"), te.placeholder((6,), name="B")
    c = te.compute((6, 8), lambda i, j: (b[i] + 1.0) * a[i, j] + a[i, j], name="C")
    s = te.create_schedule(c.op)
    _, inner = s[c].split(c.op.axis[1], 4)
    s[c].tensorize(inner, axpy)
    p, q = numbers(6, 8), numbers(6)
    check(s, [a, b, c], [p, q], (q[:, None] + 1) * p + p)
    bad = te.compute((6, 8), lambda i, j: a[i, j] * a[i, j] + a[i, j], name="C")
    s = te.create_schedule(bad.op)
    s[bad].tensorize(s[bad].split(bad.op.axis[1], 4)[1], axpy)
    with pytest.raises(ValueError, match="which is alpha, is not the same for all elements"):
        tvm.lower(s, [a, bad])


def test_a_shape_may_be_a_variable() -> None:
    n = te.var("n")
    a = te.placeholder((n,), name="a")
    c = te.compute((n,), lambda i: a[i] * 2.0, name="c")

    def fcompute(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        x, y = ib.buffer_ptr(ins[0]), ib.buffer_ptr(outs[0])
        with ib.for_range(0, n) as i:
            y[i] = x[i] * 2.0
        return ib.get()

    twice = te.decl_tensor_intrin(c.op, fcompute, name="twice")
    for m, factor in ((12, 4), (15, 5), (14, 4)):
        big = te.placeholder((m,), name="A")
        out = te.compute((m,), lambda i: big[i] * 2.0, name="C")  # noqa: B023
        s = te.create_schedule(out.op)
        s[out].tensorize(s[out].split(out.op.axis[0], factor)[1], twice)
        p = numbers(m)
        check(s, [big, out], [p], p * 2)


def test_windows_of_an_input() -> None:
    a, w = te.placeholder((6,), name="a"), te.placeholder((3,), name="w")
    r = te.reduce_axis((0, 3), name="r")
    c = te.compute((4,), lambda i: te.sum(a[i + r] * w[r], axis=r), name="c")

    def fcompute(ins: Any, outs: Any) -> Any:
        total: Any = tir.const(0.0, "float32x4")
        for at in range(3):
            total = total + ins[0].vload([at], "float32x4") * ins[1].vload([at])
        return outs[0].vstore([0], total)

    slide = te.decl_tensor_intrin(c.op, fcompute, name="slide")
    data, weight = te.placeholder((2, 22), name="A"), te.placeholder((3,), name="W")
    k = te.reduce_axis((0, 3), name="k")
    out = te.compute((2, 20), lambda i, j: te.sum(data[i, j + k] * weight[k], axis=k), name="C")
    s = te.create_schedule(out.op)
    s[out].tensorize(s[out].split(out.op.axis[1], 4)[1], slide)
    p, q = numbers(2, 22), numbers(3)
    expected = sum(p[:, at : at + 20] * q[at] for at in range(3))
    check(s, [data, weight, out], [p, q], expected)


def test_two_results() -> None:
    a, b = (te.placeholder((4,), name=x) for x in "ab")
    both = te.compute((4,), lambda i: (a[i] + b[i], a[i] - b[i]), name="both")

    def fcompute(ins: Any, outs: Any) -> Any:
        x, y = (buffer.vload([0], "float32x4") for buffer in ins)
        return tir.SeqStmt((outs[0].vstore([0], x + y), outs[1].vstore([0], x - y)))

    intrin = te.decl_tensor_intrin(both[0].op, fcompute, name="both")
    p, q = te.placeholder((12,), name="P"), te.placeholder((12,), name="Q")
    total, rest = te.compute((12,), lambda i: (p[i] + q[i], p[i] - q[i]), name="T")
    s = te.create_schedule(total.op)
    s[total].tensorize(s[total].split(total.op.axis[0], 4)[1], intrin)
    x, y, sums, differences = numbers(12), numbers(12), np.zeros(12, "f4"), np.zeros(12, "f4")
    tvm.build(s, [p, q, total, rest])(x, y, sums, differences)
    np.testing.assert_array_equal(sums, x + y)
    np.testing.assert_array_equal(differences, x - y)


def test_an_intrinsic_may_bring_its_own_text() -> None:
    require_program("cc")
    a = te.placeholder((4,), name="a")
    c = te.compute((4,), lambda i: a[i] + 1.0, name="c")
    text = "static int more(float *c, const float *a, int at) { for (int i = 0; i < 4; i++) " \
           "c[i] = a[at + i] + 1; return 0; }"

    def fcompute(ins: Any, outs: Any) -> Any:
        ib = tir.ir_builder.create()
        ib.scope_attr(None, "pragma_import_c", text)
        start = ins[0].elem_offset  # beside the address: 0, for the address is the tile's
        ib.emit(tir.call_extern("int32", "more", outs[0].access_ptr("w"), ins[0].data, start))
        return ib.get()

    more = te.decl_tensor_intrin(c.op, fcompute, name="more")
    big = te.placeholder((3, 8), name="A")
    out = te.compute((3, 8), lambda i, j: big[i, j] + 1.0, name="C")
    s = te.create_schedule(out.op)
    s[out].tensorize(s[out].split(out.op.axis[1], 4)[1], more)
    p = numbers(3, 8)
    check(s, [big, out], [p], p + 1, ["c"], bodies=False)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
def test_extents_known_at_run_time(dtype: str) -> None:
    n = te.size_var("n", dtype)
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    s = te.create_schedule(c.op)
    s[c].tensorize(s[c].split(c.op.axis[0], 8)[1], vector_add(8))
    function = tvm.build(s, [a, b, c])
    for count in (0, 1, 7, 8, 9, 37):
        p, q, out = numbers(count), numbers(count), np.zeros(count, "float32")
        function(p, q, out)
        np.testing.assert_array_equal(out, p + q)


@pytest.mark.parametrize("columns", [4, 8])
def test_a_vector_may_go_on_in_the_next_row(columns: int) -> None:
    a = te.placeholder((3, 4), name="a")
    c = te.compute((3, 4), lambda i, j: a[i, j] * 2.0, name="c")

    def fcompute(ins: Any, outs: Any) -> Any:
        first = outs[0].vstore([0, 0], ins[0].vload([0, 0], "float32x8") * 2.0)
        return tir.SeqStmt((first, outs[0].vstore([1, 2], ins[0].vload([1, 2], "float32x6") * 2.0)))

    binds = {tensor: strided(tensor, x) for tensor, x in ((a, "A"), (c, "C"))}
    twice = te.decl_tensor_intrin(c.op, fcompute, name="twice", binds=binds)
    data = te.placeholder((6, columns), name="A")
    out = te.compute((6, columns), lambda i, j: data[i, j] * 2.0, name="C")
    s = te.create_schedule(out.op)
    i, j = out.op.axis
    s[out].tensorize(s[out].tile(i, j, 3, 4)[2], twice)
    p = numbers(6, columns)
    check(s, [data, out], [p], p * 2)
    text = str(tvm.lower(s, [data, out]))
    assert ("ramp(i.outer*12, 1, 8)" in text) == (columns == 4)


def test_loops_in_any_shape_and_marks_around() -> None:
    s, a, b, c = matmul(8, 8, 10)
    cached = s.cache_read(a, "global", [c])
    i, j = c.op.axis
    xo, yo, xi, yi = s[c].tile(i, j, 4, 8)
    ko, ki = s[c].split(c.op.reduce_axis[0], 5)
    s[c].reorder(xo, yo, ko, xi, yi, ki)
    s[c].tensorize(s[c].fuse(xi, yi), gemm(4, 8, 5))
    s[c].pragma(ki, "said", "inside")
    s[c].prefetch(b, ko, 1)
    s[cached].compute_at(s[c], ko)
    s[cached].double_buffer()
    p, q = numbers(8, 10), numbers(10, 8)
    text = check(s, [a, b, c], [p, q], p @ q)
    assert 'attr("pragma_said", None, "inside"):' in text


# ---- drawn at random ----


def draw_schedule(rng: random.Random) -> Any:
    """A product of matrices whose tiles are done by an intrinsic, wherever its parts are kept."""
    n, m, k = rng.randint(1, 10), rng.randint(1, 10), rng.randint(1, 10)
    s, a, b, c = matmul(n, m, k)
    d = c
    if rng.random() < 0.5:
        d = te.compute((n, m), lambda i, j: c[i, j] * 2.0, name="D")
        s = te.create_schedule(d.op)
    target = c
    scopes = ["", "", ""]
    if rng.random() < 0.3:
        scopes[2] = rng.choice(["local", "global"])
        target = s.cache_write(c, scopes[2])
    caches = []
    for place, tensor in enumerate((a, b)):
        if rng.random() < 0.3:
            scopes[place] = rng.choice(["local", "global"])
            caches.append(s.cache_read(tensor, scopes[place], [target]))
    stage = s[target]
    i, j = stage.op.axis
    tile = [rng.randint(1, min(extent, 4)) for extent in (n, m, k)]
    io, ii = stage.split(i, tile[0])
    jo, ji = stage.split(j, tile[1])
    outer, inner = [io, jo], [ii, ji]
    over = stage.op.reduce_axis[0]
    if rng.random() < 0.6:
        ko, ki = stage.split(over, tile[2])
        outer.append(ko)
        inner.append(ki)
    else:
        tile[2] = k
        inner.append(over)
    rng.shuffle(outer)
    rng.shuffle(inner)
    stage.reorder(*outer, *inner)
    parts = rng.choice(["biu", "iu", "u", "bu"])
    rows, columns, depth = tile
    stage.tensorize(inner[0], gemm(rows, columns, depth, parts, scopes))
    if rng.random() < 0.3 and outer[0].iter_type == 0:
        stage.parallel(outer[0])
    for cache in caches:
        if rng.random() < 0.7:
            s[cache].compute_at(stage, rng.choice(outer))
        if rng.random() < 0.5:
            s[cache].storage_align(s[cache].op.axis[0], 8, rng.randint(0, 3))
    if target is not d:
        reader = s[c] if target is not c else s[d]
        y, x = reader.op.axis
        sizes = rng.randint(1, 2) * rows, rng.randint(1, 2) * columns
        place = reader.tile(y, x, *sizes)[rng.randint(0, 1)]
        if rng.random() < 0.7:
            stage.compute_at(reader, place)
    return s, a, b, d, 1 if d is c else 2


@pytest.mark.parametrize("seed", range(24))
def test_random_tiles(seed: int) -> None:
    rng = random.Random(seed)
    s, a, b, d, factor = draw_schedule(rng)
    p, q = (numbers(*[int(e) for e in t.shape]) for t in (a, b))
    targets = ["llvm", "c"] if seed % 16 == 0 and shutil.which("cc") else ["llvm"]
    check(s, [a, b, d], [p, q], (p @ q) * factor, targets)


def test_a_packed_function_gets_the_part_that_is_bound() -> None:
    s, a, b, c = matmul(32, 16, 8)
    _, inner = s[c].split(c.op.axis[0], 4)
    of_a, of_b = te.placeholder((4, 8), name="a"), te.placeholder((8, 16), name="b")
    over = te.reduce_axis((0, 8), name="k")
    made = te.compute(
        (4, 16), lambda i, j: te.sum(of_a[i, over] * of_b[over, j], axis=over), name="c"
    )

    def fcompute(ins: Any, outs: Any) -> Any:
        return tir.Evaluate(tir.call_packed("test.part_of_a_product", *ins, *outs))

    binds = {
        tensor: strided(tensor, name)
        for tensor, name in zip((of_a, of_b, made), "ABC", strict=True)
    }
    s[c].tensorize(inner, te.decl_tensor_intrin(made.op, fcompute, binds=binds))
    shapes = set()

    def product(left: Any, right: Any, result: Any) -> None:
        shapes.add((left.shape, right.shape, result.shape))
        result.copyfrom(left.numpy() @ right.numpy())

    tvm.register_func("test.part_of_a_product", product)
    try:
        x, y = numbers(32, 8), numbers(8, 16)
        got = tvm.nd.empty((32, 16))
        tvm.build(s, [a, b, c])(tvm.nd.array(x), tvm.nd.array(y), got)
    finally:
        tvm.remove_global_func("test.part_of_a_product")
    assert shapes == {((4, 8), (8, 16), (4, 16))}
    np.testing.assert_array_equal(got.numpy(), x @ y)
