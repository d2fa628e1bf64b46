"""Compilers for other machines than this one: the system's cross compilers, else PyPI's ziglang."""

import importlib.util
import platform
import re
import shlex
import shutil
import sys
from dataclasses import dataclass

from sterna.support.options import options
from sterna.support.toolchain import MissingToolError

# What a processor is called in triples, and by compilers.
_PROCESSORS = (
    (r"x86_64h?|amd64", "x86_64"),
    (r"i[3-9]86|x86", "x86"),
    (r"aarch64|arm64e?", "aarch64"),
    (r"(arm|thumb)(v\d[\w.]*)?", "arm"),
    (r"riscv64", "riscv64"),
    (r"riscv32", "riscv32"),
    (r"wasm32", "wasm32"),
    (r"(powerpc|ppc)64le", "powerpc64le"),
    (r"s390x", "s390x"),
)

_SYSTEMS = (
    (r"android", "android"),
    (r"linux", "linux"),
    (r"darwin|macos|apple", "macos"),
    (r"windows|win32|mingw", "windows"),
    (r"wasi|wasm32", "wasi"),
    (r"none|elf|eabi", "none"),
)


@dataclass(frozen=True, slots=True)
class Machine:
    """What a program runs on: a processor under an operating system."""

    processor: str
    system: str
    hard_float: bool = True
    """On 32-bit ARM: whether numbers are passed in floating-point registers."""

    @classmethod
    def of(cls, triple: str) -> "Machine | None":
        """The machine that a triple names; None for those that programs are not linked for."""
        first = triple.partition("-")[0]
        processor = next((name for p, name in _PROCESSORS if re.fullmatch(p, first)), None)
        system = next((name for p, name in _SYSTEMS if re.search(p, triple)), None)
        if processor is None or system is None:
            return None
        soft = processor == "arm" and not triple.endswith("hf")
        return cls(processor, system, not soft)

    @classmethod
    def here(cls) -> "Machine | None":
        """This one."""
        systems = {"Linux": "linux", "Darwin": "macos", "Windows": "windows"}
        system = systems.get(platform.system(), "none")
        hard = "hf" if platform.machine().startswith("arm") else ""
        return cls.of(f"{platform.machine().lower()}-unknown-{system}-gnueabi{hard}")

    @property
    def _eabi(self) -> str:
        if self.processor != "arm":
            return ""
        return "eabihf" if self.hard_float else "eabi"

    @property
    def gcc(self) -> str:
        """The name of the system's compiler for it."""
        return f"{self.processor}-linux-gnu{self._eabi}-gcc" if self.system == "linux" else ""

    def zig(self, static: bool) -> str:
        """Its name for zig; empty if zig has no C library for it."""
        match self.system:
            case "linux":
                return f"{self.processor}-linux-{'musl' if static else 'gnu'}{self._eabi}"
            case "macos":
                return f"{self.processor}-macos"
            case "windows":
                return f"{self.processor}-windows-gnu"
            case "wasi":
                return "wasm32-wasi"
        return ""


def is_here(triple: str) -> bool:
    """Whether this machine's own compiler makes programs for a triple."""
    machine, own = Machine.of(triple), Machine.here()
    return machine is not None and machine == own


def compiler_for(triple: str, static: bool = False) -> str:
    """The command of a C compiler for another machine; MissingToolError says what to install."""
    machine = Machine.of(triple)
    if machine is None or machine.system == "none":
        raise MissingToolError(
            f"there is no C library to link for {triple}; export an object (.o) or an archive (.a) "
            "and link it in your own project, or name a compiler with cc="
        )
    if machine.system == "android":
        return ndk_compiler(triple)
    if machine.gcc and shutil.which(machine.gcc):
        return machine.gcc
    name = machine.zig(static)
    if name and importlib.util.find_spec("ziglang") is not None:
        return shlex.join([sys.executable, "-m", "ziglang", "cc", "-target", name])
    package = f"gcc-{machine.gcc.removesuffix('-gcc')}"
    system = f"{machine.gcc} (Debian: {package}), or " if machine.gcc else ""
    raise MissingToolError(
        f"no compiler for {triple} was found; install {system}PyPI's ziglang: pip install "
        "'sterna[cross]'; or name one with cc="
    )


def joiner_for(triple: str) -> str:
    """What joins objects for another machine into one: its compiler, else a linker that needs none.

    A machine without a C library has no compiler here, but its objects are joined all the same.
    """
    machine = Machine.of(triple)
    if machine is not None and machine.system != "none":
        return compiler_for(triple)
    if importlib.util.find_spec("ziglang") is not None:
        return shlex.join([sys.executable, "-m", "ziglang", "ld.lld"])
    raise MissingToolError(
        f"joining objects for {triple} needs a linker for it: pip install 'sterna[cross]', or name "
        "one with cc=; an archive (.a) needs none"
    )


def ndk_compiler(triple: str = "Android") -> str:
    """The command of the compiler of Android's NDK."""
    command = options.ndk_compiler
    if command and shutil.which(shlex.split(command)[0]):
        return command
    raise MissingToolError(
        f"{triple} needs Android's NDK: set TVM_NDK_CC to its clang, such as "
        ".../bin/aarch64-linux-android24-clang"
    )
