"""Programs with control flow: by the virtual machine, held against the interpreter."""

import gc
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import sterna
from sterna.relay.expr import RelayExpr
from sterna.runtime import _core
from sterna.runtime._core import PackedFunc
from sterna.runtime.module import Module
from sterna.runtime.vm import ADT, Executable, VirtualMachine

relay: Any = sterna.relay  # users write lists and names of types, which it takes too
X = np.array([-1, 2, -3, 4], "float32")
FLOATS = relay.TensorType((4,), "float32")


def scalar(name: str, dtype: str = "int32") -> Any:
    return relay.var(name, shape=(), dtype=dtype)


def as_numpy(value: Any) -> Any:
    if isinstance(value, tuple | ADT):
        return tuple(as_numpy(part) for part in value)
    return value.numpy()


def agree(module: Any, *args: Any) -> Any:
    """What the machine gives, which is what the interpreter gives."""
    if isinstance(module, RelayExpr):
        module = sterna.IRModule.from_expr(module)
    found = as_numpy(relay.create_executor("vm", module).evaluate()(*args))
    wanted = as_numpy(relay.create_executor("debug", module).evaluate()(*args))
    _compare(found, wanted)
    return found


def _compare(found: Any, wanted: Any) -> None:
    if isinstance(wanted, tuple):
        assert len(found) == len(wanted)
        for a, b in zip(found, wanted, strict=True):
            _compare(a, b)
    else:
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def counting(step: Callable[[Any], Any], most: int = 10) -> Any:
    """A loop that does something to x some times."""
    x, i, s, loop = relay.var("x", FLOATS), scalar("i"), relay.var("s", FLOATS), relay.var("loop")
    again = loop(relay.add(i, relay.const(1)), step(s))
    body = relay.If(relay.less(i, relay.const(most)), again, s)
    return relay.Function([x], relay.Let(loop, relay.Function([i, s], body, FLOATS),
                                         loop(relay.const(0), x)))


@pytest.mark.parametrize("flag", [True, False])
def test_choices_share_what_is_computed_before(flag: bool) -> None:
    c, x = scalar("c", "bool"), relay.var("x", FLOATS)
    y = relay.exp(x)
    inner = relay.If(relay.logical_not(c), relay.nn.relu(y), relay.add(y, y))
    function = relay.Function([c, x], relay.If(c, relay.add(inner, y), relay.negative(y)))
    agree(function, np.array(flag), X)


def test_a_loop_is_a_call_in_tail_position() -> None:
    module = sterna.IRModule.from_expr(counting(lambda s: relay.add(s, relay.const(1.0)), 100_000))
    run = relay.create_executor("vm", module).evaluate()
    np.testing.assert_array_equal(run(X).numpy(), X + 100_000)
    agree(counting(lambda s: relay.multiply(s, relay.const(1.5))), X)


def test_functions_of_the_module_call_each_other() -> None:
    n = scalar("n")
    even, odd = relay.GlobalVar("even"), relay.GlobalVar("odd")
    flag = relay.TensorType((), "bool")

    def parity(other: Any, at_zero: bool) -> Any:
        m = scalar("m")
        rest = other(relay.subtract(m, relay.const(1)))
        end = relay.const(at_zero, "bool")
        return relay.Function([m], relay.If(relay.equal(m, relay.const(0)), end, rest), flag)

    main = relay.Function([n], even(n))
    module = sterna.IRModule({"even": parity(odd, True), "odd": parity(even, False), "main": main})
    assert agree(module, np.int32(7)) == np.False_
    assert agree(module, np.int32(8)) == np.True_


def test_recursion_that_is_no_loop() -> None:
    n, m, fact = scalar("n", "int64"), scalar("m", "int64"), relay.GlobalVar("fact")
    one = relay.const(1, "int64")
    rest = relay.multiply(m, fact(relay.subtract(m, one)))
    body = relay.If(relay.less(m, one), one, rest)
    module = sterna.IRModule({
        "fact": relay.Function([m], body, relay.TensorType((), "int64")),
        "main": relay.Function([n], fact(n)),
    })
    assert agree(module, np.int64(15)) == 1307674368000


