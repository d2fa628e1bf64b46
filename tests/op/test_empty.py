"""Tensors without elements: every operator takes them, or its type rule says why it cannot.

The cases of all operators, with one dimension set to 0: of one operand, or of all that have that
extent. What the type rule takes, the reference and the compiled kernel give alike.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay, te
from sterna.contrib import graph_executor
from sterna.ir.types import TensorType, TupleType, Type, flatten_type
from sterna.relay.arrays import from_numpy, to_numpy
from sterna.relay.infer import TypeInferenceError
from sterna.relay.op import Case, Op, OpRecord, records
from sterna.relay.reference import value_of_type
from tests.op.harness import (
    argument_of,
    arrays_of,
    assert_same,
    check_operands,
    constant_of,
    flatten,
    type_of,
)


def _emptied(operands: list[Any], is_cut: Callable[[int, int, int], bool]) -> list[Any]:
    """The operands without the elements along dimensions, asked by operand, axis and extent."""
    count = iter(range(1000))

    def cut(value: Any) -> Any:
        if isinstance(value, list):
            return [cut(item) for item in value]
        place = next(count)
        kept = [0 if is_cut(place, axis, n) else n for axis, n in enumerate(value.shape)]
        return value[tuple(slice(0, extent) for extent in kept)] if kept else value

    return [cut(value) for value in operands]


def emptied(case: Case) -> Iterator[list[Any]]:
    """The operands of a case with one extent set to 0, alone and wherever it is met."""
    operands = arrays_of(case)
    seen = set()
    for place, value in enumerate(flatten(operands)):
        for axis, extent in enumerate(value.shape):
            for made in (
                _emptied(operands, lambda p, a, n, own=(place, axis): (p, a) == own),  # type: ignore[misc]
                _emptied(operands, lambda p, a, n, own=extent: n == own),  # type: ignore[misc]
            ):
                shapes = tuple(part.shape for part in flatten(made))
                if shapes not in seen:
                    seen.add(shapes)
                    yield made


def _fits(record: OpRecord, attrs: Any, operands: list[Any]) -> bool:
    """Whether the type rule takes operands; it refuses others with a message of its own."""
    try:
        record.infer(attrs, *[type_of(value) for value in operands])
        if record.to_static is not None:  # numbers among the operands say a shape
            assert record.reference is not None
            record.reference(attrs, *operands)
            record.to_static(attrs, tuple(map(constant_of, operands)))
    except (ValueError, TypeInferenceError) as error:
        assert str(error)
        return False
    return True


def _patterns(kinds: list[Type]) -> Any:
    """What tells one way of being empty from another: which dimensions are 0."""
    return [
        [extent == 0 for extent in kind.shape] if isinstance(kind, TensorType) else "tuple"
        for kind in kinds
    ]


@pytest.mark.parametrize("record", records().values(), ids=lambda record: record.name)
@pytest.mark.filterwarnings("ignore:.*(invalid value|empty slice)")
def test_every_operator(record: OpRecord) -> None:
    done = []
    for case in record.cases:
        attrs = record.attrs(**case.attrs) if record.attrs is not None else None
        for operands in emptied(case):
            pattern = _patterns([type_of(value) for value in operands])
            if pattern not in done and _fits(record, attrs, operands):
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
        operands = next(made for made in emptied(case) if _fits(record, attrs, made))
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


def test_axes_of_no_elements_are_fused_and_split() -> None:
    x = te.placeholder((3, 0), name="x")
    y = te.compute((3, 0), lambda i, j: x[i, j] + 1.0, name="y")
    schedule = te.create_schedule(y.op)
    stage = schedule[y]
    outer, inner = stage.split(stage.fuse(*stage.op.axis), factor=4)
    stage.parallel(outer)
    stage.vectorize(inner)
    run = tvm.build(schedule, [x, y], "llvm")
    run(tvm.nd.empty((3, 0)), tvm.nd.empty((3, 0)))


def test_what_cannot_be_empty_says_so() -> None:
    with pytest.raises(ValueError, match=r"data of shape \(3, 0\) is empty where"):
        records()["argmax"].infer(
            records()["argmax"].attrs(axis=1), TensorType((3, 0))  # type: ignore[misc]
        )
