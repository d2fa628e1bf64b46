"""Samples: what a model is run on to be quantised, checked against its inputs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import TensorProto, ValueInfoProto, helper

from sterna.frontend.onnx.model import Source, load_model
from sterna.quantization.onnx_graph import OnnxGraph
from sterna.quantization.runner import Sample
from sterna.relay.arrays import Array

# A sample this many times as large as the median one is far out, if hardly any other is: one of
# FAR_SHARE at the most.
FAR, FAR_SHARE = 30.0, 20
FEWEST_TO_TELL = 4


class Samples:
    """Samples that are gone through more than once, each checked when it comes.

    Those that are far out of the others are left out: one picture that was not brought to the right
    size of numbers would decide every range, and leave all others a few integers.
    """

    def __init__(self, graph: OnnxGraph, data: Iterable[Any], names: Sequence[str] = ()) -> None:
        known = {entry.name: entry for entry in graph.model.graph.input}
        self.specs = {name: known[name] for name in graph.inputs}
        self.data = data if not isinstance(data, Iterator) else list(data)
        self.names = names
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.far_out: dict[int, str] = self._far_out()

    def __iter__(self) -> Iterator[Sample]:
        for place, sample in self._all():
            if place not in self.far_out:
                yield sample

    def _all(self) -> Iterator[tuple[int, Sample]]:
        count = 0
        for place, given in enumerate(self.data):
            yield place, self._checked(place, given)
            count += 1
        if count == 0:
            raise ValueError(
                "there are no samples; quantisation needs some inputs that the model will see, a "
                "hundred or so"
            )

    def _far_out(self) -> dict[int, str]:
        """The samples that are much larger than others, and what to tell of each."""
        found = far_out(sample for _, sample in self._all())
        return {place: f"{self._name(place)} {what}" for place, what in found.items()}

    def _name(self, place: int) -> str:
        return f"sample {place}" + (f" ('{self.names[place]}')" if self.names else "")

    def _checked(self, place: int, given: Any) -> Sample:
        if not isinstance(given, Mapping):
            if len(self.specs) != 1:
                raise ValueError(
                    f"{self._name(place)} is a {type(given).__name__}; the model has the inputs "
                    f"{', '.join(self.specs)}, so that a sample is a dictionary of them"
                )
            given = {next(iter(self.specs)): given}
        strange = sorted(set(map(str, given)) - set(self.specs))
        missing = [name for name in self.specs if name not in given]
        if strange or missing:
            wrong = f"has '{strange[0]}', which is no input" if strange else (
                f"lacks input '{missing[0]}'")
            raise ValueError(
                f"{self._name(place)} {wrong}; the model's inputs are {', '.join(self.specs)}"
            )
        return {name: self._array(place, name, given[name]) for name in self.specs}

    def _array(self, place: int, name: str, given: Any) -> Array:
        spec = self.specs[name]
        value = np.asarray(given)
        dtype = helper.tensor_dtype_to_np_dtype(spec.type.tensor_type.elem_type)
        if value.dtype != dtype:
            if not np.can_cast(value.dtype, dtype, "same_kind"):
                raise ValueError(
                    f"{self._name(place)} gives input '{name}' numbers of {value.dtype}; it takes "
                    f"{dtype}"
                )
            value = value.astype(dtype)
        dims = shown_dims(spec)
        fits = len(dims) == value.ndim and all(
            dim == have for dim, have in zip(dims, value.shape, strict=True)
            if isinstance(dim, int))
        if not fits:
            raise ValueError(
                f"{self._name(place)} gives input '{name}' the shape {value.shape}; it takes "
                f"({', '.join(map(str, dims))})"
            )
        if self.shapes.setdefault(name, value.shape) != value.shape:
            raise ValueError(
                f"{self._name(place)} gives input '{name}' the shape {value.shape}, "
                f"samples before it {self.shapes[name]}; all samples have one shape"
            )
        if value.dtype.kind == "f" and not np.all(np.isfinite(value)):
            raise ValueError(
                f"{self._name(place)} has numbers that are not finite (NaN or infinite) in input "
                f"'{name}'"
            )
        return np.asarray(value, order="C")


def far_out(samples: Iterable[Sample]) -> dict[int, str]:
    """The places of samples that are much larger than others, and what to tell of each."""
    reach = [{name: float(np.abs(value).max(initial=0.0)) for name, value in sample.items()
              if value.dtype.kind == "f"} for sample in samples]
    found: dict[int, str] = {}
    for name in reach[0] if len(reach) >= FEWEST_TO_TELL else ():
        usual = float(np.median([each.get(name, 0.0) for each in reach]))
        far = [place for place, each in enumerate(reach) if each.get(name, 0.0) > usual * FAR > 0]
        if len(far) <= max(1, len(reach) // FAR_SHARE):
            found.update({
                place: f"reaches {reach[place][name]:.4g} in input '{name}', where half of the "
                f"samples stay below {usual:.4g}" for place in far})
    return dict(sorted(found.items()))


@dataclass(frozen=True, slots=True)
class InputSpec:
    """An input of a model; open dimensions have the extents that were asked for, or 1."""

    name: str
    shape: tuple[int, ...]
    dtype: str


def input_specs(
    model: Source, shapes: Mapping[str, Any] | None = None
) -> list[InputSpec]:
    """The inputs of a model; shapes: of inputs by name, or extents of open dimensions by theirs."""
    graph, given = load_model(model).proto.graph, dict(shapes or {})
    constants = {tensor.name for tensor in graph.initializer}
    found = []
    for entry in graph.input:
        if entry.name in constants:
            continue
        dtype = helper.tensor_dtype_to_np_dtype(entry.type.tensor_type.elem_type)
        shape = given.get(entry.name)
        if shape is None:
            dims = shown_dims(entry)
            shape = [dim if isinstance(dim, int) else int(given.get(dim, 1)) for dim in dims]
        found.append(InputSpec(entry.name, tuple(int(extent) for extent in shape), str(dtype)))
    return found


def shown_dims(spec: ValueInfoProto) -> list[int | str]:
    """The dimensions of an input; open ones by their names or '?'."""
    kind = spec.type.tensor_type
    if kind.elem_type == TensorProto.UNDEFINED:
        raise ValueError(f"input '{spec.name}' is no tensor; such models cannot be quantised")
    return [dim.dim_value if dim.dim_value > 0 else dim.dim_param or "?" for dim in kind.shape.dim]
