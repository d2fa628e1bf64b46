"""The inner loops of convolutions in machine code: products and loads, nothing on the stack."""

import re
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from sterna.codegen import llvm
from sterna.driver.kernel import kernel_functions
from sterna.lowering.unique_kernels import unique_kernels
from sterna.relay import pipeline
from sterna.schedule.implementation import Plan
from sterna.target import Target, processor_of
from sterna.target.code_generators.llvm import llvm_options
from tests.schedule.implemented import packed_conv2d

TARGETS = {
    "avx512": "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=skylake-avx512",
    "avx2": "llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=haswell",
    "neon": "llvm -mtriple=aarch64-unknown-linux-gnu -mcpu=neoverse-n1",
}
WITH_RVV = TARGETS | {"rvv": "llvm -mtriple=riscv64-unknown-linux-gnu -mattr=+v"}
MORE = WITH_RVV | {
    "neon of 32 bits": "llvm -mtriple=armv7l-unknown-linux-gnueabihf -mcpu=cortex-a15"
}
PRODUCT = re.compile(r"\b(vfn?madd\w+ps|fml[as]|vfn?m(acc|add)\.v[fv]|v(fma|mla)\.f32)\b")
STACK = re.compile(r"\(%rsp|\(%rbp\)|\[sp[,\]]|\bv[sl]\dr\w*\.v|\bv(ld|st)mia\b")
LOAD = re.compile(r"\b(ldu?r|ldp|ld1r|vmovups|vbroadcastss|vle32\.v|flw|vld1\.32)\b")
FETCH = re.compile(r"\b(prefetch\w*|prfm)\b")
JUMP = re.compile(r"^\s+(?:j\w*|b\w*|b\.\w+|cbn?z|tbn?z)\s.*?(\.L\w+)$")


@dataclass(frozen=True)
class Loop:
    """An innermost loop."""

    lines: list[str]

    def count(self, pattern: re.Pattern[str]) -> int:
        """The lines in which something occurs."""
        return sum(bool(pattern.search(line)) for line in self.lines)


def inner_loops(assembly: str) -> list[Loop]:
    """The innermost loops."""
    lines = assembly.split("\n")
    starts = {m[1]: i for i, line in enumerate(lines) if (m := re.match(r"(\.L\w+):", line))}
    jumps = [(starts.get(m[1], i), i) for i, line in enumerate(lines) if (m := JUMP.match(line))]
    loops = [(first, last) for first, last in jumps if first < last]
    inner = [
        (a, b)
        for a, b in loops
        if not any(a <= c and d <= b and (a, b) != (c, d) for c, d in loops)
    ]
    return [Loop([x for x in lines[a + 1 : b + 1] if re.match(r"\s+[a-z]", x)]) for a, b in inner]


def busiest_loop(assembly: str) -> Loop:
    """The innermost loop that has most products among its instructions."""
    large = [loop for loop in inner_loops(assembly) if loop.count(PRODUCT) >= 8]
    return max(large, key=lambda loop: loop.count(PRODUCT) / len(loop.lines))


def assembly(
    mod: Any, target: Target, operator: str = "conv2d", answers: dict[str, str] | None = None
) -> str:
    """The code of the only kernel of an operator, with answers to what schedules ask.

    Channels lie last, as they do in networks, though a layer alone may cost less otherwise.
    """
    config = {"schedule.answers": {"layouts": "NHWC -> NHWC", **(answers or {})}}
    with tvm.transform.PassContext(opt_level=3, config=config), target:
        order = pipeline.passes(processor_of(target), target)
        main = tvm.transform.Sequential(order)(mod)["main"]
    functions = unique_kernels(main, "test").functions
    name = next(name for name in functions if operator in name)
    loops = kernel_functions(name, functions[name], target)
    return llvm.CompiledModule(loops, llvm_options(target), name).assembly()


