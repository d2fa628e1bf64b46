"""How modules of this package are found by their classic names."""

import difflib
import importlib
import pkgutil
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from multiprocessing import spawn
from types import ModuleType
from typing import Any

from sterna.support.classic import INSTEAD

CLASSIC, OURS = "tvm", __name__.split(".")[0]


class ClassicFinder(MetaPathFinder):
    """Finds modules by classic names under a package: all under tvm, moved ones under sterna."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module of this package by its classic name; None for all other names."""
        if fullname.split(".")[0] != self.package:
            return None
        module = find_module(fullname)
        if module is None:
            # `from tvm import x` asks for sterna.x, and hides an error that has this name.
            classic = CLASSIC + fullname.removeprefix(self.package)
            raise ModuleNotFoundError(missing(classic), name=classic)
        return ModuleSpec(fullname, ClassicLoader(module), is_package=True)


class ClassicLoader(Loader):
    """Gives a second name to a module that is there already."""

    def __init__(self, module: ModuleType) -> None:
        self.module = module
        self.spec = module.__spec__

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """The module itself."""
        return self.module

    def exec_module(self, module: ModuleType) -> None:
        """Nothing has to be run; the importer has changed the module's spec, which is undone."""
        module.__spec__ = self.spec


def our_name(name: str) -> str:
    """The name that a module of this package has if it is where a classic name says."""
    parent_name, _, last = name.rpartition(".")
    return f"{importlib.import_module(parent_name).__name__}.{last}" if parent_name else OURS


def find_module(name: str) -> ModuleType | None:
    """The module that a classic name stands for: one of that name, or a module's attribute."""
    parent_name, _, last = name.rpartition(".")
    if not parent_name:
        return sys.modules[OURS]
    parent = importlib.import_module(parent_name)
    if PathFinder.find_spec(our_name(name), parent.__path__) is not None:
        return as_package(importlib.import_module(our_name(name)))
    found = getattr(parent, last, None)
    return as_package(found) if isinstance(found, ModuleType) else None


def as_package(module: ModuleType) -> ModuleType:
    """A module under which Python looks for more, though it may be no folder."""
    vars(module).setdefault("__path__", [])
    return module


def missing(name: str) -> str:
    """That a module is not here, and what is near."""
    text = f"No module named '{name}': Sterna has no '{OURS}{name.removeprefix(CLASSIC)}'"
    hint = INSTEAD.get(our_name(name))
    parent_name, _, last = name.rpartition(".")
    parent = importlib.import_module(parent_name)
    modules = [module.name for module in pkgutil.iter_modules(parent.__path__)]
    near = difflib.get_close_matches(last, [*modules, *dir(parent)], n=3)
    if hint:
        return f"{text}; {hint}"
    if near:
        return f"{text}; near it are {', '.join(f'{parent_name}.{one}' for one in near)}"
    public = ", ".join(one for one in modules if not one.startswith("_"))
    return f"{text}; {parent_name} has {public}" if public else text


class InstalledWhenUnpickled:
    """Makes a process that reads it find tvm here."""

    def __reduce__(self) -> tuple[Any, ...]:
        return install, ()


def install() -> None:
    """From now on `import tvm` means Sterna, here and in processes that multiprocessing spawns."""
    if any(isinstance(finder, ClassicFinder) for finder in sys.meta_path):
        return
    there = sys.modules.get(CLASSIC)
    if there is not None:
        place = getattr(there, "__file__", None)
        raise RuntimeError(f"tvm is imported already, from {place}; call install() before that")
    sys.meta_path.insert(0, ClassicFinder(CLASSIC))
    sys.meta_path.append(ClassicFinder(OURS))
    prepare = spawn.get_preparation_data

    def get_preparation_data(name: str) -> dict[str, Any]:
        # A spawned process reads these data before it imports the program.
        return {**prepare(name), "as_tvm": InstalledWhenUnpickled()}

    spawn.get_preparation_data = get_preparation_data
