"""Rows of intrinsics: each is known everywhere, and one more is one row."""

import math
import re
import shutil
from collections.abc import Iterator

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.codegen.c import calls as c_calls
from sterna.codegen.llvm import calls as llvm_calls
from sterna.codegen.llvm.math import knows
from sterna.codegen.nvptx.kernel import _ROWS as DEVICE_ROWS
from sterna.ir import Expr, FloatImm
from sterna.ir.expr import Call
from sterna.tir import call_intrin, interpreter
from sterna.tir.intrinsics import INTRINSICS, Intrinsic, register_intrinsic

TARGETS = ["llvm", *(["c"] if shutil.which("cc") else [])]

# What only kernels of devices do; the last are parameters of a launch, and barriers.
OF_DEVICES = {*DEVICE_ROWS, "tensor_map", "storage_sync"} - {*llvm_calls._CALLS}

# What is no value by itself: a choice, an argument of call_packed, registers of matrices, which C
# has loops for.
PARTS = {"if_then_else", "view_of", *(name for name in INTRINSICS if name.startswith("tile_"))}


@pytest.mark.parametrize("name", sorted(INTRINSICS))
def test_everybody_knows_a_row(name: str) -> None:
    row = INTRINSICS[name]
    others = row.by or row.of_integers
    if name in OF_DEVICES and not (row.llvm or others or knows(name)):
        return
    assert row.compute is not None or name in interpreter._CALLS
    assert row.llvm or others or knows(name) or name in llvm_calls._CALLS or name in PARTS
    assert row.spelled.get("c") or row.by or name in c_calls._CALLS or name in PARTS


def test_code_generators_have_no_others() -> None:
    assert set(c_calls._CALLS) <= set(INTRINSICS)
    assert set(interpreter._CALLS) <= set(INTRINSICS)
    # What polynomials are made of.
    inner = {"any_lane", "table", "inverse_estimate", "one_of"}
    assert set(llvm_calls._CALLS) - inner <= set(INTRINSICS)


# ---- one more ----


def cube_root(x: Expr) -> Expr:
    """The third part of the logarithm, with the sign of x."""
    size = Call(x.dtype, "log2", (Call(x.dtype, "abs", (x,)),))
    root = Call(x.dtype, "exp2", (size / FloatImm(x.dtype.element, 3.0),))
    return Call(x.dtype, "copysign", (root, x))


CUBE_ROOT = Intrinsic(
    "cbrt", 1, math.cbrt, spelled={"c": "cbrt"}, polynomial=cube_root, in_double=True
)


@pytest.fixture
def cbrt() -> Iterator[None]:
    register_intrinsic(CUBE_ROOT)
    yield
    del INTRINSICS["cbrt"]


@pytest.mark.parametrize("target", ["interpreter", *TARGETS])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_one_row_adds_an_intrinsic(cbrt: None, target: str, dtype: str) -> None:
    a = te.placeholder((9,), dtype, name="A")
    b = te.compute((9,), lambda i: call_intrin(dtype, "cbrt", a[i]), name="B")
    schedule = te.create_schedule(b.op)
    data = np.array([0, 1, -8, 27, 1e-3, -0.5, 2, 1000, 3], dtype)
    result = np.zeros(9, dtype)
    if target == "interpreter":
        interpreter.run(tvm.lower(schedule, [a, b])["main"], data, result)
    else:
        tvm.build(schedule, [a, b], target=target)(data, result)
    tolerance = {"float16": 1e-3, "float32": 3e-7, "float64": 1e-14}[dtype]
    np.testing.assert_allclose(result, np.cbrt(data.astype("float64")), rtol=tolerance, atol=1e-300)


def test_a_variable_does_not_hide_it(cbrt: None) -> None:
    a = te.placeholder((1,), name="cbrt")
    b = te.compute((1,), lambda i: call_intrin("float32", "cbrt", a[i]), name="B")
    text = tvm.build(te.create_schedule(b.op), [a, b], target="c").get_source()
    assert re.search(r"cbrtf\(cbrt_1\[0\]\)", text)


def test_a_name_is_given_once(cbrt: None) -> None:
    with pytest.raises(ValueError, match="an intrinsic 'cbrt' already"):
        register_intrinsic(Intrinsic("cbrt", 1))


def test_what_no_row_says_is_refused(cbrt: None) -> None:
    INTRINSICS["cbrt"] = Intrinsic("cbrt", 1, math.cbrt)
    a = te.placeholder((1,), name="A")
    b = te.compute((1,), lambda i: call_intrin("float32", "cbrt", a[i]), name="B")
    for target, message in (("llvm", "knows no intrinsic 'cbrt'"), ("c", "C has no cbrt of float")):
        with pytest.raises(ValueError, match=message):
            tvm.build(te.create_schedule(b.op), [a, b], target=target)
