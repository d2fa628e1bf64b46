"""Libraries cross over between Sterna and tvm_ffi, with arrays and errors."""

import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from sterna.contrib import cc
from tests.support import require_module, require_program

OURS = r"""
#include "sterna.h"

STERNA_FUNCTION(add) {
  DLTensor *a, *b, *c;
  (void)self, (void)ret;
  if (n != 3 || sterna_as_tensor(&args[0], &a) || sterna_as_tensor(&args[1], &b) ||
      sterna_as_tensor(&args[2], &c))
    return sterna_set_error("TypeError", "add takes three arrays");
  const float *x = (const float *)((char *)a->data + a->byte_offset);
  const float *y = (const float *)((char *)b->data + b->byte_offset);
  float *z = (float *)((char *)c->data + c->byte_offset);
  for (int64_t i = 0; i < a->shape[0]; i++) z[i] = x[i] + y[i];
  return 0;
}

STERNA_FUNCTION(greet) {
  sterna_bytes name;
  char text[64];
  (void)self;
  if (n != 1 || sterna_as_string(&args[0], &name) || name.size > 40) return -1;
  int size = 0;
  for (const char *p = "a warm welcome to "; *p; p++) text[size++] = *p;
  for (size_t i = 0; i < name.size; i++) text[size++] = name.data[i];
  return sterna_string(text, (size_t)size, ret);
}
"""

THEIRS_C = r"""
#include <tvm/ffi/c_api.h>
__attribute__((visibility("default")))
int __tvm_ffi_scale(void *self, const TVMFFIAny *args, int32_t n, TVMFFIAny *ret) {
  if (n != 2 || args[0].type_index != kTVMFFITensor || args[1].type_index != kTVMFFIFloat) {
    TVMFFIErrorSetRaisedFromCStr("TypeError", "scale takes an array and a float");
    return -1;
  }
  DLTensor *t = (DLTensor *)((char *)args[0].v_obj + sizeof(TVMFFIObject));
  for (int64_t i = 0; i < t->shape[0]; i++) ((float *)t->data)[i] *= (float)args[1].v_float64;
  return 0;
}
"""

THEIRS_CXX = r"""
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/tvm_ffi.h>
namespace ffi = tvm::ffi;
ffi::String Describe(ffi::TensorView t, ffi::Array<int64_t> numbers) {
  int64_t sum = 0;
  for (int64_t v : numbers) sum += v;
  if (sum < 0) TVM_FFI_THROW(ValueError) << "the sum " << sum << " is negative";
  return ffi::String("a tensor of " + std::to_string(t.ndim()) + " dimensions and " +
                     std::to_string(sum));
}
ffi::Any Apply(ffi::Function f, ffi::Any x) { return f(x); }
ffi::Array<ffi::Any> Pair(ffi::Any a, ffi::Any b) { return {a, b}; }
ffi::String KindOf(ffi::Module m) { return m->kind(); }
ffi::Shape ShapeOf(ffi::TensorView t) { return ffi::Shape(t.shape()); }
TVM_FFI_DLL_EXPORT_TYPED_FUNC(describe, Describe);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(apply, Apply);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(pair, Pair);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(shape_of, ShapeOf);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(kind_of, KindOf);
"""


def run_python(code: str, *args: Path) -> None:
    """Run a program in a fresh process; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, args)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_module("tvm_ffi")
    return tmp_path_factory.mktemp("interop")


@pytest.fixture(scope="module")
def our_library(folder: Path) -> Path:
    require_program("cc")
    (folder / "ours.c").write_text(OURS)
    cc.create_shared(folder / "ours.so", folder / "ours.c")
    return folder / "ours.so"


def tvm_ffi_folder() -> Path:
    """Where the package is installed, without importing it here."""
    return Path(sysconfig.get_path("platlib")) / "tvm_ffi"


def build_theirs(folder: Path, name: str, source: str, linked: bool) -> Path:
    """A library for tvm_ffi, written against its own headers; built once."""
    package = tvm_ffi_folder()
    output = folder / f"{name}.{'linked' if linked else 'loose'}.so"
    if output.exists():
        return output
    (folder / name).write_text(source)
    options = [f"-I{package}/include"]
    if linked:
        options += [f"-L{package}/lib", "-ltvm_ffi", f"-Wl,-rpath,{package}/lib"]
    if name.endswith(".cc"):
        options.append("-std=c++17")
    cc.create_shared(output, folder / name, options)
    return output


OTHER_HOST = """
import sys, numpy as np, tvm_ffi
{first}
module = tvm_ffi.load_module(sys.argv[1])
a, b, c = np.ones(5, "float32"), np.arange(5, dtype="float32"), np.empty(5, "float32")
module["add"](a, b, c)
assert (c == a + b).all()
try:
    module["add"](1, 2)
    raise SystemExit("a bad call was accepted")
