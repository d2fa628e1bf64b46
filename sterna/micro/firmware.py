"""A network as firmware for a board, and what its kernels take there: instructions, by QEMU."""

from collections.abc import Mapping
from typing import Any

from sterna.driver import relay_build
from sterna.driver.aot_factory import AOTProgram
from sterna.ir.module import IRModule
from sterna.ir.transform import PassContext
from sterna.micro.example import ExampleRun, run_example
from sterna.micro.platforms.baremetal import can_emulate
from sterna.micro.platforms.boards import Board, check_room
from sterna.micro.project import GeneratedProject
from sterna.relay.backend import Executor, Runtime
from sterna.target import Target

C_INTERFACE = {"unpacked-api": True, "interface-api": "c"}
SMALL = {"relay.Winograd.max_growth": 0}  # flash is scarce: weights must not grow
# An instruction takes a nanosecond of QEMU's time.
PER_SECOND = 1e9


def target_of(board: Board) -> Target:
    """What networks for a board are compiled for."""
    return Target(f"c -mcpu={board.cpu}" if board.cpu.startswith("cortex-") else "c")


def compile_for(
    mod: IRModule, params: Mapping[str, Any], board: Board, target: Target, opt_level: int = 3,
    settings: Mapping[str, Any] | None = None,
) -> AOTProgram:
    """The network in C; what cannot fit is refused before anything is built."""
    program = compile_small(mod, params, target, opt_level, settings)
    report = program.memory_report()
    ram = report.workspace_bytes + report.output_bytes
    check_room(board, report.constant_bytes, ram, "the network alone")
    return program


def compile_small(
    mod: IRModule, params: Mapping[str, Any], target: Target, opt_level: int = 3,
    settings: Mapping[str, Any] | None = None,
) -> AOTProgram:
    """The network in C for microcontrollers of a kind."""
    with PassContext(opt_level=opt_level, config={**SMALL, **(settings or {})}):
        program = relay_build.build(
            mod, target=target, params=params, executor=Executor("aot", C_INTERFACE),
            runtime=Runtime("crt"),
        )
    assert isinstance(program, AOTProgram)
    return program


def expect_counter(board: Board) -> None:
    """Refuse boards whose instructions nothing counts."""
    if "clock" not in board.more or not can_emulate():
        raise ValueError(
            f"QEMU counts instructions on bare boards with a SysTick that it knows; {board.name} "
            "is none, or QEMU is not there"
        )


def run_counted(
    project: GeneratedProject, board: Board, seconds: float
) -> tuple[ExampleRun, list[int]]:
    """Build a project so that kernels are timed, and run it: the instructions of each kernel."""
    project.build({"compile_definitions": ["-DSTERNA_PROFILE"]})
    made = run_example(project, {"count_instructions": True}, seconds=seconds)
    per_tick = PER_SECOND / board.more["clock"]
    return made, [round(ticks * per_tick) for ticks in made.kernel_ticks]
