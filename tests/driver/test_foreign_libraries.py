"""Libraries without a seal: honest ones load, and those that would end a loader are refused."""

import io
import random
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from sterna.support.elf_check import check_elf
from sterna.support.file_view import BrokenFileError, FileView
from sterna.testing.fuzz.fuzzers.loaders import loaders_zones
from sterna.testing.fuzz.mutate import mutate_head
from tests.support import require_program

SOURCE = """
float expf(float), sinf(float);
const void *__sterna__host;
__thread int mine = 5;
static __thread long other;
static int impl(int x) { return x + mine; }
static int (*resolve(void))(int) { return impl; }
int indirect(int) __attribute__((ifunc("resolve")));
static int counter = 3;
int *pointer = &counter;
float (*table[])(float) = {expf, sinf};
__attribute__((constructor)) static void begin(void) { counter++; }
__attribute__((destructor)) static void end(void) { counter--; }
float run(float x) { other++; return expf(x) + *pointer + indirect(1); }
"""
LINKS = [
    ["-Wl,--hash-style=gnu"],
    ["-Wl,--hash-style=sysv", "-Wl,-z,now"],
    ["-Wl,--hash-style=both", "-Wl,-z,noseparate-code", "-s"],
    ["-Wl,-z,norelro", "-Wl,-x", "-Wl,--version-script=versions"],
    ["-Wl,-z,separate-code", "-Wl,-z,relro,-z,lazy", "-nostartfiles"],
]
# Kinds of segments and sections, and entries of a dynamic section.
DYNAMIC, NOTE, TLS, READ_ONLY_LATER = 2, 4, 7, 0x6474E552
SYMBOLS, HASH, GNU_HASH, VERSIONS, NEEDED_VERSIONS = 11, 5, 0x6FFFFFF6, 0x6FFFFFFF, 0x6FFFFFFE
RELOCATIONS, INIT_ARRAY = 4, 14
PLT_SIZE, RELA_ROW, PLT_KIND, INIT, RELATIVE_COUNT = 2, 9, 20, 12, 0x6FFFFFF9


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A library with all that linkers put into one."""
    return link(tmp_path_factory.mktemp("libraries"), ["-Wl,--hash-style=both,--build-id"])


def link(folder: Path, options: list[str]) -> bytes:
    """A library of the source."""
    (folder / "a.c").write_text(SOURCE)
    (folder / "versions").write_text("V_1 { global: run; pointer; local: *; };")
    words = [require_program("cc"), "-O1", "-shared", "-fPIC", "a.c", "-o", "a.so", *options, "-lm"]
    subprocess.run(words, cwd=folder, check=True)
    return (folder / "a.so").read_bytes()


def check(data: bytes | bytearray) -> None:
    """A BrokenFileError if it is refused."""
    check_elf(FileView(io.BytesIO(data), 0, len(data)))


class Parts:
    """A library to be changed, and where its parts are."""

    def __init__(self, data: bytes) -> None:
        self.data = bytearray(data)
        (segments, sections), counts = self.get("<QQ", 32), self.get("<6H", 52)
        self.segments = {
            self.get("<I", at)[0]: at for at in range(segments, segments + 56 * counts[2], 56)
        }
        self.sections: dict[int, int] = {}
        for at in range(sections, sections + 64 * counts[4], 64):
            _, kind, flags, _, offset = self.get("<IIQQQ", at)
            if flags & 2:
                self.sections.setdefault(kind, offset)
        (offset,) = self.get("<Q", self.segments[DYNAMIC] + 8)
        self.entries: dict[int, int] = {}
        while (tag := self.get("<q", offset)[0]) != 0:
            self.entries.setdefault(tag, offset)
            offset += 16

    def get(self, form: str, at: int) -> tuple[int, ...]:
        """Numbers at a place."""
        return struct.unpack_from(form, self.data, at)

    def put(self, form: str, at: int, value: int) -> None:
        """A number at a place."""
        struct.pack_into(form, self.data, at, value)

    def undefined(self) -> int:
        """Where a symbol of another library is."""
        at = self.sections[SYMBOLS] + 24
        while self.get("<H", at + 6)[0] or self.get("<B", at + 4)[0] < 16:
            at += 24
        return at

    def add(self, at: int, value: int) -> None:
        """Change an address."""
        self.put("<Q", at, self.get("<Q", at)[0] + value)


@pytest.mark.parametrize("options", LINKS)
def test_honest_libraries_pass(tmp_path: Path, options: list[str]) -> None:
    check(link(tmp_path, options))


CHANGES: dict[str, Callable[[Parts], None]] = {
    "more program headers than there are": lambda p: p.put("<H", 56, 200),
    "a note without an end": lambda p: p.put(
        "<I", p.get("<Q", p.segments[NOTE] + 8)[0] + 4, 1 << 20
    ),
    "a note elsewhere": lambda p: p.put("<Q", p.segments[NOTE] + 16, 1 << 40),
    "thread-local data without alignment": lambda p: p.put("<Q", p.segments[TLS] + 48, 0),
    "thread-local data elsewhere": lambda p: p.put("<Q", p.segments[TLS] + 16, 1 << 40),
    "variables made read-only": lambda p: p.add(p.segments[READ_ONLY_LATER] + 16, 4096),
    "more made read-only than data": lambda p: p.add(p.segments[READ_ONLY_LATER] + 40, 1 << 20),
    "no size of relocations": lambda p: p.put("<q", p.entries[RELA_ROW], 0x6FFFFD00),
    "another size of relocations": lambda p: p.put("<Q", p.entries[RELA_ROW] + 8, 16),
    "another kind of relocations": lambda p: p.put("<Q", p.entries[PLT_KIND] + 8, 17),
    "no relocations of calls": lambda p: p.put("<Q", p.entries[PLT_SIZE] + 8, 0),
    "too many relative relocations": lambda p: p.put("<Q", p.entries[RELATIVE_COUNT] + 8, 1000),
    "an early end": lambda p: p.put("<q", p.entries[PLT_SIZE], 0),
    "code elsewhere": lambda p: p.put("<q", p.sections[RELOCATIONS] + 16, 0),
    "a relocation of the loader's own": lambda p: p.put(
        "<Q", p.sections[RELOCATIONS], p.get("<Q", p.segments[DYNAMIC] + 16)[0]
    ),
    "a relocation of code": lambda p: p.put("<Q", p.sections[RELOCATIONS], 64),
    "a relocation of an unknown kind": lambda p: p.put("<I", p.sections[RELOCATIONS] + 8, 5),
    "a relocation of no symbol": lambda p: p.put("<I", p.sections[RELOCATIONS] + 12, 1 << 20),
    "a hash table of no power of two": lambda p: p.put("<I", p.sections[GNU_HASH] + 8, 3),
    "a hash table without an end": lambda p: p.put("<I", p.sections[GNU_HASH], 1 << 30),
    "a hash table of other symbols": lambda p: p.put("<I", p.sections[HASH] + 8, 1 << 20),
    "a name behind all names": lambda p: p.put("<I", p.sections[SYMBOLS] + 24, 1 << 20),
    "a symbol of no section": lambda p: p.put("<H", p.sections[SYMBOLS] + 24 * 3 + 6, 0xFFFF),
    "a symbol of others that is its own": lambda p: p.put("<B", p.undefined() + 5, 3),
    "a version without a name": lambda p: p.put("<H", p.sections[VERSIONS] + 4, 77),
    "versions of another library": lambda p: p.put("<I", p.sections[NEEDED_VERSIONS] + 4, 1),
    "versions without an end": lambda p: p.put("<I", p.sections[NEEDED_VERSIONS] + 12, 1 << 20),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_ends_a_loader_is_refused(library: bytes, change: str) -> None:
    check(library)
    parts = Parts(library)
    CHANGES[change](parts)
    assert parts.data != library
    with pytest.raises(BrokenFileError):
        check(parts.data)


def test_what_is_accepted_loads_or_is_refused_by_the_loader(
    library: bytes, tmp_path: Path
) -> None:
    """Numbers of what loaders read, changed at random: none of them ends a process."""
    (tmp_path / "load.c").write_text(
        "#include <dlfcn.h>\n#include <stdlib.h>\n#include <sys/wait.h>\n#include <unistd.h>\n"
        "int main(int n, char **names) {\n  for (int i = 1; i < n; i++) {\n    int status;\n"
        "    if (!fork()) { dlopen(names[i], RTLD_NOW); exit(0); }\n"
        "    wait(&status);\n    if (status) return i;\n  }\n  return 0;\n}\n"
    )
    load = tmp_path / "load"
    cc = require_program("cc")
    subprocess.run([cc, str(tmp_path / "load.c"), "-o", str(load), "-ldl"], check=True)
    seed = random.SystemRandom().randrange(1 << 30)
    rng = random.Random(seed)
    zones = loaders_zones(library)
    names = []
    for place in range(400):
        begin, size = rng.choice(rng.choice(zones))
        made = mutate_head(library[begin : begin + size], rng, size)[:size]
        data = library[:begin] + made + library[begin + size :]
        try:
            check(data)
        except BrokenFileError:
            continue
        (tmp_path / f"{place}.so").write_bytes(data)
        names.append(str(tmp_path / f"{place}.so"))
    done = subprocess.run([load, *names], timeout=60)
    assert done.returncode == 0, (seed, names[done.returncode - 1])
    assert names
