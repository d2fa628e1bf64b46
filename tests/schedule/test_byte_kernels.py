"""Kernels of bytes on the instruction sets that this machine has, and emulated, to the last bit."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te, tir
from sterna.schedule.dot4 import add_by_dots
from sterna.schedule.sum_of_products import CHANNEL, describe_sum, description_of
from sterna.support import cross
from sterna.support.dtype import DataType
from sterna.target import Target, machine_of
from sterna.te.lower import lower_schedule
from sterna.tir import interpreter
from tests.op.on_aarch64 import TRIPLE, run_on_aarch64
from tests.schedule.byte_layers import MACHINES, SIGNS, check, extremes, quantised

# ---- the instruction ----


def product(signs: tuple[str, str], lanes: int) -> tuple[Any, list[Any]]:
    """Five rows times one vector of columns, 8 deep."""
    a = te.placeholder((5, 8), signs[0], name="A")
    w = te.placeholder((2, lanes, 4), signs[1], name="W")
    k = te.reduce_axis((0, 8), "k")
    total = te.compute(
        (5, lanes),
        lambda i, j: te.sum(
            a[i, k].astype("int32") * w[k.var // 4, j, k.var % 4].astype("int32"), axis=k
        ),
        name="Y",
    )
    made = description_of(describe_sum(total, [CHANNEL]).op)
    assert made is not None
    out = te.compute((5, lanes), lambda i, j: total[i, j] + 1, name="Z")
    s = te.create_schedule(out.op)
    s[out].vectorize(out.op.axis[1])
    s[total].set_scope("local")
    s[total].compute_at(s[out], out.op.axis[0])
    add_by_dots(s[total], made, [k], [total.op.axis[0]], (lanes,))
    return s, [a, w, out]


@pytest.mark.parametrize(("signs", "lanes"), [
    (SIGNS[0], 4), (SIGNS[0], 16), *[(signs, 8) for signs in SIGNS],
])
def test_four_products_in_a_lane(signs: tuple[str, str], lanes: int) -> None:
    rng = np.random.default_rng(lanes)
    s, args = product(signs, lanes)
    a, w = extremes(rng, (5, 8), signs[0]), extremes(rng, (2, lanes, 4), signs[1])
    flat = w.transpose(1, 0, 2).reshape(lanes, 8).astype("int64")
    want = a.astype("int64") @ flat.T + 1
    for target in [*MACHINES, "c"]:
        found = np.empty((5, lanes), "int32")
        tvm.build(s, args, target=target)(a, w, found)
        np.testing.assert_array_equal(found, want, err_msg=target)
    found = np.empty((5, lanes), "int32")
    interpreter.run(lower_schedule(s, args, "f"), a, w, found)
    np.testing.assert_array_equal(found, want)


def test_the_interpreter_and_the_code_agree_on_the_call_itself() -> None:
    a, b = (tir.decl_buffer((8,), "int8", name) for name in "ab")
    out = tir.decl_buffer((2,), "int32", "out")
    first = np.array([-128] * 8, "int8")
    made = tir.dot4(out.vload(0, "int32x2"), a.vload(0, "int8x4"), b.vload(0, "int8x8"))
    func = tir.PrimFunc("f", (a.data, b.data, out.data), (a, b, out), out.vstore(0, made))
    want = [2**31 - 1 - 2**32 + 65536, 5 + 65536]
    for run in (interpreter.run, lambda f, *arrays: tvm.build(f, target="llvm")(*arrays)):
        total = np.array([2**31 - 1, 5], "int32")
        run(func, first, first, total)
        assert total.tolist() == want  # sums wrap


def test_what_it_takes() -> None:
    total = te.var("x", "int32x4")
    with pytest.raises(TypeError, match="adds to int32, not to float32"):
        tir.dot4(te.var("x", "float32"), total, total)
    with pytest.raises(TypeError, match="takes 16 bytes to add to int32x4, not int8x8"):
        tir.dot4(total, te.var("a", "int8x4"), te.var("b", "int8x8"))
    with pytest.raises(TypeError, match="takes 4 or 16 bytes to add to int32x4, not int16x4"):
        tir.dot4(total, te.var("a", "int16x4"), te.var("b", "int8x16"))


def test_processors_and_their_instructions() -> None:
    expected = {
        "x86_64-linux-gnu -mcpu=icelake-server": "avx512vnni",
        "x86_64-linux-gnu -mcpu=alderlake": "avxvnni",
        "x86_64-linux-gnu -mcpu=skylake-avx512": "avx512bw",
        "x86_64-linux-gnu -mcpu=haswell": "avx2",
        "x86_64-linux-gnu": "sse2",
        "aarch64-linux-gnu -mcpu=neoverse-n1": "dotprod",
        "aarch64-linux-gnu -mcpu=neoverse-n2": "i8mm",
        "aarch64-linux-gnu": "",
    }
    found = {}
    for name in expected:
        has = machine_of(Target(f"llvm -mtriple={name}")).instructions
        row = has.dot4 or has.dot2 or has.dot2_int16
        found[name] = row.needs[0] if row else ""
    assert found == expected


INSTRUCTIONS = {
    "x86_64-linux-gnu -mcpu=icelake-server": "vpdpbusd",
    "x86_64-linux-gnu -mcpu=alderlake": "vpdpbusd",
    "x86_64-linux-gnu -mcpu=haswell": "vpmaddwd",
    "aarch64-linux-gnu -mcpu=neoverse-n2": "usdot",
}


@pytest.mark.parametrize("name", INSTRUCTIONS)
def test_the_machine_code_has_them(name: str) -> None:
    lanes = machine_of(Target(f"llvm -mtriple={name}")).vector_bits // 32
    s, args = product(("uint8", "int8"), lanes)
    code = tvm.build(s, args, target=f"llvm -mtriple={name}").get_source("asm")
    assert INSTRUCTIONS[name] in code


# ---- back to bytes ----


def narrowed(lanes: int, dtype: str) -> tuple[Any, list[Any]]:
    """Vectors of 32 bits held within the range of 8."""
    x = te.placeholder((6, lanes), "int32", name="X")
    narrow = DataType(dtype)
    out = te.compute(x.shape, lambda i, j: tir.Call(narrow, "saturate", (x[i, j],)), name="Y")
    s = te.create_schedule(out.op)
    s[out].vectorize(out.op.axis[1])
    return s, [x, out]


@pytest.mark.parametrize("dtype", ["uint8", "int8"])
@pytest.mark.parametrize("lanes", [4, 16, 24, 48, 64, 80])
def test_integers_become_bytes_in_order(lanes: int, dtype: str) -> None:
    rng = np.random.default_rng(lanes)
    near = rng.integers(-300, 300, (6, lanes))
    x = np.where(rng.random((6, lanes)) < 0.7, near, extremes(rng, (6, lanes), "int32"))
    x = x.astype("int32")
    s, args = narrowed(lanes, dtype)
    for target in MACHINES:
        found = np.empty((6, lanes), dtype)
        tvm.build(s, args, target=target)(x, found)
        info = np.iinfo(dtype)
        np.testing.assert_array_equal(found, np.clip(x, info.min, info.max), err_msg=target)


@pytest.mark.parametrize(("cpu", "register"), [("icelake-server", 64), ("haswell", 32)])
def test_four_registers_become_one_in_four_instructions(cpu: str, register: int) -> None:
    s, args = narrowed(register, "uint8")
    target = f"llvm -mtriple=x86_64-linux-gnu -mcpu={cpu}"
    code = tvm.build(s, args, target=target).get_source("asm")
    counts = {name: code.count(f"\t{name}\t") for name in ("vpackssdw", "vpackuswb", "vpermd")}
    rows = counts["vpermd"]
    assert rows and counts == {"vpackssdw": 2 * rows, "vpackuswb": rows, "vpermd": rows}
    assert "vpmax" not in code and "vpmov" not in code


def test_aarch64_narrows_without_comparisons() -> None:
    x = te.placeholder((6, 16), "float32", name="X")
    byte = DataType("uint8")
    out = te.compute(
        x.shape,
        lambda i, j: tir.Call(byte, "saturate", (te.nearbyint(x[i, j]).astype("int32"),)),
        name="Y",
    )
    s = te.create_schedule(out.op)
    s[out].vectorize(out.op.axis[1])
    code = tvm.build(s, [x, out], target=f"llvm -mtriple={TRIPLE}").get_source("asm")
    rows = code.count("\tfcvtns\t") // 4
    narrowed_once = code.count("\tsqxtn\t") + code.count("\tsqxtn2\t")
    narrowed_twice = code.count("\tsqxtun\t") + code.count("\tsqxtun2\t")
    assert rows and (narrowed_once, narrowed_twice) == (4 * rows, 2 * rows)
    assert not any(f"\t{name}\t" in code for name in ("frintx", "fcvtzs", "smin", "umin", "tbl"))


# ---- layers ----


KINDS = [
    "pointwise", "window", "depthwise", "rows", "steps", "flat", "groups", "ragged groups",
    "patches", "few", "last tile", "odd tile", "deep", "dense", "row",
]


@pytest.mark.parametrize("kind", KINDS)
def test_layers(kind: str) -> None:
    for seed, signs in enumerate(SIGNS[: 3 if kind == "window" else 2]):
        made, feeds, want = quantised(kind, signs, seed)
        check(made, feeds, want, "llvm -mcpu=native", 3)


@pytest.mark.parametrize("target", MACHINES[1:])
def test_layers_on_other_processors(target: str) -> None:
    for seed, kind in enumerate(["window", "dense", "steps", "groups", "patches"]):
        check(*quantised(kind, SIGNS[seed % 2], seed), target, 3)


@pytest.mark.parametrize("level", [0, 2])
def test_layers_at_all_levels(level: int) -> None:
    check(*quantised("window", SIGNS[0], 7), "llvm", level)


def test_vectors_fill_the_channels_of_a_single_block() -> None:
    """24 channels are a vector of 16 and one of 8; neither is computed number by number."""
    made, _, _ = quantised("pointwise", SIGNS[0], 0)
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server"
    with tvm.transform.PassContext(opt_level=3):
        code = relay.build(tvm.IRModule.from_expr(made), target=target).get_lib().get_source("asm")
    dots = [line for line in code.splitlines() if "vpdpbusd" in line]
    halves = [line for line in dots if "%ymm" in line]
    assert halves and len(dots) == 2 * len(halves)
    assert all("%zmm" in line for line in dots if line not in halves)


def test_zeros_fill_the_vectors_of_the_last_tile() -> None:
    """84 channels are five vectors and a part: no dot product adds to fewer lanes for it."""
    made, _, _ = quantised("last tile", SIGNS[0], 0)
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server"
    with tvm.transform.PassContext(opt_level=3):
        code = relay.build(tvm.IRModule.from_expr(made), target=target).get_lib().get_source("asm")
    dots = [line for line in code.splitlines() if "vpdpbusd" in line]
    assert dots and all("%zmm" in line for line in dots)


def pictured(shape: tuple[int, ...]) -> Any:
    """A picture as bytes with channels last, padded to four as products of bytes want them."""
    x = relay.var("x", shape=shape)
    made = relay.qnn.quantize(x, relay.const(0.25), relay.const(7), out_dtype="uint8",
                              rounding="TO_EVEN")
    made = relay.nn.pad(made, pad_width=((0, 0), (0, 4 - shape[1]), (0, 0), (0, 0)))
    return relay.layout_transform(made, src_layout="NCHW", dst_layout="NHWC")


@pytest.mark.parametrize("target", MACHINES)
@pytest.mark.parametrize("shape", [(1, 3, 5, 37), (2, 1, 3, 16), (1, 3, 2, 5)])
def test_channels_are_brought_together(shape: tuple[int, ...], target: str) -> None:
    x = np.random.default_rng(0).normal(0, 60, shape).astype("float32")
    x.flat[:2] = np.nan, np.inf
    whole = np.clip(np.nan_to_num(np.rint(x / np.float32(0.25)), nan=-7) + 7, 0, 255)
    want = np.pad(whole.astype("uint8"), ((0, 0), (0, 4 - shape[1]), (0, 0), (0, 0)))
    check(pictured(shape), {"x": x}, want.transpose(0, 2, 3, 1), target, 3)


def test_channels_are_brought_together_by_whole_vectors() -> None:
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server"
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(pictured((1, 3, 8, 64))), target=target)
    code = lib.get_lib().get_source("asm")
    (loops,) = (part for part in code.split("\t.globl\t") if "vmulps" in part)
    assert "vpunpcklbw" in loops
    assert "mulss" not in loops and "gather" not in loops and "\tmovb\t" not in loops


def test_depthwise_sums_add_four_rows_at_once() -> None:
    """Ten columns that are turned once give eight of two rows of results, three dots for each."""
    made, _, _ = quantised("rows", SIGNS[0], 0)
    target = "llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server"
    with tvm.transform.PassContext(opt_level=3):
        code = relay.build(tvm.IRModule.from_expr(made), target=target).get_lib().get_source("asm")
    assert "vpmaddwd" not in code and "vpmovzxbd" not in code
    dots, turned = (code.count(f"\t{name}\t") for name in ("vpdpbusd", "vpermb"))
    assert 4 < dots / turned <= 4.8


# ---- elsewhere ----

ARM = ["+neon", "+neon,+dotprod", "+neon,+dotprod,+i8mm"]


@pytest.mark.parametrize("features", ARM)
def test_layers_elsewhere(features: str, tmp_path: Path) -> None:
    if cross.is_here(TRIPLE):
        return  # the others have run there
    # uint8 with dotprod alone turns into int8, which i8mm need not do
    made, feeds, want = quantised("window", SIGNS[0], 3)
    real = relay.cast(made, "float32")
    data = relay.var("data", shape=feeds["x"].shape)
    (own,) = relay.analysis.free_vars(real)
    body = relay.bind(real, {own: relay.cast(data, SIGNS[0][0])})
    got = run_on_aarch64(body, f"-mattr={features}", feeds["x"], tmp_path)
    np.testing.assert_array_equal(got, want.ravel())
