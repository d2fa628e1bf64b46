"""AMX with bfloat16: the numbers of layers, what is chosen, and what the report tells."""

import math
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from sterna.relay.arrays import Array, from_numpy, to_numpy
from sterna.schedule.amx_bands import pack_tiles, parts_of, unpack_tiles
from sterna.schedule.kernel import Processor
from sterna.schedule.rounded_once import rounded_once, short_erf
from sterna.target import Target, processor_of
from sterna.tir import Cast, Var, const
from tests.schedule.implemented import (
    implement,
    implemented_for,
    names_in,
    run_built,
)

NATIVE = "llvm -mcpu=native"
SAPPHIRE = "llvm -mtriple=x86_64-linux-gnu -mcpu=sapphirerapids"
TILES = Processor(512, 32, matrix_tiles=("bfloat16",), threads=2)
HAS_TILES = bool(processor_of(Target(NATIVE)).matrix_tiles)
# Half a step of bfloat16 where a result is stored.
ROUNDED = 2.0**-8

LAYERS: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "sequence": ((2, 37, 48), (70, 48), {}),
    "narrow": ((40, 32), (10, 32), {}),
    "long": ((64, 1024), (1056, 1024), {}),
    "row": ((1, 800), (1000, 800), {}),
    "pointwise": ((1, 48, 9, 14), (40, 48, 1, 1), {"data_layout": "NCHW"}),
    "window": ((2, 32, 9, 8), (33, 32, 3, 3), {"padding": 1}),
    "picture": ((1, 3, 20, 18), (32, 3, 7, 7), {"strides": 2, "padding": 3}),
}


