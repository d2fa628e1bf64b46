"""Functions that compiled code calls by name: imports, other processes, other machines."""

import gc
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te, tir
from sterna.codegen import c, llvm
from sterna.contrib import cc
from sterna.support import toolchain
from sterna.tir.verify import verify
from tests.codegen.c_harness import STRICT, zig
from tests.support import require_module, require_program


@pytest.fixture(autouse=True)
def compiler() -> None:
    require_program("cc")


# ---- imports ----


def asking(target: str, name: str, wanted: str) -> Any:
    """A module whose function of a name gives what another one gives, plus one."""
    out = tir.decl_buffer((1,), "int32", "out")
    body = out.vstore([0], tir.call_packed(wanted) + 1)
    return tvm.build(tir.PrimFunc(name, (out.data,), (out,), body), target=target, name=name)


def giving(number: int) -> Any:
    """A module of C with a function that returns a number."""
    text = f"""
    #include "sterna.h"
    STERNA_FUNCTION(give) {{
      *ret = sterna_any_int({number});
      return self || args || n ? 0 : 0;
    }}
    """
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "give.c")
        source.write_text(text)
        cc.create_shared(source.with_suffix(".so"), [source])
        return tvm.runtime.load_module(source.with_suffix(".so"))


def answer(module: Any, name: str = "ask") -> int:
    out = np.zeros(1, "int32")
    module[name](out)
    return int(out[0])


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_imports_come_before_registered_functions(target: str, register: Any) -> None:
    register("give", lambda: 1)
    first, second, third = (asking(target, "ask", "give") for _ in range(3))
    second.import_module(giving(10))
    function = third["ask"]
    third.import_module(giving(20))  # after the function was found, before it is called
    assert [answer(m) for m in (first, second, third)] == [2, 11, 21]
    assert not first.implements_function("_library_ctx")  # the variable is no function
    out = np.zeros(1, "int32")
    function(out)
    assert out[0] == 21


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("suffix", [".so", ".o"])
def test_modules_of_one_file_ask_their_own_imports(
    target: str, suffix: str, tmp_path: Path
) -> None:
    """outer asks inner, and inner asks what is imported into it where it runs."""
    outer, inner = asking(target, "outer", "inner.value"), asking(target, "ask", "give")
    outer.import_module(inner)
    outer.export_library(tmp_path / f"both{suffix}")
    loaded = tvm.runtime.load_module(tmp_path / f"both{suffix}")
    (part,) = loaded.imported_modules
    with pytest.raises(ValueError, match="ask calls 'give', but no function"):
        answer(part)
    part.import_module(giving(30))
    assert answer(part) == 31
    with pytest.raises(ValueError, match=r"outer calls 'inner\.value', but no function"):
        answer(loaded, "outer")


def test_a_library_that_is_loaded_again_asks_its_new_module(tmp_path: Path) -> None:
    """What one module found is forgotten with it, though the code stays in memory."""
    asking("llvm", "ask", "give").export_library(tmp_path / "ask.so")
    for number in (10, 20, 30):
        module = tvm.runtime.load_module(tmp_path / "ask.so")
        module.import_module(giving(number))
        assert answer(module) == number + 1
        del module
        gc.collect()


# ---- other processes ----


def exported(target: str, path: Path) -> None:
    """y = what test.double makes of x, plus what test.add returns."""
    x = te.placeholder((4,), name="x")
    y = te.extern(
        (4,), [x], lambda ins, outs: tir.call_packed("test.double", ins[0], outs[0]), name="y"
    )
    z = te.compute((4,), lambda i: y[i] + tir.call_packed("test.add", i, dtype="float32"), name="z")
    tvm.build(te.create_schedule(z.op), [x, z], target=target, name="f").export_library(path)


HERE = """
import sys
import numpy as np
import sterna as tvm
module = tvm.runtime.load_module(sys.argv[1])
x, z = np.arange(4, dtype="float32"), np.zeros(4, "float32")
try:
    module["f"](x, z)
    raise SystemExit("nothing was missing")
except ValueError as error:
    assert "f calls 'test.double', but no function of that name is registered" in str(error), error
@tvm.register_func("test.double")
def double(a, b):
    b.copyfrom(a.numpy() * 2)
@tvm.register_func("test.add")
def add(i):
    return i
for _ in range(3):
    module["f"](x, z)
    assert (z == x * 2 + np.arange(4)).all(), z
"""

