"""What goes wrong between two machines."""

from sterna.support.errors import (
    RPCError,
    RPCSessionTimeoutError,
    TVMError,
    find_exception_class,
    make_exception,
    register_error,
)

__all__ = ["RPCError", "RPCProtocolError", "RPCSessionTimeoutError", "remote_exception"]


@register_error
class RPCProtocolError(RPCError):
    """The other side broke the rules of docs/rpc_protocol.md."""


def remote_exception(kind: str, message: str, traceback: str) -> Exception:
    """The exception for an error of the other side, with its traceback there as a note."""
    cls = find_exception_class(kind)
    # Nobody else ends this process, or its loops.
    is_tame = cls is None or (
        issubclass(cls, Exception) and not issubclass(cls, StopIteration | StopAsyncIteration)
    )
    made = make_exception(kind, message) if is_tame else TVMError(f"{kind}: {message}")
    assert isinstance(made, Exception)
    if traceback:
        made.add_note(f"On the remote machine:\n{traceback.rstrip()}")
    return made
