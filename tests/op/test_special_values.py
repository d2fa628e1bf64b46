"""NaN, Inf, -0 and subnormals: what is folded at compile time is what runs.

Constants are folded by the operators' references, so references and kernels must agree about
numbers of which one may spread to many.
"""

import re
from typing import Any

import numpy as np
import pytest

from sterna.ir.types import TensorType, TupleType, flatten_type
from sterna.relay.op import COMM_REDUCE, AnyOp, Case, records
from tests.op.harness import arrays_of, compiled, flatten, reference, type_of

SPECIAL = (np.nan, np.inf, -np.inf, -0.0, 0.0, 1e-40, -1e-40)

# The larger of 0 and -0 is either, as the processor's instruction has it.
ANY_ZERO = ("clip", "nn.relu")

# Nearly 0 stands for 0 where the exponential of -Inf is that of a number that is low enough.
NEARLY_ZERO = ("sigmoid",)

# Contractions, norms and pools, of which one number reaches many results: few are special there.
SPREADING = re.compile(r"nn\.(\w*(conv|dense|matmul|norm|softmax|pool|attention)|lrn)")

# What takes numbers that 16 bits hold, and no others.
BOUNDED = ("qnn.scaled_bytes",)

DATA, WEIGHTS = "data", "weights"

SWEPT = [
    pytest.param(record, case, part, id=f"{record.name}-{place}-{part}")
    for record in records().values()
    if record.compute is not None and not record.name.startswith(("dyn.", "fast_", *BOUNDED))
    and (record.pattern <= COMM_REDUCE or record.name.startswith("image.")
         or SPREADING.match(record.name))
    for place, case in enumerate(record.cases)
    if any(array.dtype.kind == "f" for array in flatten(arrays_of(case)))
    for part in (DATA, WEIGHTS)
    if part == DATA or (SPREADING.match(record.name) and len(case.inputs) > 1)
]


def _with_special(value: Any, rng: np.random.Generator, part: int) -> Any:
    """An array of which one element in so many is special."""
    if isinstance(value, list):
        return [_with_special(item, rng, part) for item in value]
    if value.dtype.kind != "f" or not value.size:
        return value
    made = np.array(value)
    count = max(1, made.size // part)
    places = rng.choice(made.size, count, replace=False)
    chosen = np.resize(np.roll(SPECIAL, rng.integers(len(SPECIAL))), count)
    made.reshape(-1)[places] = chosen.astype(made.dtype)
    return made


def _operands(record: AnyOp, case: Case, part: str) -> list[Any]:
    """Those of a case: of what spreads, the data or all else is special; scales stay."""
    rng = np.random.default_rng(1)
    names = [*record.inputs, *[""] * len(case.inputs)]
    spreads = SPREADING.match(record.name) is not None
    return [
        value if "scale" in name or (spreads and (place > 0) != (part == WEIGHTS))
        else _with_special(value, rng, 40 if spreads else 6)
        for place, (name, value) in enumerate(zip(names, arrays_of(case), strict=False))
    ]


def assert_alike(got: Any, want: Any, tolerance: float, name: str = "") -> None:
    """The same NaN, Inf and zeros with their signs; other numbers nearly so."""
    assert got.dtype == want.dtype and got.shape == want.shape
    if want.dtype.kind in "iub":
        np.testing.assert_array_equal(got, want)
        return
    have, need = got.astype("float64"), want.astype("float64")
    finite = np.isfinite(need)
    np.testing.assert_array_equal(np.where(np.isfinite(have), 0, have), np.where(finite, 0, need))
    scale = max(1.0, float(np.max(np.abs(need[finite]), initial=0.0)))
    np.testing.assert_allclose(have[finite], need[finite], rtol=tolerance, atol=tolerance * scale)
    if name not in NEARLY_ZERO:
        near = np.abs(need) < np.finfo("float32").tiny
        np.testing.assert_array_equal((have == 0)[near], (need == 0)[near])
    if name not in ANY_ZERO:
        zero = (have == 0) & (need == 0)
        np.testing.assert_array_equal(np.signbit(have)[zero], np.signbit(need)[zero])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize(("record", "case", "part"), SWEPT)
def test_folded_and_run(record: AnyOp, case: Case, part: str) -> None:
    operands = _operands(record, case, part)
    attrs = record.attrs(**case.attrs) if record.attrs is not None else None
    kind = record.infer(attrs, *[type_of(value) for value in operands])
    assert record.reference is not None
    wanted = flatten(record.reference(attrs, *operands))
    known = [type_of(want) for want in wanted]
    assert len(known) == len(flatten_type(kind))
    exact = known[0] if isinstance(kind, TensorType) else TupleType(tuple(known))
    for got, want in zip(compiled(record, attrs, operands, exact), wanted, strict=True):
        assert_alike(got, want, case.tolerance, record.name)


@pytest.mark.parametrize("method", ["nearest_neighbor", "linear", "cubic"])
def test_one_infinity_reaches_its_neighbours_only(method: str) -> None:
    row = np.zeros((1, 1, 20), "float32")
    row[0, 0, 3] = np.inf
    made = reference("image.resize1d", row, size=(40,), layout="NCW", method=method)
    assert 1 <= np.count_nonzero(~np.isfinite(made)) <= 10
    assert np.isfinite(made[..., 14:]).all()
