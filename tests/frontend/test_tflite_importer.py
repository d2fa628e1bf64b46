"""from_tflite: what it takes, what it says, and what it refuses."""

import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tflite
from ai_edge_litert import schema_py_generated as schema

import sterna
from sterna import relay
from sterna.frontend.calls import call
from sterna.frontend.tflite.node import Node
from sterna.frontend.tflite.schema import read_model
from sterna.frontend.tflite.state import initial_state
from sterna.relay.frontend import from_tflite
from sterna.support.errors import OpNotImplemented
from sterna.testing.fuzz.fuzzers.tflite_files import FUZZER, small_model
from sterna.testing.fuzz.runner import fuzz
from sterna.testing.fuzz.write_flatbuffer import Number, write_flatbuffer
from tests.frontend.tflite_models import (
    Graph,
    Op,
    T,
    constant,
    model,
    one_operator,
    run_imported,
    run_litert,
)

RELU = one_operator("RELU", [T((2, 3))], [T((2, 3))])
X = np.array([[-1, 2, -3], [4, -5, 6]], "float32")


# ---- what it takes ----


def test_a_path_bytes_and_the_object_of_the_package(tmp_path: Path) -> None:
    path = tmp_path / "relu.tflite"
    path.write_bytes(RELU)
    for given in (RELU, bytearray(RELU), memoryview(RELU), path, str(path),
                  tflite.Model.GetRootAsModel(bytearray(RELU), 0), schema.Model.GetRootAs(RELU, 0)):
        module, params = from_tflite(given)
        assert [var.name_hint for var in module["main"].params] == ["t0"] and not params
    with pytest.raises(TypeError, match=r"the path or the bytes of a file or a tflite\.Model"):
        from_tflite(3)


def test_it_is_compiled_like_any_model(tmp_path: Path) -> None:
    path = tmp_path / "model.bin"  # what a file begins with counts more than its name
    path.write_bytes(RELU)
    np.testing.assert_array_equal(np.asarray(sterna.compile(path)(X)), np.maximum(X, 0))
    done = subprocess.run(
        [sys.executable, "-m", "sterna", "inspect", str(path)], capture_output=True, text=True,
        timeout=120,
    )
    assert done.returncode == 0 and "t0" in done.stdout, done.stderr


def test_signatures_name_inputs_and_outputs() -> None:
    graph = Graph([T((2, 3)), T((2, 3))], [Op("RELU", [0], [1])], [0], [1],
                  signature=("serve", {"x": 0}, {"y": 1}))
    data = model(graph)
    module, _ = from_tflite(data, signature="serve")
    assert module["main"].params[0].name_hint == "x"
    assert module.attrs["output_names"] == ("y",)
    with pytest.raises(ValueError, match="no signature 'other'; it has serve"):
        from_tflite(data, signature="other")


def test_shapes_may_be_others_than_those_of_the_file() -> None:
    data = one_operator("SHAPE", [T((1, 3))], [T((2,), "int32")], ("ShapeOptions", {"outType": 2}))
    with pytest.warns(UserWarning, match="dimension 0 is 1 in the model and 5"):
        module, _ = from_tflite(data, {"t0": (5, 3)})
    assert module["main"].params[0].checked_type.concrete_shape == (5, 3)
    with pytest.raises(ValueError, match="shape_dict names 'other', which is no input"):
        from_tflite(RELU, {"other": (1,)})


def test_weights_may_stay_parameters() -> None:
    weight = np.arange(12, dtype="float32").reshape(4, 3)
    data = one_operator("FULLY_CONNECTED", [T((2, 3)), constant(weight), None], [T((2, 4))],
                        ("FullyConnectedOptions", {}))
    module, params = from_tflite(data, freeze_params=False)
    assert list(params) == ["t1"] and len(module["main"].params) == 2
    np.testing.assert_allclose(run_imported(data, X, freeze_params=False)[0], X @ weight.T)


def test_users_convert_operators_of_their_own() -> None:
    data = one_operator("Twice", [T((2, 3))], [T((2, 3))])
    with pytest.raises(OpNotImplemented, match="custom operator Twice: t1"):
        from_tflite(data)

    def twice(node: Node) -> Any:
        return call("add", node[0], node[0])

    (made,) = run_imported(data, X, op_converter={"Twice": twice})
    np.testing.assert_array_equal(made, X + X)


