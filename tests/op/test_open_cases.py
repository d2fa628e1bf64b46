"""A sample of the cases of operators with a dimension open; `open_cases.py` sweeps all of them."""

import pytest

from sterna.relay.op import AnyOp, Case
from tests.op.open_cases import cases, outcome_of

# Every so many of all cases.
STRIDE = 23

FIRST, LAST = (
    [pytest.param(record, case, id=name) for record, case, name in cases()[start::STRIDE]]
    for start in (0, 11)
)


@pytest.mark.parametrize(("record", "case"), FIRST)
def test_first_dimension_open(record: AnyOp, case: Case) -> None:
    outcome_of(record, case, 0)


@pytest.mark.parametrize(("record", "case"), LAST)
def test_last_dimension_open(record: AnyOp, case: Case) -> None:
    outcome_of(record, case, -1)
