"""Programs that reach Tensor Cores from schedules of their own, as tutorials write them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import sterna as tvm
from sterna import te
from sterna.te.intrin import TensorIntrin
from sterna.te.schedule import Schedule
from sterna.te.tensor import Tensor
from sterna.tir.stmt import Buffer, Stmt

N = 16
"""Rows, columns and steps of a fragment."""
Program = tuple[Schedule, list[Tensor]]
Array = npt.NDArray[Any]


def _declared(tensor: Tensor, scope: str, name: str = "buffer") -> Buffer:
    return tvm.tir.decl_buffer(
        tensor.shape, tensor.dtype, name=name, scope=scope, data_alignment=32, offset_factor=256
    )


def intrin_wmma_load_matrix(scope: str, dtype: str = "float16") -> TensorIntrin:
    """A fragment from shared memory."""
    A = te.placeholder((N, N), name="A", dtype=dtype)
    C = te.compute((N, N), lambda i, j: A[i, j], name="C")

    def intrin_func(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        ib = tvm.tir.ir_builder.create()
        BA, BC = ins[0], outs[0]
        ib.emit(tvm.tir.call_intrin(
            "handle", "tir.tvm_load_matrix_sync", BC.data, N, N, N, BC.elem_offset // 256,
            BA.access_ptr("r"), N, "row_major",
        ))
        made: Stmt = ib.get()
        return made

    binds = {A: _declared(A, "shared"), C: _declared(C, scope)}
    return te.decl_tensor_intrin(C.op, intrin_func, binds=binds)


def intrin_wmma_gemm(dtype: str = "float16", total: str = "float32") -> TensorIntrin:
    """The product of two fragments."""
    A = te.placeholder((N, N), name="A", dtype=dtype)
    B = te.placeholder((N, N), name="B", dtype=dtype)
    k = te.reduce_axis((0, N), name="k")
    C = te.compute((N, N), lambda i, j: te.sum(
        A[i, k].astype(total) * B[k, j].astype(total), axis=k), name="C")

    def intrin_func(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> tuple[Stmt, Stmt, Stmt]:
        BA, BB = ins
        (BC,) = outs

        def init() -> Stmt:
            ib = tvm.tir.ir_builder.create()
            ib.emit(tvm.tir.call_intrin(
                "handle", "tir.tvm_fill_fragment", BC.data, N, N, N, BC.elem_offset // 256, 0.0))
            made: Stmt = ib.get()
            return made

        def update() -> Stmt:
            ib = tvm.tir.ir_builder.create()
            ib.emit(tvm.tir.call_intrin(
                "handle", "tir.tvm_mma_sync", BC.data, BC.elem_offset // 256, BA.data,
                BA.elem_offset // 256, BB.data, BB.elem_offset // 256, BC.data,
                BC.elem_offset // 256,
            ))
            made: Stmt = ib.get()
            return made

        return update(), init(), update()

    binds = {
        A: _declared(A, "wmma.matrix_a", "BA"), B: _declared(B, "wmma.matrix_b", "BB"),
        C: _declared(C, "wmma.accumulator", "BC"),
    }
    return te.decl_tensor_intrin(C.op, intrin_func, binds=binds)


def intrin_wmma_store_matrix(total: str = "float32") -> TensorIntrin:
    """A fragment of sums to where the result is."""
    A = te.placeholder((N, N), name="A", dtype=total)
    C = te.compute((N, N), lambda i, j: A[i, j], name="C")

    def intrin_func(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        ib = tvm.tir.ir_builder.create()
        BA, BC = ins[0], outs[0]
        ib.emit(tvm.tir.call_intrin(
            "handle", "tir.tvm_store_matrix_sync", BA.data, N, N, N, BA.elem_offset // 256,
            BC.access_ptr("w"), N, "row_major",
        ))
        made: Stmt = ib.get()
        return made

    binds = {A: _declared(A, "wmma.accumulator"), C: _declared(C, "global")}
    return te.decl_tensor_intrin(C.op, intrin_func, binds=binds)


def gemm(
    m: int, n: int, k: int, dtype: str = "float16", total: str = "float32", warps: int = 2
) -> Program:
    """Matrices in tiles; m, n, k count tiles."""
    A = te.placeholder((m, k, N, N), name="A", dtype=dtype)
    B = te.placeholder((k, n, N, N), name="B", dtype=dtype)
    ko, ki = te.reduce_axis((0, k), name="ko"), te.reduce_axis((0, N), name="ki")
    C = te.compute((m, n, N, N), lambda i, j, ii, jj: te.sum(
        A[i, ko, ii, ki].astype(total) * B[ko, j, ki, jj].astype(total), axis=[ko, ki]), name="C")
    s = te.create_schedule(C.op)
    AS, BS = s.cache_read(A, "shared", [C]), s.cache_read(B, "shared", [C])
    AF, BF = s.cache_read(AS, "wmma.matrix_a", [C]), s.cache_read(BS, "wmma.matrix_b", [C])
    CF = s.cache_write(C, "wmma.accumulator")
    thread_x, thread_y = te.thread_axis("threadIdx.x"), te.thread_axis("threadIdx.y")
    i, j, ii, jj = s[C].op.axis
    block_i, i = s[C].split(i, factor=2 * warps)
    warp, i = s[C].split(i, factor=2)
    block_j, j = s[C].split(j, factor=2)
    s[C].reorder(block_i, block_j, warp, i, j, ii, jj)
    s[C].bind(block_i, te.thread_axis("blockIdx.y"))
    s[C].bind(block_j, te.thread_axis("blockIdx.x"))
    s[C].bind(warp, thread_y)
    s[CF].compute_at(s[C], warp)
    i, j, ci, cj = s[CF].op.axis
    ko, ki = s[CF].op.reduce_axis
    s[CF].reorder(ko, i, j, ci, cj, ki)
    for tensor in (AF, BF, AS, BS):
        s[tensor].compute_at(s[CF], ko)
    for tensor in (AS, BS):
        rest, vector = s[tensor].split(s[tensor].fuse(*s[tensor].op.axis), factor=4)
        rest, x = s[tensor].split(rest, factor=32)
        _, y = s[tensor].split(rest, factor=warps)
        s[tensor].bind(x, thread_x)
        s[tensor].bind(y, thread_y)
        s[tensor].vectorize(vector)
    s[AF].tensorize(AF.op.axis[-2], intrin_wmma_load_matrix("wmma.matrix_a", dtype))
    s[BF].tensorize(BF.op.axis[-2], intrin_wmma_load_matrix("wmma.matrix_b", dtype))
    s[C].tensorize(ii, intrin_wmma_store_matrix(total))
    s[CF].tensorize(ci, intrin_wmma_gemm(dtype, total))
    return s, [A, B, C]


def conv(batch: int, size: int, inputs: int, outputs: int) -> Program:
    """A convolution by windows of 3 x 3 over a border of one; batch and channels count tiles."""
    A = te.placeholder((batch, size, size, inputs, N, N), name="A", dtype="float16")
    W = te.placeholder((3, 3, inputs, outputs, N, N), name="W", dtype="float16")
    ic, kh, kw, ii = (te.reduce_axis((0, e), name=n) for e, n in (
        (inputs, "ic"), (3, "kh"), (3, "kw"), (N, "ii")))
    Apad = te.compute((batch, size + 2, size + 2, inputs, N, N), lambda n, h, w, i, nn, ii: (
        tvm.tir.if_then_else(
            tvm.tir.all(h >= 1, h - 1 < size, w >= 1, w - 1 < size),
            A[n, h - 1, w - 1, i, nn, ii], tvm.tir.const(0.0, "float16"),
        )), name="Apad")
    Conv = te.compute((batch, size, size, outputs, N, N), lambda n, h, w, o, nn, oo: te.sum(
        Apad[n, h + kh, w + kw, ic, nn, ii].astype("float32")
        * W[kh, kw, ic, o, ii, oo].astype("float32"), axis=[ic, kh, kw, ii]), name="Conv")
    s = te.create_schedule(Conv.op)
    s[Apad].compute_inline()
    AS, WS = s.cache_read(Apad, "shared", [Conv]), s.cache_read(W, "shared", [Conv])
    AF, WF = s.cache_read(AS, "wmma.matrix_a", [Conv]), s.cache_read(WS, "wmma.matrix_b", [Conv])
    ConvF = s.cache_write(Conv, "wmma.accumulator")
    thread_x, thread_y, thread_z = (te.thread_axis(f"threadIdx.{axis}") for axis in "xyz")
    nc, hc, wc, oc, nnc, ooc = s[Conv].op.axis
    block_k = s[Conv].fuse(hc, wc)
    s[Conv].bind(block_k, te.thread_axis("blockIdx.z"))
    nc, nci = s[Conv].split(nc, factor=1)
    oc, oci = s[Conv].split(oc, factor=1)
    s[Conv].reorder(block_k, nc, oc, nci, oci, nnc, ooc)
    block_i, nc = s[Conv].split(nc, factor=1)
    block_j, oc = s[Conv].split(oc, factor=2)
    s[Conv].reorder(block_k, block_i, block_j, nc, oc, nci, oci, nnc, ooc)
    s[Conv].bind(block_i, te.thread_axis("blockIdx.x"))
    s[Conv].bind(block_j, te.thread_axis("blockIdx.y"))
    s[Conv].bind(nc, thread_y)
    s[Conv].bind(oc, thread_z)
    s[ConvF].compute_at(s[Conv], oc)
    n, _, _, o, nnf, oof = ConvF.op.axis
    ko, ki = s[ConvF].split(ic, factor=1)
    s[ConvF].reorder(ko, kh, ki, kw, n, o, nnf, oof, ii)
    s[AF].compute_at(s[ConvF], kw)
    s[WF].compute_at(s[ConvF], kw)
    s[WS].compute_at(s[ConvF], kh)
    s[AS].compute_at(s[ConvF], kh)
    for tensor, vector in ((AS, 1), (WS, 8)):
        axes = s[tensor].op.axis
        first = 3 if tensor is AS else 2
        outer = s[tensor].fuse(*axes[first:first + 1], *([axes[3]] if tensor is WS else []))
        _, z = s[tensor].split(outer, factor=2)
        fused = s[tensor].fuse(*axes[4:])
        if vector > 1:
            fused, lanes = s[tensor].split(fused, factor=vector)
            s[tensor].vectorize(lanes)
        _, x = s[tensor].split(fused, factor=32)
        s[tensor].bind(z, thread_z)
        s[tensor].bind(x, thread_x)
    s[AF].tensorize(AF.op.axis[-2], intrin_wmma_load_matrix("wmma.matrix_a"))
    s[WF].tensorize(WF.op.axis[-2], intrin_wmma_load_matrix("wmma.matrix_b"))
    s[Conv].tensorize(nnc, intrin_wmma_store_matrix())
    s[ConvF].tensorize(nnf, intrin_wmma_gemm())
    return s, [A, W, Conv]


def by_conv(data: Array, weight: Array) -> Array:
    """What a convolution of such tiles is."""
    size = data.shape[1]
    wide = np.pad(data.astype("float64"), [(0, 0), (1, 1), (1, 1), (0, 0), (0, 0), (0, 0)])
    made = np.zeros((*data.shape[:3], weight.shape[3], N, N))
    for kh in range(3):
        for kw in range(3):
            part = wide[:, kh : kh + size, kw : kw + size]
            made += np.einsum("nhwikl,ijlm->nhwjkm", part, weight[kh, kw].astype("float64"))
    return made
