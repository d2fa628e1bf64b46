"""Target machines: what to compile for, what it can do, and LLVM's optimiser and assembler."""

import functools
import re
import threading
from dataclasses import dataclass

import llvmlite.binding as llvm

# LLVM's contexts and pass managers that llvmlite shares are not safe to use from two threads.
LOCK = threading.RLock()


@dataclass(frozen=True, slots=True)
class LLVMOptions:
    """What to compile for."""

    triple: str
    cpu: str = ""
    features: str = ""
    opt_level: int = 3
    abi: str = ""
    """The calling convention, where a processor has several; empty: the usual one."""
    dot: str = ""
    """The feature by which bytes are multiplied and added; see dot.py."""
    half: bool = False
    """Whether float16 is computed with as it is, not in float32."""
    tiles: tuple[str, ...] = ()
    """The types of matrices that are multiplied in tiles; see tiles.py."""
    needs: str = ""
    """What loaders are told of the processor that the code needs; empty: nothing."""

    @staticmethod
    @functools.cache
    def native(opt_level: int = 3) -> "LLVMOptions":
        """This machine, with everything its processor can do."""
        return LLVMOptions(
            llvm.get_process_triple(),
            llvm.get_host_cpu_name(),
            llvm.get_host_cpu_features().flatten(),
            opt_level,
        )


@functools.cache
def _initialize() -> None:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()


def create_machine(options: LLVMOptions) -> llvm.TargetMachine:
    """LLVM's machine for some options; a ValueError names a triple that it does not know."""
    _initialize()
    try:
        target = llvm.Target.from_triple(options.triple)
    except RuntimeError as error:
        raise ValueError(f"LLVM has no target '{options.triple}': {error}") from None
    # WebAssembly and bare metal are linked statically.
    alone = "wasm" in options.triple or "-none" in options.triple
    return target.create_target_machine(
        cpu=options.cpu, features=options.features, opt=options.opt_level,
        reloc="static" if alone else "pic",
        codemodel="default", abiname=options.abi,
    )


_PROBES = ("floor", "ceil", "trunc", "rint", "round")

_PROBE_TEXT = """
define void @vector(ptr %a) nounwind {{
  %x = load <16 x float>, ptr %a, align 4
  %y = fadd <16 x float> %x, %x
  store <16 x float> %y, ptr %a, align 4
  ret void
}}
define float @widen(ptr %a) nounwind {{
  %x = load half, ptr %a
  %y = fpext half %x to float
  ret float %y
}}
define void @narrow(float %x, ptr %a) nounwind {{
  %y = fptrunc float %x to half
  store half %y, ptr %a
  ret void
}}
define <4 x float> @larger(<4 x float> %x, <4 x float> %y) nounwind {{
  %z = call <4 x float> @llvm.maximum.v4f32(<4 x float> %x, <4 x float> %y)
  ret <4 x float> %z
}}
declare <4 x float> @llvm.maximum.v4f32(<4 x float>, <4 x float>)
define <4 x float> @added(<4 x float> %x, <4 x float> %y, <4 x float> %z) nounwind {{
  %p = fmul contract <4 x float> %x, %y
  %s = fadd contract <4 x float> %p, %z
  ret <4 x float> %s
}}
{functions}
"""

_PROBE_FUNCTION = """
define {type} @probe.{name}.{bits}({type} %x) nounwind {{
  %y = call {type} @llvm.{name}.f{bits}({type} %x)
  ret {type} %y
}}
declare {type} @llvm.{name}.f{bits}({type})
"""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a processor does in instructions, without a library."""

    register_bits: int
    """Bits of its vector registers."""
    half: bool
    """Whether it converts float16."""
    rounds: frozenset[str]
    """floor, ceil, ... as "floor.f32"."""
    extremes: bool
    """Whether one instruction gives the larger of two numbers, or the NaN among them."""
    inverse_bits: int
    """How many bits of 1/x one instruction gives, where multiply-adds are rounded once; or 0."""


@functools.cache
def abilities(options: LLVMOptions) -> Abilities:
    """Compiles a probe and looks at what LLVM made of it: no table of processors to keep."""
    functions = "".join(
        _PROBE_FUNCTION.format(type=kind, name=name, bits=bits)
        for name in _PROBES
        for kind, bits in (("float", 32), ("double", 64))
    )
    with LOCK:
        machine = create_machine(options)
        module = llvm.parse_assembly(_PROBE_TEXT.format(functions=functions))
        text = machine.emit_assembly(module)
    width = 512 if "%zmm" in text else 256 if "%ymm" in text else 128
    # A library call shows as the function's plain name; ours are probe.name.bits.
    called = {
        f"{name}.f{bits}"
        for name in _PROBES
        for bits, suffix in ((32, "f"), (64, ""))
        if re.search(rf"(?<![\w.]){name}{suffix}(?![\w.])", _calls(text))
    }
    every = {f"{name}.f{bits}" for name in _PROBES for bits in (32, 64)}
    half = not re.search(r"hfsf2|sfhf2|h2f|f2h", text)
    extremes = re.search(r"\bfmax\s+v", text) is not None  # of AArch64
    fused = re.search(r"\bvfmadd\w+ps\b", text)  # of x86
    inverse_bits = {512: 14, 256: 11}.get(width, 0) if fused else 8 if extremes else 0
    return Abilities(width, half, frozenset(every - called), extremes, inverse_bits)


@functools.cache
def has_atomics(options: LLVMOptions) -> bool:
    """Whether a processor changes bits of a byte in one instruction, or a short loop of them."""
    text = "define void @f(ptr %a) { %x = atomicrmw or ptr %a, i8 1 monotonic ret void }"
    with LOCK:
        assembly = create_machine(options).emit_assembly(llvm.parse_assembly(text))
    return not re.search(r"__atomic_|__sync_", assembly)


def _calls(assembly: str) -> str:
    """The lines of an assembly text that call or jump somewhere."""
    jumps = re.compile(r"^\s*(call\w*|jmp\w*|jalr?|tail|j|b|bl|bl?x|jump|%call|{|allocframe)\b")
    return "\n".join(line for line in assembly.splitlines() if jumps.match(line))


@functools.cache
def data_layout(options: LLVMOptions) -> str:
    """How the target lays data out, as LLVM writes it."""
    return str(create_machine(options).target_data)


def pointer_bits(options: LLVMOptions) -> int:
    """Bits of an address."""
    match = re.search(r"(?:^|-)p:(\d+)", data_layout(options))
    return int(match[1]) if match else 64


def object_format(options: LLVMOptions) -> str:
    """ELF, MachO, COFF or Wasm."""
    triple = options.triple
    if "wasm" in triple:
        return "Wasm"
    if any(word in triple for word in ("darwin", "macos", "ios")):
        return "MachO"
    return "COFF" if "windows" in triple else "ELF"


def optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine, opt_level: int) -> None:
    """Runs LLVM's standard passes."""
    tuning = llvm.create_pipeline_tuning_options(speed_level=opt_level)
    tuning.loop_vectorization = opt_level >= 2
    # Schedules say where vectors are. LLVM's search for more in straight lines finds little here,
    # and LLVM 22 aborts the process in it on some vectors that are no power of two.
    tuning.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, tuning)
    manager = builder.getModulePassManager()
    manager.run(module, builder)
