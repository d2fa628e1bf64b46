"""PTX of kernels, on machines without a GPU: what it says, and that NVIDIA's assembler takes it."""

import math
import re

import numpy as np
import pytest

import sterna as tvm
from sterna import te, tir
from sterna.codegen.nvptx.architecture import Architecture
from sterna.codegen.nvptx.assemble import assemble as llvm_to_ptx
from sterna.codegen.nvptx.mathematics import _ERF, _ERF_MOST
from sterna.ir.build import call_intrinsic
from sterna.support.errors import InternalError
from sterna.te import Tensor
from tests.gpu.kernels import EXAMPLES, row_sums, vector_add
from tests.gpu.ptxas import assemble, requires_ptxas
from tests.op.on_cuda import cases, check_assembled

ARCHITECTURES = ("sm_53", "sm_72", "sm_75", "sm_80", "sm_86", "sm_89", "sm_90a", "sm_100a")

# A prime, so that over the operators first, second and later cases take turns.
EVERY = 97
SAMPLE = dict(list(cases().items())[::EVERY])


def by_threads(made: Tensor, lanes: int = 1) -> te.Schedule:
    """A schedule with a thread for each of so many elements."""
    schedule = te.create_schedule(made.op)
    outer, inner = schedule[made].split(made.op.axis[0], factor=lanes)
    block, thread = schedule[made].split(outer, factor=64)
    schedule[made].bind(block, te.thread_axis("blockIdx.x"))
    schedule[made].bind(thread, te.thread_axis("threadIdx.x"))
    if lanes > 1:
        schedule[made].vectorize(inner)
    return schedule


def ptx(schedule: te.Schedule, args: list[Tensor], arch: str = "sm_80") -> str:
    """The program of a schedule."""
    (kernels,) = tvm.build(schedule, args, f"cuda -arch={arch}", name="f").imported_modules
    text: str = kernels.get_source("ptx")
    return text


def of_element(op: str, dtype: str = "float32", arch: str = "sm_80") -> str:
    """The program that applies a function to each element."""
    a = te.placeholder((256,), dtype, name="A")
    b = te.compute((256,), lambda i: call_intrinsic(op, a[i]), name="B")
    return ptx(by_threads(b), [a, b], arch)


@requires_ptxas
@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_schedules_are_assembled(arch: str) -> None:
    for name in ("product", "row_sums", "running_sums"):
        example = EXAMPLES[name]()
        made = assemble(ptx(example.schedule, example.args, arch), arch)
        assert not made.spilled_bytes and not made.stack_bytes, name


@requires_ptxas
@pytest.mark.parametrize("name", SAMPLE)
def test_operators_are_assembled(name: str) -> None:
    check_assembled(*SAMPLE[name], arch="sm_80")


@pytest.mark.parametrize(
    ("arch", "version"),
    [("sm_53", "4.2"), ("sm_72", "6.1"), ("sm_80", "7.0"), ("sm_90a", "8.0"), ("sm_100a", "8.6")],
)
def test_the_least_version_is_asked_for(arch: str, version: str) -> None:
    example = vector_add()
    text = ptx(example.schedule, example.args, arch)
    assert f".version {version}\n" in text and f".target {arch}\n" in text
    assert ".reqntid 16, 1, 1" in text


def test_an_instruction_may_need_a_later_version() -> None:
    every = tir.const(0xFFFFFFFF, "uint32")
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: tir.call_intrin(
        "float32", "tir.tvm_warp_shuffle_down", every, a[i], 4, 16, 32), name="B")
    text = ptx(by_threads(b), [a, b], "sm_53")
    assert ".version 6.0" in text
    # 16 lanes are a group: bit 4 of the lane's number stays.
    assert re.search(r"shfl\.sync\.down\.b32.*, 4, 4127, -1;", text)


