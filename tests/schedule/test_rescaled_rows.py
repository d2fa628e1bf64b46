"""Dense layers and single pixels with their rescaling in one kernel: exact on any compiler."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import micro, relay
from sterna.micro.example import run_example
from sterna.relay.arrays import Array
from tests.micro.networks import build
from tests.schedule.byte_layers import extremes
from tests.schedule.implemented import implement, run_built
from tests.schedule.test_halves import M4
from tests.schedule.test_rescaled_pixels import rounded_twice
from tests.support import require_module, require_program

Layer = tuple[Any, Array, Array]


def layer(
    rows: int, depth: int, units: int, has_one_factor: bool = False, is_image: bool = False,
    power: int = -9, has_pairs: bool = False, name: str = "x",
) -> Layer:
    """A layer of bytes, what it reads, and what NumPy says."""
    rng = np.random.default_rng(rows + depth + units)
    x, w = extremes(rng, (rows, depth), "int8"), extremes(rng, (units, depth), "int8")
    if has_pairs:  # which have no room for -128
        w = np.maximum(w, -127)
    start, zero = rng.integers(-9000, 9000, units).astype("int32"), int(rng.integers(-128, 128))
    count = 1 if has_one_factor else units
    multiplier = rng.integers(1 << 30, (1 << 31) - 1, count)
    powers = power - rng.integers(0, 3, count)
    shape = (1, 1, *x.shape) if is_image else x.shape
    data = relay.var(name, shape=shape, dtype="int8")
    if is_image:
        made = relay.nn.conv2d(
            data, relay.const(w.T[None, None]), kernel_size=(1, 1), channels=units,
            data_layout="NHWC", kernel_layout="HWIO", out_dtype="int32")
    else:
        made = relay.nn.dense(data, relay.const(w), out_dtype="int32")
    made = relay.qnn.rescale(
        relay.add(made, relay.const(start)), relay.const(multiplier.astype("int32")),
        relay.const(powers.astype("int32")), relay.const(0), relay.const(zero),
        rounding="TWICE", is_normal=True, axis=len(shape) - 1,
    )
    sums = x.astype(np.int64) @ w.T.astype(np.int64) + start
    each = [rounded_twice(sums[:, n], int(multiplier[n % count]), int(powers[n % count]), zero)
            for n in range(units)]
    return made, x.reshape(shape), np.stack(each, -1).astype("int8").reshape(*shape[:-1], units)


LAYERS: list[dict[str, Any]] = [
    {"rows": 1, "depth": 64, "units": 64},
    {"rows": 1, "depth": 640, "units": 31, "has_one_factor": True},  # whose bytes are read
    {"rows": 1, "depth": 25, "units": 30},
    {"rows": 1, "depth": 12, "units": 43},
    {"rows": 2, "depth": 20, "units": 17, "has_one_factor": True},
    {"rows": 1, "depth": 40, "units": 100, "is_image": True},
    {"rows": 1, "depth": 333, "units": 9, "power": -29},
    {"rows": 1, "depth": 256, "units": 2, "has_pairs": True},  # four groups in a turn
    {"rows": 1, "depth": 332, "units": 11, "has_pairs": True},
    {"rows": 1, "depth": 41, "units": 64, "has_pairs": True},
    {"rows": 1, "depth": 52, "units": 5, "has_one_factor": True, "has_pairs": True},
]


@pytest.mark.parametrize("given", LAYERS)
def test_layers_are_exact(given: dict[str, Any]) -> None:
    made, x, want = layer(**given)
    mod = implement(made, M4, target="c")
    text = mod.astext()
    assert "qnn.rescaled_rows" in text and "qnn.rescale(" not in text
    assert ("has_pairs=True" in text) == given.get("has_pairs", False)
    np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), x=x), want)


@pytest.mark.parametrize("toolchain", ["gcc", "zig"])
def test_instructions_are_exact(toolchain: str, tmp_path: Path) -> None:
    require_program("qemu-system-arm")
    if toolchain == "gcc":
        require_program("arm-none-eabi-gcc")
    else:
        require_module("ziglang")
    made = [layer(**given, name=f"x{place}") for place, given in enumerate(LAYERS)]
    inputs: dict[str, Any] = {f"x{place}": x for place, (_, x, _) in enumerate(made)}
    np.savez(tmp_path / "inputs.npz", **inputs)
    outputs = relay.Tuple(tuple(one for one, _, _ in made))
    program = build(tvm.IRModule.from_expr(outputs), "c -mcpu=cortex-m4")
    assert "sterna_rescaled_rows_3_panel" in program.lib.get_source()
    project = micro.generate_project("baremetal", program, tmp_path / "project", {
        "board": "mps2_an386", "project_type": "example_project", "toolchain": toolchain,
        "sample_inputs": tmp_path / "inputs.npz", "warning_as_error": True,
    })
    project.build()
    found = run_example(project).outputs.values()
    project.close()
    for got, (_, _, want) in zip(found, made, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(("given", "power"), [
    ({"rows": 24, "depth": 64, "units": 64}, -9),  # panels of several pixels
    ({"rows": 1, "depth": 128, "units": 2}, -9),  # whose call costs what it saves
    ({"rows": 1, "depth": 64, "units": 64}, -2),  # whose shift is no factor
])
def test_layers_that_do_without(given: dict[str, Any], power: int) -> None:
    made, x, want = layer(**given, power=power)
    mod = implement(made, M4, target="c")
    assert "qnn.rescaled_rows" not in mod.astext()
    np.testing.assert_array_equal(run_built(relay.build(mod, target="c"), x=x), want)


@pytest.mark.parametrize(("records", "units", "message"), [
    (20, 8, "records of 8 units have 25 words, and two of all channels or of each"),
    (27, 0, "there are units"),
])
def test_records_that_do_not_fit(records: int, units: int, message: str) -> None:
    data = relay.var("x", shape=(1, 8), dtype="int8")
    with pytest.raises(Exception, match=message):
        made = relay.qnn.rescaled_rows(
            data, relay.const(np.zeros(records, "int32")), units=units)
        tvm.relay.transform.InferType()(tvm.IRModule.from_expr(made))
