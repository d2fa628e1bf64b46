"""The dataflow pattern language: parts of graphs described, found, rewritten and cut out.

    bias, weight = wildcard(), is_constant()
    layer = is_op("nn.relu")(is_op("nn.bias_add")(is_op("nn.dense")(wildcard(), weight), bias))
    layer.match(expr)

    class Drop(DFPatternCallback):
        def __init__(self):
            super().__init__()
            self.x = wildcard()
            self.pattern = is_op("nn.dropout")(self.x)

        def callback(self, pre, post, node_map):
            return node_map[self.x][0]

    rewrite(Drop(), expr)

A pattern (pattern.py) says what an expression is made of. Within one match a pattern object stands
for one expression, wherever it occurs. add and multiply match with their arguments in either order.
"""

from sterna.relay.dataflow_pattern.matcher import match
from sterna.relay.dataflow_pattern.pattern import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    IfPattern,
    LetPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
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
    wildcard,
)
from sterna.relay.dataflow_pattern.rewriter import DFPatternCallback, partition, rewrite

__all__ = [
    "AltPattern", "AttrPattern", "CallPattern", "ConstantPattern", "DFPattern",
    "DFPatternCallback", "DataTypePattern", "DominatorPattern", "ExprPattern", "FunctionPattern",
    "IfPattern", "LetPattern", "ShapePattern", "TupleGetItemPattern", "TuplePattern",
    "TypePattern", "VarPattern", "WildcardPattern", "dominates", "has_attr", "has_dtype",
    "has_shape", "has_type", "is_constant", "is_expr", "is_if", "is_let", "is_op", "is_tuple",
    "is_tuple_get_item", "is_var", "match", "partition", "rewrite", "wildcard",
]
