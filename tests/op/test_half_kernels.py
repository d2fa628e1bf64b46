"""float16 computed as it is: arithmetic, sums in runs, and layers, here and emulated."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from sterna.contrib import graph_executor
from sterna.relay.arrays import Array
from sterna.relay.op import find
from sterna.schedule.chunked_sum import MOST, chunk_of
from sterna.target import Target, machine_of
from tests.op.on_aarch64 import run_on_aarch64

NATIVE = "llvm -mcpu=native"
SAPPHIRE = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"
STEP = 2.0**-11


def test_processors_that_compute_with_half() -> None:
    expected = {
        "x86_64-linux-gnu -mcpu=sapphirerapids": True,
        "x86_64-linux-gnu -mcpu=icelake-server": False,
        "x86_64-linux-gnu -mcpu=znver4": False,
        "aarch64-linux-gnu -mcpu=neoverse-n1": True,
        "aarch64-linux-gnu -mcpu=cortex-a72": False,
        "aarch64-linux-gnu -mcpu=apple-m1": True,
        "riscv64-linux-gnu": False,
    }
    machines = {name: machine_of(Target(f"llvm -mtriple={name}")) for name in expected}
    found = {name: made.provides("fp16_arithmetic") for name, made in machines.items()}
    assert found == expected


# ---- arithmetic ----


@pytest.mark.parametrize("target", [NATIVE, "llvm"])
def test_arithmetic_is_that_of_numpy(target: str) -> None:
    """To the last bit, infinities and the smallest numbers among them."""
    n = 4096
    a, b = (te.placeholder((n,), "float16", name=name) for name in "ab")
    made = [
        te.compute((n,), function, name=name)
        for name, function in {
            "plus": lambda i: a[i] + b[i], "minus": lambda i: a[i] - b[i],
            "times": lambda i: a[i] * b[i], "over": lambda i: a[i] / b[i],
            "root": lambda i: te.sqrt(te.abs(a[i])), "least": lambda i: te.min(a[i], b[i]),
            "below": lambda i: te.if_then_else(a[i] < b[i], a[i], b[i] + b[i]),
        }.items()
    ]
    s = te.create_schedule([tensor.op for tensor in made])
    for tensor in made:
        _, lane = s[tensor].split(tensor.op.axis[0], factor=32)
        s[tensor].vectorize(lane)
    rng = np.random.default_rng(0)
    x, y = (rng.integers(0, 1 << 16, n).astype("uint16").view("float16") for _ in "ab")
    x, y = (np.where(np.isnan(each), np.float16(3), each) for each in (x, y))
    found = [np.empty(n, "float16") for _ in made]
    tvm.build(s, [a, b, *made], target=target)(x, y, *found)
    with np.errstate(all="ignore"):
        want = [x + y, x - y, x * y, x / y, np.sqrt(np.abs(x)), np.minimum(x, y),
                np.where(x < y, x, y + y)]
    for tensor, one, other in zip(made, found, want, strict=True):
        np.testing.assert_array_equal(one, other, err_msg=tensor.op.name)


# ---- chunks ----


@pytest.mark.parametrize(("sizes", "chunk"), [
    ([64], 64), ([768], 64), ([37], 37), ([67], 0), ([160], 40), ([3, 7, 7], 21), ([3, 3, 3], 27),
    ([16, 3, 3], 48), ([64, 3, 3], 64), ([48, 3, 3], 48), ([96, 1, 1], 48), ([3, 3], 9), ([0], 0),
])
def test_how_long_chunks_are(sizes: list[int], chunk: int) -> None:
    assert chunk_of(sizes) == chunk
    assert chunk <= MOST


def bound(magnitudes: Array, chunk: int, steps: int) -> Array:
    """How far a sum may be off, given that of its products' magnitudes: each addition rounds by
    half a step, in the chunk and where it is stored; sums in float32 by much less."""
    return magnitudes * ((chunk + 2) * STEP / 2 + steps * 2.0**-24) + 1e-6


@pytest.mark.parametrize("chunk", [0, 4, 16, 48])
def test_a_product_in_chunks(chunk: int) -> None:
    """On targets that compute with half and on those that do not."""
    rng = np.random.default_rng(chunk)
    x, w = rng.standard_normal((3, 48)).astype("float16"), rng.standard_normal((8, 48))
    w = w.astype("float16")
    data = relay.var("x", shape=x.shape, dtype="float16")
    plan = f"direct(weights=OI, chunk={chunk})"
    made = relay.nn.dense(data, relay.const(w), units=8, implementation=plan)
    wide = [each.astype("float64") for each in (x, w)]
    want = wide[0] @ wide[1].T
    limit = bound(np.abs(wide[0]) @ np.abs(wide[1]).T, chunk, 48)
    for target, level in ((NATIVE, 3 if chunk else 1), ("llvm", 1), ("c", 1)):
        found = ran(made, {"x": x}, target, level)
        assert np.all(np.abs(found - want) <= limit), target


def test_chunks_that_do_not_fit_are_refused() -> None:
    x, w = relay.var("x", shape=(2, 48)), relay.var("w", shape=(5, 48))
    with pytest.raises(ValueError, match=r"chunk is 0, a divisor of 48, which are summed.*not 7"):
        made = relay.nn.dense(x, w, units=5, implementation="direct(weights=OI, chunk=7)")
        made.checked_type  # noqa: B018
    image, kernel = relay.var("x", shape=(1, 8, 5, 5)), relay.var("w", shape=(4, 8, 3, 3))
    with pytest.raises(ValueError, match=r"of a row of the window.*not 9"):
        plan = "direct(weights=OIHW, chunk=9)"
        made = relay.nn.conv2d(image, kernel, channels=4, kernel_size=3, implementation=plan)
        made.checked_type  # noqa: B018


# ---- layers ----

LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "pointwise": ((1, 96, 9, 14), (64, 96, 1, 1), {}),
    "window": ((2, 64, 9, 8), (32, 64, 3, 3), {"strides": (2, 1), "padding": 1}),
    "few": ((1, 16, 12, 11), (48, 16, 3, 3), {"padding": 1}),
    "picture": ((1, 3, 20, 18), (32, 3, 7, 7), {"strides": 2, "padding": 3}),
    "parts": ((1, 320, 7, 7), (352, 320, 3, 3), {"padding": 1}),
    "depthwise": ((1, 40, 7, 6), (40, 1, 3, 3), {"groups": 40, "padding": 1}),
    "groups": ((1, 64, 6, 6), (32, 32, 3, 3), {"groups": 2}),
    "prime": ((1, 67, 5, 5), (40, 67, 1, 1), {}),
    "dense": ((28, 768), (96, 768), {}),
    "row": ((1, 160), (1000, 160), {}),
    "sequence": ((2, 7, 128), (64, 128), {}),
}


def layer(kind: str, seed: int) -> tuple[Any, dict[str, Array], Array, Array]:
    """A layer in float16, its input, what it gives in float64, and the products' magnitudes."""
    rng = np.random.default_rng(seed)
    shape, kernel, attrs = LAYERS[kind]
    x, w = (rng.standard_normal(each).astype("float16") for each in (shape, kernel))
    data = relay.var("x", shape=shape, dtype="float16")
    if len(kernel) == 2:
        made = relay.nn.dense(data, relay.const(w))
    else:
        made = relay.nn.conv2d(data, relay.const(w), **attrs)
    reference = find("nn.dense" if len(kernel) == 2 else "nn.conv2d").reference
    assert reference is not None
    results = [
        reference(made.attrs, *[change(each.astype("float64")) for each in (x, w)])
        for change in (np.copy, np.abs)
    ]
    return relay.nn.relu(made), {"x": x}, np.maximum(results[0], 0), results[1]


