"""Packed functions: calls, callbacks, closures, the registry."""

import functools
import gc
import pickle
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import sterna
from sterna.runtime import Object, PackedFunc

# ---- calls ----


def test_no_arguments_and_no_result() -> None:
    def nothing() -> None:
        pass

    assert PackedFunc(nothing)() is None
    assert PackedFunc(lambda *args: args)() == []


@pytest.mark.parametrize("count", [1, 7, 8, 9, 16, 17, 255, 256, 5000, 100_000])
def test_any_number_of_arguments(library: sterna.Module, count: int) -> None:
    numbers = list(range(count))
    assert library["pack"](*numbers) == numbers
    assert library["sum"](*numbers) == sum(numbers)
    assert PackedFunc(lambda *args: list(args))(*numbers) == numbers
    assert library["call"](PackedFunc(lambda *args: sum(args)), *numbers) == sum(numbers)


def test_many_arguments_of_every_kind(library: sterna.Module) -> None:
    thing = object()
    each: list[Any] = [1, 2.5, None, "short", "a longer text", b"12345678", [1, [2]], thing]
    before = sys.getrefcount(thing)
    assert library["pack"](*each * 1000) == each * 1000
    assert PackedFunc(lambda *args: args)(*each * 1000) == each * 1000
    assert sys.getrefcount(thing) == before


@pytest.mark.parametrize("place", [0, 1, 7, 8, 20])
def test_a_bad_argument_at_any_place(library: sterna.Module, place: int) -> None:
    things: list[Any] = [object() for _ in range(21)]
    before = [sys.getrefcount(thing) for thing in things]
    arguments = [*things[:place], 2**80, *things[place:]]
    for function in (library["pack"], PackedFunc(lambda *args: None)):
        with pytest.raises(OverflowError):
            function(*arguments)
    del arguments
    assert [sys.getrefcount(thing) for thing in things] == before


def test_keyword_arguments_are_refused(library: sterna.Module) -> None:
    for function in (library["echo"], PackedFunc(lambda value: value)):
        with pytest.raises(TypeError, match="takes no keyword arguments; got 'value'"):
            function(value=1)  # type: ignore[call-arg]
        with pytest.raises(TypeError, match="'b'"):
            function(1, b=2)  # type: ignore[call-arg]
        assert function(*[1], **{}) == 1


def test_calls_through_every_python_door(library: sterna.Module) -> None:
    add = PackedFunc(lambda a, b: a + b)
    assert add(*(1, 2)) == 3
    assert functools.partial(add, 1)(2) == 3
    assert list(map(add, [1, 2], [3, 4])) == [4, 6]
    assert add.__call__(1, 2) == 3
    assert functools.reduce(library["sum"], range(10)) == 45


def test_a_packed_function_is_made_from_callables_only() -> None:
    assert PackedFunc(callable=len)([1]) == 1
    packed = PackedFunc(len)
    assert PackedFunc(packed) is packed
    for other in (3, None, "len", [len]):
        with pytest.raises(TypeError, match=type(other).__name__):
            PackedFunc(other)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        PackedFunc()  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (PackedFunc,), {})


def test_wrappers_compare_by_what_they_wrap(library: sterna.Module) -> None:
    first, second = library["echo"], library["sum"]
    again = PackedFunc(lambda value: value)(first)
    assert again is not first and again == first and again.same_as(first)
    assert hash(again) == hash(first) and again.handle == first.handle
    assert first != second and not first.same_as(second) and not first.same_as(3)
    assert first.__eq__(3) is NotImplemented
    assert {first: 1}[again] == 1
    with pytest.raises(TypeError):
        first < second  # type: ignore[operator]  # noqa: B015
    assert isinstance(first, Object) and first.type_index == 68


def test_text_of_a_function(library: sterna.Module) -> None:
    assert repr(PackedFunc(len)) == "<PackedFunc of <built-in function len>>"
    assert repr(library["echo"]).startswith("<PackedFunc at 0x")


def test_weak_references_to_functions() -> None:
    packed = PackedFunc(lambda: 1)
    gone: list[int] = []
    reference = weakref.ref(packed)
    weakref.finalize(packed, gone.append, 1)
    assert reference() is packed
    del packed
    assert reference() is None and gone == [1]


