"""What schedules are told of a target's machine."""

from sterna.isa.processor import Processor
from sterna.target.machine import Machine, is_microcontroller, machine_of
from sterna.target.target import Target


def is_gpu(target: Target) -> bool:
    """Whether a target's kernels run on a device of blocks and threads."""
    return "gpu" in target.kind.default_keys


def host_of(target: Target) -> Target:
    """The target of what launches a GPU's kernels; of others the target itself."""
    return (target.host or Target("llvm")) if is_gpu(target) else target


def plain_of(target: Target) -> Target | None:
    """The target of the code that GPUs run which cannot run a target's own, where it asks so."""
    plain = target.attrs.get("plain_arch")
    if not plain:
        return None
    fields = {**target.export(), "arch": plain}
    del fields["plain_arch"]
    return Target(fields)


def processor_of(target: Target) -> Processor:
    """The processor of a target, as schedules see it: what its code generator can make use of."""
    if is_gpu(target):
        return Processor(vector_bits=32, vector_registers=8)
    machine = machine_of(target)
    isa, throughput = machine.instructions.isa, machine.core.throughput
    picks = target.kind.picks_instructions
    lookup = machine.instructions.byte_lookup
    has_vectors = machine.instructions.vector_registers.bits > 0
    return Processor(
        vector_bits=machine.vector_bits or 32,
        vector_registers=machine.vector_registers or 8,
        operand_registers=isa.operand_registers if has_vectors else 0,
        by_element_fma=machine.provides("by_element_fma"),
        gathers=machine.provides("gathers") and picks,
        byte_lookup=lookup.instructions if picks and lookup else 0,
        whole_vectors=machine.provides("whole_vectors") and picks,
        l1_bytes=machine.l1_bytes or isa.l1_kib * 1024,
        l2_bytes=machine.l2_bytes or isa.l2_kib * 1024,
        knows_caches=_knows_caches(target, machine),
        has_dot4=machine.provides("dot4"),
        has_dot2=machine.provides("dot2") and picks,
        has_dot_halves=machine.provides("dot_halves") and not picks,
        has_dot_across=machine.provides("dot_across") and not picks,
        is_scalar_controller=is_microcontroller(target) and not (
            picks or has_vectors or machine.provides("dot_halves")),
        threads=machine.cores or 1,
        fp16_arithmetic=machine.provides("fp16_arithmetic") and picks,
        broadcasts_fp16=isa.broadcasts_fp16,
        matrix_tiles=machine.matrix_tiles if picks else (),
        has_spare_memory=picks and not is_microcontroller(target),
        throughput=throughput,
        smt_throughput=isa.smt.left_of(throughput) if isa.smt else throughput,
    )


def _knows_caches(target: Target, machine: Machine) -> bool:
    """Whether sizes of caches come from the machine or its core: attributes may say anything."""
    given = any(f"l{level}_cache_size_bytes" in target.attrs for level in (1, 2))
    return not given and machine.l1_bytes is not None and machine.l2_bytes is not None
