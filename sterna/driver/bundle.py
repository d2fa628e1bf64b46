"""A module and all that it imports, as the parts of one file.

Modules of code keep their names to themselves: where two have a function of one name, the symbols
differ. A table, whose layout stands at the top of runtime/src/blob.c, says what belongs to whom.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sterna.codegen.code import Code
from sterna.codegen.symbols import LIBRARY_CONTEXT, PACKED_PREFIX
from sterna.driver.operator_module import OperatorModule
from sterna.runtime import Module

LIBRARY_KIND = "_lib"


class Packable(Protocol):
    """The implementation of a module that goes into files as bytes.

    They are loaded by the function that is registered as ffi.Module.load_from_bytes.<kind>.
    """

    @property
    def kind(self) -> str:
        """What names the loader."""

    def to_bytes(self) -> bytes:
        """What it is given."""


@dataclass(slots=True)
class Bundle:
    """Modules, the first of which imports all others, by way of others too."""

    modules: list[Module] = field(default_factory=list)
    imports: list[list[int]] = field(default_factory=list)

    def code(self) -> dict[int, Code]:
        """The code of those that have some."""
        found = enumerate(self.modules)
        return {i: module.code for i, module in found if isinstance(module, OperatorModule)}


def collect(root: Module) -> Bundle:
    """A module and what it imports: each once, a module before its own imports."""
    bundle = Bundle()
    numbers: dict[int, int] = {}
    stack: list[tuple[Module, int | None]] = [(root, None)]
    while stack:
        module, importer = stack.pop()
        number = numbers.get(module.handle)
        is_new = number is None
        if number is None:
            number = numbers[module.handle] = len(bundle.modules)
            bundle.modules.append(module)
            bundle.imports.append([])
            _require_exportable(module, root)
        if importer is not None:
            bundle.imports[importer].append(number)
        if is_new:
            stack += [(imported, number) for imported in reversed(module.imported_modules)]
    return bundle


def _require_exportable(module: Module, root: Module) -> None:
    if module.is_dso_exportable or module.is_binary_serializable:
        return
    whose = "the module is" if module == root else "the module imports one"
    raise ValueError(
        f"{whose} of kind '{module.kind}', which cannot be written to a file: only code that was "
        "built here can; load that module where it is needed and import it there"
    )


def write(root: Module, folder: Path) -> list[Path]:
    """The files, for a compiler or linker, that hold a module and all that it imports."""
    bundle = collect(root)
    code = bundle.code()
    if not code:
        raise ValueError(f"a module of kind '{root.kind}' without code beside it is no library")
    symbols = _own_symbols(code)
    table = b"" if len(bundle.modules) == 1 else encode(bundle, symbols)
    files: list[Path] = []
    for place, unit in enumerate(_units(code)):
        members = [(code[number], symbols.get(number, {})) for number in unit]
        files += code[unit[0]].write(folder, f"lib{place}", members, table)
        table = b""  # it stands in the first file
    return files


def _units(code: Mapping[int, Code]) -> list[list[int]]:
    """The numbers of modules whose code goes into one file each."""
    units: list[list[int]] = []
    for number, each in code.items():
        home = next((unit for unit in units if code[unit[0]].joins(each)), None)
        if home is None:
            units.append([number])
        else:
            home.append(number)
    return units


def _own_symbols(code: Mapping[int, Code]) -> dict[int, dict[str, str]]:
    """Name to symbol for each module but the first, whose symbols are its names.

    A name that none before has used is a plain symbol, so that hosts that know nothing of our names
    find it too.
    """
    first = next(iter(code))
    # Those that have their symbols already come first, then the first module, then the others.
    order = sorted(code, key=lambda number: (code[number].can_rename, number))
    taken: set[str] = set()
    symbols: dict[int, dict[str, str]] = {}
    for number in order:
        symbols[number] = {}
        for name in code[number].names:
            symbol = PACKED_PREFIX + name
            if symbol == LIBRARY_CONTEXT and number != first:
                symbol += f"__{number}"  # the plain one is the first module's, even if unused
            if symbol in taken and (number == first or not code[number].can_rename):
                raise ValueError(
                    f"two of the modules have a function '{name}', and the code of one is "
                    "finished; build one of them under another name (mod_name)"
                )
            while symbol in taken:
                symbol += f"__{number}"
            symbols[number][name] = symbol
        taken.update(symbols[number].values())
    del symbols[first]
    return dict(sorted(symbols.items()))


# ---- the table ----


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _bytes(value: bytes) -> bytes:
    return _number(len(value)) + value


def _text(value: str) -> bytes:
    return _bytes(value.encode())


def _numbers(values: Sequence[int]) -> bytes:
    return _number(len(values)) + b"".join(map(_number, values))


def encode(bundle: Bundle, symbols: Mapping[int, Mapping[str, str]]) -> bytes:
    """The table of a bundle's modules."""
    starts = [0]
    for imports in bundle.imports:
        starts.append(starts[-1] + len(imports))
    content = [_numbers(starts), _numbers([i for imports in bundle.imports for i in imports])]
    for module in bundle.modules:
        if isinstance(module, OperatorModule):
            content.append(_text(LIBRARY_KIND))
        else:
            packable: Packable = module._implementation
            content += [_text(packable.kind), _bytes(packable.to_bytes())]
    content.append(_number(len(symbols)))
    for number, names in symbols.items():
        content += [_number(number), _number(len(names))]
        for name, symbol in sorted(names.items()):
            content += [_text(name), _text(symbol)]
    return _bytes(b"".join(content))