def test_what_a_gpu_lacks_is_said_before_llvm_is_asked() -> None:
    every = tir.const(0xFFFFFFFF, "uint32")
    a = te.placeholder((64,), name="A")
    b = te.compute((64,), lambda i: tir.call_intrin(
        "float32", "tir.tvm_warp_shuffle", every, a[i], 0, 32, 32), name="B")
    with pytest.raises(ValueError, match=r"f_kernel uses tvm_warp_shuffle, which sm_30 or later "
                       r"has and sm_21 has not"):
        ptx(by_threads(b), [a, b], "sm_21")
    c = te.compute((64,), lambda i: tir.call_intrin(
        "float32", "tir.tvm_warp_shuffle", every, a[i], 0, 12, 32), name="C")
    with pytest.raises(ValueError, match="a power of two up to 32, not 12"):
        ptx(by_threads(c), [a, c])


def test_llvm_ends_another_process() -> None:
    text = """
        declare float @llvm.sin.f32(float)
        define ptx_kernel void @k(ptr addrspace(1) %p) {
          %x = load float, ptr addrspace(1) %p
          %y = call float @llvm.sin.f32(float %x)
          store float %y, ptr addrspace(1) %p
          ret void
        }"""
    with pytest.raises(InternalError, match=r"cannot make PTX for sm_80 \+ptx70: .+"):
        llvm_to_ptx(text, "sm_80", "+ptx70", 3)
    with pytest.raises(InternalError, match="generated LLVM IR is wrong"):
        llvm_to_ptx("no module", "sm_80", "+ptx70", 3)
    assert "ex2.approx" in of_element("exp")


@pytest.mark.parametrize(
    ("dtype", "lanes", "fused"), [("float32", 4, "fma.rn.f32"), ("float16", 8, "fma.rn.f16x2")]
)
def test_sixteen_bytes_are_taken_at_once(dtype: str, lanes: int, fused: str) -> None:
    a, b = (te.placeholder((1024,), dtype, name=name) for name in "AB")
    c = te.compute((1024,), lambda i: a[i] * b[i] + a[i], name="C")
    text = ptx(by_threads(c, lanes), [a, b, c])
    assert text.count("ld.global.nc.v4.b32") == 2 and text.count("st.global.v4.b32") == 1
    assert text.count(fused) == 4


def test_functions_use_the_special_function_unit() -> None:
    assert "ex2.approx.ftz.f32" in of_element("exp") and "call" not in of_element("exp")
    assert "rsqrt.approx.f32" in of_element("rsqrt")
    assert "rcp.approx.ftz.f32" in of_element("sigmoid")
    assert "ex2" not in of_element("exp", "float64")
    for kind in ("float16", "bfloat16"):
        # Tiny results of narrow floats are not flushed, and nothing is corrected.
        assert "ex2.approx.f32" in of_element("exp", kind) and "fma" not in of_element("exp", kind)
        short = of_element("sigmoid", kind)
        assert "rcp.approx.ftz.f32" in short and "fma" not in short


def test_the_error_function_of_narrow_floats_is_short() -> None:
    for kind in ("float16", "bfloat16"):
        text = of_element("erf", kind)
        assert text.count("fma.rn.f32") == len(_ERF) - 1 and "selp" not in text
    x = np.linspace(-5, 5, 2001, dtype="float32")
    held = np.clip(x, np.float32(-_ERF_MOST), np.float32(_ERF_MOST))
    made = np.polynomial.polynomial.polyval(held * held, np.array(_ERF, "float32")) * held
    wanted = np.array([math.erf(each) for each in x])
    np.testing.assert_allclose(made, wanted, rtol=8e-5)


def test_small_floats_are_rounded_by_an_instruction() -> None:
    a = te.placeholder((256,), name="A")
    b = te.compute((256,), lambda i: a[i].astype("bfloat16"), name="B")
    assert "cvt.rn.bf16x2.f32" in ptx(by_threads(b, 2), [a, b], "sm_80")
    assert "bf16" not in ptx(by_threads(b, 2), [a, b], "sm_75")


def test_bytes_are_multiplied_four_at_a_time() -> None:
    c = te.compute((64,), lambda i: tir.dot4(
        tir.const(3, "int32"), tir.call_intrin("int8x4", "tir.reinterpret", i),
        tir.call_intrin("uint8x4", "tir.reinterpret", i + 1)), name="C")
    assert "dp4a.s32.u32" in ptx(by_threads(c), [c], "sm_61")
    assert "dp4a" not in ptx(by_threads(c), [c], "sm_53")


