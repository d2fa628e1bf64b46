"""Which calling conventions code can be made for: -mabi, and on ARM -mfloat-abi."""

import re
from typing import TYPE_CHECKING

from sterna.target.wording import unknown

if TYPE_CHECKING:
    from sterna.target.machine import Machine

# The names that LLVM knows, each with the feature that the processor must have for it.
_ABIS: dict[str, dict[str, str]] = {
    "riscv32": {"ilp32": "", "ilp32e": "", "ilp32f": "f", "ilp32d": "d"},
    "riscv64": {"lp64": "", "lp64e": "", "lp64f": "f", "lp64d": "d"},
    "arm": {"aapcs": "", "aapcs-linux": "", "aapcs16": "", "apcs-gnu": ""},
    "aarch64": {"aapcs": "", "darwinpcs": ""},
    "powerpc": {"elfv1": "", "elfv2": ""},
    "mips": {"o32": "", "n32": "", "n64": ""},
    "loongarch": {
        "ilp32s": "", "ilp32f": "f", "ilp32d": "d", "lp64s": "", "lp64f": "f", "lp64d": "d",
    },
}

_EABI = re.compile(r"(?P<rest>.*eabi)(?P<hard>hf)?")


def with_float_abi(triple: str, float_abi: str) -> str:
    """The triple whose code passes floating-point numbers as -mfloat-abi says, if there is one."""
    match = _EABI.fullmatch(triple)
    if not float_abi or match is None:
        return triple
    return match["rest"] + ("hf" if float_abi == "hard" else "")


def check_abi(machine: "Machine") -> None:
    """A ValueError if LLVM cannot follow a target's -mabi or -mfloat-abi."""
    _check_float_abi(machine)
    abi, architecture = machine.abi, machine.architecture
    if not abi:
        return
    known = _ABIS.get(architecture)
    if known is None:
        raise ValueError(f"-mabi={abi}: there is no choice of ABI for {architecture}; leave it out")
    if abi not in known:
        raise unknown(abi, known, f"It should be an ABI (-mabi) of {architecture}")
    if known[abi] and not machine.has(known[abi]):
        raise ValueError(
            f"-mabi={abi} passes numbers in registers that the processor lacks: it has no feature "
            f"'{known[abi]}'; name another -mcpu, or add -mattr=+{known[abi]}"
        )


def _check_float_abi(machine: "Machine") -> None:
    if not machine.float_abi:
        return
    if machine.architecture != "arm":
        raise ValueError(
            f"-mfloat-abi={machine.float_abi} is for 32-bit ARM processors, not for "
            f"{machine.architecture}; some others have -mabi"
        )
    if not _EABI.fullmatch(machine.triple):
        raise ValueError(
            f"-mfloat-abi={machine.float_abi} needs a triple that ends in eabi or eabihf, not "
            f"'{machine.triple}'"
        )
