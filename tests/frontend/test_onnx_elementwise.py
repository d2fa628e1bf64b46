"""Operators of ONNX that work element by element."""

from typing import Any

import numpy as np
import pytest

from tests.frontend.support import check, run_evaluator

RNG = np.random.default_rng(0)


def floats(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype("float32")


@pytest.mark.parametrize("kind", [
    "Abs", "Asinh", "Atan", "Ceil", "Cos", "Cosh", "Elu", "Erf", "Exp", "Floor", "HardSigmoid",
    "HardSwish", "Identity", "IsNaN", "IsInf", "LeakyRelu", "Neg", "Reciprocal", "Relu", "Round",
    "Selu", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Tan", "Tanh",
    "ThresholdedRelu", "Celu", "Shrink",
])
def test_unary(kind: str) -> None:
    check(kind, floats(3, 4))


@pytest.mark.parametrize("kind", ["Acos", "Asin", "Atanh", "Log", "Sqrt"])
def test_unary_of_a_range(kind: str) -> None:
    check(kind, RNG.uniform(0.1, 0.9, (3, 4)).astype("float32"))


def test_acosh_gelu_and_not() -> None:
    check("Acosh", RNG.uniform(1.1, 9, (3, 4)).astype("float32"))
    check("Gelu", floats(3, 4), opset=20)
    check("Gelu", floats(3, 4), opset=20, approximate="tanh")
    check("Not", np.array([True, False]))


@pytest.mark.parametrize("kind", ["Add", "Sub", "Mul", "Div", "Max", "Min", "Sum", "Mean", "Pow"])
def test_binary(kind: str) -> None:
    check(kind, np.abs(floats(2, 3, 4)), floats(3, 1))


@pytest.mark.parametrize("kind", ["Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"])
def test_comparisons(kind: str) -> None:
    check(kind, RNG.integers(0, 3, (3, 4)), RNG.integers(0, 3, (4,)))


@pytest.mark.parametrize("kind", ["And", "Or", "Xor"])
def test_logic(kind: str) -> None:
    check(kind, RNG.random((3, 4)) > 0.5, RNG.random((4,)) > 0.5)


def test_whole_numbers() -> None:
    a, b = np.array([7, -7, 7, -7]), np.array([2, 2, -2, -2])
    check("Div", a, b)
    check("Mod", a, b)
    check("Mod", a, b, fmod=1)
    check("Mod", a.astype("float32"), b.astype("float32"), fmod=1)
    check("BitShift", np.array([1, 6], "uint32"), np.array([3, 1], "uint32"), direction="LEFT")
    check("BitShift", np.array([1, 6], "uint32"), np.array([3, 1], "uint32"), direction="RIGHT")
    check("BitwiseAnd", a, b, opset=18)
    check("BitwiseXor", a, b, opset=18)
    check("BitwiseNot", a, opset=18)
    check("Pow", floats(3) ** 2, np.array([2, 3, 4]))


def test_bounds() -> None:
    low, high = np.float32(-0.5), np.float32(0.5)
    check("Clip", floats(3, 4), low, high, weights=[1, 2])
    check("Clip", floats(3, 4), low, high)
    check("Clip", floats(3, 4), None, high, weights=[2])
    check("Clip", floats(3, 4), low, weights=[1])
    check("Clip", floats(3, 4), opset=7, min=-0.5, max=0.5)
    check("Clip", np.arange(9), np.int64(2), np.int64(5), weights=[1, 2])


@pytest.mark.parametrize("to", ["int32", "float64", "bool", "uint8", "float16"])
def test_cast(to: str) -> None:
    from onnx import helper

    number = helper.np_dtype_to_tensor_dtype(np.dtype(to))
    check("Cast", np.abs(floats(3, 4)) * 5, to=number)


@pytest.mark.parametrize("shape", [(1,), (3, 1, 1), (4,), (3, 4, 5)])
def test_prelu(shape: tuple[int, ...]) -> None:
    data = floats(2, 3, 5, 4) if shape != (3, 4, 5) else floats(2, 3, 4, 5)
    check("PRelu", data, floats(*shape), weights=[1])


def test_prelu_of_integers() -> None:
    data = np.array([[[-3, 0], [2, -1], [-(2**31), 5]]], "int32")
    slopes = np.array([[7], [-1], [2]], "int32")
    check("PRelu", data, slopes, weights=[1], reference=run_evaluator)


def test_choice_and_special_values() -> None:
    check("Where", RNG.random((3, 1)) > 0.5, floats(3, 4), floats(4))
    odd = np.array([np.inf, -np.inf, np.nan, 1], "float32")
    check("IsInf", odd)
    check("IsInf", odd, detect_negative=0)
    check("IsInf", odd, detect_positive=0)
    check("IsNaN", odd)
