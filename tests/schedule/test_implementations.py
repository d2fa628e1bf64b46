"""Every implementation: what it suits, what it costs, how it packs weights, and its numbers.

Implementations are found by listing, so that a new file is tested by itself.
"""

import math
import re
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import sterna as tvm
from sterna import relay
from sterna.ir import load_json, save_json, structural_equal, structural_hash
from sterna.lowering.lower_kernel import lower_kernel
from sterna.relay.arrays import Array
from sterna.relay.expr import Call, RelayExpr
from sterna.relay.interpreter import interpret
from sterna.schedule.cost import KERNEL, regions
from sterna.schedule.implementation import (
    Candidate,
    PackedImplementation,
    Packing,
    implementations,
)
from sterna.schedule.implementations.winograd import PAYS
from sterna.tir import interpreter
from tests.op.harness import type_of
from tests.schedule.implemented import plans_in, run_built
from tests.schedule.layers import PROCESSORS, SAMPLES, Layer, layers

EVERY = list(implementations())
PACKED = [n for n, each in implementations().items() if isinstance(each, Packing)]
# Those that suit some numbers of rows only.
OF_SOME_SIZES = ("blocked_gemm", "split_k")
# Those whose inner loops are texts of C, for one thread; test_halves.py and test_across.py have
# more.
IN_C = ("halves", "planes", "across", "quads")


def candidates(name: str, layer: Layer, processor: str, weight: Array) -> list[Candidate]:
    """Those that pack weights: what is left as it stands has nothing to test."""
    found = implementations()[name].candidates(
        layer.contraction, layer.plain(weight), PROCESSORS[processor]
    )
    return [each for each in found if each.pack is not None]


@cache
def suited(name: str) -> list[tuple[Any, str]]:
    """The kinds of layers, and processors, that an implementation has candidates for."""
    found = [
        (key, processor)
        for key, layer in SAMPLES.items()
        for processor in PROCESSORS
        if candidates(name, layer, processor, layer.numbers(0, 20)[1])
    ]
    assert found, f"no layer of tests/schedule/layers.py suits '{name}': add one that does"
    return found


@st.composite
def cases(draw: st.DrawFn, name: str) -> tuple[Layer, str, Candidate, Array, Array]:
    """A layer that suits, a processor, one of the candidates, data and weights."""
    (family, dtypes), processor = draw(st.sampled_from(suited(name)))
    layer = draw(layers(family, dtypes))
    assume(layer.contraction.macs > 0)
    data, weight = layer.numbers(draw(st.integers(0, 999)), draw(st.sampled_from([20, 60, 127])))
    found = candidates(name, layer, processor, weight)
    assume(found)
    return layer, processor, draw(st.sampled_from(found)), data, weight


def drawn(count: int) -> settings:
    """Few examples of those that are compiled: each takes a second."""
    few = [HealthCheck.filter_too_much, HealthCheck.too_slow, HealthCheck.data_too_large]
    return settings(max_examples=count, suppress_health_check=few)


def packed_alone(func: relay.Function, processor: str, candidate: Candidate) -> Any:
    """The module with a layer's weights packed for a candidate."""
    config = {"schedule.answers": {"implementation": str(candidate)},
              "relay.Winograd.max_growth": 1000}
    order = [relay.transform.InferType(),
             relay.transform.ChooseImplementations(PROCESSORS[processor])]
    with tvm.transform.PassContext(opt_level=3, config=config):
        mod = tvm.transform.Sequential(order)(tvm.IRModule.from_expr(func))
    assert plans_in(mod) == [str(candidate.plan)]
    return mod


def packed_call(mod: Any) -> Call:
    """The call with packed weights."""
    found: list[Call] = []

    def look(expr: RelayExpr) -> None:
        if getattr(getattr(expr, "attrs", None), "implementation", ""):
            assert isinstance(expr, Call)
            found.append(expr)

    relay.analysis.post_order_visit(mod["main"], look)
    (call,) = found
    return call


# ---- what follows a layer ----


def with_bias(made: RelayExpr) -> Any:
    kind: Any = made.checked_type
    bias = np.arange(kind.shape[-1]) - 3
    return relay.add(made, relay.const(bias.astype(_numpy(kind))))


