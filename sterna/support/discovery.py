"""Finding what a folder holds: a kind of thing is added by adding its file."""

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType
from typing import Any

PACKAGE = "sterna"


def modules_of(package: str) -> list[ModuleType]:
    """The modules in a package's folders, loaded, by name; a leading underscore hides one."""
    folder = importlib.import_module(package)
    names = {
        found.name
        for found in pkgutil.iter_modules(folder.__path__)
        if not found.name.startswith("_")
    }
    return [importlib.import_module(f"{package}.{name}") for name in sorted(names)]


def load_everywhere(name: str, package: str = PACKAGE, folder: str = "*") -> list[ModuleType]:
    """The modules of this name in all folders of a package, or in one, loaded, by folder."""
    folders = {
        path.parent.name
        for root in importlib.import_module(package).__path__
        for path in Path(root).glob(f"{folder}/{name}.py")
    }
    return [importlib.import_module(f"{package}.{folder}.{name}") for folder in sorted(folders)]


def load_name(path: str) -> Any:
    """What "module:name" says, or a whole module; it is loaded when it is first needed."""
    module, _, name = path.partition(":")
    found = importlib.import_module(module)
    return getattr(found, name) if name else found
