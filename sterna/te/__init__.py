"""Tensor expressions and schedules."""

from sterna.te import math as _math
from sterna.te.math import *  # noqa: F403  (its __all__ is part of this module)
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
from sterna.te.rfactor import rfactor
from sterna.te.schedule import Schedule, Stage, create_schedule
from sterna.te.tensor import ComputeOp, IterVar, Operation, PlaceholderOp, Range, Tensor

__all__ = [
    "ComputeOp", "IterVar", "Operation", "PlaceholderOp", "Range", "Schedule", "Stage", "Tensor",
    "comm_reducer", "compute", "const", "create_schedule", "max", "max_value", "min", "min_value",
    "placeholder", "prod", "reduce_axis", "size_var", "sum", "thread_axis", "var",
    *_math.__all__,
]  # fmt: skip

# A primitive in a file of its own, which schedules have as a method.
Schedule.rfactor = rfactor  # type: ignore[method-assign,assignment]
