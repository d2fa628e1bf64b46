"""A number for sources: those of the package, and those of modules that add to it."""

import hashlib
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
    _add(digest, PACKAGE, PACKAGE.rglob("*.py"))
    for name in modules:
        file = _file(name)
        if not file.is_relative_to(PACKAGE):
            files = file.parent.rglob("*.py") if "." in name else [file]
            _add(digest, file.parent, files)
    return digest.hexdigest()


def _file(module: str) -> Path:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"there is no module {module}")
    return Path(spec.origin).resolve()


def _add(digest: "hashlib._Hash", folder: Path, files: Iterable[Path]) -> None:
    for path in sorted(files):
        digest.update(f"{path.relative_to(folder)}\n".encode())
        digest.update(path.read_bytes())
