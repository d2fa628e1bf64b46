"""Joins C files into one: python amalgamate.py [rpc] > sterna.c

Without a word the runtime's, with "rpc" those of the RPC server, which is a program that links with
the runtime. The result needs nothing but sterna.h beside it and compiles with any C11 compiler.
"""

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
TITLES = {
    "src": "The Sterna runtime in one file, made by amalgamate.py; sterna.h is its manual.",
    "rpc": "Sterna's RPC server in one file, made by amalgamate.py; it links with sterna.c.",
}
# Where size was asked for (-Os), clang is told to mean it: gcc does so by itself.
SMALL = "#if defined(__clang__) && defined(__OPTIMIZE_SIZE__)\n#pragma clang attribute {}\n#endif\n"
LOCAL_INCLUDE = re.compile(r'^#include "(\w+\.h)"\n', re.MULTILINE)


# What the server has from the runtime, whose own functions are not seen from outside.
SHARED = {"src": (), "rpc": ("sha256.c",)}


def sources(folder: str) -> list[Path]:
    """The C files of a program or library, in a fixed order."""
    shared = [FOLDER / "src" / name for name in SHARED[folder]]
    return [*sorted((FOLDER / folder).glob("*.c")), *shared]


def find_header(folder: str, name: str) -> Path:
    """A header of a folder, or one that it shares with the runtime."""
    own = FOLDER / folder / name
    return own if own.exists() else FOLDER / "src" / name


def amalgamate(folder: str = "src") -> str:
    """The text of a folder's files as one."""
    seen: set[str] = set()

    def inline(match: re.Match[str]) -> str:
        name = match[1]
        if name == "sterna.h":
            return match[0]
        if name in seen:
            return ""
        seen.add(name)
        return LOCAL_INCLUDE.sub(inline, find_header(folder, name).read_text("utf-8"))

    begin = SMALL.format("push(__attribute__((minsize)), apply_to = function)")
    parts = [f"/* {TITLES[folder]} */\n", "#define STERNA_ONE_FILE\n", begin]
    for path in sources(folder):
        text = LOCAL_INCLUDE.sub(inline, path.read_text("utf-8"))
        parts.append(f"\n/* ==== {path.name} ==== */\n{text}")
    return "".join([*parts, "\n", SMALL.format("pop")])


if __name__ == "__main__":
    sys.stdout.write(amalgamate(*sys.argv[1:]))
