"""Networks on microcontrollers: a trial is firmware, whose instructions QEMU counts.

A count is the same in every run, so that one run of each build tells all: an instruction counts as
a nanosecond. What a build prints is compared with what the untuned one prints.
"""

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from sterna.driver.aot_factory import AOTProgram
from sterna.ir.module import IRModule
from sterna.micro.firmware import (
    PER_SECOND,
    compile_for,
    compile_small,
    expect_counter,
    run_counted,
)
from sterna.micro.platforms.boards import find_board
from sterna.micro.platforms.options import EXAMPLE
from sterna.micro.project import generate_project
from sterna.relay.arrays import Array
from sterna.schedule.choose import Scope, deciding
from sterna.schedule.config import ANSWERS
from sterna.target import Target
from sterna.tune.measure import Measured, by_layer, expect_close
from sterna.tune.network import Answers, Described, Questions, answers_text, describe
from sterna.tune.statistics import LEAST_PAIRS

# How long a program may run in QEMU.
SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class FirmwareRun:
    """A network that was built as firmware and has run."""

    described: Described
    seconds: Array
    """Of each kernel, in the order of their calls."""
    outputs: list[Array]


class BoardBench:
    """A network that is built as firmware again and again, and counted beside itself."""

    def __init__(
        self, mod: IRModule, params: Mapping[str, Any], target: Target, board: str,
        inputs: Mapping[str, Array], opt_level: int = 3,
    ) -> None:
        self.mod, self.params, self.target = mod, params, target
        self.inputs, self.opt_level = inputs, opt_level
        self.platform, self.board = find_board(board)
        expect_counter(self.board)
        self._ran: dict[str, FirmwareRun] = {}

    def compare(self, incumbent: Answers, challenger: Answers, seconds: float) -> Measured:
        """What both take; more time would tell no more."""
        ours, theirs, untuned = (self.ran(each) for each in (incumbent, challenger, {}))
        for place, (got, want) in enumerate(zip(theirs.outputs, untuned.outputs, strict=True)):
            expect_close(place, got, want)
        runs = [(ours.seconds, theirs.seconds)] * LEAST_PAIRS
        return by_layer(ours.described, theirs.described, runs)

    def ran(self, answers: Answers) -> FirmwareRun:
        """What firmware under answers gave."""
        key = answers_text(answers)
        if key not in self._ran:
            self._ran[key] = self._run(answers)
        return self._ran[key]

    def _run(self, answers: Answers) -> FirmwareRun:
        with deciding("network") as asked:
            program = compile_for(
                self.mod, self.params, self.board, self.target, self.opt_level,
                {ANSWERS: dict(answers)},
            )
        described = _described(program, self.target, asked, answers)
        with tempfile.TemporaryDirectory(prefix="sterna-board-") as name:
            samples = Path(name) / "inputs.npz"
            np.savez(samples, **dict[str, Any](self.inputs))
            project = generate_project(self.platform, program, Path(name) / "project", {
                "board": self.board.name, "project_type": EXAMPLE, "sample_inputs": str(samples),
            })
            try:
                made, counts = run_counted(project, self.board, SECONDS)
            finally:
                project.close()
        return FirmwareRun(described, np.array(counts) / PER_SECOND, list(made.outputs.values()))


def questions_of(
    mod: IRModule, params: Mapping[str, Any], target: Target, opt_level: int = 3
) -> Questions:
    """What the schedules of a network for microcontrollers ask; nothing is run."""
    with deciding("network") as asked:
        program = compile_small(mod, params, target, opt_level)
    return _described(program, target, asked, {}).questions


def _described(program: AOTProgram, target: Target, asked: Scope, answers: Answers) -> Described:
    names = [name for name, _ in program.kernels]
    return describe(program.ir_mod, program.libmod_name, names, target, asked, answers)
