"""Looking into executors."""

from sterna.contrib.debugger import debug_executor
from sterna.support.classic import classic_names

__all__ = ["debug_executor"]

__getattr__ = classic_names(__name__)
