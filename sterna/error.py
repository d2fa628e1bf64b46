"""The exceptions that users catch."""

from sterna.support.errors import InternalError, OpNotImplemented, TVMError, register_error

__all__ = ["InternalError", "OpNotImplemented", "TVMError", "register_error"]
