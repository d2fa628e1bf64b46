"""Programs that torch.export.save wrote, read without PyTorch and without pickle."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from sterna.frontend.limits import count_of
from sterna.frontend.open_shapes import NamedDim
from sterna.frontend.torch.archive import Archive
from sterna.frontend.torch.complex_pairs import PARTS
from sterna.frontend.torch.fields import field, name_of, one_of, whole_number
from sterna.frontend.torch.functional import made_functional
from sterna.frontend.torch.memory import Layout
from sterna.frontend.torch.program import (
    Argument,
    Body,
    NumberRef,
    OutputKind,
    Program,
    ProgramInput,
    ProgramOutput,
    Ref,
    Step,
    Unreadable,
    Weight,
    named_arguments,
    range_of,
)
from sterna.frontend.torch.tensors import known_dtype
from sterna.relay.arrays import Array, numpy_dtype
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented

SCHEMA = 8

# How deep branches lie in branches.
MOST_DEPTH = 32

# The entry that holds the program.
PROGRAM = "models/model.json"

# The types of elements by their numbers in the schema.
_DTYPES = {
    1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32",
    8: "float64", 9: "complex32", 10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16",
    28: "uint16", 29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz",
    32: "float8_e5m2fnuz", 33: "float8_e8m0fnu", 34: "uint32", 35: "uint64",
}
_STRIDED = 7


def read_archive(archive: Archive) -> Program:
    """The program of a .pt2 file."""
    return _Reader(archive).run()


class _Reader:
    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        if archive.read("byteorder", 16).strip() != b"little":
            raise OpNotImplemented(f"{archive.name} is of a machine with big-endian numbers")
        model = archive.json(PROGRAM)
        major = whole_number(field(field(model, "schema_version", dict), "major", int))
        if major != SCHEMA:
            raise OpNotImplemented(
                f"{archive.name} is of version {major} of PyTorch's schema; {SCHEMA} is known: "
                "export it by another version of torch"
            )
        module = field(model, "graph_module", dict)
        self.graph = field(module, "graph", dict)
        self.signature = field(module, "signature", dict)
        self.values = field(self.graph, "tensor_values", dict)
        self.ranges = _ranges(field(model, "range_constraints", dict))
        self.taken: set[str] = set()
        self.depth = 0

    def run(self) -> Program:
        inputs, weights = [], []
        files = {**self._files("weights"), **self._files("constants")}
        for spec in field(self.signature, "input_specs", list):
            kind, about = one_of(spec)
            if kind == "user_input":
                inputs += self._input(field(about, "arg", dict))
            elif kind in _NAMED:
                name = field(about, _NAMED[kind], str)
                value = name_of(field(about, "arg", dict))
                self._take(value)
                read = files.get(name)
                if read is None:
                    raise ValueError(f"{self.archive.name} has no data of '{name}'")
                weights.append(Weight(value, name, read))
            elif kind not in ("constant_input", "token"):
                raise OpNotImplemented(f"an input of the kind {kind}")
        steps = [self._step(node) for node in field(self.graph, "nodes", list)]
        outputs = [_output(spec) for spec in field(self.signature, "output_specs", list)]
        made = Program(inputs, weights, steps, outputs, ranges=self.ranges)
        return made_functional(made, partial(_layout, self.values))

    def _take(self, name: str) -> None:
        if name in self.taken:
            raise ValueError(f"{self.archive.name} makes '{name}' twice")
        self.taken.add(name)

    # ---- inputs ----

    def _input(self, argument: dict[str, Any]) -> list[ProgramInput]:
        kind, value = one_of(argument)
        if kind.startswith("as_sym"):
            name = field(value, "as_name", str)
            self._take(name)
            return [ProgramInput(name, "int64", (), is_number=True)]
        if kind != "as_tensor":
            return []
        name = name_of(value)
        self._take(name)
        meta = field(self.values, name, dict)
        shape = [_extent(size) for size in field(meta, "sizes", list)]
        return [ProgramInput(name, _dtype(meta), shape)]

    # ---- weights ----

    def _files(self, folder: str) -> dict[str, Callable[[str], Array]]:
        """What reads each weight, by the weights' names."""
        path = f"data/{folder}/model_{folder}_config.json"
        if path not in self.archive:
            return {}
        listed = field(self.archive.json(path), "config", dict)
        return {name: partial(self._weight, folder, about) for name, about in listed.items()}

    def _weight(self, folder: str, about: Any, what: str) -> Array:
        if field(about, "use_pickle", bool):
            raise OpNotImplemented(f"{what} is pickled, and pickles are never opened")
        meta = field(about, "tensor_meta", dict)
        if field(meta, "layout", int) != _STRIDED:
            raise OpNotImplemented(f"{what}, which is no dense tensor")
        name, given = field(about, "path_name", str), _dtype(meta)
        is_complex = given in ("complex64", "complex128")
        kind = PARTS[given] if is_complex else known_dtype(given, what)
        raw = self.archive.read(f"data/{folder}/{name}")
        if not is_complex:
            return _strided(raw, kind, meta, what)
        made = _strided(raw, kind, _in_parts(meta), what)
        found: Array = made.view(given)[..., 0]
        return found

    # ---- steps ----

    def _step(self, node: Any) -> Step:
        target = field(node, "target", str).removeprefix("torch.ops.").removeprefix("torch.")
        target = target.replace("_operator.", "operator.", 1)
        if target.startswith("higher_order."):
            target = f"ops.{target}"
        arguments: dict[str, Argument] = {}
        unnamed: list[Argument] = []
        for given in field(node, "inputs", list):
            name, value = field(given, "name", str), self._argument(field(given, "arg", dict))
            if name:
                arguments[name] = value
            else:
                unnamed.append(value)
        arguments.update(named_arguments(target, unnamed))
        outputs = [
            name for output in field(node, "outputs", list) for name in _output_names(output)
        ]
        for name in outputs:
            self._take(name)
        about = field(node, "metadata", dict)
        trace = about.get("stack_trace", "")
        own = node.get("name") or next(iter(outputs), target)
        return Step(target, str(own), arguments, outputs, trace if isinstance(trace, str) else "")


    def _argument(self, argument: dict[str, Any]) -> Argument:
        kind, value = one_of(argument)
        return self._body(field(value, "graph", dict)) if kind == "as_graph" else (
            argument_of(argument)
        )

    def _body(self, graph: dict[str, Any]) -> Argument:
        """A branch or the round of a loop: a graph whose names are its own."""
        if self.depth == MOST_DEPTH:
            raise ValueError(f"{self.archive.name}: graphs in graphs, more than {MOST_DEPTH} deep")
        around, values, self.taken = self.taken, self.values, set()
        self.values = field(graph, "tensor_values", dict)
        self.depth += 1
        inputs = [one for each in field(graph, "inputs", list) for one in self._input(each)]
        steps = [self._step(node) for node in field(graph, "nodes", list)]
        outputs = [ProgramOutput(argument_of(each)) for each in field(graph, "outputs", list)]
        self.depth -= 1
        layouts = partial(_layout, self.values)
        self.taken, self.values = around, values
        made = made_functional(Program(inputs, [], steps, outputs), layouts)
        if len(made.outputs) != len(outputs):
            raise OpNotImplemented("a branch or a loop that changes its operands in place")
        return Body([one.name for one in inputs], made.steps, [out.value for out in made.outputs])


