"""The C runtime: its C tests in several builds, and what its builds look like from outside."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from sterna.support.cross import Machine
from sterna.testing.rule import require
from tests.support import LEAKS, clean_environment, require_module, require_program

RUNTIME = Path(__file__).resolve().parents[2] / "runtime"
TESTS = Path(__file__).resolve().parent / "c"
PROGRAMS = sorted(path.stem for path in TESTS.glob("*.c") if path.stem != "check")
# The sanitizers' own locks do not survive a fork while other threads run.
SANITIZED = [name for name in PROGRAMS if name != "forks"]
THREADED = [
    "bindings", "callsites", "errors", "foreign", "functions", "libraries", "models", "modules",
    "pool", "values",
]

LONG_NAME = "long_" + "name_" * 60 + "end"
LANGUAGE = ["-std=c11", f"-I{RUNTIME}"]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
SYSTEM = ["-rdynamic", "-lpthread", "-ldl"]
# As in setup.py.
SMALL = [
    "-Os", "-fno-unwind-tables", "-fno-asynchronous-unwind-tables", "-ffunction-sections",
    "-fdata-sections", "-Wl,--gc-sections", "-Wl,-Bsymbolic", "-Wl,--hash-style=gnu",
]
LARGEST = 100_000  # bytes of the runtime as a stripped shared library
# Without what distributions let their compilers add to all code.
UNHARDENED = ["-fno-stack-protector", "-U_FORTIFY_SOURCE"]
if platform.machine() == "x86_64":
    UNHARDENED.append("-fcf-protection=none")
CROSS_TARGETS = [
    "x86_64-windows-gnu",
    "aarch64-macos",
    "riscv64-linux-musl",
    "arm-linux-gnueabihf",
    "wasm32-wasi",
]


@dataclass(frozen=True)
class Build:
    """A way of building the runtime and its tests."""

    options: tuple[str, ...]
    one_file: bool = True
    sanitizer: str = ""


BUILDS = {
    "separate files": Build(("-O2",), one_file=False),
    "one file": Build(("-O2",)),
    "address": Build(
        ("-O1", "-g1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"),
        sanitizer="address,undefined",
    ),
    "thread": Build(("-O1", "-g1", "-fsanitize=thread"), sanitizer="thread"),
}


def programs_of(options: tuple[str, ...]) -> list[str]:
    """The test programs that are run with these options."""
    if "-fsanitize=thread" in options:
        return THREADED
    return SANITIZED if "-fsanitize=address,undefined" in options else PROGRAMS


def run(command: Iterable[object], timeout: float = 300) -> str:
    """Runs a tool that must succeed without a word of complaint; what it prints."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=timeout, check=False)
    assert done.returncode == 0 and not done.stderr, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout


def run_all(commands: Iterable[list[object]]) -> None:
    """Runs tools side by side, as many as there are cores."""
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        list(pool.map(run, commands))


