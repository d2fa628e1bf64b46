"""Threads: the GIL, callbacks from C's threads, the pool, forks."""

import gc
import multiprocessing
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna
from sterna.runtime import PackedFunc, num_threads, set_num_threads
from tests.support import clean_environment


def run_python(program: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A program in a Python of its own."""
    return subprocess.run(
        [sys.executable, "-c", program], env=clean_environment(**environment),
        capture_output=True, text=True, check=False, timeout=120,
    )


# ---- the GIL ----


def test_other_threads_run_while_c_runs(library: sterna.Module) -> None:
    sleep, ended = library["sleep"], threading.Event()

    def wait_in_c() -> None:
        sleep(400)
        ended.set()

    worker = threading.Thread(target=wait_in_c)
    started = time.monotonic()
    worker.start()
    steps = 0
    while not ended.is_set():
        steps += 1
    worker.join()
    assert steps > 1000 and time.monotonic() - started < 30


def test_two_c_functions_run_at_once(library: sterna.Module) -> None:
    started = time.monotonic()
    workers = [threading.Thread(target=library["sleep"], args=(300,)) for _ in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert time.monotonic() - started < 8 * 0.3


def test_threads_that_call_back_and_forth(library: sterna.Module) -> None:
    call, wrong = library["call"], []

    def work(number: int) -> None:
        array = np.full(10, number)
        for i in range(1000):
            if call(lambda i=i: (i, number)) != [i, number]:
                wrong.append(i)
            if call(lambda x: x, array).data_ptr() != array.ctypes.data:
                wrong.append(-i)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_the_registry_from_many_threads(registry: None) -> None:
    wrong: list[BaseException] = []

    def work(number: int) -> None:
        try:
            for i in range(300):
                name = f"test.thread.{number}.{i % 7}"
                sterna.register_func(name, lambda i=i: i)
                sterna.list_global_func_names()
                assert sterna.get_global_func(name)() == i
                sterna.remove_global_func(name)
        except BaseException as error:
            wrong.append(error)

    workers = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


# ---- C's own threads ----


def test_callbacks_from_threads_of_c(library: sterna.Module) -> None:
    seen: set[int] = set()

    def note(value: str) -> str:
        seen.add(threading.get_ident())
        return value * 2

    assert library["in_threads"](1, 1, note, "ab") == "abab"
    assert threading.get_ident() not in seen
    assert library["in_threads"](8, 200, note, "a longer text") == "a longer text" * 2


def test_values_of_every_kind_in_threads_of_c(library: sterna.Module) -> None:
    array, thing = sterna.nd.array([1.0]), object()
    values: list[Any] = [1, 2.5, "a longer text", b"bytes", [thing], array, sterna.cpu(), None, len]

    def check(*args: Any) -> bool:
        return args[0] == 1 and args[4][0] is thing and args[5].same_as(array) and args[8]([]) == 0

    before = sys.getrefcount(thing)
    assert library["in_threads"](4, 100, check, *values) is True
    assert sys.getrefcount(thing) == before


def test_objects_end_in_threads_of_c(library: sterna.Module) -> None:
    """The last reference to a Python object goes in a thread that does not know Python."""

    class Thing:
        pass

    made: list[weakref.ref[Thing]] = []

    def make() -> Thing:
        thing = Thing()
        made.append(weakref.ref(thing))
        return thing

    library["in_threads"](4, 50, make)
    gc.collect()
    assert len(made) == 200 and not any(reference() for reference in made)


def test_python_functions_on_the_pool(library: sterna.Module) -> None:
    before = num_threads()
    try:
        for threads in (1, 2, 5):
            set_num_threads(threads)
            seen: list[tuple[int, int]] = []
            library["in_parallel"](lambda task, tasks, seen=seen: seen.append((task, tasks)), 100)
            assert sorted(seen) == [(task, 100) for task in range(100)]
    finally:
        set_num_threads(0)
    assert num_threads() == before


def test_errors_on_the_pool(library: sterna.Module) -> None:
    class Mine(Exception):
        pass

    def fail(task: int, tasks: int) -> None:
        if task % 2:
            raise Mine(f"task {task}")

    for _ in range(20):
        with pytest.raises(Mine, match="task"):
            library["in_parallel"](fail, 40)
    library["in_parallel"](lambda task, tasks: None, 40)


def test_regions_in_many_threads_and_inside_each_other(library: sterna.Module) -> None:
    region, total, lock = library["in_parallel"], [0], threading.Lock()

    def count(task: int, tasks: int) -> None:
        with lock:
            total[0] += 1

    def nested(task: int, tasks: int) -> None:
        region(count, 5)

    workers = [threading.Thread(target=region, args=(nested, 20)) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert total == [4 * 20 * 5]


# ---- how many threads ----


def test_setting_the_number_of_threads(library: sterna.Module) -> None:
    try:
        set_num_threads(3)
        assert num_threads() == 3
        for bad in (-1, 1025, 10**6):
            with pytest.raises(ValueError, match=f"{bad} threads; expected 1 to 1024"):
                set_num_threads(bad)
        assert num_threads() == 3
        for odd in ("2", 2.0, None):
            with pytest.raises(TypeError):
                set_num_threads(odd)  # type: ignore[arg-type]
        with pytest.raises(OverflowError):
            set_num_threads(2**40)
        with pytest.raises(RuntimeError, match="inside a parallel region"):
            library["in_parallel"](lambda task, tasks: set_num_threads(2), 4)
        assert num_threads() == 3
    finally:
        set_num_threads(0)
    assert num_threads() >= 1


PRINT_THREADS = "import sterna; print(sterna.runtime.num_threads())"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"STERNA_NUM_THREADS": "3"}, "3"),
        ({"TVM_NUM_THREADS": "4"}, "4"),
        ({"OMP_NUM_THREADS": "5"}, "5"),
        ({"OMP_NUM_THREADS": "6,2"}, "6"),
        ({"STERNA_NUM_THREADS": "3", "TVM_NUM_THREADS": "4", "OMP_NUM_THREADS": "5"}, "3"),
        ({"TVM_NUM_THREADS": "4", "OMP_NUM_THREADS": "bad"}, "4"),
        ({"STERNA_NUM_THREADS": "", "TVM_NUM_THREADS": "4"}, "4"),
        ({"STERNA_NUM_THREADS": "1024"}, "1024"),
    ],
)
def test_the_environment_sets_the_number(environment: dict[str, str], expected: str) -> None:
    done = run_python(PRINT_THREADS, **environment)
    assert (done.stdout.strip(), done.returncode) == (expected, 0)


@pytest.mark.parametrize("text", ["0", "-2", "many", "3x", "1.5", "99999999999999999999", " "])
def test_a_bad_environment_is_named(text: str) -> None:
    done = run_python(PRINT_THREADS, STERNA_NUM_THREADS=text)
    assert done.returncode == 1
    assert f"ValueError: STERNA_NUM_THREADS is '{text}'" in done.stderr


def test_a_bad_environment_fails_a_region_but_not_for_good(library_path: Path) -> None:
    program = (
        "import sterna\n"
        f"region = sterna.runtime.load_module({str(library_path)!r})['in_parallel']\n"
        "try: region(lambda task, tasks: None, 4)\n"
        "except ValueError as error: print(error)\n"
        "sterna.runtime.set_num_threads(2)\n"
        "seen = []\n"
        "region(lambda task, tasks: seen.append(task), 4)\n"
        "print(len(seen))\n"
    )
    done = run_python(program, OMP_NUM_THREADS="none")
    assert done.stdout.splitlines()[0].startswith("OMP_NUM_THREADS is 'none'")
    assert done.stdout.splitlines()[1:] == ["4"]


def test_the_first_loop_fixes_what_the_environment_says(library_path: Path) -> None:
    program = (
        "import os, sterna\n"
        "from sterna.runtime import num_threads, set_num_threads\n"
        f"region = sterna.runtime.load_module({str(library_path)!r})['in_parallel']\n"
        "os.environ['STERNA_NUM_THREADS'] = '3'\n"
        "print(num_threads())\n"
        "region(lambda task, tasks: None, 4)\n"
        "os.environ['STERNA_NUM_THREADS'] = '5'\n"
        "print(num_threads())\n"
        "set_num_threads(0)\n"
        "print(num_threads())\n"
    )
    done = run_python(program, STERNA_NUM_THREADS="2")
    assert done.stdout.split() == ["3", "3", "5"], done.stderr


# ---- forks ----


def _work_in_child(path: str, connection: Any) -> None:
    library = sterna.runtime.load_module(path)
    seen: list[int] = []
    library["in_parallel"](lambda task, tasks: seen.append(task), 20)
    error = ""
    try:
        library["fail"]("KeyError", "in the child")
    except KeyError as caught:
        error = str(caught)
    connection.send(
        (
            len(seen),
            sterna.get_global_func("test.before_fork")(20),
            library["in_threads"](2, 10, lambda: "from a thread"),
            sterna.nd.array([1.0, 2.0]).numpy().tolist(),
            error,
        )
    )
    connection.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_forked_child_can_still_call(
    library: sterna.Module, library_path: Path, registry: None
) -> None:
    sterna.register_func("test.before_fork", lambda number: number + 1)
    set_num_threads(3)
    try:
        library["in_parallel"](lambda task, tasks: None, 20)  # the parent's pool is there
        context = multiprocessing.get_context("fork")
        for _ in range(3):
            ours, theirs = context.Pipe(duplex=False)
            child = context.Process(target=_work_in_child, args=(str(library_path), theirs))
            child.start()
            theirs.close()
            assert ours.poll(60)
            assert ours.recv() == (20, 21, "from a thread", [1.0, 2.0], "'in the child'")
            child.join(60)
            assert child.exitcode == 0
        library["in_parallel"](lambda task, tasks: None, 20)
    finally:
        set_num_threads(0)


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_forks_while_other_threads_are_busy(library: sterna.Module, registry: None) -> None:
    """No lock of the runtime is held for good in the child.

    The pool's threads stay in C: CPython 3.11 has a lock of its own that a fork can catch while
    another thread enters Python.
    """
    stop, context = threading.Event(), multiprocessing.get_context("fork")

    def churn() -> None:
        while not stop.is_set():
            sterna.register_func("test.churn", len, override=True)
            library["in_parallel"](library["nothing"], 4)

    workers = [threading.Thread(target=churn) for _ in range(2)]
    for worker in workers:
        worker.start()
    try:
        for _ in range(20):
            child = context.Process(target=_use_the_registry, args=(library,))
            child.start()
            child.join(60)
            assert child.exitcode == 0
    finally:
        stop.set()
        for worker in workers:
            worker.join()


def _use_the_registry(library: sterna.Module) -> None:
    sterna.register_func("test.child", len)
    sterna.list_global_func_names()
    library["in_parallel"](lambda task, tasks: None, 4)


# ---- the end of the process ----


def test_the_process_ends_while_c_calls_python(library_path: Path) -> None:
    program = (
        "import sterna, time\n"
        "f = sterna.runtime.PackedFunc(lambda: [1, 'a longer text'])\n"
        f"sterna.runtime.load_module({str(library_path)!r})['call_forever'](f)\n"
        "time.sleep(0.02)\n"
    )
    for _ in range(5):
        done = run_python(program)
        assert (done.returncode, done.stderr) == (0, "")


def test_a_daemon_thread_is_in_c_at_the_end(library_path: Path) -> None:
    program = (
        "import sterna, threading\n"
        f"sleep = sterna.runtime.load_module({str(library_path)!r})['sleep']\n"
        "threading.Thread(target=sleep, args=(100_000,), daemon=True).start()\n"
    )
    started = time.monotonic()
    assert run_python(program).returncode == 0
    assert time.monotonic() - started < 90


def test_a_function_called_from_many_threads_keeps_count() -> None:
    def count() -> None:
        pass

    packed, before = PackedFunc(count), sys.getrefcount(count)

    def work() -> None:
        for _ in range(5000):
            packed()

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sys.getrefcount(count) == before
