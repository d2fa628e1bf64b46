"""Tensor intrinsics for CUDA by the names of topi.cuda.tensor_intrin: wmma and dp4a.

    s[CF].tensorize(ii, intrin_wmma_gemm(AL, WL, CL, [16, 1], [16, 1], [16, 1], (16, 16, 16)))
"""

from collections.abc import Sequence

from sterna import te
from sterna.ir import build
from sterna.ir.expr import Expr, ExprLike
from sterna.te.intrin import TensorIntrin
from sterna.tir import fragments as F
from sterna.tir.buffer import decl_buffer
from sterna.tir.external import dot4
from sterna.tir.stmt import Buffer, Evaluate, Stmt

Shape = tuple[int, int, int]
"""m, n and k of a product."""
Extents = Sequence[ExprLike]


def _buffer(tensor: te.Tensor, scope: str, strides: Extents) -> Buffer:
    return decl_buffer(tensor.shape, str(tensor.dtype), scope=scope, strides=list(strides))


def _load(
    scope: str, strides_dst: Extents, strides_from: Extents, shape: Shape, layout: str,
    from_shape: Extents, to_shape: Extents, in_dtype: str,
) -> TensorIntrin:
    source = te.placeholder(tuple(from_shape), name="A", dtype=in_dtype)
    made = te.compute(tuple(to_shape), lambda *i: source(*i), name="C")
    binds = {
        source: _buffer(source, "shared", strides_from), made: _buffer(made, scope, strides_dst)
    }

    def write(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        return Evaluate(F.tvm_load_matrix_sync(
            outs[0].data, *shape, 0, ins[0].access_ptr("r"), strides_from[0], layout
        ))

    return te.decl_tensor_intrin(made.op, write, binds=binds)


def intrin_wmma_load_matrix_A(
    strides_dst: Extents, strides_from: Extents, shape: Shape, layout: str, A_shape: Extents,
    C_shape: Extents, in_dtype: str,
) -> TensorIntrin:
    """A fragment of the first factor from shared memory."""
    return _load(
        F.MATRIX_A, strides_dst, strides_from, shape, layout, A_shape, C_shape, in_dtype
    )


def intrin_wmma_load_matrix_W(
    strides_dst: Extents, strides_from: Extents, shape: Shape, layout: str, A_shape: Extents,
    C_shape: Extents, in_dtype: str,
) -> TensorIntrin:
    """A fragment of the second factor from shared memory."""
    return _load(
        F.MATRIX_B, strides_dst, strides_from, shape, layout, A_shape, C_shape, in_dtype
    )


def intrin_wmma_store_matrix(
    strides_dst: Extents, strides_from: Extents, shape: Shape, out_dtype: str, A_shape: Extents,
    C_shape: Extents,
) -> TensorIntrin:
    """A fragment of sums into shared memory."""
    source = te.placeholder(tuple(A_shape), name="A", dtype=out_dtype)
    made = te.compute(tuple(C_shape), lambda *i: source(*i), name="C")
    binds = {
        source: _buffer(source, F.ACCUMULATOR, strides_from),
        made: _buffer(made, "shared", strides_dst),
    }

    def write(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> Stmt:
        return Evaluate(F.tvm_store_matrix_sync(
            ins[0].data, *shape, 0, outs[0].access_ptr("w"), strides_dst[0], "row_major"
        ))

    return te.decl_tensor_intrin(made.op, write, binds=binds)


def intrin_wmma_gemm(
    AL_gemm: te.Tensor, WL_gemm: te.Tensor, CL_compute: te.Tensor, strides_A: Extents,
    strides_W: Extents, strides_Conv: Extents, shape: Shape,
) -> TensorIntrin:
    """The product of fragments: CL_compute sums products of AL_gemm and WL_gemm."""
    binds = {
        AL_gemm: _buffer(AL_gemm, F.MATRIX_A, strides_A),
        WL_gemm: _buffer(WL_gemm, F.MATRIX_B, strides_W),
        CL_compute: _buffer(CL_compute, F.ACCUMULATOR, strides_Conv),
    }

    def write(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> tuple[None, Stmt, Stmt]:
        a, b, c = ins[0].data, ins[1].data, outs[0].data
        init: Expr = F.tvm_fill_fragment(c, *shape, 0, build.const(0, str(outs[0].dtype)))
        update: Expr = F.tvm_mma_sync(c, 0, a, 0, b, 0, c, 0)
        return None, Evaluate(init), Evaluate(update)

    return te.decl_tensor_intrin(CL_compute.op, write, binds=binds)


def dp4a(
    x_scope: str = "local", y_scope: str = "local", z_scope: str = "local",
    dtypes: tuple[str, str] = ("int8", "int8"),
) -> TensorIntrin:
    """Four products of bytes, added to a sum of 32 bits."""
    total = "uint32" if dtypes == ("uint8", "uint8") else "int32"
    x = te.placeholder((4,), name="x", dtype=dtypes[0])
    y = te.placeholder((4,), name="y", dtype=dtypes[1])
    k = te.reduce_axis((0, 4), name="rc")
    z = te.compute(
        (1,), lambda i: te.sum(x[k].astype(total) * y[k].astype(total), axis=[k]), name="z"
    )
    scopes = {x: x_scope, y: y_scope, z: z_scope}
    binds = {
        tensor: decl_buffer(tensor.shape, str(tensor.dtype), scope=scope)
        for tensor, scope in scopes.items()
    }

    def write(ins: Sequence[Buffer], outs: Sequence[Buffer]) -> tuple[Stmt, Stmt, Stmt]:
        bytes_x, bytes_y = (each.vload([0], f"{each.dtype}x4") for each in ins)

        def put(before: Expr) -> Stmt:
            made = build.cast(total, dot4(build.cast("int32", before), bytes_x, bytes_y))
            return outs[0].vstore([0], made)

        zero = build.const(0, total)
        return put(zero), outs[0].vstore([0], zero), put(outs[0][0])

    return te.decl_tensor_intrin(z.op, write, binds=binds)
