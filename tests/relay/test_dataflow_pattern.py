"""The dataflow pattern language: patterns that match, callbacks that rewrite, and partitions."""

from typing import Any

import numpy as np
import pytest

import sterna as tvm
from sterna import relay
from sterna.relay.dataflow_pattern import (
    DFPattern,
    DFPatternCallback,
    FunctionPattern,
    dominates,
    has_attr,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_if,
    is_let,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    match,
    partition,
    rewrite,
    wildcard,
)
from sterna.support.dtype import DataType

X = relay.var("x", shape=(2, 3))
Y = relay.var("y", shape=(2, 3))
K_ELEMWISE = 0


def image() -> relay.Var:
    return relay.var("x", shape=(1, 4, 8, 8))


def test_parts_of_graphs() -> None:
    assert is_op("add").match(relay.op.Op.get("add"))
    assert not is_op("add").match(relay.op.Op.get("subtract"))
    assert is_var().match(X) and is_var("x").match(X) and not is_var("y").match(X)
    assert is_constant().match(relay.const(1.0)) and not is_constant().match(X)
    assert is_expr(X).match(X) and not is_expr(X).match(Y)
    assert wildcard().match(X + Y)
    both = relay.Tuple((X, Y))
    assert is_tuple((is_var("x"), wildcard())).match(both) and is_tuple().match(both)
    assert not is_tuple((wildcard(),)).match(both)
    assert is_tuple_get_item(is_tuple(), 1).match(relay.TupleGetItem(both, 1))
    assert not is_tuple_get_item(is_tuple(), 0).match(relay.TupleGetItem(both, 1))
    assert is_tuple_get_item(wildcard()).match(relay.TupleGetItem(both, 1))
    choice = relay.If(relay.var("c", shape=(), dtype="bool"), X, Y)
    assert is_if(wildcard(), is_var("x"), is_var("y")).match(choice)
    named = relay.var("z")
    assert is_let(is_var("z"), is_var("x"), wildcard()).match(relay.Let(named, X, named))
    func = relay.Function((X, Y), X + Y)
    assert FunctionPattern((wildcard(), wildcard()), wildcard() + wildcard()).match(func)
    assert not FunctionPattern((wildcard(),), wildcard()).match(func)
    assert FunctionPattern(None, is_op("add")(wildcard(), wildcard())).match(func)


def test_calls() -> None:
    assert is_op("nn.relu")(is_var()).match(relay.nn.relu(X))
    assert is_op("nn.relu")().match(relay.nn.relu(X))
    assert not is_op("nn.relu")(is_var()).match(relay.nn.relu(relay.nn.relu(X)))
    assert (is_op("add") | is_op("subtract"))(is_var(), wildcard()).match(X - Y)
    x, y = is_var("x"), is_var("y")
    for pattern, good, bad in (
        (x + y, Y + X, X - Y), (x * y, Y * X, X / Y), (x - y, X - Y, Y - X), (x / y, X / Y, Y / X),
    ):
        assert pattern.match(good) and not pattern.match(bad)
    z = relay.var("z", shape=(2, 3))
    for expr in (X * Y / z, X / z * Y, Y * (X / z)):
        assert (x * y / is_var("z")).match(expr)


def test_a_pattern_is_one_expression_in_a_match() -> None:
    same = wildcard()
    assert (same * same).match(X * X) and not (same * same).match(X * Y)
    # A branch that failed has left nothing behind.
    left, right = is_var(), is_constant()
    assert ((left + right) | (right * left)).match(X * relay.const(np.ones((2, 3), "float32")))


def test_types_and_attributes() -> None:
    float32 = DataType("float32")
    kind = relay.TensorType((2, 3), float32)
    assert has_type(kind).match(X) and not has_type(relay.TensorType((2,), float32)).match(X)
    assert has_dtype("float32", is_var()).match(X) and not has_dtype("int8").match(X)
    assert has_shape((2, 3)).match(X + Y) and not wildcard().has_shape((3, 2)).match(X)
    conv = relay.nn.conv2d(image(), relay.var("w", shape=(4, 4, 3, 3)), padding=(1, 1))
    any_conv = is_op("nn.conv2d")(wildcard(), wildcard())
    assert any_conv.has_attr({"padding": [1, 1, 1, 1], "data_layout": "NCHW"}).match(conv)
    assert not any_conv.has_attr({"data_layout": "NHWC"}).match(conv)
    assert not any_conv.has_attr({"colour": "red"}).match(conv)
    elementwise = has_attr({"TOpPattern": K_ELEMWISE})
    assert elementwise.match(relay.op.Op.get("nn.relu")) and not elementwise.match(conv)
    func = relay.Function((X,), X).with_attr("Composite", "own.copy")
    assert wildcard().has_attr({"Composite": "own.copy"}).match(func)