def network(channels: int, outputs: int, size: int, window: int, **attrs: Any) -> Any:
    x = relay.var("x", shape=(1, channels, size, size))
    inner = channels // attrs.get("groups", 1)
    w = relay.const(np.ones((outputs, inner, window, window), "float32"))
    made = relay.nn.conv2d(x, w, padding=window // 2, **attrs)
    bias = relay.const(np.ones((outputs, 1, 1), "float32"))
    return tvm.IRModule.from_expr(relay.Function((x,), relay.nn.relu(relay.add(made, bias))))


def dense(rows: int, units: int, length: int) -> Any:
    x = relay.var("x", shape=(rows, length))
    w = relay.const(np.ones((units, length), "float32"))
    return tvm.IRModule.from_expr(relay.Function((x,), relay.nn.dense(x, w)))


@pytest.mark.parametrize("target", MORE.values(), ids=MORE.keys())
@pytest.mark.parametrize(
    "network_of",
    [(64, 128, 56, 1, {}), (64, 96, 28, 3, {"strides": 2}), (64, 64, 28, 3, {})],
    ids=["1x1", "3x3 by 2", "winograd"],
)
def test_products_fill_the_loop(network_of: Any, target: str) -> None:
    """Loads, broadcasts, products and a few instructions to count; accumulators stay."""
    *sizes, attrs = network_of
    loop = busiest_loop(assembly(network(*sizes, **attrs), Target(target)))
    check_products(loop, target, 2.25 if "riscv" in target else 1.75)


@pytest.mark.parametrize("m", [4, 6])
@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_winograds_transforms_keep_a_line_in_registers(m: int, target: str) -> None:
    """A loop stores a line of what lies between columns and rows, or reads one: nothing else."""
    machine = processor_of(Target(target))
    lanes, size = machine.lanes(tvm.DataType("float32")), m + 2
    block = 2 * lanes
    x = relay.var("x", shape=(1, 28, 28, 64))
    w = relay.const(np.ones((size**2, 64 // block, 64, block), "float32"))
    plan = Plan.of(
        "winograd", m=m, tiles=16, split="blocks", lanes=lanes, registers=machine.tile_registers,
        together=1, products=9 * 64,
    )
    body = packed_conv2d(x, plan, [w], 64, 3, padding=(1, 1, 1, 1))
    text = assembly(tvm.IRModule.from_expr(relay.Function((x,), body)), Target(target))
    transforms = [
        loop for loop in inner_loops(text) if 0 < loop.count(PRODUCT) < len(loop.lines) / 3
    ]
    # columns inside and on the border, and rows; columns and rows of results
    assert len(transforms) >= 5
    plain = sorted(loop.count(STACK) for loop in transforms)[:-1]  # the border asks where it is
    assert max(plain) <= size, plain


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize(
    ("sizes", "fetched"), [((256, 64, 112, 1), 2), ((512, 2048, 7, 1), 1)], ids=["large", "small"]
)
def test_fetching_ahead_takes_few_instructions(
    sizes: tuple[int, int, int, int], fetched: int, target: str
) -> None:
    """The next weights, and of a large image the next pixels, by addresses that only count up."""
    loop = busiest_loop(assembly(network(*sizes), Target(target)))
    assert loop.count(FETCH) >= fetched
    counting = len(loop.lines) - sum(loop.count(kind) for kind in (PRODUCT, LOAD, FETCH))
    clamped = 7 * any("csel" in line for line in loop.lines)  # the last step loads nothing ahead
    assert counting <= 7 + clamped, "\n".join(loop.lines)


def check_products(loop: Loop, target: str, most: float) -> None:
    """most: instructions for each product, beside some that count."""
    products = loop.count(PRODUCT)
    assert products >= 8  # two a cycle, each of which takes four
    assert loop.count(STACK) == 0, "\n".join(loop.lines)
    # A product of RISC-V is of two registers, and takes a number that is loaded for it alone.
    assert loop.count(LOAD) <= (1.2 if "riscv" in target else 0.8) * products
    assert len(loop.lines) <= most * products + 8, "\n".join(loop.lines)


@pytest.mark.parametrize("target", WITH_RVV.values(), ids=WITH_RVV.keys())
def test_products_of_matrices_fill_the_loop(target: str) -> None:
    """A few more instructions ask for the next columns ahead."""
    text = assembly(dense(128, 256, 512), Target(target), "dense")
    check_products(busiest_loop(text), target, 2.45)


@pytest.mark.parametrize(("target", "most"), [("avx512", 1.6), ("avx2", 1.9)])
def test_products_of_matrices_take_few_instructions(target: str, most: float) -> None:
    """Where another thread has half of the core, instructions are scarce before products are."""
    loop = busiest_loop(assembly(dense(128, 768, 768), Target(TARGETS[target]), "dense"))
    assert len(loop.lines) <= most * loop.count(PRODUCT), "\n".join(loop.lines)
    assert loop.count(STACK) == 0


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
@pytest.mark.parametrize("shared", [(12, 64, 64), (4, 12, 64, 64)])
def test_matrices_in_several_axes_are_multiplied_one_by_one(
    shared: tuple[int, ...], target: str
) -> None:
    """The next columns of one matrix are fetched ahead, not those of all."""
    a, b = relay.var("a", shape=(4, 12, 64, 64)), relay.var("b", shape=shared)
    product = relay.nn.batch_matmul(a, b, transpose_b=False)
    mod = tvm.IRModule.from_expr(relay.Function((a, b), product))
    lying = {"free operand": "as it lies"}
    loop = busiest_loop(assembly(mod, Target(target), "batch_matmul", lying))
    assert loop.count(FETCH) <= 2


@pytest.mark.parametrize(("rows", "width"), [(1, 64), (2, 32), (8, 32), (16, 32)])
def test_weights_and_those_fetched_ahead_fit_into_the_second_cache(rows: int, width: int) -> None:
    target = Target("llvm -mtriple=x86_64-unknown-linux-gnu -mcpu=sapphirerapids")
    with tvm.transform.PassContext(opt_level=3), target:
        order = pipeline.passes(processor_of(target), target)
        text = str(tvm.transform.Sequential(order)(dense(rows, 512, 4096)))
    assert f"OI{width}o" in text


def test_rows_are_summed_side_by_side() -> None:
    """Additions that wait for each other are few: vectors, then quarters of them."""
    x, ones = relay.var("x", shape=(128, 768)), relay.const(np.ones(768, "float32"))
    mod = tvm.IRModule.from_expr(relay.Function((x,), relay.nn.layer_norm(x, ones, ones)))
    text = assembly(mod, Target(TARGETS["avx512"]), "layer_norm").split("sterna.fail:")[0]
    row = text.split("parallel.0.task:")[1]
    assert 24 <= len(re.findall(r"\bvaddps\b.*zmm", row)) <= 64
    assert len(re.findall(r"\bvaddss\b", row)) <= 12  # two means of 768 numbers, and an epsilon


def test_stems_keep_their_accumulators() -> None:
    """Few channels are written out, and all of their numbers loaded ahead."""
    stem = network(3, 64, 112, 7, strides=2)
    text = assembly(stem, Target(TARGETS["neon"]), answers={"implementation": "direct"})
    loop = busiest_loop(text)
    assert loop.count(STACK) == 0 and loop.count(PRODUCT) >= 48


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_depthwise_windows_are_written_out(target: str) -> None:
    """Two rows of the window at least for as many columns as registers have room for."""
    loop = busiest_loop(assembly(network(96, 96, 56, 3, groups=96), Target(target)))
    columns = 4 if "haswell" in target else 8
    products = loop.count(PRODUCT)
    assert 6 * columns <= products <= 9 * columns  # a column at the border has fewer
    assert loop.count(STACK) == 0, "\n".join(loop.lines)
    assert len(loop.lines) <= 3.2 * products, "\n".join(loop.lines)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_long_rows_of_depthwise_windows_are_written_out(target: str) -> None:
    """Which columns a step sees is known there: nothing is asked, and pixels are read once."""
    loop = busiest_loop(assembly(network(96, 96, 14, 13, groups=96), Target(target)))
    products = loop.count(PRODUCT)
    assert products >= 60
    assert loop.count(STACK) == 0, "\n".join(loop.lines)
    assert len(loop.lines) <= 2 * products, "\n".join(loop.lines)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_sigmoids_do_not_divide(target: str) -> None:
    """x / (1 + exp(-x)) is some thirty instructions for a whole vector, from an estimate."""
    lanes = processor_of(Target(target)).lanes(tvm.DataType("float32"))
    x = te.placeholder((1024,), name="x")
    y = te.compute((1024,), lambda i: x[i] * te.sigmoid(x[i]))
    schedule = te.create_schedule(y.op)
    schedule[y].vectorize(schedule[y].split(y.op.axis[0], factor=lanes)[1])
    text = tvm.build(schedule, [x, y], target).get_source("asm")
    assert not re.search(r"\b(vdivps|fdiv)\b", text)
    loop = busiest_loop(text)
    most = 31 if "x86" in target else 35  # AArch64's products overwrite what they add to
    assert loop.count(PRODUCT) >= 9 and len(loop.lines) <= most, "\n".join(loop.lines)
    assert re.search(r"\b(vrcp|frecpe)", text)


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS.keys())
def test_means_add_to_several_registers(target: str) -> None:
    """A sum over pixels waits for none of its additions."""
    x = relay.var("x", shape=(1, 16, 16, 96))
    mod = tvm.IRModule.from_expr(relay.nn.global_avg_pool2d(x, layout="NHWC"))
    text = assembly(mod, Target(f"{target} -num-cores=1"), "pool")
    added = re.findall(r"\b(?:vaddps\s.*, |fadd\s+)(%[yz]mm\d+|v\d+\.4s)", text)
    assert len(set(added)) >= 4, added


def test_larger_numbers_are_one_instruction() -> None:
    """AArch64's fmax keeps NaN: what follows a sum, and windows, need no comparisons."""
    x = relay.var("x", shape=(1, 16, 28, 28))
    w = relay.const(np.ones((32, 16, 1, 1), "float32"))
    bounded = relay.clip(relay.nn.conv2d(x, w), 0.0, 6.0)
    pooled = relay.nn.max_pool2d(relay.var("x", shape=(1, 16, 28, 28)), (3, 3), (2, 2))
    for made, operator in (bounded, "conv2d"), (relay.nn.relu(pooled), "pool"):
        mod = tvm.IRModule.from_expr(made)
        text = assembly(mod, Target(TARGETS["neon"]), operator)
        assert re.search(r"\bfmax\s+v", text)
        assert not re.search(r"\b(fcmp\w*|fcm(eq|g[te]|l[te])|fcsel)\s", text)


@pytest.mark.parametrize("target", ["avx512", "avx2"])
def test_larger_numbers_are_not_compared(target: str) -> None:
    """x86's vmaxps loses a NaN on one side: that side is looked at alone."""
    largest = relay.max(relay.var("x", shape=(64, 80)), axis=1)
    text = assembly(tvm.IRModule.from_expr(largest), Target(TARGETS[target]), "max")
    assert re.search(r"\bvmaxps\s", text) and re.search(r"\bvcmpunordps\s", text)
    assert not re.search(r"\bvcmp(lt|gt)[ps]s\s", text)


NEON_LAYERS = {
    "64 -> 256 at 56": (64, 256, 56, 1, {}), "256 -> 64 at 56": (256, 64, 56, 1, {}),
    "512 -> 2048 at 7": (512, 2048, 7, 1, {}), "2048 -> 512 at 7": (2048, 512, 7, 1, {}),
    "96 -> 24 at 56": (96, 24, 56, 1, {}), "3x3 by 2": (64, 128, 56, 3, {"strides": 2}),
    "3x3 by 2 at 14": (256, 512, 14, 3, {"strides": 2}), "3x3 at 56": (64, 64, 56, 3, {}),
    "3x3 at 14": (256, 256, 14, 3, {}),
}


@pytest.mark.parametrize("layer", NEON_LAYERS.values(), ids=NEON_LAYERS.keys())
def test_neon_takes_numbers_from_lanes(layer: Any) -> None:
    """A load brings a row's numbers for four steps; nothing is spread over a register first."""
    *sizes, attrs = layer
    loop = busiest_loop(assembly(network(*sizes, **attrs), Target(TARGETS["neon"])))
    check_lanes(loop, 1.55)


def test_neon_dense_takes_numbers_from_lanes() -> None:
    """Of layers whose data fits into the second cache, and of some in blocks."""
    for rows, units, length in (128, 768, 768), (128, 768, 3072):
        text = assembly(dense(rows, units, length), Target(TARGETS["neon"]), "dense")
        check_lanes(busiest_loop(text), 1.55)


def check_lanes(loop: Loop, most: float) -> None:
    """most: instructions for each product. Two products and two loads start in a cycle."""
    products = loop.count(re.compile(r"\bfmla\s.*v\d+\.s\[\d\]"))
    assert products >= 48 and products == loop.count(PRODUCT)
    assert loop.count(STACK) == 0, "\n".join(loop.lines)
    assert loop.count(re.compile(r"\b(dup|ld1r)\b")) == 0, "\n".join(loop.lines)
    assert loop.count(LOAD) <= 0.3 * products and len(loop.lines) <= most * products


@pytest.mark.parametrize("window", [1, 3])
def test_neon_takes_groups_of_bytes_from_lanes(window: int) -> None:
    """A load brings four groups of four bytes of a row."""
    x = relay.var("x", shape=(1, 64, 28, 28), dtype="int8")
    w = relay.const(np.ones((128, 64, window, window), "int8"))
    made = relay.nn.conv2d(x, w, padding=window // 2, out_dtype="int32")
    mod = tvm.IRModule.from_expr(relay.Function((x,), made))
    text = assembly(mod, Target(TARGETS["neon"]))
    lines = [line for line in text.split("\n") if re.search(r"\bsdot\s", line)]
    assert len(lines) >= 64 and all(re.search(r"\.4b\[\d\]$", line) for line in lines)
    assert not re.search(r"\b(dup|ld1r)\s", text)
