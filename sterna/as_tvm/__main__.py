"""python -m sterna.as_tvm: runs a program as Python would, with Sterna under the name tvm."""

import importlib.util
import io
import os
import pkgutil
import sys
from importlib.machinery import ModuleSpec
from types import CodeType, ModuleType, TracebackType
from typing import Any, NoReturn

from sterna.as_tvm.finder import CLASSIC, install, our_name

USAGE = "usage: python -m sterna.as_tvm [-m MODULE | -c CODE | PROGRAM] [ARGUMENT ...]"


class Program:
    """What to run, and what it finds in sys and in its own namespace."""

    def __init__(
        self, argv: list[str], path: str | None, names: dict[str, Any] | None = None
    ) -> None:
        self.argv = argv
        self.path = path
        self.names = names or {}

    def code(self) -> CodeType:
        """The program, compiled."""
        raise NotImplementedError


class CommandLine(Program):
    """The text after -c."""

    def __init__(self, text: str, arguments: list[str]) -> None:
        super().__init__(["-c", *arguments], "")
        self.text = text

    def code(self) -> CodeType:
        """The program, compiled."""
        return compile(self.text, "<string>", "exec")


class File(Program):
    """A file of Python."""

    def __init__(self, file: str, arguments: list[str]) -> None:
        folder = os.path.dirname(os.path.realpath(file))
        names = {"__file__": os.path.abspath(file), "__cached__": None}
        super().__init__([file, *arguments], folder, names)

    def code(self) -> CodeType:
        """The program, compiled."""
        with io.open_code(os.path.abspath(self.argv[0])) as source:
            return compile(source.read(), os.path.abspath(self.argv[0]), "exec")


class Module(Program):
    """A module by its name, or the module __main__ of a folder or an archive."""

    def __init__(self, spec: ModuleSpec, argv: list[str], path: str | None) -> None:
        names = {
            "__file__": spec.origin, "__cached__": spec.cached, "__loader__": spec.loader,
            "__package__": spec.parent, "__spec__": spec,
        }
        super().__init__(argv, path, names)
        self.spec = spec

    def code(self) -> CodeType:
        """The program, compiled."""
        code: CodeType | None = self.spec.loader.get_code(self.spec.name)  # type: ignore[union-attr]
        if code is None:
            sys.exit(f"{sys.executable}: No code object available for {self.spec.name}")
        return code


def find_program(arguments: list[str]) -> Program:
    """What the command line asks for."""
    if not arguments:
        refuse(USAGE)
    if arguments[0] in ("-h", "--help"):
        print(USAGE)
        sys.exit(0)
    first, *rest = arguments
    if first in ("-m", "-c") and not rest:
        refuse(f"Argument expected for the {first} option\n{USAGE}")
    if first == "-c":
        return CommandLine(rest[0], rest[1:])
    if first == "-m":
        return find_by_name(rest[0], rest[1:])
    if first.startswith("-"):
        refuse(f"unknown option {first}; Python's own stand before -m sterna.as_tvm\n{USAGE}")
    if not os.path.exists(first):
        refuse(f"{sys.executable}: can't open file {os.path.abspath(first)!r}: it does not exist")
    importer = pkgutil.get_importer(first)
    if importer is None:
        return File(first, rest)
    spec = importer.find_spec("__main__")
    if spec is None:
        sys.exit(f"{sys.executable}: can't find '__main__' module in {first!r}")
    return Module(spec, [first, *rest], first)


def refuse(text: str) -> NoReturn:
    """End with what is wrong with the command line."""
    print(text, file=sys.stderr)
    sys.exit(2)


def find_by_name(name: str, arguments: list[str]) -> Program:
    """A module of that name; of a package, its __main__."""
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            name += ".__main__"
            spec = find_spec(name)
    except ModuleNotFoundError as error:
        sys.exit(f"{sys.executable}: Error while finding module '{name}': {error}")
    if spec is None:
        sys.exit(f"{sys.executable}: No module named {name}")
    return Module(spec, [str(spec.origin), *arguments], None)


def find_spec(name: str) -> ModuleSpec | None:
    """A module's spec; by a classic name, that of the module itself."""
    classic = name.split(".")[0] == CLASSIC
    return importlib.util.find_spec(our_name(name) if classic else name)


def run(program: Program) -> None:
    """Run a program as the process's main one."""
    main = ModuleType("__main__")
    vars(main).update({"__builtins__": __builtins__, **program.names})
    sys.modules["__main__"] = main
    sys.argv[:] = program.argv
    if program.path is not None and not sys.flags.safe_path:
        sys.path[0] = program.path
    try:
        exec(program.code(), vars(main))
    except SystemExit:
        raise
    except BaseException as error:
        error.__traceback__ = of_program(error.__traceback__)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.excepthook = say_nothing
        raise


def of_program(trace: TracebackType | None) -> TracebackType | None:
    """A traceback from the program on."""
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def say_nothing(*_: object) -> None:
    """What is said about an error that was reported already."""


if __name__ == "__main__":
    install()
    run(find_program(sys.argv[1:]))
