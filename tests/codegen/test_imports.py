"""What other hands wrote: imported C and LLVM text, and LLVM's intrinsics."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import tir
from sterna.target import machine_of
from sterna.tir import interpreter
from tests.support import require_program

C_TEXT = """
static int thrice(float *out, const float *in, int n) {
  for (int i = 0; i < n; i++) out[i] = 3 * in[i];
  return 0;
}
"""

LLVM_TEXT = """
target triple = "x86_64-unknown-linux6.18.44-gnu2.36.0"
define i32 @thrice(ptr %out, ptr %in, i32 %n) {
  br label %loop
loop:
  %i = phi i32 [ 0, %0 ], [ %next, %loop ]
  %from = getelementptr float, ptr %in, i32 %i
  %to = getelementptr float, ptr %out, i32 %i
  %x = load float, ptr %from
  %y = fmul float %x, 3.0
  store float %y, ptr %to
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %loop, label %end
end:
  ret i32 0
}
"""


def function(body: tir.Stmt, *buffers: tir.Buffer, name: str = "f") -> tir.PrimFunc:
    return tir.PrimFunc(name, tuple(b.data for b in buffers), buffers, body)


def calling(name: str = "f", **texts: str) -> tir.PrimFunc:
    """A function that calls thrice, with these texts imported."""
    a, b = (tir.decl_buffer((8,), "float32", x) for x in "AB")
    called = tir.call_extern("int32", "thrice", b.access_ptr("w"), a.access_ptr("r"), 8)
    body: tir.Stmt = tir.Evaluate(called)
    for language, text in texts.items():
        body = tir.AttrStmt(f"pragma_import_{language}", None, tir.StringImm(text), body)
    return function(body, a, b, name=name)


def run(func: Any, target: str = "llvm") -> Any:
    out = np.zeros(8, "float32")
    tvm.build(func, target=target)(np.arange(1, 9, dtype="float32"), out)
    return out


@pytest.mark.parametrize("target", ["c", "llvm"])
def test_each_target_takes_the_text_in_its_language(target: str) -> None:
    if target == "c":
        require_program("cc")
    expected = 3 * np.arange(1, 9, dtype="float32")
    np.testing.assert_array_equal(run(calling(c=C_TEXT, llvm=LLVM_TEXT), target), expected)
    text = C_TEXT if target == "c" else LLVM_TEXT
    # A kernel may have the name of what it calls.
    np.testing.assert_array_equal(run(calling("thrice", **{target: text}), target), expected)


def test_what_is_imported_stays_inside_the_module(tmp_path: Path) -> None:
    require_program("cc")
    module = tvm.build(calling(llvm=LLVM_TEXT), target="llvm")
    assert "define internal i32 @thrice" in module.get_source()
    module.export_library(tmp_path / "f.so")
    code = f"""
import numpy, sterna
out = numpy.zeros(8, "float32")
sterna.runtime.load_module({str(tmp_path / "f.so")!r})["f"](numpy.ones(8, "float32"), out)
assert (out == 3).all()
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_text_in_the_wrong_language_alone() -> None:
    with pytest.raises(ValueError, match=r"pragma import_c, .* target llvm"):
        tvm.build(calling(c=C_TEXT), target="llvm")
    with pytest.raises(ValueError, match=r"pragma import_llvm, .* target c"):
        tvm.build(calling(llvm=LLVM_TEXT), target="c")


def test_wrong_texts() -> None:
    with pytest.raises(ValueError, match="text that import_llvm brings is wrong: LLVM IR parsing"):
        tvm.build(calling(llvm="define nothing"), target="llvm")
    other = LLVM_TEXT.replace("i32 %n)", "i64 %m)").replace("%next, %n", "%next, 8")
    with pytest.raises(ValueError, match=r"thrice is called as i32 \(ptr, ptr, i32\), but the te"):
        tvm.build(calling(llvm=other), target="llvm")
    a = tir.decl_buffer((8,), "float32", "A")
    body = tir.AttrStmt("pragma_import_llvm", None, tir.const(1), a.vstore([0], 1.0))
    with pytest.raises(ValueError, match="f: import_llvm takes text, not 1"):
        tvm.build(function(body, a), target="llvm")
    twice = calling(llvm=LLVM_TEXT)
    body = tir.AttrStmt("pragma_import_llvm", None, tir.StringImm(LLVM_TEXT + "\n"), twice.body)
    with pytest.raises(ValueError, match="import_llvm brings two functions thrice"):
        tvm.build(twice.with_body(body), target="llvm")


# ---- intrinsics ----


