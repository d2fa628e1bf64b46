"""The memory that kernels take for themselves."""

from sterna import tir
from sterna.lowering.workspace import Workspace, workspace_of
from sterna.tir.stmt import PrimFunc


def test_what_lives_at_a_time_counts_and_threads_count_apart() -> None:
    out = tir.decl_buffer((8,), name="out")
    ib = tir.ir_builder.create()
    y = ib.buffer_ptr(out)
    whole = ib.allocate("float32", (100,), name="whole")
    with ib.for_range(0, 2) as i:
        first = ib.allocate("float32", (10,), name="first")
        first[i] = 1.0
        whole[i] = first[i]
    with ib.for_range(0, 2) as j:
        second = ib.allocate("int8", (30,), name="second")
        second[j] = 1
    with ib.for_range(0, 8, kind="parallel") as k:
        own = ib.allocate("float32", (4,), name="own")
        own[0] = whole[k]
        y[k] = own[0]
    function = PrimFunc("f", (out.data,), (out,), ib.get())
    assert workspace_of(function) == Workspace(400 + 40, 16)