@dataclass(frozen=True, eq=False)
class Workshop:
    """Compiles things into a folder, each only once."""

    folder: Path

    @cache  # noqa: B019 - lives as long as the test session
    def source(self) -> Path:
        """The one-file runtime."""
        path = self.folder / "sterna.c"
        path.write_text(run([sys.executable, RUNTIME / "amalgamate.py"]), encoding="utf-8")
        return path

    @cache  # noqa: B019
    def sanitizer_prefix(self, name: str) -> list[str]:
        """What to write before a sanitized program. Without the sanitizer the test ends."""
        program = self.folder / f"try-{name}"
        main = self.folder / "try.c"
        main.write_text("int main(void) { return 0; }\n")
        compile_it = [require_program("gcc"), f"-fsanitize={name}", str(main), "-o", str(program)]
        linked = subprocess.run(compile_it, capture_output=True, check=False).returncode == 0
        require(None if linked else f"gcc cannot link programs with -fsanitize={name}")
        if subprocess.run([program], capture_output=True, check=False).returncode == 0:
            return []
        # The thread sanitizer of older compilers cannot bear how newer kernels lay out memory.
        fixed = [require_program("setarch"), platform.machine(), "-R"]
        ran = subprocess.run([*fixed, program], capture_output=True, check=False).returncode == 0
        require(None if ran else f"programs with -fsanitize={name} do not run on this machine")
        return fixed

    @cache  # noqa: B019
    def suppressions(self) -> Path:
        """What the thread sanitizer is to leave out: it does not see the system loader's locks."""
        path = self.folder / "suppressions"
        path.write_text("race:_dl_\n")
        return path

    @cache  # noqa: B019
    def objects(self, options: tuple[str, ...], one_file: bool) -> list[Path]:
        """The runtime's own objects."""
        gcc = require_program("gcc")
        place = self.folder / f"runtime{'-one' if one_file else ''}{''.join(options)}"
        place.mkdir()
        sources = [self.source()] if one_file else sorted((RUNTIME / "src").glob("*.c"))
        made = [place / f"{path.stem}.o" for path in sources]
        run_all(
            [gcc, *LANGUAGE, *WARNINGS, *options, "-c", path, "-o", output]
            for path, output in zip(sources, made, strict=True)
        )
        return made

    @cache  # noqa: B019
    def test_objects(self, options: tuple[str, ...]) -> Path:
        """The folder of the tests' objects."""
        gcc = require_program("gcc")
        place = self.folder / f"tests{''.join(options)}"
        place.mkdir()
        define = ["-D_GNU_SOURCE", f'-DTEST_LONG_NAME="{LONG_NAME}"', f"-I{TESTS}"]
        run_all(
            [gcc, *LANGUAGE, *WARNINGS, *options, *define, "-c", TESTS / f"{name}.c", "-o",
             place / f"{name}.o"]
            for name in ["check", *programs_of(options)]
        )
        return place

    @cache  # noqa: B019
    def libraries(self) -> Path:
        """The folder of the libraries that the tests load."""
        gcc, objcopy = require_program("gcc"), require_program("objcopy")
        place = self.folder / "libraries"
        place.mkdir()
        plain, flags = TESTS / "libraries" / "plain.c", [f"-DLONG_NAME={LONG_NAME}"]
        make = [gcc, *LANGUAGE, *WARNINGS, "-O1", "-g1", "-fPIC", *flags]
        kept = ["-DCLOSEABLE", "-Wl,-z,nodelete"]
        commands: list[list[object]] = []
        for name, more in {"version": [], "closeable": ["-DCLOSEABLE"], "kept": kept}.items():
            commands += [
                [*make, "-shared", f"-DANSWER={i}", *more, plain, "-o", place / f"{name}{i}.so"]
                for i in (1, 2, 3)
            ]
        commands += [
            [*make, "-shared", TESTS / "libraries" / f"{name}.c", "-o", place / f"{name}.so"]
            for name in ("extension", "foreign", "model", "undefined")
        ]
        commands += [
            [*make, "-shared", *more, TESTS / "libraries" / "several.c", "-o", place / name]
            for name, more in {"several.so": [], "several_closeable.so": ["-DCLOSEABLE"]}.items()
        ]
        commands.append([*make, "-shared", "-s", plain, "-o", place / "stripped.so"])
        commands.append([*make, "-c", plain, "-o", place / "object.o"])
        run_all(commands)
        run([objcopy, "--only-keep-debug", place / "version1.so", place / "debug.so"])
        return place

    def program(self, build: Build, name: str) -> Path:
        """A test program."""
        gcc = require_program("gcc")
        tests = self.test_objects(build.options)
        runtime = self.objects(build.options, build.one_file)
        output = self.folder / f"{name}-{list(BUILDS.values()).index(build)}"
        own = [tests / f"{name}.o", tests / "check.o"]
        own += [LEAKS] if "address" in build.sanitizer else []
        run([gcc, *build.options, *own, *runtime, "-o", output, *SYSTEM])
        return output

    def shared_library(self, name: str, machine: Machine | None, *compiler: str) -> Path:
        """The runtime as it is installed: small and stripped."""
        output = self.folder / f"{name}.so"
        options = [*SMALL, "-fvisibility=hidden", "-fPIC", "-shared", "-s"]
        options += machine.compact if machine else ()
        run([*compiler, *LANGUAGE, *WARNINGS, *options, self.source(), "-o", output, "-lpthread"])
        return output

    @cache  # noqa: B019
    def shared_library_here(self) -> Path:
        """The same by this machine's compiler."""
        return self.shared_library("libsterna", Machine.here(), require_program("gcc"), *UNHARDENED)