def ran(made: Any, feeds: dict[str, Array], target: str, level: int) -> Array:
    """What a graph gives."""
    with tvm.transform.PassContext(opt_level=level):
        lib = relay.build(tvm.IRModule.from_expr(made), target=target)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    module.run(**feeds)
    return np.asarray(module.get_output(0).numpy()).astype("float64")


@pytest.mark.parametrize("kind", LAYERS)
def test_layers(kind: str) -> None:
    made, feeds, want, magnitudes = layer(kind, 1)
    found = ran(made, feeds, NATIVE, 3)
    assert np.all(np.abs(found - want) <= bound(magnitudes, MOST, 4096))
    # and mostly they are much closer: rounding errors of both signs cancel
    assert np.sqrt(np.mean((found - want) ** 2)) <= 2e-3 * np.sqrt(np.mean(want**2))


def assembly(kind: str, target: str) -> str:
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(layer(kind, 0)[0]), target=target)
    return str(lib.get_lib().get_source("asm"))


@pytest.mark.parametrize("kind", ["window", "dense", "depthwise"])
def test_the_machine_code_multiplies_half(kind: str) -> None:
    for name, wanted in {
        SAPPHIRE: "vfmadd231ph",
        "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1": ".8h",
    }.items():
        lines = [line for line in assembly(kind, name).splitlines() if wanted in line]
        assert [line for line in lines if "fmadd" in line or "fmla" in line], name
    assert "vfmadd231ph" not in assembly(kind, SAPPHIRE.replace("sapphirerapids", "icelake-server"))


def test_numbers_are_spread_by_the_products_themselves() -> None:
    """A broadcast of 16 bits would take the place of a product."""
    assert "{1to32}" in assembly("window", SAPPHIRE)


def test_the_report_tells_how_sums_are_made() -> None:
    x = relay.var("x", shape=(8, 128))
    w = relay.const(np.ones((64, 128), "float32"))
    model = tvm.compile(relay.Function((x,), relay.nn.dense(x, w)), SAPPHIRE, precision="float16")
    told = [k.choices.get("sums") for k in model.report().kernels]
    assert "chunks of 64 in float16, added in float32" in told


@pytest.mark.parametrize("features", ["+neon", "+neon,+fullfp16"])
def test_layers_elsewhere(features: str, tmp_path: Path) -> None:
    made, feeds, want, magnitudes = layer("window", 3)
    data = relay.var("data", shape=feeds["x"].shape)
    (own,) = relay.analysis.free_vars(made)
    body = relay.cast(relay.bind(made, {own: relay.cast(data, "float16")}), "float32")
    got = run_on_aarch64(body, f"-mattr={features}", feeds["x"], tmp_path)
    found = got.reshape(want.shape)
    assert np.all(np.abs(found - want) <= bound(magnitudes, MOST, 4096))
