"""LLVM triples: what the text of one says about the machine."""

import re
from dataclasses import dataclass

from sterna.isa import InstructionSet, instruction_sets, spelled
from sterna.isa.instruction_set import Spelling
from sterna.target.wording import unknown


@dataclass(frozen=True, slots=True)
class Triple:
    """A triple and what follows from its text."""

    text: str
    isa: InstructionSet
    spelling: Spelling
    """How the text begins."""
    pointer_bits: int
    little_endian: bool
    object_format: str
    """elf, macho, coff or wasm."""

    @property
    def architecture(self) -> str:
        """The instruction set's name, which is that of a file in sterna/target/processors."""
        return self.isa.name

    @property
    def first(self) -> str:
        """The part before the first dash."""
        return self.text.partition("-")[0]


def parse_triple(text: str) -> Triple:
    """Read a triple; an architecture that LLVM lacks is an error."""
    first = text.partition("-")[0]
    found = spelled(first)
    if found is None:
        every = [spelling for isa in instruction_sets().values() for spelling in isa.spellings]
        known = [example for spelling in every for example in spelling.examples]
        raise unknown(first, known, f"It should be the architecture in the triple '{text}'")
    isa, spelling = found
    # x32: 64-bit code whose addresses have 32 bits.
    bits = 32 if text.endswith("x32") else spelling.pointer_bits
    little = not re.fullmatch(isa.big_endian, first) if isa.big_endian else True
    return Triple(text, isa, spelling, bits, little, isa.object_format or _object_format(text))


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


def _object_format(text: str) -> str:
    system = text.lower().split("-", 1)[-1] if "-" in text else ""
    if re.search(r"-?(elf|gnu|musl)$", system) and "windows" not in system:
        return "elf"
    if re.search(r"macho|darwin|macos|ios|tvos|watchos|xros|visionos|driverkit|apple", system):
        return "macho"
    if re.search(r"windows|win32|mingw|cygwin|uefi|coff", system):
        return "coff"
    return "elf"
