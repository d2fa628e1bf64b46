"""What instruments see, and what happens when they fail."""

from pathlib import Path
from typing import Any

import pytest

from sterna.ir import IRModule, const
from sterna.ir.instrument import (
    DumpIR,
    PassesVerifyInstrument,
    PassInfo,
    PassInstrument,
    PassPrintingInstrument,
    PassTimingInstrument,
    PrintAfterAll,
    PrintBeforeAll,
    PrintIRAfter,
    PrintIRBefore,
    pass_instrument,
)
from sterna.ir.transform import Pass, PassContext, Sequential, module_pass
from sterna.support.errors import InternalError


class Recorder(PassInstrument):
    """Writes down what it is told, and fails where it shall."""

    def __init__(self, name: str, events: list[str], fails: str = "", agrees: bool = True) -> None:
        self.name, self.events, self.fails, self.agrees = name, events, fails, agrees

    def tell(self, event: str, info: PassInfo | None = None) -> None:
        self.events.append(f"{self.name} {event}" + (f" {info.name}" if info else ""))
        if event == self.fails:
            raise RuntimeError(f"{self.name} fails")

    def enter_pass_ctx(self) -> None:
        self.tell("enter")

    def exit_pass_ctx(self) -> None:
        self.tell("exit")

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        self.tell("should_run", info)
        return self.agrees

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.tell("before", info)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self.tell("after", info)


def writes(name: str, events: list[str]) -> Pass:
    """A pass that writes that it ran."""

    def run(mod: IRModule, context: PassContext) -> IRModule:
        events.append(f"{name} runs")
        return mod

    made: Pass = module_pass(run, opt_level=0, name=name)
    return made


def test_the_order_of_events() -> None:
    events: list[str] = []
    with PassContext(instruments=[Recorder("1", events), Recorder("2", events)]):
        writes("p", events)(IRModule())
    assert events == [
        "1 enter", "2 enter", "1 should_run p", "2 should_run p", "1 before p", "2 before p",
        "p runs", "1 after p", "2 after p", "1 exit", "2 exit",
    ]


def test_a_sequential_is_seen_around_its_passes() -> None:
    events: list[str] = []
    names: list[str] = []

    class Names(PassInstrument):
        def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
            names.append(info.name)

    with PassContext(instruments=[Names()]):
        Sequential([writes("p", events), writes("q", events)], name="both")(IRModule())
    assert names == ["both", "p", "q"]


def test_all_instruments_must_agree() -> None:
    events: list[str] = []
    recorders = [Recorder("1", events), Recorder("2", events, agrees=False)]
    mod = IRModule()
    with PassContext(instruments=recorders):
        assert writes("p", events)(mod) is mod
    assert events == [
        "1 enter", "2 enter", "1 should_run p", "2 should_run p", "1 exit", "2 exit",
    ]


def test_required_passes_need_no_agreement() -> None:
    events: list[str] = []
    with PassContext(instruments=[Recorder("1", events, agrees=False)], required_pass=["p"]):
        writes("p", events)(IRModule())
    assert events == ["1 enter", "1 before p", "p runs", "1 after p", "1 exit"]


@pytest.mark.parametrize(
    ("fails", "expected"),
    [
        ("enter", ["0 enter", "1 enter", "0 exit"]),
        ("should_run", ["0 should_run p", "1 should_run p", "0 exit", "1 exit", "2 exit"]),
        ("before", ["2 should_run p", "0 before p", "1 before p", "0 exit", "1 exit", "2 exit"]),
        ("after", ["p runs", "0 after p", "1 after p", "0 exit", "1 exit", "2 exit"]),
        ("exit", ["2 after p", "0 exit", "1 exit"]),
    ],
)
def test_an_instrument_that_fails(fails: str, expected: list[str]) -> None:
    events: list[str] = []
    recorders = [Recorder(str(i), events, fails if i == 1 else "") for i in range(3)]
    before = PassContext.current()
    context = PassContext(instruments=recorders)
    with pytest.raises(RuntimeError, match="1 fails"), context:
        writes("p", events)(IRModule())
    assert events[-len(expected) :] == expected
    assert PassContext.current() is before
    assert (context.instruments is None) == (fails in ("enter", "exit"))


def test_a_pass_that_fails_has_no_after() -> None:
    events: list[str] = []

    def fail(mod: IRModule, context: PassContext) -> IRModule:
        raise RuntimeError("the pass fails")

    broken = module_pass(fail, opt_level=0, name="p")
    with (
        pytest.raises(RuntimeError, match="the pass fails"),
        PassContext(instruments=[Recorder("1", events)]),
    ):
        broken(IRModule())
    assert events == ["1 enter", "1 should_run p", "1 before p", "1 exit"]


