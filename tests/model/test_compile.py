"""sterna.compile and what it gives."""

import json
import threading
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import sterna
from sterna import model as models
from sterna import relay
from sterna.model import InputError, OpenShapeError, compile_closed
from sterna.relay.arrays import numpy_dtype
from sterna.support.progress import Watcher, watching
from tests.model.networks import dense, dense_by_numpy, two_inputs, unsupported
from tests.support import require_module, require_program

IMAGE = np.random.default_rng(0).standard_normal((2, 6), dtype="float32")


@pytest.fixture(scope="module")
def model() -> sterna.CompiledModel:
    """The dense network."""
    return sterna.compile(dense())


@pytest.fixture(scope="module")
def pair() -> sterna.CompiledModel:
    """A network of two inputs and two outputs."""
    return sterna.compile(two_inputs(), target="llvm")


def test_one_output_is_an_array_however_the_input_is_given(model: sterna.CompiledModel) -> None:
    expected = dense_by_numpy(IMAGE)
    for given in (IMAGE, sterna.nd.array(IMAGE), IMAGE.tolist(), np.asfortranarray(IMAGE)):
        np.testing.assert_allclose(model(given), expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(model(image=IMAGE), expected, rtol=1e-5, atol=1e-6)
    (by_name,) = model.run({"image": IMAGE}).items()
    assert by_name[0] == "scores"
    np.testing.assert_array_equal(by_name[1], model(IMAGE))


def test_arrays_of_torch_are_taken(model: sterna.CompiledModel) -> None:
    require_module("torch")
    import torch

    np.testing.assert_array_equal(model(torch.from_numpy(IMAGE)), model(IMAGE))
    with pytest.raises(InputError, match="'image' takes float32"):
        model(torch.from_numpy(IMAGE).double())


def test_several_outputs_are_a_tuple_and_by_name_a_dict(pair: sterna.CompiledModel) -> None:
    left, right = np.ones((2, 3), "float32"), np.full((2, 3), 3, "float32")
    total, difference = pair(left, right=right)
    assert (total == 4).all() and (difference == -2).all()
    assert list(pair.run({"right": right, "left": left})) == ["sum", "difference"]
    assert repr(pair) == (
        "CompiledModel(left: float32[2, 3], right: float32[2, 3]) -> "
        "(sum: float32[2, 3], difference: float32[2, 3])"
    )


def test_results_belong_to_the_caller(model: sterna.CompiledModel) -> None:
    first = model(IMAGE)
    before = np.array(first)
    model(2 * IMAGE)
    np.testing.assert_array_equal(first, before)


def test_threads_call_it_at_once(model: sterna.CompiledModel) -> None:
    results: dict[int, bool] = {}

    def call(number: int) -> None:
        image = IMAGE + number
        results[number] = all(
            np.allclose(model(image), dense_by_numpy(image), atol=1e-5) for _ in range(50)
        )

    threads = [threading.Thread(target=call, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(4), True)


@pytest.mark.parametrize(
    ("args", "named", "message"),
    [
        ((IMAGE, IMAGE), {}, r"takes 1 input \(image: float32\[2, 6\]\), but 2 were given"),
        ((), {}, r"missing: image: float32\[2, 6\]"),
        ((), {"imagee": IMAGE}, "no input 'imagee'; did you mean 'image'"),
        ((IMAGE,), {"image": IMAGE}, "'image' is given by place and by name"),
        ((IMAGE.astype("float64"),), {}, r"takes float32\[2, 6\], but float64\[2, 6\] was given"),
        ((IMAGE[:1],), {}, r"takes float32\[2, 6\], but float32\[1, 6\] was given"),
        (("tern",), {}, "a str was given, which is no array"),
    ],
)
def test_what_does_not_fit_is_refused(
    model: sterna.CompiledModel, args: tuple[object, ...], named: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        model(*args, **named)


def test_a_file_holds_all_of_it(model: sterna.CompiledModel, tmp_path: Path) -> None:
    require_program("cc")
    model.export(tmp_path / "model.so")
    loaded = sterna.load(tmp_path / "model.so")
    assert (loaded.inputs, loaded.outputs) == (model.inputs, model.outputs)
    np.testing.assert_array_equal(loaded(IMAGE), model(IMAGE))
    assert loaded.report().memory.weights == model.report().memory.weights
    assert loaded.report().kernels[0].sources == model.report().kernels[0].sources
    with pytest.raises(ValueError, match=r"loaded from '.*model.so' and cannot be written anew"):
        loaded.export(tmp_path / "again.so")


def test_a_file_without_a_model_is_refused(tmp_path: Path) -> None:
    require_program("cc")
    a = sterna.te.placeholder((4,), name="a")
    b = sterna.te.compute((4,), lambda i: a[i] + 1.0, name="b")
    module = sterna.build(sterna.te.create_schedule(b.op), [a, b], name="f")
    module.export_library(tmp_path / "f.so")
    with pytest.raises(ValueError, match="holds functions, but no model"):
        sterna.load(tmp_path / "f.so")


def test_graphs_of_relay_come_with_their_weights() -> None:
    x, w = relay.var("x", shape=(relay.Any(), 4)), relay.var("w", shape=(3, 4))
    function = relay.Function((x, w), relay.nn.dense(x, w))
    weights = np.arange(12, dtype="float32").reshape(3, 4)
    with pytest.raises(OpenShapeError, match=r'shapes=\{"x": \(1, 4\)\}'):
        compile_closed(function, params={"w": weights})
    model = sterna.compile((function, {"w": weights}), shapes={"x": (2, 4)})
    assert [str(spec) for spec in model.inputs] == ["x: float32[2, 4]"]
    assert [str(spec) for spec in model.outputs] == ["output0: float32[2, 3]"]
    ones = np.ones((2, 4), "float32")
    np.testing.assert_allclose(model(ones), ones @ weights.T)
    with pytest.raises(ValueError, match="'x' the shape"):
        sterna.compile(function, params={"w": weights}, shapes={"x": (2, 5)})


def test_open_dimensions_are_listed_with_the_argument_to_give() -> None:
    with pytest.raises(OpenShapeError) as caught:
        compile_closed(dense("batch"))
    assert str(caught.value).splitlines() == [
        "the model leaves dimensions of its inputs open:",
        "  image: (batch, 6)",
        'say which sizes to compile for, such as shapes={"image": (1, 6)}',
    ]
    model = sterna.compile(dense("batch").SerializeToString(), shapes={"image": (2, 6)})
    np.testing.assert_allclose(model(IMAGE), dense_by_numpy(IMAGE), rtol=1e-5, atol=1e-6)
    by_dimension = sterna.compile(dense("batch"), shapes={"batch": 2})
    np.testing.assert_array_equal(by_dimension(IMAGE), model(IMAGE))
    with pytest.raises(ValueError, match=r"the dimension 'batch' .* takes one number"):
        sterna.compile(dense("batch"), shapes={"batch": (2, 6, 1)})
    with pytest.raises(ValueError, match="shapes names 'img', which is no input"):
        sterna.compile(dense(), shapes={"img": (1, 6)})


def test_what_is_no_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        sterna.compile(tmp_path / "missing.onnx")
    (tmp_path / "m.tern").write_bytes(b"tern")
    with pytest.raises(ValueError, match=r"m\.tern' is no model.* ONNX \(\.onnx\)"):
        sterna.compile(tmp_path / "m.tern")
    with pytest.raises(ValueError, match=r"'m\.so' is compiled already; sterna\.load"):
        sterna.compile("m.so")
    with pytest.raises(TypeError, match="not float"):
        sterna.compile(1.5)
    with pytest.raises(ValueError, match="opt_level is 0 to 4, not 7"):
        sterna.compile(dense(), opt_level=7)
    with pytest.raises(sterna.error.OpNotImplemented, match="Flutter"):
        sterna.compile(unsupported())


def test_the_report_tells_what_was_done(model: sterna.CompiledModel) -> None:
    report = model.report()
    fused = [kernel for kernel in report.kernels if "nn.relu" in kernel.operators]
    assert len(fused) == 1 and fused[0].calls == 1 and fused[0].schedule and fused[0].why
    assert set(fused[0].sources) == {"dense", "activation"}
    assert report.memory.weights >= 4 * (24 + 4)
    assert report.memory.activations >= 4 * 8
    assert set(report.stages) == {
        "import the model", "optimize the graph", "order the steps", "compile kernels",
        "plan memory",
    }
    text = str(report)
    assert "nn.relu" in text and "Memory: " in text and "Compiled in " in text
    assert json.loads(report.to_json())["memory"]["total"] == report.memory.total


def test_the_profile_tells_what_each_operator_takes(
    model: sterna.CompiledModel, tmp_path: Path
) -> None:
    times = model.profile(IMAGE, repeat=2)
    assert [node.name for node in times.nodes] and times.seconds > 0
    times.write_trace(tmp_path / "trace.json")
    assert len(json.loads((tmp_path / "trace.json").read_text())["traceEvents"]) == len(times.nodes)
    assert json.dumps(times.to_dict()) and "dense, activation" in str(times)
    assert times.bounds is not None and times.share_of_bound(times.nodes[0])
    assert model.profile(repeat=1, bounds=False, inputs={"image": IMAGE}).bounds is None


def test_watchers_learn_of_every_kernel() -> None:
    class Bar(Watcher):
        def __init__(self) -> None:
            self.total = 0
            self.done: list[str] = []

        def begin_stage(self, name: str, steps: int | None) -> None:
            self.total += steps or 0

        def end_step(self, what: str) -> None:
            self.done.append(what)

    bar = Bar()
    with watching(bar):
        model = sterna.compile(dense())
    kernels = {kernel.name for kernel in model.report().kernels}
    assert bar.total == len(bar.done) and set(bar.done) == kernels


def test_every_type_of_element_goes_in_and_comes_out() -> None:
    dtypes = ["bool", "int8", "uint8", "int64", "float16", "float64", "bfloat16"]
    inputs = [relay.var(f"x_{dtype}", shape=(3,), dtype=dtype) for dtype in dtypes]
    scalar = relay.var("scalar", shape=(), dtype="float32")
    parts = [relay.reverse(x, axis=0) for x in inputs]
    body = relay.Tuple((*parts, relay.add(scalar, scalar)))
    model = sterna.compile(relay.Function((*inputs, scalar), body), target="llvm")
    arrays = [np.array([0, 1, 2]).astype(numpy_dtype(dtype)) for dtype in dtypes]
    for array in arrays:
        array.flags.writeable = False
    *results, twice = model(*arrays, 1.5)
    assert twice.shape == () and twice == 3
    for array, result in zip(arrays, results, strict=True):
        assert result.dtype == array.dtype
        np.testing.assert_array_equal(result, array[::-1])
    with pytest.raises(InputError, match=r"'x_bfloat16' takes bfloat16\[3\], but float16\[3\]"):
        model(*arrays[:-1], arrays[4], 1.5)


def test_bfloat16_of_torch_is_taken() -> None:
    require_module("torch")
    import torch

    x = relay.var("x", shape=(3,), dtype="bfloat16")
    model = sterna.compile(relay.Function((x,), relay.reverse(x, axis=0)), target="llvm")
    given = torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16)
    assert np.asarray(model(given), "float32").tolist() == [3, 2, 1]
    with pytest.raises(InputError, match=r"'x' takes .* pass a contiguous copy"):
        model(torch.arange(6).to(torch.bfloat16)[::2])


def test_arrays_that_cannot_be_read_are_refused(model: sterna.CompiledModel) -> None:
    class Elsewhere:
        def __dlpack__(self, **options: object) -> None:
            raise BufferError("the data is on the moon")

    with pytest.raises(InputError, match=r"'image' takes .*Elsewhere .*cannot be read: .*moon"):
        model(Elsewhere())


@pytest.mark.parametrize(("precision", "share"), [("float16", 2e-3), ("bfloat16", 2e-2)])
def test_a_narrow_precision_halves_the_weights(
    model: sterna.CompiledModel, precision: str, share: float
) -> None:
    narrow = sterna.compile(dense(), precision=precision)
    assert (narrow.inputs, narrow.outputs) == (model.inputs, model.outputs)
    assert 2 * narrow.report().memory.weights == model.report().memory.weights
    wanted, got = np.asarray(model(IMAGE)), np.asarray(narrow(IMAGE))
    assert got.dtype == wanted.dtype and not np.array_equal(got, wanted)
    np.testing.assert_allclose(got, wanted, atol=share * np.abs(wanted).max())


def test_a_precision_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="float32, float16, bfloat16, not 'float8'"):
        sterna.compile(dense(), precision="float8")


def test_attention_is_found_before_numbers_are_narrowed() -> None:
    parts = [relay.var(name, shape=(1, 8, 2, 16)) for name in "qkv"]
    query, key, value = (
        relay.transpose(part, axes)
        for part, axes in zip(parts, ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]), strict=True)
    )
    scores = relay.nn.batch_matmul(query, key, transpose_b=False) * relay.const(0.25)
    made = relay.nn.batch_matmul(relay.nn.softmax(scores), value, transpose_b=False)
    wide, narrow = (
        sterna.compile(relay.Function(tuple(parts), made), precision=precision)
        for precision in ("float32", "float16")
    )
    assert "nn.attention" in [name for k in narrow.report().kernels for name in k.operators]
    rng = np.random.default_rng(0)
    feeds = [rng.standard_normal((1, 8, 2, 16)).astype("float32") for _ in parts]
    np.testing.assert_allclose(narrow(*feeds), wide(*feeds), atol=2e-3)


def test_no_name_is_a_modules_too() -> None:
    """A module that is imported takes the name of what the package offers under it."""
    assert not [name for name in models.__all__ if find_spec(f"sterna.model.{name}")]
