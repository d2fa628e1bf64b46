"""Tensors without elements: every operator takes them, or its type rule says why it cannot.

The cases of all operators, with one dimension set to 0: of one operand, or of all that have that
extent. What the type rule takes, the reference and the compiled kernel give alike.
"""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from sterna.contrib import graph_executor
from sterna.ir.types import TensorType, TupleType, Type, flatten_type
from sterna.relay.arrays import from_numpy, to_numpy
from sterna.relay.infer import TypeInferenceError
from sterna.relay.op import AnyOp, Op, records
from sterna.relay.reference import value_of_type
from tests.op.empty_cases import emptied, fits_type_rule
from tests.op.harness import argument_of, assert_same, check_operands, flatten, type_of


def _patterns(kinds: list[Type]) -> Any:
    """What tells one way of being empty from another: which dimensions are 0."""
    return [
        [extent == 0 for extent in kind.shape] if isinstance(kind, TensorType) else "tuple"
        for kind in kinds
    ]


@pytest.mark.parametrize("record", records().values(), ids=lambda record: record.name)
@pytest.mark.filterwarnings("ignore:.*(invalid value|empty slice)")
def test_every_operator(record: AnyOp) -> None:
    done = []
    for case in record.cases:
        attrs = record.attrs(**case.attrs) if record.attrs is not None else None
        for operands in emptied(case):
            pattern = _patterns([type_of(value) for value in operands])
            if pattern not in done and fits_type_rule(record, attrs, operands):
                done.append(pattern)
                check_operands(record, attrs, operands, case.tolerance)


# Ways through the compiler that differ: fused elements, sums, products, windows, statements, views,
# and operators that passes rewrite.
BUILT = (
    "nn.relu", "add", "sum", "max", "nn.softmax", "nn.dense", "nn.batch_matmul", "nn.conv2d",
    "nn.max_pool2d", "nn.batch_norm", "nn.layer_norm", "concatenate", "reshape", "transpose",
    "take", "argsort", "cumsum", "image.resize2d", "nn.lstm", "nn.attention", "qnn.dense",
    "vision.yolo_reorg",
)


def _results(func: relay.Function, values: list[Any], level: int, target: str) -> list[Any]:
    with tvm.transform.PassContext(opt_level=level):
        library = relay.build(tvm.IRModule.from_expr(func), target=target)
    module = graph_executor.GraphModule(library["default"](tvm.cpu()))
    for param, value in zip(func.params, values, strict=True):
        module.set_input(param.name_hint, from_numpy(np.asarray(value, order="C")))
    module.run()
    return [to_numpy(module.get_output(i)) for i in range(module.get_num_outputs())]


@pytest.mark.parametrize(("level", "target"), [(0, "llvm"), (1, "c"), (3, "llvm")])
def test_one_network(level: int, target: str) -> None:
    """One network of an empty use of each: kernels, memory plan and executor take them."""
    values: dict[relay.Var, Any] = {}
    calls, wanted = [], []
    for name in BUILT:
        record, case = records()[name], records()[name].cases[0]
        attrs = record.attrs(**case.attrs) if record.attrs is not None else None
        operands = next(made for made in emptied(case) if fits_type_rule(record, attrs, made))
        call = relay.Call(Op(name), tuple(argument_of(value, values) for value in operands), attrs)
        calls.append(call)
        wanted += flatten(value_of_type(record, attrs, call.checked_type, operands))
    parts = [
        relay.TupleGetItem(call, i) if isinstance(call.checked_type, TupleType) else call
        for call in calls for i in range(len(flatten_type(call.checked_type)))
    ]
    func = relay.Function(tuple(values), relay.Tuple(tuple(parts)))
    got = _results(func, list(values.values()), level, target)
    for have, want in zip(got, wanted, strict=True):
        assert_same(have, want, 1e-5)


@pytest.mark.parametrize("is_split", [False, True])
def test_axes_of_no_elements_are_scheduled(is_split: bool) -> None:
    x = te.placeholder((3, 0), name="x")
    y = te.compute((3, 0), lambda i, j: x[i, j] + 1.0, name="y")
    schedule = te.create_schedule(y.op)
    stage = schedule[y]
    outer, inner = stage.op.axis
    if is_split:
        outer, inner = stage.split(stage.fuse(outer, inner), factor=4)
    stage.parallel(outer)
    stage.vectorize(inner)
    run = tvm.build(schedule, [x, y], "llvm")
    run(tvm.nd.empty((3, 0)), tvm.nd.empty((3, 0)))


def test_what_cannot_be_empty_says_so() -> None:
    data = relay.var("data", shape=(3, 0))
    with pytest.raises(TypeInferenceError, match=r"data of shape \(3, 0\) is empty where"):
        relay.argmax(data, axis=1)
