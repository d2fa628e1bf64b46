"""Which machine the code in a file is made for, read from the file itself.

architecture_of reads libraries, programs, objects, archives of these (.a, .tar) and WebAssembly, in
the forms ELF, Mach-O, COFF and wasm. It takes nothing that a file says of itself on trust: what is
broken is a ValueError.
"""

import os
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import BinaryIO

from sterna.support import elf_attributes
from sterna.support.file_view import BrokenFileError, FileView

AR_MAGIC = b"!<arch>\n"
_AR_HEADER = 60
_MOST_SLICES = 30
"""More architectures than any Mach-O file has; Java's classes begin alike, with larger numbers."""

_NAMES = {
    ("x86", 64): "x86-64", ("x86", 32): "32-bit x86", ("aarch64", 64): "AArch64",
    ("arm", 32): "32-bit ARM", ("riscv", 64): "64-bit RISC-V", ("riscv", 32): "32-bit RISC-V",
    ("wasm", 32): "WebAssembly", ("hexagon", 32): "Hexagon", ("powerpc", 64): "64-bit PowerPC",
    ("powerpc", 32): "32-bit PowerPC", ("s390x", 64): "s390x", ("loongarch", 64): "LoongArch",
    ("loongarch", 32): "32-bit LoongArch", ("mips", 32): "MIPS", ("mips", 64): "64-bit MIPS",
    ("avr", 32): "AVR",
}
_FORMATS = {"elf": "ELF", "macho": "Mach-O", "coff": "COFF", "wasm": "wasm"}
_FLOATS = {
    "hard": "hard float", "soft": "soft float", "single": "single float", "double": "double float",
    "quad": "quad float",
}


class MixedCodeError(BrokenFileError):
    """An archive holds code that no one machine runs."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """What code needs in order to be loaded: a processor, and a system with its form of files."""

    format: str
    """elf, macho, coff or wasm."""
    processor: str
    """x86, aarch64, arm, riscv, wasm, hexagon, ..."""
    bits: int
    little_endian: bool = True
    float_abi: str = ""
    """How numbers are passed: hard or soft on ARM; soft, single, double or quad on RISC-V; empty
    where there is no choice or the file does not say."""

    @property
    def endianness(self) -> str:
        """little or big."""
        return "little" if self.little_endian else "big"

    def runs_on(self, machine: "Architecture") -> bool:
        """Whether a machine whose own code is of an architecture loads code of this one."""
        return (
            (self.format, self.processor, self.bits, self.little_endian)
            == (machine.format, machine.processor, machine.bits, machine.little_endian)
            and (not self.float_abi or not machine.float_abi or self.float_abi == machine.float_abi)
        )

    def __str__(self) -> str:
        name = _NAMES.get((self.processor, self.bits), f"{self.processor} ({self.bits} bits)")
        words = [
            *([] if self.little_endian else ["big-endian"]),
            *([_FLOATS[self.float_abi]] if self.float_abi else []),
            *([_FORMATS[self.format]] if self.format != "wasm" else []),
        ]
        return f"{name} ({', '.join(words)})" if words else name


def architecture_of(path: str | os.PathLike[str]) -> Architecture:
    """The one architecture of the code in a file; ValueError if it has none or a choice of them."""
    found = architectures_of(path)
    if len(found) > 1:
        raise ValueError(
            f"'{os.fspath(path)}' holds code for each of {_listed(found)}; architectures_of gives "
            "all of them"
        )
    return found[0]


def architectures_of(path: str | os.PathLike[str]) -> tuple[Architecture, ...]:
    """The architectures that a file holds code for; more than one only in Mach-O's fat files."""
    try:
        found = _read(path)
    except BrokenFileError as error:
        raise ValueError(f"'{os.fspath(path)}' is broken: {error}") from None
    if found is None:
        raise ValueError(
            f"'{os.fspath(path)}' is no library, object, archive or WebAssembly module that is "
            "known: it is neither ELF, Mach-O, COFF nor wasm"
        )
    return found


