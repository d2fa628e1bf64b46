"""The settings under which passes run."""

import threading
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from sterna.ir import config as configs
from sterna.ir.instrument import PassInfo, PassInstrument
from sterna.ir.module import IRModule

Trace = Callable[[IRModule, PassInfo, bool], object]
"""Called with a module, a pass, and whether that is before the pass."""


class _Stack(threading.local):
    """The contexts that a thread is in, the outermost first."""

    def __init__(self) -> None:
        self.contexts: list[PassContext] = []


_entered = _Stack()


class PassContext:
    """How far to optimize, which passes to leave out, and what the passes are told.

    A pass in a Sequential runs if it is not in disabled_pass, and if it is in required_pass or its
    level is at most opt_level. A pass that is called by itself always runs. config holds settings
    by their keys (see list_configs), instruments watch (see instrument.py), and trace is called
    before and after each pass with the module, the pass's info and whether it is before.

    Contexts nest, in each thread for itself; the innermost counts alone.
    """

    def __init__(
        self,
        opt_level: int = 2,
        required_pass: Sequence[str] | None = None,
        disabled_pass: Sequence[str] | None = None,
        instruments: Sequence[PassInstrument] | None = None,
        config: Mapping[str, Any] | None = None,
        trace: Trace | None = None,
    ) -> None:
        if not isinstance(opt_level, int):
            raise TypeError(f"opt_level must be an int, not {type(opt_level).__name__}")
        if trace is not None and not callable(trace):
            raise TypeError(f"trace must be a function, not {type(trace).__name__}")
        self.opt_level = int(opt_level)
        self.required_pass = _names("required_pass", required_pass)
        self.disabled_pass = _names("disabled_pass", disabled_pass)
        self.instruments = _instruments(instruments)
        self.config = configs.check_config(config or {})
        self.trace = trace
        self._lent = False  # whether its instruments enter and leave with another context

    def at_level(
        self, opt_level: int, config: Mapping[str, Any] | None = None
    ) -> "PassContext":
        """One of another level inside of this one, with whose instruments it runs.

        config: settings that hold where this one has none.
        """
        return self._inside(opt_level, {**(config or {}), **self.config})

    def with_config(self, more: Mapping[str, Any]) -> "PassContext":
        """One with further settings inside of this one, with whose instruments it runs."""
        return self._inside(self.opt_level, {**self.config, **more})

    def _inside(self, opt_level: int, config: Mapping[str, Any]) -> "PassContext":
        made = PassContext(
            opt_level, self.required_pass, self.disabled_pass, self.instruments, config, self.trace
        )
        made._lent = True
        return made

    @property
    def is_watched(self) -> bool:
        """Whether somebody wants to see the passes run."""
        return bool(self.instruments) or self.trace is not None

    @staticmethod
    def current() -> "PassContext":
        """The innermost context of this thread; outside of all there is one with the defaults."""
        if not _entered.contexts:
            _entered.contexts.append(PassContext())
        return _entered.contexts[-1]

    @staticmethod
    def list_configs() -> dict[str, dict[str, Any]]:
        """Every key of config with its type, default and help."""
        return configs.list_configs()

    def get_config(self, key: str) -> Any:
        """The value of a key, or its default."""
        known = configs.find_key(key)
        return self.config.get(key, known.default)

    def pass_enabled(self, info: PassInfo) -> bool:
        """Whether a Sequential runs a pass."""
        if info.name in self.disabled_pass:
            return False
        return info.name in self.required_pass or self.opt_level >= info.opt_level

    # ---- entering and leaving ----

    def __enter__(self) -> Self:
        PassContext.current()  # so that the defaults stay at the bottom
        if not self._lent:
            self._enter_instruments()
        _entered.contexts.append(self)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _entered.contexts.pop()
        if not self._lent:
            self._exit_instruments()

    def override_instruments(self, instruments: Sequence[PassInstrument] | None) -> None:
        """Take other instruments from now on: the old ones exit, the new ones enter."""
        made = _instruments(instruments)
        self._exit_instruments()
        self.instruments = made
        self._enter_instruments()

    def _enter_instruments(self) -> None:
        entered: list[PassInstrument] = []
        try:
            for instrument in self.instruments or ():
                instrument.enter_pass_ctx()
                entered.append(instrument)
        except BaseException:
            self.instruments = None
            for instrument in entered:
                instrument.exit_pass_ctx()
            raise

    def _exit_instruments(self) -> None:
        try:
            for instrument in self.instruments or ():
                instrument.exit_pass_ctx()
        except BaseException:
            self.instruments = None
            raise

    # ---- around a pass ----

    def before_pass(self, mod: IRModule, info: PassInfo) -> bool:
        """Tell the instruments that a pass is to run; whether they let it."""
        watching = self.instruments or ()
        if info.name not in self.required_pass:
            agreed = [instrument.should_run(mod, info) for instrument in watching]
            if not all(agreed):
                return False
        for instrument in watching:
            instrument.run_before_pass(mod, info)
        if self.trace is not None:
            self.trace(mod, info, True)
        return True

    def after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Tell the instruments what a pass made."""
        for instrument in self.instruments or ():
            instrument.run_after_pass(mod, info)
        if self.trace is not None:
            self.trace(mod, info, False)

    def __repr__(self) -> str:
        return (
            f"PassContext(opt_level={self.opt_level}, required_pass={self.required_pass}, "
            f"disabled_pass={self.disabled_pass}, instruments={self.instruments}, "
            f"config={self.config})"
        )


def _names(what: str, given: Sequence[str] | None) -> list[str]:
    names = list(given or ())
    if isinstance(given, str) or not all(isinstance(name, str) for name in names):
        raise TypeError(f"{what} must be a list of the names of passes, not {given!r}")
    return names


def _instruments(given: Sequence[PassInstrument] | None) -> list[PassInstrument] | None:
    if given is None:
        return None
    made = list(given)
    for one in made:
        if not isinstance(one, PassInstrument):
            raise TypeError(
                f"instruments must be a list of PassInstrument, not of {type(one).__name__}; "
                "derive its class from PassInstrument or decorate it with pass_instrument"
            )
    return made