_NAMED = {
    "parameter": "parameter_name", "buffer": "buffer_name",
    "tensor_constant": "tensor_constant_name",
}


def _dtype(meta: dict[str, Any]) -> str:
    code = field(meta, "dtype", int)
    return _DTYPES.get(code, f"the unknown type {code}")


def _layout(values: Mapping[str, Any], name: str) -> Layout | None:
    """Where the elements of a tensor lie, as the file says it."""
    meta = values.get(name)
    if not isinstance(meta, dict):
        return None
    sizes, strides = (
        [extent if isinstance(extent, int) else str(one_of(each)[1])
         for each in field(meta, what, list) for extent in [_extent(each)]]
        for what in ("sizes", "strides")
    )
    return Layout(_dtype(meta), sizes, strides)


def _extent(size: Any) -> NamedDim:
    kind, value = one_of(size)
    if kind == "as_int":
        return whole_number(value)
    text = field(value, "expr_str", str)
    if text.startswith("Symbol('"):
        return text.removeprefix("Symbol('").partition("'")[0]
    return text


def _in_parts(meta: dict[str, Any]) -> dict[str, Any]:
    """What is said of complex numbers, of their two parts along a last axis."""
    sizes = [*field(meta, "sizes", list), {"as_int": 2}]
    strides = [{"as_int": 2 * whole_number(one_of(step)[1])}
               for step in field(meta, "strides", list)]
    first = {"as_int": 2 * whole_number(one_of(field(meta, "storage_offset", dict))[1])}
    return {"sizes": sizes, "strides": [*strides, {"as_int": 1}], "storage_offset": first}


def _strided(raw: bytes, dtype: str, meta: dict[str, Any], what: str) -> Array:
    """The elements that sizes and strides choose of an entry."""
    sizes = [whole_number(one_of(size)[1]) for size in field(meta, "sizes", list)]
    strides = [whole_number(one_of(step)[1]) for step in field(meta, "strides", list)]
    first = whole_number(one_of(field(meta, "storage_offset", dict))[1])
    kind = numpy_dtype(dtype)
    count = count_of(sizes, DataType(dtype).bits, what)
    if len(strides) != len(sizes) or first < 0 or any(step < 0 for step in strides):
        raise ValueError(f"{what} has the strides {strides} for the shape {sizes}")
    if not count:
        return np.zeros(sizes, kind)
    steps = zip(sizes, strides, strict=True)
    last = first + sum((size - 1) * step for size, step in steps)
    have = len(raw) // kind.itemsize
    if last >= have:
        raise ValueError(f"{what} reaches element {last} of an entry that holds {have}")
    if count > have and count > 1 << 20:  # a few numbers that pretend to be many
        raise ValueError(f"{what} has {count} elements in an entry that holds {have}")
    flat = np.frombuffer(raw, kind, count=have)[first:]
    # A step of an extent of one is never taken, and may be any number.
    steps_in_bytes = [step * kind.itemsize if size > 1 else 0
                      for size, step in zip(sizes, strides, strict=True)]
    return np.lib.stride_tricks.as_strided(flat, sizes, steps_in_bytes).copy()


