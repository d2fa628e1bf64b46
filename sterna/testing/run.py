"""Running a test file as a program."""

from __future__ import annotations

import sys
from typing import NoReturn

import pytest


def main() -> NoReturn:
    """Run pytest on the calling file with the program's arguments, and exit with its status.

    For the end of a test file: ``if __name__ == "__main__": sterna.testing.main()``.
    """
    path = sys._getframe(1).f_globals.get("__file__")
    if path is None:
        raise RuntimeError("sterna.testing.main() must be called from a test file")
    sys.exit(pytest.main(["-p", "sterna.testing.plugin", path, *sys.argv[1:]]))