def test_options_and_repetitions() -> None:
    summed = is_op("add")(wildcard(), wildcard()).optional(lambda x: is_op("nn.relu")(x))
    assert summed.match(X + Y) and summed.match(relay.nn.relu(X + Y))
    assert not summed.match(relay.nn.relu(X))
    chain, own = wildcard(), is_var("x")
    chain.redirect_to(is_op("nn.relu")(chain) | own)
    assert chain.match(X)
    assert (is_op("tanh")(wildcard())).match(relay.tanh(X))


def diamond(last: Any = relay.add) -> tuple[Any, Any]:
    start = relay.nn.conv2d(image(), relay.var("w", shape=(4, 4, 1, 1)))
    return start, last(relay.nn.relu(start), relay.nn.leaky_relu(relay.tanh(start)))


def test_dominators() -> None:
    conv = is_op("nn.conv2d")(is_var(), is_var())
    elementwise = wildcard().has_attr({"TOpPattern": K_ELEMWISE})(wildcard())
    joined = is_op("add")(wildcard(), wildcard())
    pattern = dominates(conv, elementwise, joined)
    start, end = diamond()
    assert pattern.match(end) and joined.dominates(conv, elementwise).match(end)
    assert not pattern.match(diamond(relay.multiply)[1])
    assert not pattern.match(relay.nn.relu(start) + relay.var("z", shape=(1, 4, 8, 8)))
    assert not pattern.match(relay.nn.relu(start) + relay.nn.softmax(start))


