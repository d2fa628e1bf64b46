"""Products of matrices."""

from collections.abc import Sequence

from sterna.frontend.calls import call, cast, constant, like, rank_of, type_of
from sterna.frontend.onnx.node import Node, converter
from sterna.relay.expr import Call, Constant, RelayExpr, Var
from sterna.relay.op import is_call_of


@converter("MatMul")
def matmul(node: Node) -> RelayExpr:
    return product(node, node[0], node[1])


def product(node: Node, a: RelayExpr, b: RelayExpr) -> RelayExpr:
    """NumPy's a @ b. Weights are transposed here, so that layers are nn.dense."""
    left, right = rank_of(a), rank_of(b)
    if left == 1:
        a = call("expand_dims", a, 0)
    if right == 1:
        b = call("expand_dims", b, 1)
    if rank_of(b) == 2:
        if _is_weight(node, b):
            flipped = call("transpose", b, (1, 0))
            made = call("nn.dense", a, flipped)
        else:
            made = call("nn.matmul", a, b)
    else:
        made = call(
            "nn.batch_matmul", a, b, transpose_a=False, transpose_b=False
        )
    if left == 1:
        made = call("squeeze", made, (rank_of(made) - 2,))
    return call("squeeze", made, (rank_of(made) - 1,)) if right == 1 else made


def _is_weight(node: Node, b: RelayExpr) -> bool:
    """Whether a matrix is the model's own, quantised perhaps."""
    if is_call_of(b, "qnn.dequantize"):
        assert isinstance(b, Call)
        return all(_is_weight(node, arg) for arg in b.args)
    return isinstance(b, Constant) or (isinstance(b, Var) and b in node.weights)


@converter("Gemm")
def gemm(node: Node) -> RelayExpr:
    a, b = node[0], node[1]
    alpha, beta = node.attr("alpha", 1.0), node.attr("beta", 1.0)
    if node.attr("transA", 0):
        a = call("transpose", a, (1, 0))
    if not node.attr("transB", 0):
        b = call("transpose", b, (1, 0))
    made = call("nn.dense", a, b)
    if alpha != 1:
        made = call("multiply", made, like(alpha, made))
    if not node.has(2) or beta == 0:
        return made
    c = node[2]
    if beta != 1:
        c = call("multiply", c, like(beta, c))
    columns = type_of(made).shape[1]
    if rank_of(c) == 1 and type_of(c).shape[0] == columns:
        return call("nn.bias_add", made, c, axis=1)
    return call("add", made, c)


@converter("Einsum")
def einsum(node: Node) -> RelayExpr:
    return call("einsum", node.operands(), equation=node.attr("equation").replace(" ", ""))


def whole_product(
    node: Node, a: RelayExpr, b: RelayExpr, zeros: Sequence[RelayExpr]
) -> RelayExpr:
    """NumPy's a @ b of whole numbers less their zero points, in 32 bits."""
    if min(rank_of(a), rank_of(b)) < 2 or max(map(rank_of, zeros)) > 1:
        rows, columns = zeros
        if rank_of(a) > 1 and rank_of(rows) == 1:
            rows = call("expand_dims", rows, 1)
        return product(node, _shifted(a, rows), _shifted(b, columns))
    one = constant(1, "float32")
    if rank_of(b) == 2 and _is_weight(node, b):
        flipped = call("transpose", b, (1, 0))
        return call("qnn.dense", a, flipped, *zeros, one, one, units=node.shape_of(b)[1])
    return call("qnn.batch_matmul", a, b, *zeros, one, one, transpose_b=False)


def _shifted(data: RelayExpr, zero: RelayExpr) -> RelayExpr:
    return call("subtract", cast(data, "int32"), cast(zero, "int32"))


@converter("Det")
def det(node: Node) -> RelayExpr:
    return call("det", node[0])
