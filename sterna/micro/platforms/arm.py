"""Compilers for Arm's microcontrollers: Debian's gcc-arm-none-eabi, and PyPI's ziglang."""

import importlib.util
import shutil
import sys
from dataclasses import dataclass

from sterna.support.toolchain import MissingToolError

GCC, ZIG = "gcc", "zig"
TOOLCHAINS = (GCC, ZIG)
GCC_COMMAND = "arm-none-eabi-gcc"
INSTALL = (
    "no compiler for Cortex-M was found; install arm-none-eabi-gcc (Debian: apt install "
    "gcc-arm-none-eabi), or: pip install ziglang"
)


@dataclass(frozen=True, slots=True)
class Processor:
    """How compilers are told of a processor."""

    gcc: tuple[str, ...]
    zig: str
    hard_float: bool = True

    @property
    def zig_flags(self) -> list[str]:
        """The words for zig cc."""
        system = "thumb-freestanding-eabihf" if self.hard_float else "thumb-freestanding-eabi"
        return ["-target", system, f"-mcpu={self.zig}"]


PROCESSORS = {
    "cortex-m0": Processor(("-mcpu=cortex-m0",), "cortex_m0", False),
    "cortex-m3": Processor(("-mcpu=cortex-m3",), "cortex_m3", False),
    "cortex-m4": Processor(
        ("-mcpu=cortex-m4", "-mfpu=fpv4-sp-d16", "-mfloat-abi=hard"), "cortex_m4+vfp4d16sp"
    ),
    "cortex-m7": Processor(
        ("-mcpu=cortex-m7", "-mfpu=fpv5-d16", "-mfloat-abi=hard"), "cortex_m7+fp_armv8d16"
    ),
    "cortex-m33": Processor(
        ("-mcpu=cortex-m33", "-mfpu=fpv5-sp-d16", "-mfloat-abi=hard"), "cortex_m33+fp_armv8d16sp"
    ),
    "cortex-m55": Processor(("-mcpu=cortex-m55", "-mfloat-abi=hard"), "cortex_m55"),
}

COMMON = [
    "-std=gnu11", "-Wall", "-Wextra", "-ffp-contract=fast", "-fno-math-errno",
    "-ffunction-sections", "-fdata-sections",
]

# How much longer code may become to be faster. Loops over a few numbers take fewer instructions
# where they are written out, and gcc is told how long that may become. clang decides by itself.
BALANCED = "balanced"
GOALS = {
    "size": ("-Os",),
    BALANCED: ("-O2", "-fpeel-loops", "--param=max-completely-peeled-insns=120"),
    "speed": ("-O3",),
}


def choose_toolchain(wanted: str | None) -> str:
    """The one that was asked for, else the one that is there."""
    found = {GCC: shutil.which(GCC_COMMAND), ZIG: importlib.util.find_spec("ziglang")}
    if wanted is None:
        wanted = next((name for name in TOOLCHAINS if found[name]), None)
    if wanted is None or not found[wanted]:
        raise MissingToolError(INSTALL)
    return wanted


def compile_command(
    toolchain: str, cpu: str, libc_folder: str, goal: str = BALANCED
) -> list[str]:
    """A command that compiles and links; sources, linker script and output are to follow.

    gcc has newlib; zig has the compiler's own functions, and what lies in libc_folder.
    """
    processor = PROCESSORS[cpu]
    if toolchain == GCC:
        return [GCC_COMMAND, *processor.gcc, "-mthumb", *COMMON, *GOALS[goal], "-nostartfiles",
                "--specs=nano.specs", "-Wl,--gc-sections"]
    return [sys.executable, "-m", "ziglang", "cc", *processor.zig_flags, *COMMON, GOALS[goal][0],
            "-ffreestanding", "-fno-sanitize=all", f"-isystem{libc_folder}",
            f"{libc_folder}/math.c", "-Wl,--gc-sections"]


def libraries(toolchain: str) -> list[str]:
    """What is linked behind the sources."""
    return ["-lm"] if toolchain == GCC else []
