"""A network as a project holds it: what its archive says, and the C that runs it."""

import json
import math
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sterna.support.dtype import DataType
from sterna.support.numpy_dtype import numpy_dtype
from sterna.support.plain_tar import BrokenTarError, content_of, files_in, open_plain_tar

WRONG_KIND = (
    'a project needs a network in C that its own program can call: build it with target="c", '
    'executor=Executor("aot", {"unpacked-api": True, "interface-api": "c"}), '
    'runtime=Runtime("crt")'
)
PER_LINE = 16


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output, and what its member of the network's structure is called."""

    name: str
    member: str
    dtype: str
    shape: tuple[int, ...]
    size: int

    @property
    def type(self) -> str:
        """float32[1, 10]"""
        return f"{self.dtype}{list(self.shape)}"

    @property
    def kind(self) -> str:
        """How its elements are shown; model.h says what the letters mean."""
        known = {"int": "i", "uint": "u", "bool": "u", "float": "f"}
        return known.get(DataType(self.dtype).kind, "b")

    @property
    def element_bytes(self) -> int:
        """Of one element."""
        return numpy_dtype(self.dtype).itemsize

    @property
    def count(self) -> int:
        """How many elements."""
        return self.size // self.element_bytes


@dataclass(frozen=True, slots=True)
class Pool:
    """Memory that the network is given; the header's names for its size and data begin so."""

    member: str
    macro: str
    size: int
    constant: bool


@dataclass(frozen=True, slots=True)
class Network:
    """What an archive says about its one network."""

    name: str
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    workspace_bytes: int
    constant_bytes: int
    pools: tuple[Pool, ...]
    operands_in_pools: bool
    """Whether inputs and outputs lie in the network's own memory."""

    def to_json(self) -> dict[str, Any]:
        """As project.json keeps it."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Network":
        """From project.json."""
        inputs, outputs = (tuple(map(_tensor, data[side])) for side in ("inputs", "outputs"))
        pools = tuple(
            Pool(_word(row, "member"), _word(row, "macro"), _number(row, "size"), constant)
            for row in data["pools"] for constant in (bool(row["constant"]),)
        )
        return cls(_word(data, "name"), inputs, outputs, _number(data, "workspace_bytes"),
                   _number(data, "constant_bytes"), pools, bool(data["operands_in_pools"]))


def _word(row: Mapping[str, Any], name: str) -> str:
    if not isinstance(found := row[name], str):
        raise TypeError(f"{name} is {found!r}, and no text")
    return found


def _number(row: Mapping[str, Any], name: str) -> int:
    if type(found := row[name]) is not int or found < 0:
        raise TypeError(f"{name} is {found!r}, and no number of bytes")
    return found


def _tensor(row: Mapping[str, Any]) -> Tensor:
    kind = DataType(_word(row, "dtype"))
    if kind.is_packed:
        raise ValueError(
            f"'{row['name']}' is of type {kind}: inputs and outputs of a project have whole bytes; "
            "cast it inside the network"
        )
    shape, size = tuple(row["shape"]), _number(row, "size")
    if not all(type(extent) is int and extent >= 0 for extent in shape) or (
        size != kind.bytes_of(math.prod(shape))
    ):
        raise TypeError(f"the shape {row['shape']!r} does not take {size} bytes")
    return Tensor(_word(row, "name"), _word(row, "member"), _word(row, "dtype"), shape, size)


def unpack_network(archive: Path, folder: Path) -> Network:
    """Put the code and the header of an archive's network into a folder."""
    try:
        with open_plain_tar(archive) as tar:
            members = {name.removeprefix("./"): info for name, info in files_in(tar).items()}
            network = _read_metadata(json.loads(_content(tar, members, "metadata.json")))
            for name in (f"src/{network.name}_lib0.c", f"include/tvmgen_{network.name}.h"):
                content = _content(tar, members, f"codegen/host/{name}")
                (folder / Path(name).name).write_bytes(content)
    except (BrokenTarError, json.JSONDecodeError, RecursionError, UnicodeDecodeError) as error:
        raise ValueError(f"'{archive}' is no archive of a network: {error}") from None
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"the description in '{archive}' is not as this version writes it ({error!r}); export "
            "the network again"
        ) from None
    return network


def _content(
    tar: tarfile.TarFile, members: Mapping[str, tarfile.TarInfo], name: str
) -> bytes:
    if name not in members:
        raise ValueError(f"the archive has no {name}; {WRONG_KIND}")
    return content_of(tar, members[name])


def _read_metadata(metadata: Any) -> Network:
    modules = metadata.get("modules", {}) if isinstance(metadata, dict) else {}
    if len(modules) != 1:
        raise ValueError(f"a project holds one network; the archive has {len(modules)}")
    ((name, module),) = modules.items()
    if "interface" not in module:
        raise ValueError(WRONG_KIND)
    (main,) = module["memory"]["functions"]["main"]
    return Network.from_json({
        "name": name, **module["interface"],
        "workspace_bytes": main["workspace_size_bytes"],
        "constant_bytes": main["constants_size_bytes"],
    })


# ---- sample inputs ----

Arrays = dict[str, "np.ndarray[Any, Any]"]


def sample_inputs(network: Network, path: str | None) -> Arrays:
    """The example's inputs: those of a file, or numbers that are the same every time."""
    if path is None:
        return draw_inputs(network)
    try:
        with np.load(path, allow_pickle=False) as file:
            given = dict(file.items()) if hasattr(file, "items") else {}
    except (OSError, ValueError, EOFError) as error:
        raise ValueError(f"sample_inputs '{path}' is no .npz file of arrays: {error}") from None
    for tensor in network.inputs:
        array = given.get(tensor.name)
        if array is not None and array.dtype == f"V{tensor.element_bytes}":
            array = given[tensor.name] = array.view(numpy_dtype(tensor.dtype))
        if array is None or array.shape != tensor.shape or str(array.dtype) != tensor.dtype:
            found = "none" if array is None else f"{array.dtype}{list(array.shape)}"
            raise ValueError(
                f"sample_inputs '{path}': input '{tensor.name}' takes {tensor.type}; the file has "
                f"{found}"
            )
    return given


