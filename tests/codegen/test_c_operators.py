"""Every operator on every type: C, the interpreter and NumPy agree."""

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from sterna.ir import Expr, build, const
from sterna.ir import expr as E
from sterna.support.dtype import DataType
from sterna.tir import PrimFunc
from sterna.tir.interpreter import run
from sterna.tir.verify import verify
from tests.codegen.c_harness import Array, Library, as_floats, as_stored, elementwise, zig
from tests.support import require_module, require_program

INTS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FLOATS = ["float16", "bfloat16", "float32", "float64"]

ARITHMETIC = {"add": E.Add, "sub": E.Sub, "mul": E.Mul, "min": E.Min, "max": E.Max}
DIVISIONS = {
    "floordiv": E.FloorDiv,
    "floormod": E.FloorMod,
    "truncdiv": E.TruncDiv,
    "truncmod": E.TruncMod,
}
COMPARISONS = {"lt": E.LT, "le": E.LE, "gt": E.GT, "ge": E.GE, "eq": E.EQ, "ne": E.NE}
BITS = ["bitwise_and", "bitwise_or", "bitwise_xor"]


def edge_values(dtype: str) -> list[Any]:
    kind = DataType(dtype)
    if kind.is_float:
        values = [0.0, -0.0, 1.0, -1.5, 0.1, 3.0, 1e-3, 65504.0, -300.25, float("inf"),
                  float("-inf"), float("nan"), 6e-8, 1.0009765625]
        return values if dtype == "float16" else [*values, 1e30, -1e-30, 3e38]
    top = 2 ** (kind.bits - kind.is_int)
    low = [-top, -top + 1, -7, -3, -1] if kind.is_int else []
    return [*low, 0, 1, 2, 3, 7, 100, top // 2, top - 2, top - 1]


def pairs(dtype: str, nonzero: bool = False) -> tuple[Array, Array]:
    values = edge_values(dtype)
    both = [(a, b) for a, b in itertools.product(values, values) if b != 0 or not nonzero]
    kind = np.float64 if DataType(dtype).is_float else object
    left, right = (np.array(side, kind) for side in zip(*both, strict=True))
    with np.errstate(over="ignore"):
        return as_stored(left, dtype), as_stored(right, dtype)


class Case:
    def __init__(self, func: PrimFunc, inputs: list[Array], output: str) -> None:
        self.func = verify(func)
        self.inputs = inputs
        self.output = output


CASES: dict[str, Case] = {}


def add_case(
    name: str, compute: Callable[..., Expr], dtypes: list[str], output: str, inputs: list[Array]
) -> None:
    func = elementwise(name, compute, dtypes, output, len(inputs[0]))
    CASES[name] = Case(func, inputs, output)


def call(op: str, dtype: str = "") -> Callable[..., Expr]:
    return lambda *args: build.call_intrinsic(op, *args, dtype=dtype or None)


for _t in INTS + FLOATS:
    _a, _b = pairs(_t)
    for _name, _kind in ARITHMETIC.items():
        add_case(f"{_name}_{_t}", _kind, [_t, _t], _t, [_a, _b])
    for _name, _kind in COMPARISONS.items():
        add_case(f"{_name}_{_t}", _kind, [_t, _t], "bool", [_a, _b])
    add_case(
        f"select_{_t}", lambda a, b: build.select(a < b, b - a, a), [_t, _t], _t, [_a, _b]
    )
    add_case(f"abs_{_t}", call("abs"), [_t], _t, [_a])
    add_case(f"constants_{_t}", lambda a: a * const(3, a.dtype) + const(5, a.dtype), [_t], _t, [_a])
    for _u in [*INTS, *FLOATS, "bool"]:
        if _u != _t and not (DataType(_t).is_float and DataType(_u).is_integer):
            add_case(f"cast_{_t}_{_u}", lambda a, u=_u: a.astype(u), [_t], _u, [_a])
        if _u in INTS:
            add_case(f"saturate_{_t}_{_u}", call("saturate", _u), [_t], _u, [_a])
    if DataType(_t).is_float:
        add_case(f"div_{_t}", E.Div, [_t, _t], _t, [_a, _b])

for _t in INTS:
    _a, _b = pairs(_t, nonzero=True)
    for _name, _kind in DIVISIONS.items():
        add_case(f"{_name}_{_t}", _kind, [_t, _t], _t, [_a, _b])
        add_case(
            f"{_name}_by_const_{_t}", lambda a, k=_kind: k(a, const(5, a.dtype)), [_t], _t, [_a]
        )
    for _name in BITS:
        add_case(f"{_name}_{_t}", call(_name), [_t, _t], _t, [_a, _b])
    for _name in ("bitwise_not", "popcount", "clz"):
        add_case(f"{_name}_{_t}", call(_name), [_t], _t, [_a])
    _shift = (np.arange(len(_a)) % DataType(_t).bits).astype(_t)
    for _name in ("shift_left", "shift_right"):
        add_case(f"{_name}_{_t}", call(_name), [_t, _t], _t, [_a, _shift])

for _t, _u in [("float32", "int32"), ("float64", "uint64"), ("float16", "int16"),
               ("bfloat16", "uint16"), ("int32", "uint32")]:
    _a, _b = pairs(_t)[0], pairs(_u)[0]
    add_case(f"bits_{_t}_{_u}", call("reinterpret", _u), [_t], _u, [_a])
    add_case(f"bits_{_u}_{_t}", call("reinterpret", _t), [_u], _t, [_b])

for _t in FLOATS:
    for _u in ("int32", "int64", "uint8", "int8"):
        _small = as_stored(np.array([0.0, -0.0, 0.5, 1.99, 3.0, 100.25]), _t)
        add_case(f"cast_{_t}_{_u}", lambda a, u=_u: a.astype(u), [_t], _u, [_small])

_TRUTHS = [np.array([0, 0, 1, 1], np.bool_), np.array([0, 1, 0, 1], np.bool_)]
add_case("and_bool", E.And, ["bool", "bool"], "bool", _TRUTHS)
add_case("or_bool", E.Or, ["bool", "bool"], "bool", _TRUTHS)
add_case("xor_bool", call("bitwise_xor"), ["bool", "bool"], "bool", _TRUTHS)
add_case("not_bool", E.Not, ["bool"], "bool", _TRUTHS[:1])


@pytest.fixture(scope="module")
def library() -> Library:
    require_program("gcc")
    return Library([case.func for case in CASES.values()], ["gcc"])


def interpret(case: Case) -> Array:
    out = as_stored(np.zeros(len(case.inputs[0])), case.output)
    run(case.func, *case.inputs, out)
    return as_floats(out, case.output)


def compiled(library: Library, case: Case) -> Array:
    out = as_stored(np.zeros(len(case.inputs[0])), case.output)
    assert library(case.func.name, *case.inputs, out) == 0
    return as_floats(out, case.output)


@pytest.mark.parametrize("name", CASES)
def test_c_agrees_with_the_interpreter(library: Library, name: str) -> None:
    expected = interpret(CASES[name])
    np.testing.assert_array_equal(compiled(library, CASES[name]), expected)


NUMPY: dict[str, Callable[..., Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply,
    "min": lambda a, b: np.where(a < b, a, b), "max": lambda a, b: np.where(a > b, a, b),
    "floordiv": np.floor_divide, "floormod": np.remainder, "truncmod": np.fmod,
    "div": np.divide, "lt": np.less, "le": np.less_equal, "gt": np.greater,
    "ge": np.greater_equal, "eq": np.equal, "ne": np.not_equal, "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or, "bitwise_xor": np.bitwise_xor, "shift_left": np.left_shift,
    "shift_right": np.right_shift, "abs": np.abs, "bitwise_not": np.bitwise_not,
}


# NumPy has no bfloat16.
@pytest.mark.parametrize(
    "name", [n for n in CASES if n.rsplit("_", 1)[0] in NUMPY and not n.endswith("_bfloat16")]
)
def test_the_interpreter_agrees_with_numpy(name: str) -> None:
    operator, _ = name.rsplit("_", 1)
    case = CASES[name]
    with np.errstate(all="ignore"):
        expected = NUMPY[operator](*case.inputs)
    np.testing.assert_array_equal(interpret(case), expected)


MATH = {
    "exp": (-3, 3), "exp2": (-3, 3), "exp10": (-2, 2), "log": (0.1, 9), "log2": (0.1, 9),
    "log10": (0.1, 9), "log1p": (-0.5, 3), "sqrt": (0, 9), "rsqrt": (0.1, 9), "sin": (-4, 4),
    "cos": (-4, 4), "tan": (-1, 1), "asin": (-1, 1), "acos": (-1, 1), "atan": (-4, 4),
    "sinh": (-3, 3), "cosh": (-3, 3), "tanh": (-3, 3), "asinh": (-3, 3), "acosh": (1, 5),
    "atanh": (-0.9, 0.9), "erf": (-2, 2), "sigmoid": (-9, 9), "floor": (-3, 3), "ceil": (-3, 3),
    "trunc": (-3, 3), "round": (-3, 3), "nearbyint": (-3, 3), "isnan": (-1, 1), "isinf": (-1, 1),
    "isfinite": (-1, 1),
}
MATH2 = ["atan2", "pow", "fmod", "hypot", "copysign", "nextafter"]


def math_cases() -> dict[str, Case]:
    found = {}
    for dtype in FLOATS:
        for name, (low, high) in MATH.items():
            points = [*np.linspace(low, high, 41), *np.arange(np.ceil(low * 2), high * 2) / 2]
            if name.startswith("is"):
                points += [np.nan, np.inf, -np.inf]
            values = as_stored(np.array(points), dtype)
            output = "bool" if name.startswith("is") else dtype
            func = elementwise(f"{name}_{dtype}", call(name, output), [dtype], output, len(values))
            found[func.name] = Case(func, [values], output)
        for name in MATH2:
            if name == "nextafter" and dtype in ("float16", "bfloat16"):
                continue
            grid = np.array(list(itertools.product([0.5, 1.0, 2.25, 7.0], [-1.5, 0.5, 2.0, 3.0])))
            inputs = [as_stored(grid[:, 0], dtype), as_stored(grid[:, 1], dtype)]
            func = elementwise(f"{name}_{dtype}", call(name), [dtype, dtype], dtype, len(grid))
            found[func.name] = Case(func, inputs, dtype)
    return found


def test_mathematics() -> None:
    require_program("gcc")
    cases = math_cases()
    library = Library([case.func for case in cases.values()], ["gcc"])
    tolerance = {"float16": 2e-3, "bfloat16": 2e-2, "float32": 1e-6, "float64": 1e-14, "bool": 0}
    for case in cases.values():
        np.testing.assert_allclose(
            compiled(library, case).astype(np.float64), interpret(case).astype(np.float64),
            rtol=tolerance[case.output], atol=tolerance[case.output] / 10, err_msg=case.func.name,
        )


def test_zig_takes_every_operator() -> None:
    require_module("ziglang")
    library = Library([case.func for case in CASES.values()], zig())
    for name in ("floordiv_int8", "cast_float64_float16", "saturate_float32_int8", "add_int64"):
        np.testing.assert_array_equal(compiled(library, CASES[name]), interpret(CASES[name]))
