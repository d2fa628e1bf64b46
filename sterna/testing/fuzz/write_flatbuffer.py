"""A writer of small flatbuffers: tables by slot, each followed by what its offsets lead to."""

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Number:
    """A number of a form of the module struct."""

    form: str
    value: float


@dataclass(frozen=True, slots=True)
class Numbers:
    """A vector of numbers of a form of the module struct."""

    form: str
    values: Sequence[float]


Fields = Mapping[int, "Number | Numbers | str | Fields | list[Fields]"]


def write_flatbuffer(root: Fields, identifier: bytes) -> bytes:
    """The bytes of a flatbuffer."""
    made = bytearray(struct.pack("<I4s", 0, identifier))
    _lead(made, 0, _table(made, root))
    return bytes(made)


def _lead(made: bytearray, place: int, target: int) -> None:
    struct.pack_into("<I", made, place, target - place)


def _align(made: bytearray) -> None:
    made.extend(bytes(-len(made) % 8))


def _table(made: bytearray, fields: Fields) -> int:
    """A table behind its vtable; every field has 8 bytes."""
    _align(made)
    slots = max(fields, default=-1) + 1
    order = sorted(fields)
    offsets = [8 + 8 * order.index(slot) if slot in fields else 0 for slot in range(slots)]
    vtable = len(made)
    made.extend(struct.pack(f"<HH{slots}H", 4 + 2 * slots, 8 + 8 * len(order), *offsets))
    _align(made)
    start = len(made)
    made.extend(struct.pack("<ii", start - vtable, 0) + bytes(8 * len(order)))
    for slot in order:
        place, value = start + offsets[slot], fields[slot]
        if isinstance(value, Number):
            struct.pack_into(f"<{value.form}", made, place, value.value)
        else:
            _lead(made, place, _value(made, value))
    return start


def _value(made: bytearray, value: "Numbers | str | Fields | list[Fields]") -> int:
    if isinstance(value, Mapping):
        return _table(made, value)
    _align(made)
    made.extend(bytes(4))  # elements of 8 bytes lie where they should
    start = len(made)
    if isinstance(value, str):
        data = value.encode()
        made.extend(struct.pack("<I", len(data)) + data + b"\0")
    elif isinstance(value, Numbers):
        made.extend(struct.pack(f"<I{len(value.values)}{value.form}", len(value.values),
                                *value.values))
    else:
        made.extend(struct.pack("<I", len(value)) + bytes(4 * len(value)))
        for index, part in enumerate(value):
            _lead(made, start + 4 + 4 * index, _table(made, part))
    return start
