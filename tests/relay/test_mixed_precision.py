"""What users say of operators in mixed precision."""

from collections.abc import Iterator
from typing import Any

import pytest

import sterna as tvm
from sterna import relay
from sterna.relay import mixed_precision

MIXED_PRECISION_ALWAYS = relay.transform.mixed_precision.MIXED_PRECISION_ALWAYS
MIXED_PRECISION_NEVER = relay.transform.mixed_precision.MIXED_PRECISION_NEVER


@pytest.fixture(autouse=True)
def alone() -> Iterator[None]:
    before = dict(mixed_precision._CONVERSIONS)
    yield
    mixed_precision._CONVERSIONS.clear()
    mixed_precision._CONVERSIONS.update(before)


def narrowed() -> str:
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(4, 8))
    func = relay.Function((x, w), relay.nn.relu(relay.nn.dense(x, w, out_dtype="float32")))
    return str(relay.transform.ToMixedPrecision("float16")(tvm.IRModule.from_expr(func)))


def test_sums_may_be_wider_than_results() -> None:
    def conversion(call: relay.Call, mixed_precision_type: str) -> list[Any]:
        assert str(call.op) == "nn.dense"
        return [MIXED_PRECISION_ALWAYS, "float32", mixed_precision_type]

    relay.op.register_mixed_precision_conversion("nn.dense", level=11)(conversion)
    assert 'out_dtype="float32"' in narrowed() and narrowed().count('dtype="float16"') == 3


def test_the_highest_level_counts() -> None:
    relay.op.register_mixed_precision_conversion(
        "nn.dense", lambda call, kind: [MIXED_PRECISION_NEVER, "float32", "float32"], level=12)
    relay.op.register_mixed_precision_conversion(
        "nn.dense", lambda call, kind: [MIXED_PRECISION_ALWAYS, kind, kind], level=11)
    assert "float16" not in narrowed()


def test_mistakes_are_named() -> None:
    register = relay.op.register_mixed_precision_conversion
    with pytest.raises(ValueError, match=r"no operator 'nn.densee'; did you mean nn.dense"):
        register("nn.densee", lambda call, kind: [MIXED_PRECISION_NEVER])
    register("nn.dense", lambda call, kind: ["always"])
    with pytest.raises(ValueError, match=r"conversion of nn.dense gives \['always'\], not \[categ"):
        narrowed()
    with pytest.raises(ValueError, match="with level 10 already; give yours a higher level"):
        register("nn.dense", lambda call, kind: [MIXED_PRECISION_NEVER])
