"""Watching passes at work: what a PassContext tells its instruments.

    with PassContext(instruments=[a, b]):      a.enter_pass_ctx(), b.enter_pass_ctx()
        some_pass(module)                      a.should_run, b.should_run: all must agree;
                                               run_before_pass of both, the pass, run_after_pass
                                               a.exit_pass_ctx(), b.exit_pass_ctx()

An exception in should_run, run_before_pass or run_after_pass ends the pass and goes to its caller.
One in enter_pass_ctx keeps the context from being entered: the instruments that had entered exit,
and the context loses its instruments. One in exit_pass_ctx does not stop the context from being
left; the instruments after it do not exit, and the context loses its instruments.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sterna.ir.module import IRModule
from sterna.support.errors import InternalError


@dataclass(frozen=True, slots=True)
class PassInfo:
    """What is known about a pass: from which level on it runs in a Sequential, and after what."""

    opt_level: int
    name: str
    required: tuple[str, ...] = ()


class PassInstrument:
    """Does nothing at each of the moments; subclasses do something at some."""

    def enter_pass_ctx(self) -> None:
        """The context is entered."""

    def exit_pass_ctx(self) -> None:
        """The context is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Whether a pass may run; it does if all instruments agree."""
        return True

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """A pass is about to run over this module."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """A pass has made this module."""


def pass_instrument(pi_cls: type | None = None) -> Any:
    """Makes an instrument of any class that has some of its methods; a decorator."""
    if pi_cls is None:
        return pass_instrument
    if issubclass(pi_cls, PassInstrument):
        return pi_cls
    return type(pi_cls.__name__, (pi_cls, PassInstrument), {"__doc__": pi_cls.__doc__})


# ---- timing ----


@dataclass(slots=True)
class _Span:
    """One run of a pass."""

    info: PassInfo
    begin: float
    seconds: float = 0.0
    inner: "list[_Span]" = field(default_factory=list)


class PassTimingInstrument(PassInstrument):
    """Measures how long each pass takes; render() tells while the context is active."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._roots: list[_Span] = []
        self._open: list[_Span] = []

    def enter_pass_ctx(self) -> None:
        self._clear()

    def exit_pass_ctx(self) -> None:
        self._clear()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        span = _Span(info, time.perf_counter())
        (self._open[-1].inner if self._open else self._roots).append(span)
        self._open.append(span)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        # Passes that raised were never ended: the end of one around them ends them too.
        while self._open:
            span = self._open.pop()
            span.seconds = time.perf_counter() - span.begin
            if span.info is info:
                break

    def render(self) -> str:
        """A line per pass: its time, that without the passes inside it, and shares of these."""
        total = sum(span.seconds for span in self._roots)
        lines: list[str] = []
        for span in self._roots:
            _render(span, "", total, total, lines)
        if lines:
            lines.append(f"Total time: {total * 1e3:.3f} ms")
        return "\n".join(lines)


def _render(span: _Span, indent: str, outer: float, total: float, lines: list[str]) -> None:
    own = span.seconds - sum(inner.seconds for inner in span.inner)
    fraction, whole = (100 * span.seconds / t if t else 0.0 for t in (outer, total))
    lines.append(
        f"{indent}{span.info.name}: {span.seconds * 1e6:.0f}us [{own * 1e6:.0f}us] "
        f"({fraction:.2f}%; {whole:.2f}%)"
    )
    for inner in span.inner:
        _render(inner, indent + "\t", span.seconds, total, lines)


# ---- printing ----


class PassPrintingInstrument(PassInstrument):
    """Prints the module before and after the passes of these names."""

    def __init__(
        self,
        print_before_pass_names: Sequence[str] = (),
        print_after_pass_names: Sequence[str] = (),
    ) -> None:
        self.before = frozenset(print_before_pass_names)
        self.after = frozenset(print_after_pass_names)

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self.before:
            _print("Before", mod, info)

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name in self.after:
            _print("After", mod, info)


class PrintIRBefore(PassPrintingInstrument):
    """Prints the module before the passes of these names."""

    def __init__(self, *names: str) -> None:
        super().__init__(print_before_pass_names=names)


class PrintIRAfter(PassPrintingInstrument):
    """Prints the module after the passes of these names."""

    def __init__(self, *names: str) -> None:
        super().__init__(print_after_pass_names=names)


class PrintBeforeAll(PassInstrument):
    """Prints the module before every pass."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        _print("Before", mod, info)


class PrintAfterAll(PassInstrument):
    """Prints the module after every pass."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        _print("After", mod, info)


def _print(when: str, mod: IRModule, info: PassInfo) -> None:
    print(f"{when} Running Pass: {info.name}")
    print(mod)


class DumpIR(PassInstrument):
    """Writes the module after every pass into a folder: 000_<pass>.txt, 001_<pass>.txt, ..."""

    def __init__(self, dump_dir: str | Path, refresh: bool = False) -> None:
        self.folder = Path(dump_dir)
        self.refresh = refresh
        self.count = 0

    def enter_pass_ctx(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.count = 0
        for old in self.folder.glob("[0-9][0-9][0-9]_*.txt"):
            if not self.refresh:
                raise ValueError(f"'{old}' is there already; refresh=True removes what was dumped")
            old.unlink()

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        safe = "".join(c if c.isalnum() or c in "._-" else "_" for c in info.name)
        path = self.folder / f"{self.count:03d}_{safe}.txt"
        path.write_text(f"{mod}\n", encoding="utf-8")
        self.count += 1


# ---- checking ----


class PassesVerifyInstrument(PassInstrument):
    """Calls a verifier on what each pass made: a wrong module is found where it was made."""

    def __init__(self, verifier: Callable[[IRModule], object]) -> None:
        self.verifier = verifier

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        try:
            self.verifier(mod)
        except Exception as error:
            raise InternalError(f"the pass {info.name} made a wrong module: {error}") from error
