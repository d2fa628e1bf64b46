"""Tensor expressions and schedules."""

from sterna.support.classic import classic_names
from sterna.te import hybrid
from sterna.te.cache import cache_read, cache_write
from sterna.te.env_threads import env_threads
from sterna.te.extern import ExternOp, extern, extern_primfunc
from sterna.te.group import Group, create_group
from sterna.te.intrin import TensorIntrin, decl_tensor_intrin
from sterna.te.layout import transform_layout
from sterna.te.normalize import normalize
from sterna.te.operation import (
    comm_reducer,
    compute,
    const,
    max,
    max_value,
    min,
    min_value,
    placeholder,
    prod,
    reduce_axis,
    size_var,
    sum,
    thread_axis,
    var,
)
from sterna.te.prim_func import create_prim_func
from sterna.te.rfactor import rfactor
from sterna.te.scan import ScanOp, scan
from sterna.te.schedule import Schedule, Stage, create_schedule
from sterna.te.specialized import SpecializedCondition
from sterna.te.tag import tag_scope
from sterna.te.tensor import ComputeOp, IterVar, Operation, PlaceholderOp, Range, Tensor
from sterna.tir import op as _op
from sterna.tir.index_map import IndexMap
from sterna.tir.op import *  # noqa: F403  (its __all__ is part of this module)

AXIS_SEPARATOR = IndexMap.AXIS_SEPARATOR

__all__ = [
    "AXIS_SEPARATOR", "ComputeOp", "ExternOp", "Group", "IterVar", "Operation", "PlaceholderOp",
    "Range", "ScanOp", "Schedule", "SpecializedCondition", "Stage", "Tensor", "TensorIntrin",
    "comm_reducer", "compute", "const", "create_prim_func", "create_schedule",
    "decl_tensor_intrin", "extern", "extern_primfunc", "hybrid", "max", "max_value", "min",
    "min_value", "placeholder", "prod", "reduce_axis", "scan", "size_var", "sum", "tag_scope",
    "thread_axis", "var",
    *_op.__all__,
]

# What has a file of its own and is a method all the same.
Stage.env_threads = env_threads  # type: ignore[method-assign,assignment]
Stage.transform_layout = transform_layout  # type: ignore[method-assign,assignment]
Schedule.cache_read = cache_read  # type: ignore[method-assign,assignment]
Schedule.cache_write = cache_write  # type: ignore[method-assign,assignment]
Schedule.rfactor = rfactor  # type: ignore[method-assign,assignment]
Schedule.create_group = create_group  # type: ignore[method-assign,assignment]
Schedule.normalize = normalize  # type: ignore[method-assign,assignment]

__getattr__ = classic_names(__name__)
