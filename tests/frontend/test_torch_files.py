"""Files of PyTorch that lie: every one is refused by a message, and none is unpickled."""

import copy
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from sterna.frontend.format import ImportOptions
from sterna.frontend.torch.functional import made_functional
from sterna.frontend.torch.load_model import load
from sterna.frontend.torch.program import Program, Ref, Step
from sterna.relay.frontend import from_pytorch
from sterna.support.errors import OpNotImplemented
from sterna.testing.fuzz.fuzzers._exported_program import (
    CONTROL,
    archive,
    control_program,
    program,
    weights_config,
)
from sterna.testing.fuzz.fuzzers.exported_programs import FUZZER
from sterna.testing.fuzz.tape import Tape
from tests.frontend.torch_support import expect_close, results

Change = Callable[[Any, Any], None]


def test_a_file_made_by_hand() -> None:
    module, _ = load(archive(program(), weights_config()), ImportOptions())
    x = np.linspace(-1, 1, 8, dtype="float32").reshape(2, 4)
    made = x @ np.arange(12, dtype="float32").reshape(3, 4).T
    made[1] = 2.5
    expect_close(results(module, x), np.tile(made, 2).sum(0, keepdims=True).astype("float32"))
    named, params = from_pytorch(archive(program(), weights_config()))
    assert [var.name_hint for var in named["main"].params] == ["x", "layer.weight"]
    assert list(params) == ["layer.weight"]


@pytest.mark.parametrize("depth", [0, 1, 3])
@pytest.mark.parametrize("kind", range(len(CONTROL)))
def test_graphs_in_graphs_made_by_hand(kind: int, depth: int) -> None:
    load(archive(control_program(kind, depth), weights_config()), ImportOptions())


def test_loops_in_conditions_of_loops_come_to_an_end() -> None:
    with pytest.raises(ValueError, match="its branches and rounds come to more than 16384"):
        load(archive(control_program(1, 14), weights_config()), ImportOptions())


def test_a_number_that_is_a_text_is_refused() -> None:
    model = control_program(4, 0)
    node = model["graph_module"]["graph"]["nodes"][3]
    for place in (0, 1):
        node["inputs"][place]["arg"] = {"as_string": "n"}
    node["target"] = "_operator.add"
    with pytest.raises(ValueError, match="its result is of the type str, which is no tensor"):
        load(archive(model, weights_config()), ImportOptions())


def test_the_stride_of_an_extent_of_one_may_be_any_number() -> None:
    model, config = program(), weights_config()
    meta = config["config"]["layer.weight"]["tensor_meta"]
    meta["sizes"][0]["as_int"], meta["strides"][0]["as_int"] = 1, 1 << 62
    _, params = load(archive(model, config), ImportOptions(freeze_params=False))
    assert params["layer.weight"].numpy().tolist() == [[0.0, 1.0, 2.0, 3.0]]


def _set(*path: Any, to: Any) -> Change:
    """A change of the value at a path, which begins with the model or the weights."""

    def change(model: Any, config: Any) -> None:
        owner: Any = {"model": model, "weights": config["config"].get("layer.weight")}
        for key in path[:-1]:
            owner = owner[key]
        owner[path[-1]] = to

    return change


GRAPH = ("model", "graph_module", "graph")
META = ("weights", "tensor_meta")
BROKEN: dict[str, tuple[Change, str]] = {
    "pickled weights": (_set("weights", "use_pickle", to=True), "pickles are never opened"),
    "a path out": (_set("weights", "path_name", to="../../secret"), "no entry"),
    "more than there is": (_set(*META, "sizes", 0, "as_int", to=4), "reaches element 15"),
    "an offset too far": (_set(*META, "storage_offset", "as_int", to=1), "reaches element 12"),
    "a negative stride": (_set(*META, "strides", 0, "as_int", to=-4), "strides"),
    "a huge size": (_set(*META, "sizes", 0, "as_int", to=1 << 60), "no memory holds"),
    "a type that is none": (_set(*META, "dtype", to=99), "unknown type 99"),
    "a value from later": (
        _set(*GRAPH, "nodes", 0, "inputs", 0, "arg", "as_tensor", "name", to="both"),
        "reads 'both'",
    ),
    "a name twice": (
        _set(*GRAPH, "nodes", 3, "outputs", 0, "as_tensor", "name", to="made"), "'made' twice"
    ),
    "another schema": (_set("model", "schema_version", "major", to=9), "version 9"),
    "no graph": (_set("model", "graph_module", to=3), "graph_module"),
    "an input without data": (_set("weights", "path_name", to="gone"), "no entry"),
    "an unknown operator": (
        _set(*GRAPH, "nodes", 0, "target", to="torch.ops.my.op.default"), r"my\.op.*net\.py:7"
    ),
    "an argument of no kind": (
        _set(*GRAPH, "nodes", 0, "inputs", 1, "arg", to={"as_thing": {}}), "as_thing"
    ),
    "a graph that is none": (
        _set(*GRAPH, "nodes", 0, "inputs", 1, "arg", to={"as_graph": {}}), "the field 'graph'"
    ),
    "an axis that is none": (
        _set(*GRAPH, "nodes", 3, "inputs", 1, "arg", "as_int", to=9), r"node 'both at net\.py:7'"
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_file_is_refused(name: str) -> None:
    change, message = BROKEN[name]
    model, config = program(), weights_config()
    change(model, config)
    with pytest.raises((ValueError, OpNotImplemented), match=message):
        load(archive(copy.deepcopy(model), config), ImportOptions())


def test_what_is_no_program(tmp_path: Path) -> None:
    path = tmp_path / "model.pt2"
    whole = archive(program(), weights_config())
    for size in (0, 10, len(whole) // 2, len(whole) - 10):
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=r"model\.pt2' is no archive of PyTorch"):
            load(path, ImportOptions())
    path.write_bytes(b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.")
    with pytest.raises(ValueError, match="no archive of PyTorch"):
        load(path, ImportOptions())


@pytest.mark.parametrize("dims", [None, 3, [0, 0], [0, "1"], [0, 5, 1]])
def test_a_change_through_no_permutation_is_refused(dims: Any) -> None:
    steps = [Step("aten.permute.default", "first", {"self": Ref("x"), "dims": dims}, ["a"]),
             Step("aten.fill_.Scalar", "second", {"self": Ref("a"), "value": 2.5}, ["b"])]
    with pytest.raises(ValueError, match="first: it orders dimensions by"):
        made_functional(Program([], [], steps, []))


def test_a_view_of_itself_is_refused() -> None:
    steps = [Step("aten.select.int", "first", {"self": Ref("b"), "dim": 0, "index": 0}, ["a"]),
             Step("aten.alias.default", "second", {"self": Ref("a")}, ["b"]),
             Step("aten.fill_.Scalar", "third", {"self": Ref("b"), "value": 2.5}, ["c"])]
    with pytest.raises(ValueError, match="second: 'b' is a view of itself"):
        made_functional(Program([], [], steps, []))


# The same cases in every run; `python -m sterna.testing.fuzz exported-programs` draws others.
CASES = 150


def test_no_broken_file_crashes_or_hangs(tmp_path: Path) -> None:
    FUZZER.prepare(tmp_path, None)
    outcomes = Counter(FUZZER.check(Tape(seed)) for seed in range(CASES))
    assert outcomes["imported"] > CASES // 20
    assert outcomes["ValueError"] > CASES // 4
