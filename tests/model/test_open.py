"""Models whose shapes, branches and loops only calls decide, held against ONNX's reference."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import sterna
from sterna import relay
from sterna.model import InputError, OpenModel

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(0)


def info(name: str, shape: Sequence[Any] | None, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model_of(nodes: Any, inputs: Any, outputs: Any, weights: Any = ()) -> onnx.ModelProto:
    named = [onnx.numpy_helper.from_array(value, name) for name, value in weights]
    graph = helper.make_graph(nodes, "graph", inputs, outputs, named)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


def agree(compiled: Any, model: onnx.ModelProto, **inputs: Any) -> dict[str, Any]:
    """What a compiled model gives, which is what the reference gives."""
    found: dict[str, Any] = compiled.run(inputs)
    wanted = ReferenceEvaluator(model).run(None, inputs)
    for (name, value), want in zip(found.items(), wanted, strict=True):
        assert np.shape(value) == np.shape(want), name
        np.testing.assert_allclose(value, want, rtol=1e-5, atol=1e-5)
    return found


def dense() -> onnx.ModelProto:
    return model_of(
        [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"]),
         helper.make_node("Add", ["b", "bias"], ["y"])],
        [info("x", ["batch", 8]), info("bias", ["batch", 1])], [info("y", ["batch", 6])],
        [("w", floats(8, 6))],
    )


def test_one_object_serves_all_sizes_of_a_dimension() -> None:
    model = dense()
    compiled: Any = sterna.compile(model)
    assert repr(compiled) == "OpenModel(x: float32[batch, 8], bias: float32[batch, 1]) -> (y)"
    for batch in (1, 3, 17, 3):
        agree(compiled, model, x=floats(batch, 8), bias=floats(batch, 1))
    assert compiled.compiled == 1 and compiled.is_symbolic
    with pytest.raises(InputError, match="'batch' is 2 in input 'x' and 3 in input 'bias'"):
        compiled(floats(2, 8), floats(3, 1))
    with pytest.raises(InputError, match=r"x: float32\[batch, 8\] is given the shape \(2, 7\)"):
        compiled(floats(2, 7), floats(2, 1))
    with pytest.raises(InputError, match="convert it to float32"):
        compiled(np.zeros((2, 8)), floats(2, 1))
    agree(compiled, model, x=floats(2, 8), bias=floats(2, 1))


def test_ranges_are_checked() -> None:
    model = dense()
    compiled: Any = sterna.compile(model, shapes={"batch": (2, 4)})
    assert isinstance(compiled, OpenModel)
    agree(compiled, model, x=floats(4, 8), bias=floats(4, 1))
    with pytest.raises(InputError, match=r"extent 5 for the dimension 'batch', .* for 2 to 4"):
        compiled(floats(5, 8), floats(5, 1))


def test_values_that_decide_come_at_run_time() -> None:
    model = model_of(
        [helper.make_node("Reshape", ["x", "shape"], ["a"]),
         helper.make_node("ReduceSum", ["a", "axes"], ["y"], keepdims=0)],
        [info("x", ["n"]), info("shape", [2], INT), info("axes", ["k"], INT)], [info("y", None)],
    )
    compiled: Any = sterna.compile(model)
    for shape, axes in (((3, 4), (0,)), ((2, 6), (1,)), ((2, 6), (0, 1)), ((-1, 3), (1,))):
        agree(compiled, model, x=floats(12), shape=np.array(shape), axes=np.array(axes))


def test_counts_that_data_decides() -> None:
    model = model_of(
        [helper.make_node("Exp", ["x"], ["e"]), helper.make_node("Greater", ["e", "one"], ["c"]),
         helper.make_node("NonZero", ["c"], ["at"]),
         helper.make_node("Transpose", ["at"], ["rows"]),
         helper.make_node("GatherND", ["e", "rows"], ["kept"]),
         helper.make_node("ReduceSum", ["kept"], ["sum"], keepdims=0),
         helper.make_node("Compress", ["e", "flags"], ["some"], axis=0)],
        [info("x", ["n", 5]), info("flags", ["n"], BOOL)],
        [info("kept", None), info("sum", None), info("some", None)],
        [("one", np.array([1], "float32"))],
    )
    compiled: Any = sterna.compile(model)
    for n in (4, 7, 4):
        flags = RNG.random(n) < 0.5
        agree(compiled, model, x=floats(n, 5), flags=flags)


def branches() -> onnx.ModelProto:
    """Branches of different shapes, one inside the other."""
    def graph(name: str, nodes: Any, output: str) -> onnx.GraphProto:
        return helper.make_graph(nodes, name, [], [info(output, None)])

    inner = helper.make_node(
        "If", ["second"], ["i"],
        then_branch=graph("a", [helper.make_node("Exp", ["x"], ["p"])], "p"),
        else_branch=graph("b", [helper.make_node("Flatten", ["x"], ["q"], axis=0)], "q"),
    )
    node = helper.make_node(
        "If", ["first"], ["y"], then_branch=graph("c", [inner], "i"),
        else_branch=graph("d", [helper.make_node("Concat", ["x", "x"], ["r"], axis=0)], "r"),
    )
    flags = [info("first", [], BOOL), info("second", [], BOOL)]
    return model_of([node], [info("x", ["n", 3]), *flags], [info("y", None)])


def test_branches_of_any_shapes() -> None:
    model = branches()
    compiled: Any = sterna.compile(model)
    for first in (True, False):
        for second in (True, False):
            agree(compiled, model, x=floats(2, 3), first=np.array(first), second=np.array(second))


def counting(body_nodes: Any, outputs: Any, results: Any, inputs: Any = ()) -> onnx.ModelProto:
    """A loop over x that goes on as long as its first result holds."""
    body = helper.make_graph(
        body_nodes, "body", [info("i", [], INT), info("go", [], BOOL), info("s", None)], outputs)
    node = helper.make_node("Loop", ["most", "first", "x"], results, body=body)
    return model_of([node], [info("x", ["n"]), info("most", [], INT), info("first", [], BOOL)],
                    [info(name, None) for name in results],
                    [("limit", np.float32(50)), ("two", np.float32(2)), ("axis", np.array([0]))])


def test_loops_that_end_by_a_condition() -> None:
    model = counting(
        [helper.make_node("Mul", ["s", "two"], ["next"]),
         helper.make_node("ReduceMax", ["next"], ["top"], keepdims=0),
         helper.make_node("Unsqueeze", ["top", "axis"], ["largest"]),
         helper.make_node("Less", ["top", "limit"], ["on"])],
        [info("on", [], BOOL), info("next", None), info("largest", None)], ["y", "steps"])
    compiled: Any = sterna.compile(model)
    for n, most in ((3, 100), (3, 2), (4, 100)):
        x = np.abs(floats(n)) + 0.5
        agree(compiled, model, x=x, most=np.array(most), first=np.array(True))


def test_long_loops_stay_loops() -> None:
    """One program for any number of rounds."""
    model = counting(
        [helper.make_node("Add", ["s", "two"], ["next"]),
         helper.make_node("Identity", ["go"], ["on"])],
        [info("on", [], BOOL), info("next", None)], ["y"])
    compiled: Any = sterna.compile(model)
    for most in (0, 3, 20_000):
        found = compiled(np.zeros(2, "float32"), np.array(most), np.array(True))
        np.testing.assert_array_equal(found, [2 * most] * 2)
    assert compiled.compiled == 1
    compiled.set_limits(calls=1000)
    with pytest.raises(RuntimeError, match="more than 1000 calls, the limit that is set"):
        compiled(np.zeros(2, "float32"), np.array(20_000), np.array(True))
    assert compiled(np.zeros(2, "float32"), np.array(3), np.array(True)).tolist() == [6, 6]


@pytest.mark.parametrize("backwards", [0, 1])
def test_long_scans_stay_loops(backwards: int) -> None:
    body = helper.make_graph(
        [helper.make_node("Add", ["s", "part"], ["next"]), helper.make_node("Exp", ["s"], ["e"]),
         helper.make_node("Identity", ["next"], ["copy"])], "body",
        [info("s", [3]), info("part", [3])],
        [info("next", [3]), info("e", [3]), info("copy", [3])])
    node = helper.make_node(
        "Scan", ["first", "data"], ["last", "a", "b"], body=body, num_scan_inputs=1,
        scan_input_axes=[1], scan_input_directions=[backwards], scan_output_axes=[0, 1],
        scan_output_directions=[0, 1])
    model = model_of([node], [info("first", [3]), info("data", [3, "n"])],
                     [info("last", None), info("a", None), info("b", None)])
    compiled: Any = sterna.compile(model)
    for length in (5, 40):
        first, data = floats(3), floats(3, length) / 10
        last, a, b = compiled(first, data)
        order = data[:, ::-1] if backwards else data
        sums = first[:, None] + np.cumsum(order, 1)
        before = np.concatenate([first[:, None], sums[:, :-1]], 1)
        np.testing.assert_allclose(last, sums[:, -1], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(a, np.exp(before).T, rtol=1e-4)
        np.testing.assert_allclose(b, sums[:, ::-1], rtol=1e-4, atol=1e-5)


def test_loops_whose_state_grows() -> None:
    model = counting(
        [helper.make_node("Concat", ["s", "s"], ["next"], axis=0),
         helper.make_node("Identity", ["go"], ["on"])],
        [info("on", [], BOOL), info("next", None)], ["y"])
    compiled: Any = sterna.compile(model)
    for most in (0, 1, 3):
        agree(compiled, model, x=floats(2), most=np.array(most), first=np.array(True))


def test_sequences_and_optionals_are_values() -> None:
    tensors = helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    model = model_of(
        [helper.make_node("SequenceInsert", ["s", "x", "at"], ["t"]),
         helper.make_node("SequenceAt", ["t", "at"], ["y"]),
         helper.make_node("SequenceLength", ["t"], ["n"])],
        [helper.make_value_info("s", tensors), info("x", ["n"]), info("at", [], INT)],
        [helper.make_value_info("t", tensors), info("y", None), info("n", None, INT)])
    compiled: Any = sterna.compile(model)
    given = [floats(2), floats(3)]
    for at in (0, 2, -1):
        found = compiled.run({"s": given, "x": floats(4), "at": np.array(at)})
        assert [len(part) for part in found["t"]] == {0: [4, 2, 3], 2: [2, 3, 4], -1: [2, 4, 3]}[at]
        assert found["n"] == 3
    with pytest.raises(InputError, match="input s: a sequence of tensors is given a ndarray"):
        compiled(floats(2), floats(2), np.array(0))


def test_text_is_split_and_joined_by_the_host() -> None:
    model = helper.make_model(helper.make_graph(
        [helper.make_node("StringConcat", ["a", "b"], ["joined"]),
         helper.make_node("StringSplit", ["joined"], ["parts", "count"], delimiter="-"),
         helper.make_node("Equal", ["a", "b"], ["same"]),
         helper.make_node("Cast", ["same"], ["number"], to=INT)], "text",
        [info("a", ["n"], TensorProto.STRING), info("b", ["n"], TensorProto.STRING)],
        [info("parts", None, TensorProto.STRING), info("count", None, INT),
         info("number", None, INT)],
    ), opset_imports=[helper.make_opsetid("", 20)])
    compiled: Any = sterna.compile(model)
    assert repr(compiled).startswith("OpenModel(a: text[n], b: text[n])")
    for a, b in ((["x-", "y"], ["z", "y"]), (["p-q-", "", "r"], ["s", "t-u", "r"])):
        parts, count, number = compiled(np.array(a), b)
        wanted = [(left + right).split("-") for left, right in zip(a, b, strict=True)]
        assert [[w for w in row if w] for row in parts.tolist()] == wanted
        assert count.tolist() == [len(row) for row in wanted]
        assert number.tolist() == [int(x == y) for x, y in zip(a, b, strict=True)]


def test_graphs_of_relay_with_open_dimensions() -> None:
    x, w = relay.var("x", shape=(relay.Any(), 4)), relay.var("w", shape=(3, 4))
    weights = floats(3, 4)
    compiled: Any = sterna.compile(
        relay.Function((x, w), relay.nn.relu(relay.nn.dense(x, w))), params={"w": weights})
    for rows in (1, 5):
        data = floats(rows, 4)
        np.testing.assert_allclose(compiled(data), np.maximum(data @ weights.T, 0), rtol=1e-5)
    c = relay.var("c", shape=(), dtype="bool")
    choice = sterna.compile(relay.Function((c, x), relay.If(c, relay.exp(x), x)))
    data = floats(2, 4)
    np.testing.assert_allclose(choice(np.array(True), data), np.exp(data), rtol=1e-6)
    np.testing.assert_array_equal(choice(np.array(False), data), data)


def test_threads_share_a_model() -> None:
    model = dense()
    compiled: Any = sterna.compile(model)

    def run(batch: int) -> None:
        ones = np.ones((batch, 9), "float32")
        agree(compiled, model, x=ones[:, :8].copy(), bias=ones[:, 8:].copy())

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, [1, 2, 1, 2, 2, 1]))
    assert compiled.compiled == 1


def test_values_that_decide_extents_are_served_by_one_program() -> None:
    """However many elements are found, nothing is compiled anew, and inputs are not written to."""
    node = helper.make_node("NonZero", ["x"], ["y"])
    model = model_of([node], [info("x", (3, 40))], [info("y", (2, "n"), INT)])
    compiled = sterna.compile(model)
    for count in (0, 1, 17, 120):
        given = RNG.permutation(np.arange(120) < count).astype("float32").reshape(3, 40)
        kept = given.copy()
        agree(compiled, model, x=given)
        agree(compiled, model, x=given[:, ::-1])
        np.testing.assert_array_equal(compiled(given), np.array(np.nonzero(given)))
        np.testing.assert_array_equal(given, kept)
    assert isinstance(compiled, OpenModel)
    assert compiled.compiled == 1


def test_results_of_open_models_are_the_callers_own() -> None:
    """Writing to a result changes no input, no constant, and no other result."""
    ones = np.ones((2, 3), "float32")
    model = model_of(
        [helper.make_node("Relu", ["x"], ["a"]), helper.make_node("Identity", ["x"], ["b"]),
         helper.make_node("Identity", ["w"], ["c"]), helper.make_node("NonZero", ["x"], ["d"]),
         helper.make_node("Identity", ["a"], ["e"])],
        [info("x", ["n", "m"])],
        [info("a", ["n", "m"]), info("b", ["n", "m"]), info("c", [2, 3]), info("d", [2, "k"], INT),
         info("e", ["n", "m"])],
        [("w", ones)],
    )
    compiled = sterna.compile(model)
    given = floats(37, 41)
    kept, earlier = given.copy(), []
    for _ in range(3):
        found = agree(compiled, model, x=given)
        earlier.append(found)
        for value in found.values():
            assert value.flags.writeable and value.flags.c_contiguous
            value[...] = 9
        np.testing.assert_array_equal(given, kept)
    assert all((value == 9).all() for found in earlier for value in found.values())


def test_results_of_open_extents_are_not_copied() -> None:
    node = helper.make_node("Relu", ["x"], ["y"])
    compiled: Any = sterna.compile(model_of([node], [info("x", ["n", "m"])], [info("y", None)]))
    compiled.cancel_specialising()
    for shape in ((300, 400), (7, 3), (0, 5), (1, 1)):
        given = floats(*shape)
        result = compiled(given)
        assert result.base is not None and result.flags.writeable
        np.testing.assert_array_equal(result, np.maximum(given, 0))
