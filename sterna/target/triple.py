"""LLVM triples: what the text of one says about the machine."""

import re
from dataclasses import dataclass

from sterna.target.wording import unknown

# Pattern of a triple's first part, the architecture it belongs to, its pointer bits.
_ARCHITECTURES: tuple[tuple[str, str, int], ...] = (
    (r"x86_64|amd64|x86_64h", "x86", 64),
    (r"i[3-9]86|x86", "x86", 32),
    (r"aarch64_32|arm64_32", "aarch64", 32),
    (r"aarch64(_be)?|arm64(e|ec)?", "aarch64", 64),
    (r"(arm|thumb)(eb)?(v\d[\w.]*)?", "arm", 32),
    (r"xscale(eb)?", "arm", 32),
    (r"riscv32(be)?", "riscv32", 32),
    (r"riscv64(be)?", "riscv64", 64),
    (r"wasm32", "wasm", 32),
    (r"wasm64", "wasm", 64),
    (r"hexagon", "hexagon", 32),
    (r"nvptx", "nvptx", 32),
    (r"nvptx64", "nvptx", 64),
    (r"amdgcn|amdgpu", "amdgcn", 64),
    (r"avr", "avr", 16),
    (r"(powerpc|ppc)64(le)?", "powerpc", 64),
    (r"(powerpc|ppc)(le|32|32le)?", "powerpc", 32),
    (r"s390x|systemz", "s390x", 64),
    (r"loongarch64", "loongarch", 64),
    (r"loongarch32", "loongarch", 32),
    (r"mips(el)?", "mips", 32),
    (r"mips64(el)?", "mips", 64),
)

_NAMES = (
    "x86_64", "i686", "aarch64", "arm64", "arm", "armv7a", "thumbv7em", "riscv32", "riscv64",
    "wasm32", "wasm64", "hexagon", "nvptx64", "amdgcn", "avr", "powerpc64le", "s390x",
    "loongarch64", "mips",
)

_BIG_ENDIAN = re.compile(
    r"aarch64_be|.*eb(v.*)?|riscv\d\dbe|(powerpc|ppc)(32|64)?|s390x|systemz|mips(64)?"
)


@dataclass(frozen=True, slots=True)
class Triple:
    """A triple and what follows from its text."""

    text: str
    architecture: str
    """The name of the file in sterna/target/processors."""
    pointer_bits: int
    little_endian: bool
    object_format: str
    """elf, macho, coff or wasm."""

    @property
    def first(self) -> str:
        """The part before the first dash."""
        return self.text.partition("-")[0]


def parse_triple(text: str) -> Triple:
    """Read a triple; an architecture that LLVM lacks is an error."""
    first = text.partition("-")[0]
    for pattern, architecture, bits in _ARCHITECTURES:
        if re.fullmatch(pattern, first):
            little = _BIG_ENDIAN.fullmatch(first) is None
            if architecture == "x86" and text.endswith("x32"):
                bits = 32
            return Triple(text, architecture, bits, little, _object_format(text, architecture))
    raise unknown(first, _NAMES, f"It should be the architecture in the triple '{text}'")


_SYSTEMS = re.compile(
    r"(linux|none|windows|win32|darwin|macosx?|ios|tvos|watchos|xros|driverkit|freebsd|netbsd|openbsd"
    r"|solaris|haiku|fuchsia|hermit|rtems|uefi|wasi|wasip\d|emscripten|cuda|nvcl|amdhsa|amdpal|mesa3d"
    r"|zos|aix)[\d.]*"
)
_ENVIRONMENTS = re.compile(
    r"(gnu|musl|eabi|android|ohos|llvm|uclibc|newlib|msvc|itanium|cygnus|elf|coff|macho|simulator"
    r"|macabi|x32|ilp32)\w*[\d.]*"
)


def in_full(text: str) -> str:
    """A triple with its four parts at their places, as LLVM reads them: architecture, vendor,
    system, environment. People leave out the vendor, and LLVM then takes one part for another."""
    first, *rest = text.split("-")
    system = environment = ""
    vendors = []
    for part in rest:
        if _ENVIRONMENTS.fullmatch(part) and not environment:
            environment = part
        elif _SYSTEMS.fullmatch(part) and system in ("", "none"):
            vendors += [system] if system else []
            system = part
        else:
            vendors.append(part)
    if len(vendors) > 1 and not system:
        system = vendors.pop()
    if len(vendors) > 1:
        return text  # more than we know of
    vendor = vendors[0] if vendors else "unknown"
    if not rest or not (system or environment):
        return text
    return "-".join([first, vendor, system or "unknown", *([environment] if environment else [])])


def _object_format(text: str, architecture: str) -> str:
    system = text.lower().split("-", 1)[-1] if "-" in text else ""
    if architecture == "wasm":
        return "wasm"
    if re.search(r"-?(elf|gnu|musl)$", system) and "windows" not in system:
        return "elf"
    if re.search(r"macho|darwin|macos|ios|tvos|watchos|xros|visionos|driverkit|apple", system):
        return "macho"
    if re.search(r"windows|win32|mingw|cygwin|uefi|coff", system):
        return "coff"
    return "elf"
