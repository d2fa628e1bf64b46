"""The formats that models come in: all of them, and which of them a model is in.

A format of this package is a folder with a file `format.py`, whose FORMAT is the record; it is
found by listing. Anyone else's format is added in a program by `register_format`, and everywhere,
also on the command line, by a package whose metadata has an entry point of the group
`sterna.formats` that names the record:

    [project.entry-points."sterna.formats"]
    toy = "toy_format:FORMAT"
"""

import importlib
import os
import warnings
from functools import cache
from pathlib import Path

from sterna.frontend.files import HEAD_BYTES, read_head
from sterna.frontend.format import Format
from sterna.frontend.known_formats import KNOWN_FORMATS
from sterna.support.discovery import load_everywhere

ENTRY_POINTS = "sterna.formats"

_registered: list[Format] = []


def register_format(format: Format) -> Format:
    """Add a format to those that can be imported; it goes before others that claim its files."""
    if not isinstance(format, Format):
        raise TypeError(f"register_format takes a Format, not {type(format).__name__}")
    _registered.insert(0, format)
    return format


def all_formats() -> list[Format]:
    """All formats: those that were registered, those of other packages, and this one's."""
    return [*_registered, *_of_other_packages(), *_own()]


@cache
def _of_other_packages() -> tuple[Format, ...]:
    """Those that installed packages name; looking through all that is installed takes its time."""
    metadata = importlib.import_module("importlib.metadata")
    found = []
    for point in sorted(metadata.entry_points(group=ENTRY_POINTS)):
        try:
            made = point.load()
        except (ImportError, AttributeError) as error:  # other formats need not suffer from it
            warnings.warn(
                f"the format '{point.name}' of an installed package cannot be loaded from "
                f"{point.value}: {error}", stacklevel=2,
            )
            continue
        if not isinstance(made, Format):
            raise TypeError(
                f"the entry point '{point.name}' of {ENTRY_POINTS} names {point.value}, which is "
                f"no Format but {type(made).__name__}"
            )
        found.append(made)
    return tuple(found)


@cache
def _own() -> tuple[Format, ...]:
    """Those that can be imported before those of which no more than the name is known."""
    found = [module.FORMAT for module in load_everywhere("format", "sterna.frontend")]
    return (*found, *KNOWN_FORMATS)


# ---- recognising ----


def recognise(model: object) -> Format:
    """The format of a model that is given as a path, as bytes or as an object.

    What a file begins with counts more than its name: a wrong suffix is no obstacle.
    """
    if isinstance(model, str | os.PathLike):
        return _of_file(Path(model))
    if isinstance(model, bytes | bytearray | memoryview):
        found = sniffed(bytes(model[:HEAD_BYTES]))
        if found is None:
            raise ValueError(f"these bytes are no model that can be imported: {importable()}")
        return found
    for one in all_formats():
        if one.takes(model):
            return one
    raise TypeError(
        "a model is the path or the bytes of a file, or what its framework holds in memory: "
        f"{importable()}; not {type(model).__name__}"
    )


def sniffed(head: bytes, suffix: str = "") -> Format | None:
    """The format of a file that begins with these bytes; its suffix decides between several."""
    fitting = [one for one in all_formats() if one.sniff(head)]
    named = [one for one in fitting if suffix in one.suffixes]
    return next(iter([*named, *fitting]), None)


def importable() -> str:
    """The formats that can be imported, in words: ONNX (.onnx)."""
    found = {one.name: one for one in reversed(all_formats()) if one.load is not None}
    return ", ".join(
        f"{one.name} ({', '.join(one.suffixes)})" for _, one in sorted(found.items())
    )


def importable_suffixes() -> list[str]:
    """How names of files end that can be imported."""
    return sorted({s for one in all_formats() if one.load is not None for s in one.suffixes})


def _of_file(path: Path) -> Format:
    suffix = path.suffix.lower()
    if path.is_dir():
        found = next((one for one in all_formats() if _is_folder_of(one, path)), None)
    else:
        found = sniffed(read_head(path), suffix)
    named = (one for one in all_formats() if suffix in one.suffixes)
    found = found or next(named, None)
    if found is None and path.is_dir():
        raise ValueError(f"'{path}' is a folder and no model; a model is a file: {importable()}")
    if found is None:
        raise ValueError(
            f"'{path}' is no model that can be imported: neither its name nor its first bytes are "
            f"those of {importable()}"
        )
    return found


def _is_folder_of(format: Format, path: Path) -> bool:
    return bool(format.folder_with) and (path / format.folder_with).is_file()
