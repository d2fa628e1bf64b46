"""Models on CUDA over a stand-in for the driver; test_cuda_runtime.py runs this file."""

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sterna as tvm
from sterna import relay, rpc
from sterna.contrib.cuda_graph import cuda_graph_executor
from sterna.runtime.registry import get_global_func
from tests.gpu.standin import driver
from tests.gpu.standin.cuda_checks import DEVICE, address, kernel
from tests.gpu.standin.driver import Arguments


@pytest.fixture(autouse=True)
def fresh() -> None:
    driver.calls()
    launched.clear()


SHAPE = (2, 4, 8)
NAMES = ("sum", "max", "min")


def network() -> Any:
    """Three functions of a kernel each: sums of rows, the largest of some, the least of those."""
    x = relay.var("x", shape=SHAPE)
    y = relay.min(relay.max(relay.sum(x, axis=2), axis=1), axis=0, keepdims=True)
    return tvm.IRModule.from_expr(relay.Function((x,), y))


launched: list[tuple[str, set[int]]] = []


def note(name: str) -> Callable[[Arguments], None]:
    """A kernel that only says which addresses it was launched with."""
    return lambda arguments: launched.append(
        (name, {arguments.number(place, ctypes.c_uint64) for place in (0, 1)})
    )


def compiled() -> Any:
    for name in NAMES:
        driver.define(f"tvmgen_default_fused_{name}_kernel", note(name))
    return tvm.compile(network(), target="cuda -arch=sm_90")


def test_gpus_that_cannot_run_special_code_run_plain_code(tmp_path: Path) -> None:
    """The first device is an sm_90, the second one an sm_86."""
    for name in NAMES:
        driver.define(f"tvmgen_default_fused_{name}_kernel", note(name))
        driver.define(f"tvmgen_default_fused_{name}_plain_kernel", note(f"plain {name}"))
    lib = relay.build(network(), target="cuda -arch=sm_90a -plain_arch=sm_80")
    lib.export_library(tmp_path / "both.so")
    loaded = tvm.runtime.load_module(tmp_path / "both.so")
    sources = lib.get_lib().imported_modules[0].get_source()
    assert ".target sm_80" in sources and ".target sm_90a\n" in sources
    for number, before in ((0, ""), (1, "plain ")):
        launched.clear()
        runner = tvm.contrib.graph_executor.GraphModule(loaded["default"](tvm.cuda(number)))
        runner.set_input("x", np.zeros(SHAPE, "float32"))
        runner.run()
        runner.get_output(0).numpy()
        assert [name for name, _ in launched][:3] == [f"{before}{name}" for name in NAMES]


def check_run(source: tvm.nd.NDArray | None, result: tvm.nd.NDArray | None) -> None:
    """One run: all kernels, the first of which read the source and the last wrote the result."""
    (first, read), (second, between), (third, written) = launched
    assert (first, second, third) == NAMES and read & between and between & written
    assert source is None or source.data_ptr() in read
    assert result is None or result.data_ptr() in written
    launched.clear()


@pytest.fixture(scope="module")
def model() -> Any:
    return compiled()


def test_runs_are_captured_once_and_replayed(model: Any) -> None:
    a = tvm.nd.array(np.zeros(SHAPE, "float32"), DEVICE)
    kept = [model(a) for _ in range(2)]  # the memory of two results takes turns from here on
    del kept
    launched.clear()
    for turn in range(8):
        driver.calls()
        result = model(a)
        told = driver.calls("cuLaunch", "cuGraphLaunch", "cuMem", "cuStreamSync", "cuCtx")
        check_run(a, result)
        assert result.device == DEVICE and result.shape == (1,)
        if turn > 3:
            assert told == ["cuGraphLaunch 3 nodes default"]


def test_addresses_that_do_not_come_again_are_not_captured(model: Any) -> None:
    kept = [tvm.nd.array(np.full(SHAPE, i, "float32"), DEVICE) for i in range(12)]
    driver.calls()
    for a in kept:
        check_run(a, model(a))
    assert not driver.calls("cuStreamBeginCapture")