def test_private_arrays_are_registers_where_loops_over_them_are_short() -> None:
    example = EXAMPLES["product"]()
    assert ".local" not in ptx(example.schedule, example.args)
    data = te.placeholder((64, 8), name="data")
    places = te.placeholder((64, 8), "int32", name="places")
    held = te.compute((64, 8), lambda i, j: data[i, j] * 2, name="held")
    out = te.compute((64, 8), lambda i, j: held[i, places[i, j]], name="out")
    schedule = by_threads(out)
    schedule[held].compute_at(schedule[out], schedule[out].leaf_iter_vars[2])
    schedule[held].set_scope("local")
    assert "ld.local" in ptx(schedule, [data, places, out]), "the run tells which element is meant"


def test_too_much_shared_memory_is_refused() -> None:
    a = te.placeholder((64, 1024), name="A")
    held = te.compute((64, 1024), lambda i, j: a[i, j] + 1, name="held")
    b = te.compute((64, 1024), lambda i, j: held[i, 1023 - j], name="B")
    schedule = te.create_schedule(b.op)
    schedule[b].bind(b.op.axis[1], te.thread_axis("threadIdx.x"))
    schedule[held].bind(held.op.axis[1], te.thread_axis("threadIdx.x"))
    schedule[held].set_scope("shared")
    with pytest.raises(ValueError, match=r"declares 262144 bytes of shared memory.*49152"):
        ptx(schedule, [a, b])


def test_kernels_start_early_and_wait_before_they_touch_memory() -> None:
    a, b = (te.placeholder((1024,), name=name) for name in "AB")
    c = te.compute((1024,), lambda i: a[i] * b[i] + a[i], name="C")
    text = ptx(by_threads(c, 4), [a, b, c], "sm_90")
    waits, loads = text.index("griddepcontrol.wait"), text.index("ld.global")
    assert "griddepcontrol.launch_dependents" in text[:waits] and waits < loads
    assert text.count("ld.global.nc.v4.b32") == 2, "that arrays are only read is still known"
    assert "griddepcontrol" not in ptx(by_threads(c, 4), [a, b, c], "sm_89")


@pytest.mark.parametrize(
    ("threads", "blocks", "warps"), [(128, 3, 5), (32, 0, 6), (16, 0, 5)],
    ids=["several warps", "one warp", "half a warp"],
)
def test_what_one_warp_does_waits_for_that_warp_alone(
    threads: int, blocks: int, warps: int
) -> None:
    example = row_sums(4, 512, threads)
    text = ptx(example.schedule, example.args, "sm_80")
    assert (text.count("bar.sync"), text.count("bar.warp.sync")) == (blocks, warps)
    # Each step reads what others wrote.
    steps = re.split(r"bar\.(?:warp\.)?sync", text)
    assert all("ld.shared" in step for step in steps[1:])
    old = ptx(example.schedule, example.args, "sm_62")
    assert old.count("bar.sync") == blocks + warps and "bar.warp" not in old


def test_an_array_that_begins_elsewhere_is_refused() -> None:
    example = vector_add()
    source = tvm.build(example.schedule, example.args, "cuda -arch=sm_80", name="add").get_source()
    assert "the address of argument A must be a multiple of 16 bytes" in source


def test_architectures() -> None:
    newest = Architecture.of("sm_90a")
    assert newest.least_version == 80 and {"sm_53", "sm_90", "sm_90a"} <= newest.features
    assert Architecture.of("sm_100f").least_version == 88
    with pytest.raises(ValueError, match="PTX knows no GPU 'sm_42'"):
        Architecture.of("sm_42")


def test_a_network_is_compiled_for_a_gpu_that_is_not_here() -> None:
    x = tvm.relay.var("x", shape=(4, 16))
    w = tvm.relay.const(np.ones((8, 16), "float32"))
    made = tvm.relay.nn.softmax(tvm.relay.nn.dense(x, w))
    library = tvm.relay.build(tvm.IRModule.from_expr(made), "cuda -arch=sm_86")
    sources = [module.get_source() for module in library.lib.imported_modules]
    assert any(".target sm_86" in source for source in sources)
