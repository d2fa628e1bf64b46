"""Exceptions, and how errors from compiled code become exceptions.

Compiled code reports an error as a kind and a message. The kind is the name of an exception class:
a built-in one, one that was registered here, or else TVMError.
"""

import builtins
from collections.abc import Callable
from typing import TypeVar, overload

Exc = TypeVar("Exc", bound=type[BaseException])


class TVMError(RuntimeError):
    """Something that compiled code or the runtime reports and that has no closer class."""


class InternalError(TVMError):
    """A bug of Sterna itself, not a mistake of its user."""


class HostOnlyError(ValueError):
    """A kernel does what only the host's processor can, so that no device runs it."""


class OpError(TVMError):
    """Something is wrong with an operator of a model."""


class OpAttributeRequired(OpError, AttributeError):
    """An operator of a model lacks an attribute; for importers of users' own."""


class OpAttributeInvalid(OpError, AttributeError):
    """An attribute of a model's operator has no meaning; for importers of users' own."""


class OpAttributeUnImplemented(OpError, NotImplementedError):
    """An attribute of a model's operator is not supported; for importers of users' own."""


class OpNotImplemented(OpError, NotImplementedError):
    """A model uses operators that its importer does not know."""


class BranchNotCompiled(ValueError):
    """A run takes a branch that its program was not compiled for."""


class MissingPackageError(ImportError):
    """An optional package is not installed."""

    def __init__(self, package: str, purpose: str) -> None:
        super().__init__(f"{purpose} needs the package {package}: pip install {package}")


class RPCError(TVMError):
    """A session cannot go on: the other side is gone, refuses, or answers nonsense."""


class RPCSessionTimeoutError(RPCError, TimeoutError):
    """A session was ended because its time was over."""


_registered: dict[str, type[BaseException]] = {
    "TVMError": TVMError,
    "InternalError": InternalError,
    "OpAttributeInvalid": OpAttributeInvalid,
    "OpAttributeRequired": OpAttributeRequired,
    "OpAttributeUnImplemented": OpAttributeUnImplemented,
    "OpError": OpError,
    "OpNotImplemented": OpNotImplemented,
    "BranchNotCompiled": BranchNotCompiled,
    "RPCError": RPCError,
    "RPCSessionTimeoutError": RPCSessionTimeoutError,
}


@overload
def register_error(name: str) -> Callable[[Exc], Exc]: ...
@overload
def register_error(name: str, cls: Exc) -> Exc: ...
@overload
def register_error(name: Exc) -> Exc: ...


def register_error(name: str | Exc, cls: Exc | None = None) -> Exc | Callable[[Exc], Exc]:
    """Give errors of a kind their own exception class.

    Works as register_error("Mine", Mine), as @register_error("Mine") and as @register_error.
    """
    if isinstance(name, type):
        return register_error(name.__name__, name)
    if cls is None:
        return lambda decorated: register_error(name, decorated)
    if not (isinstance(cls, type) and issubclass(cls, BaseException)):
        raise TypeError(f"errors of kind '{name}' need an exception class, not {cls!r}")
    _registered[name] = cls
    return cls


def find_exception_class(kind: str) -> type[BaseException] | None:
    """The class for a kind of error, or None."""
    if kind in _registered:
        return _registered[kind]
    found = getattr(builtins, kind, None)
    if isinstance(found, type) and issubclass(found, BaseException):
        return found
    return None


def make_exception(kind: str, message: str) -> BaseException:
    """The exception for an error that compiled code reported."""
    cls = find_exception_class(kind)
    if cls is not None:
        try:
            made = cls(message)
        except Exception:
            pass  # a class that wants other arguments, such as UnicodeDecodeError
        else:
            if isinstance(made, BaseException):
                return made
    return TVMError(f"{kind}: {message}" if kind else message)