def test_closures_hold_what_they_read() -> None:
    x, y = relay.var("x", FLOATS), relay.var("y", FLOATS)
    a, b, f = relay.var("a", FLOATS), relay.var("b", FLOATS), relay.var("f")
    kind = relay.FuncType((FLOATS,), FLOATS)
    g, twice = relay.var("g", kind), relay.var("twice")
    made = relay.Function([a], relay.add(relay.multiply(a, x), y))
    doubled = relay.Function([g, b], relay.Call(g, (relay.Call(g, (b,)),)))
    body = relay.Let(f, made, relay.Let(twice, doubled, relay.Call(twice, (f, x))))
    agree(relay.Function([x, y], body), X, X + 1)
    pick = relay.If(relay.less(relay.sum(x), relay.const(0.0)), made, relay.Function([b], b))
    agree(relay.Function([x, y], relay.Call(pick, (x,))), X, X)


def test_tuples_go_in_and_out() -> None:
    pair = relay.TupleType((FLOATS, relay.TupleType((FLOATS,))))
    t, c = relay.var("t", pair), scalar("c", "bool")
    first, inner = relay.TupleGetItem(t, 0), relay.TupleGetItem(relay.TupleGetItem(t, 1), 0)
    swapped = relay.Tuple([relay.add(inner, first), relay.Tuple([first])])
    function = relay.Function([c, t], relay.If(c, swapped, t))
    for flag in (True, False):
        agree(function, np.array(flag), (X, (X + 1,)))
    parts = relay.split(relay.add(first, inner), 2).astuple()
    joined = relay.concatenate([relay.TupleGetItem(parts, 1), relay.TupleGetItem(parts, 0)], 0)
    agree(relay.Function([c, t], relay.If(c, joined, first)), np.array(True), (X, (X + 1,)))


def test_all_executors_evaluate() -> None:
    x = relay.var("x", FLOATS)
    module = sterna.IRModule.from_expr(relay.Function([x], relay.add(x, relay.const(1.0))))
    for kind in ("debug", "graph", "vm", "aot"):
        run = relay.create_executor(kind, module, sterna.cpu(), "llvm").evaluate()
        np.testing.assert_array_equal(run(X).numpy(), X + 1)
        np.testing.assert_array_equal(run(x=X).numpy(), X + 1)
        with pytest.raises(ValueError, match="the function takes x; got 2 values"):
            run(X, X)
    value = relay.create_executor("vm").evaluate(relay.add(relay.const(1), relay.const(2)))
    assert value.numpy() == 3
    with pytest.raises(RuntimeError, match="unknown execution strategy: swift"):
        relay.create_executor("swift")


# ---- the interface ----


@pytest.fixture(scope="module")
def counter() -> Executable:
    module = sterna.IRModule.from_expr(
        counting(lambda s: relay.add(s, relay.const(np.ones(4, "float32")))))
    made: Executable = relay.vm.compile(module, "llvm")
    return made


def test_save_and_load(counter: Executable, tmp_path: Path) -> None:
    code, lib = counter.save()
    again = VirtualMachine(Executable.load_exec(code, lib), sterna.cpu())
    np.testing.assert_array_equal(again.run(X).numpy(), X + 10)
    path = tmp_path / "counter.so"
    counter.mod.export_library(path)
    loaded = VirtualMachine(sterna.runtime.load_module(path), sterna.cpu())
    np.testing.assert_array_equal(loaded.run(x=X).numpy(), X + 10)
    assert loaded.get_input_index("x") == 0 and loaded.get_input_index("y") == -1
    with pytest.raises(TypeError, match="bytecode is bytes, not int"):
        Executable.load_exec(3, lib)  # type: ignore[arg-type]


