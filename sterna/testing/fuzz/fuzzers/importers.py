"""Imports broken copies of models: an import succeeds, or raises ValueError or OpNotImplemented."""

import base64
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import onnx.backend.test
from google.protobuf.message import Message
from onnx import ModelProto

from sterna.relay.frontend import from_onnx
from sterna.support.errors import OpNotImplemented
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.mutate import mutate
from sterna.testing.fuzz.tape import Tape

LARGEST = 400_000  # bytes of a model, so that many are tried

WHOLE = (0, 1, -1, 2, 3, 4, 7, 8, 16, 255, 65536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**60,
         2**62, 2**63 - 1, -(2**63))
REAL = (0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))


# ---- changes of fields ----


def messages(root: Message) -> Iterator[Message]:
    """A message and all in it."""
    stack: list[Any] = [root]
    while stack:
        part = stack.pop()
        yield part
        for field, value in part.ListFields():
            if field.message_type is not None:
                stack.extend(value if field.is_repeated else [value])


def break_field(root: ModelProto, rng: random.Random) -> None:
    """One field of one message changed."""
    parts = [part for part in messages(root) if part.DESCRIPTOR.fields]
    part = rng.choice(parts)
    held = [field for field, _ in part.ListFields()]
    field = rng.choice(held if held and rng.random() < 0.8 else list(part.DESCRIPTOR.fields))
    if field.is_repeated:
        _break_list(part, field, parts, rng)
    elif field.message_type is not None:
        others = [p for p in parts if p.DESCRIPTOR is field.message_type and p is not root]
        part.ClearField(field.name)
        if others and rng.random() < 0.7:
            getattr(part, field.name).CopyFrom(_copy(rng.choice(others)))
    else:
        setattr(part, field.name, _scalar(field, getattr(part, field.name), root, rng))


def _break_list(part: Any, field: Any, parts: Sequence[Message], rng: random.Random) -> None:
    values = getattr(part, field.name)
    kind = rng.randrange(4)
    if len(values) and kind == 0:
        del values[rng.randrange(len(values))]
    elif field.message_type is not None:
        others = [p for p in parts if p.DESCRIPTOR is field.message_type]
        if len(values) and kind == 1:
            kept = [_copy(value) for value in values]
            rng.shuffle(kept)
            del values[:]
            values.extend(kept)
        elif others:
            values.append(_copy(rng.choice(others)))
    elif len(values) and kind < 3:
        place = rng.randrange(len(values))
        values[place] = _scalar(field, values[place], part, rng)
    else:
        values.append(_scalar(field, field.default_value or _empty(field), part, rng))


def _empty(field: Any) -> Any:
    return {field.CPPTYPE_STRING: b"" if field.type == field.TYPE_BYTES else ""}.get(
        field.cpp_type, 0
    )


def _copy(value: Any) -> Any:
    made = type(value)()
    made.CopyFrom(value)
    return made


def _scalar(field: Any, old: Any, root: Any, rng: random.Random) -> Any:
    if field.type == field.TYPE_BYTES:
        return mutate(old or b"\0\0\0\0", rng)
    if field.cpp_type == field.CPPTYPE_STRING:
        names = [
            value for part in messages(root) for inner, value in part.ListFields()
            if inner.cpp_type == inner.CPPTYPE_STRING and isinstance(value, str)
        ]
        return rng.choice([*names, "", "x", old + "_", "../x", "Relu", "Reshape", "Conv"])
    if field.cpp_type in (field.CPPTYPE_FLOAT, field.CPPTYPE_DOUBLE):
        return rng.choice((*REAL, -old))
    if field.cpp_type == field.CPPTYPE_ENUM:
        return rng.choice([value.number for value in field.enum_type.values])
    bits = 32 if field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_UINT32) else 64
    is_signed = field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    wanted = rng.choice((*WHOLE, old + 1, old - 1, old * 2, -old, rng.randrange(64)))
    return min(max(wanted, low), high)


def broken(data: bytes, rng: random.Random) -> bytes:
    """A copy of a model with something wrong."""
    if rng.random() < 0.25:
        return mutate(data, rng)
    model = ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        break_field(model, rng)
    return bytes(model.SerializeToString())


# ---- the fuzzer ----


class Importers(Fuzzer):
    """Broken copies of models are imported or refused, and nothing else happens."""

    name = "importers"
    about = "models of ONNX with fields and bytes changed"
    seconds = 20.0
    memory = 3 << 30

    def __init__(self) -> None:
        self._models: list[bytes] = []

    def prepare(self, folder: Path, corpus: Path | None) -> None:
        """Read the models: those that come with ONNX, and those of the corpus, which count more."""
        self._folder = folder
        data = Path(next(iter(onnx.backend.test.__path__))) / "data"
        given = sorted((corpus / "onnx").glob("*.onnx")) if corpus is not None else []
        found = [*data.glob("*/*/model.onnx"), *given]
        paths = sorted(path for path in found if path.stat().st_size < LARGEST)
        self._models = [path.read_bytes() for path in [*3 * given, *paths]]

    def check(self, tape: Tape) -> str:
        """Import a broken model."""
        path = self._folder / "broken.onnx"
        path.write_bytes(broken(tape.choice(self._models), tape))
        try:
            from_onnx(path, freeze_params=tape.random() < 0.8)
        except (ValueError, OpNotImplemented) as error:
            assert not isinstance(error.__cause__, MemoryError), "it took too much memory"
            return type(error).__name__
        return "imported"

    def program(self, values: list[int], error: str) -> str:
        """The model itself, whatever it was made from."""
        tape = Tape(values=values)
        data = base64.b64encode(broken(tape.choice(self._models), tape)).decode()
        freeze = tape.random() < 0.8
        return (
            "import base64, pathlib\nfrom sterna.relay.frontend import from_onnx\n\n"
            f"pathlib.Path('broken.onnx').write_bytes(base64.b64decode({data!r}))\n"
            f"from_onnx('broken.onnx', freeze_params={freeze})\n"
        )


FUZZER = Importers()
