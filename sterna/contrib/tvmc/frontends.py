"""Models from files, for tvmc."""

import os
from collections.abc import Mapping
from typing import Any

from sterna.contrib.tvmc.model import TVMCException, TVMCModel
from sterna.frontend.formats import all_formats
from sterna.model.import_model import import_model

# What the classic command line calls formats.
_CLASSIC = {"ONNX": "onnx", "PyTorch": "pytorch", "TensorFlow Lite": "tflite"}


def load_model(
    path: str | os.PathLike[str], model_format: str | None = None,
    shape_dict: Mapping[str, Any] | None = None, **kwargs: Any,
) -> TVMCModel:
    """A model from a file; its format is found by its content, model_format is not needed."""
    if kwargs:
        raise TVMCException(f"load has no option {', '.join(kwargs)}")
    known = get_frontend_names()
    if model_format is not None and model_format not in known:
        raise TVMCException(
            f"there is no importer for {model_format!r}, only for {', '.join(known)}; write the "
            "model as ONNX"
        )
    mod, params = import_model(os.fspath(path), dict(shape_dict or {}), None)
    return TVMCModel(mod, params)


def get_frontend_names() -> list[str]:
    """The formats that can be imported."""
    return sorted(_CLASSIC.get(each.name, each.name) for each in all_formats() if each.load)
