"""Programs that quantise by relay.quantize."""

from functools import cache
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.arrays import Array

RNG = np.random.default_rng(0)
DATA = [{"x": RNG.normal(0, 1, (1, 3, 8, 8)).astype("float32")} for _ in range(6)]


@cache
def network() -> tuple[tvm.IRModule, dict[str, Array]]:
    """Convolutions with a norm, a residual sum, a pool, a mean over the image, a dense layer."""
    params: dict[str, Array] = {}

    def weight(name: str, *shape: int) -> Any:
        params[name] = RNG.normal(0, 0.3, shape).astype("float32")
        return relay.var(name, shape=shape)

    def conv(data: Any, name: str, inputs: int) -> Any:
        return relay.nn.conv2d(data, weight(name, 8, inputs, 3, 3), padding=(1, 1), channels=8,
                               kernel_size=(3, 3))

    x = relay.var("x", shape=(1, 3, 8, 8))
    norm = [weight(f"n{place}", 8) for place in range(4)]
    params["n3"] = np.abs(params["n3"]) + np.float32(0.5)
    a = relay.nn.relu(relay.nn.batch_norm(conv(x, "w0", 3), *norm)[0])
    b = relay.nn.relu(relay.nn.bias_add(conv(a, "w1", 8), weight("b1", 8)))
    c = relay.nn.max_pool2d(relay.nn.relu(conv(b, "w2", 8) + a), (2, 2), (2, 2))
    d = relay.nn.batch_flatten(relay.nn.global_avg_pool2d(relay.nn.relu(conv(c, "w3", 8))))
    y = relay.nn.dense(d, weight("w4", 5, 8))
    return tvm.IRModule.from_expr(relay.Function(tuple(relay.analysis.free_vars(y)), y)), params


def run(module: tvm.IRModule, params: dict[str, Array] | None = None) -> Array:
    built = relay.build(module, "llvm", params=params)
    executor = tvm.contrib.graph_executor.GraphModule(built["default"](tvm.cpu()))
    found = []
    for sample in DATA:
        executor.set_input("x", sample["x"])
        executor.run()
        found.append(executor.get_output(0).numpy())
    return np.concatenate(found)


@cache
def expected() -> Array:
    return run(*network())


def decibels(found: Array) -> float:
    return float(10 * np.log10((expected() ** 2).sum() / ((found - expected()) ** 2).sum()))


def test_the_usual_settings_leave_the_first_convolution_and_dense_layers() -> None:
    with relay.quantize.qconfig(global_scale=8.0):
        module = relay.quantize.quantize(*network())
    text = str(module)
    assert text.count("qnn.conv2d(") == 3 and text.count("nn.conv2d(") == 4
    assert "qnn.dense(" not in text and "nn.dense(" in text
    assert "qnn.scaled_sum(" in text and "qnn.requantize(" in text
    assert text.count("qnn.quantize(") == 1  # where the first convolution ends
    assert decibels(run(module)) > 20


@pytest.mark.parametrize("mode", ["kl_divergence", "percentile"])
def test_scales_by_a_dataset(mode: str) -> None:
    with relay.quantize.qconfig(
        calibrate_mode=mode, weight_scale="max", skip_conv_layers=[], skip_dense_layer=False,
        calibrate_chunk_by=3,
    ):
        module = relay.quantize.quantize(*network(), dataset=iter(DATA))
    text = str(module)
    assert text.count("qnn.conv2d(") == 4 and "qnn.dense(" in text
    assert decibels(run(module)) > 30


@pytest.mark.parametrize("mode", ["kl_divergence", "percentile"])
def test_a_sample_that_is_far_out_decides_no_scale(mode: str) -> None:
    strange = DATA[1]["x"].copy()
    strange[0, 1, 2, 3] = 1e6
    with relay.quantize.qconfig(calibrate_mode=mode, weight_scale="max"):
        usual = relay.quantize.quantize(*network(), dataset=DATA)
        with pytest.warns(UserWarning, match=r"sample 6 of the dataset reaches 1e\+06"):
            made = relay.quantize.quantize(*network(), dataset=[*DATA, {"x": strange}])
    assert tvm.ir.structural_equal(made, usual)


def test_a_simulation_has_floats_and_the_same_numbers() -> None:
    settings = {"calibrate_mode": "percentile", "weight_scale": "max"}
    with relay.quantize.qconfig(**settings):
        whole = relay.quantize.quantize(*network(), dataset=DATA)
    with relay.quantize.qconfig(**settings, do_simulation=True):
        simulated = relay.quantize.quantize(*network(), dataset=DATA)
    assert "qnn.conv2d" not in str(simulated)
    with tvm.transform.PassContext(opt_level=1):  # as floats, not as integers
        found = run(simulated)
    assert np.allclose(found, run(whole), atol=2e-2 * np.abs(found).max())


def test_fewer_bits_are_worse() -> None:
    found = []
    for bits in (8, 4):
        with relay.quantize.qconfig(calibrate_mode="percentile", weight_scale="max",
                                    nbit_input=bits, nbit_weight=bits):
            found.append(decibels(run(relay.quantize.quantize(*network(), dataset=DATA))))
    assert found[0] > found[1] + 6


def test_only_named_operators_are_quantised() -> None:
    with relay.quantize.qconfig(debug_enabled_ops=["nn.dense"], skip_dense_layer=False):
        text = str(relay.quantize.quantize(*network()))
    assert "qnn.dense(" in text and "qnn.conv2d(" not in text


def test_settings_nest_and_cannot_be_set_afterwards() -> None:
    assert relay.quantize.current_qconfig().nbit_activation == 32
    with relay.quantize.qconfig(global_scale=4.0) as outer:
        with relay.quantize.qconfig(weight_scale="max"):
            assert relay.quantize.current_qconfig().weight_scale == "max"
        assert relay.quantize.current_qconfig() is outer
        with pytest.raises(AttributeError):
            setattr(outer, "global_scale", 2.0)  # noqa: B010
    assert relay.quantize.current_qconfig().global_scale == 8.0


@pytest.mark.parametrize(("settings", "message"), [
    ({"calibrate_mode": "guess"}, "calibrate_mode is global_scale or kl_divergence or percentile"),
    ({"nbit_input": 9}, "nbit_input is from 2 to 8, not 9"),
    ({"dtype_activation": "int16"}, "dtype_activation is int32, not 'int16'"),
    ({"bits": 8}, "qconfig has no 'bits'; it has nbit_input"),
    ({"global_scale": 0.0}, "global_scale is above 0"),
])
def test_wrong_settings_are_named(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        relay.quantize.qconfig(**settings)


def test_a_dataset_that_does_not_fit_is_named() -> None:
    with relay.quantize.qconfig(calibrate_mode="percentile"):
        with pytest.raises(ValueError, match="'percentile' needs a dataset"):
            relay.quantize.quantize(*network())
        with pytest.raises(ValueError, match="the dataset has no samples"):
            relay.quantize.quantize(*network(), dataset=[])
        with pytest.raises(ValueError, match="the dataset gives 'z'; the module's inputs are x"):
            relay.quantize.quantize(*network(), dataset=[{"z": DATA[0]["x"]}])
        bad = {"x": np.full((1, 3, 8, 8), np.nan, "float32")}
        with pytest.raises(ValueError, match="sample 0 of the dataset makes numbers"):
            relay.quantize.quantize(*network(), dataset=[bad])