def test_override_instruments() -> None:
    events: list[str] = []
    with PassContext(instruments=[Recorder("1", events)]) as context:
        context.override_instruments([Recorder("2", events)])
        writes("p", events)(IRModule())
        context.override_instruments(None)
        writes("q", events)(IRModule())
    assert events == [
        "1 enter", "1 exit", "2 enter", "2 should_run p", "2 before p", "p runs", "2 after p",
        "2 exit", "q runs",
    ]


def test_override_instruments_of_the_outermost_context() -> None:
    events: list[str] = []
    context = PassContext.current()
    with pytest.raises(RuntimeError, match="1 fails"):
        context.override_instruments([Recorder("1", events, "enter")])
    assert context.instruments is None


def test_trace_is_called_before_and_after() -> None:
    calls: list[Any] = []
    with PassContext(trace=lambda mod, info, before: calls.append((info.name, before))):
        writes("p", [])(IRModule())
    assert calls == [("p", True), ("p", False)]


def test_pass_instrument_decorates_a_class() -> None:
    seen: list[str] = []

    @pass_instrument
    class Watch:
        """Watches."""

        def __init__(self, word: str) -> None:
            self.word = word

        def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
            seen.append(self.word + info.name)

    watch = Watch("saw ")
    assert isinstance(watch, PassInstrument) and Watch.__doc__ == "Watches."
    assert pass_instrument()(Recorder) is Recorder
    with PassContext(instruments=[watch]):
        writes("p", [])(IRModule())
    assert seen == ["saw p"]


def test_timing() -> None:
    timing = PassTimingInstrument()
    assert timing.render() == ""
    with PassContext(instruments=[timing]):
        Sequential([writes("p", []), writes("q", [])], name="both")(IRModule())
        writes("r", [])(IRModule())
        lines = timing.render().splitlines()
    assert [line.split(":")[0] for line in lines] == ["both", "\tp", "\tq", "r", "Total time"]
    assert "us [" in lines[0] and "%; " in lines[0]
    assert timing.render() == ""


def test_timing_of_a_pass_that_fails() -> None:
    def fail(mod: IRModule, context: PassContext) -> IRModule:
        raise RuntimeError

    broken = module_pass(fail, opt_level=0, name="broken")

    @module_pass(opt_level=0)
    def careful(mod: IRModule, context: PassContext) -> IRModule:
        with pytest.raises(RuntimeError):
            broken(mod)
        return mod

    timing = PassTimingInstrument()
    with PassContext(instruments=[timing]):
        careful(IRModule())
        writes("r", [])(IRModule())
        names = [line.split(":")[0] for line in timing.render().splitlines()]
    assert names == ["careful", "\tbroken", "r", "Total time"]


@pytest.mark.parametrize(
    ("instrument", "expected"),
    [
        (PassPrintingInstrument(["p"], ["q"]), ["Before p", "After q"]),
        (PrintIRBefore("q"), ["Before q"]),
        (PrintIRAfter("p", "q"), ["After p", "After q"]),
        (PrintBeforeAll(), ["Before p", "Before q"]),
        (PrintAfterAll(), ["After p", "After q"]),
    ],
)
def test_printing(
    instrument: PassInstrument, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    mod = IRModule({"f": const(7)})
    with PassContext(instruments=[instrument]):
        writes("q", [])(writes("p", [])(mod))
    lines = capsys.readouterr().out.splitlines()
    titles = [f"{e.split()[0]} Running Pass: {e.split()[1]}" for e in expected]
    assert lines == [line for title in titles for line in (title, "7")]


def test_dump_ir_writes_files(tmp_path: Path) -> None:
    folder = tmp_path / "dump"
    mod = IRModule({"f": const(7)})
    with PassContext(instruments=[DumpIR(folder)]):
        writes("a/b", [])(writes("p", [])(mod))
    assert sorted(p.name for p in folder.iterdir()) == ["000_p.txt", "001_a_b.txt"]
    assert (folder / "000_p.txt").read_text() == "7\n"
    with (
        pytest.raises(ValueError, match="is there already; refresh=True"),
        PassContext(instruments=[DumpIR(folder)]),
    ):
        pass
    with PassContext(instruments=[DumpIR(folder, refresh=True)]):
        writes("p", [])(mod)
    assert [p.name for p in folder.iterdir()] == ["000_p.txt"]


def test_a_verifier_names_the_pass() -> None:
    def check(mod: IRModule) -> None:
        if not mod.functions:
            raise ValueError("no functions")

    empty = module_pass(lambda mod, ctx: IRModule(), opt_level=0, name="Empty")
    mod = IRModule({"f": const(1)})
    with PassContext(instruments=[PassesVerifyInstrument(check)]):
        writes("p", [])(mod)
        with pytest.raises(InternalError, match="the pass Empty made a wrong module: no funct"):
            empty(mod)
