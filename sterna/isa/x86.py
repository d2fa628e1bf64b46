"""x86: SSE, AVX, AVX-512, VNNI and AMX, in 32-bit and 64-bit code."""

from sterna.isa.capability import (
    ByLanes,
    ByteLookup,
    Capability,
    Dot4,
    Estimate,
    MatrixTiles,
    OpenConversion,
    SaturatingNarrow,
    TileUnit,
    VectorRegisters,
)
from sterna.isa.core import Core, SharedCore, Throughput, by_name
from sterna.isa.instruction_set import InstructionSet, Level, Spelling

# By 16 convolutions with 21 to 37 Winograd plans each, on a server of 2 MiB a core: weights come at
# 19 bytes for a cycle of products, the first time and again.
STREAMING = Throughput(streams_ahead=True, streamed=20, streamed_again=20)
# Features that bring AVX-512 to registers of all widths.
_WORDS = ("avx512bw", "avx512vl")

_VPDPBUSD = {
    16: "llvm.x86.avx512.vpdpbusd.512", 8: "llvm.x86.avx512.vpdpbusd.256",
    4: "llvm.x86.avx512.vpdpbusd.128",
}
_PMADDUBSW = {
    32: "llvm.x86.avx512.pmaddubs.w.512", 16: "llvm.x86.avx2.pmadd.ub.sw",
    8: "llvm.x86.ssse3.pmadd.ub.sw.128",
}
_PMADDWD = {
    16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd", 4: "llvm.x86.sse2.pmadd.wd",
}

_PSHUFB = {
    64: "llvm.x86.avx512.pshuf.b.512", 32: "llvm.x86.avx2.pshuf.b",
    16: "llvm.x86.ssse3.pshuf.b.128",
}


def _up_to(lanes: int, names: dict[int, str]) -> dict[int, str]:
    return {width: name for width, name in names.items() if width <= lanes}


