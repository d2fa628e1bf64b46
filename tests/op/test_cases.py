"""Every case of every operator: type, NumPy reference and compiled computation agree."""

import pytest

from sterna.relay.op import Case, OpRecord, records
from tests.op.harness import check_case

CASES = [
    pytest.param(record, case, id=f"{record.name}-{place}")
    for record in records().values()
    for place, case in enumerate(record.cases)
]


@pytest.mark.parametrize(("record", "case"), CASES)
def test_case(record: OpRecord, case: Case) -> None:
    check_case(record, case)


@pytest.mark.parametrize("record", records().values(), ids=lambda record: record.name)
def test_record_is_whole(record: OpRecord) -> None:
    assert record.cases, "an operator has test cases"
    assert record.reference is not None, "an operator has a reference"
    assert record.doc, "an operator is documented"
    assert record.compute or record.simplify or record.canonicalize or record.legalize
