"""What users say about the inputs of TorchScript, as the classic from_pytorch takes it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sterna.frontend.torch.tensors import dtype_name

# Names that users give to types of elements, with or without "torch." before them.
_NAMES = {
    "double": "float64", "float": "float32", "half": "float16", "long": "int64", "int": "int32",
    "short": "int16", "char": "int8", "byte": "uint8", "quint8": "uint8", "qint8": "int8",
    "qint32": "int32",
}


@dataclass(frozen=True, slots=True)
class InputInfo:
    """An input by name: its shape, or shapes of what a tuple or list holds, and a dtype if given.
    """

    name: str
    shape: Any
    dtype: str | None = None


def canonical_dtype(name: Any) -> str:
    """float32 for float, torch.float or torch.float32."""
    short = dtype_name(name)
    return _NAMES.get(short, short)


def parsed_infos(input_infos: Any) -> list[InputInfo]:
    """The inputs that a list of (name, shape) or (name, (shape, dtype)) names."""
    if not isinstance(input_infos, list):
        raise RuntimeError(
            "input_infos is a list of (name, shape) or (name, (shape, dtype)), one for every "
            f"input, not {type(input_infos).__name__}"
        )
    return [_parsed(entry) for entry in input_infos]


def _parsed(entry: Any) -> InputInfo:
    if not isinstance(entry, tuple) or len(entry) < 2 or not isinstance(entry[0], str):
        raise RuntimeError(
            f"the entry {entry!r} of input_infos is not a pair of a name and a shape"
        )
    name, shape = entry[0], entry[1]
    dtype = None
    if isinstance(shape, tuple | list) and len(shape) == 2 and isinstance(shape[1], str):
        shape, dtype = shape
    elif len(entry) > 2:
        dtype = entry[2]
    if not isinstance(shape, tuple | list):
        raise RuntimeError(
            f"the shape of the input '{name}' in input_infos is {shape!r}, which is no tuple"
        )
    return InputInfo(name, shape, None if dtype is None else canonical_dtype(dtype))


def graph_of(module: Any) -> Any:
    """The graph that a script module or function runs."""
    try:
        return module.graph
    except RuntimeError as error:
        raise ValueError(f"the PyTorch script cannot be run: {error}") from None


def script_infos(module: Any, example_inputs: Sequence[Any]) -> list[InputInfo]:
    """What example inputs say, under the names that the graph has for them."""
    import torch

    own = 1 if isinstance(module, torch.nn.Module) else 0
    values = list(graph_of(module).inputs())[own:]
    if len(values) != len(example_inputs):
        raise TypeError(
            f"the PyTorch model takes {len(values)} inputs, and {len(example_inputs)} example "
            "inputs are given"
        )
    return [
        InputInfo(value.debugName(), tuple(each.shape), dtype_name(each.dtype))
        for value, each in zip(values, example_inputs, strict=True)
    ]


def expect_inputs(infos: Sequence[InputInfo], graph_inputs: Sequence[Any]) -> None:
    """Every input of a graph has an entry, of the shape that the graph records."""
    if len(infos) != len(graph_inputs):
        raise RuntimeError(
            f"input_infos has {len(infos)} entries, and the graph has {len(graph_inputs)} inputs"
        )
    for info, value in zip(infos, graph_inputs, strict=True):
        recorded = _recorded_shape(value)
        if recorded is None or not _is_shape(info.shape):
            continue
        given = list(info.shape)
        if len(recorded) != len(given):
            raise RuntimeError(
                f"the input '{info.name}' has {len(given)} dimensions in input_infos and "
                f"{len(recorded)} in the graph"
            )
        if any(extent <= 0 for extent in given[1:]):
            raise RuntimeError(
                f"the input '{info.name}' has the shape {tuple(given)} in input_infos; only its "
                "first extent may be open"
            )
        if any(a != b for a, b in zip(given, recorded, strict=True) if b is not None):
            raise RuntimeError(
                f"the input '{info.name}' has the shape {tuple(given)} in input_infos and "
                f"{tuple(recorded)} in the graph"
            )


def _recorded_shape(value: Any) -> list[int | None] | None:
    kind = value.type()
    sizes = kind.sizes() if kind.kind() == "TensorType" else None
    return None if sizes is None else list(sizes)


def _is_shape(shape: Any) -> bool:
    return all(isinstance(extent, int) for extent in shape)


def fake_input(info: InputInfo, value: Any, default_dtype: str) -> Any:
    """An input without data; the graph's own type of elements counts most."""
    import torch

    kind = value.type()
    recorded = kind.scalarType() if kind.kind() == "TensorType" else None
    name = canonical_dtype(recorded.lower()) if recorded else info.dtype or default_dtype
    dtype = getattr(torch, canonical_dtype(name), None)
    if not isinstance(dtype, torch.dtype):
        raise RuntimeError(f"the input '{info.name}' has the unknown type '{name}'")
    return _filled(info.shape, dtype)


def _filled(shape: Any, dtype: Any) -> Any:
    import torch

    if _is_shape(shape):
        return torch.empty([int(extent) for extent in shape], dtype=dtype)
    return type(shape)(_filled(part, dtype) for part in shape)
