"""The passes over graphs under the names that users know."""

from sterna.ir.transform import Pass, PassContext, Sequential, function_pass, module_pass
from sterna.relay.passes.fuse_ops import FuseOps
from sterna.relay.passes.infer_type import InferType

__all__ = [
    "FuseOps", "InferType", "Pass", "PassContext", "Sequential", "function_pass", "module_pass",
]  # fmt: skip