def test_functions_are_not_pickled() -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        pickle.dumps(PackedFunc(len))


# ---- callbacks and closures ----


def test_callbacks_in_and_closures_out(library: sterna.Module) -> None:
    apply = PackedFunc(lambda f, value: f(value))
    assert apply(lambda value: value + 1, 41) == 42
    adder = PackedFunc(lambda number: lambda value: value + number)
    assert adder(10)(5) == 15
    assert library["call"](adder, 10)(5) == 15
    assert library["call"](apply, lambda value: value * 2, 4) == 8


def test_functions_made_in_c(library: sterna.Module) -> None:
    alive = library["compositions_alive"]
    assert alive() == 0

    def double(number: int) -> int:
        return 2 * number

    before = sys.getrefcount(double)
    both = library["compose"](double, library["sum"])
    assert both(1, 2, 3) == 12 and alive() == 1
    thrice = library["compose"](both, both)
    assert thrice(1) == 4 and alive() == 2
    del both
    assert thrice(2) == 8 and alive() == 2  # the inner one is still used
    del thrice
    assert alive() == 0 and sys.getrefcount(double) == before


def test_c_keeps_functions(library: sterna.Module) -> None:
    class Counter:
        count = 0

        def __call__(self) -> int:
            self.count += 1
            return self.count

    counter = Counter()
    gone = weakref.ref(counter)
    library["keep"](counter)
    del counter
    assert library["kept"]()() == 1 and library["kept"]()() == 2
    library["keep"](None)
    assert gone() is None


def test_a_function_that_forgets_itself(library: sterna.Module, registry: None) -> None:
    """The last reference goes while the function runs."""

    class Forgetful:
        def __call__(self) -> str:
            sterna.remove_global_func("test.forgetful")
            library["keep"](None)
            gc.collect()
            return "still here"

    sterna.register_func("test.forgetful", Forgetful())
    assert sterna.get_global_func("test.forgetful")() == "still here"
    library["keep"](Forgetful())
    sterna.register_func("test.forgetful", Forgetful())
    assert library["kept"]()() == "still here"


def test_recursion_through_c(library: sterna.Module) -> None:
    call = library["call"]

    def down(levels: int) -> int:
        return 0 if levels == 0 else 1 + int(call(down, levels - 1))

    assert down(150) == 150


def test_endless_recursion_survives(library: sterna.Module) -> None:
    call = library["call"]

    def through_c() -> Any:
        return call(through_c)

    packed: PackedFunc = PackedFunc(lambda: packed())
    for function in (through_c, packed):
        for _ in range(3):
            with pytest.raises(RecursionError, match="maximum recursion depth"):
                function()
    assert call(lambda: 5) == 5


def test_a_long_chain_of_closures_ends_cleanly() -> None:
    chain = PackedFunc(lambda: 0)
    for _ in range(50_000):
        chain = PackedFunc(lambda inner=chain: inner())
    del chain
    method: Any = PackedFunc(len)
    for _ in range(50_000):
        method = PackedFunc(method.__call__)
    del method


def test_callbacks_may_change_anything(library: sterna.Module) -> None:
    """Arguments are held for the call even if the callback drops them elsewhere."""
    holder: dict[str, Any] = {"array": np.arange(3.0)}

    def drop(array: sterna.NDArray) -> float:
        holder.clear()
        gc.collect()
        return float(array.numpy().sum())

    assert library["call"](drop, holder["array"]) == 3


# ---- tensors that are lent ----


def test_a_lent_tensor_is_the_callers_memory(library: sterna.Module) -> None:
    seen: list[Any] = []

    def fill(array: sterna.NDArray) -> None:
        seen.append((array.shape, array.dtype, array.numpy().tolist()))
        array[:] = 2.0

    assert library["lend"](fill, 4) == 8.0
    assert seen == [((4,), "float32", [0, 1, 2, 3])]


def test_a_lent_tensor_may_be_written_through_numpy(library: sterna.Module) -> None:
    def fill(array: sterna.NDArray) -> None:
        np.from_dlpack(array)[:] = 3.0
        np.from_dlpack(array.reshape((2, 2)))[1] = 4.0
        library["add_one"](array)

    assert library["lend"](fill, 4) == 18.0


