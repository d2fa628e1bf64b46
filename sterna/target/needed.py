"""What code says of the processor that it needs; see runtime/src/processor.c."""

from sterna.target.machine import Machine

# What LLVM uses unasked, or the code generator on purpose, by architecture. Tiles are not here: the
# code itself asks for them when it comes to them.
USED = {
    "x86": """
        sse3 ssse3 sse4.1 sse4.2 sse4a popcnt lzcnt movbe bmi bmi2 tbm fma4 xop avx avx2 fma f16c
        gfni avxvnni avxvnniint8 avxvnniint16 avxifma avxneconvert avx512f avx512cd avx512bw
        avx512dq avx512vl avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq
        avx512bf16 avx512fp16
    """,
    "aarch64": """
        lse rdm rcpc dotprod fullfp16 fp16fml complxnum sha3 flagm i8mm bf16 sve sve2 sme cssc mops
    """,
}


def needed(*machines: Machine) -> str:
    """A processor's name and those of its features that others may lack and all of these have.

    Code for several processors may be there for one to be chosen of them.
    """
    first = machines[0]
    if first.architecture not in USED:
        return ""
    used = USED[first.architecture].split()
    return " ".join([first.cpu, *[f for f in used if all(each.has(f) for each in machines)]])
