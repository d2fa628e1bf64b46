"""The CUDA back end over a stand-in for the driver; test_cuda_runtime.py runs this file."""

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import sterna as tvm
from sterna import relay, rpc
from sterna.codegen.device import DeviceModule, DeviceProgram
from sterna.contrib.cuda_graph import cuda_graph_executor
from sterna.runtime.registry import get_global_func
from tests.gpu.standin import driver
from tests.gpu.standin.driver import Arguments

ADD_ONE = """
.version 8.0
.target sm_90a
.visible .entry add_one(.param .u64 .ptr .global .align 16 a, .param .u64 b, .param .u32 n) { ret; }
"""
DEVICE = tvm.cuda(0)


def kernel(
    source: str = ADD_ONE, name: str = "add_one", letters: str = "ppi", more: str = ""
) -> Any:
    """A kernel of a program of one."""
    return DeviceModule.make("cuda", [DeviceProgram(((name, letters, more),), source)])[name]


def address(array: tvm.nd.NDArray) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.data_ptr())


def add_one(arguments: Arguments) -> None:
    shape = (arguments.number(2),)
    arguments.array(1, shape)[:] = arguments.array(0, shape) + 1


@pytest.fixture(autouse=True)
def fresh() -> None:
    driver.define("add_one", add_one)
    driver.calls()
    launched.clear()


# ---- devices and memory ----


def test_devices_tell_what_they_are() -> None:
    assert DEVICE.exist and tvm.cuda(1).exist and not tvm.cuda(2).exist
    assert DEVICE.device_name == "Stand-in 0" and DEVICE.compute_version == "9.0"
    assert DEVICE.max_threads_per_block == 1024 and DEVICE.warp_size == 32
    assert DEVICE.max_thread_dimensions == [1024, 1024, 64] and DEVICE.driver_version == "12.8"
    assert (DEVICE.total_global_memory or 0) >= (DEVICE.available_global_memory or 0) > 0
    with pytest.raises(RuntimeError, match=r"there is no device cuda\(2\)"):
        tvm.nd.empty((1,), "float32", tvm.cuda(2))


def test_arrays_go_there_and_back() -> None:
    values = np.arange(12, dtype="int16").reshape(3, 4)
    there = tvm.nd.array(values, DEVICE)
    again = tvm.nd.empty((3, 4), "int16", DEVICE)
    there.copyto(again)
    np.testing.assert_array_equal(again.numpy(), values)
    assert there.data_ptr() % 256 == 0
    assert tvm.nd.empty((0, 4), "float32", DEVICE).numpy().shape == (0, 4)
    assert driver.calls("cuMemcpyDtoD") == ["cuMemcpyDtoDAsync 24 default"]


def test_devices_exchange_arrays() -> None:
    there = tvm.nd.array(np.arange(5), tvm.cuda(1))
    assert "cuMemAlloc 256 on 1" in driver.calls("cuMemAlloc")
    np.testing.assert_array_equal(there.copyto(DEVICE).numpy(), np.arange(5))
    assert driver.calls("cuMemcpyPeerAsync") == ["cuMemcpyPeerAsync 40 default"]
    other = tvm.nd.empty((5,), "float32", DEVICE)
    with pytest.raises(RuntimeError, match=r"add_one.*different devices; copy them to one"):
        kernel()(address(there), address(other), 5, 1, 1, 1, 32, 1, 1, 0)


def test_memory_is_used_again() -> None:
    tvm.nd.empty((1000,), "float32", DEVICE)
    driver.calls()
    for size in (1000, 1010, 999):
        tvm.nd.empty((size,), "float32", DEVICE)
    assert not driver.calls("cuMemAlloc", "cuMemFree")


def test_another_stream_waits_for_memory() -> None:
    stream = DEVICE.create_raw_stream()
    tvm.nd.empty((3333,), "float32", DEVICE)
    DEVICE.set_raw_stream(stream)
    driver.calls()
    tvm.nd.empty((3333,), "float32", DEVICE)
    assert driver.calls("cuMem", "cuStreamWait") == ["cuStreamWaitEvent stream"]
    DEVICE.set_raw_stream(None)
    DEVICE.free_raw_stream(stream)