def with_residual(made: RelayExpr) -> Any:
    kind: Any = made.checked_type
    rng = np.random.default_rng(1)
    other = rng.integers(-99, 99, kind.concrete_shape).astype(_numpy(kind))
    return relay.nn.relu(relay.add(with_bias(made), relay.const(other)))


def requantised(made: RelayExpr) -> Any:
    wide = relay.cast(with_bias(made), "float32")
    kind: Any = made.checked_type
    scale = relay.const(np.linspace(0.01, 0.03, kind.shape[-1]).astype("float32"))
    rounded = relay.round(relay.multiply(wide, scale))
    return relay.cast(relay.clip(rounded, 0.0, 255.0), "uint8")


def _numpy(kind: Any) -> str:
    return "float32" if kind.dtype.is_float else str(kind.dtype)


def epilogues_of(layer: Layer) -> list[Any]:
    if layer.dtypes[2] == "bfloat16":
        return [lambda made: made, relay.nn.relu]
    own = [lambda made: made, with_bias, with_residual]
    return own if layer.dtypes[2] == "float32" else [*own, requantised]


def check(layer: Layer, found: Array, want: Array, size: float) -> None:
    """Integers to the last bit; floats within the errors of their sums."""
    assert found.dtype == want.dtype and found.shape == want.shape
    if layer.dtypes[2].startswith("int"):
        np.testing.assert_array_equal(found, want)
        return
    error = np.abs(found.astype("float64") - want.astype("float64")).max()
    assert error <= (1e-2 if layer.dtypes[2] == "bfloat16" else 5e-5) * size


# ---- properties ----


@pytest.mark.parametrize("name", EVERY)
@drawn(25)
@given(data=st.data())
def test_costs_are_cycles_that_grow_with_the_work(name: str, data: Any) -> None:
    """But for what begins once: a kernel of its own for one pixel, and threads."""
    layer, processor, _, _, weight = data.draw(cases(name))
    least = []
    for count in (1, 4, 16):
        found = candidates(name, layer.times(count), processor, weight)
        if not found:
            assert count > 1 and name in OF_SOME_SIZES, "it suits any number of images"
            return
        assert all(math.isfinite(each.cycles) and each.cycles > 0 for each in found)
        labels = [str(each) for each in found]
        assert len(set(labels)) == len(labels), "candidates are told apart by their text"
        least.append(min(each.cycles for each in found))
    begun = KERNEL + regions(3, PROCESSORS[processor]) / PAYS
    assert least[0] - begun <= least[1] <= least[2] + begun
    assert least[2] <= 64 * least[0]


@pytest.mark.parametrize("name", PACKED)
@drawn(25)
@given(data=st.data())
def test_packed_weights_are_accepted_and_unpacked(name: str, data: Any) -> None:
    layer, _, candidate, _, weight = data.draw(cases(name))
    own = implementations()[name]
    assert isinstance(own, Packing) and candidate.pack is not None
    packed = candidate.pack()
    made = layer.contraction if candidate.arranged is None else candidate.arranged.contraction
    own.expect(made, candidate.plan, [type_of(each) for each in packed])  # type: ignore[misc]
    plain = own.unpack(made, candidate.plan, packed)
    assert plain.shape == (made.outputs, *made.window, made.depth)
    if candidate.arranged is None:
        given_weights = layer.plain(weight).astype("float64")
        tolerance = 1e-5 if made.weight == "float32" else 0.0
        np.testing.assert_allclose(plain.astype("float64"), given_weights, atol=tolerance)


@pytest.mark.parametrize("name", PACKED)
@drawn(8)
@given(data=st.data())
def test_the_graph_keeps_its_meaning(name: str, data: Any) -> None:
    """The reference of a layer with packed weights gives what the model's weights give."""
    layer, processor, candidate, numbers, weight = data.draw(cases(name))
    x, made = layer.call(weight)
    func = relay.Function((x,), made)
    mod = packed_alone(func, processor, candidate)
    assert mod["main"].body.checked_type == made.checked_type
    want = interpret(func, numbers)
    size = float(np.abs(want.astype("float64")).max())
    check(layer, interpret(mod["main"], numbers), want, size + 1.0)


