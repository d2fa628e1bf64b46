"""A .pt2 file as torch.export.save writes it, made without PyTorch."""

import io
import json
import zipfile
from typing import Any

import numpy as np

FLOAT = 7


def _meta(sizes: list[int]) -> dict[str, Any]:
    steps = [int(np.prod(sizes[at + 1 :])) for at in range(len(sizes))]
    return {
        "dtype": FLOAT, "sizes": [{"as_int": size} for size in sizes], "requires_grad": False,
        "device": {"type": "cpu", "index": None},
        "strides": [{"as_int": step} for step in steps], "storage_offset": {"as_int": 0},
        "layout": 7,
    }


def _node(target: str, result: str, **arguments: Any) -> dict[str, Any]:
    return {
        "target": f"torch.ops.aten.{target}",
        "inputs": [{"name": name, "arg": value, "kind": 1} for name, value in arguments.items()],
        "outputs": [{"as_tensor": {"name": result}}],
        "metadata": {"stack_trace": 'File "net.py", line 7, in forward\n    return x'},
        "name": result,
    }


def tensor(name: str) -> dict[str, Any]:
    """An argument that is a tensor."""
    return {"as_tensor": {"name": name}}


def program() -> dict[str, Any]:
    """linear, a change in place of a part, and a reduction."""
    nodes = [
        _node("linear.default", "made", input=tensor("x"), weight=tensor("w")),
        _node("select.int", "part", self=tensor("made"), dim={"as_int": 0}, index={"as_int": 1}),
        _node("fill_.Scalar", "filled", self=tensor("part"), value={"as_float": 2.5}),
        _node("cat.default", "both", tensors={"as_tensors": [{"name": "made"}, {"name": "made"}]},
              dim={"as_int": 1}),
        _node("sum.dim_IntList", "y", self=tensor("both"), dim={"as_ints": [0]},
              keepdim={"as_bool": True}),
    ]
    specs = [
        {"parameter": {"arg": {"name": "w"}, "parameter_name": "layer.weight"}},
        {"user_input": {"arg": tensor("x")}},
    ]
    graph = {
        "inputs": [tensor("w"), tensor("x")], "outputs": [tensor("y")], "nodes": nodes,
        "tensor_values": {"w": _meta([3, 4]), "x": _meta([2, 4])},
    }
    signature = {"input_specs": specs, "output_specs": [{"user_output": {"arg": tensor("y")}}]}
    return {
        "graph_module": {"graph": graph, "signature": signature},
        "schema_version": {"major": 8, "minor": 20}, "range_constraints": {},
    }


# ---- programs with graphs in them ----

Json = dict[str, Any]
_X, _STATE = [4, 3], [3]


def _graph(inputs: dict[str, list[int]], nodes: list[Json], outputs: list[str]) -> Json:
    return {
        "inputs": [tensor(name) for name in inputs], "outputs": [tensor(name) for name in outputs],
        "nodes": nodes, "tensor_values": {name: _meta(sizes) for name, sizes in inputs.items()},
    }


def _taking(target: str, results: list[str], *given: Json) -> Json:
    """A node that takes graphs, whose arguments have no names."""
    return {
        **_node("", "", **{}), "target": f"torch.ops.higher_order.{target}", "name": results[0],
        "inputs": [{"name": "", "arg": value, "kind": 1} for value in given],
        "outputs": [tensor(name) for name in results],
    }


def _inner(name: str, graph: Json) -> Json:
    return {"as_graph": {"name": name, "graph": graph}}


def _tensors(*names: str) -> Json:
    return {"as_tensors": [{"name": name} for name in names]}


def _binary(target: str, result: str, a: str, b: str | int) -> Json:
    other = tensor(b) if isinstance(b, str) else {"as_int": b}
    return _node(target, result, self=tensor(a), other=other)


def _choice(depth: int) -> Json:
    """A condition on the sum of a tensor; its branches may hold another one."""
    def branch(target: str) -> Json:
        nodes = [_binary(target, "b", "a", 2)]
        if depth:
            nodes += [
                _node("sum.default", "s", self=tensor("b")), _binary("gt.Scalar", "p", "s", 0),
                _taking("cond", ["c"], tensor("p"), _inner("t", _choice(depth - 1)),
                        _inner("f", _choice(depth - 1)), _tensors("b")),
            ]
        return _graph({"a": _X}, nodes, ["c" if depth else "b"])

    return branch("mul.Tensor" if depth % 2 else "add.Tensor")


def _cond(depth: int) -> list[Json]:
    depth = min(depth, 5)  # both branches hold the next one: the file doubles
    return [
        _node("sum.default", "total", self=tensor("x")), _binary("gt.Scalar", "flag", "total", 0),
        _taking("cond", ["y"], tensor("flag"), _inner("yes", _choice(depth)),
                _inner("no", _choice(depth)), _tensors("x")),
    ]


