"""What GPUs have, asked by the classic names, on a machine without a toolkit."""

import pytest

import sterna as tvm
from sterna.contrib import nvcc


def test_versions() -> None:
    assert nvcc.parse_compute_version("8.6") == (8, 6)
    assert nvcc.parse_compute_version("9.0.a") == (9, 0)
    assert nvcc.get_target_compute_version("cuda -arch=sm_90a") == "9.0.a"
    assert nvcc.get_target_compute_version(tvm.target.Target("nvidia/jetson-nano")) == "5.3"
    with tvm.target.Target("cuda -arch=sm_100"):
        assert nvcc.get_target_compute_version() == "10.0"
    with pytest.raises(ValueError, match="'nine' is no compute version"):
        nvcc.parse_compute_version("nine")


def test_what_gpus_have() -> None:
    assert nvcc.have_fp16("5.3") and not nvcc.have_fp16("5.2") and nvcc.have_fp16("6.0")
    assert nvcc.have_int8("6.1") and not nvcc.have_int8("6.0")
    assert nvcc.have_tensorcore("7.0") and not nvcc.have_tensorcore("6.1")
    assert nvcc.have_tensorcore(target="cuda -arch=sm_90a")
    assert nvcc.have_bf16("8.0") and not nvcc.have_bf16("7.5")
    assert nvcc.have_fp8("8.9") and not nvcc.have_fp8("8.6")
    assert nvcc.have_cudagraph()
