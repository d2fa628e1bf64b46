"""The settings of the passes over loops: keys of PassContext's config."""

from dataclasses import dataclass

from sterna.ir.transform import register_config


@dataclass(frozen=True, slots=True)
class UnrollLoopConfig:
    """Which loops are written out; the pragmas auto_unroll_max_step and unroll_explicit win."""

    auto_max_step: int = 0
    """Loops that no schedule marks are written out if they then have at most so many stores."""
    auto_max_depth: int = 8
    """Only those with at most so many loops inside one another, themselves included."""
    auto_max_extent: int = 0
    """Loops of at most so many iterations are written out whatever is in them."""
    explicit_unroll: bool = True
    """False: these loops stay loops, and the code generator is told to unroll them."""
    unroll_local_access: bool = False
    """Also those whose variable indexes a buffer that lives in registers, of scope local."""


@dataclass(frozen=True, slots=True)
class LoopPartitionConfig:
    """Which loops are split where a guard begins to fail."""

    partition_const_loop: bool = True
    """Also loops of constant extent."""
    no_unroll_loop_with_extent_one: bool = False
    """A part of one iteration stays a loop."""


@dataclass(frozen=True, slots=True)
class InjectDoubleBufferConfig:
    """How loops with double buffers run."""

    split_loop: int = 1
    """So many iterations are written out in a row: with an even number each knows its half."""


register_config("tir.UnrollLoop", UnrollLoopConfig, UnrollLoopConfig(), "which loops to write out")
register_config(
    "tir.LoopPartition", LoopPartitionConfig, LoopPartitionConfig(), "which loops to split"
)
register_config(
    "tir.InjectDoubleBuffer", InjectDoubleBufferConfig, InjectDoubleBufferConfig(),
    "how loops with double buffers run",
)
register_config(
    "tir.add_lower_pass", list, [],
    "passes of your own, as pairs (phase, pass): 0 before all others, 1 when buffers have one "
    "dimension, 2 when vectors and unrolled loops are written out, 3 after all others",
)
register_config(
    "tir.instrument_bound_checkers", bool, False, "check every index, and name it in an error"
)
register_config(
    "tir.noalias", bool, True, "whether the arrays that a function is called with never overlap"
)
register_config(
    "tir.disable_assert", bool, False,
    "check nothing while the code runs: a call with wrong arguments has no meaning then",
)
register_config("tir.disable_cse_tir", bool, False, "compute again what was computed before")
register_config("tir.disable_vectorize", bool, False, "make serial loops of vectorized ones")
register_config("tir.disable_storage_rewrite", bool, False, "let no buffers share memory")
register_config(
    "tir.debug_keep_trivial_loop", bool, False, "keep loops of one iteration as loops"
)
register_config(
    "tir.usmp.enable", bool, False,
    "plan the memory of a network that is one function by tir.usmp.algorithm",
)
register_config(
    "tir.usmp.algorithm", str, "greedy_by_size",
    "how that memory is planned: greedy_by_size, greedy_by_conflicts, linear_scan, hill_climb, "
    "optimal, or auto, which networks use that do not say",
)
register_config(
    "tir.usmp.custom_algorithm", str, "",
    "a registered function tir.usmp.algo.<this name> that plans instead of tir.usmp.algorithm",
)
register_config(
    "tir.usmp.use_workspace_io", bool, False,
    "inputs and outputs lie in the planned memory too; a C interface says where",
)
for _name, _kind, _why in (
    ("tir.Simplify", dict, "what is simplified follows from what can be proved"),
    ("tir.HoistIfThenElse", dict, "conditions are hoisted wherever that is sound"),
    ("tir.RemoveNoOp", dict, "all that does nothing is removed"),
    ("tir.detect_global_barrier", bool, "blocks of a grid are told to wait where they must"),
    ("tir.enable_equiv_terms_in_cse_tir", bool, "equal numbers are found by their values"),
    ("tir.merge_static_smem", bool, "shared memory is planned as one piece"),
    ("tir.use_async_copy", bool, "schedules say which copies run on"),
    ("tir.ptx_ldg32", bool, "loads of what no kernel writes are found by the code generator"),
):
    register_config(_name, _kind, _kind(), f"taken as programs give it: {_why}")
