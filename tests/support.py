"""What tests share: finding the tools they need, by the rule of sterna.testing."""

import os
import platform
import re
import shutil
from pathlib import Path

from sterna.target import Target, machine_of
from sterna.testing import Feature, requires_package, requires_program

ROOT = Path(__file__).resolve().parent.parent

# A Linux machine that is not this one.
FOREIGN = "x86_64-linux-gnu" if platform.machine() == "aarch64" else "aarch64-linux-gnu"

# What sanitized programs are linked with: those that have freed everything are not searched.
LEAKS = ROOT / "tests" / "c" / "leaks.c"

# Programs and models for acceptance; a checkout of the project alone does not have them.
SHARED = ROOT.parent / "shared"


def require_program(name: str) -> str:
    """The path of a program; the test skips or fails without it."""
    requires_program(name).require()
    return str(shutil.which(name))


def require_module(name: str) -> None:
    """The test skips or fails without this Python package."""
    requires_package(name).require()


def clean_environment(**changes: str) -> dict[str, str]:
    """The environment without the variables that steer the runtime's threads, and with changes."""
    kept = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    return {**kept, **changes}


def absent_feature() -> str:
    """What code may need and this processor lacks; the test skips or fails where none is known."""
    here = machine_of(Target("llvm -mcpu=native"))
    features = here.instructions.isa.loader_features.split()
    absence = None if features else f"nothing looks at what {here.architecture} processors have"
    known = Feature("processor", "processor with known features", lambda: absence, hardware=True)
    known.require()
    return next(name for name in features if not here.has(name))


def in_snake_case(name: str) -> str:
    """The name of a pass as its function and its file carry it: LowerIntrin, lower_intrin."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()
