"""Compilers for other machines than this one: the system's cross compilers, else PyPI's ziglang."""

import platform
import re
import shlex
import shutil
from dataclasses import dataclass
from pathlib import Path

from sterna.support import toolchain
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
    (r"hexagon", "hexagon"),
    (r"(powerpc|ppc)64le", "powerpc64le"),
    (r"s390x", "s390x"),
)

_SYSTEMS = (
    (r"android", "android"),
    (r"linux", "linux"),
    (r"darwin|macos|apple", "macos"),
    (r"windows|win32|mingw", "windows"),
    (r"wasi|wasm32", "wasi"),
    (r"none|elf|eabi|hexagon", "none"),
)

# Whose compiler links programs for a processor that nobody else has a C library for.
_VENDORS = {"hexagon": "the Hexagon SDK's hexagon-clang"}

ZIG = "PyPI's ziglang: pip install 'sterna[cross]'"


@dataclass(frozen=True, slots=True)
class Machine:
    """What a program runs on: a processor under an operating system."""

    processor: str
    system: str
    hard_float: bool = True
    """On 32-bit ARM: whether numbers are passed in floating-point registers."""

    @classmethod
    def of(cls, triple: str) -> "Machine | None":
        """The machine that a triple names; None for those that nothing is linked for."""
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
    def gnu(self) -> str:
        """Its name among Linux's own tools and folders; empty under another system."""
        return f"{self.processor}-linux-gnu{self._eabi}" if self.system == "linux" else ""

    @property
    def compact(self) -> tuple[str, ...]:
        """Options of its linkers that keep files small.

        A page of AArch64 has up to 64 KB. What the loader alone writes would end with a page, to be
        protected from then on, and GNU's linker fills the file up to there.
        """
        large = (self.processor, self.system) == ("aarch64", "linux")
        return ("-Wl,-z,norelro",) if large else ()

    @property
    def gcc(self) -> str:
        """The name of the system's compiler for it."""
        return f"{self.gnu}-gcc" if self.gnu else ""

    def zig(self, static: bool = False) -> str:
        """Its name for zig; empty if zig has nothing for it."""
        match self.system:
            case "linux":
                return f"{self.processor}-linux-{'musl' if static else 'gnu'}{self._eabi}"
            case "android":
                return f"{self.processor}-linux-android{'eabi' if self._eabi else ''}"
            case "macos":
                return f"{self.processor}-macos"
            case "windows":
                return f"{self.processor}-windows-gnu"
            case "wasi":
                return "wasm32-wasi"
        return ""

    @property
    def has_shared_libraries(self) -> bool:
        """Whether its programs load libraries, which can be linked without knowing the programs."""
        return self.system not in ("none", "wasi")


def is_here(triple: str) -> bool:
    """Whether this machine's own compiler makes programs for a triple."""
    machine, own = Machine.of(triple), Machine.here()
    return machine is not None and machine == own


def require_shared_libraries(triple: str) -> None:
    """A ValueError that says what to export instead where programs load no libraries."""
    machine = Machine.of(triple)
    if machine is not None and machine.system == "wasi":
        raise ValueError(
            f"{triple} has no shared libraries; export a model as a whole module (.wasm), or its "
            "objects (.o, .a or .tar)"
        )


def compiler_for(triple: str, static: bool = False) -> str:
    """The command of a C compiler for another machine; MissingToolError says what to install."""
    machine = Machine.of(triple)
    if machine is None or machine.system == "none":
        vendor = _VENDORS.get(machine.processor if machine else "", "a compiler")
        raise MissingToolError(
            f"there is no C library to link for {triple}; export an object (.o), an archive (.a) "
            f"or a .tar of objects and link it in your own project, or name {vendor} with cc="
        )
    if machine.system == "android":
        return ndk_compiler(triple)
    if machine.gcc and shutil.which(machine.gcc):
        return machine.gcc
    zig = toolchain.zig("cc")
    if machine.zig(static) and zig:
        return shlex.join([*zig, "-target", machine.zig(static)])
    package = f"gcc-{machine.gnu}".replace("_", "-")
    system = f"{machine.gcc} (Debian: {package}), or " if machine.gcc else ""
    raise MissingToolError(
        f"no compiler for {triple} was found; install {system}{ZIG}; or name one with cc="
    )


@dataclass(frozen=True, slots=True)
class Linker:
    """What links shared libraries for a machine."""

    command: str | None
    """None: this machine's own compiler."""
    options: tuple[str, ...] = ("-lm",)
    needed: tuple[str, ...] = ()
    """Libraries of the machine that are not here: what is linked needs no more than their names."""

    def prepare(self, folder: Path) -> list[str]:
        """The options for a link; what they name is put into a folder."""
        empty = folder / "empty.c"
        made = [str(folder / name) for name in self.needed]
        for name, path in zip(self.needed, made, strict=True):
            empty.write_text("")
            command = [*shlex.split(self.command or ""), "-shared", f"-Wl,-soname,{name}"]
            toolchain.run_compiler([*command, str(empty), "-o", path])
        return [*self.options, *made]


def linker_for(triple: str) -> Linker:
    """What links shared libraries for a machine; Android's are linked without its NDK too."""
    if is_here(triple):
        return Linker(None)
    machine, zig = Machine.of(triple), toolchain.zig("cc")
    if machine is None or machine.system != "android" or options.ndk_compiler or zig is None:
        command = compiler_for(triple)
        stripped = ("-s",) if "ziglang" in command else ()
        return Linker(command, (*stripped, "-lm", *(machine.compact if machine else ())))
    return Linker(
        shlex.join([*zig, "-target", machine.zig(), "-nostdlib"]),
        ("-rtlib=compiler-rt", "-s", "-Wl,-z,max-page-size=16384", "-Wl,--no-as-needed"),
        ("libm.so", "libc.so"),
    )


def require_linker(suffix: str, triple: str) -> None:
    """A MissingToolError that says what to install where objects cannot become a library."""
    require_shared_libraries(triple)
    if triple and not is_here(triple):
        linker_for(triple)
    elif toolchain.find_c_compiler() is None:
        raise MissingToolError(
            f"linking {suffix} needs a linker: install gcc or clang, or: pip install ziglang; .o, "
            ".a and .tar are written without one"
        )


def joiner_for(triple: str) -> str:
    """What joins objects for another machine into one: its compiler, else a linker that needs none.

    A machine without a C library has no compiler here, but its objects are joined all the same.
    """
    machine = Machine.of(triple)
    system = machine.system if machine else "none"
    if system == "windows":
        raise ValueError(f"objects for {triple} cannot be joined; export an archive (.a) of them")
    if machine is not None and system == "linux":
        return compiler_for(triple)
    program = {"wasi": ["wasm-ld"], "macos": ["cc", "-target", machine.zig() if machine else ""]}
    zig = toolchain.zig(*program.get(system, ["ld.lld"]))
    if zig is not None:
        return shlex.join(zig)
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
        f"compiling for {triple} needs Android's NDK: set TVM_NDK_CC to its clang, such as "
        ".../bin/aarch64-linux-android24-clang; linking a library of what LLVM compiled does not, "
        f"with {ZIG}"
    )