class Normalisation(DFPatternCallback):
    """gamma * (x - mean) / sqrt(var + eps) + beta becomes a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.x, self.mean, self.var = wildcard(), wildcard(), wildcard()
        self.gamma, self.beta, self.eps = wildcard(), wildcard(), is_constant()
        scaled = self.gamma * (self.x - self.mean)
        self.pattern = scaled / is_op("sqrt")(self.var + self.eps) + self.beta

    def callback(self, pre: Any, post: Any, node_map: Any) -> Any:
        x, mean, var, gamma, beta, eps = (
            node_map[each][0]
            for each in (self.x, self.mean, self.var, self.gamma, self.beta, self.eps)
        )
        return relay.nn.batch_norm(
            x, gamma, beta, mean, var, epsilon=float(eps.data.numpy())
        )[0]


def run(expr: Any, **values: Any) -> Any:
    func = relay.Function(tuple(relay.analysis.free_vars(expr)), expr)
    given = [values[param.name_hint] for param in func.params]
    executor = relay.create_executor("graph", tvm.IRModule.from_expr(func))
    return executor.evaluate()(*given).numpy()


def test_a_batch_norm_is_found() -> None:
    x = relay.var("x", shape=(2, 4))
    mean, var, gamma, beta = (relay.var(name, shape=(4,)) for name in "mvgb")
    eps = relay.const(1e-3)
    written = (
        gamma * (x - mean) / relay.sqrt(var + eps) + beta,
        beta + (x - mean) * gamma / relay.sqrt(eps + var),
        gamma / relay.sqrt(var + eps) * (x - mean) + beta,
    )
    rng = np.random.default_rng(1)
    values = {name: rng.random(4).astype("float32") for name in "mvgb"}
    values["x"] = rng.random((2, 4)).astype("float32")
    for expr in written:
        found = rewrite(Normalisation(), expr)
        assert is_tuple_get_item(is_op("nn.batch_norm")(), 0).match(found)
        np.testing.assert_allclose(run(found, **values), run(expr, **values), rtol=1e-5)


class Swap(DFPatternCallback):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.a, self.b = wildcard(), wildcard()
        self.pattern: DFPattern = is_op("subtract")(self.a, self.b)

    def callback(self, pre: Any, post: Any, node_map: Any) -> Any:
        return node_map[self.b][0] - node_map[self.a][0]


class Fold(Swap):
    """relu(relu(x)) is relu(x)."""

    def __init__(self) -> None:
        super().__init__()
        self.pattern = is_op("nn.relu")(is_op("nn.relu")(self.a))

    def callback(self, pre: Any, post: Any, node_map: Any) -> Any:
        return relay.nn.relu(node_map[self.a][0])


def test_rewriting_goes_on_until_nothing_changes() -> None:
    expr: Any = X
    for _ in range(7):
        expr = relay.nn.relu(expr)
    assert tvm.ir.structural_equal(Fold().rewrite(expr), relay.nn.relu(X))
    unchanged: Any = X + Y
    assert rewrite(Fold(), unchanged) is unchanged
    with pytest.raises(ValueError, match="Swap: the graph still changes after 100 passes"):
        rewrite(Swap(), X - Y)
    once = rewrite([Swap(rewrite_once=True)], X - Y)
    assert tvm.ir.structural_equal(once, Y - X)


def test_what_others_use_is_left() -> None:
    inner = relay.nn.relu(X)
    expr = relay.nn.relu(inner) + inner
    assert rewrite(Fold(), expr) is expr
    assert partition(Fold().pattern, expr) is expr


def test_bad_callbacks() -> None:
    with pytest.raises(NotImplementedError, match="DFPatternCallback has no method callback"):
        plain = DFPatternCallback()
        plain.pattern = wildcard()
        rewrite(plain, X)
    with pytest.raises(TypeError, match="DFPatternCallback sets no pattern"):
        rewrite(DFPatternCallback(), X)
    nothing = Fold()
    nothing.callback = lambda pre, post, node_map: None  # type: ignore[method-assign]
    with pytest.raises(TypeError, match="the callback of Fold gives NoneType"):
        rewrite(nothing, relay.nn.relu(relay.nn.relu(X)))
    with pytest.raises(TypeError, match="is_expr"):
        is_op("add")(X, wildcard())  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"there is no operator 'nn.rel'; did you mean"):
        is_op("nn.rel")


def layer(x: Any, name: str) -> Any:
    weight, bias = relay.var(f"w{name}", shape=(4, 4)), relay.var(f"b{name}", shape=(4,))
    return relay.nn.relu(relay.nn.bias_add(relay.nn.dense(x, weight), bias))


def test_partitions() -> None:
    x = relay.var("x", shape=(2, 4))
    dense = is_op("nn.dense")(wildcard(), wildcard())
    pattern = is_op("nn.bias_add")(dense, wildcard()).optional(lambda y: is_op("nn.relu")(y))
    expr = relay.nn.softmax(layer(layer(x, "1"), "2"))
    made: Any = pattern.partition(expr, {"Composite": "own.layer"})
    func = made.args[0].op
    assert isinstance(func, relay.Function) and len(func.params) == 3
    assert func.attrs == {
        "PartitionedFromPattern": "nn.dense_nn.bias_add_nn.relu_", "Composite": "own.layer",
    }
    assert isinstance(made.args[0].args[0].op, relay.Function)
    rng = np.random.default_rng(2)
    shapes = {var.name_hint: var.checked_type for var in relay.analysis.free_vars(expr)}
    values = {
        name: rng.random(kind.concrete_shape).astype("float32")
        for name, kind in shapes.items() if isinstance(kind, relay.TensorType)
    }
    np.testing.assert_allclose(run(made, **values), run(expr, **values), rtol=1e-6)

    def is_first(root: Any) -> bool:
        return root.args[0].args[0].args[0] is x

    few: Any = partition(pattern, expr, check=is_first)
    assert isinstance(few.args[0].op, relay.op.Op)
    assert isinstance(few.args[0].args[0].args[0].args[0].op, relay.Function)


def test_partition_keeps_constants_and_takes_whole_dominated_parts() -> None:
    halved: Any = is_op("multiply")(wildcard(), is_constant()).partition(X * relay.const(0.5))
    assert len(halved.op.params) == 1
    conv = is_op("nn.conv2d")(is_var(), is_var())
    elementwise = wildcard().has_attr({"TOpPattern": K_ELEMWISE})(wildcard())
    joined = is_op("add")(wildcard(), wildcard())
    _, end = diamond()
    made: Any = dominates(conv, elementwise, joined).partition(end)
    assert isinstance(made.op, relay.Function) and len(made.args) == 2
    assert match(joined, made.op.body)


def test_tables_of_patterns() -> None:
    dense = is_op("nn.dense")(wildcard(), wildcard())
    biased = is_op("nn.bias_add")(dense, wildcard())
    table: list[Any] = [
        ("own.layer", is_op("nn.relu")(biased)), ("own.dense", dense, lambda root: True),
    ]
    x = relay.var("x", shape=(2, 4))
    expr = relay.nn.dense(layer(x, "1"), relay.var("w2", shape=(4, 4)))
    made: Any = relay.testing.run_opt_pass(expr, relay.transform.MergeComposite(table))
    assert made.op.attrs["Composite"] == "own.dense"
    assert made.args[0].op.attrs["Composite"] == "own.layer"
    with pytest.raises(TypeError, match=r"an entry of a pattern table is \(name, pattern\)"):
        relay.transform.MergeComposite([("own.layer",)])  # type: ignore[list-item]


def test_long_chains() -> None:
    expr: Any = X
    for _ in range(3000):
        expr = relay.tanh(expr)
    assert rewrite(Fold(), expr) is expr