def test_a_lent_tensor_may_be_kept(library: sterna.Module) -> None:
    kept: list[Any] = []
    library["lend"](kept.append, 1000)
    library["lend"](lambda array: kept.append([array, array]), 3)
    assert (kept[0].numpy() == np.arange(1000)).all()
    assert kept[1][0].numpy().tolist() == [0, 1, 2]
    kept[0][:] = 7
    assert kept[0].numpy().sum() == 7000


def test_views_of_a_lent_tensor_may_be_kept(library: sterna.Module) -> None:
    kept: list[sterna.NDArray] = []

    def keep_views(array: sterna.NDArray) -> None:
        kept.append(array.reshape((25, 40)))
        kept.append(kept[0].reshape((10, 100)))
        kept.append(array._create_view((3,), relative_byte_offset=40))
        kept.append(kept[2]._create_view((1,), relative_byte_offset=8))

    library["lend"](keep_views, 1000)
    junk = [np.full(1000, np.nan, "float32") for _ in range(50)]  # would reuse the memory
    assert (kept[0].numpy() == np.arange(1000).reshape(25, 40)).all()
    assert kept[2].numpy().tolist() == [10, 11, 12] and kept[3].numpy().tolist() == [12]
    kept[1][:] = 5  # they still share one memory
    assert kept[0].numpy().sum() == 5000 and kept[3].numpy().tolist() == [5]
    assert len(junk) == 50


def test_many_views_that_are_dropped(library: sterna.Module) -> None:
    def look(array: sterna.NDArray) -> float:
        kept = [array.reshape((3, 1))]
        for _ in range(1000):
            kept[0] = array.reshape((1, 3))
        return float(kept[0].numpy().sum())

    assert library["lend"](look, 3) == 3.0


def test_a_lent_tensor_may_be_returned(library: sterna.Module) -> None:
    assert library["lend"](lambda array: array, 3).numpy().tolist() == [0, 1, 2]
    column = library["lend"](lambda array: array.reshape((3, 1)), 3)
    assert column.numpy().tolist() == [[0], [1], [2]]
    assert library["lend"](lambda array: [array], 3)[0].numpy().tolist() == [0, 1, 2]


def test_c_keeps_a_lent_tensor(library: sterna.Module) -> None:
    library["lend"](lambda array: library["keep"](array), 3)
    assert library["kept"]().numpy().tolist() == [0, 1, 2]
    library["keep"](None)


def test_memory_shared_beyond_the_call_is_an_error(library: sterna.Module) -> None:
    kept: list[Any] = []
    share: list[Callable[[sterna.NDArray], Any]] = [
        lambda array: kept.append(np.from_dlpack(array)),
        lambda array: kept.append(np.from_dlpack(array.reshape((3, 1)))),
        np.from_dlpack,
    ]
    for keep in share:
        with pytest.raises(BufferError, match="copy what you keep"):
            library["lend"](keep, 3)
        kept.clear()
    library["lend"](lambda array: kept.append(np.from_dlpack(array, copy=True)), 3)
    assert kept[0].tolist() == [0, 1, 2]


def test_an_error_is_not_hidden_by_a_lent_tensor(library: sterna.Module) -> None:
    def fail(array: sterna.NDArray) -> None:
        values = np.from_dlpack(array)  # lives on in the traceback
        raise KeyError(values.shape)

    with pytest.raises(KeyError):
        library["lend"](fail, 3)


@pytest.mark.parametrize("count", [1, 8, 9, 1000])
def test_many_lent_tensors(library: sterna.Module, count: int) -> None:
    kept: list[Any] = []

    def look(*arrays: sterna.NDArray) -> int:
        kept.extend(arrays[::3])
        return sum(int(array.numpy()) for array in arrays)

    assert library["lend_many"](look, count) == sum(range(count))
    assert [int(array.numpy()) for array in kept] == list(range(0, count, 3))


def test_lent_inside_lent(library: sterna.Module) -> None:
    kept: list[sterna.NDArray] = []

    def outer(array: sterna.NDArray) -> None:
        kept.append(array)
        library["lend"](lambda inner: kept.append(inner.reshape((2, 1))), 2)
        kept.append(array.reshape((1, 3)))

    library["lend"](outer, 3)
    assert [array.numpy().tolist() for array in kept] == [[0, 1, 2], [[0], [1]], [[0, 1, 2]]]