def _while(depth: int) -> list[Json]:
    """A loop whose condition asks another loop, which asks another one."""
    states: dict[str, list[int]] = {"i": [], "a": _X}
    nodes = [_binary("add.Tensor", "j", "i", 1), _binary("mul.Tensor", "b", "a", 2)]
    body = _inner("body", _graph(states, nodes, ["j", "b"]))
    goes_on = _graph(states, [_binary("lt.Scalar", "less", "i", 5)], ["less"])
    for _ in range(depth):
        asked = [
            _taking("while_loop", ["k", "c"], _inner("cond", goes_on), body, _tensors("i", "a"),
                    _tensors()),
            _binary("lt.Scalar", "less", "k", 5),
        ]
        goes_on = _graph(states, asked, ["less"])
    return [
        _node("sum.default", "first", self=tensor("x")),
        _taking("while_loop", ["count", "y"], _inner("cond", goes_on), body,
                _tensors("first", "x"), _tensors()),
    ]


def _scan(depth: int) -> list[Json]:
    """States along the rows of a matrix; the rounds of an outer one hold all of an inner one."""
    inner = [_binary("add.Tensor", "d", "c", "r"), _binary("mul.Tensor", "e", "c", "r")]
    made = _graph({"c": _STATE, "r": _STATE}, inner, ["d", "e"])
    for level in range(depth):
        outer = [
            _taking("scan", ["d", "rows"], _inner("combine", made), _tensors("c"),
                    _tensors("all"), _tensors("all") if level else _tensors()),
            _binary("mul.Tensor", "e", "d", "r"),
        ]
        made = _graph({"c": _STATE, "r": _STATE, "all": _X}, outer, ["d", "e"])
    return [
        _node("select.int", "zero", self=tensor("x"), dim={"as_int": 0}, index={"as_int": 0}),
        _taking("scan", ["state", "y"], _inner("combine", made), _tensors("zero"), _tensors("x"),
                _tensors("x") if depth else _tensors()),
    ]


def _map(depth: int) -> list[Json]:
    body = _graph({"r": _STATE, "z": _STATE}, [_binary("add.Tensor", "b", "r", "z")], ["b"])
    return [
        _node("select.int", "zero", self=tensor("x"), dim={"as_int": 0}, index={"as_int": depth}),
        _taking("map_impl", ["y"], _inner("body", body), _tensors("x"), _tensors("zero")),
    ]


def _checked(depth: int) -> list[Json]:
    """A size that the data decides, with a check of it."""
    def number(name: str) -> Json:
        return {"as_sym_int": {"as_name": name}}

    item = {**_node("item.default", "n", self=tensor("whole")), "outputs": [number("n")]}
    holds = {
        **_node("", "ok", a=number("n"), b={"as_int": depth}), "target": "_operator.ge",
        "outputs": [{"as_sym_bool": {"as_name": "ok"}}],
    }
    check = {
        **_node("_assert_scalar.default", "check", self={"as_sym_bool": {"as_name": "ok"}},
                assert_msg={"as_string": "n >= 0"}), "outputs": [],
    }
    return [
        _node("sum.default", "total", self=tensor("x")),
        _node("to.dtype", "whole", self=tensor("total"), dtype={"as_scalar_type": 5}),
        item, holds, check,
        _node("zeros.default", "y", size={"as_sym_ints": [{"as_name": "n"}]}),
    ]


CONTROL = (_cond, _while, _scan, _map, _checked)


def control_program(kind: int, depth: int) -> dict[str, Any]:
    """A program that branches, goes round or checks itself, with graphs in graphs so deep."""
    made = program()
    graph = made["graph_module"]["graph"]
    graph["nodes"] = CONTROL[kind](depth)
    graph["tensor_values"]["x"] = _meta(_X)
    return made


def weights_config() -> dict[str, Any]:
    """Where the weights lie."""
    about = {
        "path_name": "weight_0", "is_param": True, "use_pickle": False,
        "tensor_meta": _meta([3, 4]),
    }
    return {"config": {"layer.weight": about}}


def archive(model: Any, config: Any, weight: bytes | None = None) -> bytes:
    """The bytes of a file that holds these."""
    made = io.BytesIO()
    data = np.arange(12, dtype="<f4").tobytes() if weight is None else weight
    entries = {
        "data/weights/weight_0": data,
        "data/weights/model_weights_config.json": json.dumps(config).encode(),
        "models/model.json": json.dumps(model).encode(),
        "archive_format": b"pt2", "byteorder": b"little",
    }
    with zipfile.ZipFile(made, "w") as file:
        for name, content in entries.items():
            file.writestr(zipfile.ZipInfo(f"net/{name}"), content)
    return made.getvalue()
