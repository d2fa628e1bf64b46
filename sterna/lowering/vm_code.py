"""Programs of the virtual machine, as the runtime reads them; runtime/vm/vm.h says how.

A function is a list of instructions over registers. Jumps go forward to labels; loops are calls in
tail position, which take the place of their caller.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sterna.ir.types import TensorType
from sterna.runtime import NDArray

MAGIC = 0x326D762E616E7374

# The operands of instructions, in the order of their codes: w a register that is written, r one
# that is read, * registers that are read, j a label, and numbers of other things.
FORMS: dict[str, str] = {
    "move": "wr", "constant": "wc", "block": "b*=", "call": "wf+", "tail": "f+", "closure": "wf*",
    "apply": "wr*", "run": "r*", "object": "wi*", "field": "wri", "if": "rj", "case": "rij",
    "jump": "j", "return": "r", "drop": "*", "reference": "wr", "read": "wr", "write": "rr",
    "fail": "", "append": "wrr", "stack": "wrc", "trim": "wrri",
    "extents": "wr", "refuse": "wc", "expect": "wrrrc",
}
CODES = {name: code for code, name in enumerate(FORMS)}

TUPLE, LIST = -1, -3


@dataclass(eq=False, slots=True)
class Label:
    """A place of a function that is yet to come."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """What is done, with operands as the form says; several registers are a tuple."""

    name: str
    operands: tuple[Any, ...]

    def registers(self) -> tuple[list[int], list[int]]:
        """Those that are read, and those that are written."""
        read: list[int] = []
        written: list[int] = []
        for form, operand in zip(FORMS[self.name], self.operands, strict=True):
            if form == "w":
                written.append(operand)
            elif form == "r":
                read.append(operand)
            elif form in "*+":
                read += operand
            elif form == "=":
                written += operand
        return read, written

    def words(self) -> list[Any]:
        """As the runtime reads it; labels stand for their places."""
        made: list[Any] = [CODES[self.name]]
        for form, operand in zip(FORMS[self.name], self.operands, strict=True):
            if form == "*" and self.name != "block":
                made.append(len(operand))
            made += operand if form in "*+=" else [operand]
        return made


@dataclass(slots=True)
class VMFunction:
    """Code over registers, the first of which are the parameters."""

    name: str
    params: list[str]
    """What the user calls them."""
    code: list[Instruction | Label] = field(default_factory=list)
    registers: int = 0

    def words(self) -> list[int]:
        """The code, with places for labels."""
        words: list[Any] = []
        places: dict[int, int] = {}
        for step in _with_drops(self):
            if isinstance(step, Label):
                places[id(step)] = len(words)
            else:
                words += step.words()
        return [places[id(word)] if isinstance(word, Label) else word for word in words]


def _with_drops(function: VMFunction) -> Iterable[Instruction | Label]:
    """The code, with the last use of each value followed by its end.

    Jumps go forward, so behind the last instruction that names a register nobody needs it.
    """
    last: dict[int, int] = dict.fromkeys(range(len(function.params)), -1)
    for place, step in enumerate(function.code):
        if isinstance(step, Instruction):
            read, written = step.registers()
            last.update(dict.fromkeys((*read, *written), place))
    ends: dict[int, list[int]] = {}
    for register, place in last.items():
        ends.setdefault(place, []).append(register)
    for place, step in enumerate(function.code):
        yield step
        leaves = isinstance(step, Instruction) and step.name in (
            "if", "case", "jump", "return", "tail", "run", "fail"
        )
        if place in ends and not leaves:
            yield Instruction("drop", (tuple(sorted(ends[place])),))


@dataclass(frozen=True, slots=True)
class VMBlock:
    """A call of straight-line code: its function in the library and what that is given."""

    name: str
    inputs: int
    constants: list[int]
    outputs: list[TensorType]
    workspace: int
    """Bytes, or -1 for none."""
    is_open: bool = False
    """Whether its function NAME_extents tells workspace and shapes."""


@dataclass(slots=True)
class VMProgram:
    """Functions, the blocks that they run, and the constants of both."""

    functions: list[VMFunction]
    blocks: list[VMBlock]
    constants: list[NDArray]

    def to_bytes(self) -> bytes:
        """The program for the runtime, which is given the constants later."""
        words: list[int] = [len(self.constants), len(self.blocks), len(self.functions)]
        for block in self.blocks:
            words += [*_text(block.name), block.inputs, len(block.constants), *block.constants]
            words += [block.workspace, int(block.is_open), len(block.outputs)]
            for kind in block.outputs:
                shape = (0,) * kind.ndim if block.is_open else kind.concrete_shape
                words += _type(kind.dtype, shape)
        for function in self.functions:
            code = function.words()
            words += [*_text(function.name), *_text("\n".join(function.params))]
            words += [len(function.params), function.registers]
            words += [len(code), *code]
        head = struct.pack(f"<{len(words) + 2}q", MAGIC, len(words), *words)
        return head + bytes(8 * len(self.constants))


def _text(text: str) -> list[int]:
    raw = text.encode()
    count = -(-len(raw) // 8)
    return [len(raw), *struct.unpack(f"<{count}q", raw.ljust(count * 8, b"\0"))]


def _type(dtype: Any, shape: Sequence[int]) -> list[int]:
    return [dtype.type_code | dtype.bits << 8 | dtype.lanes << 16, len(shape), *shape]
