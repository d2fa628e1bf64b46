"""Importers: models of other frameworks as graphs. Each is loaded when it is first used.

The files here are what importers share; a folder is a format, which its format.py registers.
formats.py says how anyone else adds one.
"""

from typing import TYPE_CHECKING, Any

from sterna.support.classic import MOVED, find_moved
from sterna.support.discovery import load_name

if TYPE_CHECKING:
    from sterna.frontend.format import Format, ImportOptions
    from sterna.frontend.formats import all_formats, recognise, register_format
    from sterna.frontend.onnx.importer import from_onnx
    from sterna.frontend.tflite.importer import from_tflite

_WHERE = {
    "Format": "sterna.frontend.format:Format",
    "ImportOptions": "sterna.frontend.format:ImportOptions",
    "all_formats": "sterna.frontend.formats:all_formats",
    "recognise": "sterna.frontend.formats:recognise",
    "register_format": "sterna.frontend.formats:register_format",
}

__all__ = [
    "Format", "ImportOptions", "all_formats", "from_onnx", "from_tflite", "recognise",
    "register_format",
]


def __getattr__(name: str) -> Any:
    if f"{__name__}.{name}" in MOVED:
        return find_moved(__name__, name)
    if name in _WHERE:
        return load_name(_WHERE[name])
    if name.startswith("from_"):
        for one in load_name(_WHERE["all_formats"])():
            place = one.functions.get(name)
            if place:
                return load_name(place)
            if place is not None:
                raise AttributeError(f"relay.frontend has no '{name}': {one.instead}")
    raise AttributeError(f"relay.frontend has no importer '{name}'")