def require_architecture(path: str | os.PathLike[str], machine: Architecture) -> None:
    """A ValueError that names both and the way out unless a machine loads the code in a file.

    Files that no architecture can be read from are left to their loader, which says what they are.
    """
    try:
        found = _read(path)
    except MixedCodeError as error:
        raise ValueError(f"cannot load '{os.fspath(path)}': {error}") from None
    except (BrokenFileError, OSError):
        return
    if found is not None and not any(each.runs_on(machine) for each in found):
        raise ValueError(
            f"cannot load '{os.fspath(path)}': it is built for {_listed(found)}, and this machine "
            f"is {machine}; {_way_out(found[0])}"
        )


def _read(path: str | os.PathLike[str]) -> tuple[Architecture, ...] | None:
    with open(path, "rb") as file:
        view = FileView(file, 0, os.fstat(file.fileno()).st_size)
        return _of_tar(file) if _is_tar(view) else _of_fat(view) or _of_archive(view)


def _way_out(built: Architecture) -> str:
    if built.processor == "wasm":
        return "run it in Node, a browser or wasmtime, or build it for this machine's target"
    return "build it for this machine's target (llvm), or run it on a machine of its own kind"


def _listed(found: Iterable[Architecture]) -> str:
    return " and ".join(map(str, found))


# ---- files that hold others ----


def _of_archive(view: FileView) -> tuple[Architecture, ...] | None:
    """Of an archive's members, or of a file that is none; None if it is none of the forms."""
    if view.head(len(AR_MAGIC)) == AR_MAGIC:
        return _the_same(_of_code(member) for _, member in archive_members(view))
    return _of_code(view)


def _of_code(view: FileView) -> tuple[Architecture, ...] | None:
    for read in (_elf, _macho, _wasm, _pe, _coff):
        one = read(view)
        if one is not None:
            return (one,)
    return None


def _is_tar(view: FileView) -> bool:
    return view.head(262)[257:] == b"ustar"


def _of_tar(file: BinaryIO) -> tuple[Architecture, ...]:
    file.seek(0)
    found = []
    try:
        with tarfile.open(fileobj=file, mode="r:") as archive:
            for info in archive:
                member = archive.extractfile(info) if info.isreg() else None
                if member is not None:
                    found.append(_of_archive(FileView(member, 0, info.size)))
    except (tarfile.TarError, EOFError) as error:
        raise BrokenFileError(f"it is no complete tar file ({error})") from None
    return _the_same(found)


def _the_same(
    members: Iterable[tuple[Architecture, ...] | None],
) -> tuple[Architecture, ...]:
    """The architecture of all members that are code."""
    distinct = dict.fromkeys(found for found in members if found is not None)
    first = next(iter(distinct), None)
    if first is None:
        raise BrokenFileError("it is an archive without any code")
    for other in distinct:
        if not all(a.runs_on(b) for a, b in zip(first, other, strict=False)):
            raise MixedCodeError(
                f"it mixes code for {_listed(first)} with code for {_listed(other)}"
            )
    return max(distinct, key=lambda found: len(found[0].float_abi))


def archive_members(view: FileView) -> Iterator[tuple[str, FileView]]:
    """The files in an archive (.a), without its tables."""
    at = len(AR_MAGIC)
    while at < view.size:
        header = view.read(at, _AR_HEADER)
        digits, end = header[48:58].strip(), header[58:]
        if end != b"`\n" or not digits.isdigit():
            raise BrokenFileError(f"the archive is broken at byte {at}")
        member = view.part(at + _AR_HEADER, int(digits))
        name = header[:16].decode("latin-1").rstrip()
        if name.startswith("#1/") and name[3:].isdigit():  # BSD's: the name precedes the content
            length = int(name[3:])
            name = member.read(0, length).rstrip(b"\0").decode("latin-1")
            member = member.part(length, member.size - length)
        if not name.startswith(("/", "__.SYMDEF")):
            yield name.removesuffix("/"), member
        at += _AR_HEADER + int(digits) + int(digits) % 2


def _of_fat(view: FileView) -> tuple[Architecture, ...] | None:
    """Mach-O for several processors in one file."""
    magic = view.head(4)
    if magic not in (b"\xca\xfe\xba\xbe", b"\xca\xfe\xba\xbf"):
        return None
    count, entry = view.number(4, 4, "big"), 32 if magic[3] == 0xBF else 20
    if not 0 < count <= _MOST_SLICES:
        return None
    found: list[Architecture] = []
    for index in range(count):
        at = 8 + index * entry
        width = 8 if entry == 32 else 4
        begin, size = view.number(at + 8, width, "big"), view.number(at + 8 + width, width, "big")
        slice_of = _of_archive(view.part(begin, size))
        if slice_of is None:
            raise BrokenFileError("a part of it for one processor is no Mach-O file")
        found += slice_of
    return tuple(dict.fromkeys(found))


