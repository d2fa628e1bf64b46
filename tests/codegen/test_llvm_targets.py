"""Other machines: object files, what they need, and processors without the newer instructions."""

import ctypes
import re
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest

from sterna.codegen.llvm import CompiledModule, LLVMOptions
from sterna.codegen.llvm.machine import abilities
from sterna.ir.build import call_intrinsic, cast, const
from sterna.ir.expr import Broadcast, Expr, Ramp, Var
from sterna.support.dtype import DataType
from sterna.target import Target
from sterna.target.code_generators.llvm import llvm_options
from sterna.testing import requires_x86
from sterna.tir.stmt import Allocate, BufferLoad, BufferStore, For, PrimFunc, seq
from tests.codegen.test_llvm_common import Array, Loaded, elementwise, kernel, make_buffer
from tests.codegen.test_llvm_operators import (
    FLOAT_OPS,
    UNARY,
    bfloat_bits,
    bfloat_values,
    float_samples,
    same_floats,
)
from tests.codegen.test_llvm_statements import packed_module
from tests.support import require_program

BASELINE = LLVMOptions("x86_64-unknown-linux-gnu", "x86-64", "")

TARGETS = {
    "x86_64": (BASELINE, 62),
    "aarch64": (LLVMOptions("aarch64-unknown-linux-gnu", "neoverse-n1"), 183),
    "riscv64": (LLVMOptions("riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c,+v"), 243),
    "arm": (LLVMOptions("armv7-unknown-linux-gnueabihf", "cortex-a9", "+neon,+vfp3"), 40),
    "hexagon": (LLVMOptions("hexagon-unknown-elf", "hexagonv68"), 164),
    "wasm32": (LLVMOptions("wasm32-unknown-unknown", "generic", "+simd128"), 0),
}


MATH = ["exp", "log", "tanh", "sigmoid", "erf", "sin", "sqrt", "floor", "round", "pow", "fmod"]


def everything() -> list[PrimFunc]:
    """Packed arguments, threads, errors, and the mathematics."""
    x, y = make_buffer("x", "float32", 64), make_buffer("y", "float32", 64)
    half = make_buffer("half", "float16", 64)
    i = Var("i")
    lanes = Ramp(i * 8, const(1), 8)
    body = []
    for op in MATH:
        value: Expr = BufferLoad(x, (lanes,))
        args = [value, Broadcast(const(2.5), 8)] if op in ("pow", "fmod") else [value]
        body.append(BufferStore(y, call_intrinsic(op, *args) + BufferLoad(y, (lanes,)), (lanes,)))
    body.append(BufferStore(half, cast("float16x8", BufferLoad(y, (lanes,))), (lanes,)))
    loop = For(i, const(0), const(8), "parallel", seq(*body))
    return [*packed_module(), kernel("maths", [x, y, half], loop)]


@pytest.mark.parametrize("name", TARGETS)
def test_object_files(name: str) -> None:
    options, machine = TARGETS[name]
    data = CompiledModule(everything(), options).object_bytes()
    if name == "wasm32":
        assert data[:4] == b"\0asm"
    else:
        assert data[:4] == b"\x7fELF"
        assert struct.unpack_from("<H", data, 18)[0] == machine
    assert b"__tvm_ffi_scale" in data