def test_a_caller_on_the_host_gets_arrays_of_the_host(model: Any) -> None:
    result = model(np.ones(SHAPE, "float32"))
    assert isinstance(result, np.ndarray) and result.shape == (1,)
    check_run(None, None)
    with pytest.raises(TypeError, match=r"input 'x' takes float32\[2, 4, 8\]"):
        model(np.ones(SHAPE, "float64"))
    misplaced = tvm.nd.array(np.ones(128, "float32"), DEVICE)._create_view(SHAPE, "float32", 4)
    result = model(misplaced)
    assert misplaced.data_ptr() not in launched[0][1]
    check_run(None, result)


def test_a_run_in_a_stream_that_others_capture_is_launched_there(model: Any) -> None:
    a = tvm.nd.array(np.zeros(SHAPE, "float32"), DEVICE)
    stream = DEVICE.create_raw_stream()
    assert stream is not None
    graph = ctypes.c_void_p()
    for _ in range(3):
        model(a)
    DEVICE.set_raw_stream(stream)
    driver.library.cuStreamBeginCapture_v2(ctypes.c_void_p(stream), 1)
    driver.calls()
    kept = [model(a), model(a), model(a)]
    a.__dlpack__(stream=1)  # which cannot wait for what is captured
    told = driver.calls("cuLaunchKernelEx", "cuStreamWaitEvent", "cuGraphLaunch", "cuMemAlloc")
    driver.library.cuStreamEndCapture(ctypes.c_void_p(stream), ctypes.byref(graph))
    assert [line.split()[0] for line in told].count("cuLaunchKernelEx") == 9
    assert "cuMemAlloc 256 on 0" in told and not any("Wait" in line for line in told)
    kept.clear()
    again = [tvm.nd.empty((1,), "float32", DEVICE).data_ptr() for _ in range(3)]
    assert len(set(again)) == 1  # what the graph writes to is not among them
    driver.library.cuGraphDestroy(graph)
    DEVICE.set_raw_stream(None)
    DEVICE.free_raw_stream(stream)


def test_a_capture_that_fails_is_launched_kernel_by_kernel() -> None:
    model = compiled()
    a = tvm.nd.array(np.zeros(SHAPE, "float32"), DEVICE)
    driver.fail("cuGraphInstantiate", 801)
    for _ in range(6):
        check_run(a, model(a))
    assert len(driver.calls("cuStreamBeginCapture")) == 1


def test_steps_are_timed_in_a_graph(model: Any) -> None:
    a = tvm.nd.array(np.zeros(SHAPE, "float32"), DEVICE)
    times = model.profile(a, bounds=False, repeat=2)
    assert [node.name for node in times.nodes] == [
        f"tvmgen_default_fused_{name}" for name in NAMES
    ]
    assert all(node.seconds > 0 for node in times.nodes)
    assert "cuGraphLaunch 7 nodes default" in driver.calls("cuGraphLaunch")
    bounds = model.profile(a, repeat=1).bounds
    assert bounds is not None and bounds.gflops == pytest.approx(256 * 132 * 1.98)
    assert [size for size, _ in bounds.gbytes] == sorted(size for size, _ in bounds.gbytes)


def test_classic_executors(model: Any, tmp_path: Path) -> None:
    model.export(tmp_path / "model.so")
    library = tvm.runtime.load_module(tmp_path / "model.so")
    x = np.ones(SHAPE, "float32")
    plain = tvm.contrib.graph_executor.GraphModule(library["default"](DEVICE))
    graphed = cuda_graph_executor.GraphModuleCudaGraph(library["cuda_graph_create"](DEVICE))
    made = cuda_graph_executor.create(model.module["get_graph_json"](), library, DEVICE)
    for executor in (plain, graphed, made):
        executor.set_input("x", x)
        for _ in range(3):
            executor.run()
            check_run(executor.get_input("x"), executor.get_output(0))
        assert driver.calls("cuGraphLaunch")
    assert plain.benchmark(DEVICE, repeat=2, number=3, min_repeat_ms=0).mean > 0


