"""The classic names of AutoTVM: templates with knobs, tasks, tuners, logs.

Templates are the user's own schedules of tensor expressions. The tasks of a network are its layers,
whose knobs are the questions that `sterna.schedule.choose` answers.
"""

from sterna.autotvm import (
    callback,
    dispatch,
    graph_tuner,
    layers,
    measure,
    record,
    space,
    task,
    tophub,
    tuner,
)
from sterna.autotvm.dispatch import FallbackContext, apply_graph_best, apply_history_best
from sterna.autotvm.layers import extract_from_program
from sterna.autotvm.measure import (
    LocalBuilder,
    LocalRunner,
    MeasureErrorNo,
    MeasureInput,
    MeasureResult,
    RPCRunner,
    measure_option,
)
from sterna.autotvm.space import ConfigEntity, ConfigSpace, InstantiationError
from sterna.autotvm.template import apply_fixed_config, create, get_config, template
from sterna.autotvm.tuner import (
    DropletTuner,
    GATuner,
    GridSearchTuner,
    RandomTuner,
    XGBTuner,
)

__all__ = [
    "ConfigEntity", "ConfigSpace", "DropletTuner", "FallbackContext", "GATuner",
    "GridSearchTuner", "InstantiationError", "LocalBuilder", "LocalRunner", "MeasureErrorNo",
    "MeasureInput", "MeasureResult", "RPCRunner", "RandomTuner", "XGBTuner",
    "apply_fixed_config", "apply_graph_best", "apply_history_best", "callback", "create",
    "dispatch", "extract_from_program", "get_config", "graph_tuner", "layers", "measure",
    "measure_option", "record", "space", "task", "template", "tophub", "tuner",
]
