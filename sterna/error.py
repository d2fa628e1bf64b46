"""The exceptions that users catch."""

from sterna.support.errors import InternalError, TVMError, register_error

__all__ = ["InternalError", "TVMError", "register_error"]
