"""The process's memory."""

import ctypes
import os


def give_back_memory() -> None:
    """Let the system have what was freed: GNU's allocator keeps what lies below the last block."""
    if os.name == "posix" and (trim := getattr(ctypes.CDLL(None), "malloc_trim", None)):
        trim(0)
