"""What a program takes of a board's memory, from its ELF file."""

import struct
from dataclasses import dataclass
from pathlib import Path

_HEADS = {1: ("<32x I 10x HH", "<II II II"), 2: ("<40x Q 10x HH", "<II QQ QQ")}
"""By class, 32 or 64 bits: where sections are described, and how a description begins."""
NOBITS, WRITABLE, ALLOCATED = 8, 1, 2


@dataclass(frozen=True, slots=True)
class ProgramSize:
    """Bytes: flash holds code, constants and first values; RAM holds variables."""

    flash: int
    ram: int


def program_size(path: Path) -> ProgramSize:
    """The size of a linked program; the stack is no part of it."""
    data = path.read_bytes()
    kind = data[4] if data[:4] == b"\x7fELF" else 0
    if kind not in _HEADS:
        raise ValueError(f"'{path}' is no program (ELF)")
    head, section = _HEADS[kind]
    flash = ram = 0
    try:
        start, each, count = struct.unpack_from(head, data)
        for place in range(count):
            described = struct.unpack_from(section, data, start + place * each)
            _, what, flags, _, _, size = described
            if not flags & ALLOCATED:
                continue
            flash += 0 if what == NOBITS else size
            ram += size if flags & WRITABLE else 0
    except struct.error:
        raise ValueError(f"'{path}' ends before its sections do") from None
    return ProgramSize(flash, ram)
