"""A sample of the operators' cases on an OpenCL device; tests/op/on_opencl.py runs them all."""

import pytest

from sterna.relay.op import Case, OpRecord, records
from sterna.testing import requires_opencl
from tests.op.harness import check_case

pytestmark = requires_opencl.marks()

# A prime, so that over the operators first, second and later cases take turns.
EVERY = 13

ALL = [
    pytest.param(record, case, id=f"{record.name}-{place}")
    for record in records().values()
    for place, case in enumerate(record.cases)
]


@pytest.mark.parametrize(("record", "case"), ALL[::EVERY])
def test_case(record: OpRecord, case: Case) -> None:
    check_case(record, case, "opencl")
