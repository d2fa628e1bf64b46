"""Networks for microcontrollers: archives and projects for firmware."""

from sterna.micro.model_library_format import (
    UnsupportedInModelLibraryFormatError,
    export_model_library_format,
)

__all__ = ["UnsupportedInModelLibraryFormatError", "export_model_library_format"]
