"""The exceptions that users catch."""

from sterna.support.errors import (
    InternalError,
    OpNotImplemented,
    RPCError,
    RPCSessionTimeoutError,
    TVMError,
    register_error,
)

__all__ = [
    "InternalError", "OpNotImplemented", "RPCError", "RPCSessionTimeoutError", "TVMError",
    "register_error",
]