def test_odd_tensors_are_refused(library: sterna.Module) -> None:
    def never(array: sterna.NDArray) -> None:
        raise AssertionError

    with pytest.raises(ValueError, match="contiguous"):
        library["lend_rows"](never)
    with pytest.raises(TypeError):
        library["lend_nothing"](never)
    assert library["lend"](lambda array: int(array.size), 0) == 0


# ---- the registry ----


def test_register_by_every_form(registry: None) -> None:
    @sterna.register_func("test.named")
    def named(value: int) -> int:
        return value + 1

    @sterna.register_func
    def test_by_its_own_name() -> str:
        return "own"

    assert isinstance(named, PackedFunc) and named(1) == 2
    assert sterna.register_func("test.direct", len)([1]) == 1
    assert sterna.get_global_func("test.named")(4) == 5
    assert sterna.get_global_func("test.named") == named
    assert sterna.get_global_func("test_by_its_own_name")() == "own"
    assert test_by_its_own_name() == "own"


def test_a_taken_name_needs_override(registry: None) -> None:
    sterna.register_func("test.taken", lambda: 1)
    with pytest.raises(ValueError, match=r"'test\.taken' is already registered"):
        sterna.register_func("test.taken", lambda: 2)
    with pytest.raises(ValueError, match="already registered"):
        sterna.register_func("test.taken")(lambda: 2)
    old = sterna.get_global_func("test.taken")
    sterna.register_func("test.taken", lambda: 3, override=True)
    sterna.register_func("test.taken", override=True)(lambda: 4)
    assert old() == 1 and sterna.get_global_func("test.taken")() == 4


def test_a_missing_name(registry: None) -> None:
    assert sterna.get_global_func("test.missing", allow_missing=True) is None
    with pytest.raises(ValueError, match=r"'test\.missing'"):
        sterna.get_global_func("test.missing")
    sterna.register_func("test.missing_one", len)
    with pytest.raises(ValueError, match=r"did you mean .*test\.missing_one"):
        sterna.get_global_func("test.missing_on")
    with pytest.raises(ValueError, match=r"no function named 'test\.missing' is registered"):
        sterna.remove_global_func("test.missing")


def test_remove_and_list(registry: None) -> None:
    names = [f"test.list.{i}" for i in range(1000)] + ["test.ünïcode ✓"]
    for name in reversed(names):
        sterna.register_func(name, len)
    listed = sterna.list_global_func_names()
    assert set(names) <= set(listed) and listed == sorted(listed, key=str.encode)
    for name in names[::2]:
        sterna.remove_global_func(name)
    assert not set(names[::2]) & set(sterna.list_global_func_names())
    assert set(names[1::2]) <= set(sterna.list_global_func_names())
    assert sterna.get_global_func(names[1])([1, 2]) == 2


def test_removal_lets_go() -> None:
    class Thing:
        def __call__(self) -> None:
            pass

    thing = Thing()
    gone = weakref.ref(thing)
    sterna.register_func("test.thing", thing)
    del thing
    assert gone() is not None
    sterna.remove_global_func("test.thing")
    assert gone() is None


def test_functions_of_c_are_registered_too(library: sterna.Module, registry: None) -> None:
    function = library["sum"]
    assert sterna.register_func("test.c", function) is function
    assert sterna.get_global_func("test.c")(1, 2) == 3


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800", 5, None, b"bytes"])
def test_odd_names_are_refused(name: Any, registry: None) -> None:
    for use in (
        sterna.get_global_func,
        sterna.remove_global_func,
        lambda name: sterna.register_func(name, len),
    ):
        with pytest.raises((ValueError, TypeError)):
            use(name)


def test_odd_functions_are_refused(registry: None) -> None:
    with pytest.raises(TypeError, match="int"):
        sterna.register_func("test.odd", 5)  # type: ignore[call-overload]
    with pytest.raises(TypeError, match="has no name of its own"):
        sterna.register_func(functools.partial(print))
    with pytest.raises(TypeError, match="5 has no name"):
        sterna.register_func(5)  # type: ignore[call-overload]
    assert sterna.get_global_func("test.odd", allow_missing=True) is None
