"""Layers of int8 by the instructions of processors, run by QEMU and held against NumPy."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import micro, relay
from sterna.micro.example import run_example
from sterna.relay.interpreter import interpret
from tests.micro.networks import build
from tests.schedule.implemented import run_built
from tests.schedule.test_halves import WINDOWS, layer
from tests.schedule.test_residual_pixels import RESIDUAL
from tests.schedule.test_residual_pixels import layer as residual
from tests.support import require_module, require_program


@pytest.mark.parametrize(("board", "cpu", "toolchain", "named"), [
    ("mps2_an385", "cortex-m3", "gcc", "sterna_dots_across"),
    ("mps2_an386", "cortex-m4", "gcc", "smlad"), ("mps2_an386", "cortex-m4", "zig", "smlad"),
    ("mps3_an547", "cortex-m55", "gcc", "vmladava"),
    ("mps3_an547", "cortex-m55", "zig", "vmladava"),
])
def test_layers_are_exact(
    board: str, cpu: str, toolchain: str, named: str, tmp_path: Path
) -> None:
    require_program("qemu-system-arm")
    if toolchain == "gcc":
        require_program("arm-none-eabi-gcc")
    else:
        require_module("ziglang")
    feeds: dict[str, Any] = {}
    outputs, wanted = [], []
    for number, name in enumerate(WINDOWS):
        made, given, want = layer(name, f"x{number}")
        outputs.append(made)
        wanted.append(want)
        feeds |= given
    np.savez(tmp_path / "inputs.npz", **feeds)
    program = build(tvm.IRModule.from_expr(relay.Tuple(tuple(outputs))), f"c -mcpu={cpu}")
    assert named in program.lib.get_source()
    project = micro.generate_project("baremetal", program, tmp_path / "project", {
        "board": board, "project_type": "example_project", "toolchain": toolchain,
        "sample_inputs": tmp_path / "inputs.npz", "warning_as_error": True,
    })
    project.build()
    found = run_example(project).outputs.values()
    project.close()
    for name, got, want in zip(WINDOWS, found, wanted, strict=True):
        np.testing.assert_array_equal(got, want, err_msg=name)


@pytest.mark.parametrize("toolchain", ["gcc", "zig"])
def test_residual_sums_are_exact(toolchain: str, tmp_path: Path) -> None:
    require_program("qemu-system-arm")
    if toolchain == "gcc":
        require_program("arm-none-eabi-gcc")
    else:
        require_module("ziglang")
    feeds: dict[str, Any] = {}
    outputs, wanted = [], []
    for number, (image, channels, stride, swapped, _) in enumerate(RESIDUAL):
        made, given, want = residual(image, channels, stride, swapped, ends=str(number))
        outputs.append(made)
        wanted.append(want)
        feeds |= given
    np.savez(tmp_path / "inputs.npz", **feeds)
    program = build(tvm.IRModule.from_expr(relay.Tuple(tuple(outputs))), "c -mcpu=cortex-m4")
    assert "smmlar" in program.lib.get_source()
    project = micro.generate_project("baremetal", program, tmp_path / "project", {
        "board": "mps2_an386", "project_type": "example_project", "toolchain": toolchain,
        "sample_inputs": tmp_path / "inputs.npz", "warning_as_error": True,
    })
    project.build()
    found = run_example(project).outputs.values()
    project.close()
    for got, want in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def chained(data: Any, seed: int, outputs: int, window: int, stride: int = 1) -> Any:
    """A layer of int8 on the result of another: pointwise, k x k, or depthwise if it has windows
    and as many channels."""
    rng = np.random.default_rng(seed)
    inputs = data.checked_type.concrete_shape[-1]
    deep = window > 1 and inputs == outputs
    shape = (window, window, outputs, 1) if deep else (window, window, inputs, outputs)
    made = relay.qnn.conv2d(
        data, relay.const(rng.integers(-127, 128, shape).astype("int8")), relay.const(3),
        relay.const(0), relay.const(1.0), relay.const(1.0), kernel_size=(window, window),
        channels=outputs, data_layout="NHWC", kernel_layout="HWOI" if deep else "HWIO",
        strides=(stride, stride), padding=(window // 2,) * 4, groups=outputs if deep else 1,
    )
    multiplier = rng.integers(1 << 30, (1 << 31) - 1, outputs).astype("int32")
    return relay.qnn.rescale(
        made, relay.const(multiplier), relay.const(np.full(outputs, -8, "int32")),
        relay.const(0), relay.const(3), axis=3, rounding="TWICE", is_normal=True,
    )


@pytest.mark.parametrize(("board", "cpu"), [
    ("mps2_an385", "cortex-m3"), ("mps2_an386", "cortex-m4"), ("mps3_an547", "cortex-m55"),
])
def test_results_lie_over_their_data(board: str, cpu: str, tmp_path: Path) -> None:
    require_program("qemu-system-arm")
    require_program("arm-none-eabi-gcc")
    data = relay.var("x", shape=(1, 40, 40, 8), dtype="int8")
    image = chained(data, 1, 8, 3)  # depthwise
    image = chained(image, 2, 16, 1)  # grows
    image = chained(image, 3, 16, 3, 2)  # depthwise, in bands
    image = chained(image, 4, 10, 3)
    image = chained(image, 5, 6, 1)  # shrinks
    mod = tvm.IRModule.from_expr(relay.Function((data,), chained(image, 6, 4, 3, 2)))
    x = np.random.default_rng(0).integers(-128, 128, (1, 40, 40, 8)).astype("int8")
    np.savez(tmp_path / "inputs.npz", x=x)
    program = build(mod, f"c -mcpu={cpu}")
    large, plane = 40 * 40 * 16, 2048
    assert program.memory_report().workspace_bytes < large + plane
    project = micro.generate_project("baremetal", program, tmp_path / "project", {
        "board": board, "project_type": "example_project", "toolchain": "gcc",
        "sample_inputs": tmp_path / "inputs.npz",
    })
    project.build()
    (found,) = run_example(project).outputs.values()
    project.close()
    np.testing.assert_array_equal(found, run_built(relay.build(mod, target="llvm"), x=x))


@pytest.mark.parametrize(("board", "cpu"), [
    ("mps2_an385", "cortex-m3"), ("mps2_an386", "cortex-m4"), ("mps3_an547", "cortex-m55"),
])
def test_layers_of_other_sizes_share_kernels(board: str, cpu: str, tmp_path: Path) -> None:
    require_program("qemu-system-arm")
    require_program("arm-none-eabi-gcc")
    data = relay.var("x", shape=(1, 6, 6, 12), dtype="int8")
    image, channels = data, (12, 20, 28, 36)
    for seed, outputs in enumerate(channels):
        image = chained(image, 2 * seed, outputs, 1)
        image = chained(image, 2 * seed + 1, outputs, 3)
    mod = tvm.IRModule.from_expr(relay.Function((data,), image))
    x = np.random.default_rng(0).integers(-128, 128, (1, 6, 6, 12)).astype("int8")
    np.savez(tmp_path / "inputs.npz", x=x)
    program = build(mod, f"c -mcpu={cpu}")
    kernels = re.findall(r"^static.* tvmgen_default_fused\w+\(.*{$", program.lib.get_source(), re.M)
    assert sum("STERNA_SHARED" in kernel for kernel in kernels) >= 1
    assert len(kernels) <= 2 * len(channels) - 3  # depthwise ones are one
    project = micro.generate_project("baremetal", program, tmp_path / "project", {
        "board": board, "project_type": "example_project", "toolchain": "gcc",
        "sample_inputs": tmp_path / "inputs.npz", "warning_as_error": True,
    })
    project.build()
    (found,) = run_example(project).outputs.values()
    project.close()
    np.testing.assert_array_equal(found, run_built(relay.build(mod, target="llvm"), x=x))


def test_a_layer_is_added_to_what_it_reads(tmp_path: Path) -> None:
    """A kernel is given one tensor twice: compilers must not be told that addresses differ."""
    require_program("qemu-system-arm")
    require_program("arm-none-eabi-gcc")
    made, feeds, _ = residual((13, 26, 8), 8, 1)
    by_name = {var.name_hint: var for var in relay.analysis.free_vars(made)}
    graph = tvm.IRModule.from_expr(relay.bind(made, {by_name["y"]: by_name["x"]}))
    program = build(graph, "c -mcpu=cortex-m4")
    assert "residual" in program.lib.get_source()
    np.savez(tmp_path / "inputs.npz", x=feeds["x"])
    project = micro.generate_project("baremetal", program, tmp_path / "project", {
        "board": "mps2_an386", "project_type": "example_project", "toolchain": "gcc",
        "sample_inputs": tmp_path / "inputs.npz", "warning_as_error": True,
    })
    project.build()
    (found,) = run_example(project).outputs.values()
    project.close()
    np.testing.assert_array_equal(found, interpret(graph["main"], feeds["x"]))


@pytest.mark.parametrize(("board", "cpu"), [
    ("mps2_an386", "cortex-m4"), ("mps3_an547", "cortex-m55"),
])
def test_a_window_is_added_to_what_it_reads(board: str, cpu: str, tmp_path: Path) -> None:
    """Results of narrow images lie some pixels before the data: what is added must be there."""
    require_program("qemu-system-arm")
    require_program("arm-none-eabi-gcc")
    rng = np.random.default_rng(5)
    x = rng.integers(-128, 128, (1, 12, 2, 36)).astype("int8")

    def window(read: Any, taps: int) -> Any:
        weight = rng.integers(-3, 4, (taps, taps, 36, 36)).astype("int8")
        sums = relay.nn.conv2d(
            read, relay.const(weight), kernel_size=(taps, taps), channels=36,
            padding=(taps // 2, taps // 2), data_layout="NHWC", kernel_layout="HWIO",
            out_dtype="int32")
        return relay.cast(relay.clip(relay.right_shift(sums, relay.const(5)), -99, 99), "int8")

    first = window(relay.var("x", shape=x.shape, dtype="int8"), 1)
    both = relay.add(relay.cast(window(first, 3), "int32"), relay.cast(first, "int32"))
    graph = tvm.IRModule.from_expr(window(relay.cast(relay.clip(both, -128, 127), "int8"), 1))
    np.savez(tmp_path / "inputs.npz", x=x)
    project = micro.generate_project(
        "baremetal", build(graph, f"c -mcpu={cpu}"), tmp_path / "project", {
            "board": board, "project_type": "example_project", "toolchain": "gcc",
            "sample_inputs": tmp_path / "inputs.npz", "warning_as_error": True,
        })
    project.build()
    (found,) = run_example(project).outputs.values()
    project.close()
    np.testing.assert_array_equal(found, interpret(graph["main"], x))
