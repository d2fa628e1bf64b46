"""Finding what a folder holds: a kind of thing is added by adding its file."""

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

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


def load_everywhere(name: str) -> list[ModuleType]:
    """The modules of this name in all folders of the package, loaded, by folder."""
    places = {
        path.parent.name
        for root in importlib.import_module(PACKAGE).__path__
        for path in Path(root).glob(f"*/{name}.py")
    }
    return [importlib.import_module(f"{PACKAGE}.{place}.{name}") for place in sorted(places)]