@pytest.mark.parametrize("name", PACKED)
@drawn(4)
@given(data=st.data())
def test_compiled_kernels_give_the_same_numbers(name: str, data: Any) -> None:
    """Alone, and with what follows computed where results are stored."""
    layer, processor, candidate, numbers, weight = data.draw(cases(name))
    follows = data.draw(st.sampled_from(epilogues_of(layer)))
    x, made = layer.call(weight)
    size = float(np.abs(interpret(relay.Function((x,), made), numbers).astype("float64")).max())
    func = relay.Function((x,), follows(made))
    mod = packed_alone(func, processor, candidate)
    with tvm.transform.PassContext(opt_level=2):
        found = run_built(relay.build(mod, target="c" if name in IN_C else "llvm"), x=numbers)
    check(layer, found, interpret(func, numbers), size + 1.0)


# ---- one small layer of each ----


def small(name: str) -> tuple[Layer, str, Candidate]:
    """The smallest sample that is taken as it lies."""
    order = sorted(suited(name), key=lambda item: SAMPLES[item[0]].contraction.macs)
    for key, processor in order:
        layer = SAMPLES[key]
        for candidate in candidates(name, layer, processor, layer.numbers(0, 20)[1]):
            if candidate.arranged is None:
                return layer, processor, candidate
    raise AssertionError(f"'{name}' arranges the data of every sample")


# Blocks are never small, and the interpreter runs no C.
@pytest.mark.parametrize("name", [n for n in PACKED if n not in ("blocked_gemm", *IN_C)])
def test_the_interpreter_of_loops_agrees(name: str) -> None:
    layer, processor, candidate = small(name)
    numbers, weight = layer.numbers(3, 20)
    x, made = layer.call(weight)
    func = relay.Function((x,), with_bias(made) if layer.dtypes[2] != "bfloat16" else made)
    fused = relay.transform.FuseOps(2)(packed_alone(func, processor, candidate))["main"].body
    kernel = lower_kernel(fused.op, "kernel", PROCESSORS[processor])
    order = [tvm.tir.transform.InjectPrefetch(), tvm.tir.transform.FlattenBuffer()]
    flat = tvm.transform.Sequential(order)  # vectors run over several rows of weights
    loops = flat(tvm.IRModule({"kernel": kernel.function}))["kernel"]
    want = interpret(func, numbers)
    found = np.zeros(want.shape, want.dtype)
    interpreter.run(loops, *_arguments(fused, numbers), found)
    check(layer, found, want, float(np.abs(want.astype("float64")).max()) + 1.0)


def _arguments(fused: Any, numbers: Array) -> list[Array]:
    return [
        numbers if isinstance(arg, relay.Var) else np.ascontiguousarray(arg.data.numpy())
        for arg in fused.args
    ]


@pytest.mark.parametrize("name", PACKED)
def test_what_follows_adds_no_loop(name: str) -> None:
    """No second pass of threads over what the layer alone gives."""
    layer, processor, candidate = small(name)
    x, made = layer.call(layer.numbers(3, 20)[1])
    loops = []
    for body in (made, relay.nn.relu(made)):
        mod = packed_alone(relay.Function((x,), body), processor, candidate)
        fused = relay.transform.FuseOps(2)(mod)["main"].body.op
        loops.append(str(lower_kernel(fused, "kernel", PROCESSORS[processor]).function))
    counts = [text.count("# parallel") for text in loops]
    assert counts[0] == counts[1]
    # The direct way shares work only where there is enough of it.
    assert counts[0] >= 1 or candidate.plan.name in ("direct", *IN_C)


