"""Kernels come from the cache, from here or from other processes, and are the same bytes."""

import os
import threading
from pathlib import Path
from typing import Any

import pytest

import sterna as tvm
from sterna import relay
from sterna.driver import compile_kernels as module
from sterna.driver import workers_ahead
from sterna.driver.compile_kernels import compile_kernels
from sterna.driver.kernel import CompiledKernel, compile_kernel
from sterna.driver.kernel_worker import Worker
from sterna.relay.expr import Function
from sterna.support.cache import Cache
from sterna.target import Target


def kernels(count: int, first: int = 1) -> dict[str, Function]:
    """Functions of one operator each, as fusion makes them."""
    made = {}
    for size in range(first, first + count):
        x = relay.var("x", shape=(size,))
        mod = tvm.IRModule.from_expr(relay.Function((x,), relay.exp(x)))
        made[f"exp_{size}"] = relay.transform.FuseOps()(mod)["main"].body.op
    return made


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STERNA_CACHE", "off")


@pytest.fixture
def helped(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two other processes compile, whatever that costs."""
    monkeypatch.setattr(module, "helpers", lambda seconds: 2)


def test_processes_compile_the_same(helped: None, monkeypatch: pytest.MonkeyPatch) -> None:
    functions, target = kernels(4), Target("llvm")
    requests = []
    real = Worker.compile

    def compile_there(worker: Worker, request: dict[str, Any]) -> bytes | None:
        requests.append(request)
        return real(worker, request)

    monkeypatch.setattr(Worker, "compile", compile_there)
    got = compile_kernels(functions, target)
    assert list(got) == list(functions) and requests
    monkeypatch.setattr(module, "helpers", lambda seconds: 0)
    for name, kernel in compile_kernels(functions, target).items():
        assert kernel.content == got[name].content


def test_passes_that_are_left_out_are_left_out_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In other processes, and where a kernel with all passes is in the cache."""
    functions, target = kernels(2, 37), Target("llvm")  # vectors do not fit: tails are peeled

    def guarded(cache: str, helpers: int) -> list[bytes]:
        monkeypatch.setenv("STERNA_CACHE", cache)
        monkeypatch.setattr(module, "helpers", lambda seconds: helpers)
        with tvm.transform.PassContext(opt_level=3, disabled_pass=["tir.LoopPartition"]):
            return [kernel.content for kernel in compile_kernels(functions, target).values()]

    want = guarded("off", 0)
    monkeypatch.setenv("STERNA_CACHE", str(tmp_path))
    with tvm.transform.PassContext(opt_level=3):
        usual = compile_kernels(functions, target)
    assert [kernel.content for kernel in usual.values()] != want
    assert guarded(str(tmp_path), 0) == want
    assert guarded("off", 2) == want


def test_a_process_that_gives_up_leaves_its_kernel_to_us(
    helped: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Worker, "compile", lambda *_: None)
    assert len(compile_kernels(kernels(4), Target("llvm"))) == 4


def test_an_error_here_ends_the_others(helped: None, monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()

    def fail(name: str, *rest: Any) -> CompiledKernel:
        if name == "exp_1":
            return compile_kernel(name, *rest)
        raise RuntimeError(f"{name} is too hard")

    monkeypatch.setattr(module, "compile_kernel", fail)
    with pytest.raises(RuntimeError, match="is too hard"):
        compile_kernels(kernels(6), Target("llvm"))
    assert threading.active_count() == before


def test_processes_that_were_started_ahead_compile(
    alone: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2), raising=False)
    target = Target("llvm")
    with workers_ahead.workers_ahead(target, 100):
        (worker,) = workers_ahead.workers_ready()
    assert worker.process.poll() is None  # whoever takes it ends it
    with workers_ahead.workers_ahead(target, 100), monkeypatch.context() as patch:
        patch.setattr(module, "workers_ready", lambda: [worker])
        patch.setattr(module, "helpers", lambda seconds: 0)
        got = compile_kernels(kernels(24), target)
    assert worker.process.poll() is not None
    assert got["exp_3"].content == compile_kernels(kernels(1, 3), target)["exp_3"].content


def test_processes_that_nobody_needed_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(2), raising=False)
    started: list[Worker] = []
    monkeypatch.setattr(Worker, "prepare", lambda worker, _: started.append(worker))
    with pytest.raises(ZeroDivisionError), workers_ahead.workers_ahead(Target("llvm"), 100):
        raise ZeroDivisionError
    assert [worker.process.poll() is not None for worker in started] == [True]
    for target, count in (("llvm", 9), ("c", 1000)):  # it would not pay, or cannot be
        with workers_ahead.workers_ahead(Target(target), count):
            assert len(started) == 1


@pytest.mark.parametrize("seconds, helpers", [(1.9, 0), (2.0, 1), (3.5, 2), (1e3, 7)])
def test_processes_start_when_they_pay(
    seconds: float, helpers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(8), raising=False)
    assert workers_ahead.helpers(seconds) == helpers


def test_writers_of_one_entry_do_not_disturb_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STERNA_CACHE", str(tmp_path))
    value, seen = bytes(range(256)) * 256, set()

    def use() -> None:
        cache = Cache("kernels")
        for _ in range(50):
            cache.put("key", value)
            seen.add(bytes(cache.get("key") or b""))

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == {value} and len([p for p in tmp_path.rglob("*") if p.is_file()]) == 1
