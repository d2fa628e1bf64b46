"""A number for sources: those of the package, and those of modules that add to it."""

import hashlib
import os
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent


@cache
def fingerprint(*modules: str) -> str:
    """Of all its sources, so that a changed compiler finds nothing that the old one kept.

    modules: others that take part; of a package everything beside them does.
    """
    digest = hashlib.sha256()
    _add(digest, PACKAGE, _sources(PACKAGE))
    for name in modules:
        file = _file(name)
        if not file.is_relative_to(PACKAGE):
            _add(digest, file.parent, _sources(file.parent) if "." in name else [str(file)])
    return digest.hexdigest()


def _file(module: str) -> Path:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"there is no module {module}")
    return Path(spec.origin).resolve()


def _sources(folder: Path) -> list[str]:
    """Of a folder and of those in it, as words: paths of a thousand files take longer to compare
    than the files take to read."""
    found = (os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)
    return sorted(path for path in found if path.endswith(".py"))


def _add(digest: "hashlib._Hash", folder: Path, files: Iterable[str]) -> None:
    begins = len(str(folder)) + 1
    for path in files:
        digest.update(f"{path[begins:]}\n".encode())
        with open(path, "rb") as file:
            digest.update(file.read())
