"""What extension modules for Windows are compiled and linked with, where there is no Windows.

CPython's headers are the same everywhere but for pyconfig.h, of which the few lines that they ask
for stand here; an import library is made from the names that the headers declare.
"""

import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

# Of CPython for 64-bit Windows.
CONFIG = """\
#define MS_WINDOWS 1
#define MS_WIN32 1
#define MS_WIN64 1
#define NT_THREADS 1
#define HAVE_DECLSPEC_DLL 1
#define SIZEOF_VOID_P 8
#define SIZEOF_SIZE_T 8
#define SIZEOF_TIME_T 8
#define SIZEOF_PID_T 4
#define SIZEOF_OFF_T 4
#define SIZEOF_FPOS_T 8
#define SIZEOF_SHORT 2
#define SIZEOF_INT 4
#define SIZEOF_LONG 4
#define SIZEOF_LONG_LONG 8
#define SIZEOF_FLOAT 4
#define SIZEOF_DOUBLE 8
#define SIZEOF_WCHAR_T 2
#define SIZEOF__BOOL 1
#define ALIGNOF_LONG 4
#define ALIGNOF_SIZE_T 8
#define ALIGNOF_MAX_ALIGN_T 8
#define HAVE_UINTPTR_T 1
#define HAVE_INTPTR_T 1
#define HAVE_STDINT_H 1
#define HAVE_STDDEF_H 1
#define HAVE_WCHAR_H 1
#define HAVE_ERRNO_H 1
#define HAVE_SYS_TYPES_H 1
#define HAVE_SYS_STAT_H 1
#define HAVE_PY_SSIZE_T 1
#include <stdio.h>
typedef __int64 Py_ssize_t;
"""
FUNCTION = re.compile(r"\bPyAPI_FUNC\s*\([^)]*\)\s*(?:\w+\s+)*?(\w+)\s*\(")
# What functions that take lengths as Py_ssize_t are called.
RENAMED = re.compile(r"#define\s+\w+\s+(_Py\w+_SizeT)\b")
DATA = re.compile(r"\bPyAPI_DATA\s*\([^)]*\)\s*(\w+)")


def headers(folder: Path) -> Path:
    """A folder with CPython's headers as Windows has them."""
    made = folder / "python"
    shutil.rmtree(made, ignore_errors=True)
    shutil.copytree(sysconfig.get_paths()["include"], made)
    (made / "pyconfig.h").write_text(CONFIG)
    return made


def import_library(include: Path) -> Path:
    """What stands for python3XX.dll when an extension module is linked."""
    name = f"python{sys.version_info.major}{sys.version_info.minor}"
    text = "".join(path.read_text("utf-8", "replace") for path in sorted(include.rglob("*.h")))
    data = set(DATA.findall(text))
    functions = {*FUNCTION.findall(text), *RENAMED.findall(text)} - data
    lines = [f"  {each}" for each in sorted(functions)]
    lines += [f"  {each} DATA" for each in sorted(data)]
    definitions = include / f"{name}.def"
    definitions.write_text("\n".join([f"LIBRARY {name}.dll", "EXPORTS", *lines, ""]))
    library = include / f"lib{name}.a"
    subprocess.run(
        [sys.executable, "-m", "ziglang", "dlltool", "-m", "i386:x86-64", "-d", str(definitions),
         "-D", f"{name}.dll", "-l", str(library)], check=True,
    )
    return library
