"""Target machines: what to compile for, what it can do, and LLVM's optimiser and assembler."""

import functools
import re
import threading
from dataclasses import dataclass

import llvmlite.binding as llvm

from sterna.isa import NO_INSTRUCTIONS, Instructions, InstructionSet, spelled

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
    instructions: Instructions = NO_INSTRUCTIONS
    """What code may be written in beside LLVM's own instructions; see sterna/isa."""
    matrix_tiles: tuple[str, ...] = ()
    """The types of matrices that are multiplied in tiles; see tiles.py."""
    needs: str = ""
    """What loaders are told of the processor that the code needs; empty: nothing."""
    instruction_order: str = ""
    """The processor in whose order instructions are put; empty: that of cpu."""
    divides_quickly: bool = False
    """Whether a division beats an estimate of the inverse that has few bits."""
    fetches_stored_lines: bool = False
    """Whether lines of the cache are prefetched that are stored whole."""

    @staticmethod
    @functools.cache
    def native(opt_level: int = 3) -> "LLVMOptions":
        """This machine, with everything its processor can do."""
        triple, features = llvm.get_process_triple(), llvm.get_host_cpu_features()
        found = spelled(triple.partition("-")[0])
        held = frozenset(str(name) for name, there in features.items() if there)
        return LLVMOptions(
            triple, llvm.get_host_cpu_name(), features.flatten(), opt_level,
            instructions=Instructions(found[0].name, held) if found else NO_INSTRUCTIONS,
        )


def _instruction_set(options: LLVMOptions) -> InstructionSet | None:
    """What the triple means; None if only LLVM knows."""
    found = spelled(options.triple.partition("-")[0])
    return found[0] if found else None


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
    isa = _instruction_set(options)
    alone = (isa is not None and isa.static_code) or "-none" in options.triple
    return target.create_target_machine(
        cpu=options.cpu, features=options.features, opt=options.opt_level,
        reloc="static" if alone else "pic",
        codemodel="default", abiname=options.abi,
    )


_PROBES = ("floor", "ceil", "trunc", "rint", "round")

_PROBE_TEXT = """
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
    """What LLVM makes instructions of for a processor, not calls of a library."""

    converts_fp16: bool
    """Conversions of float16."""
    rounds: frozenset[str]
    """floor, ceil, ... as "floor.f32"."""


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
    # A library call shows as the function's plain name; ours are probe.name.bits.
    called = {
        f"{name}.f{bits}"
        for name in _PROBES
        for bits, suffix in ((32, "f"), (64, ""))
        if re.search(rf"(?<![\w.]){name}{suffix}(?![\w.])", _calls(text))
    }
    every = {f"{name}.f{bits}" for name in _PROBES for bits in (32, 64)}
    converts = not re.search(r"hfsf2|sfhf2|h2f|f2h", text)
    return Abilities(converts, frozenset(every - called))


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
    triple, isa = options.triple, _instruction_set(options)
    if isa is not None and isa.object_format:
        return isa.object_format.capitalize()
    if any(word in triple for word in ("darwin", "macos", "ios")):
        return "MachO"
    return "COFF" if "windows" in triple else "ELF"


def optimize(module: llvm.ModuleRef, machine: llvm.TargetMachine, opt_level: int) -> None:
    """Runs LLVM's standard passes."""
    builder = _pass_builder(machine, opt_level)
    builder.getModulePassManager().run(module, builder)


def optimize_functions(module: llvm.ModuleRef, machine: llvm.TargetMachine, opt_level: int) -> None:
    """Runs LLVM's standard passes over each function once, and none that look for vectors.

    The standard passes inline a function into its caller once it is simple, and then simplify it
    there again. Here the loops of a kernel get into its task when everything else is done.
    """
    builder = _pass_builder(machine, opt_level)
    _inline(module, builder)
    passes = builder.getFunctionPassManager()
    for function in module.functions:
        if not function.is_declaration:
            passes.run(function, builder)
    for function in module.functions:
        alone = function.linkage is llvm.Linkage.internal and not function.is_declaration
        if alone and b"noinline" not in b" ".join(function.attributes):
            function.add_function_attribute("alwaysinline")
    _inline(module, builder)


def _pass_builder(machine: llvm.TargetMachine, opt_level: int) -> llvm.PassBuilder:
    tuning = llvm.create_pipeline_tuning_options(speed_level=opt_level)
    tuning.loop_vectorization = opt_level >= 2
    # Schedules say where vectors are. LLVM's search for more in straight lines finds little here,
    # and LLVM 22 aborts the process in it on some vectors that are no power of two.
    tuning.slp_vectorization = False
    return llvm.create_pass_builder(machine, tuning)


def _inline(module: llvm.ModuleRef, builder: llvm.PassBuilder) -> None:
    """Puts functions that ask for it into their callers, and drops what nobody calls then."""
    passes = llvm.create_new_module_pass_manager()
    passes.add_always_inliner_pass()
    passes.add_global_dead_code_eliminate_pass()
    passes.run(module, builder)
