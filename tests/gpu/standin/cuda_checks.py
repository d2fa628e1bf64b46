"""The CUDA back end over a stand-in for the driver; test_cuda_runtime.py runs this file."""

import ctypes
import threading
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna.codegen.device import DeviceModule, DeviceProgram
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
    # What a launch brings and what the kernel has by itself may be too much together.
    launch(address(a), address(b), 10, 3, 1, 1, 32, 1, 1, 49_152)
    assert driver.calls("cuFuncSet") == ["cuFuncSetAttribute add_one 8 49152"]


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
    there = address(tvm.nd.empty((10,), "float32", tvm.cuda(1)))
    with pytest.raises(RuntimeError, match=r"PTX is for sm_90a alone, and the device is sm_86"):
        kernel()(there, there, 10, 1, 1, 1, 1, 1, 1, 0)
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
