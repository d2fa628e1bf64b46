"""A matrix product near the machine's peak, written as a tensor expression and a schedule.

    python examples/gemm.py [N]

What makes it fast: a tile of the result stays in registers while it runs over a stretch of K; A and
B are packed so that the innermost loop reads both in order; a block of A's rows stays in the cache
while all of B passes by; threads share the blocks.
"""

import sys
from typing import Any

import numpy as np

import sterna as tvm
from sterna import te
from sterna.target import Target, machine_of

K_STRETCH = 1024
ROWS_IN_CACHE = 216


def register_tile(target: str) -> tuple[int, int, int]:
    """Rows and columns of the tile that is held in registers, and the lanes of a vector."""
    machine = machine_of(Target(target))
    lanes = max(machine.lanes(32), 4)
    return 6, (4 if machine.vector_registers >= 32 else 2) * lanes, lanes


def row_blocks(tiles: int, tile_rows: int, threads: int) -> int:
    """Into how many blocks the rows are cut: as many for every thread, each fit for the cache."""
    rounds = -(-tiles * tile_rows // (ROWS_IN_CACHE * threads))
    return min(tiles, rounds * threads)


def gemm(n: int, target: str, threads: int = 1) -> tuple[Any, list[Any]]:
    """C = A @ B of n x n matrices: the schedule and its arguments."""
    rows, columns, lanes = register_tile(target)
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    rows_of_a = te.compute(
        (-(-n // rows), -(-n // lanes), rows, lanes),
        lambda i, p, r, v: te.if_then_else(
            te.all(i * rows + r < n, p * lanes + v < n), a[i * rows + r, p * lanes + v], 0.0
        ),
        name="rows_of_a",
    )
    columns_of_b = te.compute(
        (-(-n // columns), n, columns),
        lambda j, p, c: te.if_then_else(j * columns + c < n, b[p, j * columns + c], 0.0),
        name="columns_of_b",
    )
    c = te.compute(
        (n, n),
        lambda i, j: te.sum(
            rows_of_a[i // rows, k // lanes, i % rows, k % lanes]
            * columns_of_b[j // columns, k, j % columns],
            axis=k,
        ),
        name="C",
    )
    s = te.create_schedule(c.op)
    stretch, _ = s[c].split(c.op.reduce_axis[0], factor=K_STRETCH)
    tile = s.rfactor(c, stretch)
    s[tile].set_scope("local")

    i_tile, j_tile, i, j = s[c].tile(c.op.axis[0], c.op.axis[1], rows, columns)
    i_block, i_tile = s[c].split(i_tile, nparts=row_blocks(-(-n // rows), rows, threads))
    s[c].reorder(i_block, s[c].op.reduce_axis[0], j_tile, i_tile, i, j)
    s[c].unroll(i)
    s[c].vectorize(j)

    s[tile].compute_at(s[c], i_tile)
    _, tile_i, tile_j = s[tile].op.axis
    k_outer, k_inner = s[tile].split(s[tile].op.reduce_axis[0], factor=4)
    s[tile].reorder(k_outer, k_inner, tile_i, tile_j)
    s[tile].unroll(k_inner)
    s[tile].unroll(tile_i)
    s[tile].vectorize(tile_j)

    i, p, r, v = s[rows_of_a].op.axis
    s[rows_of_a].reorder(i, r, p, v)
    s[rows_of_a].vectorize(v)
    s[rows_of_a].compute_at(s[c], i_block)
    s[columns_of_b].vectorize(s[columns_of_b].op.axis[2])
    if threads > 1:
        s[c].parallel(i_block)
        s[columns_of_b].parallel(s[columns_of_b].op.axis[0])
    return s, [a, b, c]


def main() -> None:
    """Build it, check it against NumPy, time it."""
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 1024
    target = "llvm -mcpu=native"
    numbers = np.random.default_rng(0)
    a, b = (numbers.standard_normal((n, n), dtype="float32") for _ in range(2))
    for threads in sorted({1, tvm.runtime.num_threads()}):
        schedule, args = gemm(n, target, threads)
        function = tvm.build(schedule, args, target=target, name="gemm")
        c = tvm.nd.empty((n, n))
        inputs = tvm.nd.array(a), tvm.nd.array(b)
        function(*inputs, c)
        np.testing.assert_allclose(c.numpy(), a @ b, rtol=1e-3, atol=1e-3)
        time = function.time_evaluator("gemm", tvm.cpu(), number=3, repeat=10)(*inputs, c)
        print(f"{threads} threads: {2 * n**3 / time.min / 1e9:.1f} GFLOP/s")


if __name__ == "__main__":
    main()
