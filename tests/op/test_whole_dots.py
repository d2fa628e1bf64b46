"""Bytes whose channels fill no vectors of dot products."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.op.nn._padded_bytes import with_whole_dots
from sterna.op.qnn.repeated_channel import repeated_channel
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.interpreter import interpret
from sterna.schedule.dot4 import bytes_missing
from sterna.target import Target, processor_of
from tests.schedule.implemented import run_built

DOTS = "llvm -mtriple=aarch64-linux-gnu -mcpu=neoverse-n1"


def dense() -> tuple[Any, RelayExpr]:
    weight = np.random.default_rng(2).integers(-128, 128, (83, 64)).astype("int8")
    x = relay.var("x", shape=(9, 64), dtype="int8")
    return x, relay.nn.dense(x, relay.const(weight), out_dtype="int32")


def conv() -> tuple[Any, RelayExpr]:
    weight = np.random.default_rng(2).integers(-128, 128, (58, 12, 3, 3)).astype("int8")
    x = relay.var("x", shape=(1, 12, 9, 7), dtype="int8")
    made = relay.nn.conv2d(x, relay.const(weight), padding=1, border=-3, out_dtype="int32")
    return x, made


@pytest.mark.parametrize("layer", [dense, conv])
def test_further_channels_are_cut_off_again(layer: Any) -> None:
    x, made = layer()
    made.checked_type  # noqa: B018  (arguments get their types)
    assert isinstance(made, Call)
    name = "nn.dense" if layer is dense else "nn.conv2d"
    wider = with_whole_dots(name, made.attrs, made.args, Target(DOTS))
    assert isinstance(wider, Call) and str(wider.op) == "strided_slice"
    assert with_whole_dots(name, made.attrs, made.args, Target("c")) is None
    data = np.random.default_rng(3).integers(-128, 128, x.checked_type.shape).astype("int8")
    want = interpret(relay.Function((x,), made), data)
    np.testing.assert_array_equal(interpret(relay.Function((x,), wider), data), want)
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function((x,), made)), target="native")
    np.testing.assert_array_equal(run_built(lib, x=data), want)


@pytest.mark.parametrize(("depth", "missing"), [(3, 1), (4, 0), (12, 4), (16, 0), (67, 5), (68, 4)])
def test_sums_of_bytes_come_in_pairs_of_groups(depth: int, missing: int) -> None:
    """Where one load brings the groups of several steps; elsewhere single groups are as good."""
    assert bytes_missing(depth, processor_of(Target(DOTS))) == missing
    other = processor_of(Target("llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server"))
    assert bytes_missing(depth, other) == -depth % 4


@pytest.mark.parametrize("depth", [12, 35, 68])
def test_quantised_sums_of_any_depth_are_exact(depth: int) -> None:
    rng = np.random.default_rng(depth)
    weight = rng.integers(-128, 128, (24, depth)).astype("int8")
    x = relay.var("x", shape=(9, depth), dtype="uint8")
    one = relay.const(np.float32(1))
    made = relay.qnn.dense(
        x, relay.const(weight), relay.const(7), relay.const(0), one, one, units=24
    )
    data = rng.integers(0, 256, (9, depth)).astype("uint8")
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function((x,), made)), target="native")
    want = (data.astype("int32") - 7) @ weight.T.astype("int32")
    np.testing.assert_array_equal(run_built(lib, x=data), want)


@pytest.mark.parametrize(("own", "wide"), [(20, 32), (56, 64), (68, 80), (17, 32), (32, 32)])
def test_groups_of_channels_fill_vectors(own: int, wide: int) -> None:
    """A tile lies in one group: four channels of 20 would be a quarter of a vector."""
    rng = np.random.default_rng(2)
    weight = rng.integers(-128, 128, (2 * own, 20, 3, 3)).astype("int8")
    x = relay.var("x", shape=(1, 40, 9, 9), dtype="uint8")
    made = relay.nn.conv2d(x, relay.const(weight), groups=2, out_dtype="int32")
    made.checked_type  # noqa: B018  (arguments get their types)
    assert isinstance(made, Call)
    target = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=icelake-server")
    wider = with_whole_dots("nn.conv2d", made.attrs, made.args, target)
    assert (wider is None) == (own == wide)
    if wider is not None:
        assert f"channels={2 * wide}" in str(wider)
        data = rng.integers(0, 256, (1, 40, 9, 9)).astype("uint8")
        want, got = (interpret(relay.Function((x,), each), data) for each in (made, wider))
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("zero", [0, -77])
def test_a_single_channel_is_repeated(zero: int) -> None:
    """For dot products of the rows of its windows, where there are such instructions."""
    weight = np.random.default_rng(4).integers(-128, 128, (8, 1, 3, 3)).astype("int8")
    x, one = relay.var("x", shape=(1, 1, 12, 11), dtype="int8"), relay.const(1.0)
    made = relay.qnn.conv2d(
        x, relay.const(weight), relay.const(zero), relay.const(0), one, one, kernel_size=(3, 3),
        channels=8, padding=(1, 0, 2, 1), strides=(1, 2),
    )
    made.checked_type  # noqa: B018  (arguments get their types)
    assert isinstance(made, Call)
    found = repeated_channel(made.attrs, x, weight, Target(DOTS))
    assert found is not None and found[1].groups == 8
    plain = "llvm -mtriple=aarch64-linux-gnu -mattr=-dotprod"
    assert repeated_channel(made.attrs, x, weight, Target(plain)) is None
    data = np.random.default_rng(5).integers(-128, 128, (1, 1, 12, 11)).astype("int8")
    wide = np.pad(data.astype("int64") - zero, ((0, 0), (0, 0), (1, 2), (0, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide[0, 0], (3, 3))[:, ::2]
    want = np.einsum("yxij,oij->oyx", windows, weight[:, 0].astype("int64"))[None]
    with tvm.transform.PassContext(opt_level=3):
        lib = relay.build(tvm.IRModule.from_expr(relay.Function((x,), made)), target="native")
    np.testing.assert_array_equal(run_built(lib, x=data), want)