# ---- the forms ----

_ELF_MACHINES = {
    3: "x86", 62: "x86", 183: "aarch64", 40: "arm", 243: "riscv", 164: "hexagon", 20: "powerpc",
    21: "powerpc", 22: "s390x", 258: "loongarch", 8: "mips", 83: "avr",
}
_RISCV_FLOATS = ("soft", "single", "double", "quad")


def _elf(view: FileView) -> Architecture | None:
    head = view.head(64)
    if not head.startswith(b"\x7fELF"):
        return None
    ident = view.read(0, 20)
    if ident[4] not in (1, 2) or ident[5] not in (1, 2):
        raise BrokenFileError("its ELF header names no word size or byte order")
    bits, little = (32, 64)[ident[4] - 1], ident[5] == 1
    order = view.order(little)
    number = view.number(18, 2, order)
    processor = _ELF_MACHINES.get(number, f"ELF machine {number}")
    flags = view.number(36 if bits == 32 else 48, 4, order)
    float_abi = ""
    if processor == "riscv":
        float_abi = _RISCV_FLOATS[flags >> 1 & 3]
    elif processor == "arm":
        float_abi = {0x200: "soft", 0x400: "hard"}.get(flags & 0x600, "")
        float_abi = float_abi or elf_attributes.arm_float_abi(view, order)
    return Architecture("elf", processor, bits, little, float_abi)


_MACHO_PROCESSORS = {7: "x86", 12: "aarch64", 18: "powerpc"}
_MACHO_MAGICS = {
    b"\xce\xfa\xed\xfe": (32, True), b"\xcf\xfa\xed\xfe": (64, True),
    b"\xfe\xed\xfa\xce": (32, False), b"\xfe\xed\xfa\xcf": (64, False),
}


def _macho(view: FileView) -> Architecture | None:
    form = _MACHO_MAGICS.get(view.head(4))
    if form is None:
        return None
    bits, little = form
    number = view.number(4, 4, view.order(little)) & 0xFFFFFF
    processor = _MACHO_PROCESSORS.get(number, f"Mach-O processor {number}")
    return Architecture("macho", "arm" if (number, bits) == (12, 32) else processor, bits, little)


def _wasm(view: FileView) -> Architecture | None:
    if view.head(4) != b"\0asm":
        return None
    if view.number(4, 4, "little") != 1:
        raise BrokenFileError("it is WebAssembly of a version that is not known")
    return Architecture("wasm", "wasm", 32)


_COFF_MACHINES = {
    0x8664: ("x86", 64), 0x14C: ("x86", 32), 0xAA64: ("aarch64", 64), 0x1C4: ("arm", 32),
}
_COFF_HEADER = 20


def _pe(view: FileView) -> Architecture | None:
    if view.head(2) != b"MZ":
        return None
    at = view.number(0x3C, 4, "little")
    if view.read(at, 4) != b"PE\0\0":
        raise BrokenFileError("it begins as programs of Windows do, but is none")
    return _of_coff_machine(view.number(at + 4, 2, "little"))


def _coff(view: FileView) -> Architecture | None:
    """An object of Windows, which has no mark but its processor's number."""
    head = view.head(_COFF_HEADER)
    if len(head) < _COFF_HEADER:
        return None
    if head[:4] == b"\0\0\xff\xff":  # one with many sections
        return _of_coff_machine(int.from_bytes(head[6:8], "little"))
    number, sections = int.from_bytes(head[:2], "little"), int.from_bytes(head[2:4], "little")
    symbols, options = int.from_bytes(head[8:12], "little"), int.from_bytes(head[16:18], "little")
    is_object = number in _COFF_MACHINES and sections > 0 and not options
    if not is_object or max(symbols, _COFF_HEADER + 40 * sections) > view.size:
        return None
    return _of_coff_machine(number)


def _of_coff_machine(number: int) -> Architecture:
    processor, bits = _COFF_MACHINES.get(number, (f"COFF machine {number:#x}", 64))
    return Architecture("coff", processor, bits)