except TypeError as e:
    assert "add takes three arrays" in str(e), e
assert str(module["greet"]("somebody")) == "a warm welcome to somebody"
try:
    import torch
except ImportError:
    torch = None
if torch:
    x, y, z = torch.ones(5), torch.arange(5.0), torch.empty(5)
    module["add"](x, y, z)
    assert torch.equal(z, x + y)
{last}
"""


@pytest.mark.parametrize(
    ("first", "last"),
    [
        ("", "assert 'sterna' not in sys.modules"),
        ("import sterna.runtime", ""),
        (
            "import sterna.runtime; ours = sterna.runtime.load_module(sys.argv[1])",
            "ours['add'](a, b, c)\n"
            "try:\n    ours['add'](1)\n    raise SystemExit('accepted')\n"
            "except TypeError as e:\n    assert 'three arrays' in str(e)",
        ),
    ],
    ids=["alone", "beside us", "both load it"],
)
def test_tvm_ffi_runs_our_library(our_library: Path, first: str, last: str) -> None:
    run_python(OTHER_HOST.format(first=first, last=last), our_library)


LOAD_C = """
import sys, numpy as np
{first}
import sterna as tvm
{second}
scale = tvm.runtime.load_module(sys.argv[1])["scale"]
x = np.ones(4, "float32")
scale(x, 3.0)
assert (x == 3).all()
for wrong in ((), (x,), ("text", 2.0)):
    try:
        scale(*wrong)
        raise SystemExit("a bad call was accepted")
    except TypeError as e:
        assert "scale takes an array and a float" in str(e), e
"""


@pytest.mark.parametrize("linked", [True, False], ids=["linked", "loose"])
@pytest.mark.parametrize("order", ["first", "second", "absent"])
def test_we_run_a_c_library_of_tvm_ffi(folder: Path, linked: bool, order: str) -> None:
    library = build_theirs(folder, "scale.c", THEIRS_C, linked)
    imports = {"first": "", "second": "", order: "import tvm_ffi"}
    code = LOAD_C.format(**{k: v for k, v in imports.items() if k != "absent"})
    if order == "absent":
        code = LOAD_C.format(first="", second="")
    if linked or order != "absent":
        run_python(code, library)
        return
    with pytest.raises(AssertionError, match="import tvm_ffi"):
        run_python(code, library)


LOAD_CXX = """
import sys, numpy as np
import sterna as tvm
module = tvm.runtime.load_module(sys.argv[1])
x = np.zeros((2, 3), "float32")
assert module["describe"](x, [1, 2, 3]) == "a tensor of 2 dimensions and 6"
assert module["shape_of"](x) == (2, 3)
assert module["apply"](lambda v: v + 1, 41) == 42
assert module["apply"](lambda v: v * 2, "text that is long") == "text that is long" * 2
assert module["pair"](1, "two") == [1, "two"]
try:
    module["describe"](x, [-5])
    raise SystemExit("a bad call was accepted")
except ValueError as e:
    assert "the sum -5 is negative" in str(e), e

class Mine(Exception):
    pass

mine = Mine("kept")
def fail(v):
    raise mine
for _ in range(3):
    try:
        module["apply"](fail, 1)
        raise SystemExit("the error was swallowed")
    except Mine as e:
        assert e is mine
for name in ("apply", "kind_of"):
    try:
        module[name](module)
        raise SystemExit("a module of ours was accepted")
    except TypeError as e:
        assert "module" in str(e), e
"""


@pytest.mark.parametrize("beside", ["", "import tvm_ffi\n"], ids=["alone", "beside tvm_ffi"])
def test_we_run_a_cxx_library_of_tvm_ffi(folder: Path, beside: str) -> None:
    require_program("c++")
    library = build_theirs(folder, "typed.cc", THEIRS_CXX, linked=True)
    run_python(beside + LOAD_CXX, library)


EXCHANGE = """
import numpy as np, sterna as tvm, tvm_ffi
ours = tvm.nd.array(np.arange(6, dtype="float32"))
theirs = tvm_ffi.from_dlpack(ours)
assert np.from_dlpack(theirs).ctypes.data == ours.data_ptr()
back = tvm.nd.from_dlpack(theirs)
assert back.data_ptr() == ours.data_ptr()
echo = tvm_ffi.convert(lambda x: x)
assert tvm.register_func("echo", lambda x: x)(theirs).data_ptr() == ours.data_ptr()
"""


def test_arrays_pass_both_ways(folder: Path) -> None:
    run_python(EXCHANGE)
