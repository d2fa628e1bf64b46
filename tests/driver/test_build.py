"""From a schedule to a function that runs, shows its sources and refuses wrong arguments."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from tests.support import require_module, require_program

TARGETS = ["llvm", "c"]


@pytest.fixture(autouse=True)
def compiler() -> None:
    require_program("cc")


def vector_add(n: Any = 16) -> tuple[Any, list[Any]]:
    a, b = te.placeholder((n,), name="A"), te.placeholder((n,), name="B")
    c = te.compute((n,), lambda i: a[i] + b[i], name="C")
    return te.create_schedule(c.op), [a, b, c]


def arrays(n: int = 16) -> list[tvm.NDArray]:
    numbers = np.random.default_rng(0)
    made = [tvm.nd.array(numbers.standard_normal(n).astype("float32")) for _ in range(2)]
    return [*made, tvm.nd.array(np.zeros(n, "float32"))]


@pytest.mark.parametrize("target", TARGETS)
def test_runs_by_name_and_as_the_entry(target: str) -> None:
    schedule, args = vector_add()
    module = tvm.build(schedule, args, target=target, name="vecadd")
    a, b, c = arrays()
    for call in (module, module["vecadd"], module.get_function("vecadd"), module["main"]):
        c[:] = 0
        assert call(a, b, c) is None
        np.testing.assert_array_equal(c.numpy(), a.numpy() + b.numpy())
    with pytest.raises(AttributeError, match="Module has no function 'vecsub'"):
        module["vecsub"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        (lambda a, b, c: (a, b), TypeError, ["vecadd(A: float32[16]", "expected 3 arguments"]),
        (lambda a, b, c: (a, b, 1), TypeError, ["argument C must be an array"]),
        (lambda a, b, c: (a, b, "x"), TypeError, ["argument C must be an array"]),
        (lambda a, b, c: (a, b, None), TypeError, ["argument C must be an array"]),
        (lambda a, b, c: (a, np.zeros(7, "float32"), c), ValueError, ["B.shape[0] must be 16"]),
        (lambda a, b, c: (a, np.zeros((4, 4), "float32"), c), ValueError, ["B must have 1 dim"]),
        (lambda a, b, c: (a, np.zeros(16, "int32"), c), TypeError, ["B must be of type float32"]),
        (lambda a, b, c: (a, np.zeros(16, "float64"), c), TypeError, ["B must be of type float32"]),
    ],
)
def test_wrong_arguments_are_named(target: str, change: Any, kind: type, words: list[str]) -> None:
    schedule, args = vector_add()
    module = tvm.build(schedule, args, target=target, name="vecadd")
    with pytest.raises(kind) as caught:
        module(*change(*arrays()))
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("target", TARGETS)
def test_an_argument_among_many_is_named(target: str) -> None:
    inputs = [te.placeholder((4,), name=f"input{i}") for i in range(60)]
    total = te.compute((4,), lambda i: sum((x[i] for x in inputs[1:]), inputs[0][i]), name="total")
    schedule = te.create_schedule(total.op)
    module = tvm.build(schedule, [*inputs, total], target=target, name="add")
    given = [np.ones(4, "float32") for _ in inputs]
    result = np.zeros(4, "float32")
    module(*given, result)
    np.testing.assert_array_equal(result, 60.0)
    given[58] = np.ones(5, "float32")
    with pytest.raises(ValueError) as caught:
        module(*given, result)
    assert str(caught.value).startswith("add(input0: float32[4], input1: float32[4], ")
    end = "...): argument input58 has a wrong shape: input58.shape[0] must be 4"
    assert str(caught.value).endswith(end)


@pytest.mark.parametrize("target", TARGETS)
def test_symbolic_shapes(target: str) -> None:
    n = te.size_var("n")
    schedule, args = vector_add(n)
    stage = schedule[args[-1]]
    outer, inner = stage.split(stage.op.axis[0], factor=8)
    stage.vectorize(inner)
    stage.parallel(outer)
    module = tvm.build(schedule, args, target=target)
    for size in (0, 1, 7, 8, 9, 64, 1001):
        a, b, c = arrays(size)
        module(a, b, c)
        np.testing.assert_array_equal(c.numpy(), a.numpy() + b.numpy())
    a, b, _ = arrays(5)
    with pytest.raises(ValueError, match=r"C\.shape\[0\] must be n"):
        module(a, b, arrays(6)[2])


@pytest.mark.parametrize("target", TARGETS)
def test_scalar_arguments(target: str) -> None:
    x = te.placeholder((4,), name="x")
    scale, offset = te.var("scale", "float32"), te.var("offset", "int32")
    y = te.compute((4,), lambda i: x[i] * scale + offset, name="y")
    args = [x, scale, offset, y]
    module = tvm.build(te.create_schedule(y.op), args, target=target, name="affine")
    out = np.zeros(4, "float32")
    module(np.arange(4, dtype="float32"), 2.5, 7, out)
    np.testing.assert_array_equal(out, np.arange(4) * 2.5 + 7)
    module(np.arange(4, dtype="float32"), 2, True, out)
    np.testing.assert_array_equal(out, np.arange(4) * 2 + 1)
    with pytest.raises(TypeError, match="argument offset must be an integer"):
        module(np.arange(4, dtype="float32"), 2.5, 7.5, out)
    with pytest.raises(TypeError, match="argument scale must be a number"):
        module(np.arange(4, dtype="float32"), "2.5", 7, out)


@pytest.mark.parametrize("target", TARGETS)
def test_several_outputs_and_argmax(target: str) -> None:
    n, m = 5, 9
    x = te.placeholder((n, m), name="x")
    k = te.reduce_axis((0, m), name="k")

    def combine(a: Any, b: Any) -> Any:
        better = a[1] >= b[1]
        return te.select(better, a[0], b[0]), te.select(better, a[1], b[1])

    argmax = te.comm_reducer(
        combine, lambda t0, t1: (te.const(-1, t0), te.min_value(t1)), name="argmax"
    )
    where, top = te.compute((n,), lambda i: argmax((k.var, x[i, k]), axis=k), name="top")
    module = tvm.build(te.create_schedule(where.op), [x, where, top], target=target)
    values = np.random.default_rng(1).standard_normal((n, m)).astype("float32")
    at, best = np.zeros(n, "int32"), np.zeros(n, "float32")
    module(values, at, best)
    np.testing.assert_array_equal(at, values.argmax(1))
    np.testing.assert_array_equal(best, values.max(1))


def test_sources() -> None:
    schedule, args = vector_add()
    module = tvm.build(schedule, args, target="llvm", name="vecadd")
    assert "define" in module.get_source() and "__tvm_ffi_vecadd" in module.get_source("ll")
    assert "__tvm_ffi_vecadd" in module.get_source("asm")
    assert "__tvm_ffi_vecadd" in tvm.build(schedule, args, target="c", name="vecadd").get_source()
    with pytest.raises(ValueError, match="ptx"):
        module.get_source("ptx")


def test_lower_shows_what_will_run() -> None:
    schedule, args = vector_add(1024)
    schedule[args[-1]].vectorize(args[-1].op.axis[0])
    text = str(tvm.lower(schedule, args, simple_mode=True))
    assert "C[" in text and "A[" in text and "def main" in text
    with pytest.raises(ValueError, match="args must be given"):
        tvm.lower(schedule)


def test_arguments_are_checked_when_building() -> None:
    schedule, (a, b, c) = vector_add()
    with pytest.raises(ValueError, match=r"input B .*args"):
        tvm.build(schedule, [a, c])
    with pytest.raises(ValueError, match=r"output C .*args"):
        tvm.build(schedule, [a, b])
    with pytest.raises(ValueError, match="Tensor, Buffer or Var"):
        tvm.build(schedule, [a, b, c, "d"])
    other = te.compute((3,), lambda i: a[i] * 2, name="other")
    with pytest.raises(ValueError, match="other is not part of the schedule"):
        tvm.build(schedule, [a, b, c, other])


def test_an_input_that_nothing_reads_is_an_argument() -> None:
    unread, n = te.placeholder((3, te.var("m")), "int8", name="unread"), te.var("n")
    a = te.placeholder((n,), name="a")
    b = te.compute((n,), lambda i: a[i] + 1.0, name="b")
    for target in ("llvm", "c"):
        built = tvm.build(te.create_schedule(b.op), [unread, a, b], target, name="f")
        x, y = np.ones(4, "float32"), np.zeros(4, "float32")
        built(np.zeros((3, 2), "int8"), x, y)
        np.testing.assert_array_equal(y, 2)
        with pytest.raises(TypeError, match="argument unread must be of type int8"):
            built(np.zeros((3, 2), "float32"), x, y)


def test_targets_without_a_generator_say_so() -> None:
    schedule, args = vector_add()
    with pytest.raises(Exception, match="vulkan"):
        tvm.build(schedule, args, target="vulkan")


def test_the_host_is_kept_and_a_runtime_refused() -> None:
    schedule, args = vector_add()
    module = tvm.build(schedule, args, target="llvm", target_host="llvm")
    assert module.target.host is not None
    with pytest.raises(ValueError, match="runtime="):
        tvm.build(schedule, args, target="llvm", runtime="crt")


def test_the_current_target_is_used() -> None:
    schedule, args = vector_add()
    with tvm.target.Target("c"):
        assert "#include" in tvm.build(schedule, args).get_source()


def test_a_module_for_another_machine_cannot_run_here() -> None:
    schedule, args = vector_add()
    module = tvm.build(schedule, args, target="llvm -mtriple=riscv64-unknown-linux-gnu")
    assert len(module.get_source("asm")) > 0
    with pytest.raises(RuntimeError, match="riscv64"):
        module(*arrays())


def test_time_evaluator() -> None:
    schedule, args = vector_add()
    module = tvm.build(schedule, args, name="vecadd")
    result = module.time_evaluator("vecadd", tvm.cpu(), number=5, repeat=4)(*arrays())
    assert len(result.results) == 4 and 0 < result.min <= result.median <= result.max
    assert "mean (ms)" in str(result)
    longer = module.time_evaluator("vecadd", tvm.cpu(), number=1, min_repeat_ms=5)(*arrays())
    assert len(longer.results) == 1


def test_torch_tensors_are_arguments() -> None:
    require_module("torch")
    import torch

    schedule, args = vector_add()
    module = tvm.build(schedule, args)
    x, y, z = torch.ones(16), torch.arange(16.0), torch.empty(16)
    module(x, y, z)
    assert torch.equal(z, x + y)


@pytest.mark.parametrize("target", TARGETS)
def test_hundreds_of_arguments(target: str) -> None:
    x = te.placeholder((2,), name="x")
    scalars = [te.var(f"n{i}") for i in range(300)]
    y = te.compute((2,), lambda i: x[i] + scalars[0] + scalars[-1], name="y")
    given = [x, *scalars, y]
    module = tvm.build(te.create_schedule(y.op), given, target=target, name="wide")
    result = np.zeros(2, "float32")
    module(np.ones(2, "float32"), *range(300), result)
    np.testing.assert_array_equal(result, 300)


def test_lowering_twice_gives_the_same() -> None:
    schedule, args = vector_add(100)
    stage = schedule[args[-1]]
    stage.split(stage.op.axis[0], factor=7)
    first = tvm.build(schedule, args, name="f").get_source()
    assert tvm.build(schedule, args, name="f").get_source() == first


def test_a_triple_in_short_means_this_machine_too() -> None:
    triple = tvm.target.machine_of(tvm.target.Target("llvm")).triple
    first, _, *rest = triple.split("-")
    schedule, args = vector_add()
    module = tvm.build(schedule, args, target=f"llvm -mtriple={'-'.join([first, *rest])}")
    a, b, c = arrays()
    module(a, b, c)
    np.testing.assert_array_equal(c.numpy(), a.numpy() + b.numpy())


@pytest.mark.parametrize("target", TARGETS)
def test_a_lowered_module_is_called_like_its_schedule(target: str) -> None:
    schedule, args = vector_add(te.size_var("n"))
    module = tvm.build(tvm.lower(schedule, args, name="vecadd"), target=target)
    a, b, c = arrays(7)
    module["vecadd"](a, b, c)
    np.testing.assert_array_equal(c.numpy(), a.numpy() + b.numpy())
    with pytest.raises(TypeError, match="expected 3 arguments"):
        module["vecadd"](a, b)


def scaled(name: str, factor: float) -> tvm.IRModule:
    x = te.placeholder((16,), name="x")
    y = te.compute((16,), lambda i: x[i] * factor, name="y")
    return tvm.lower(te.create_schedule(y.op), [x, y], name=name)


def first_of(function: Any) -> float:
    x, y = np.ones(16, "float32"), np.zeros(16, "float32")
    function(x, y)
    return float(y[0])


def test_lists_are_merged() -> None:
    one, two = scaled("one", 1), scaled("two", 2)
    module = tvm.build([one, two["two"]], target="llvm")
    assert [first_of(module[name]) for name in ("one", "two")] == [1, 2]
    assert not module.implements_function("main")
    assert list(module.ir_module_by_target) == [tvm.target.Target("llvm")]
    with pytest.raises(ValueError, match="two of the inputs have a function 'one'"):
        tvm.build([one, one])
    with pytest.raises(ValueError, match="expected a schedule, a PrimFunc or an IRModule, got str"):
        tvm.build(["one"])  # type: ignore[list-item]


def test_each_target_gets_its_functions(tmp_path: Path) -> None:
    inputs: dict[Any, Any] = {
        "llvm": scaled("one", 1), tvm.target.Target("c"): scaled("two", 2),
        "llvm -mcpu=native": scaled("three", 3),
    }
    module = tvm.build(inputs)
    names = ("one", "two", "three")
    assert [first_of(module[name]) for name in names] == [1, 2, 3]
    assert [t.kind.name for t in module.ir_module_by_target] == ["llvm", "c", "llvm"]
    assert module.target == tvm.target.Target("llvm")
    with pytest.raises(ValueError, match="different targets"):
        module.get_source()
    for suffix in (".so", ".tar", ".o", ".a"):
        module.export_library(tmp_path / f"all{suffix}")
        loaded = tvm.runtime.load_module(tmp_path / f"all{suffix}")
        assert [first_of(loaded[name]) for name in names] == [1, 2, 3]
    with pytest.raises(ValueError, match="two of the inputs have a function 'one'"):
        tvm.build({"llvm": scaled("one", 1), "c": scaled("one", 1)})
    with pytest.raises(ValueError, match="'vulkan' can be described but not built for"):
        tvm.build({"llvm": scaled("one", 1), "vulkan": scaled("two", 1)})


def test_functions_may_name_their_target() -> None:
    function = scaled("two", 2)["two"]
    function.attrs["target"] = tvm.target.Target("c")
    module = tvm.build([scaled("one", 1), function])
    assert {t.kind.name: list(m.functions) for t, m in module.ir_module_by_target.items()} == {
        "llvm": ["one"], "c": ["two"],
    }
    assert tvm.build(function, target="llvm").target.kind.name == "llvm"


def test_what_cannot_be_built_says_what_can() -> None:
    schedule, args = vector_add()
    for kind in ("vulkan", "metal", "rocm"):
        with pytest.raises(ValueError, match=rf"'{kind}' can be .* It builds for: c, .*llvm"):
            tvm.build(schedule, args, target=kind)


def test_llvm_optimises_as_much_as_the_target_says() -> None:
    A = te.placeholder((64,), name="A")
    B = te.compute((64,), lambda i: A[i] * 2.0 + 1.0, name="B")
    sizes, x = {}, np.arange(64, dtype="float32")
    for level in range(4):
        built = tvm.build(te.create_schedule(B.op), [A, B], target=f"llvm -opt-level={level}")
        sizes[level] = len(built.get_source("asm"))
        y = np.empty_like(x)
        built(x, y)
        np.testing.assert_array_equal(y, 2 * x + 1)
    assert sizes[0] != sizes[3]
    with pytest.raises(ValueError, match="is 0, 1, 2 or 3, not 7"):
        tvm.build(te.create_schedule(B.op), [A, B], target="llvm -opt-level=7")
