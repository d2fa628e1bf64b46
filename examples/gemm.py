"""A matrix product near the machine's peak, written as a tensor expression and a schedule.

    python examples/gemm.py [N]

What makes it fast: a tile of the result stays in registers while it runs over a stretch of K; some
columns of B are packed, so that the innermost loop reads them in order, and stay in the cache while
all rows of A pass by; threads share the rows.
"""

import sys
from typing import Any

import numpy as np

import sterna as tvm
from sterna import te
from sterna.target import Target, machine_of

K_STRETCH = 1024
COLUMNS_IN_CACHE = 256


STEPS = 4


def multiplies_by_lanes(target: str) -> bool:
    """Whether a product takes one lane of a vector for all lanes of the other, as NEON's do."""
    return machine_of(Target(target)).instructions.isa.name == "aarch64"


def register_tile(target: str) -> tuple[int, int]:
    """Rows and columns of the tile that is held in registers."""
    machine = machine_of(Target(target))
    lanes = max(machine.lanes(32), 4)
    if multiplies_by_lanes(target):
        return 7, 3 * lanes
    return 6, (4 if machine.vector_registers >= 32 else 2) * lanes


def gemm(n: int, target: str, threads: int = 1) -> tuple[Any, list[Any]]:
    """C = A @ B of n x n matrices: the schedule and its arguments."""
    rows, columns = register_tile(target)
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    packed = te.compute(
        (-(-n // columns), n, columns),
        lambda j, p, c: te.if_then_else(j * columns + c < n, b[p, j * columns + c], 0.0),
        name="packed",
    )
    c = te.compute(
        (n, n),
        lambda i, j: te.sum(a[i, k] * packed[j // columns, k, j % columns], axis=k),
        name="C",
    )
    s = te.create_schedule(c.op)
    stretches = []
    if n > K_STRETCH:
        stretch, _ = s[c].split(c.op.reduce_axis[0], factor=K_STRETCH)
        tile = s.rfactor(c, stretch)
        s[tile].set_scope("local")
        stretches = list(s[c].op.reduce_axis)
    else:
        tile = s.cache_write(c, "local")

    i_tile, j_tile, i, j = s[c].tile(*s[c].op.axis, rows, columns)
    i_share, i_tile = s[c].split(i_tile, nparts=threads)
    j_block, j_tile = s[c].split(j_tile, factor=max(1, COLUMNS_IN_CACHE // columns))
    s[c].reorder(j_block, *stretches, i_share, i_tile, j_tile, i, j)
    s[c].unroll(i)
    s[c].vectorize(j)

    s[tile].compute_at(s[c], j_tile)
    tile_i, tile_j = s[tile].op.axis[-2:]
    k_outer, k_inner = s[tile].split(s[tile].op.reduce_axis[0], factor=STEPS)
    s[tile].reorder(k_outer, k_inner, tile_i, tile_j)
    s[tile].unroll(k_inner)
    s[tile].unroll(tile_i)
    s[tile].vectorize(tile_j)
    if multiplies_by_lanes(target) and n % STEPS == 0:
        # numbers of A for some steps come as vectors, one turn of the loop before they are needed
        held = s.cache_read(a, "local", [tile])
        s[held].compute_at(s[tile], k_outer)
        row, step = s[held].op.axis
        s[held].unroll(row)
        s[held].vectorize(step)
        s[tile].pragma(k_outer, "load_ahead", True)

    j, p, v = s[packed].op.axis
    s[packed].compute_at(s[c], j_block)
    s[packed].vectorize(v)
    if threads > 1:
        s[c].parallel(i_share)
        pieces, _ = s[packed].split(p, nparts=threads)
        s[packed].reorder(pieces, j)
        s[packed].parallel(pieces)
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