@pytest.fixture(scope="module")
def workshop(tmp_path_factory: pytest.TempPathFactory) -> Workshop:
    """One for all tests here."""
    return Workshop(tmp_path_factory.mktemp("c"))


def zig(target: str) -> list[str]:
    """The compiler of the Python package ziglang for a target."""
    require_module("ziglang")
    return [sys.executable, "-m", "ziglang", "cc", "-target", target]


@pytest.mark.parametrize(
    ("build", "name"),
    [
        pytest.param(build, name, id=f"{build}-{name}")
        for build in BUILDS
        for name in programs_of(BUILDS[build].options)
    ],
)
def test_program(workshop: Workshop, build: str, name: str) -> None:
    made = BUILDS[build]
    prefix = workshop.sanitizer_prefix(made.sanitizer) if made.sanitizer else []
    environment = clean_environment(
        STERNA_TEST_LIBRARIES=str(workshop.libraries()),
        ASAN_OPTIONS="detect_leaks=1:allocator_may_return_null=1",
        TSAN_OPTIONS=f"halt_on_error=1:suppressions={workshop.suppressions()}",
        UBSAN_OPTIONS="print_stacktrace=1",
    )
    done = subprocess.run(
        [*prefix, workshop.program(made, name)], capture_output=True, text=True, timeout=280,
        check=False, env=environment,
    )
    assert done.returncode == 0, f"{done.returncode}\n{done.stdout}{done.stderr}"


def test_whole_api_runs_out_of_memory(workshop: Workshop) -> None:
    """The program that fails every allocation leaves no function of the API out."""
    nm = require_program("nm")
    folder = workshop.test_objects(BUILDS["one file"].options)
    used = run([nm, "-u", folder / "memory.o"]) + run([nm, "-u", folder / "check.o"])
    assert exported(workshop.shared_library_here()) - set(used.split()) == set()


def exported(library: Path) -> set[str]:
    """The symbols a shared library offers."""
    lines = run([require_program("nm"), "-D", "--defined-only", library]).splitlines()
    return {line.split()[-1] for line in lines}


def test_shared_library_offers_the_api_and_nothing_else(workshop: Workshop) -> None:
    header = (RUNTIME / "sterna.h").read_text()
    declared = set(re.findall(r"^STERNA_API [^;(]*?(sterna_\w+)\(", header, re.MULTILINE))
    assert len(declared) > 70
    assert exported(workshop.shared_library_here()) == declared


def test_static_object_defines_nothing_else(workshop: Workshop) -> None:
    (one,) = workshop.objects(BUILDS["one file"].options, True)
    lines = run([require_program("nm"), "-g", "--defined-only", one]).splitlines()
    names = [line.split()[-1] for line in lines]
    assert names and all(name.startswith("sterna_") for name in names), names


def test_shared_library_is_small_here(workshop: Workshop) -> None:
    assert workshop.shared_library_here().stat().st_size <= LARGEST


@pytest.mark.parametrize("machine", ["aarch64", "x86_64"])
def test_shared_library_is_small_there(workshop: Workshop, machine: str) -> None:
    triple = f"{machine}-linux-gnu"
    library = workshop.shared_library(machine, Machine.of(triple), *zig(triple))
    assert library.stat().st_size <= LARGEST


@pytest.mark.parametrize("target", CROSS_TARGETS)
def test_compiles_for_other_systems(workshop: Workshop, target: str) -> None:
    output = workshop.folder / f"{target}.o"
    run([*zig(target), *LANGUAGE, *WARNINGS, "-O2", "-c", workshop.source(), "-o", output])
    assert output.stat().st_size > 10_000


@pytest.mark.parametrize(
    ("compiler", "language", "standard"), [("gcc", "c", "c11"), ("g++", "c++", "c++17")]
)
def test_header_compiles_alone(tmp_path: Path, compiler: str, language: str, standard: str) -> None:
    source = tmp_path / "alone"
    function = "STERNA_FUNCTION(f) { return self && args && n && ret; }"
    source.write_text(f'#include "sterna.h"\n{function}\n')
    options = [f"-std={standard}", f"-I{RUNTIME}", "-pedantic", "-Wall", "-Wextra", "-Werror"]
    run([require_program(compiler), *options, "-fsyntax-only", "-x", language, source])
