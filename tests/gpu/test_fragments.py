"""Tensor Cores that user schedules reach by tensorize, and by the names of PTX's instructions."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import sterna as tvm
from sterna import te
from sterna.tir.device_interpreter import run_on_device
from sterna.tir.stmt import PrimFunc
from sterna.topi.cuda import tensor_intrin
from tests.gpu.ptxas import assemble, requires_ptxas
from tests.gpu.tensor_core_programs import N, Program, by_conv, conv, gemm

Array = npt.NDArray[Any]


def drawn(shape: tuple[int, ...], dtype: str) -> Array:
    random = np.random.default_rng(7)
    if dtype.startswith("float"):
        return random.standard_normal(shape).astype(dtype)
    return random.integers(0 if dtype == "uint8" else -9, 9, shape).astype(dtype)


def lowered(program: Program) -> PrimFunc:
    s, args = program
    made = tvm.lower(s, args, name="example")["example"]
    assert isinstance(made, PrimFunc)
    return made


def ptx_of(program: Program, arch: str) -> str:
    s, args = program
    module = tvm.build(s, args, target=f"cuda -arch={arch}", name="example")
    source: str = module.imported_modules[0].get_source()
    return source


@pytest.mark.parametrize("dtype, total", [
    ("float16", "float32"), ("float16", "float16"), ("int8", "int32"), ("uint8", "int32"),
])
def test_products_of_tiles_are_right_in_any_order_of_threads(dtype: str, total: str) -> None:
    func = lowered(gemm(4, 2, 2, dtype, total))
    a, b = drawn((4, 2, N, N), dtype), drawn((2, 2, N, N), dtype)
    want = np.einsum("iakl,ajlm->ijkm", a.astype("float64"), b.astype("float64"))
    for seed in range(1 if dtype == "uint8" else 2):
        c = np.zeros(want.shape, total)
        run_on_device(func, a, b, c, seed=seed)
        np.testing.assert_allclose(c, want, atol=0.1 if total == "float16" else 1e-4)


def test_convolutions_as_the_tutorial_writes_them() -> None:
    func = lowered(conv(1, 2, 1, 2))
    a, w = drawn((1, 2, 2, 1, N, N), "float16"), drawn((3, 3, 1, 2, N, N), "float16")
    out = np.zeros((1, 2, 2, 2, N, N), "float32")
    run_on_device(func, a, w, out)
    np.testing.assert_allclose(out, by_conv(a, w), atol=1e-4)


@requires_ptxas
@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100a"])
def test_fragments_assemble_and_stay_in_registers(arch: str) -> None:
    for program in (gemm(8, 4, 8), conv(1, 4, 2, 2)):
        ptx = ptx_of(program, arch)
        assert "wmma.mma.sync.aligned.row.row.m16n16k16.f32.f32" in ptx
        assert "wmma.load.a.sync.aligned.row.m16n16k16.shared.f16" in ptx and ".local" not in ptx
        assert assemble(ptx, arch).spilled_bytes == 0


@pytest.mark.parametrize("arch", ["sm_70", "sm_72"])
def test_the_first_tensor_cores_need_no_newer_ptx(arch: str) -> None:
    ptx = ptx_of(gemm(4, 2, 2), arch)
    assert ".version 6.3" in ptx and f".target {arch}" in ptx and "wmma.store.d" in ptx


@requires_ptxas
@pytest.mark.parametrize("dtype, word", [("int8", "s32.s8.s8.s32"), ("bfloat16", "f32.bf16.bf16")])
def test_other_types_have_their_own_products(dtype: str, word: str) -> None:
    total = "int32" if dtype == "int8" else "float32"
    ptx = ptx_of(gemm(4, 2, 4, dtype, total), "sm_80")
    assert f"m16n16k16.{word}" in ptx and assemble(ptx, "sm_80").spilled_bytes == 0


def test_gpus_and_languages_without_tensor_cores_say_so() -> None:
    with pytest.raises(ValueError, match="which sm_70 or later has and sm_61 has not"):
        ptx_of(gemm(4, 2, 2), "sm_61")
    with pytest.raises(ValueError, match="which sm_80 or later has and sm_75 has not"):
        ptx_of(gemm(4, 2, 2, "bfloat16"), "sm_75")
    with pytest.raises(ValueError, match=r"no sums of float16"):
        ptx_of(gemm(4, 2, 2, "int8", "float16"), "sm_80")


def test_fragments_are_touched_by_intrinsics_alone() -> None:
    A = te.placeholder((16, 16), name="A", dtype="float16")
    C = te.compute((16, 16), lambda i, j: A[i, j], name="C")
    s = te.create_schedule(C.op)
    AF = s.cache_read(A, "wmma.matrix_a", [C])
    s[AF].compute_at(s[C], s[C].op.axis[0])
    s[C].bind(s[C].op.axis[0], te.thread_axis("blockIdx.x"))
    with pytest.raises(ValueError, match="only intrinsics store there: tensorize its loops"):
        run_on_device(lowered((s, [A, C])), np.zeros((16, 16), "float16"), np.zeros((16, 16)))


def test_fragments_need_whole_warps() -> None:
    s, args = gemm(4, 2, 2)
    for stage in s.stages:
        for how in stage.iter_var_attrs.values():
            if how.bind_thread is not None and how.bind_thread.thread_tag == "threadIdx.x":
                how.bind_thread = te.thread_axis("threadIdx.z")
    with pytest.raises(ValueError, match=r"32 lanes of a warp, but there are 1 threadIdx.x; bind"):
        ptx_of((s, args), "sm_80")


def dense(m: int, n: int, k: int) -> Program:
    """Plain matrices by the intrinsics of topi, whose tiles are parts of larger ones."""
    shape = (N, N, N)
    A = te.placeholder((m, k), name="A", dtype="float16")
    B = te.placeholder((n, k), name="B", dtype="float16")
    r = te.reduce_axis((0, k), name="k")
    C = te.compute((m, n), lambda i, j: te.sum(
        A[i, r].astype("float32") * B[j, r].astype("float32"), axis=r), name="C")
    s = te.create_schedule(C.op)
    AS, BS = s.cache_read(A, "shared", [C]), s.cache_read(B, "shared", [C])
    AF, BF = s.cache_read(AS, "wmma.matrix_a", [C]), s.cache_read(BS, "wmma.matrix_b", [C])
    CF = s.cache_write(C, "wmma.accumulator")
    CS = s.cache_read(CF, "shared", [C])
    thread_x = te.thread_axis("threadIdx.x")
    i, j = s[C].op.axis
    block, i = s[C].split(i, factor=32)
    s[C].bind(block, te.thread_axis("blockIdx.x"))
    _, x = s[C].split(s[C].fuse(i, j), factor=32)
    s[C].bind(x, thread_x)
    s[CS].compute_at(s[C], block)
    s[CF].compute_at(s[C], block)
    i, j = s[CF].op.axis
    (r,) = s[CF].op.reduce_axis
    i, ii = s[CF].split(i, factor=N)
    j, jj = s[CF].split(j, factor=N)
    r, ri = s[CF].split(r, factor=N)
    s[CF].reorder(r, i, j, ii, jj, ri)
    for tensor in (AS, BS, AF, BF):
        s[tensor].compute_at(s[CF], r)
    for tensor in (AS, BS):
        s[tensor].storage_align(s[tensor].op.axis[0], 24, 8)
        _, x = s[tensor].split(s[tensor].fuse(*s[tensor].op.axis), factor=32)
        s[tensor].bind(x, thread_x)
    for tensor, load, layout in (
        (AF, tensor_intrin.intrin_wmma_load_matrix_A, "row_major"),
        (BF, tensor_intrin.intrin_wmma_load_matrix_W, "col_major"),
    ):
        outer, inner = s[tensor].split(s[tensor].op.axis[0], factor=N)
        s[tensor].reorder(outer, inner, s[tensor].op.axis[1])
        s[tensor].tensorize(inner, load([N, 1], [32, 1], shape, layout, (N, N), (N, N), "float16"))
    a = te.placeholder((N, N), name="A", dtype="float16")
    b = te.placeholder((N, N), name="B", dtype="float16")
    step = te.reduce_axis((0, N), name="k")
    c = te.compute((N, N), lambda i, j: te.sum(
        a[i, step].astype("float32") * b[j, step].astype("float32"), axis=step), name="c")
    s[CF].tensorize(ii, tensor_intrin.intrin_wmma_gemm(a, b, c, [N, 1], [N, 1], [n, 1], shape))
    down, rows = s[CS].split(s[CS].op.axis[0], factor=N)
    across, columns = s[CS].split(s[CS].op.axis[1], factor=N)
    s[CS].reorder(down, across, rows, columns)
    s[CS].tensorize(rows, tensor_intrin.intrin_wmma_store_matrix(
        [n, 1], [n, 1], shape, "float32", (N, N), (N, N)))
    return s, [A, B, C]


@requires_ptxas
def test_the_intrinsics_of_topi_multiply_plain_matrices() -> None:
    program = dense(32, 32, 32)
    a, b = drawn((32, 32), "float16"), drawn((32, 32), "float16")
    c = np.zeros((32, 32), "float32")
    run_on_device(lowered(program), a, b, c)
    np.testing.assert_allclose(c, a.astype("float64") @ b.astype("float64").T, atol=1e-4)
    ptx = ptx_of(program, "sm_80")
    assert "wmma.mma.sync.aligned.row.col.m16n16k16" in ptx
    assert assemble(ptx, "sm_80").spilled_bytes == 0


def test_dp4a_multiplies_bytes() -> None:
    x = te.placeholder((8, 4), name="x", dtype="int8")
    y = te.placeholder((8, 4), name="y", dtype="int8")
    k = te.reduce_axis((0, 4), name="k")
    z = te.compute((8,), lambda i: te.sum(
        x[i, k].astype("int32") * y[i, k].astype("int32"), axis=k), name="z")
    s = te.create_schedule(z.op)
    outer, inner = s[z].split(s[z].op.axis[0], factor=1)
    s[z].bind(outer, te.thread_axis("threadIdx.x"))
    s[z].tensorize(inner, tensor_intrin.dp4a("global", "global", "global"))
    a, b, found = drawn((8, 4), "int8"), drawn((8, 4), "int8"), np.zeros(8, "int32")
    run_on_device(lowered((s, [x, y, z])), a, b, found)
    np.testing.assert_array_equal(found, (a.astype(int) * b.astype(int)).sum(1))
    assert "dp4a.s32.s32" in ptx_of((s, [x, y, z]), "sm_80")


def by_ptx(waits: bool = True) -> Program:
    """16 x 16 times 16 x 8 by cp.async, ldmatrix and mma.sync, written as statements."""
    A = te.placeholder((16, 16), name="A", dtype="float16")
    B = te.placeholder((8, 16), name="B", dtype="float16")

    def write(ins: Any, outs: Any) -> Any:
        ib = tvm.tir.ir_builder.create()
        a, b = ins
        c = ib.buffer_ptr(outs[0])
        lane = te.thread_axis("threadIdx.x")
        ib.scope_attr(te.thread_axis("blockIdx.x"), "thread_extent", 1)
        ib.scope_attr(lane, "thread_extent", 32)
        t = lane.var
        rows = ib.allocate("float16", (256,), name="rows", scope="shared")
        columns = ib.allocate("float16", (128,), name="columns", scope="shared")
        left = ib.allocate("float16", (8,), name="left", scope="local")
        right = ib.allocate("float16", (4,), name="right", scope="local")
        sums = ib.allocate("float32", (4,), name="sums", scope="local")
        for place in range(4):
            sums[place] = 0.0
        call = tvm.tir.call_intrin
        ib.emit(call("", "tir.ptx_cp_async", rows.asobject(), t * 8, a.data, t * 8, 16))
        with ib.if_scope(t < 16):
            ib.emit(call("", "tir.ptx_cp_async", columns.asobject(), t * 8, b.data, t * 8, 16))
        ib.emit(call("", "tir.ptx_commit_group"))
        if waits:
            ib.emit(call("", "tir.ptx_wait_group", 0))
        ib.emit(call("", "tir.tvm_storage_sync", "shared"))
        ib.emit(call("float16", "tir.ptx_ldmatrix", False, 4, ".b16", left.asobject(), 0,
                     rows.asobject(), t % 16 * 16 + t // 16 * 8))
        ib.emit(call("float16", "tir.ptx_ldmatrix", False, 2, ".b16", right.asobject(), 0,
                     columns.asobject(), t % 8 * 16 + t // 8 % 2 * 8))
        ib.emit(call("float32", "tir.ptx_mma", "m16n8k16", "row", "col", "fp16", "fp16", "fp32",
                     left.asobject(), 0, right.asobject(), 0, sums.asobject(), 0, False))
        for place in range(4):
            c[(t // 4 + 8 * (place // 2)) * 8 + t % 4 * 2 + place % 2] = sums[place]
        return ib.get()

    C = te.extern((16, 8), [A, B], write, name="C", dtype="float32")
    return te.create_schedule(C.op), [A, B, C]


@requires_ptxas
def test_instructions_by_the_names_of_ptx() -> None:
    a, b = drawn((16, 16), "float16"), drawn((8, 16), "float16")
    want = a.astype("float64") @ b.astype("float64").T
    for seed in range(3):
        c = np.zeros((16, 8), "float32")
        run_on_device(lowered(by_ptx()), a, b, c, seed=seed)
        np.testing.assert_allclose(c, want, atol=1e-4)
    ptx = ptx_of(by_ptx(), "sm_80")
    for word in ("cp.async.cg.shared.global", "ldmatrix.sync.aligned.m8n8.x4", "mma.sync.aligned.m1"
                 "6n8k16.row.col.f32.f16.f16.f32", "cp.async.wait_group 0"):
        assert word in ptx
    assert assemble(ptx, "sm_80").spilled_bytes == 0 and ".local" not in ptx


def test_copies_that_nobody_waits_for_show() -> None:
    """With some order of what runs beside the threads the numbers are wrong."""
    a, b = drawn((16, 16), "float16"), drawn((8, 16), "float16")
    want = a.astype("float64") @ b.astype("float64").T
    c = np.zeros((16, 8), "float32")
    run_on_device(lowered(by_ptx(waits=False)), a, b, c)
    assert not np.allclose(c, want, atol=1e-2)
