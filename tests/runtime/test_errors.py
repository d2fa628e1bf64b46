"""Errors across the boundary, in both directions."""

import gc
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import sterna
from sterna.runtime import PackedFunc
from sterna.support import errors


class Mine(RuntimeError):
    """An exception that no registry knows."""


@pytest.fixture
def registered() -> Iterator[None]:
    """Forgets the error classes that a test registers."""
    before = dict(errors._registered)
    yield
    errors._registered.clear()
    errors._registered.update(before)


def lines(error: BaseException) -> list[str]:
    """The source lines of an exception's traceback."""
    return [frame.line or "" for frame in traceback.extract_tb(error.__traceback__)]


# ---- Python's exceptions ----


@pytest.mark.parametrize(
    "raised",
    [
        ValueError("text"), KeyError("key"), Mine("bad 3"), OSError(2, "no such file"),
        StopIteration(5), KeyboardInterrupt(), SystemExit(7), GeneratorExit(), MemoryError(),
        UnicodeDecodeError("utf-8", b"\xff", 0, 1, "reason"), ExceptionGroup("g", [ValueError(1)]),
        ValueError("zero \0 and \ud800 inside"), RecursionError("not really"), AssertionError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_the_exception_itself_comes_back(library: sterna.Module, raised: BaseException) -> None:
    def fail() -> None:
        raise raised

    ways: list[Callable[[], Any]] = [
        PackedFunc(fail),
        lambda: library["call"](fail),
        lambda: library["call"](library["call"], fail),
    ]
    for run in ways:
        with pytest.raises(type(raised)) as caught:
            run()
        assert caught.value is raised
        raised.__traceback__ = None


def test_the_traceback_reaches_the_users_line(library: sterna.Module) -> None:
    def inner(value: int) -> None:
        raise Mine(f"bad {value}")  # the line

    def outer(value: int) -> None:
        library["call"](inner, value)  # on the way

    with pytest.raises(Mine, match="bad 3") as caught:
        library["call"](outer, 3)  # the call
    found = [line.partition("# ")[2] for line in lines(caught.value)]
    assert found == ["the call", "on the way", "the line"]


def test_causes_and_notes_stay(library: sterna.Module) -> None:
    def fail() -> None:
        try:
            raise KeyError("first")
        except KeyError as error:
            second = ValueError("second")
            second.add_note("a note")
            raise second from error

    with pytest.raises(ValueError, match="second") as caught:
        library["call"](fail)
    assert repr(caught.value.__cause__) == "KeyError('first')"
    assert caught.value.__notes__ == ["a note"]


def test_context_is_set_as_for_any_call(library: sterna.Module) -> None:
    def fail() -> None:
        raise Mine("second")

    with pytest.raises(Mine) as caught:
        try:
            raise KeyError("first")
        except KeyError:
            library["call"](fail)
    assert isinstance(caught.value.__context__, KeyError)


def test_the_same_exception_again_and_again(library: sterna.Module) -> None:
    again = Mine("again")

    def fail() -> None:
        raise again

    for _ in range(100):
        with pytest.raises(Mine) as caught:
            library["call"](fail)
        assert caught.value is again
        again.__traceback__ = None
        again.__context__ = None


def test_exceptions_that_are_hard_to_print(library: sterna.Module) -> None:
    class Silent(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    class Odd(Exception):
        def __str__(self) -> str:
            return 5  # type: ignore[return-value]

    for kind in (Silent, Odd):
        with pytest.raises(kind):
            library["call"](PackedFunc(lambda kind=kind: (_ for _ in ()).throw(kind())))


def test_a_class_that_cannot_be_made(library: sterna.Module) -> None:
    class Needs(Exception):
        def __init__(self, first: int, second: int) -> None:
            super().__init__(first, second)

    def fail() -> None:
        raise Needs  # type: ignore[call-arg]

    with pytest.raises(TypeError, match="missing 2 required"):
        library["call"](fail)


def test_bad_results_are_errors(library: sterna.Module) -> None:
    with pytest.raises(OverflowError):
        library["call"](lambda: 2**64)
    with pytest.raises(UnicodeEncodeError):
        PackedFunc(lambda: ["\ud800"])()
    with pytest.raises(TypeError, match="positional argument"):
        library["call"](lambda: None, 1)


def test_a_swallowed_error_is_gone(library: sterna.Module) -> None:
    def fail() -> None:
        raise Mine("swallowed text")

    assert library["swallow"](fail) == "swallowed text"
    with pytest.raises(RuntimeError, match="failed without saying why"):
        library["fail_silently"]()
    assert library["swallow"](lambda: 3) == 3


def test_errors_let_go_of_what_they_hold(library: sterna.Module) -> None:
    class Thing:
        pass

    def fail(thing: Thing) -> None:
        raise Mine("with locals")

    ways: list[Callable[[Thing], Any]] = [
        PackedFunc(fail),
        lambda thing: library["call"](fail, thing),
    ]
    for run in ways:
        thing = Thing()
        gone = weakref.ref(thing)
        gc.collect()
        before = sys.getrefcount(Mine)
        with pytest.raises(Mine):
            run(thing)
        del thing
        gc.collect()
        assert gone() is None
        assert sys.getrefcount(Mine) == before


# ---- errors from C ----


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("TypeError", TypeError), ("ValueError", ValueError), ("IndexError", IndexError),
        ("AttributeError", AttributeError), ("MemoryError", MemoryError),
        ("NotImplementedError", NotImplementedError), ("TimeoutError", TimeoutError),
        ("KeyboardInterrupt", KeyboardInterrupt), ("OSError", OSError),
        ("TVMError", sterna.TVMError), ("InternalError", sterna.InternalError),
    ],
)
def test_known_kinds(
    library: sterna.Module, kind: str, expected: type[BaseException]
) -> None:
    with pytest.raises(expected) as caught:
        library["fail"](kind, "the message ✓")
    assert type(caught.value) is expected and str(caught.value) == "the message ✓"


@pytest.mark.parametrize(
    "kind", ["NoSuchError", "int", "print", "__name__", "my::Error", "ValueErro"]
)
def test_unknown_kinds_keep_their_name(library: sterna.Module, kind: str) -> None:
    with pytest.raises(sterna.TVMError) as caught:
        library["fail"](kind, "text")
    assert str(caught.value) == f"{kind}: text"


def test_kinds_whose_class_wants_other_arguments(library: sterna.Module) -> None:
    for kind in ("UnicodeDecodeError", "ExceptionGroup"):
        with pytest.raises(sterna.TVMError, match=f"{kind}: text"):
            library["fail"](kind, "text")


def test_an_error_without_kind_or_text(library: sterna.Module) -> None:
    with pytest.raises(sterna.TVMError) as caught:
        library["fail"]("", "text")
    assert str(caught.value) == "text"
    with pytest.raises(ValueError) as value:
        library["fail"]("ValueError", "")
    assert str(value.value) == ""


def test_long_and_broken_text(library: sterna.Module) -> None:
    with pytest.raises(ValueError) as caught:
        library["fail"]("ValueError", "x" * 100_000)
    assert len(str(caught.value)) == 100_000
    with pytest.raises(sterna.TVMError, match="caf\ufffd"):
        library["fail_in_bad_text"]()


def test_registered_kinds(library: sterna.Module, registered: None) -> None:
    @sterna.register_error
    class FirstError(sterna.TVMError):
        pass

    @sterna.register_error("lib.Second")
    class SecondError(Exception):
        pass

    assert sterna.register_error("ValueError", SecondError) is SecondError
    for kind, expected in (
        ("FirstError", FirstError), ("lib.Second", SecondError), ("ValueError", SecondError),
    ):
        with pytest.raises(expected, match="text"):
            library["fail"](kind, "text")
    bad_classes: list[Any] = [int, "text", 5]
    for bad in bad_classes:
        with pytest.raises(TypeError, match="exception class"):
            sterna.register_error("Bad", bad)


def test_registered_classes_that_misbehave(library: sterna.Module, registered: None) -> None:
    class Picky(Exception):
        def __init__(self, text: str) -> None:
            raise ZeroDivisionError

    class Other(Exception):
        def __new__(cls, *args: Any) -> Any:
            return "not an exception"

    sterna.register_error("Picky", Picky)
    sterna.register_error("Other", Other)
    with pytest.raises(sterna.TVMError, match="Picky: text"):
        library["fail"]("Picky", "text")
    with pytest.raises(sterna.TVMError, match="Other: text"):
        library["fail"]("Other", "text")


def test_a_chain_of_errors_in_c(library: sterna.Module) -> None:
    with pytest.raises(ValueError, match="again") as caught:
        library["fail_often"](4)
    kinds, error = [], caught.value
    while error is not None:
        kinds.append(type(error).__name__)
        error = error.__cause__  # type: ignore[assignment]
    assert kinds == ["ValueError", "ValueError", "ValueError", "KeyError"]


def test_a_very_long_chain_of_errors(library: sterna.Module) -> None:
    with pytest.raises(ValueError, match="again") as caught:
        library["fail_often"](50_000)
    depth, error = 0, caught.value
    while error is not None:
        depth, error = depth + 1, error.__cause__  # type: ignore[assignment]
    assert depth == 50_000


def test_a_python_exception_as_the_cause_in_c(library: sterna.Module) -> None:
    first = Mine("first")

    def fail() -> None:
        raise first

    with pytest.raises(ValueError, match="wrapped in C") as caught:
        library["wrap"](fail)
    assert caught.value.__cause__ is first
    assert "raise first" in lines(first)[-1]


def test_errors_of_every_layer(library: sterna.Module) -> None:
    """An error in a callback in C in a callback in C, wrapped on the way."""

    def innermost() -> None:
        library["fail"]("IndexError", "at the bottom")

    def middle() -> None:
        try:
            library["wrap"](innermost)
        except ValueError as error:
            raise Mine("in the middle") from error

    with pytest.raises(ValueError, match="wrapped in C") as caught:
        library["call"](library["wrap"], middle)
    middle_error = caught.value.__cause__
    assert isinstance(middle_error, Mine)
    wrapped = middle_error.__cause__
    assert isinstance(wrapped, ValueError) and isinstance(wrapped.__cause__, IndexError)
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("direct cause") == 3 and "at the bottom" in text


def test_an_error_while_another_is_handled(library: sterna.Module) -> None:
    def recover() -> str:
        with pytest.raises(IndexError):
            library["fail"]("IndexError", "inner")
        return "fine"

    def clean_up() -> None:
        try:
            raise Mine("outer")
        finally:
            assert library["call"](recover) == "fine"

    with pytest.raises(Mine, match="outer"):
        library["call"](clean_up)


def test_destructors_do_not_disturb_an_error(library: sterna.Module) -> None:
    class Noisy:
        def __del__(self) -> None:
            with pytest.raises(IndexError):
                library["fail"]("IndexError", "from a destructor")

    def fail(thing: Noisy) -> None:
        raise Mine("kept")

    ways: list[Callable[[Noisy], Any]] = [
        PackedFunc(fail),
        lambda thing: library["call"](fail, thing),
    ]
    for run in ways:
        with pytest.raises(Mine, match="kept"):
            run(Noisy())
    with pytest.raises(TypeError, match="expected int, got a list"):
        library["read"]("int", [Noisy()])


# ---- threads ----


def test_errors_of_other_threads_do_not_mix(library: sterna.Module) -> None:
    wrong: list[str] = []

    def work(number: int) -> None:
        for i in range(500):
            text = f"{number}-{i}"
            try:
                if i % 2:
                    library["fail"]("ValueError", text)
                else:
                    library["call"](_raise, text)
            except (ValueError, Mine) as error:
                if str(error) != text:
                    wrong.append(f"{text}: {error}")
            else:
                wrong.append(f"{text}: nothing")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def _raise(text: str) -> None:
    raise Mine(text)


def test_an_error_of_a_c_thread_reaches_the_caller(library: sterna.Module) -> None:
    def fail() -> None:
        raise Mine("in a thread")  # the line

    with pytest.raises(Mine, match="in a thread") as caught:
        library["in_threads"](1, 1, fail)
    assert "the line" in lines(caught.value)[-1]
    with pytest.raises(Mine):
        library["in_threads"](4, 100, fail)


def test_an_error_left_in_a_thread_that_ends(library: sterna.Module) -> None:
    """The thread's slot still holds a Python exception when the thread is gone."""

    class Thing:
        pass

    thing = Thing()
    gone = weakref.ref(thing)

    def fail(thing: Thing) -> None:
        raise Mine("left behind")

    def ignore(thing: Thing) -> None:
        with pytest.raises(Mine):
            library["in_threads"](2, 1, fail, thing)

    worker = threading.Thread(target=ignore, args=(thing,))
    worker.start()
    worker.join()
    del thing, worker
    gc.collect()
    assert gone() is None
