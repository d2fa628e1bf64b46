"""What can go wrong, as exit statuses and in words."""

from sterna.frontend.open_shapes import OpenShapeError, UndecidedError
from sterna.micro.platforms.boards import BoardTooSmallError
from sterna.support.errors import InternalError, MissingPackageError
from sterna.support.toolchain import CompileError, MissingToolError

FAILED, USAGE, BAD_INPUT, UNSUPPORTED, MISSING, INTERRUPTED = 1, 2, 3, 4, 5, 130

CODES = {
    0: "done",
    FAILED: "a failure of Sterna itself",
    USAGE: "the command was misused",
    BAD_INPUT: "the model or an input is not right",
    UNSUPPORTED: "the model or target needs something that is not supported",
    MISSING: "this machine lacks a program or package",
    INTERRUPTED: "interrupted",
}


class UsageError(Exception):
    """Options that do not go together."""


class UnsupportedError(Exception):
    """Something that cannot be done for this target or model."""


# The first class that fits counts.
_CODES: list[tuple[type[Exception], int]] = [
    (UsageError, USAGE),
    (UnsupportedError, UNSUPPORTED),
    (BoardTooSmallError, UNSUPPORTED),
    (MissingPackageError, MISSING),
    (MissingToolError, MISSING),
    (CompileError, FAILED),
    (InternalError, FAILED),
    (NotImplementedError, UNSUPPORTED),
    (UndecidedError, UNSUPPORTED),
    (ValueError, BAD_INPUT),
    (OSError, BAD_INPUT),
]


def exit_code(error: Exception) -> int:
    """The exit status for an error that ended a command."""
    return next((code for kind, code in _CODES if isinstance(error, kind)), FAILED)


def describe(error: Exception, code: int, with_traceback: bool = False) -> str:
    """The error in words, with the way out."""
    if isinstance(error, OpenShapeError):
        return _open_shapes(error)
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.strerror}: '{error.filename}'"
    text = str(error) or type(error).__name__
    if code == FAILED and not with_traceback:
        return f"{type(error).__name__}: {text}\n(--debug shows where)"
    return text


def _open_shapes(error: OpenShapeError) -> str:
    listed = [f"  {name}: ({', '.join(map(str, dims))})" for name, dims in error.inputs.items()]
    return "\n".join([
        "the model leaves dimensions of its inputs open:", *listed,
        f"say which sizes to compile for, such as {shape_options(error)}",
    ])


def shape_options(error: OpenShapeError) -> str:
    """The options that would say the shapes."""
    return " ".join(
        f"--shape {name}:{','.join(map(str, shape))}" for name, shape in error.example.items()
    )
