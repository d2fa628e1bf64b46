"""Logs, databases and saved modules of strangers: what is wrong with them is a ValueError."""

import json
import math
import random
from pathlib import Path

import pytest

from sterna import autotvm, relay
from sterna.auto_scheduler.measure_record import load_record_from_string
from sterna.ir.serialize import load_json, save_json
from sterna.meta_schedule.database import JSONDatabase
from sterna.relay.arrays import _from_json
from sterna.testing.fuzz.fuzzers import records
from sterna.testing.fuzz.runner import fuzz


def test_samples_are_right() -> None:
    assert autotvm.record.decode(records.TEMPLATE_LINE)
    assert load_record_from_string(records.SEARCH_LINE)


@pytest.mark.parametrize(
    ("part", "value"),
    [("result", [[10**400], 0, 1, 1]), ("result", [[1.0], math.inf, 1, 1]),
     ("input", [True, "f", [], {}]), ("input", ["llvm", "f", [["TENSOR"]], {}]),
     ("input", ["llvm", "f", [{"a": 1}], {}]), ("config", [])],
)
def test_a_template_log(part: str, value: object) -> None:
    row = json.loads(records.TEMPLATE_LINE) | {part: value}
    with pytest.raises(ValueError, match="no line of a tuning log"):
        autotvm.record.decode(json.dumps(row))


@pytest.mark.parametrize("costs", [[[10**400], 0, 1, 1], [[1.0], math.inf, 1, 1]])
def test_a_search_log(costs: object) -> None:
    row = json.loads(records.SEARCH_LINE) | {"r": costs}
    with pytest.raises(ValueError, match="no line of a tuning log"):
        load_record_from_string(json.dumps(row))


def test_deep_logs() -> None:
    for read in (autotvm.record.decode, load_record_from_string):
        with pytest.raises(ValueError, match="no line of a tuning log"):
            read("[" * 100_000)


@pytest.mark.parametrize("row", ["5", "[0]", '[3, [[], null, null, null]]', '["x", "y"]'])
def test_a_database(tmp_path: Path, row: str) -> None:
    (tmp_path / "database_tuning_record.json").write_text(row)
    with pytest.raises(ValueError, match=r"database_tuning_record\.json', line 1 is no record"):
        JSONDatabase(work_dir=tmp_path)
    (tmp_path / "database_workload.json").write_text('["x", "e30="]')
    with pytest.raises(ValueError, match="line 1 is no record"):
        JSONDatabase(work_dir=tmp_path)


def test_arrays_are_not_made_before_their_bytes_are_counted() -> None:
    with pytest.raises(ValueError, match="4 bytes for an array"):
        _from_json({"dtype": "float32", "shape": [1 << 40, 1 << 40], "data": "AAAAAA=="})


def test_a_call_has_attributes_or_none() -> None:
    saved = json.loads(save_json(relay.nn.relu(relay.var("x", shape=(2,)))))
    (call,) = [row for row in saved["nodes"] if row["class"] == "relay.Call"]
    load_json(json.dumps(saved))
    call["attrs"] = 5
    with pytest.raises(ValueError, match="the field attrs cannot hold int 5"):
        load_json(json.dumps(saved))


def test_a_function_keeps_attributes_of_any_kind() -> None:
    x = relay.var("x", shape=(2,))
    function = relay.Function((x,), relay.nn.relu(x)).with_attr({"Primitive": 1, "name": "relu"})
    assert load_json(save_json(function)).attrs == {"Primitive": 1, "name": "relu"}


def test_nothing_but_value_errors(search_seconds: float) -> None:
    seed = random.SystemRandom().randrange(1 << 30)
    (tally,) = fuzz([records.FUZZER], search_seconds / 2, seed, None)
    assert tally.endings["read"], "the records are no good"
    if tally.findings:
        pytest.fail(f"seed {seed}: {tally.findings[0].error}\n{tally.findings[0].program}")
