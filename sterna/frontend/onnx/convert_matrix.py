"""Products of matrices."""

from sterna.frontend.onnx.node import (
    Node,
    call,
    cast,
    converter,
    dtype_of,
    like,
    rank_of,
    type_of,
)
from sterna.relay.expr import Call, Constant, RelayExpr, Var
from sterna.relay.op import is_call_of


@converter("MatMul")
def matmul(node: Node) -> RelayExpr:
    return product(node, node[0], node[1])


def product(node: Node, a: RelayExpr, b: RelayExpr, out_dtype: str = "") -> RelayExpr:
    """NumPy's a @ b. Weights are transposed here, so that layers are nn.dense."""
    left, right = rank_of(a), rank_of(b)
    if left == 1:
        a = call("expand_dims", a, 0)
    if right == 1:
        b = call("expand_dims", b, 1)
    if rank_of(b) == 2:
        if _is_weight(node, b):
            flipped = call("transpose", b, (1, 0))
            made = call("nn.dense", a, flipped, out_dtype=out_dtype)
        else:
            made = call("nn.matmul", a, b, out_dtype=out_dtype)
    else:
        made = call(
            "nn.batch_matmul", a, b, out_dtype=out_dtype, transpose_a=False, transpose_b=False
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


@converter("MatMulInteger")
def matmul_integer(node: Node) -> RelayExpr:
    a, b = (shifted(node, i, i + 2) for i in range(2))
    return product(node, a, b)


def shifted(node: Node, place: int, zero: int) -> RelayExpr:
    """Whole numbers less their zero point, which may be one for each row of a or column of b."""
    data = cast(node[place], "int32")
    if not node.has(zero):
        return data
    point = cast(node[zero], "int32")
    if place == 0 and rank_of(point) == 1 and type_of(point).shape[0] != 1:
        point = call("expand_dims", point, 1)
    assert dtype_of(point) == "int32"
    return call("subtract", data, point)


@converter("Det")
def det(node: Node) -> RelayExpr:
    return call("det", node[0])