# ---- arguments ----

_FLOATS = {"Infinity": float("inf"), "-Infinity": float("-inf"), "NaN": float("nan")}


def _float(value: Any) -> float:
    if isinstance(value, str) and value in _FLOATS:
        return _FLOATS[value]
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    raise ValueError(f"{value!r} is no number")


def _complex(value: Any) -> complex:
    real, imaginary = (_float(field(value, part, object)) for part in ("real", "imag"))
    return complex(real, imaginary)


def _same(value: Any) -> Argument:
    if isinstance(value, bool | int | str):
        return value
    raise ValueError(f"{type(value).__name__} is no argument of an operator")


def _optional(value: Any) -> Argument:
    kind, inner = one_of(value)
    return None if kind == "as_none" else Ref(name_of(inner))


def _symbol(value: Any) -> Argument:
    kind, inner = one_of(value)
    if kind == "as_name":
        return NumberRef(str(inner))
    return _float(inner) if kind == "as_float" else _same(inner)


def _list_of(read: Callable[[Any], Argument]) -> Callable[[Any], Argument]:
    def convert(value: Any) -> Argument:
        if not isinstance(value, list):
            raise ValueError(f"{type(value).__name__} where a list was expected")
        return [read(part) for part in value]

    return convert


def _ref(value: Any) -> Argument:
    return Ref(name_of(value))


def _scalar_type(value: Any) -> Argument:
    return _DTYPES.get(whole_number(value), f"the unknown type {value}")


_READERS: dict[str, Callable[[Any], Argument]] = {
    "as_none": lambda value: None, "as_tensor": _ref, "as_tensors": _list_of(_ref),
    "as_int": _same, "as_ints": _list_of(_same), "as_float": _float,
    "as_complex": _complex, "as_floats": _list_of(_float),
    "as_string": _same, "as_strings": _list_of(_same),
    "as_sym_int": _symbol, "as_sym_ints": _list_of(_symbol), "as_sym_float": _symbol,
    "as_sym_floats": _list_of(_symbol), "as_sym_bool": _symbol,
    "as_sym_bools": _list_of(_symbol), "as_bool": _same, "as_bools": _list_of(_same),
    "as_optional_tensors": _list_of(_optional), "as_optional_tensor": _optional,
    "as_scalar_type": _scalar_type,
    "as_memory_format": lambda value: "memory format", "as_layout": lambda value: "layout",
    "as_device": lambda value: "device",
}


def argument_of(argument: dict[str, Any]) -> Argument:
    """An argument in the record's terms."""
    kind, value = one_of(argument)
    read = _READERS.get(kind)
    return Unreadable(f"an argument of the kind {kind}") if read is None else read(value)


def _ranges(constraints: Mapping[str, Any]) -> dict[str, tuple[int, int]]:
    """Which extents a file allows for its symbols; a bound that is missing is none."""
    found = {}
    for name, limits in constraints.items():
        least, most = (
            None if field(limits, side, object) is None else whole_number(limits[side])
            for side in ("min_val", "max_val")
        )
        allowed = range_of(least, most)
        if allowed is not None:
            found[name] = allowed
    return found


def _output_names(output: Any) -> list[str]:
    kind, value = one_of(output)
    if kind == "as_tensors":
        return [name_of(part) for part in value]
    if kind.startswith("as_sym"):
        return [field(value, "as_name", str)]
    if kind in ("as_none", "as_token"):
        return []
    if kind == "as_tensor":
        return [name_of(value)]
    raise OpNotImplemented(f"a result of the kind {kind}")


_OUTPUTS: dict[str, tuple[OutputKind, str]] = {
    "user_output": ("result", ""), "loss_output": ("result", ""),
    "buffer_mutation": ("buffer", "buffer_name"),
    "parameter_mutation": ("buffer", "parameter_name"),
    "user_input_mutation": ("input", "user_input_name"),
}


def _output(spec: Any) -> ProgramOutput:
    kind, about = one_of(spec)
    if kind not in _OUTPUTS:
        raise OpNotImplemented(f"an output of the kind {kind}")
    meaning, key = _OUTPUTS[kind]
    argument = field(about, "arg", dict)
    value = argument_of(argument) if "name" not in argument else Ref(name_of(argument))
    return ProgramOutput(value, meaning, field(about, key, str) if key else "")
