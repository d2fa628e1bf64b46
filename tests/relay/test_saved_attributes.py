"""Attributes of operators come back from JSON as they were saved: other processes compile them."""

import pytest

from sterna.ir import load_json, save_json, structural_equal
from sterna.relay.op import records

NAMES = [name for name, record in records().items() if record.attrs is not None and record.cases]


@pytest.mark.parametrize("name", NAMES)
def test_attributes_survive_a_file(name: str) -> None:
    record = records()[name]
    assert record.attrs is not None
    for case in record.cases:
        attrs = record.attrs(**case.attrs)
        assert structural_equal(load_json(save_json(attrs)), attrs)
