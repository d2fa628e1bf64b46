"""Every case of every operator: type, NumPy reference and compiled computation agree."""

import pytest

from sterna.relay.op import AnyOp, Case, records
from tests.op.harness import check_case

# Cases take turns between the narrowest vectors and the widest that this machine has.
TARGETS = ("llvm", "llvm -mcpu=native")

CASES = [
    pytest.param(record, case, TARGETS[place % 2], id=f"{record.name}-{place}")
    for record in records().values()
    for place, case in enumerate(record.cases)
]


@pytest.mark.parametrize(("record", "case", "target"), CASES)
def test_case(record: AnyOp, case: Case, target: str) -> None:
    check_case(record, case, target)


@pytest.mark.parametrize("record", records().values(), ids=lambda record: record.name)
def test_record_is_whole(record: AnyOp) -> None:
    assert record.cases, "an operator has test cases"
    assert record.reference is not None, "an operator has a reference"
    assert record.doc, "an operator is documented"
    assert record.compute or record.simplify or record.canonicalize or record.legalize