def test_shapes_that_are_computed_are_known_at_import() -> None:
    """As Keras writes a flattening: the batch from the data, the rest as it was."""
    tensors = [
        T((2, 3, 4)), T((3,), "int32"), constant(np.array([0], "int32")),
        constant(np.array([1], "int32")), constant(np.array([1], "int32")), T((), "int32"),
        constant(np.int32(12)), T((2,), "int32"), T((2, 12)),
    ]
    graph = Graph(tensors, [
        Op("SHAPE", [0], [1], ("ShapeOptions", {"outType": 2})),
        Op("STRIDED_SLICE", [1, 2, 3, 4], [5], ("StridedSliceOptions", {"shrinkAxisMask": 1})),
        Op("PACK", [5, 6], [7], ("PackOptions", {"valuesCount": 2})),
        Op("RESHAPE", [0, 7], [8], ("ReshapeOptions", {})),
    ], [0], [8])
    x = np.arange(24, dtype="float32").reshape(2, 3, 4)
    (made,) = run_imported(model(graph), x)
    np.testing.assert_array_equal(made, x.reshape(2, 12))


# ---- types of weights ----


def test_weights_of_16_bits_and_of_4() -> None:
    half = np.array([[0.5, -2, 3], [1, 0, 7]], "float16")
    graph = Graph(
        [T((2, 3)), constant(half), T((2, 3)), T((2, 2))],
        [Op("DEQUANTIZE", [1], [2], ("DequantizeOptions", {})),
         Op("FULLY_CONNECTED", [0, 2, -1], [3], ("FullyConnectedOptions", {}))], [0], [3],
    )
    data = model(graph)
    np.testing.assert_allclose(run_imported(data, X)[0], run_litert(data, X)[0], rtol=1e-6)
    whole = np.array([[7, -8, 3, 1], [-1, 0, 5, -5]])
    flat = (whole.reshape(-1) & 15).astype(np.uint8)
    packed = T((2, 4), "int4", bytes(flat[::2] | flat[1::2] << 4), scale=[0.5, 0.25], axis=0)
    data = one_operator("DEQUANTIZE", [packed], [T((2, 4))], ("DequantizeOptions", {}))
    (made,) = run_imported(data)
    np.testing.assert_array_equal(made, whole * np.array([[0.5], [0.25]]))


def test_weights_with_scales_for_blocks() -> None:
    rng = np.random.default_rng(0)
    packed = rng.integers(0, 256, (6, 32)).astype("uint8")
    scales = rng.uniform(0.01, 0.1, (6, 2)).astype("float16")
    graph = Graph(
        [T((3, 64)), T((6, 64), "int4", packed.tobytes(), blocks=(2, 32)), constant(scales),
         T((3, 6))],
        [Op("FULLY_CONNECTED", [0, 1, -1], [3], ("FullyConnectedOptions", {}))], [0], [3],
    )
    x = rng.normal(size=(3, 64)).astype("float32")
    (made,), (wanted,) = run_imported(model(graph), x), run_litert(model(graph), x)
    np.testing.assert_allclose(made, wanted, rtol=1e-6, atol=1e-6)
    broken = replace(graph, tensors=[*graph.tensors[:2], constant(scales[:, :1]), T((3, 6))])
    with pytest.raises(ValueError, match="6 scales for 6 rows of 2 blocks"):
        from_tflite(model(broken))


def test_sparse_weights_have_their_zeros_back() -> None:
    dense = np.array([[0, 3, 0, 0], [0, 0, 0, 0], [5, 0, 0, 7]], "float32")
    sparsity = schema.SparsityParametersT()
    sparsity.traversalOrder, sparsity.blockMap = [0, 1], []
    rows, columns = schema.DimensionMetadataT(), schema.DimensionMetadataT()
    rows.format, rows.denseSize = 0, 3
    columns.format = 1
    for name, numbers in (("Segments", [0, 1, 1, 3]), ("Indices", [1, 0, 3])):
        vector = schema.Int32VectorT()
        vector.values = numbers
        setattr(columns, f"array{name}", vector)
        setattr(columns, f"array{name}Type", 1)
    sparsity.dimMetadata = [rows, columns]
    held = T((3, 4), "float32", np.array([3, 5, 7], "float32"), sparsity=sparsity)
    data = one_operator("DENSIFY", [held], [T((3, 4))], ("DensifyOptions", {}))
    np.testing.assert_array_equal(run_imported(data)[0], dense)


# ---- what a model remembers ----