def of_vector(intrinsic: str, lanes: int, *more: Any) -> tir.PrimFunc:
    """B[0:lanes] = intrinsic(A[0:lanes], ...)"""
    a, b = (tir.decl_buffer((8,), "float32", x) for x in "AB")
    kind = f"float32x{lanes}"
    value = tir.call_llvm_pure_intrin(kind, intrinsic, *more, a.vload([0], kind))
    return function(b.vstore([0], value), a, b)


def test_an_intrinsic_by_its_name() -> None:
    roots = np.zeros(8, "float32")
    roots[:4] = np.sqrt(np.arange(1, 5, dtype="float32"))
    np.testing.assert_array_equal(run(of_vector("llvm.sqrt", 4)), roots)
    np.testing.assert_array_equal(run(of_vector("llvm.sqrt.v4f32", 4)), roots)
    count = tir.const(1, "uint32")  # the classic API says how many arguments the overload needs
    np.testing.assert_array_equal(run(of_vector("llvm.sqrt", 4, count)), roots)


def test_an_intrinsic_that_gives_nothing() -> None:
    a, b = (tir.decl_buffer((8,), "float32", x) for x in "AB")
    fetch = tir.call_llvm_intrin("void", "llvm.prefetch", a.access_ptr("r"), 0, 3, 1)
    func = function(tir.SeqStmt((tir.Evaluate(fetch), b.vstore([0], a[1]))), a, b)
    assert run(func)[0] == 2
    assert tir.parse(str(func)).body.stmts[0].value.op == "call_llvm_void"  # type: ignore[attr-defined]


def test_intrinsics_that_llvm_does_not_take() -> None:
    with pytest.raises(ValueError, match=r"unknown intrinsic 'llvm\.nothing'"):
        run(of_vector("llvm.nothing", 4))
    with pytest.raises(ValueError, match="invalid intrinsic signature"):
        run(of_vector("llvm.fma", 4))
    with pytest.raises(ValueError, match=r"C code cannot call LLVM's llvm\.sqrt; call a C func"):
        run(of_vector("llvm.sqrt", 4), "c")
    with pytest.raises(ValueError, match=r"a name that starts with 'llvm\.' second, not 'sqrt'"):
        tir.call_llvm_pure_intrin("float32", "sqrt", 1.0)


def test_instructions_that_the_target_lacks_are_an_error_and_no_end() -> None:
    if "x86_64" not in machine_of(tvm.target.Target("llvm")).triple:
        pytest.skip("the instruction is one of x86-64")
    with pytest.raises(ValueError, match=r"cannot compile llvm\.x86\.avx\.rsqrt\.ps\.256 for"):
        run(of_vector("llvm.x86.avx.rsqrt.ps.256", 8))


def test_the_interpreter_says_what_it_does_not_know() -> None:
    func = of_vector("llvm.sqrt", 4)
    with pytest.raises(NotImplementedError, match=r"the interpreter has no llvm\.sqrt of LLVM"):
        interpreter.run(func, np.zeros(8, "float32"), np.zeros(8, "float32"))


def test_calls_by_name() -> None:
    x = tir.Var("x", tvm.DataType("float32"))
    assert str(tir.call_intrin("float32", "tir.exp", x)) == "exp(x)"
    assert str(tir.reinterpret("int32", x)) == 'reinterpret(x, dtype="int32")'
    with pytest.raises(ValueError, match=r"there is no intrinsic 'tir\.expo'"):
        tir.call_intrin("float32", "tir.expo", x)
    with pytest.raises(ValueError, match=r"tir\.exp takes 1 arguments, not 2"):
        tir.call_intrin("float32", "tir.exp", x, x)
    with pytest.raises(ValueError, match="float32 has 32 bits, int64 has 64"):
        tir.reinterpret("int64", x)


def test_reinterpret_may_change_the_lanes() -> None:
    a = tir.decl_buffer((8,), "uint8", "A")
    b = tir.decl_buffer((2,), "int32", "B")
    func = function(b.vstore([1], tir.reinterpret("int32", a.vload([3], "uint8x4"))), a, b)
    numbers, expected = np.arange(250, 258).astype("uint8"), np.zeros(2, "int32")
    expected[1] = numbers[3:7].view("<i4")[0]
    interpreted = np.zeros(2, "int32")
    interpreter.run(func, numbers, interpreted)
    np.testing.assert_array_equal(interpreted, expected)
    compiled = np.zeros(2, "int32")
    tvm.build(func, target="llvm")(numbers, compiled)
    np.testing.assert_array_equal(compiled, expected)
