"""What must stand under a relocation of an ELF object, so that a linker may write there.

Linkers take it for granted that an instruction is one that the relocation is for, and LLVM's ends
the process where it is not.
"""

from collections.abc import Mapping

X86_64, AARCH64 = 62, 183

_Pattern = tuple[int, int]
"""Which bits of an instruction are looked at, and what they are."""

_PAGE: _Pattern = (0xFFFFFFE0, 0x90000000)
_BRANCH: _Pattern = (0x7FFFFFFF, 0x14000000)
_WIDE_MOVE: _Pattern = (0x1F9FFFE0, 0x12800000)
_ADD: _Pattern = (0x7FBFFC00, 0x11000000)


def _memory(scale: int) -> tuple[_Pattern, ...]:
    """Loads and stores of 2**scale bytes at an offset, of general and of vector registers."""
    if scale == 4:
        return ((0xFFBFFC00, 0x3D800000),)
    return ((0xFB3FFC00, 0x39000000 | scale << 30),)


_AARCH64: Mapping[int, tuple[_Pattern, ...]] = {
    **dict.fromkeys(range(263, 270), (_WIDE_MOVE,)),  # MOVW_UABS_G0 to G3
    273: ((0x3BFFFFE0, 0x18000000),),  # LD_PREL_LO19
    274: ((0xFFFFFFE0, 0x10000000),),  # ADR_PREL_LO21
    275: (_PAGE,), 276: (_PAGE,),  # ADR_PREL_PG_HI21
    277: (_ADD,),  # ADD_ABS_LO12_NC
    278: _memory(0),  # LDST8_ABS_LO12_NC
    279: ((0x7E07FFE0, 0x36000000),),  # TSTBR14
    280: ((0xFFFFFFE0, 0x54000000), (0x7EFFFFE0, 0x34000000)),  # CONDBR19
    282: (_BRANCH,), 283: (_BRANCH,),  # JUMP26, CALL26
    284: _memory(1), 285: _memory(2), 286: _memory(3), 299: _memory(4),
    311: (_PAGE,),  # ADR_GOT_PAGE
    312: _memory(3),  # LD64_GOT_LO12_NC
    541: (_PAGE,), 542: _memory(3),  # TLSIE
    562: (_PAGE,), 563: _memory(3), 564: (_ADD,),  # TLSDESC
}

_SIZES: Mapping[int, Mapping[int, int]] = {
    AARCH64: {0: 0, 256: 0, 569: 0, 257: 8, 260: 8, 259: 2, 262: 2},
    X86_64: {
        0: 0, 12: 2, 13: 2, 14: 1, 15: 1, **dict.fromkeys((1, 24, 25, 27, 28, 29, 30, 31), 8)
    },
}


def bytes_written(machine: int, relocation: int) -> int:
    """The least number of bytes that a linker writes for a relocation."""
    sizes = _SIZES.get(machine)
    return 1 if sizes is None else sizes.get(relocation, 4)


def is_expected(machine: int, relocation: int, instruction: int) -> bool:
    """Whether an instruction, with nothing in its field yet, is one that a relocation is for."""
    patterns = _AARCH64.get(relocation) if machine == AARCH64 else None
    return patterns is None or any(instruction & mask == bits for mask, bits in patterns)
