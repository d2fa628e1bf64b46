"""Parts of files that are mapped into memory, and leave it again while nobody reads them.

Large weights are read where they lie in their file. What was read of them can be given back at any
time: the next read takes it from the file anew. Nothing is ever written there.
"""

import ctypes
import mmap
import tempfile
import weakref
from bisect import bisect_right

# The mappings by the addresses that they begin at.
_mapped: dict[int, "weakref.ref[mmap.mmap]"] = {}


def map_part(handle: int, offset: int, length: int) -> memoryview:
    """Part of an open file, as memory."""
    before = offset % mmap.ALLOCATIONGRANULARITY
    # Private, so that it counts as memory that may be written; a view that may not be cannot be
    # shared by DLPack.
    made = mmap.mmap(handle, before + length, access=mmap.ACCESS_COPY, offset=offset - before)
    address = ctypes.addressof(ctypes.c_char.from_buffer(made))
    _mapped[address] = weakref.ref(made, lambda _: _mapped.pop(address, None))
    return memoryview(made)[before:]


def move_to_file(content: memoryview) -> memoryview | None:
    """The same bytes in a file without a name, mapped; None where there is no room for one."""
    if not hasattr(mmap, "MADV_DONTNEED"):
        return None
    try:
        with tempfile.TemporaryFile() as file:
            file.write(content)
            file.flush()
            return map_part(file.fileno(), 0, content.nbytes)
    except OSError:  # a full disk; they stay in memory
        return None


def is_mapped(address: int) -> bool:
    """Whether memory at an address is such a part."""
    return _find(address) is not None


def give_back(address: int, size: int) -> None:
    """Let what was read of such a part leave memory; other memory is left as it is."""
    found = _find(address)
    if found is None or not hasattr(found[1], "madvise"):
        return
    begin, made = found
    page = mmap.PAGESIZE
    first = -(-(address - begin) // page) * page
    last = (min(address + size - begin, len(made)) // page) * page
    if last > first:
        made.madvise(mmap.MADV_DONTNEED, first, last - first)


def _find(address: int) -> tuple[int, mmap.mmap] | None:
    """The mapping that holds an address, and where it begins."""
    begins = sorted(_mapped)
    place = bisect_right(begins, address) - 1
    made = _mapped[begins[place]]() if place >= 0 else None
    if made is None or address >= begins[place] + len(made):
        return None
    return begins[place], made
