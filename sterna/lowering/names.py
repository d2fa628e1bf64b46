"""Names of kernels: what they do, in the order in which they do it."""

from sterna.relay.expr import Function
from sterna.relay.op import record_of
from sterna.relay.traverse import post_order

LONGEST = 80


def kernel_name(func: Function, prefix: str) -> str:
    """tvmgen_default_fused_nn_conv2d_add_nn_relu"""
    names = [r.name.replace(".", "_") for r in map(record_of, post_order(func.body)) if r]
    return f"{prefix}_fused_{'_'.join(names)}"[:LONGEST].rstrip("_")
