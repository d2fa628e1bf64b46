"""Kernels that differ in numbers become one, which computes what each of them computed."""

from typing import Any

import numpy as np
import pytest

from sterna.ir import StringImm, build
from sterna.ir.expr import HANDLE, INT32, Call
from sterna.lowering.entry import kernels_called
from sterna.lowering.share_kernels import share_kernels
from sterna.tir import Buffer, BufferLoad, Evaluate, SeqStmt, parse
from sterna.tir.interpreter import run
from sterna.tir.stmt import SHARED, PrimFunc

GATHER = """
def {name}(x: Buffer[({inputs},), "int32"], y: Buffer[({outputs},), "int32"]):
    for row in range({rows}):
        for lane in range(4):  # vectorized
            y[row*{pitch} + lane] = x[row*{step} + lane] + {bias}
"""


def gather(name: str, rows: int, pitch: int, step: int, bias: int) -> PrimFunc:
    """Four neighbours of each row, and a bias."""
    return parse(GATHER.format(
        name=name, rows=rows, pitch=pitch, step=step, bias=bias,
        inputs=rows * step + 4, outputs=rows * pitch + 4,
    ))


def entry_of(kernels: list[PrimFunc]) -> PrimFunc:
    """A function that calls each with operands of its own."""
    given: list[Buffer] = []
    steps = []
    for kernel in kernels:
        own = [Buffer(f"a{len(given) + n}", b.dtype, b.shape)
               for n, b in enumerate(kernel.buffers) if b is not None]
        given += own
        places = [Call(HANDLE, "address_of", (BufferLoad(b, (build.const(0),)),)) for b in own]
        steps.append(Evaluate(Call(INT32, "try_call", (StringImm(kernel.name), *places))))
    sources = {kernel.name: ((f"layer of {kernel.name}",),) for kernel in kernels}
    return PrimFunc("main", tuple(b.data for b in given), tuple(given), SeqStmt(tuple(steps)),
                    {"sources": sources})


def results(kernels: list[PrimFunc], entry: PrimFunc) -> list[Any]:
    """What all operands hold in the end."""
    rng = np.random.default_rng(1)
    arrays = [rng.integers(-99, 99, b.known_bytes // 4, "int32") for b in entry.buffers
              if b is not None and b.known_bytes is not None]
    run(entry, *arrays, functions=kernels)
    return arrays


def test_kernels_that_differ_in_numbers_are_one() -> None:
    kernels = [gather("f", 5, 8, 4, 7), gather("g", 3, 9, 6, 7), gather("h", 4, 12, 4, -1)]
    entry = entry_of(kernels)
    shared, calling = share_kernels(kernels, entry)
    assert [kernel.name for kernel in shared] == ["f"]
    assert calling.attrs["sources"] == {
        "f": (("layer of f",), ("layer of g",), ("layer of h",))}
    assert {*shared[0].attrs[SHARED].values()} == {(3, 5), (8, 12), (4, 6), (-1, 7)}
    for got, want in zip(results(shared, calling), results(kernels, entry), strict=True):
        np.testing.assert_array_equal(got, want)


def test_layers_keep_the_order_of_calls() -> None:
    f, g = gather("f", 5, 8, 4, 7), gather("g", 3, 9, 6, 7)
    entry = entry_of([f, g, f])
    told = {"f": (("first", "second"), ("last",)), "g": ((),)}
    entry = PrimFunc(entry.name, entry.params, entry.buffers, entry.body, {"sources": told})
    _, calling = share_kernels([f, g], entry)
    assert kernels_called(calling) == [("f", ("first", "second")), ("f", ()), ("f", ("last",))]


def test_numbers_that_are_equal_stay_in_the_code() -> None:
    kernels = [gather("f", 5, 8, 4, 7), gather("g", 5, 9, 4, 7)]
    (shared,), _ = share_kernels(kernels, entry_of(kernels))
    assert len(shared.params) == 3  # the pitch of a row


@pytest.mark.parametrize(("old", "new"), [
    ("lane in range(4)", "lane in range(2)"), ("x[row*4", "x[row // 3*4"),
    ("+ 7", "- 7"), ("int32", "int16"),
])
def test_others_stay_apart(old: str, new: str) -> None:
    texts = [GATHER.format(name=name, rows=5, pitch=8, step=4, bias=7, inputs=24, outputs=44)
             for name in ("f", "g", "h")]
    kernels = [parse(texts[0]), parse(texts[1].replace(old, new)),
               parse(texts[2].replace(old, new.replace("3", "2")))]
    names = {kernel.name for kernel in share_kernels(kernels, entry_of(kernels))[0]}
    assert {"f", "g"} <= names
    assert ("h" in names) == ("// 3" in new)
