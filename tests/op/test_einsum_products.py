"""Einsum by products of matrices, held against NumPy's."""

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.contrib import graph_executor

CASES: list[tuple[str, list[tuple[int, ...]], bool]] = [
    ("ij,jk->ki", [(17, 33), (33, 20)], True),
    ("ji,jk->ik", [(33, 17), (33, 20)], True),
    ("bij,bkj->bik", [(3, 17, 16), (3, 15, 16)], True),
    ("bnc,bnd->bdc", [(2, 16, 14), (2, 16, 13)], True),
    ("bhwc,hkc->bhwk", [(2, 5, 6, 16), (5, 7, 16)], True),
    ("ij,jk,kl->il", [(26, 22), (22, 28), (28, 20)], True),
    ("ab,bc,cd,ae->d", [(60, 70), (70, 80), (80, 90), (60, 6)], True),
    ("ijk,ilm,njm->nlk", [(6, 7, 8), (6, 9, 10), (5, 7, 10)], True),
    ("ij,j->i", [(80, 90), (90,)], True),
    ("bchw,cd->bdhw", [(2, 16, 5, 6), (16, 14)], True),
    ("dc,bchw->bdhw", [(14, 16), (2, 16, 5, 6)], True),
    ("bchw,dc->bhwd", [(2, 16, 5, 6), (14, 16)], True),
    ("bchw,c->bhw", [(2, 64, 28, 28), (64,)], True),
    ("...ij,...jk->...ik", [(2, 1, 17, 16), (3, 16, 15)], False),
    ("ij,ij->ij", [(80, 90), (80, 90)], False),
    ("iij,jk->ik", [(17, 17, 16), (16, 15)], False),
]


def test_gpus_have_them_of_16_bits() -> None:
    given = [relay.var("x", shape=(4, 8, 32, 64), dtype="bfloat16"),
             relay.var("y", shape=(8, 24, 64), dtype="bfloat16")]
    made = relay.einsum(given, "bhid,hjd->bhij")
    mod = tvm.IRModule.from_expr(relay.Function(tuple(given), made))
    for target, replaced in (("cuda -arch=sm_90a", True), ("llvm", False)):
        text = str(relay.transform.Legalize(tvm.target.Target(target))(
            relay.transform.InferType()(mod)))
        assert ("einsum" not in text) == replaced


@pytest.mark.parametrize(("equation", "shapes", "replaced"), CASES)
def test_they_compute_what_they_are(
    equation: str, shapes: list[tuple[int, ...]], replaced: bool
) -> None:
    rng = np.random.default_rng(0)
    data = [rng.standard_normal(shape).astype("float32") for shape in shapes]
    given = [relay.var(f"x{place}", shape=shape) for place, shape in enumerate(shapes)]
    mod = tvm.IRModule.from_expr(relay.Function(tuple(given), relay.einsum(given, equation)))
    with tvm.transform.PassContext(opt_level=3):
        text = str(relay.optimize(mod, "llvm -mcpu=native")[0])
        lib = relay.build(mod, target="llvm -mcpu=native")
    assert ("einsum" in text) != replaced
    m = graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
    m.run(**{f"x{place}": each for place, each in enumerate(data)})
    want = np.einsum(equation, *[each.astype("float64") for each in data])
    np.testing.assert_allclose(m.get_output(0).numpy(), want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("result", ["bdhw", "bhwd"])
@pytest.mark.parametrize("kind", ["bfloat16", "float32"])
def test_gpus_multiply_all_planes_at_once(kind: str, result: str) -> None:
    """Their tiles have rows of one matrix each, as long as the sums."""
    given = [relay.var("x", shape=(4, 64, 16, 16), dtype=kind),
             relay.var("w", shape=(64, 96), dtype=kind)]
    mod = tvm.IRModule.from_expr(
        relay.Function(tuple(given), relay.einsum(given, f"bchw,cd->{result}")))
    (library,) = relay.build(mod, target="cuda -arch=sm_90a").get_lib().imported_modules
    sources = [program.source for program in library._implementation.programs]
    assert sum("cp.async.bulk" in source for source in sources) == 1


def test_planes_stay_where_they_are() -> None:
    """Channels of images are multiplied as they lie: neither they nor the result are turned."""
    given = [relay.var("x", shape=(2, 16, 20, 30)), relay.var("w", shape=(16, 14))]
    mod = tvm.IRModule.from_expr(relay.Function(tuple(given), relay.einsum(given, "bchw,cd->bdhw")))
    text = str(relay.optimize(mod, "llvm -mcpu=native")[0])
    assert "batch_matmul" in text and "transpose(" not in text