@pytest.mark.parametrize("name", PACKED)
def test_no_pass_changes_what_is_packed(name: str) -> None:
    """Rules for borders, factors, layouts, precision and parallel layers speak of plain weights."""
    layer, processor, candidate = small(name)
    numbers, weight = layer.numbers(3, 20)
    x, made = layer.call(weight)
    mod = packed_alone(relay.Function((x,), made), processor, candidate)
    call, layered = packed_call(mod), not layer.is_dense and min(layer.data[1:3]) > 2
    width = [(0, 0), (1, 1), (1, 1), (0, 0)] if layered else [(0, 0)] * len(layer.data)
    inner = tuple(slice(first, -first or None) for first, _ in width)
    apart = relay.var("x", shape=numbers[inner].shape, dtype=layer.dtypes[0])
    padded = relay.nn.pad(apart, pad_width=width)
    several = [Call(call.op, (padded, *call.args[1:]), call.attrs) for _ in range(3)]
    out: Any = made.checked_type
    scale = relay.const(np.linspace(1, 2, out.shape[-1]).astype(_numpy(out)))
    if out.dtype == "bfloat16":
        scale = relay.cast(scale, "bfloat16")
    products = [relay.multiply(each, scale) for each in several]
    func = relay.Function((apart,), relay.Tuple(tuple(products)))
    own = numbers[inner]
    want = interpret(func, own)
    with tvm.transform.PassContext(opt_level=4):
        everything = [
            relay.transform.ToMixedPrecision("float16"),
            relay.transform.ConvertLayout({"nn.conv2d": ["NCHW", "default"]}),
        ]
        built = tvm.transform.Sequential(everything)(tvm.IRModule.from_expr(func))
        built = relay.optimize(built, target="llvm")[0]
    assert set(plans_in(built)) == {str(candidate.plan)}
    for found, wanted in zip(interpret(built["main"], own), want, strict=True):
        size = float(np.abs(wanted.astype("float64")).max()) + 1.0
        error = np.abs(found.astype("float64") - wanted.astype("float64")).max()
        assert error <= (0 if layer.dtypes[2] == "int32" else 2e-3 * size)


@pytest.mark.parametrize("name", PACKED)
def test_graphs_are_written_and_read(name: str) -> None:
    layer, processor, candidate = small(name)
    x, made = layer.call(layer.numbers(3, 20)[1])
    mod = packed_alone(relay.Function((x,), made), processor, candidate)
    again = relay.parse(mod.astext())
    assert structural_equal(again, mod) and again.astext() == mod.astext()
    held = load_json(save_json(mod["main"]))
    assert structural_equal(held, mod["main"])
    assert structural_hash(held) == structural_hash(mod["main"])
    plain = relay.Function((x,), made)
    assert not structural_equal(plain, mod["main"])
    with tvm.transform.PassContext(opt_level=3):
        built = relay.optimize(again, target="llvm")[0]
    assert plans_in(built) == [str(candidate.plan)], "what is packed stays as it is"


@pytest.mark.parametrize("name", PACKED)
def test_wrong_packed_weights_are_refused(name: str) -> None:
    layer, processor, candidate = small(name)
    x, made = layer.call(layer.numbers(3, 20)[1])
    call = packed_call(packed_alone(relay.Function((x,), made), processor, candidate))
    operands = [arg.data.numpy() for arg in call.args[1:]]  # type: ignore[attr-defined]
    wrong: list[list[Array]] = [[*operands, operands[0]], operands[:-1]]
    for place, operand in enumerate(operands):
        others = [operand[0], operand[None]]
        if isinstance(implementations()[name], PackedImplementation):  # others take any type
            others.append(operand.astype("float16"))
        wrong += [[*operands[:place], other, *operands[place + 1 :]] for other in others]
    for each in wrong:
        held = [relay.const(array) for array in each]
        pattern = re.escape(f"'{candidate.plan}'") if held else "takes data, weight"
        with pytest.raises(ValueError, match=pattern):
            Call(call.op, (call.args[0], *held), call.attrs)


@pytest.mark.parametrize("name", PACKED)
def test_types_of_packed_weights_are_not_guessed(name: str) -> None:
    """Plain weights without a type get one from channels and kernel_size; packed ones do not."""
    layer, processor, candidate = small(name)
    x, made = layer.call(layer.numbers(3, 20)[1])
    call = packed_call(packed_alone(relay.Function((x,), made), processor, candidate))
    untyped = [relay.var(f"w{place}") for place, _ in enumerate(call.args[1:])]
    with pytest.raises(ValueError, match="w0"):
        again = Call(call.op, (call.args[0], *untyped), call.attrs)
        relay.transform.InferType()(tvm.IRModule.from_expr(again))


@pytest.mark.parametrize("name", PACKED)
def test_extents_must_be_known(name: str) -> None:
    layer, processor, candidate = small(name)
    x, made = layer.call(layer.numbers(3, 20)[1])
    call = packed_call(packed_alone(relay.Function((x,), made), processor, candidate))
    any_count = relay.var("x", shape=(relay.Any(), *layer.data[1:]), dtype=layer.dtypes[0])
    with pytest.raises(ValueError, match=re.escape(f"'{candidate.plan}' needs known extents")):
        Call(call.op, (any_count, *call.args[1:]), call.attrs)
