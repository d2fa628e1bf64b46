"""Loads broken copies of compiled files: what was changed is refused, nothing ends the process."""

import base64
import random
import struct
from pathlib import Path

from sterna import te
from sterna.driver import build
from sterna.runtime import load_module
from sterna.support import seal
from sterna.testing.fuzz.fuzzer import Fuzzer
from sterna.testing.fuzz.mutate import mutate, mutate_head
from sterna.testing.fuzz.tape import Tape

FORMS = (".so", ".o", ".tar", ".a")
ELF_HEADER, PROGRAM_HEADER = 64, 56
_HEADER, _SECTION = struct.Struct("<32xQQ6xHHHHH"), struct.Struct("<IIQQQQIIQQ")
_MAPPED, _CODE = 2, 4
_CONTENT, _STRINGS, _RELOCATIONS, _DYNAMIC, _NOBITS, _SYMBOLS = 1, 3, 4, 6, 8, 11
_INDIRECT = 10  # a symbol whose value is code that the loader runs
# Entries of a dynamic section that are addresses of code.
_RUN = (12, 13)
_Fields = list[tuple[int, int]]


def loaders_zones(library: bytes) -> list[_Fields]:
    """Begins and sizes of what a loader reads of a library, table by table.

    Names, data and code are left out, and where code begins and which symbol a relocation means:
    with another one it is another program, and nobody can say whether it is a good one.
    """
    segments, sections, _, count, _, section_count, _ = _HEADER.unpack_from(library)
    zones = [[(0, ELF_HEADER)], [(segments, PROGRAM_HEADER * count)]]
    for place in range(section_count):
        row = _SECTION.unpack_from(library, sections + _SECTION.size * place)
        _, kind, flags, _, at, size, *_ = row
        if not size or not flags & _MAPPED or flags & _CODE:
            continue
        if kind == _RELOCATIONS:
            rows = range(at, at + size, 24)
            zones.append([field for row in rows for field in ((row, 8), (row + 8, 4))])
        elif kind == _DYNAMIC:
            rows = range(at, at + size, 16)
            is_run = {row for row in rows if struct.unpack_from("<q", library, row)[0] in _RUN}
            zones.append([(row, 8 if row in is_run else 16) for row in rows])
        elif kind == _SYMBOLS:
            rows = range(at, at + size, 24)
            zones.append([(row, 24 if library[row + 4] % 16 != _INDIRECT else 8) for row in rows])
        elif kind not in (_CONTENT, _STRINGS, _NOBITS):
            zones.append([(at, size)])
    return zones


class Loaders(Fuzzer):
    """Files as they are exported, and the same without their seals."""

    name = "loaders"
    about = "compiled files with bytes changed"
    seconds = 20.0

    def __init__(self) -> None:
        self._files: dict[str, bytes] = {}
        self._zones: list[_Fields] = []

    def prepare(self, folder: Path, corpus: Path | None) -> None:
        """Export a function in every form."""
        self._folder = folder
        a = te.placeholder((64,), name="a")
        b = te.compute((64,), lambda i: te.exp(a[i]), name="b")
        module = build(te.create_schedule(b.op), [a, b], "llvm", name="powers")
        for form in FORMS:
            path = folder / f"whole{form}"
            module.export_library(path)
            self._files[form] = path.read_bytes()
        self._zones = loaders_zones(self._files[".so"])

    def check(self, tape: Tape) -> str:
        """Load a broken file."""
        form, data, is_same, is_bare = self._draw(tape)
        path = self._folder / f"broken{form}"
        path.write_bytes(data)
        if form == ".so" and not is_same and not is_bare and not seal.is_sealed(path):
            return "unsealed"  # and code may have been changed, for which nobody vouches
        try:
            load_module(path)
        except ValueError as error:
            assert str(path) in str(error), "the error does not name the file"
            return "refused"
        assert is_same or seal.is_sealed(path) is False, "a file that was changed is loaded"
        return "loaded"

    def _draw(self, tape: random.Random) -> tuple[str, bytes, bool, bool]:
        """The form, the bytes, whether all that is loaded is as it was, or never had a seal."""
        form = tape.choice(FORMS)
        whole = self._files[form]
        if form == ".so" and tape.random() < 0.6:  # as of another compiler
            return form, self._mutate_zone(whole[: -seal.SIZE], tape), False, True
        if form == ".o" and tape.random() < 0.3:
            return form, mutate_head(whole[: -seal.SIZE], tape, ELF_HEADER), False, True
        at_head = tape.random() < 0.4
        made = mutate_head(whole, tape) if at_head else mutate(whole, tape, (1, 1, 2, 3))
        is_same = made.startswith(whole[: -seal.SIZE]) or form in (".a", ".tar")
        return form, made, is_same, False

    def _mutate_zone(self, library: bytes, tape: random.Random) -> bytes:
        """A number or two of what the loader reads."""
        for _ in range(tape.choice((1, 1, 2))):
            begin, size = tape.choice(tape.choice(self._zones))
            zone = mutate_head(library[begin : begin + size], tape, size)[:size]
            library = library[:begin] + zone + library[begin + size :]
        return library

    def program(self, values: list[int], error: str) -> str:
        """The file itself."""
        form, made, *_ = self._draw(Tape(values=values))
        data = base64.b64encode(made).decode()
        return (
            "import base64, pathlib\nfrom sterna.runtime import load_module\n\n"
            f"pathlib.Path('broken{form}').write_bytes(base64.b64decode({data!r}))\n"
            f"load_module('broken{form}')\n"
        )


FUZZER = Loaders()