ELSEWHERE = """
import sys
import ctypes
import numpy as np
import tvm_ffi
module = tvm_ffi.load_module(sys.argv[1])
x, z = np.arange(4, dtype="float32"), np.zeros(4, "float32")
def expect(kind, words):
    try:
        module["f"](x, z)
    except kind as error:
        assert words in str(error), error
    else:
        raise SystemExit("nothing failed: " + words)
expect(ValueError, "f calls 'test.double', but no function of that name is registered")
@tvm_ffi.register_global_func("test.double")
def double(a, b):
    # tvm_ffi shows what is lent by its address; arrays of NumPy cannot be made from it.
    a, b = (ctypes.cast(t.data_ptr(), ctypes.POINTER(ctypes.c_float)) for t in (a, b))
    for i in range(4):
        b[i] = a[i] * 2
    return "a text that nobody needs, and a long one"
expect(ValueError, "f calls 'test.add'")
given = [1.5]
@tvm_ffi.register_global_func("test.add")
def add(i):
    if given[0] == "fail":
        raise IndexError("from inside")
    return given[0]
for given[0], more in [(1.5, 1.5), (2, 2), (True, 1)]:
    module["f"](x, z)
    assert (z == x * 2 + more).all(), z
for given[0] in ["some text", "a text that is no small one", None]:
    expect(TypeError, "f calls 'test.add', which returned a value of another kind")
given[0] = "fail"
expect(IndexError, "from inside")
assert "sterna" not in sys.modules
"""


def run_python(code: str, path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("suffix", [".so", ".o"])
def test_a_fresh_process_registers_what_is_called(
    target: str, suffix: str, tmp_path: Path
) -> None:
    exported(target, tmp_path / f"f{suffix}")
    run_python(HERE, tmp_path / f"f{suffix}")


@pytest.mark.parametrize("target", ["llvm", "c"])
def test_tvm_ffi_calls_its_own_functions(target: str, tmp_path: Path) -> None:
    require_module("tvm_ffi")
    exported(target, tmp_path / "f.so")
    run_python(ELSEWHERE, tmp_path / "f.so")


# ---- code for other machines ----


def every_kind_of_call() -> tir.PrimFunc:
    """A call with arguments of every kind and one for each kind of result."""
    a = tir.decl_buffer((2, 3), name="a", strides=(4, 1))
    n, x = te.var("n"), te.var("x", "float16")
    ib = tir.ir_builder.create()
    with ib.for_range(0, n, kind="parallel") as i:
        small, address = te.const(3, "uint8"), a.access_ptr("r")
        ib.emit(tir.call_packed("f", a, i, x, n > 3, "text", address, small))
        ib.emit(a.vstore([0, 0], tir.call_packed("g", dtype="float32")))
        count = ib.let("count", tir.call_packed("h", dtype="uint16"))
        with ib.if_scope(tir.call_packed("b", dtype="bool")):
            ib.emit(tir.call_packed("k", count, tir.call_packed("p", dtype="handle")))
    return verify(tir.PrimFunc("calls", (a.data, n, x), (a, None, None), ib.get()))


@pytest.mark.parametrize(
    "triple",
    [
        "aarch64-apple-darwin", "x86_64-pc-windows-msvc", "armv7-unknown-linux-gnueabihf",
        "i686-unknown-linux-gnu", "wasm32-unknown-unknown", "s390x-unknown-linux-gnu",
    ],
)
def test_llvm_compiles_calls_for_every_system(triple: str) -> None:
    """Short pointers, other formats of objects, the other order of bytes."""
    options = llvm.LLVMOptions(triple)
    assert llvm.CompiledModule([every_kind_of_call()], options).object_bytes()


@pytest.mark.parametrize(
    "target", ["x86_64-linux-gnu", "arm-linux-musleabihf", "x86_64-windows-gnu"]
)
def test_c_compiles_without_a_warning(target: str, tmp_path: Path) -> None:
    require_module("ziglang")
    source = tmp_path / "calls.c"
    source.write_text(c.generate([every_kind_of_call()], "m"))
    toolchain.run_compiler(
        [*zig(), *STRICT, "-target", target, "-c", str(source), "-o", str(tmp_path / "calls.o")]
    )
