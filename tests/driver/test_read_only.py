"""Compiled functions never write to an array that its owner has made read-only."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from tests.support import require_program

MESSAGE = (
    r"f\(a: float32\[64\], b: float32\[64\]\): argument b is written to, but the array is read-only"
)


def read_only(size: int = 64) -> Any:
    """Zeros in a bytes object."""
    return np.frombuffer(bytes(4 * size), "float32")


def plus_one(kind: str) -> tuple[te.Schedule, list[te.Tensor]]:
    """b = a + 1, in loops of a kind."""
    a = te.placeholder((64,), name="a")
    b = te.compute((64,), lambda i: a[i] + 1.0, name="b")
    schedule = te.create_schedule(b.op)
    outer, inner = schedule[b].split(b.op.axis[0], factor=4)
    if kind == "parallel":
        schedule[b].parallel(outer)
        schedule[b].vectorize(inner)
    return schedule, [a, b]


@pytest.mark.parametrize("target", ["llvm", "c"])
@pytest.mark.parametrize("kind", ["serial", "parallel"])
def test_outputs_are_refused_and_inputs_taken(target: str, kind: str) -> None:
    if target == "c":
        require_program("cc")
    schedule, args = plus_one(kind)
    f = tvm.build(schedule, args, target, name="f")
    frozen, result = read_only(), np.zeros(64, "float32")
    with pytest.raises(ValueError, match=MESSAGE):
        f(result, frozen)
    with pytest.raises(ValueError, match=MESSAGE):
        f(result, tvm.nd.from_dlpack(frozen).reshape((64,)))
    assert not frozen.any()
    f(frozen, result)
    assert (result == 1).all()
    f(tvm.nd.from_dlpack(frozen), tvm.nd.from_dlpack(result))


def test_a_read_only_file_in_memory_is_refused(tmp_path: Path) -> None:
    (tmp_path / "numbers").write_bytes(bytes(256))
    mapped = np.memmap(tmp_path / "numbers", "float32", "r")
    f = tvm.build(*plus_one("serial"), "llvm", name="f")
    with pytest.raises(ValueError, match=MESSAGE):
        f(np.zeros(64, "float32"), mapped)
    f(mapped, np.zeros(64, "float32"))


def test_elements_of_less_than_a_byte_are_refused_too() -> None:
    a = te.placeholder((64,), "int4", name="a")
    b = te.compute((64,), lambda i: a[i], name="b")
    schedule = te.create_schedule(b.op)
    schedule[b].parallel(b.op.axis[0])
    f = tvm.build(schedule, [a, b], "llvm", name="f")
    values = tvm.nd.array(np.arange(64) % 7, dtype="int4")
    frozen = np.frombuffer(bytes(32), np.uint8)
    locked = tvm.nd.from_dlpack(frozen)._create_view((64,), "int4")
    with pytest.raises(ValueError, match="argument b is written to, but the array is read-only"):
        f(values, locked)
    assert not frozen.any()
    f(locked, values)
    assert not values.numpy().any()


def test_outputs_of_whole_networks_are_refused_too() -> None:
    x = relay.var("x", shape=(4,))
    module = tvm.IRModule.from_expr(relay.Function((x,), relay.nn.relu(x)))
    lib = relay.build(module, target="llvm", executor=relay.backend.Executor("aot"))
    entry = lib.lib["tvmgen_default___tvm_main__"]
    frozen, result, workspace = read_only(4), np.ones(4, "float32"), np.zeros(1, "uint8")
    with pytest.raises(ValueError, match="argument output is written to, but the array is read"):
        entry(result, frozen, workspace)
    with pytest.raises(ValueError, match="argument workspace is written to, but the array is read"):
        entry(frozen, result, np.frombuffer(b"w", "uint8"))
    entry(frozen, result, workspace)
    assert not result.any()
