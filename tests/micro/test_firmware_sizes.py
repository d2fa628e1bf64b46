"""Sizes of networks on microcontrollers, from linked programs."""

from typing import Any

import pytest

import sterna as tvm
from sterna import relay
from sterna.micro import sizes
from sterna.relay.backend import Executor, Runtime
from tests.driver.c_network import C_INTERFACE
from tests.driver.test_aot import keywords
from tests.driver.test_memory_pools import constants, workspace
from tests.support import require_module, require_program

TARGET = "c -keys=arm_cpu -mcpu=cortex-m4"
PROMISED = 12 * 1024
"""What the keyword network's code may take, at most."""
EXPECTED = 4 * 1024
"""What it takes with the compilers that we know, and a little more."""


def build(target: str = TARGET, config: Any = None, **more: Any) -> Any:
    mod, params, _ = keywords()
    settings = {"tir.disable_vectorize": True, **(config or {})}
    with tvm.transform.PassContext(opt_level=3, config=settings):
        return relay.build(mod, target=target, params=params, runtime=Runtime("crt"),
                           executor=Executor("aot", C_INTERFACE), **more)


@pytest.fixture(params=["gcc", "zig"])
def toolchain(request: pytest.FixtureRequest) -> str:
    if request.param == "gcc":
        require_program("arm-none-eabi-gcc")
    else:
        require_module("ziglang")
    return str(request.param)


def test_the_keyword_network(toolchain: str) -> None:
    program = build()
    found = sizes(program, "cortex-m4", toolchain)
    assert found.runtime == 0 and found.weights == program.memory_report().constant_bytes == 1344
    assert 500 < found.code <= EXPECTED < PROMISED
    report = program.memory_report()
    least = report.workspace_bytes + report.input_bytes + report.output_bytes
    assert least <= found.ram <= least + 512
    assert not any("exp" in name for name in found.libraries)  # the softmax brings its own
    assert all(name in str(found) for name in found.libraries)
    assert not any("malloc" in name or "printf" in name for name in found.libraries)
    assert sum(found.libraries.values()) < found.code


def test_pools_are_counted_too() -> None:
    require_program("arm-none-eabi-gcc")
    config = {"tir.usmp.use_workspace_io": True}
    program = build(TARGET, config, workspace_memory_pools=workspace(5000, 40000, target=TARGET),
                    constant_memory_pools=constants(2000, target=TARGET))
    found, plain = sizes(program, toolchain="gcc"), sizes(build(), toolchain="gcc")
    assert found.weights == plain.weights and abs(found.code - plain.code) < 200


def test_what_has_no_size() -> None:
    mod, params, _ = keywords()
    lib = relay.build(mod, target="llvm", params=params)
    with pytest.raises(TypeError, match="sizes are of programs in C"):
        sizes(lib)
    with pytest.raises(ValueError, match="unknown processor z80; known are cortex-m0, "):
        sizes(build(), "z80")
