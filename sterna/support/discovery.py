"""Finding what a folder holds: a kind of thing is added by adding its file."""

import importlib
import pkgutil
from types import ModuleType


def modules_of(package: str) -> list[ModuleType]:
    """The modules in a package's folders, loaded, by name; a leading underscore hides one."""
    folder = importlib.import_module(package)
    names = {
        found.name
        for found in pkgutil.iter_modules(folder.__path__)
        if not found.name.startswith("_")
    }
    return [importlib.import_module(f"{package}.{name}") for name in sorted(names)]