def test_memory_that_runs_out() -> None:
    tvm.nd.empty((77777,), "float32", DEVICE)
    driver.fail("cuMemAlloc", 2)
    assert tvm.nd.empty((88888,), "float32", DEVICE).shape == (88888,)
    assert "cuMemFree " in driver.calls()
    with pytest.raises(MemoryError, match=r"cuda\(0\) has no 4294967296 bytes: CUDA_ERROR_OUT_OF"):
        tvm.nd.empty((1 << 32,), "int8", DEVICE)


def test_pinned_memory_is_copied_without_waiting() -> None:
    pinned = tvm.nd.array(np.arange(9, dtype="float32"), tvm.device("cuda_host"))
    assert "cuMemHostAlloc 36 1" in driver.calls()
    there = pinned.copyto(DEVICE)
    assert driver.calls("cuMemcpy", "cuStreamSync") == ["cuMemcpyHtoDAsync 36 default"]
    back = tvm.nd.empty((9,), "float32", tvm.device("cuda_host"))
    there.copyto(back)
    assert driver.calls("cuMemcpy", "cuStreamSync") == ["cuMemcpyDtoHAsync 36 default"]
    np.testing.assert_array_equal(back.numpy(), np.arange(9))
    assert driver.calls("cuMemcpy", "cuStreamSync") == ["cuStreamSynchronize default"]


# ---- kernels ----


def test_launches() -> None:
    a = tvm.nd.array(np.arange(10, dtype="float32"), DEVICE)
    b = tvm.nd.empty((10,), "float32", DEVICE)
    launch = kernel(more="pdl\n")
    launch(address(a), address(b), 10, 3, 2, 1, 32, 4, 1, 100_000)
    np.testing.assert_array_equal(b.numpy(), np.arange(10) + 1)
    told = driver.calls("cuFuncSet", "cuLaunch")
    assert told == [
        "cuFuncSetAttribute add_one 8 100000",
        "cuLaunchKernelEx add_one grid 3 2 1 block 32 4 1 shared 100000 default pdl",
    ]
    launch(address(a), address(b), 10, 0, 1, 1, 32, 1, 1, 0)
    assert not driver.calls("cuLaunch")


def test_values_of_all_types() -> None:
    seen: list[Any] = []
    kinds = [ctypes.c_int8, ctypes.c_uint16, ctypes.c_int32, ctypes.c_int64, ctypes.c_float,
             ctypes.c_double]
    driver.define("all", lambda values: seen.extend(
        values.number(place, kind) for place, kind in enumerate(kinds)
    ))
    source = ".version 7.0\n.entry all(.param .s8 a, .param .u16 b, .param .s32 c, .param .s64 d, "
    source += ".param .f32 e, .param .f64 f) { ret; }"
    values = (-3, 40000, -7, 1 << 40, 0.5, 0.1)
    kernel(source, "all", "bWiIfd")(*values, 1, 1, 1, 1, 1, 1, 0)
    assert tuple(seen) == values


def test_errors_name_kernel_launch_and_the_way_out() -> None:
    a = address(tvm.nd.empty((10,), "float32", DEVICE))
    launch = "add_one, launched with 1 x 1 x 1 blocks of 2048 x 1 x 1 threads: "
    with pytest.raises(RuntimeError, match=launch + r"CUDA_ERROR_INVALID_VALUE.*at most 1024 thr"):
        kernel()(a, a, 10, 1, 1, 1, 2048, 1, 1, 0)
    with pytest.raises(RuntimeError, match=r"(?s)add_one on cuda.*line 7; error : Unknown in"):
        kernel(ADD_ONE + "unknown_instruction")(a, a, 10, 1, 1, 1, 1, 1, 1, 0)
    with pytest.raises(RuntimeError, match=r"the kernel other on.*none of that name"):
        kernel(ADD_ONE, "other")(a, a, 10, 1, 1, 1, 1, 1, 1, 0)
    with pytest.raises(RuntimeError, match=r"PTX has version 9.0.*CUDA 13.0.*is one of CUDA 12.8"):
        kernel(ADD_ONE.replace("8.0", "9.0"))(a, a, 10, 1, 1, 1, 1, 1, 1, 0)
    with pytest.raises(TypeError, match="add_one takes 3 values and seven numbers"):
        kernel()(a)


