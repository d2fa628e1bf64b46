"""Records of source lines in TorchScript files, held against their own tables.

PyTorch reads these records when a line is asked for and believes every index in them; a damaged
one ends the process. So they are read here first, by an unpickler that makes nothing but numbers,
texts, lists and tuples.
"""

import io
import pickle
from typing import Any

from sterna.frontend.torch.archive import Archive

SUFFIX = ".debug_pkl"
MOST_BYTES = 256 << 20
WITH_TABLE = "FORMAT_WITH_STRING_TABLE"
INT64 = range(-(1 << 63), 1 << 63)


class _Broken(Exception):
    """A record that does not fit."""


# The one in C keeps a table as long as the largest number that a pickle names.
class _Unpickler(pickle._Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        """Lists of integers are the one thing that such records make by name."""
        if (module, name) == ("torch.jit._pickle", "build_intlist"):
            return list
        raise _Broken(f"it names {module}.{name}")

    def persistent_load(self, pid: Any) -> Any:
        """Tensors have no place here."""
        raise _Broken("it refers to a tensor")


def check_source_records(archive: Archive) -> None:
    """Refuses a file whose records of lines point out of their tables."""
    for name in archive.names():
        if not name.lower().endswith(SUFFIX):  # PyTorch finds entries in any case
            continue
        data = archive.read(name, MOST_BYTES, may_be_compressed=True)
        try:
            _check(_Unpickler(io.BytesIO(data)).load())
        except Exception as error:  # pickle raises whatever a wrong byte leads to
            said = str(error) or type(error).__name__
            raise ValueError(f"the entry '{name}' of {archive.name} is broken: {said}") from None


def _check(found: Any) -> None:
    texts: tuple[bytes, ...] | None = None
    if isinstance(found, tuple) and len(found) == 3 and found[0] == WITH_TABLE:
        _, table, found = found
        texts = tuple(_text(each) for each in _tuple(table))
    lengths: dict[int, int] = {}
    for record in _tuple(found):
        offset, place, *tags = _tuple(record)
        source, start, end = _tuple(place, 3)
        text, name, first_line = _tuple(source, 3)
        if id(text) not in lengths:
            lengths[id(text)] = _length(text, texts)
        _name(name, texts)
        for number in (offset, first_line, *tags):
            _integer(number, INT64)
        _integer(offset, range(1 << 63))
        _integer(end, range(lengths[id(text)] + 1))
        _integer(start, range(end + 1))


def _tuple(found: Any, length: int | None = None) -> tuple[Any, ...]:
    if not isinstance(found, tuple) or (length is not None and len(found) != length):
        raise _Broken("it is no list of places in a source")
    return found


def _text(found: Any) -> bytes:
    if not isinstance(found, str):
        raise _Broken("its table holds what is no text")
    return found.encode()


def _integer(found: Any, allowed: range) -> None:
    if type(found) is not int or found not in allowed:
        raise _Broken(f"{found!r} points out of its source")


def _length(text: Any, texts: tuple[bytes, ...] | None) -> int:
    """How many bytes a source has, which is one text or several of the table."""
    if texts is None:
        return len(_text(text))
    if type(text) is not list:
        raise _Broken("a source is no list of texts")
    for index in text:
        _integer(index, range(len(texts)))
    return sum(len(texts[index]) for index in text)


def _name(name: Any, texts: tuple[bytes, ...] | None) -> None:
    """The file of a source, which may be unknown in a record without a table."""
    if texts is not None:
        _integer(name, range(len(texts)))
    elif name is not None:
        _text(name)
