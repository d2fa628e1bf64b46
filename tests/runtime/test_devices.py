"""Devices and element types by name."""

import copy
import pickle

import numpy as np
import pytest

import sterna
from sterna.runtime import DataType


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("cpu", (1, 0)), ("cpu:0", (1, 0)), ("llvm", (1, 0)), ("c", (1, 0)), ("cuda", (2, 0)),
        ("cuda:3", (2, 3)), ("gpu", (2, 0)), ("nvptx:1", (2, 1)), ("opencl", (4, 0)),
        ("vulkan", (7, 0)), ("metal:2", (8, 2)), ("rocm", (10, 0)), ("ext_dev", (12, 0)),
        ("webgpu", (15, 0)), ("hexagon", (16, 0)), ("llvm -mcpu=skylake", (1, 0)), (2, (2, 0)),
        ("cuda -arch=sm_80", (2, 0)), ("stackvm", (1, 0)), (1, (1, 0)),
    ],
)
def test_devices_by_name(name: str | int, expected: tuple[int, int]) -> None:
    device = sterna.device(name)
    assert (device.device_type, device.device_id) == expected
    assert type(device) is sterna.Device


def test_devices_with_an_index() -> None:
    assert sterna.device("cuda", 2) == sterna.cuda(2) == sterna.device(2, 2)
    assert repr(sterna.cuda(2)) == str(sterna.cuda(2)) == "cuda(2)"
    with pytest.raises(ValueError, match="has a number already"):
        sterna.device("cuda:1", 2)


@pytest.mark.parametrize(
    "name", ["", " ", "cpuu", "cuda:", "cuda:x", "cpu:-1", "cpu:1:2", ":1", "CPU"]
)
def test_unknown_devices_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match="unknown device"):
        sterna.device(name)


def test_device_errors_help() -> None:
    with pytest.raises(ValueError, match=r"did you mean .*cuda"):
        sterna.device("cudaa")
    with pytest.raises(ValueError, match="one of cpu, llvm"):
        sterna.device("zzzz")
    for other in (None, 1.5, b"cpu", sterna.cpu()):
        with pytest.raises(TypeError, match="named by text or by a number"):
            sterna.device(other)  # type: ignore[arg-type]
    with pytest.raises(OverflowError):
        sterna.device(f"cpu:{2**40}")


def test_devices_as_objects() -> None:
    device = sterna.cpu(1)
    assert device == sterna.cpu(1) != sterna.cpu(2) and hash(device) == hash(sterna.cpu(1))
    assert device.__eq__(1) is NotImplemented
    assert len({sterna.cpu(), sterna.cpu(), sterna.cuda()}) == 2
    assert pickle.loads(pickle.dumps(device)) == device == copy.deepcopy(device)
    assert type(pickle.loads(pickle.dumps(device))) is sterna.Device
    assert sterna.cpu().exist and sterna.cpu(3).exist and not sterna.cpu(-1).exist
    assert not sterna.metal().exist and not sterna.Device(77).exist and not sterna.Device(-1).exist
    assert repr(sterna.Device(77, 1)) == "device_type_77(1)"
    sterna.cpu().sync()
    with pytest.raises(RuntimeError, match=r"metal\(0\)"):
        sterna.metal().sync()
    with pytest.raises(ValueError, match="77 is no device type"):
        sterna.Device(77).sync()
    with pytest.raises(AttributeError):
        device.device_id = 5  # type: ignore[misc]


def test_types_as_objects() -> None:
    dtype = DataType("float32x4")
    assert (dtype.type_code, dtype.bits, dtype.lanes) == (2, 32, 4)
    assert dtype == "float32x4" and hash(dtype) == hash("float32x4") and isinstance(dtype, str)
    assert DataType(dtype) is dtype and DataType("int") == "int32"
    assert pickle.loads(pickle.dumps(dtype)) == dtype
    assert type(pickle.loads(pickle.dumps(dtype))) is DataType
    for other in (5, None, np.float32):
        with pytest.raises(TypeError, match="named by text"):
            DataType(other)  # type: ignore[arg-type]
