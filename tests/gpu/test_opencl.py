"""OpenCL: kernels, arrays, programs and errors on the first device that there is."""

from pathlib import Path

import numpy as np
import pytest

import sterna as tvm
from sterna import te
from sterna.codegen.device import DeviceModule, DeviceProgram
from sterna.relay.arrays import from_numpy, numpy_dtype, to_numpy
from sterna.testing import requires_opencl
from tests.gpu.kernels import EXAMPLES, vector_add

pytestmark = requires_opencl.marks()


@pytest.mark.parametrize("name", EXAMPLES)
def test_schedules_run(name: str) -> None:
    EXAMPLES[name]().check_on("opencl")


def test_arrays_go_there_and_back() -> None:
    device = tvm.opencl(0)
    there = tvm.nd.array(np.arange(12, dtype="int16").reshape(3, 4), device)
    assert there.device == device
    again = tvm.nd.empty((3, 4), "int16", device)
    there.copyto(again)
    np.testing.assert_array_equal(again.numpy(), np.arange(12).reshape(3, 4))
    assert tvm.nd.empty((0, 4), "float32", device).numpy().shape == (0, 4)
    device.sync()


def test_devices_tell_what_they_are() -> None:
    device = tvm.opencl(0)
    assert device.device_name and device.driver_version and device.compute_version
    assert (device.max_threads_per_block or 0) >= 1
    assert len(device.max_thread_dimensions or []) == 3
    assert (device.total_global_memory or 0) >= (device.max_shared_memory_per_block or 0) > 0
    assert tvm.opencl(99).device_name is None and not tvm.opencl(99).exist
    assert device.available_global_memory is None
    asked = tvm.target.Target("opencl -from_device=0")
    assert asked.attrs["max_threads_per_block"] == device.max_threads_per_block
    with pytest.raises(ValueError, match="no such OpenCL device"):
        tvm.target.Target("opencl -from_device=99")
    with pytest.raises(RuntimeError, match=r"there is no device opencl\(99\)"):
        tvm.nd.empty((1,), "float32", tvm.opencl(99))


def test_modules_hold_host_code_and_kernels(tmp_path: Path) -> None:
    example = vector_add(100, 16)
    built = tvm.build(example.schedule, example.args, "opencl", name="add")
    (kernels,) = built.imported_modules
    assert kernels.type_key == "opencl" and kernels.is_device_module
    assert "__kernel" in kernels.get_source() and "get_local_id(0)" in kernels.get_source()
    built.export_library(tmp_path / "add.so")
    loaded = tvm.runtime.load_module(tmp_path / "add.so")
    assert [each.type_key for each in loaded.imported_modules] == ["opencl"]
    device = tvm.opencl(0)
    a, b = (tvm.nd.array(array, device) for array in example.inputs())
    for module in (built, loaded):
        result = tvm.nd.empty((100,), "float32", device)
        module["add"](a, b, result)
        np.testing.assert_array_equal(result.numpy(), a.numpy() + b.numpy())
    timed = built.time_evaluator("add", device, number=3)(a, b, result)
    assert timed.mean > 0
    with pytest.raises(ValueError, match=r"add\(.*argument A must be on an OpenCL device"):
        built(*example.inputs(), result)
    with pytest.raises(ValueError, match="argument A must be on the CPU"):
        tvm.build(te.create_schedule(example.args[2].op), example.args)(a, b, result)


@pytest.mark.parametrize(
    ("dtype", "out"),
    [("float16", "float16"), ("float32", "bfloat16"), ("int8", "int32"), ("bool", "bool"),
     ("float64", "float32"), ("int64", "uint8")],
)
def test_types(dtype: str, out: str) -> None:
    """What the interpreter, whose arithmetic is exact, says is what the device does."""
    a = te.placeholder((20,), dtype, name="A")
    b = te.compute((20,), lambda i: tvm.tir.if_then_else(
        a[i] > a[19 - i], a[i].astype(out), (a[i] + a[19 - i]).astype(out) if dtype != "bool"
        else a[19 - i]), name="B")
    schedule = te.create_schedule(b.op)
    schedule[b].bind(b.op.axis[0], te.thread_axis("threadIdx.x"))
    x = (np.random.default_rng(0).standard_normal(20) * 50).astype(numpy_dtype(dtype))
    device = tvm.opencl(0)
    result = from_numpy(np.zeros(20, numpy_dtype(out))).copyto(device)
    tvm.build(schedule, [a, b], "opencl")(from_numpy(x).copyto(device), result)
    on_cpu = from_numpy(np.zeros(20, numpy_dtype(out)))
    tvm.build(te.create_schedule(b.op), [a, b], "llvm")(from_numpy(x), on_cpu)
    np.testing.assert_array_equal(to_numpy(result.copyto(tvm.cpu())), to_numpy(on_cpu))


def test_limits_of_a_target_hold_before_anything_is_made() -> None:
    example = vector_add(4096, 512)
    with pytest.raises(ValueError, match=r"512 threads.*allows 256.*max_threads_per_block=512"):
        tvm.build(example.schedule, example.args, "opencl")
    shared, small = EXAMPLES["product"](), vector_add()
    with pytest.raises(ValueError, match=r"bytes of shared memory.*has 64"):
        tvm.build(shared.schedule, shared.args, "opencl -max_shared_memory_per_block=64")
    with pytest.raises(ValueError, match="takes 3 arguments, and the target opencl allows 2"):
        tvm.build(small.schedule, small.args, "opencl -max_function_args=2")


def test_a_driver_that_refuses_is_quoted() -> None:
    program = DeviceProgram((("broken", "p", ""),), "__kernel void broken(__global float *x {")
    function = DeviceModule.make("opencl", [program])["broken"]
    with pytest.raises(RuntimeError, match=r"(?s)kernel broken: .*does not compile.*driver's log"):
        function(None, 1, 1, 1, 1, 1, 1, 0)
    with pytest.raises(TypeError, match="takes 1 values and seven numbers"):
        function(1)