MAPPED = ".version 8.3\n.entry mapped(.param .align 64 .b8 m[128], .param .u64 b) { ret; }"


def test_tensor_maps_are_made_once() -> None:
    driver.define("mapped", lambda v: v.array(1, (6,)).__setitem__(..., v.array(0, (6,)) * 2))
    launch = kernel(MAPPED, "mapped", "mp", "tiled 7 3 2 64 100 256 32 8\n")
    b = tvm.nd.empty((6,), "float32", DEVICE)
    for values in (np.arange(6), np.ones(6)):
        a = tvm.nd.array(values.astype("float32"), DEVICE)
        for _ in range(3):
            launch(address(a), address(b), 1, 1, 1, 1, 1, 1, 0)
        np.testing.assert_array_equal(b.numpy(), values * 2)
        kept = a  # so that the next one lies elsewhere
    assert kept is a
    told = "cuTensorMapEncodeTiled type 7 rank 2 dim 64 box 32 step 1 swizzle 3 0 3 0"
    assert driver.calls("cuTensorMap") == [told] * 2
    image = kernel(MAPPED, "mapped", "mp", "im2col 9 3 4 64 56 56 1 128 7168 401408 -1 -1 -1 -1 64 "
                   "128 1 2 2 1\npdl\n")
    image(address(a), address(b), 1, 1, 1, 1, 1, 1, 0)
    told = "cuTensorMapEncodeIm2col type 9 rank 4 dim 64 lower -1 upper -1 channels 64 pixels 128 "
    assert driver.calls("cuTensorMap") == [told + "step 2 swizzle 3 0 3 0"]
    with pytest.raises(RuntimeError, match=r"no tiled tensor map of type 7.*dimension 64"):
        kernel(MAPPED, "mapped", "mp", "tiled 7 3 2 64 100 250 32 8")(
            address(a), address(b), 1, 1, 1, 1, 1, 1, 0
        )


@pytest.mark.parametrize("more", [
    "", "tiled", "tiled 7 3 2 64 100 256 32", "tiled 7 3 2 64 100 256 32 8 9", "tiled 7 3 6 1 1 1",
    "tiled 7 3 2 64 100 256 32 999", "tiled 7 3 2 64 -100 256 32 8", "tiled 7 x", "later",
    "tiled 7 3 1 64 64\ntiled 7 3 1 64 64", "im2col 9 3 2 64 56 128 64 128 1 1",
    "tiled 7 3 1 99999999999999999999 64", "pdl 5",
])
def test_strange_maps_are_refused(more: str) -> None:
    with pytest.raises(ValueError, match="no module of kernels"):
        kernel(MAPPED, "mapped", "mp", more)


def test_modules_that_are_let_go_leave_the_driver() -> None:
    a = address(tvm.nd.empty((10,), "float32", DEVICE))
    before = driver.library.standin_left()
    launch = kernel()
    launch(a, a, 10, 1, 1, 1, 1, 1, 1, 0)
    assert driver.library.standin_left() == before + 1
    del launch
    assert driver.library.standin_left() == before


# ---- streams ----


def test_streams_belong_to_threads() -> None:
    stream = DEVICE.create_raw_stream()
    DEVICE.set_raw_stream(stream)
    a = tvm.nd.array(np.arange(4, dtype="float32"), DEVICE)
    assert driver.calls("cuMemcpy", "cuStreamSync")[0] == "cuMemcpyHtoDAsync 16 stream"
    other = threading.Thread(target=lambda: a.copyto(DEVICE))
    other.start()
    other.join()
    assert driver.calls("cuMemcpy") == ["cuMemcpyDtoDAsync 16 default"]
    DEVICE.sync(stream)
    assert driver.calls() == ["cuStreamSynchronize stream"]
    DEVICE.free_raw_stream(stream)  # which was the thread's own
    DEVICE.sync()
    kernel()(address(a), address(a), 4, 1, 1, 1, 1, 1, 1, 0)
    assert driver.calls("cuLaunch")[0].endswith("default")
    assert tvm.cpu(0).create_raw_stream() is None


