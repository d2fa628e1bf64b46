"""The exceptions that users catch."""

from sterna.support.errors import (
    InternalError,
    OpAttributeInvalid,
    OpAttributeRequired,
    OpAttributeUnImplemented,
    OpError,
    OpNotImplemented,
    RPCError,
    RPCSessionTimeoutError,
    TVMError,
    register_error,
)

__all__ = [
    "InternalError", "OpAttributeInvalid", "OpAttributeRequired", "OpAttributeUnImplemented",
    "OpError", "OpNotImplemented", "RPCError", "RPCSessionTimeoutError", "TVMError",
    "register_error",
]
