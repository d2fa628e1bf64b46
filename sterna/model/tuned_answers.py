"""What tuning found for the model that is compiled, from records that are named or lie beside."""

import contextlib
import os
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna.lowering.lower_kernel import scope_of
from sterna.lowering.unique_kernels import unique_kernels
from sterna.model.build_record import BuildRecord
from sterna.model.compile_model import BESIDE
from sterna.target import Target
from sterna.tune.database import DatabaseError, TuningDatabase


@dataclass(frozen=True, slots=True)
class TunedAnswers:
    """The answers of one file of records."""

    database: TuningDatabase
    answers: dict[str, str]

    def are_offered(self, build: BuildRecord, target: Target) -> bool:
        """Whether all records fit; those that do not are told, and set aside if that can be."""
        stale = {question: "it is no longer offered" for question in _not_offered(build)
                 if question in self.answers}
        if not stale:
            return True
        with contextlib.suppress(DatabaseError, OSError):
            TuningDatabase(self.database.path).set_aside(target, stale, self.answers)
        warnings.warn(
            f"{len(stale)} of the tuning records in '{self.database.path}' no longer fit and were "
            f"set aside: {', '.join(sorted(stale))}; `sterna tune` finds others",
            stacklevel=3,
        )
        return False


def read_tuned(
    model: Any, tuned: str | os.PathLike[str] | None, target: Target
) -> TunedAnswers:
    """What was found for a target in the records that are named, or lie beside the model."""
    path = Path(model).with_suffix(BESIDE) if tuned is None else Path(tuned)
    database = TuningDatabase(path, read_only=True)
    found = database.answers(target)
    if not found and tuned is not None:
        warnings.warn(
            f"'{path}' has no tuning records for {target} on this machine; the model is compiled "
            "untuned", stacklevel=4,
        )
    return TunedAnswers(database, found)


def _not_offered(build: BuildRecord) -> list[str]:
    factory = build.factory
    functions = unique_kernels(factory.ir_mod["main"], f"tvmgen_{factory.libmod_name}").functions
    return [
        f"{scope_of(functions[name])}/{question}"
        for name, note in factory.kernel_notes.items()
        for question in note.not_offered
    ]