class Foreign:
    """An array of another library."""

    def __init__(self, array: tvm.nd.NDArray) -> None:
        self.array = array
        self.streams: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, stream: int | None = None, max_version: Any = None) -> Any:
        self.streams.append(stream)
        return self.array.__dlpack__(max_version=max_version)


def test_arrays_are_exchanged_between_streams() -> None:
    a = tvm.nd.array(np.arange(4, dtype="float32"), DEVICE)
    assert a.__dlpack_device__() == (2, 0)
    stream, other = DEVICE.create_raw_stream(), DEVICE.create_raw_stream()
    assert stream is not None and other is not None
    foreign = Foreign(a)
    assert tvm.nd.from_dlpack(foreign).data_ptr() == a.data_ptr()
    DEVICE.set_raw_stream(stream)
    tvm.nd.from_dlpack(foreign)
    assert foreign.streams == [1, stream]
    driver.calls()
    for taker in (stream, -1):
        a.__dlpack__(stream=taker)
    assert not driver.calls("cuStreamWaitEvent")
    a.__dlpack__(stream=other, max_version=(1, 0))
    a.__dlpack__(stream=1)
    waits = driver.calls("cuStreamWaitEvent", "cuEventRecord")
    assert waits == ["cuEventRecord stream 0", "cuStreamWaitEvent stream",
                     "cuEventRecord stream 0", "cuStreamWaitEvent default"]
    DEVICE.set_raw_stream(None)
    DEVICE.free_raw_stream(stream)
    DEVICE.free_raw_stream(other)


# ---- models ----

SHAPE = (4, 8)


def network() -> Any:
    """Two functions of a kernel each: sums of rows, and the largest of them."""
    x = relay.var("x", shape=SHAPE)
    y = relay.max(relay.sum(x, axis=1), axis=0, keepdims=True)
    return tvm.IRModule.from_expr(relay.Function([x], y))


launched: list[tuple[str, set[int]]] = []


def note(name: str) -> Callable[[Arguments], None]:
    """A kernel that only says which addresses it was launched with."""
    return lambda arguments: launched.append(
        (name, {arguments.number(place, ctypes.c_uint64) for place in (0, 1)})
    )


def compiled() -> Any:
    for name in ("sum", "max"):
        driver.define(f"tvmgen_default_fused_{name}_kernel", note(name))
    return tvm.compile(network(), target="cuda -arch=sm_90")


def check_run(source: tvm.nd.NDArray | None, result: tvm.nd.NDArray | None) -> None:
    """One run: both kernels, the first of which read the source and the last wrote the result."""
    (first, read), (last, written) = launched
    assert (first, last) == ("sum", "max") and read & written
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
            assert told == ["cuGraphLaunch 2 nodes default"]


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
    with pytest.raises(TypeError, match=r"input 'x' takes float32\[4, 8\]"):
        model(np.ones(SHAPE, "float64"))
    misplaced = tvm.nd.array(np.ones(64, "float32"), DEVICE)._create_view(SHAPE, "float32", 4)
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
    assert [line.split()[0] for line in told].count("cuLaunchKernelEx") == 6
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
        "tvmgen_default_fused_sum", "tvmgen_default_fused_max"
    ]
    assert all(node.seconds > 0 for node in times.nodes)
    assert "cuGraphLaunch 5 nodes default" in driver.calls("cuGraphLaunch")
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
    product = relay.nn.dense(x, weights)
    module = tvm.IRModule.from_expr(relay.Function([x], product))
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
    values, result = (ctypes.c_float * 32)(), (ctypes.c_float * 1)()
    assert runtime.sterna_model_load(str(tmp_path / "model.so").encode(), ctypes.byref(loaded)) == 0
    assert runtime.sterna_model_set_input(loaded, b"x", values, 128) == 0
    for _ in range(3):
        assert runtime.sterna_model_run(loaded) == 0
        check_run(None, None)
    assert runtime.sterna_model_get_output(loaded, 0, result, 4) == 0
    assert driver.calls("cuGraphLaunch") == ["cuGraphLaunch 2 nodes default"] * 2
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