def draw_inputs(network: Network) -> Arrays:
    """Normal floats, any bytes, and 0 or 1 for wider integers, which may be indices."""
    generator = np.random.default_rng(0)
    return {tensor.name: _drawn(generator, tensor) for tensor in network.inputs}


def _drawn(generator: np.random.Generator, tensor: Tensor) -> "np.ndarray[Any, Any]":
    dtype = numpy_dtype(tensor.dtype)
    if tensor.kind in "iu" and tensor.element_bytes == 1 and tensor.dtype != "bool":
        limits = np.iinfo(dtype)
        return generator.integers(limits.min, limits.max + 1, tensor.shape).astype(dtype)
    if tensor.kind in "iu":
        return generator.integers(0, 2, tensor.shape).astype(dtype)
    return generator.standard_normal(tensor.shape, dtype="float32").astype(dtype)


# ---- model.c ----


def model_source(network: Network, samples: Arrays | None) -> str:
    """The text of model.c; with samples the inputs are constants, else they are in RAM."""
    prefix = f"tvmgen_{network.name}"
    parts = [
        '/* Connects the network with the project: see model.h. */\n\n#include "model.h"\n\n'
        f'#include <string.h>\n\n#include "{prefix}.h"\n\n'
        "#define ALIGNED __attribute__((aligned(16)))"
    ]
    for place, tensor in enumerate(network.inputs):
        if samples is None:
            parts.append(f"static ALIGNED uint8_t input_{place}[{max(1, tensor.size)}];")
        else:
            parts.append(_constant(f"input_{place}", samples[tensor.name].tobytes()))
    for place, tensor in enumerate(network.outputs):
        parts.append(f"static ALIGNED uint8_t output_{place}[{max(1, tensor.size)}];")
    parts += [_pool(place, pool) for place, pool in enumerate(network.pools)]
    for side, tensors in (("input", network.inputs), ("output", network.outputs)):
        rows = [_row(tensor, f"{side}_{place}") for place, tensor in enumerate(tensors)]
        rows = rows or ['  {"", "", \'b\', 1, 0, 0},']
        parts.append("\n".join([f"const struct model_tensor model_{side}s[] = {{", *rows, "};"]))
        parts.append(f"const uint32_t model_{side}_count = {len(tensors)};")
    parts.append(_run(network, prefix))
    return "\n\n".join(parts) + "\n"


def _pool(place: int, pool: Pool) -> str:
    size, aligned = f"{pool.macro}_SIZE", f"__attribute__((aligned({pool.macro}_ALIGNMENT)))"
    if pool.constant:
        return f"static const {aligned} uint8_t pool_{place}[{size}] = {pool.macro}_DATA;"
    return f"static {aligned} uint8_t pool_{place}[{size}];"


def _run(network: Network, prefix: str) -> str:
    pools = ", ".join(f".{pool.member} = pool_{i}" for i, pool in enumerate(network.pools))
    lines, given = ["int32_t model_run(void) {"], []
    if network.pools:
        lines.append(f"  struct {prefix}_workspace_pools pools = {{{pools}}};")
        given = ["&pools"]
    if network.operands_in_pools:
        return "\n".join([*lines, *_copying(network, prefix, ", ".join(given)), "}"])
    for side, tensors in (("input", network.inputs), ("output", network.outputs)):
        values = ", ".join(f".{t.member} = model_{side}s[{i}].data" for i, t in enumerate(tensors))
        lines.append(f"  struct {prefix}_{side}s {side}s = {{{values or '0'}}};")
    call = ", ".join(["&inputs", "&outputs", *given])
    return "\n".join([*lines, f"  return {prefix}_run({call});", "}"])


def _copying(network: Network, prefix: str, pools: str) -> list[str]:
    """The lines that run a network whose inputs and outputs lie in its own memory."""
    inputs = [f"  memcpy(inputs.{t.member}, model_inputs[{i}].data, {t.size});"
              for i, t in enumerate(network.inputs)]
    outputs = [f"  memcpy(model_outputs[{i}].data, outputs.{t.member}, {t.size});"
               for i, t in enumerate(network.outputs)]
    return [
        f"  struct {prefix}_inputs inputs = {prefix}_map_inputs({pools});", *inputs,
        f"  const int32_t status = {prefix}_run({pools});",
        f"  struct {prefix}_outputs outputs = {prefix}_map_outputs({pools});", *outputs,
        "  return status;",
    ]


def _row(tensor: Tensor, data: str) -> str:
    fields = f"'{tensor.kind}', {tensor.element_bytes}, {tensor.count}, (void *){data}"
    return f"  {{{_text(tensor.name)}, {_text(tensor.type)}, {fields}}},"


def _text(text: str) -> str:
    """A C string; a name may hold anything."""
    escaped = "".join(
        chr(byte) if 32 <= byte < 127 and chr(byte) not in '"\\?' else f"\\{byte:03o}"
        for byte in text.encode()
    )
    return f'"{escaped}"'


def _constant(name: str, data: bytes) -> str:
    rows: Sequence[str] = [
        ", ".join(map(str, data[at : at + PER_LINE])) for at in range(0, len(data), PER_LINE)
    ]
    body = ",\n  ".join(rows or ["0"])
    return f"static const ALIGNED uint8_t {name}[{max(1, len(data))}] = {{\n  {body}\n}};"
