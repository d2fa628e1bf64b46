"""Joins the runtime's sources into one C file: python amalgamate.py > sterna.c

The result needs nothing but sterna.h beside it and compiles with any C11 compiler.
"""

import re
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
LOCAL_INCLUDE = re.compile(r'^#include "(\w+\.h)"\n', re.MULTILINE)


def sources() -> list[Path]:
    """The runtime's C files, in a fixed order."""
    return sorted((FOLDER / "src").glob("*.c"))


def amalgamate() -> str:
    """The text of the one-file runtime."""
    seen: set[str] = set()

    def inline(match: re.Match[str]) -> str:
        name = match[1]
        if name == "sterna.h":
            return match[0]
        if name in seen:
            return ""
        seen.add(name)
        return LOCAL_INCLUDE.sub(inline, (FOLDER / "src" / name).read_text("utf-8"))

    title = "The Sterna runtime in one file, made by amalgamate.py; sterna.h is its manual."
    parts = [f"/* {title} */\n", "#define STERNA_ONE_FILE\n"]
    for path in sources():
        text = LOCAL_INCLUDE.sub(inline, path.read_text("utf-8"))
        parts.append(f"\n/* ==== {path.name} ==== */\n{text}")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(amalgamate())
