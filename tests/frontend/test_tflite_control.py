"""Choices and loops of TensorFlow Lite, beside what LiteRT computes."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flatbuffers import flexbuffers

import sterna
from sterna.frontend.tflite.state import initial_state
from sterna.relay.expr import If, Let
from sterna.relay.frontend import from_tflite
from sterna.relay.traverse import post_order
from sterna.support.errors import OpNotImplemented
from tests.frontend.tflite_models import Graph, Op, T, constant, model, run_imported, run_litert

Options = tuple[str, dict[str, Any]]
HANDLE: Options = ("VarHandleOptions", {"sharedName": "total"})
ADD: Options = ("AddOptions", {})
MUL: Options = ("MulOptions", {})


def graph_of(operators: list[Op], tensors: list[T], inputs: list[int], outputs: list[int]) -> Graph:
    return Graph(tensors, operators, inputs, outputs, "part")


def binary(kind: str, options: Any, number: float) -> Graph:
    """One operator of an input and a number."""
    held = constant(np.array([number], "float32"))
    return graph_of([Op(kind, [0, 1], [2], options)], [T((2,)), held, T((2,))], [0], [2])


def chosen(then: int = 1, other: int = 2) -> Graph:
    options = ("IfOptions", {"thenSubgraphIndex": then, "elseSubgraphIndex": other})
    return Graph([T((1,), "bool"), T((2,)), T((2,))], [Op("IF", [0, 1], [2], options)], [0, 1], [2])


def kinds_in(data: bytes) -> set[type]:
    return {type(part) for part in post_order(from_tflite(data)[0]["main"].body)}


@pytest.mark.parametrize("yes", [True, False])
def test_a_choice(yes: bool, tmp_path: Path) -> None:
    data = model(chosen(), binary("ADD", ADD, 5), binary("MUL", MUL, 3))
    given = [np.array([yes]), np.array([1, 2], "float32")]
    wanted = run_litert(data, *given)
    np.testing.assert_array_equal(run_imported(data, *given), wanted)
    assert If in kinds_in(data)
    (tmp_path / "choice.tflite").write_bytes(data)
    compiled = sterna.compile(tmp_path / "choice.tflite")
    np.testing.assert_array_equal(compiled(*given), wanted[0])


def counted(most: Any, inputs: list[int]) -> bytes:
    """While i < most: (i + 1, x * 2); most: a constant, or an operand of the model."""
    options = ("WhileOptions", {"condSubgraphIndex": 1, "bodySubgraphIndex": 2})
    start = constant(np.array(0, "int32"))
    main = Graph(
        [start, most, T((2,)), T((), "int32"), T((), "int32"), T((2,))],
        [Op("WHILE", [0, 1, 2], [3, 4, 5], options)], inputs, [3, 5],
    )
    holds = graph_of(
        [Op("LESS", [0, 1], [3], ("LessOptions", {}))],
        [T((), "int32"), T((), "int32"), T((2,)), T((), "bool")], [0, 1, 2], [3],
    )
    turn = graph_of(
        [Op("ADD", [0, 3], [4], ADD), Op("MUL", [2, 5], [6], MUL)],
        [T((), "int32"), T((), "int32"), T((2,)), constant(np.array(1, "int32")), T((), "int32"),
         constant(np.array([2], "float32")), T((2,))], [0, 1, 2], [4, 1, 6],
    )
    return model(main, holds, turn)


def test_a_loop_of_known_rounds_is_a_row_of_them() -> None:
    data = counted(constant(np.array(3, "int32")), [2])
    x = np.array([1, 3], "float32")
    wanted = run_litert(data, x)
    assert wanted[0] == 3 and Let not in kinds_in(data)
    for got, want in zip(run_imported(data, x), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("rounds", [0, 4])
def test_a_loop_that_runs_decide(rounds: int, tmp_path: Path) -> None:
    data = counted(T((), "int32"), [1, 2])
    given = [np.array(rounds, "int32"), np.array([1, 3], "float32")]
    wanted = run_litert(data, *given)
    assert Let in kinds_in(data)
    (tmp_path / "loop.tflite").write_bytes(data)
    for got, want in zip(sterna.compile(tmp_path / "loop.tflite")(*given), wanted, strict=True):
        np.testing.assert_array_equal(got, want)


def test_a_graph_under_a_name() -> None:
    options = ("StableHLOCompositeOptions", {
        "name": "more.than", "decompositionSubgraphIndex": 1,
        "compositeAttributes": list(flexbuffers.Dumps({}))})
    main = Graph([T((2,))] * 3, [Op("STABLEHLO_COMPOSITE", [0], [1], options),
                                 Op("STABLEHLO_COMPOSITE", [1], [2], options)], [0], [2])
    data, x = model(main, binary("ADD", ADD, 5)), np.array([1, 2], "float32")
    np.testing.assert_array_equal(run_imported(data, x), run_litert(data, x))


def test_a_branch_may_write_a_variable() -> None:
    """The handle is an operand of the branches; one of them adds to what it holds."""
    options = ("IfOptions", {"thenSubgraphIndex": 1, "elseSubgraphIndex": 2})
    main = Graph(
        [T((1,), "bool"), T((2,)), T((), "resource"), T((2,))],
        [Op("VAR_HANDLE", [], [2], HANDLE), Op("IF", [0, 2, 1], [3], options)], [0, 1], [3],
    )
    adds = graph_of(
        [Op("READ_VARIABLE", [0], [2], ("ReadVariableOptions", {})),
         Op("ADD", [1, 2], [3], ADD),
         Op("ASSIGN_VARIABLE", [0, 3], [], ("AssignVariableOptions", {}))],
        [T((), "resource"), T((2,)), T((2,)), T((2,))], [0, 1], [3],
    )
    passes = graph_of([Op("MUL", [1, 1], [2], MUL)], [T((), "resource"), T((2,)), T((2,))],
                      [0, 1], [2])
    data = model(main, adds, passes)
    state = initial_state(data)
    x, held = np.array([1, 2], "float32"), np.zeros(2, "float32")
    assert list(state) == ["total"]
    for yes, wanted, after in ((True, [1, 2], [1, 2]), (False, [1, 4], [1, 2]),
                               (True, [2, 4], [2, 4])):
        made, held = run_imported(data, np.array([yes]), x, held)
        np.testing.assert_array_equal(made, wanted)
        np.testing.assert_array_equal(held, after)


def test_a_loop_may_write_a_variable() -> None:
    options = ("WhileOptions", {"condSubgraphIndex": 1, "bodySubgraphIndex": 2})
    main = Graph([T((1,), "int32"), T((1,), "int32")], [Op("WHILE", [0], [1], options)], [0], [1])
    holds = graph_of(
        [Op("LESS", [0, 1], [2], ("LessOptions", {}))],
        [T((1,), "int32"), constant(np.array([5], "int32")), T((1,), "bool")], [0], [2],
    )
    turn = graph_of(
        [Op("VAR_HANDLE", [], [1], HANDLE),
         Op("READ_VARIABLE", [1], [2], ("ReadVariableOptions", {})),
         Op("ADD", [2, 0], [3], ADD),
         Op("ASSIGN_VARIABLE", [1, 3], [], ("AssignVariableOptions", {})),
         Op("ADD", [0, 4], [5], ADD)],
        [T((1,), "int32"), T((), "resource"), T((1,), "int32"), T((1,), "int32"),
         constant(np.array([1], "int32")), T((1,), "int32")], [0], [5],
    )
    data = model(main, holds, turn)
    made, held = run_imported(data, np.array([2], "int32"), np.array([10], "int32"))
    assert made == [5] and held == [10 + 2 + 3 + 4]


@pytest.mark.parametrize(("graphs", "error", "message"), [
    ((chosen(0, 0),), ValueError, "subgraph 0 runs itself"),
    ((chosen(1, 7), binary("ADD", ADD, 1)), ValueError, "runs subgraph 7 of 2"),
    ((chosen(1, 1), graph_of([], [T((2,))], [0], [0, 0])), ValueError, "and subgraph 1 2"),
    ((chosen(1, 2), binary("ADD", ADD, 1), binary("RFFT2D", None, 1)), OpNotImplemented,
     "RFFT2D"),
])
def test_what_is_refused(graphs: tuple[Graph, ...], error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        from_tflite(model(*graphs))