def narrow(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return to_numpy(from_numpy(rng.standard_normal(shape).astype("float32"), "bfloat16"))


def layer(kind: str) -> tuple[Any, dict[str, Array], Array, Array]:
    """A layer with its bias and residual, its inputs, what it gives in float64, and the size of
    what it adds."""
    rng = np.random.default_rng(len(kind))
    shape, kernel, attrs = LAYERS[kind]
    x, w = narrow(rng, shape), narrow(rng, kernel)
    data = relay.var("x", shape=shape, dtype="bfloat16")
    weight = relay.const(from_numpy(w.astype("float32"), "bfloat16"))
    if len(kernel) == 2:
        made = relay.nn.dense(data, weight)
    else:
        made = relay.nn.conv2d(data, weight, **attrs)
    reference = made.op.record.reference
    wide = [each.astype("float64") for each in (x, w)]
    plain = made.attrs.replace(out_dtype="float64")
    want, size = (reference(plain, *map(change, wide)) for change in (np.copy, np.abs))
    bias, other = narrow(rng, (want.shape[1 if attrs else -1],)), narrow(rng, want.shape)
    added = relay.nn.bias_add(made, relay.const(from_numpy(bias.astype("float32"), "bfloat16")),
                              axis=1 if attrs else -1)
    rest = relay.var("rest", shape=other.shape, dtype="bfloat16")
    column = bias.reshape(-1, *[1] * (want.ndim - 2) if attrs else []).astype("float64")
    want = np.maximum(want + column + other.astype("float64"), 0)
    return relay.nn.relu(added + rest), {"x": x, "rest": other}, want, size


def built(made: Any, target: str) -> Any:
    with tvm.transform.PassContext(opt_level=3):
        return relay.build(tvm.IRModule.from_expr(made), target=target)


def built_as_loops(made: Any) -> Any:
    """The same calls of tiles, which are in memory here."""
    mod = implement(made, TILES)
    assert names_in(mod) == ["amx"]
    with tvm.transform.PassContext(opt_level=2):
        return relay.build(mod, target="llvm")


def test_parts_of_floats() -> None:
    found = {run: parts_of(run, 2) for run in (32, 768, 48, 144, 80, 2, 9, 21, 67)}
    assert found == {
        32: (1, 32), 768: (24, 32), 48: (2, 24), 144: (5, 30), 80: (3, 28), 2: (1, 2),
        9: (2, 6), 21: (2, 12), 67: (3, 24),
    }


@pytest.mark.parametrize("run", [48, 21])
def test_packed_weights_are_unpacked(run: int) -> None:
    plain = np.arange(37 * 2 * run).reshape(37, 2, run).astype("int16")
    packed = pack_tiles(plain)
    assert packed.shape[0] == 3 and packed.shape[3:] == (16, 2)
    np.testing.assert_array_equal(packed[1, 0, 3, 4], plain[20, 0, 6:8])
    np.testing.assert_array_equal(unpack_tiles(packed, 37, 2, run), plain)


def test_parts_share_weights_exactly() -> None:
    tiny = 2.0 ** np.arange(-126, -117, dtype="float32")
    plain = to_numpy(from_numpy(np.concatenate([tiny, -tiny]).reshape(2, 1, 9), "bfloat16"))
    packed = pack_tiles(plain)
    np.testing.assert_array_equal(unpack_tiles(packed, 2, 1, 9), plain)
    held = np.abs(packed.astype("float32"))
    assert np.all((held == 0) | (held >= 2.0**-126))
    assert np.count_nonzero(held) == 2 * (9 + 3)


@pytest.mark.parametrize("kind", ["odd", "picture"])
def test_infinite_numbers_stay_infinite(kind: str) -> None:
    """In sums whose parts overlap, and in those alone that see them."""
    rng = np.random.default_rng(3)
    shape, kernel, attrs = {"odd": ((20, 67), (40, 67), {}), **LAYERS}[kind]
    x, w = narrow(rng, shape), narrow(rng, kernel)
    w[w == 0] = 1
    x.reshape(-1)[[100, 201, 302]] = np.inf, -np.inf, np.inf
    data = relay.var("x", shape=shape, dtype="bfloat16")
    weight = relay.const(from_numpy(w.astype("float32"), "bfloat16"))
    made = relay.nn.conv2d(data, weight, **attrs) if attrs else relay.nn.dense(data, weight)
    wide = [each.astype("float64") for each in (x, w)]
    with np.errstate(invalid="ignore"):
        want = made.op.record.reference(made.attrs.replace(out_dtype="float64"), *wide)
    assert np.isinf(want).any() and np.isfinite(want).any()
    for lib in (built_as_loops(made), *([built(made, NATIVE)] if HAS_TILES else [])):
        found = run_built(lib, x=x).astype("float64")
        np.testing.assert_allclose(found, want, rtol=ROUNDED, atol=1e-2)


def chosen(rows: int, units: int, depth: int, target: str, dtype: str = "bfloat16") -> bool:
    """Whether a dense layer is computed in tiles."""
    x = relay.var("x", shape=(rows, depth), dtype=dtype)
    w = relay.const(from_numpy(np.ones((units, depth), "float32"), dtype))
    return implemented_for(relay.nn.dense(x, w), target) == ["amx"]


def test_what_pays() -> None:
    """A processor without tiles never; one with them unless most of a tile would be empty."""
    assert chosen(128, 768, 768, SAPPHIRE)
    assert chosen(16, 1000, 64, SAPPHIRE)
    assert chosen(1, 768, 768, SAPPHIRE)
    assert not chosen(128, 768, 768, SAPPHIRE, "float16")
    assert not chosen(128, 768, 768, SAPPHIRE.replace("sapphirerapids", "icelake-server"))
    assert not chosen(1, 1, 4, SAPPHIRE)


@pytest.mark.parametrize("kind", LAYERS)
def test_layers(kind: str) -> None:
    """By the instructions where this machine has them; by loops in any case."""
    made, feeds, want, size = layer(kind)
    for lib in (built_as_loops(made), *([built(made, NATIVE)] if HAS_TILES else [])):
        found = run_built(lib, **feeds).astype("float64")
        assert np.all(np.abs(found - want) <= ROUNDED * np.abs(want) + 1e-5 * size + 1e-6)


@pytest.mark.parametrize("kind", ["sequence", "picture"])
def test_the_machine_code_multiplies_tiles(kind: str) -> None:
    lib = built(layer(kind)[0], SAPPHIRE)
    text = lib.get_lib().get_source("asm")
    assert text.count("tdpbf16ps") >= 2
    assert "vcvtneps2bf16" in text and "vfmadd" not in text


def test_factors_of_channels_stay_out_of_weights() -> None:
    """Weights with factors that only the run knows could not be packed for tiles."""
    rng = np.random.default_rng(7)
    shape, kernel = (1, 96, 14, 14), (40, 96, 1, 1)
    x, s, w = narrow(rng, shape), narrow(rng, (1, 96, 1, 1)), narrow(rng, kernel)
    data = relay.var("x", shape=shape, dtype="bfloat16")
    factors = relay.var("s", shape=s.shape, dtype="bfloat16")
    weight = relay.const(from_numpy(w.astype("float32"), "bfloat16"))
    made = relay.nn.conv2d(data * factors, weight)
    assert implemented_for(made, SAPPHIRE) == ["amx"]
    if HAS_TILES:
        scaled = to_numpy(from_numpy((x.astype("float32") * s.astype("float32")), "bfloat16"))
        want = np.einsum("oc,bchw->bohw", w[:, :, 0, 0].astype("float64"), scaled.astype("float64"))
        found = run_built(built(made, NATIVE), x=x, s=s).astype("float64")
        np.testing.assert_allclose(found, want, rtol=ROUNDED, atol=1e-3)


def test_weights_from_afar_are_fetched_ahead() -> None:
    x = relay.var("x", shape=(64, 1024), dtype="bfloat16")
    for units, far in ((256, False), (1024, True)):
        w = relay.const(from_numpy(np.ones((units, 1024), "float32"), "bfloat16"))
        text = built(relay.nn.dense(x, w), SAPPHIRE).get_lib().get_source("asm")
        assert ("prefetch" in text) == far


def test_the_report_tells_of_tiles() -> None:
    x = relay.var("x", shape=(128, 768))
    w = relay.const(np.ones((768, 768), "float32"))
    model = tvm.compile(relay.Function((x,), relay.nn.dense(x, w)), SAPPHIRE, precision="bfloat16")
    told = [k.choices.get("schedule", "") for k in model.report().kernels]
    wanted = "tiles, 2 x 2 of 16 pixels x 16 channels, 24 steps of 32 bfloat16"
    assert any(text.startswith(wanted) for text in told)


def test_the_short_error_function() -> None:
    x = te.placeholder((40001,), name="x")
    made = te.compute(x.shape, lambda i: short_erf(x[i]), name="y")
    values = np.linspace(-5, 5, 40001).astype("float32")
    values[:3] = np.nan, np.inf, -np.inf
    found = np.empty_like(values)
    tvm.build(te.create_schedule(made.op), [x, made])(values, found)
    want = np.array([math.erf(value) for value in values.tolist()])
    error = np.abs(found - want)[1:]
    assert np.isnan(found[0])
    assert np.all(error <= np.minimum(1e-6, 3e-6 * np.abs(want[1:]) + 1e-12))


def test_what_follows_is_rounded_once() -> None:
    x, b = Var("x", tvm.DataType("float32")), Var("b", tvm.DataType("bfloat16"))
    sum_ = Cast(b.dtype, x) + b * const(2.0, "bfloat16")
    assert str(rounded_once(sum_)) == "round_bfloat16(x + float32(b)*2.0)"
    assert str(rounded_once(sum_ / const(4.0, "bfloat16"))) == (
        "round_bfloat16((x + float32(b)*2.0)*0.25)"
    )
    wide = Cast(x.dtype, sum_) / const(4.0, "float32")
    assert str(rounded_once(wide)) == "(x + float32(b)*2.0) / 4.0"