X86 = InstructionSet(
    name="x86",
    spellings=(
        Spelling(
            r"x86_64|amd64|x86_64h", 64, ("x86_64",),
            brings=("64bit", "cx8", "cmov", "sse2", "fxsr"),
        ),
        Spelling(r"i[3-9]86|x86", 32, ("i686",), most_registers=8),
    ),
    triples=(("", "x86_64-unknown-linux-gnu"),),
    aliases={"vnni": "avx512vnni"},
    loader_features="""
        sse3 ssse3 sse4.1 sse4.2 sse4a popcnt lzcnt movbe bmi bmi2 tbm fma4 xop avx avx2 fma f16c
        gfni avxvnni avxvnniint8 avxvnniint16 avxifma avxneconvert avx512f avx512cd avx512bw
        avx512dq avx512vl avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bitalg avx512vpopcntdq
        avx512bf16 avx512fp16
    """,
    levels=(
        Level("x86-64-v2", "-mcpu=x86-64-v2"),
        Level("x86-64-v3", "-mcpu=x86-64-v3"),
        Level("x86-64-v4", "-mcpu=x86-64-v4 -mattr=+avx512vnni"),
        Level(
            "amx", "-mcpu=x86-64-v4 -mattr=+avx512vnni,+avx512bf16,+amx-tile,+amx-int8,+amx-bf16"
        ),
    ),
    registers=(
        VectorRegisters(("avx512f",), bits=512, count=32, divides_float64=True),
        VectorRegisters(("avx",), bits=256, count=16, divides_float64=True),
        VectorRegisters(("sse",), bits=128, count=16),
        VectorRegisters(bits=0, count=16),
    ),
    llvm_vector_bits=None,
    broadcasts_fp16=False,
    cores=by_name({
        "haswell broadwell skylake": Core(32, 256),
        "skylake-avx512 cascadelake cooperlake": Core(32, 1024, fetches_stored_lines=True),
        "icelake-server": Core(48, 1280),
        "sapphirerapids emeraldrapids graniterapids": Core(48, 2048, STREAMING),
        "alderlake raptorlake": Core(48, 1280),
        "znver1 znver2 znver3": Core(32, 512),
        "znver4": Core(32, 1024),
        "znver5": Core(48, 1024),
    }),
    smt=SharedCore(issue_width=3, loop_overhead=1, l2_vector_cycles=2),
    fused_multiply_add=(Capability(("fma",)),),
    fma_contraction=(Capability(("fma",)),),
    rounding_conversion=(Capability(("sse2",)),),
    open_conversions=(
        OpenConversion(("sse2",), dtype="int32"),
        OpenConversion(("avx512f", "avx512vl"), dtype="uint32"),
        OpenConversion(("avx512dq", "avx512vl"), dtype="int64"),
        OpenConversion(("avx512dq", "avx512vl"), dtype="uint64"),
    ),
    fp16_arithmetic=(Capability(("avx512fp16", "avx512vl")),),
    bf16_rounding=(Capability(("avx512bf16",)),),
    picks_from_rows=(Capability(("avx2",)),),
    gathers=(ByLanes(("avx512f", "avx512vl"), intrinsics={
        4: "llvm.x86.avx512.mask.gather3siv4.sf", 8: "llvm.x86.avx512.mask.gather3siv8.sf",
        16: "llvm.x86.avx512.mask.gather.dps.512",
    }),),
    byte_lookup=(
        ByteLookup(("avx512vbmi", *_WORDS), entries=128, instructions=4, intrinsics={
            64: "llvm.x86.avx512.vpermi2var.qi.512",
        }),
        ByteLookup(_WORDS, entries=16, instructions=40, intrinsics=_PSHUFB),
        ByteLookup(("avx2",), entries=16, instructions=46, intrinsics=_up_to(32, _PSHUFB)),
    ),
    ordered_maximum=(Capability(("avx",)),),
    dot4=(
        Dot4(("avx512vnni", *_WORDS), intrinsics={("uint", "int"): _VPDPBUSD}),
        Dot4(("avxvnni",), intrinsics={("uint", "int"): _up_to(8, _VPDPBUSD)}),
    ),
    dot2=(
        ByLanes(_WORDS, intrinsics=_PMADDUBSW),
        ByLanes(("avx2",), intrinsics=_up_to(16, _PMADDUBSW)),
    ),
    dot2_int16=(
        ByLanes(_WORDS, intrinsics=_PMADDWD),
        ByLanes(("avx2",), intrinsics=_up_to(8, _PMADDWD)),
        ByLanes(("sse2",), intrinsics=_up_to(4, _PMADDWD)),
    ),
    saturating_pack=(
        SaturatingNarrow(
            _WORDS, lanes=16, to_int16="llvm.x86.avx512.packssdw.512",
            to_int8="llvm.x86.avx512.packsswb.512", to_uint8="llvm.x86.avx512.packuswb.512",
        ),
        SaturatingNarrow(
            ("avx2",), lanes=8, to_int16="llvm.x86.avx2.packssdw",
            to_int8="llvm.x86.avx2.packsswb", to_uint8="llvm.x86.avx2.packuswb",
        ),
    ),
    reciprocal_estimate=(
        Estimate(
            ("avx512f",), bits=14, lanes=16, intrinsic="llvm.x86.avx512.rcp14.ps.512",
            operands=("<16 x float> zeroinitializer", "i16 -1"),
        ),
        Estimate(("avx", "fma"), bits=11, lanes=8, intrinsic="llvm.x86.avx.rcp.ps.256"),
    ),
    matrix_tiles=(
        MatrixTiles(("amx-bf16",), dtype="bfloat16"), MatrixTiles(("amx-int8",), dtype="int8"),
    ),
    tile_unit=TileUnit(
        feature="amx-tile", prefix="amx-", pointer_bits=64, system="linux",
        # arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
        permission=(158, 0x1023, 18),
        configure="llvm.x86.ldtilecfg", release="llvm.x86.tilerelease", zero="llvm.x86.tilezero",
        load="llvm.x86.tileloadd64", store="llvm.x86.tilestored64",
        dots={
            "bfloat16 bfloat16": "llvm.x86.tdpbf16ps",
            "int8 int8": "llvm.x86.tdpbssd", "int8 uint8": "llvm.x86.tdpbsud",
            "uint8 int8": "llvm.x86.tdpbusd", "uint8 uint8": "llvm.x86.tdpbuud",
        },
    ),
    whole_vectors=(Capability(("avx2",)),),
)

INSTRUCTION_SETS = (X86,)
