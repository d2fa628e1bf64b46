"""Imports broken copies of models until its time is over; run by test_onnx_fuzz.py.

    python -m tests.frontend.fuzz_onnx SEED SECONDS FOLDER MODEL...

The file at hand lies in FOLDER as broken.onnx, so that it is there when this process is gone. An
import succeeds, or it raises ValueError or OpNotImplemented; all else ends the program.
"""

import faulthandler
import random
import resource
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf.message import Message
from onnx import ModelProto

from sterna.relay.frontend import from_onnx
from sterna.support.errors import OpNotImplemented

SLOWEST = 20.0
MOST_MEMORY = 3 << 30

WHOLE = (0, 1, -1, 2, 3, 4, 7, 8, 16, 255, 65536, 2**31 - 1, 2**31, -(2**31), 2**32, 2**40, 2**60,
         2**62, 2**63 - 1, -(2**63))
REAL = (0.0, 1.0, -1.0, 0.5, 1e-30, 1e30, float("inf"), float("-inf"), float("nan"))


# ---- changes of bytes ----


def broken_bytes(data: bytes, rng: random.Random) -> bytes:
    """A few bytes changed, left out, repeated or put in, or the end cut off."""
    made = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        if not made:
            break
        place = rng.randrange(len(made))
        length = rng.choice((1, 1, 2, 8, 64))
        kind = rng.randrange(5)
        if kind == 0:
            made[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            made[place : place + length] = rng.randbytes(length)
        elif kind == 2:
            del made[place : place + length]
        elif kind == 3:
            made[place:place] = made[place : place + length]
        else:
            del made[place:]
    return bytes(made)


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
        return broken_bytes(old or b"\0\0\0\0", rng)
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
        return broken_bytes(data, rng)
    model = ModelProto.FromString(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        break_field(model, rng)
    return bytes(model.SerializeToString())


# ---- the run ----


def run(seed: int, seconds: float, folder: Path, paths: Sequence[Path]) -> dict[str, int]:
    """How often imports ended in which way."""
    rng = random.Random(seed)
    corpus = [path.read_bytes() for path in paths]
    limit = resource.getrlimit(resource.RLIMIT_AS)[1]
    resource.setrlimit(resource.RLIMIT_AS, (MOST_MEMORY, limit))
    counts: dict[str, int] = {}
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        data = broken(rng.choice(corpus), rng)
        (folder / "broken.onnx").write_bytes(data)
        faulthandler.dump_traceback_later(SLOWEST, exit=True)
        try:
            from_onnx(folder / "broken.onnx", freeze_params=rng.random() < 0.8)
            ending = "imported"
        except (ValueError, OpNotImplemented) as error:
            ending = type(error).__name__
            assert not isinstance(error.__cause__, MemoryError), "it took too much memory"
        faulthandler.cancel_dump_traceback_later()
        counts[ending] = counts.get(ending, 0) + 1
    return counts


if __name__ == "__main__":
    faulthandler.enable()
    warnings.simplefilter("ignore")
    print(run(int(sys.argv[1]), float(sys.argv[2]), Path(sys.argv[3]),
              [Path(name) for name in sys.argv[4:]]))