def test_parameters_are_copied_once() -> None:
    x = relay.var("x", shape=SHAPE)
    weights = relay.const(np.ones((1000, 8), "float32"))
    product = relay.nn.dense(relay.reshape(x, (8, 8)), weights)
    module = tvm.IRModule.from_expr(relay.Function((x,), product))
    model = tvm.compile(module, target="cuda -arch=sm_90")
    driver.calls()
    executors = [model.module["default"](DEVICE) for _ in range(3)]
    assert len([line for line in driver.calls("cuMemcpyHtoD") if "32000" in line]) == 1
    assert len(executors) == 3


def test_models_come_from_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STERNA_CACHE", str(tmp_path / "cache"))
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Softmax", ["y"], ["z"])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, SHAPE) for name in "xz"]
    graph = helper.make_graph(nodes, "two", ends[:1], ends[1:])
    onnx.save(helper.make_model(graph), tmp_path / "two.onnx")
    a = tvm.nd.array(np.ones(SHAPE, "float32"), DEVICE)
    for _ in range(2):
        model = tvm.compile(str(tmp_path / "two.onnx"), target="cuda -arch=sm_90")
        assert model(a).shape == SHAPE
    assert "is not used" not in capfd.readouterr().err
    assert list((tmp_path / "cache" / "models").rglob("*"))


def test_models_run_from_c(model: Any, tmp_path: Path) -> None:
    model.export(tmp_path / "model.so")
    runtime = ctypes.CDLL(str(Path(tvm.__file__).parent / "native" / "lib" / "libsterna.so"))
    loaded = ctypes.c_void_p()
    values, result = (ctypes.c_float * 64)(), (ctypes.c_float * 1)()
    assert runtime.sterna_model_load(str(tmp_path / "model.so").encode(), ctypes.byref(loaded)) == 0
    assert runtime.sterna_model_set_input(loaded, b"x", values, 256) == 0
    for _ in range(3):
        assert runtime.sterna_model_run(loaded) == 0
        check_run(None, None)
    assert runtime.sterna_model_get_output(loaded, 0, result, 4) == 0
    assert driver.calls("cuGraphLaunch") == ["cuGraphLaunch 3 nodes default"] * 2
    runtime.sterna_model_free(loaded)


def test_a_remote_gpu(model: Any, tmp_path: Path) -> None:
    model.export(tmp_path / "model.so")
    server = rpc.Server(port=0, silent=True)
    try:
        session = rpc.connect("127.0.0.1", server.port)
        device = session.cuda(0)
        assert device.exist
        session.upload(tmp_path / "model.so")
        library = session.load_module("model.so")
        executor = tvm.contrib.graph_executor.GraphModule(library["default"](device))
        x = np.ones(SHAPE, "float32")
        executor.set_input("x", x)
        executor.run()
        np.testing.assert_array_equal(executor.get_input("x").numpy(), x)
        assert executor.get_output(0).shape == (1,)
        assert executor.benchmark(device, repeat=2, number=3, min_repeat_ms=0).mean > 0
    finally:
        server.terminate()


def test_all_that_a_model_took_is_given_back() -> None:
    def use() -> None:
        model = compiled()
        a = tvm.nd.array(np.zeros(SHAPE, "float32"), DEVICE)
        for _ in range(5):
            model(a)

    use()
    before = driver.library.standin_left()
    use()
    assert driver.library.standin_left() == before


# ---- the end of a device's session: nothing can be checked behind this ----


def test_a_sticky_error_ends_the_session() -> None:
    a = tvm.nd.empty((10,), "float32", DEVICE)
    driver.fail("cuCtxSynchronize", 700)
    with pytest.raises(RuntimeError, match="waiting for the device: CUDA_ERROR_ILLEGAL_ADDRESS.*"
                       r"ended the session with cuda\(0\).*start a new"):
        DEVICE.sync()
    for later in (a.numpy, lambda: tvm.nd.empty((3,), "float32", DEVICE),
                  lambda: kernel()(address(a), address(a), 10, 1, 1, 1, 1, 1, 1, 0)):
        with pytest.raises(RuntimeError, match=r"cuda\(0\): an earlier kernel: CUDA_ERROR_ILLEGAL"):
            later()
    assert get_global_func("sterna.why_no.cuda")() is None
    assert DEVICE.exist
