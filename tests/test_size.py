"""A budget of lines for every folder of the package: growth is a decision.

A change that takes a folder over its budget raises the number here, in the same commit, and says in
its message what the lines are for; one that makes a folder much smaller lowers it. The numbers are
what a folder had when the budget was set, and about three percent more.
"""

import pytest

from tests.test_layering import FILES, RANKS

# Lines of Python by folder; "" is the files beside the folders.
BUDGET = {
    "": 190,
    "arith": 3930,
    "as_tvm": 320,
    "auto_scheduler": 3140,
    "autotvm": 2090,
    "cli": 2970,
    "codegen": 14590,
    "contrib": 4130,
    "driver": 3320,
    "exec": 200,
    "frontend": 25170,
    "ir": 3800,
    "isa": 1240,
    "lowering": 4360,
    "meta_schedule": 1690,
    "micro": 3600,
    "model": 3900,
    "op": 36210,
    "quantization": 2690,
    "relay": 13510,
    "rpc": 5090,
    "runtime": 2500,
    "schedule": 23530,
    "support": 4540,
    "target": 4540,
    "te": 6150,
    "testing": 5330,
    "tir": 15800,
    "topi": 2170,
    "tune": 3170,
}

# A budget that is this much larger than its folder no longer says anything.
LARGEST_SLACK = 1.25


def lines_of(folder: str) -> int:
    """The lines of Python in a folder."""
    return sum(path.read_text("utf-8").count("\n") for path in FILES[folder])


def test_every_folder_has_a_budget() -> None:
    assert set(FILES) == set(BUDGET), "a folder without a budget, or a budget without a folder"
    assert set(BUDGET) - {""} <= set(RANKS)


@pytest.mark.parametrize("folder", sorted(FILES))
def test_a_folder_keeps_to_its_budget(folder: str) -> None:
    lines, budget = lines_of(folder), BUDGET[folder]
    assert lines <= budget, (
        f"sterna/{folder} has {lines} lines, {lines - budget} over its budget: make room, or raise "
        "the number in tests/test_size.py and say why in the commit"
    )
    assert budget <= lines * LARGEST_SLACK + 50, (
        f"sterna/{folder} has {lines} lines: lower its budget of {budget} in tests/test_size.py"
    )
