"""What a wheel may hold: libraries for its own platform that need nothing but the system's.

Linux wheels are judged as auditwheel does: which libraries a file names, and which versions of
glibc's symbols. Files of macOS are judged by their processor and least system, those of Windows by
their processor and the libraries that they import from.
"""

import re
import struct
import zipfile
from collections.abc import Iterator
from pathlib import Path

SYSTEM_LIBRARIES = frozenset(
    f"lib{name}" for name in ("c.so.6", "m.so.6", "dl.so.2", "pthread.so.0", "rt.so.1")
) | {"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}
OWN_LIBRARY = re.compile(r"libsterna(_\w+)?\.so")
ELF_MACHINES = {"x86_64": 62, "aarch64": 183}
MACH_MACHINES = {"x86_64": 0x01000007, "arm64": 0x0100000C}
PE_MACHINES = {"win_amd64": 0x8664}
WINDOWS_LIBRARY = re.compile(
    r"(kernel32|ntdll|advapi32|api-ms-win-[\w-]+|ucrtbase|sterna(_\w+)?|python3\d*)\.dll", re.I
)
MACH_O, BUILD_VERSION, MINIMUM_VERSION = 0xFEEDFACF, 0x32, 0x24
_LOAD, _DYNAMIC = 1, 2
_NEEDED, _STRINGS, _VERSIONS, _VERSION_COUNT = 1, 5, 0x6FFFFFFE, 0x6FFFFFFF


def check_wheel(path: Path) -> list[str]:
    """What is wrong with a wheel; nothing if it may be released."""
    tag = path.stem.rsplit("-", 1)[1]
    found = []
    with zipfile.ZipFile(path) as wheel:
        libraries = [n for n in wheel.namelist() if n.endswith((".so", ".dylib", ".dll", ".pyd"))]
        if not any("/_core" in name for name in libraries):
            found.append("it has no binding of the runtime")
        for name in libraries:
            found += [f"{name}: {each}" for each in check_library(wheel.read(name), tag)]
    return found


def check_library(content: bytes, tag: str) -> list[str]:
    """What is wrong with a library in a wheel for a platform."""
    linux = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", tag)
    if linux:
        newest = int(linux[1]), int(linux[2])
        return _check_elf(content, linux[3], newest)
    mac = re.fullmatch(r"macosx_(\d+)_(\d+)_(\w+)", tag)
    if mac:
        return _check_mach_o(content, mac[3], (int(mac[1]), int(mac[2])))
    if tag in PE_MACHINES:
        return _check_pe(content, tag)
    return [f"wheels for {tag} are not known"]


# ---- Linux ----


def _check_elf(content: bytes, machine: str, newest: tuple[int, int]) -> list[str]:
    if content[:6] != b"\x7fELF\x02\x01":
        return ["it is no ELF file of 64 bits"]
    if struct.unpack_from("<H", content, 18) != (ELF_MACHINES[machine],):
        return [f"it is for another processor than {machine}"]
    elf = _Elf(content)
    found = [f"it needs {name}, which is not part of every system" for name in elf.needed()
             if name not in SYSTEM_LIBRARIES and not OWN_LIBRARY.fullmatch(name)]
    for version in elf.versions():
        number = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version)
        if number and (int(number[1]), int(number[2])) > newest:
            promised = f"{newest[0]}.{newest[1]}"
            found.append(f"it needs {version}, and the wheel promises glibc {promised}")
    return found


class _Elf:
    """The dynamic section of a shared library."""

    def __init__(self, content: bytes) -> None:
        self.content = content
        (table,), (count,) = struct.unpack_from("<Q", content, 32), struct.unpack_from(
            "<H", content, 56
        )
        rows = [struct.unpack_from("<IIQQQQQQ", content, table + 56 * i) for i in range(count)]
        self.loads: list[tuple[int, int, int]] = [
            (row[3], row[2], row[5]) for row in rows if row[0] == _LOAD
        ]
        self.entries: list[tuple[int, int]] = [
            pair for row in rows if row[0] == _DYNAMIC
            for pair in struct.iter_unpack("<qQ", content[row[2] : row[2] + row[5] // 16 * 16])
        ]
        self.strings = self._place(dict(self.entries)[_STRINGS])

    def _place(self, address: int) -> int:
        return next(offset + address - start for start, offset, size in self.loads
                    if start <= address < start + size)

    def _text(self, at: int) -> str:
        begin = self.strings + at
        return self.content[begin : self.content.index(b"\0", begin)].decode()

    def needed(self) -> list[str]:
        """The libraries that it names."""
        return [self._text(value) for tag, value in self.entries if tag == _NEEDED]

    def versions(self) -> Iterator[str]:
        """The versions of symbols that it wants of other libraries."""
        known = dict(self.entries)
        if _VERSIONS not in known:
            return
        at = self._place(known[_VERSIONS])
        for _ in range(known[_VERSION_COUNT]):
            _, count, _, first, following = struct.unpack_from("<HHIII", self.content, at)
            inner = at + first
            for _ in range(count):
                *_, name, step = struct.unpack_from("<IHHII", self.content, inner)
                yield self._text(name)
                inner += step
            at += following


# ---- macOS ----


def _check_mach_o(content: bytes, machine: str, least: tuple[int, int]) -> list[str]:
    magic, processor, _, _, count, _, _, _ = struct.unpack_from("<8I", content)
    if magic != MACH_O:
        return ["it is no Mach-O file of 64 bits"]
    if processor != MACH_MACHINES[machine]:
        return [f"it is for another processor than {machine}"]
    at = 32
    for _ in range(count):
        kind, size = struct.unpack_from("<II", content, at)
        if kind in (BUILD_VERSION, MINIMUM_VERSION):
            behind = 12 if kind == BUILD_VERSION else 8
            (version,) = struct.unpack_from("<I", content, at + behind)
            wants = version >> 16, version >> 8 & 0xFF
            return [] if wants <= least else [f"it needs macOS {wants[0]}.{wants[1]}"]
        at += size
    return ["it names no least system"]


# ---- Windows ----


def _check_pe(content: bytes, tag: str) -> list[str]:
    (header,) = struct.unpack_from("<I", content, 0x3C)
    if content[:2] != b"MZ" or content[header : header + 4] != b"PE\0\0":
        return ["it is no library of Windows"]
    machine, sections, _, _, _, optional = struct.unpack_from("<HHIIIH", content, header + 4)
    if machine != PE_MACHINES[tag]:
        return [f"it is for another processor than {tag}"]
    begin = header + 24
    (imports,) = struct.unpack_from("<I", content, begin + 120)
    table: list[tuple[int, int, int, int]] = [
        struct.unpack_from("<8xIIII", content, begin + optional + 40 * i) for i in range(sections)
    ]

    def place(address: int) -> int:
        return next(raw + address - start for size, start, raw_size, raw in table
                    if start <= address < start + max(size, raw_size))

    found = []
    at = place(imports) if imports else len(content)
    while at + 20 <= len(content):
        (name,) = struct.unpack_from("<12xI", content, at)
        if not name:
            break
        text = content[place(name) : content.index(b"\0", place(name))].decode("latin-1")
        if not WINDOWS_LIBRARY.fullmatch(text):
            found.append(f"it needs {text}, which is not part of every system")
        at += 20
    return found