def test_variables_are_inputs_and_outputs() -> None:
    handle = ("VarHandleOptions", {"sharedName": "total"})
    main = Graph(
        [T((2,)), T((), "resource"), T((2,)), T((2,))],
        [Op("CALL_ONCE", [], [], ("CallOnceOptions", {"initSubgraphIndex": 1})),
         Op("VAR_HANDLE", [], [1], handle),
         Op("READ_VARIABLE", [1], [2], ("ReadVariableOptions", {})),
         Op("ADD", [0, 2], [3], ("AddOptions", {})),
         Op("ASSIGN_VARIABLE", [1, 3], [], ("AssignVariableOptions", {}))], [0], [3],
    )
    first = Graph(
        [T((), "resource"), constant(np.array([5, 10], "float32")), T((2,))],
        [Op("VAR_HANDLE", [], [0], handle), Op("ADD", [1, 1], [2], ("AddOptions", {})),
         Op("ASSIGN_VARIABLE", [0, 2], [], ("AssignVariableOptions", {}))], [], [], "first",
    )
    data = model(main, first)
    module, _ = from_tflite(data)
    assert [var.name_hint for var in module["main"].params] == ["t0", "total"]
    assert module.attrs["output_names"] == ("t3", "total:next")
    state = initial_state(data)
    x = np.array([1, 2], "float32")
    for wanted in ([11, 22], [12, 24]):
        made, state["total"] = run_imported(data, x, state["total"])
        np.testing.assert_array_equal(made, wanted)


# ---- what it refuses ----


def test_all_that_is_not_supported_is_named_at_once() -> None:
    graph = Graph([T((2,)) for _ in range(4)], [
        Op("HASHTABLE_LOOKUP", [0], [1]), Op("Mine", [1], [2]), Op("RFFT2D", [0], [3]),
    ], [0], [2, 3])
    with pytest.raises(OpNotImplemented) as raised:
        from_tflite(model(graph))
    for part in ("HASHTABLE_LOOKUP: t1", "custom operator Mine: t2", "RFFT2D: t3"):
        assert part in str(raised.value)


def test_strings_are_refused_by_name() -> None:
    data = one_operator("SHAPE", [T((2,), "string")], [T((1,), "int32")], ("ShapeOptions", {}))
    with pytest.raises(OpNotImplemented, match="elements of type string"):
        from_tflite(data)


@pytest.mark.parametrize("data,message", [
    (b"", "no flatbuffer of TFL3"), (b"\x08\0\0\0TFL3", "it points to byte"),
    (b"\xff\xff\xff\x7fTFL3" + bytes(40), "it points to byte"),
    (write_flatbuffer({0: Number("I", 2)}, b"TFL3"), "of schema 2"),
    (write_flatbuffer({0: Number("I", 3)}, b"TFL3"), "has no subgraph"),
    (write_flatbuffer({0: Number("I", 3), 2: [{}]}, b"TFL3"), "has no output"),
])
def test_broken_files_are_refused(data: bytes, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        from_tflite(data)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.tflite"
    path.write_bytes(b"no model at all")
    with pytest.raises(ValueError, match=r"broken\.tflite': these bytes are no flatbuffer"):
        from_tflite(path)


def test_a_file_that_shares_its_parts_without_end_is_refused() -> None:
    """A vector of offsets that all lead to one graph of many tensors."""
    graphs: list[Any] = [{0: [{3: "x"}] * 200}, *[{}] * 2000]
    whole = bytearray(write_flatbuffer({0: Number("I", 3), 2: graphs}, b"TFL3"))
    field = struct.unpack_from("<I", whole, 0)[0] + 16  # the second field: subgraphs
    at = field + struct.unpack_from("<I", whole, field)[0]
    first = at + 4 + struct.unpack_from("<I", whole, at + 4)[0]
    for place in range(at + 4, at + 4 + 4 * len(graphs), 4):
        struct.pack_into("<I", whole, place, first - place)
    with pytest.raises(ValueError, match="shares its parts so often"):
        read_model(bytes(whole))


def test_no_broken_file_crashes_or_hangs(tmp_path: Path, search_seconds: float) -> None:
    (tmp_path / "tflite").mkdir()
    (tmp_path / "tflite" / "small.tflite").write_bytes(small_model())
    (tmp_path / "tflite" / "relu.tflite").write_bytes(RELU)
    (tally,) = fuzz([FUZZER], search_seconds / 4, 7, tmp_path)
    assert tally.cases > 0
    if tally.findings:
        pytest.fail(f"{tally.findings[0].error}\n{tally.findings[0].program}")


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="rounding is one of xnnpack, tflm, not 'up'"):
        from_tflite(RELU, rounding="up")
    assert relay.frontend.from_tflite is from_tflite
