"""Which calling conventions code can be made for: -mabi, and on ARM -mfloat-abi."""

import re
from typing import TYPE_CHECKING

from sterna.target.wording import unknown

if TYPE_CHECKING:
    from sterna.target.machine import Machine

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
    known = machine.instructions.isa.abis
    if not known:
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
    if not machine.instructions.isa.soft_float:
        raise ValueError(
            f"-mfloat-abi={machine.float_abi} is for 32-bit ARM processors, not for "
            f"{machine.architecture}; some others have -mabi"
        )
    if not _EABI.fullmatch(machine.triple):
        raise ValueError(
            f"-mfloat-abi={machine.float_abi} needs a triple that ends in eabi or eabihf, not "
            f"'{machine.triple}'"
        )
