"""The importers under the name that users know; they live in a folder above this one."""

import importlib as _importlib
from typing import Any as _Any


def __getattr__(name: str) -> _Any:
    return getattr(_importlib.import_module("sterna.frontend"), name)