def elf_symbols(data: bytes) -> list[tuple[str, int, int, bool]]:
    """Name, binding, visibility and whether it is defined, for each symbol of a 64-bit file."""
    (sections,) = struct.unpack_from("<Q", data, 40)
    size, count = struct.unpack_from("<HH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, sections + i * size) for i in range(count)]
    found = []
    for header in headers:
        if header[1] != 2:
            continue
        names = headers[header[6]][4]
        for at in range(header[4] + 24, header[4] + header[5], 24):
            name, info, other, section = struct.unpack_from("<IBBH", data, at)
            text = data[names + name : data.index(b"\0", names + name)].decode()
            found.append((text, info >> 4, other & 3, section != 0))
    return found


@pytest.mark.parametrize("name", ["native", "x86_64", "aarch64", "riscv64"])
def test_nothing_is_undefined(name: str) -> None:
    options = LLVMOptions.native() if name == "native" else TARGETS[name][0]
    symbols = elf_symbols(CompiledModule(everything(), options).object_bytes())
    local, weak, hidden = 0, 2, 2
    assert [s for s in symbols if not s[3] and s[1] not in (local, weak)] == []
    visible = {s[0] for s in symbols if s[3] and s[1] != local and s[2] != hidden}
    assert visible == {"__tvm_ffi_scale", "__sterna__host"}


def test_shared_library_stands_alone(tmp_path: Path) -> None:
    compiler = require_program("cc")
    (tmp_path / "m.o").write_bytes(CompiledModule(everything()).object_bytes())
    target = tmp_path / "m.so"
    subprocess.run([compiler, "-shared", "-nostdlib", "-Wl,-z,defs", "-o", str(target),
                    str(tmp_path / "m.o")], check=True)
    library = ctypes.CDLL(str(target))
    assert library.__tvm_ffi_scale(None, None, 0, None) == -1
    assert not hasattr(library, "maths")
    assert ctypes.c_void_p.in_dll(library, "__sterna__host").value is None


@requires_x86
def test_probing() -> None:
    plain = abilities(BASELINE)
    assert (plain.converts_fp16, plain.rounds) == (False, frozenset())
    haswell = abilities(LLVMOptions(BASELINE.triple, "haswell"))
    assert haswell.converts_fp16
    assert {"floor.f32", "rint.f64"} <= haswell.rounds
    arm = abilities(TARGETS["aarch64"][0])
    assert arm.converts_fp16 and "round.f32" in arm.rounds


@requires_x86
@pytest.mark.parametrize("name", UNARY)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_rounding_without_instructions(name: str) -> None:
    for dtype in ("float16", "float32", "float64"):
        more = np.array([0.5, -0.5, 1.5, 2.5, -3.5, 0.49999997, 8388607.5, 1e3], dtype)
        x = np.concatenate([float_samples(dtype)[0], more])
        for lanes in (1, 4):
            got = elementwise(lambda v: call_intrinsic(name, v), dtype, [(dtype, x)], lanes,
                              BASELINE)
            same_floats(got, np.asarray(UNARY[name](x)).astype(dtype))


@requires_x86
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_half_without_instructions() -> None:
    bits = np.arange(65536, dtype="uint16").view("float16")
    got = elementwise(lambda v: cast("float32", v), "float32", [("float16", bits)],
                      options=BASELINE)
    np.testing.assert_array_equal(got, bits.astype("float32"))
    rng = np.random.default_rng(6)
    x = rng.integers(0, 1 << 32, 100000, "uint32").view("float32")
    x = np.concatenate([x, bits.astype("float32") * np.float32(1.0004883), bits.astype("float32"),
                        (rng.normal(size=1000) * 1e-6).astype("float32"),
                        np.array([65504, 65519.996, 65520, 2e5], "float32")])
    got = elementwise(lambda v: cast("float16", v), "float16", [("float32", x)], options=BASELINE)
    np.testing.assert_array_equal(got, x.astype("float16"))
    a, b = float_samples("float16")
    for name in ("add", "mul", "div"):
        ours, reference = FLOAT_OPS[name]
        got = elementwise(ours, "float16", [("float16", a), ("float16", b)], 8, BASELINE)
        same_floats(got, reference(a, b))


@requires_x86
def test_bfloat_on_a_plain_processor() -> None:
    x = np.random.default_rng(7).normal(size=100).astype("float32")
    lanes = DataType("bfloat16x4")
    got = elementwise(lambda v: cast(lanes, v) * cast(lanes, v), "bfloat16", [("float32", x)], 4,
                      BASELINE)
    rounded = bfloat_values(bfloat_bits(x))
    np.testing.assert_array_equal(got, bfloat_bits(rounded * rounded))


def micro_kernel(rows: int, columns: int, depth: int) -> PrimFunc:
    """A tile of a matrix product, all sums held in a local buffer."""
    a = make_buffer("a", "float32", depth * rows, alignment=64)
    b = make_buffer("b", "float32", depth * columns, alignment=64)
    c, sums = make_buffer("c", "float32", rows * columns), make_buffer(
        "sums", "float32", rows * columns, scope="local")
    k = Var("k")
    start, update, finish = [], [], []
    for i in range(rows):
        row = Ramp(const(i * columns), const(1), columns)
        start.append(BufferStore(sums, Broadcast(const(0.0), columns), (row,)))
        product = Broadcast(BufferLoad(a, (k * rows + i,)), columns) * BufferLoad(
            b, (Ramp(k * columns, const(1), columns),))
        update.append(BufferStore(sums, BufferLoad(sums, (row,)) + product, (row,)))
        finish.append(BufferStore(c, BufferLoad(sums, (row,)), (row,)))
    loop = For(k, const(0), const(depth), "serial", seq(*update))
    body = Allocate(sums, seq(*start, loop, *finish))
    return kernel("tile", [a, b, c], body)


@pytest.mark.parametrize("rows, columns, cpu", [(6, 16, "haswell"), (14, 32, "skylake-avx512")])
def test_sums_stay_in_registers(rows: int, columns: int, cpu: str) -> None:
    function = micro_kernel(rows, columns, 256)
    options = llvm_options(Target(f"llvm -mtriple={BASELINE.triple} -mcpu={cpu}"))
    text = CompiledModule([function], options).assembly()
    lines = [line.strip() for line in text.splitlines()]
    inner = max(_loops(lines), key=lambda loop: sum("vfmadd" in line for line in loop))
    names = {line.split()[0] for line in inner if not line.startswith(("#", "."))}
    assert not any("rsp" in line or "rbp" in line for line in inner)
    assert {n for n in names if n.startswith("v")} <= {
        "vfmadd231ps", "vfmadd132ps", "vfmadd213ps", "vbroadcastss", "vmovaps", "vmovups",
    }
    width = 8 if cpu == "haswell" else 16
    assert sum("vfmadd" in line for line in inner) % (rows * columns // width) == 0


def _loops(lines: list[str]) -> list[list[str]]:
    """Each label's lines up to the jump that ends them."""
    found: list[list[str]] = []
    current: list[str] | None = None
    for line in lines:
        if line.startswith(".LBB") and ":" in line:
            current = []
            found.append(current)
        elif current is not None:
            current.append(line)
            if line.startswith("j"):
                current = None
    return found


def test_micro_kernel_gives_the_product() -> None:
    def aligned(size: int) -> Array:
        raw = np.zeros(size + 16, "float32")
        return raw[(-raw.ctypes.data // 4) % 16 :][:size]

    rng = np.random.default_rng(8)
    a, b = aligned(64 * 6), aligned(64 * 16)
    a[:], b[:] = rng.normal(size=64 * 6), rng.normal(size=64 * 16)
    got = np.zeros((6, 16), "float32")
    Loaded(micro_kernel(6, 16, 64))(a, b, got)
    np.testing.assert_allclose(got, a.reshape(64, 6).T @ b.reshape(64, 16), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("cpu, lanes, step, fetched", [
    ("cascadelake", 16, 16, 1), ("cascadelake", 32, 32, 2), ("cascadelake", 16, 32, 0),
    ("cascadelake", 8, 8, 0), ("icelake-server", 16, 16, 0), ("haswell", 16, 16, 0),
])
def test_lines_that_are_stored_whole_are_fetched(
    cpu: str, lanes: int, step: int, fetched: int
) -> None:
    """On cores where such stores are slow without, and only where loops fill line after line."""
    options = llvm_options(Target(f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"))
    x, y = make_buffer("x", "float32", 400), make_buffer("y", "float32", 400)
    i = Var("i")
    place = Ramp(i * step, const(1), lanes)
    store = BufferStore(y, BufferLoad(x, (place,)), (place,))
    body = For(i, const(0), const(400 // step), "serial", store)
    text = CompiledModule([kernel("f", [x, y], body)], options).ir()
    assert len(re.findall(r"call void \S*llvm\.prefetch", text)) == fetched
