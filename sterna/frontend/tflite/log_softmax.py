"""LOG_SOFTMAX of bytes, as processors' kernels compute it: by a table of exponentials of floats."""

import numpy as np

from sterna.frontend.calls import call, cast, constant
from sterna.frontend.tflite.node import TFLM, Node, single
from sterna.relay.expr import RelayExpr
from sterna.relay.quantized import int_range
from sterna.support.dtype import DataType
from sterna.support.errors import OpNotImplemented


def log_softmax_of_bytes(node: Node) -> RelayExpr:
    """Each byte's distance from the largest of its row, less the logarithm of the row's sum.

    Products are not rounded before what is added to them, as compilers for AArch64 have it.
    """
    if node.rounding == TFLM:
        raise OpNotImplemented(f"{node.dtype()} by the rule of microcontrollers")
    scale, _ = single(node.quantization(0), "its data")
    out_scale, out_zero = single(node.result_quantization(), "the result")
    steps = np.arange(256, dtype=np.float32) * -scale
    table = np.exp(steps.astype(np.float64)).astype(np.float32)
    wide = cast(node[0], "int32")
    most = call("max", wide, axis=-1, keepdims=True)
    parts = call("take", constant(table), call("subtract", most, wide), axis=0)
    total = cast(call("sum", cast(parts, "float64"), axis=-1, keepdims=True), "float32")
    logarithm = cast(call("log", cast(total, "float64")), "float32")
    start = call("divide", _fused(most, scale, logarithm), constant(out_scale, "float32"))
    made = _fused(wide, scale / out_scale, call("negative", start))
    dtype = node.result_dtype()
    low, high = int_range(DataType(dtype))
    steps_from_zero = cast(call("clip", call("round_even", made), -1e6, 1e6), "int32")
    return cast(call("clip", call("add", steps_from_zero, constant(out_zero, "int32")), low, high),
                dtype)


def _fused(whole: RelayExpr, factor: np.float32, added: RelayExpr) -> RelayExpr:
    """A product and a sum, rounded together to float32."""
    product = call("multiply", cast(whole, "float64"), constant(factor, "float64"))
    return cast(call("add", product, cast(added, "float64")), "float32")
