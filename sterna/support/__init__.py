"""What every part of the compiler may use and what uses none of them."""

from sterna.support.options import options

__all__ = ["options"]