def test_inputs_are_set_or_given(counter: Executable) -> None:
    machine = sterna.runtime.vm.VirtualMachine(counter, sterna.cpu())
    machine.set_input("main", X)
    np.testing.assert_array_equal(machine.invoke("main").numpy(), X + 10)
    machine.set_one_input("main", x=X + 1)
    machine.invoke_stateful("main")
    np.testing.assert_array_equal(machine.get_outputs()[0].numpy(), X + 11)
    assert machine.benchmark(sterna.cpu(), X, repeat=2, number=2).mean > 0
    fresh = VirtualMachine(counter, sterna.cpu())
    with pytest.raises(ValueError, match="set_input has not given all"):
        fresh.benchmark(sterna.cpu())
    assert machine.benchmark(sterna.cpu(), repeat=1, number=1, end_to_end=True).mean > 0
    with pytest.raises(ValueError, match="takes x; got 0 values by place and y by name"):
        machine.run(y=X)
    with pytest.raises(ValueError, match="has no function 'mane'; it has main"):
        machine.invoke("mane", X)
    with pytest.raises(Exception, match="block '"):
        machine.run(X[:3])
    with pytest.raises(TypeError, match="exe is an Executable or a Module, not int"):
        VirtualMachine(3, sterna.cpu())  # type: ignore[arg-type]


def test_runs_end(counter: Executable) -> None:
    endless = counting(lambda s: relay.add(s, relay.const(1.0)), 2**31 - 1)
    machine = VirtualMachine(relay.vm.compile(endless, "llvm"), sterna.cpu())
    machine.set_limits(calls=1000)
    with pytest.raises(RuntimeError, match="more than 1000 calls, the limit that is set"):
        machine.run(X)
    machine.set_limits()
    machine.cancel()
    with pytest.raises(RuntimeError, match="the run was cancelled"):
        machine.run(X)
    n, down = scalar("n"), relay.GlobalVar("down")
    rest = relay.add(n, down(relay.add(n, relay.const(1))))
    module = sterna.IRModule({"main": relay.Function([n], down(n)), "down": relay.Function(
        [n], rest, relay.TensorType((), "int32"))})
    deep = VirtualMachine(relay.vm.compile(module, "llvm"), sterna.cpu())
    deep.set_limits(depth=10_000)
    for _ in range(2):  # it is usable afterwards
        with pytest.raises(RuntimeError, match="recurses deeper than 10000 calls"):
            deep.run(0)


def test_hostile_programs_are_refused(counter: Executable) -> None:
    """Every word of a program replaced by others: an error, or a program that runs and ends."""
    code, lib = counter.save()
    words = np.frombuffer(bytes(code), "<i8")
    rng = np.random.default_rng(0)
    refused = 0
    for place in range(len(words)):
        for value in (-1, 0, 3, 1 << 40, int(rng.integers(0, 30))):
            broken = words.copy()
            broken[place] = value
            try:
                machine = VirtualMachine(Executable.load_exec(broken.tobytes(), lib), sterna.cpu())
                machine.set_limits(calls=50, depth=50)
                machine.run(X)
            except Exception:
                refused += 1
    assert refused > 2 * len(words)
    for size in range(0, len(code), 24):
        with pytest.raises(ValueError, match="the program of the virtual machine is broken"):
            Executable.load_exec(code[:size], lib)


class _Watched:
    """What a function holds, so that its end is seen."""


class _Library:
    """The functions of a library, anew for each look-up, which waits until all threads look."""

    kind = "watched"

    def __init__(self, lib: Any, threads: int) -> None:
        self.lib, self.together = lib, threading.Barrier(threads)
        self.given: list[weakref.ref[_Watched]] = []

    def find(self, name: str) -> Any:
        function, watched = self.lib.get_function(name, False), _Watched()
        if function is None:
            return None
        self.given.append(weakref.ref(watched))
        self.together.wait(30)
        return PackedFunc(lambda *args: (watched, function(*args))[1])


def test_threads_that_look_functions_up_at_once_keep_one_of_each() -> None:
    made = relay.vm.compile(sterna.IRModule.from_expr(counting(lambda s: relay.add(s, s))), "llvm")
    bytecode, lib = made.save()
    library = _Library(lib, 2)
    machine = VirtualMachine(
        Executable(bytes(bytecode), _core.make_module(Module, library)), sterna.cpu(0)
    )
    with ThreadPoolExecutor(2) as pool:
        for found in list(pool.map(machine.run, [X, X])):
            np.testing.assert_array_equal(found.numpy(), X * 1024)
    blocks = len(library.given) // 2
    assert blocks and [each() is None for each in library.given].count(True) == blocks
    del machine
    gc.collect()
    assert all(each() is None for each in library.given)
